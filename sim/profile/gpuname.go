package profile

import (
	"fmt"
	"slices"
	"strings"
)

// defaultModel is the model of a worker if only its GPU is given.
const defaultModel = "llama-3.1-8b"

// ForGPU returns the name of a profile for workers with one GPU. It accepts the GPU's name in any spelling
// ("H100", "rtx 4090", "a100"). The profile is the first measured embedded one, else the analytic one of
// model llama-3.1-8b. ok is false if the GPU is unknown.
func ForGPU(gpu string) (name string, ok bool) {
	want := bare(gpu)
	if want == "" {
		return "", false
	}
	for _, name := range Names() {
		p, err := Embedded(name)
		if err == nil && p.GPUs() == 1 && isGPU(p.GPU, want) && p.Provenance().Kind == Measured {
			return name, true
		}
	}
	i := slices.IndexFunc(GPUs(), func(g GPU) bool { return isGPU(g.Name, want) })
	if i < 0 {
		return "", false
	}
	return AnalyticPrefix + defaultModel + "," + GPUs()[i].Name, true
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
