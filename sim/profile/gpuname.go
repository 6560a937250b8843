package profile

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// defaultModel is the model of a worker if only its GPU is given.
const defaultModel = "llama-3.1-8b"

// ForGPU lists the names of the profiles for workers with one GPU. It accepts the GPU's name in any spelling
// ("H100 64 GB", "rtx 4090", "a100"). These are the measured embedded profiles. If there are several, the computed one
// of model llama-3.1-8b follows for each GPU of that name that has no measured profile of this model. If there is none,
// the computed ones alone are listed.
func ForGPU(gpu string) (list []string) {
	want := bare(gpu)
	if want == "" {
		return nil
	}
	for _, name := range Names() {
		p, err := Embedded(name)
		if err == nil && p.GPUs() == 1 && isGPU(p.GPU, want) && p.Provenance().Kind == Measured {
			list = append(list, name)
		}
	}
	if len(list) == 1 {
		return list
	}
	var cards []string // with a measured profile of the model
	for _, name := range list {
		if p, err := Embedded(name); err == nil && strings.HasPrefix(name, defaultModel+"-") {
			cards = append(cards, cardOf(p))
		}
	}
	for _, g := range GPUs() {
		measured := slices.Contains(cards, g.Name)
		if isGPU(g.Name, want) && !measured {
			list = append(list, AnalyticPrefix+defaultModel+","+g.Name)
		}
	}
	return list
}

// Choices describes profiles, one line each: name, GPU with its memory, engine and kind.
func Choices(ctx context.Context, names []string) (lines []string) {
	for _, name := range names {
		p, err := Load(ctx, name)
		if err != nil {
			continue // it names no profile that can be used
		}
		v := p.Provenance()
		lines = append(lines, fmt.Sprintf("%s: %s, %s, %s", name, cardText(p), v.Engine, v.Kind))
	}
	return lines
}

// different is the ratio of decode steps from which two profiles are said to differ.
const different = 1.3

// Differs warns if a short name of an embedded profile names a GPU that differs from the profile's, and the same model
// is more than 30 % faster or slower on it; "": no.
func Differs(ctx context.Context, short string) string {
	name := Canonical(short)
	if name == short || !IsEmbedded(short) {
		return ""
	}
	own, err := Embedded(name)
	if err != nil || own.GPUs() != 1 {
		return ""
	}
	card := cardOf(own)
	for _, g := range GPUs() {
		model, fits := strings.CutSuffix(short, "-"+g.Name)
		if !fits || g.Name == card {
			continue
		}
		other := AnalyticPrefix + model + "," + g.Name
		p, err := Load(ctx, other)
		if err != nil {
			continue // no such model
		}
		if r := decodeStep(p) / decodeStep(own); r > different || r < 1/different {
			return fmt.Sprintf("profile %s is %s (%s); on %s a decode step is %+.0f %%: --profile %s", short, name,
				cardText(own), cardText(p), 100*(r-1), other)
		}
	}
	return ""
}

// cardOf returns the name of a profile's GPU in the table of GPUs: h100-64gb for "H100 64 GB"; "": it is not in it.
func cardOf(p *Profile) (name string) {
	for _, g := range GPUs() {
		if strings.HasPrefix(bare(p.GPU), bare(g.Name)) && len(g.Name) > len(name) {
			name = g.Name
		}
	}
	return name
}

// cardText describes a profile's GPU with its memory: "H100 64 GB, about 2 TB/s", "1 x h100 (80 GiB, 3.35 TB/s)".
func cardText(p *Profile) string {
	text := p.Provenance().Hardware
	if p.Provenance().Kind != Computed {
		return text
	}
	for _, g := range GPUs() {
		if strings.HasSuffix(p.GPU, " "+g.Name) {
			return fmt.Sprintf("%s (%g GiB, %.3g TB/s)", text, g.MemoryGiB, g.GBPerS/1000)
		}
	}
	return text
}

// decodeStep returns the time of a step with 16 requests of 500 tokens each, s.
func decodeStep(p *Profile) float64 {
	return p.Compile().Step(&StepWork{Batch: 16, KV: 16 * 500}).Seconds()
}

// FindAnalytic returns the description of a worker from names of its model and its GPU in any spelling, such as
// "Llama-3.1-8B-Instruct" and "H100".
func FindAnalytic(model, gpu string) (Analytic, error) {
	m := architectureOf(model)
	if m == nil {
		return Analytic{}, fmt.Errorf("unknown model %s", model)
	}
	i := slices.IndexFunc(GPUs(), func(g GPU) bool { return isGPU(g.Name, bare(gpu)) })
	if i < 0 {
		return Analytic{}, fmt.Errorf("unknown GPU %s", gpu)
	}
	return NewAnalytic(m.Name, GPUs()[i].Name), nil
}

// isGPU reports whether the first words of name are the GPU, a bare name with a digit. "H100 64 GB" is h100,
// but not h1.
func isGPU(name, gpu string) bool {
	begin := ""
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '-' }) {
		if begin += bare(word); begin == gpu && strings.ContainsAny(gpu, "0123456789") {
			return true
		}
	}
	return false
}

// bare returns the letters and digits of a name, in lower case.
func bare(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
}
