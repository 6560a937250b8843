package lengths

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
)

// Spec describes one form of spec that Parse takes.
type Spec struct {
	Name    string // what stands before the colon
	Form    string
	Summary string
}

// Specs lists the specs that Parse takes.
func Specs() []Spec {
	return []Spec{
		{"azure-conv", "azure-conv", "log-normal fitted to the Azure conversation trace 2023: mean 1155 + 211 tokens"},
		{"azure-code", "azure-code", "log-normal fitted to the Azure code trace 2023: mean 2048 + 28 tokens"},
		{"sharegpt", "sharegpt", "log-normal fitted to ShareGPT with history, at most 8k: mean 2340 + 439 tokens"},
		{"measured-rate4", "measured-rate4", "ShareGPT first turns as in the measured runs at rate 4: mean 360 + 100 tokens"},
		{"measured-stride", "measured-stride", "ShareGPT first turns as in the measured stride sweep: mean 360 + 158 tokens"},
		{"measured", "measured:output_mean=M,output_sigma=S,output_cap=C", "as measured-stride with other outputs; prompt_... for the prompts"},
		{"constant", "constant:PROMPT,OUTPUT", "the same lengths for every request"},
		{"random", "random:PROMPT,OUTPUT[,RATIO]", "even between RATIO (default 0) times these lengths and these lengths"},
		{"lognormal", "lognormal:prompt_mean=M,prompt_sigma=S,output_mean=M,output_sigma=S[,prompt_cap=C][,output_cap=C]",
			"log-normal; the mean is that after capping; prompt_median and output_median may stand instead"},
		{"sharegpt-llama3", "sharegpt-llama3", "ShareGPT V3 first turns, prompt and output correlated, in tokens of Llama 3: mean 223 + 196 tokens"},
		{"sharegpt-qwen2", "sharegpt-qwen2", "the same in tokens of Qwen 2: mean 223 + 200 tokens"},
		{"copula", "copula:FILE[,KEY=VALUE...]",
			"correlated: histograms of a CSV file (what,lo,hi,count; or sharegpt-v3) joined by a Gaussian copula; " +
				"keys: prompt_scale, output_scale, rho, eos, prompt_min, prompt_max, output_min, output_max, sum_max"},
		{"table", "table:FILE", "rows of a CSV file with num_prefill_tokens and num_decode_tokens"},
	}
}

// Parse turns a spec, such as "sharegpt" or "random:1024,128,0.5", into a
// sampler; Specs lists the forms. It reads the file that a table spec names.
func Parse(spec string) (Sampler, error) {
	name, args, hasArgs := strings.Cut(spec, ":")
	s, err := parse(name, args, hasArgs)
	if err != nil {
		return nil, fmt.Errorf("lengths %q: %w", spec, err)
	}
	return s, nil
}

func parse(name, args string, hasArgs bool) (Sampler, error) {
	var parser func(args string) (Sampler, error)
	switch name {
	case "constant":
		parser = parseConstant
	case "random":
		parser = parseRandom
	case "lognormal":
		parser = parseLogNormal
	case "table":
		parser = parseTable
	case "copula":
		parser = parseCopula
	case "measured":
		parser = parseMeasured
	default:
		return parsePreset(name, hasArgs)
	}
	if args == "" {
		return nil, fmt.Errorf("expected %s", form(name))
	}
	return parser(args)
}

func form(name string) string {
	for _, s := range Specs() {
		if s.Name == name {
			return s.Form
		}
	}
	return name
}

func parsePreset(name string, hasArgs bool) (Sampler, error) {
	var s Sampler
	if l, ok := fitted(name); ok {
		s = l
	} else if m, ok := measured(name); ok {
		s = m
	} else if c, ok := correlated(name); ok {
		s = c
	} else {
		var known []string
		for _, s := range Specs() {
			known = append(known, s.Name)
		}
		return nil, suggest.Unknown("name", name, known)
	}
	if hasArgs {
		return nil, fmt.Errorf("%s takes no options", name)
	}
	return s, nil
}

func parseConstant(args string) (Sampler, error) {
	parts := strings.Split(args, ",")
	if len(parts) != 2 {
		return nil, fmt.Errorf("%d values, expected %s", len(parts), form("constant"))
	}
	prompt, output, err := twoLengths(parts)
	return Constant{prompt, output}, err
}

func parseRandom(args string) (Sampler, error) {
	parts := strings.Split(args, ",")
	if len(parts) != 2 && len(parts) != 3 {
		return nil, fmt.Errorf("%d values, expected %s", len(parts), form("random"))
	}
	prompt, output, err := twoLengths(parts)
	if err != nil {
		return nil, err
	}
	ratio := 0.0
	if len(parts) == 3 {
		if ratio, err = number("ratio", parts[2]); err != nil {
			return nil, err
		}
	}
	return NewRandom(prompt, output, ratio)
}

func twoLengths(parts []string) (prompt, output int32, err error) {
	if prompt, err = length("prompt", parts[0]); err != nil {
		return 0, 0, err
	}
	output, err = length("output", parts[1])
	return prompt, output, err
}

// length reads a whole number of tokens >= 1.
func length(what, text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is %q, expected a whole number of tokens from 1 to %d", what, text, math.MaxInt32)
	}
	return int32(n), nil
}

func number(what, text string) (float64, error) {
	x, err := textfile.Float([]byte(text))
	if err != nil {
		return 0, fmt.Errorf("%s %w", what, err)
	}
	return x, nil
}

func parseTable(path string) (Sampler, error) { return ReadTable(path) }

var logNormalKeys = []string{
	"prompt_mean", "prompt_median", "prompt_sigma", "prompt_cap",
	"output_mean", "output_median", "output_sigma", "output_cap",
}

func parseLogNormal(args string) (Sampler, error) {
	options := map[string]string{}
	for _, part := range strings.Split(args, ",") {
		key, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", part)
		}
		if _, twice := options[key]; twice {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		known := false
		for _, k := range logNormalKeys {
			known = known || k == key
		}
		if !known {
			return nil, suggest.Unknown("option", key, logNormalKeys)
		}
		options[key] = value
	}
	prompt, err := parseTokens("prompt", options)
	if err != nil {
		return nil, err
	}
	output, err := parseTokens("output", options)
	if err != nil {
		return nil, err
	}
	return LogNormal{prompt, output}, nil
}

// parseTokens reads the options of the prompts or the outputs.
func parseTokens(which string, options map[string]string) (Tokens, error) {
	center, from := which+"_mean", FromMean
	if _, ok := options[which+"_median"]; ok {
		if _, both := options[center]; both {
			return Tokens{}, fmt.Errorf("both %s_mean and %s_median are given", which, which)
		}
		center, from = which+"_median", FromMedian
	}
	var values [2]float64
	for i, key := range []string{center, which + "_sigma"} {
		text, ok := options[key]
		if !ok {
			return Tokens{}, fmt.Errorf("%s is missing, expected %s", key, form("lognormal"))
		}
		var err error
		if values[i], err = number(key, text); err != nil {
			return Tokens{}, err
		}
	}
	limit := NoCap
	if text, ok := options[which+"_cap"]; ok {
		var err error
		if limit, err = length(which+"_cap", text); err != nil {
			return Tokens{}, err
		}
	}
	t, err := from(values[0], values[1], limit)
	if err != nil {
		return Tokens{}, fmt.Errorf("%s: %w", which, err)
	}
	return t, nil
}
