package lengths

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
)

// spec is one form of spec that Parse takes.
type spec struct {
	name  string
	args  string // what stands after the colon; "": nothing
	parse func(args string) (Sampler, error)
}

func specs() []spec {
	normal := func(prompt, output preset) func(string) (Sampler, error) {
		return func(string) (Sampler, error) { return fitted(prompt, output), nil }
	}
	copula := func(args string) func(string) (Sampler, error) {
		return func(string) (Sampler, error) { return parseCopula(args) }
	}
	return []spec{
		{"azure-conv", "", normal(preset{1155, 0.91, 4142}, preset{211, 0.70, 1000})},
		{"azure-code", "", normal(preset{2048, 0.99, 7437}, preset{28, 1.21, 1899})},
		{"sharegpt", "", normal(preset{2340, 0.80, 8141}, preset{438.7, 0.51, 1024})},
		{"measured-rate4", "", func(string) (Sampler, error) { return measured(measuredPrompts, preset{100.1, 2.12, 638}), nil }},
		{"measured-stride", "", func(string) (Sampler, error) {
			return measured(measuredPrompts, measuredOutputs),
				nil
		}},
		{"measured", "output_mean=M,output_sigma=S,output_cap=C", parseMeasured},
		{"constant", "PROMPT,OUTPUT", parseConstant},
		{"random", "PROMPT,OUTPUT[,RATIO]", parseRandom},
		{"lognormal", "prompt_mean=M,prompt_sigma=S,output_mean=M,output_sigma=S[,prompt_cap=C][,output_cap=C]",
			parseLogNormal},
		{"sharegpt-llama3", "", copula(llamaLengths)},
		{"sharegpt-qwen2", "", copula(qwenLengths)},
		{"copula", "FILE[,KEY=VALUE...]", parseCopula},
		{"table", "FILE", ReadTable},
	}
}

// The lengths of the pools behind the measured vLLM runs: scales and rho give
// their means (223.0 and 196.4 tokens for Llama, 222.9 and 200.0 for Qwen) and
// the KV tokens per running request, eos the served outputs, whose mean is 0.990
// and 0.957 of the pool's.
const (
	poolLimits   = ",prompt_min=4,prompt_max=1024,output_min=4,sum_max=2048"
	llamaLengths = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.828,rho=-0.377,eos=5.2e-5" + poolLimits
	qwenLengths  = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.846,rho=-0.355,eos=2.3e-4" + poolLimits
)

// Parse turns a spec into a sampler and reads the file that it names:
//
//	azure-conv        log-normal fitted to the Azure conversation trace 2023: mean 1155 + 211 tokens
//	azure-code        log-normal fitted to the Azure code trace 2023: mean 2048 + 28 tokens
//	sharegpt          log-normal fitted to ShareGPT with history, at most 8k: mean 2340 + 439 tokens
//	measured-rate4    ShareGPT first turns as in the measured runs at rate 4: mean 360 + 100 tokens
//	measured-stride   ShareGPT first turns as in the measured stride sweep: mean 360 + 158 tokens
//	measured:output_mean=M,output_sigma=S,output_cap=C
//	                  as measured-stride with other outputs; prompt_... for the prompts
//	constant:PROMPT,OUTPUT
//	random:PROMPT,OUTPUT[,RATIO]
//	                  even between RATIO (default 0) times these lengths and these lengths
//	lognormal:prompt_mean=M,prompt_sigma=S,output_mean=M,output_sigma=S[,prompt_cap=C][,output_cap=C]
//	                  the mean is that after capping; prompt_median and output_median may stand instead
//	sharegpt-llama3   ShareGPT V3 first turns, prompt and output correlated, in tokens of Llama 3: mean 223 + 196 tokens
//	sharegpt-qwen2    the same in tokens of Qwen 2: mean 223 + 200 tokens
//	copula:FILE[,KEY=VALUE...]
//	                  correlated: histograms of a CSV file (what,lo,hi,count; or sharegpt-v3) joined by a
//	                  Gaussian copula; keys: prompt_scale, output_scale, rho, eos, prompt_min, prompt_max,
//	                  output_min, output_max, sum_max
//	table:FILE        rows of a CSV file with num_prefill_tokens and num_decode_tokens
func Parse(text string) (Sampler, error) {
	s, err := parse(strings.Cut(text, ":"))
	if err != nil {
		return nil, fmt.Errorf("lengths %q: %w", text, err)
	}
	return s, nil
}

func parse(name, args string, hasArgs bool) (Sampler, error) {
	var known []string
	for _, s := range specs() {
		switch {
		case s.name != name:
			known = append(known, s.name)
		case s.args == "" && hasArgs:
			return nil, fmt.Errorf("%s takes no options", name)
		case s.args != "" && args == "":
			return nil, fmt.Errorf("expected %s:%s", name, s.args)
		default:
			return s.parse(args)
		}
	}
	return nil, suggest.Unknown("name", name, known)
}

func parseConstant(args string) (Sampler, error) {
	v, err := values(args, 2, "constant:PROMPT,OUTPUT")
	if err != nil {
		return nil, err
	}
	prompt, output, err := twoLengths("prompt", v[0], "output", v[1])
	return Constant{prompt, output}, err
}

func parseRandom(args string) (Sampler, error) {
	if strings.Count(args, ",") == 1 {
		args += ",0"
	}
	v, err := values(args, 3, "random:PROMPT,OUTPUT[,RATIO]")
	if err != nil {
		return nil, err
	}
	prompt, output, err := twoLengths("prompt", v[0], "output", v[1])
	if err != nil {
		return nil, err
	}
	ratio, err := number("ratio", v[2])
	if err != nil {
		return nil, err
	}
	return NewRandom(prompt, output, ratio)
}

func values(args string, n int, form string) ([]string, error) {
	v := strings.Split(args, ",")
	if len(v) != n {
		return nil, fmt.Errorf("%d values, expected %s", len(v), form)
	}
	return v, nil
}

func twoLengths(what1, text1, what2, text2 string) (a, b int32, err error) {
	if a, err = length(what1, text1); err == nil {
		b, err = length(what2, text2)
	}
	return a, b, err
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
		err = fmt.Errorf("%s %w", what, err)
	}
	return x, err
}

// option is a key and where its value goes: a *float64 takes a number, an *int32
// a whole number of tokens.
type option struct {
	key   string
	value any
}

// readOptions reads key=value,... and returns which keys are there.
func readOptions(args string, known ...option) (given map[string]bool, err error) {
	var keys []string
	for _, o := range known {
		keys = append(keys, o.key)
	}
	return suggest.Options("option", args, keys, func(i int, text string) (err error) {
		switch p := known[i].value.(type) {
		case *float64:
			*p, err = number(keys[i], text)
		case *int32:
			*p, err = length(keys[i], text)
		}
		return err
	})
}

// parseCopula reads FILE[,key=value...].
func parseCopula(args string) (Sampler, error) {
	c := &Copula{PromptScale: 1, OutputScale: 1, Limits: NoLimits()}
	file, options, more := strings.Cut(args, ",")
	if more {
		l := &c.Limits
		if _, err := readOptions(options,
			option{"prompt_scale", &c.PromptScale}, option{"output_scale", &c.OutputScale}, option{"rho", &c.Rho},
			option{"eos", &c.EOS},
			option{"prompt_min", &l.PromptMin}, option{"prompt_max", &l.PromptMax},
			option{"output_min", &l.OutputMin}, option{"output_max", &l.OutputMax}, option{"sum_max",
				&l.SumMax}); err != nil {
			return nil, err
		}
	}
	var err error
	if c.Prompt, c.Output, err = ReadMarginals(file); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// parseMeasured reads the changes to the preset measured-stride.
func parseMeasured(args string) (Sampler, error) {
	prompt, output := measuredPrompts, measuredOutputs
	p, o := &prompt, &output
	if _, err := readOptions(args, option{"prompt_mean", &p.mean}, option{"prompt_sigma", &p.sigma},
		option{"prompt_cap", &p.cap},
		option{"output_mean", &o.mean}, option{"output_sigma", &o.sigma}, option{"output_cap", &o.cap}); err != nil {
		return nil, err
	}
	for _, p := range []preset{prompt, output} {
		if err := checkTokens("mean", p.mean, p.sigma, p.cap); err != nil {
			return nil, err
		}
	}
	return measured(prompt, output), nil
}

func parseLogNormal(args string) (Sampler, error) {
	prompt, output := tokensSpec{which: "prompt"}, tokensSpec{which: "output"}
	given, err := readOptions(args, append(prompt.options("prompt_"), output.options("output_")...)...)
	if err != nil {
		return nil, err
	}
	var l LogNormal
	if l.Prompt, err = prompt.tokens("prompt_", given); err == nil {
		l.Output, err = output.tokens("output_", given)
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// tokensSpec are the options of a log-normal distribution.
type tokensSpec struct {
	which               string
	mean, median, sigma float64
	cap                 int32
}

func (t *tokensSpec) options(prefix string) []option {
	return []option{{prefix + "mean", &t.mean}, {prefix + "median", &t.median}, {prefix + "sigma", &t.sigma},
		{prefix + "cap", &t.cap}}
}

func (t *tokensSpec) tokens(prefix string, given map[string]bool) (tokens Tokens, err error) {
	mean, median := given[prefix+"mean"], given[prefix+"median"]
	switch {
	case mean && median:
		return Tokens{}, fmt.Errorf("both %smean and %smedian are given", prefix, prefix)
	case !mean && !median:
		return Tokens{}, fmt.Errorf("%smean is missing", prefix)
	case !given[prefix+"sigma"]:
		return Tokens{}, fmt.Errorf("%ssigma is missing", prefix)
	}
	if !given[prefix+"cap"] {
		t.cap = NoCap
	}
	if median {
		tokens, err = FromMedian(t.median, t.sigma, t.cap)
	} else {
		tokens, err = FromMean(t.mean, t.sigma, t.cap)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", t.which, err)
	}
	return tokens, err
}
