package lengths

import (
	"context"
	"fmt"

	"lorasim/trace/settings"
)

// lengthsOptions are the options of one kind of lengths.
type lengthsOptions interface {
	sampler(ctx context.Context) (Sampler, error)
}

func lengthsKinds() []settings.Kind[lengthsOptions] {
	type kind = settings.Kind[lengthsOptions]
	plain := func(name, summary string, of func(context.Context) (Sampler, error)) kind {
		return kind{Name: name, Summary: summary, New: func() lengthsOptions { return &plainOptions{of} }}
	}
	normal := func(prompt, output preset) func(context.Context) (Sampler, error) {
		return func(context.Context) (Sampler, error) { return fitted(prompt, output), nil }
	}
	runs := func(output preset) func(context.Context) (Sampler, error) {
		return func(context.Context) (Sampler, error) { return measured(measuredPrompts, output), nil }
	}
	p, o := measuredPrompts, measuredOutputs
	return []kind{
		plain("azure-conv", "log-normal fitted to the Azure conversation trace 2023: mean 1155 + 211 tokens",
			normal(preset{1155, 0.91, 4142}, preset{211, 0.70, 1000})),
		plain("azure-code", "log-normal fitted to the Azure code trace 2023: mean 2048 + 28 tokens",
			normal(preset{2048, 0.99, 7437}, preset{28, 1.21, 1899})),
		plain("sharegpt", "log-normal fitted to ShareGPT with history, at most 8k: mean 2340 + 439 tokens",
			normal(preset{2340, 0.80, 8141}, preset{438.7, 0.51, 1024})),
		plain("measured-rate4", "ShareGPT first turns as in the measured runs at rate 4: mean 360 + 100 tokens",
			runs(preset{100.1, 2.12, 638})),
		plain("measured-stride", "ShareGPT first turns as in the measured stride sweep: mean 360 + 158 tokens",
			runs(measuredOutputs)),
		{Name: "measured", Summary: "measured-stride with other means, sigmas and caps", Preset: fmt.Sprintf(
			"prompt_mean=%v,prompt_sigma=%v,prompt_cap=%v,output_mean=%v,output_sigma=%v,output_cap=%v", p.mean,
			p.sigma, p.cap, o.mean, o.sigma, o.cap), New: func() lengthsOptions { return &measuredOptions{} }},
		{Name: "constant", Summary: "the same lengths for all",
			New: func() lengthsOptions { return &constantOptions{} }},
		{Name: "random", Summary: "uniform from ratio x the lengths to the lengths",
			New: func() lengthsOptions { return &randomOptions{} }},
		{Name: "lognormal", Summary: "log-normal; a mean is that after capping",
			New: func() lengthsOptions { return &logNormalOptions{} }},
		plain("sharegpt-llama3",
			"ShareGPT V3 first turns, prompt and output correlated, in tokens of Llama 3: mean 223 + 196 tokens",
			copula(llamaLengths)),
		plain("sharegpt-qwen2", "the same in tokens of Qwen 2: mean 223 + 200 tokens", copula(qwenLengths)),
		{Name: "copula", Summary: "correlated: histograms of a CSV file joined by a Gaussian copula",
			New: func() lengthsOptions { return &copulaOptions{} }},
		{Name: "table", Summary: "rows of a CSV file", New: func() lengthsOptions { return &tableOptions{} }},
	}
}

// Forms returns the forms that Parse reads.
func Forms() []settings.Form { return settings.Forms(lengthsKinds()) }

// The lengths of the request pools of the measured vLLM runs. Scales and rho are fitted to their means (223.0 and
// 196.4 tokens for Llama, 222.9 and 200.0 for Qwen) and to the KV tokens per running request. eos is fitted to the
// served outputs, whose mean is 0.990 and 0.957 of the pool's.
const (
	poolLimits   = ",prompt_min=4,prompt_max=1024,output_min=4,sum_max=2048"
	llamaLengths = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.828,rho=-0.377,eos=5.2e-5" + poolLimits
	qwenLengths  = ShareGPTV3 + ",prompt_scale=0.867,output_scale=0.846,rho=-0.355,eos=2.3e-4" + poolLimits
)

// Parse parses a spec and returns its sampler. It reads the file that the spec names; ctx ends the wait for a pipe.
// The forms are:
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
//	                  the means are after capping; or prompt_median, output_median
//	sharegpt-llama3   ShareGPT V3 first turns, prompt and output correlated, in tokens of Llama 3: mean 223 + 196 tokens
//	sharegpt-qwen2    the same in tokens of Qwen 2: mean 223 + 200 tokens
//	copula:FILE[,KEY=VALUE...]
//	                  correlated: histograms of a CSV file (what,lo,hi,count; or sharegpt-v3) joined by a
//	                  Gaussian copula; keys: prompt_scale, output_scale, rho, eos, prompt_min, prompt_max,
//	                  output_min, output_max, sum_max
//	table:FILE        rows of a CSV file with num_prefill_tokens and num_decode_tokens
func Parse(ctx context.Context, text string) (Sampler, error) {
	law, err := ParseLaw(text)
	if err != nil {
		return nil, err
	}
	return law.Sampler(ctx)
}

// A Law is a parsed spec.
type Law struct {
	Name    string // of its form, such as "table"
	options lengthsOptions
}

// ParseLaw parses a spec. It does not read the file that the spec names.
func ParseLaw(text string) (Law, error) {
	spec, err := settings.Parse("lengths", lengthsKinds(), text)
	if err != nil {
		return Law{}, err
	}
	l := Law{spec.Name, spec.Value}
	switch spec.Value.(type) {
	case *copulaOptions, *tableOptions:
		return l, nil
	}
	_, err = l.Sampler(context.Background()) // reads no file
	return l, err
}

// Sampler returns a sampler of the law. It reads the file that the law names; ctx ends the wait for a pipe.
func (l Law) Sampler(ctx context.Context) (Sampler, error) {
	s, err := l.options.sampler(ctx)
	if err != nil {
		return nil, fmt.Errorf("lengths %s: %w", l.Name, err)
	}
	return s, nil
}

// plainOptions is the empty set of options.
type plainOptions struct {
	Of func(context.Context) (Sampler, error) `key:"-"`
}

func (o *plainOptions) sampler(ctx context.Context) (Sampler, error) { return o.Of(ctx) }

type constantOptions struct {
	Prompt int32 `arg:"1" required:"yes" check:">=1" unit:"tokens" help:"prompt length"`
	Output int32 `arg:"2" required:"yes" check:">=1" unit:"tokens" help:"output length"`
}

func (o *constantOptions) sampler(context.Context) (Sampler, error) {
	return Constant{o.Prompt, o.Output}, nil
}

type randomOptions struct {
	Prompt int32   `arg:"1" required:"yes" check:">=1" unit:"tokens" help:"longest prompt"`
	Output int32   `arg:"2" required:"yes" check:">=1" unit:"tokens" help:"longest output"`
	Ratio  float64 `arg:"3" default:"0" check:">=0 <=1" help:"shortest, as a share of the longest"`
}

func (o *randomOptions) sampler(context.Context) (Sampler, error) {
	return NewRandom(o.Prompt, o.Output, o.Ratio)
}

type tableOptions struct {
	File string `arg:"1" required:"yes" path:"yes" commas:"yes" help:"CSV file with num_prefill_tokens and num_decode_tokens"`
}

func (o *tableOptions) sampler(ctx context.Context) (Sampler, error) { return ReadTable(ctx, o.File) }

type measuredOptions struct {
	PromptMean  float64 `key:"prompt_mean" check:">=1 <=1e9" unit:"tokens" help:"mean prompt length, after capping"`
	PromptSigma float64 `key:"prompt_sigma" check:">=0 <=10" help:"sigma of prompts"`
	PromptCap   int32   `key:"prompt_cap" check:">=1" unit:"tokens" help:"longest prompt"`
	OutputMean  float64 `key:"output_mean" check:">=1 <=1e9" unit:"tokens" help:"mean output length, after capping"`
	OutputSigma float64 `key:"output_sigma" check:">=0 <=10" help:"sigma of outputs"`
	OutputCap   int32   `key:"output_cap" check:">=1" unit:"tokens" help:"longest output"`
}

func (o *measuredOptions) sampler(context.Context) (Sampler, error) {
	prompt, output := preset{o.PromptMean, o.PromptSigma, o.PromptCap}, preset{o.OutputMean, o.OutputSigma, o.OutputCap}
	for _, p := range []preset{prompt, output} {
		if err := checkTokens("mean", p.mean, p.sigma, p.cap); err != nil {
			return nil, err
		}
	}
	return measured(prompt, output), nil
}

type copulaOptions struct {
	File        string  `arg:"1" required:"yes" path:"yes" words:"sharegpt-v3" help:"histograms, a CSV file with what,lo,hi,count; or sharegpt-v3"`
	PromptScale float64 `key:"prompt_scale" default:"1" check:">0 <=1e6" help:"factor of prompt lengths"`
	OutputScale float64 `key:"output_scale" default:"1" check:">0 <=1e6" help:"factor of output lengths"`
	Rho         float64 `check:">=-1 <=1" help:"correlation of the underlying normal variables"`
	EOS         float64 `check:">=0 <1" help:"probability with which any token ends the output"`
	PromptMin   int32   `key:"prompt_min" default:"1" check:">=1" unit:"tokens" help:"shortest prompt"`
	PromptMax   int32   `key:"prompt_max" default:"2147483647" check:">=1" unit:"tokens" help:"longest prompt"`
	OutputMin   int32   `key:"output_min" default:"1" check:">=1" unit:"tokens" help:"shortest output"`
	OutputMax   int32   `key:"output_max" default:"2147483647" check:">=1" unit:"tokens" help:"longest output"`
	SumMax      int32   `key:"sum_max" default:"2147483647" check:">=1" unit:"tokens" help:"longest prompt and output together"`
}

func (o *copulaOptions) sampler(ctx context.Context) (Sampler, error) {
	c := &Copula{PromptScale: o.PromptScale, OutputScale: o.OutputScale, Rho: o.Rho, EOS: o.EOS,
		Limits: Limits{o.PromptMin, o.PromptMax, o.OutputMin, o.OutputMax, o.SumMax}}
	var err error
	if c.Prompt, c.Output, err = ReadMarginals(ctx, o.File); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c, nil
}

// copula makes a sampler of fixed options.
func copula(options string) func(context.Context) (Sampler, error) {
	return func(ctx context.Context) (Sampler, error) {
		var o copulaOptions
		if _, err := settings.Decode(options, &o); err != nil {
			return nil, err
		}
		return o.sampler(ctx)
	}
}

type logNormalOptions struct {
	PromptMean   float64 `key:"prompt_mean" check:">0" unit:"tokens" help:"mean prompt length, after capping"`
	PromptMedian float64 `key:"prompt_median" check:">0" unit:"tokens" help:"median prompt length, in place of the mean"`
	PromptSigma  float64 `key:"prompt_sigma" required:"yes" check:">=0 <=10" help:"sigma of prompts"`
	PromptCap    int32   `key:"prompt_cap" default:"2147483647" check:">=1" unit:"tokens" help:"longest prompt"`
	OutputMean   float64 `key:"output_mean" check:">0" unit:"tokens" help:"mean output length, after capping"`
	OutputMedian float64 `key:"output_median" check:">0" unit:"tokens" help:"median output length, in place of the mean"`
	OutputSigma  float64 `key:"output_sigma" required:"yes" check:">=0 <=10" help:"sigma of outputs"`
	OutputCap    int32   `key:"output_cap" default:"2147483647" check:">=1" unit:"tokens" help:"longest output"`
}

// Check implements settings.Checker.
func (o *logNormalOptions) Check(settings.Given) error {
	if err := meanOrMedian("prompt_", o.PromptMean, o.PromptMedian); err != nil {
		return err
	}
	return meanOrMedian("output_", o.OutputMean, o.OutputMedian)
}

func (o *logNormalOptions) sampler(context.Context) (Sampler, error) {
	var l LogNormal
	var err error
	if l.Prompt, err = tokensOf(o.PromptMean, o.PromptMedian, o.PromptSigma, o.PromptCap); err != nil {
		return nil, fmt.Errorf("prompt: %w", err)
	}
	if l.Output, err = tokensOf(o.OutputMean, o.OutputMedian, o.OutputSigma, o.OutputCap); err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	return l, nil
}

// meanOrMedian wants one of two numbers; 0: it is not given.
func meanOrMedian(prefix string, mean, median float64) error {
	switch {
	case mean != 0 && median != 0:
		return fmt.Errorf("both %smean and %smedian are given", prefix, prefix)
	case mean == 0 && median == 0:
		return fmt.Errorf("%smean is missing", prefix)
	}
	return nil
}

func tokensOf(mean, median, sigma float64, limit int32) (Tokens, error) {
	if median != 0 {
		return FromMedian(median, sigma, limit)
	}
	return FromMean(mean, sigma, limit)
}
