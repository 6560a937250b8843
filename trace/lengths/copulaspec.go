package lengths

import (
	"fmt"
	"strings"

	"lorasim/internal/suggest"
)

// The lengths of the pools behind the measured vLLM runs: scales and rho give
// their means (223.0 and 196.4 tokens for Llama, 222.9 and 200.0 for Qwen) and
// the KV tokens per running request, eos the served outputs, whose mean is 0.990
// and 0.957 of the pool's.
const (
	poolLimits   = ",prompt_min=4,prompt_max=1024,output_min=4,sum_max=2048"
	llamaLengths = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.828,rho=-0.377,eos=5.2e-5" + poolLimits
	qwenLengths  = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.846,rho=-0.355,eos=2.3e-4" + poolLimits
)

var copulaKeys = []string{"prompt_scale", "output_scale", "rho", "eos",
	"prompt_min", "prompt_max", "output_min", "output_max", "sum_max"}

// parseCopula reads FILE[,key=value...].
func parseCopula(args string) (Sampler, error) {
	file, options, _ := strings.Cut(args, ",")
	c := &Copula{PromptScale: 1, OutputScale: 1, Limits: NoLimits()}
	numbers := map[string]*float64{"prompt_scale": &c.PromptScale, "output_scale": &c.OutputScale, "rho": &c.Rho, "eos": &c.EOS}
	l := &c.Limits
	tokens := map[string]*int32{"prompt_min": &l.PromptMin, "prompt_max": &l.PromptMax,
		"output_min": &l.OutputMin, "output_max": &l.OutputMax, "sum_max": &l.SumMax}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(options, ",") {
		if options == "" {
			break
		}
		key, text, ok := strings.Cut(part, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not of the form key=value", part)
		}
		if seen[key] {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		seen[key] = true
		var err error
		switch {
		case numbers[key] != nil:
			*numbers[key], err = number(key, text)
		case tokens[key] != nil:
			*tokens[key], err = length(key, text)
		default:
			err = suggest.Unknown("option", key, copulaKeys)
		}
		if err != nil {
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

// correlated returns the copulas with a name.
func correlated(name string) (*Copula, bool) {
	args, ok := map[string]string{"sharegpt-llama3": llamaLengths, "sharegpt-qwen2": qwenLengths}[name]
	if !ok {
		return nil, false
	}
	s, err := parseCopula(args)
	if err != nil {
		panic("lengths: bad preset: " + err.Error()) // the presets are constants
	}
	return s.(*Copula), true
}
