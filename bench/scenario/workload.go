package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/replay"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

const (
	// defaultLengths are first turns of chats, short enough for a context of 4096 tokens.
	defaultLengths = "lognormal:prompt_mean=344,prompt_sigma=1.5,prompt_cap=2048,output_mean=158,output_sigma=1.2,output_cap=1024"
	// defaultBudget is what chat clients are taken to ask for: a constant at which the
	// built-in chats end. Engines reserve memory for it; nobody but the engine's
	// clients would know better.
	defaultBudget = 1024
)

// Input is the request source of a scenario.
type Input struct {
	trace.Source
	// Dataset names the source for results: "synthetic", "azure_v2", ...
	Dataset string
	// Replayed is the summary that the reference generator prints; set for compat=dlora only.
	Replayed *replay.Summary
	// Skipped returns the number of malformed or failed rows that were left out so far.
	Skipped func() int64

	file   io.Closer // nil: none
	ofFile int       // adapters that a saved workload or a log names
}

// Close releases the files of the source.
func (in *Input) Close() error {
	if in.file == nil {
		return nil
	}
	return in.file.Close()
}

// OpenWorkload opens the source of requests. Reading of files ends when ctx ends. progress, if not nil, is called with
// the bytes read from input files so far and in all (0: unknown).
func (s *Scenario) OpenWorkload(ctx context.Context, progress func(read, total int64)) (*Input, error) {
	w := &s.Workload
	if err := cmp.Or(s.checkValues(), w.check()); err != nil {
		return nil, fault(err)
	}
	names := w.LoraNames.Value()
	if len(names) > 0 {
		own := *s
		own.Workload.NumAdapters = settings.Some(len(names))
		s = &own
	}
	in := &Input{Dataset: w.dataset()}
	err := s.open(ctx, in, func(read, total int64) error {
		if progress != nil {
			progress(read, total)
		}
		return ctx.Err()
	})
	if err == nil && len(names) > 0 {
		in.Source, err = trace.Named(in.Source, names)
	}
	if err == nil && w.File == "" {
		if err = fault(s.asClients(in)); err == nil {
			err = s.fillLengths(ctx, in)
		}
	}
	if err == nil {
		err = s.fillBudgets(in)
	}
	if err == nil && w.Priorities.Given() {
		in.Source = prioritized(in.Source, w.Priorities.Value())
	}
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

// First returns the workload of the scenario with only its first request, for [Scenario.Check]. An error says that a
// file is missing, unreadable or malformed at its beginning.
func (s *Scenario) First(ctx context.Context) (*trace.Workload, error) {
	in, err := s.OpenWorkload(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	w, err := trace.Collect(trace.Limit(in, 1))
	if err == nil && len(w.Requests) == 0 {
		err = fmt.Errorf("the workload (%s) has no request", in.Dataset)
	}
	return w, err
}

// maxCollected is the number of requests up to which a workload is held in memory
// for several runs; beyond, each run reads its own.
const maxCollected = 4 << 20

// Collected is a workload in memory, for several runs.
type Collected struct {
	Workload *trace.Workload
	dataset  string
	ofFile   int
}

// Input returns the workload as the input of one more run.
func (c *Collected) Input() *Input {
	return &Input{Source: c.Workload.Source(), Dataset: c.dataset, ofFile: c.ofFile}
}

// Collect reads the scenario's workload into memory. It returns nil if the workload has too many requests.
func (s *Scenario) Collect(ctx context.Context) (*Collected, error) {
	in, err := s.OpenWorkload(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if in.Len() > maxCollected {
		return nil, nil
	}
	w, err := trace.Collect(trace.Limit(trace.Watch(in, func(int64) error { return ctx.Err() }), maxCollected+1))
	if err != nil || len(w.Requests) > maxCollected {
		return nil, err
	}
	return &Collected{w, in.Dataset, in.ofFile}, nil
}

func (w *Workload) usesTrace() bool { return w.UseTrace || w.TraceName != "" || w.TracePath != "" }

func (w *Workload) traceName() string { return cmp.Or(w.TraceName, "azure_v2") }

// dataset names the source of the requests.
func (w *Workload) dataset() string {
	switch {
	case w.File != "":
		return "workload"
	case w.Compat == "slora" || w.Compat == "vllm-lora":
		return w.Compat
	case w.TraceHistogram.Given():
		return "histogram"
	case w.usesTrace():
		return w.traceName()
	}
	return "synthetic"
}

// llmTrace reports whether the source is an LLM trace.
func (w *Workload) llmTrace() bool {
	return slices.Contains([]string{"azure_llm", "burstgpt", "mooncake", "qwen_bailian"}, w.dataset())
}

// paced reports whether requests arrive as from the benchmark clients of vLLM and sglang, whose settings have the same
// names and meaning here.
func (w *Workload) paced() bool {
	return w.likeVLLM() || w.RampUpStrategy != "" || w.usesTrace() && !w.UseTraceTimestamps
}

// likeVLLM reports whether requests arrive as from vLLM's client.
func (w *Workload) likeVLLM() bool { return w.Arrivals.Value().Dist == synth.VLLM }

// atRates reports whether the arrivals are drawn at the rates of a function trace or histogram.
func (w *Workload) atRates() bool {
	name := w.dataset()
	return name == "histogram" || (name == "azure_v1" || name == "azure_v2") && !w.recorded()
}

// randomLengths reports whether lengths are random, by that name or by their range.
func (w *Workload) randomLengths() bool {
	word := w.Lengths.Value().word
	return word == randomWord || word == autoWord && (w.RandomInputLen > 0 || w.RandomOutputLen > 0)
}

// check finds settings that contradict each other.
func (w *Workload) check() error {
	def := &defaults.Workload
	generated := w.dataset() == "synthetic" && w.Compat == ""
	functions := w.traceName() == "azure_v1" || w.traceName() == "azure_v2"
	sources := 0
	for _, set := range []bool{w.File != "", w.usesTrace(), w.TraceHistogram.Given()} {
		if set {
			sources++
		}
	}
	switch {
	case w.baseOnly() && w.File == "":
		return errors.New("num_adapters is 0, but only a workload file may be of the base model alone; " +
			"expected at least 1")
	case w.RampUpStrategy == "" && (w.RampUpStartRPS != 0 || w.RampUpEndRPS != 0):
		return errors.New("ramp_up_start_rps and ramp_up_end_rps need ramp_up_strategy: linear or exponential")
	case w.RampUpStrategy != "" && !(w.RampUpStartRPS > 0 && w.RampUpEndRPS >= w.RampUpStartRPS):
		return fmt.Errorf("ramp_up_strategy needs a ramp_up_start_rps above 0 and a ramp_up_end_rps that is no less, not %v and %v", w.RampUpStartRPS, w.RampUpEndRPS)
	case (w.paced() || w.LoraRequestDist != "") && !generated && !w.llmTrace():
		return errors.New("arrivals vllm, ramp_up, lora_request_distribution and use_trace_timestamps=false are for generated requests and for LLM traces")
	case w.paced() && !w.likeVLLM() && !w.Arrivals.Equal(def.Arrivals):
		return fmt.Errorf("ramp_up and use_trace_timestamps=false have the arrivals of a benchmark client: arrivals may be exponential or vllm:SHAPE, not %s", w.Arrivals)
	case w.paced() && generated && (w.Pattern.Given() || w.Drift != 0 || w.Sessions.Given()):
		return errors.New("arrivals vllm and ramp_up set all times: they exclude pattern, drift and sessions")
	case w.paced() && w.llmTrace() && w.UseTraceTimestamps:
		return errors.New("arrivals vllm and ramp_up replace the trace's times: give use_trace_timestamps=false")
	case (w.likeVLLM() || w.RampUpStrategy != "") && !w.NumPrompts.Given && (w.Window > 0 || w.usesTrace()):
		return errors.New("arrivals vllm and ramp_up need num_prompts: the times depend on it")
	case w.atRates() && w.Arrivals.Value().Total:
		return fmt.Errorf("arrivals %s: each adapter of a function trace has an arrival process of its own; expected arrivals without total-", w.Arrivals)
	case w.atRates() && w.CVScale != 1:
		return errors.New("cv_scale is a factor on recorded gaps; arrivals sets those of a function trace whose rates are replayed, as in gamma:CV")
	case w.recorded() && w.TraceSpeed != 1:
		return errors.New("trace_speed is for function traces whose rates are replayed; rate_scale is the factor on the speed of recorded requests")
	case w.LoraRequestDist != "" && w.Sessions.Given():
		return errors.New("lora_request_distribution chooses the adapters: it excludes sessions")
	case (w.LoraRequestDist == synth.DistinctAdapters || w.LoraRequestDist == synth.SkewedAdapters) &&
		(w.NumAdapters.Value == 1 || len(w.LoraNames.Value()) == 1):
		return fmt.Errorf("lora_request_distribution %s needs more than one adapter", w.LoraRequestDist)
	case w.Conversations.Given() && (!generated || w.paced() || w.Sessions.Given() || w.LoraRequestDist != "" ||
		math.IsInf(w.RequestRate, 1)):
		return errors.New("conversations need generated requests with a rate: they exclude traces, compat, sessions, arrivals vllm, ramp_up and lora_request_distribution")
	case w.Conversations.Given() && w.Lengths.Value().word == NoLengths:
		return errors.New("conversations need lengths")
	case w.LoraNames.Given() && w.File != "":
		return errors.New("lora_names: a saved workload names its adapters itself")
	case w.LoraNames.Given() && w.NumAdapters.Or(len(w.LoraNames.Value())) != len(w.LoraNames.Value()):
		return fmt.Errorf("num_adapters is %d, but lora_names has %d names", w.NumAdapters.Value,
			len(w.LoraNames.Value()))
	case sources > 1:
		return errors.New("a saved workload, a trace and a histogram exclude each other: give one of workload, trace_path and trace_histogram")
	case w.Compat == "dlora" && !w.usesTrace() && !w.TraceHistogram.Given():
		return errors.New("compat dlora replays function traces: give trace_path, or trace_histogram")
	case w.Compat == "dlora" && w.usesTrace() && !functions:
		return fmt.Errorf("compat dlora replays azure_v1 and azure_v2, not %s", w.traceName())
	case (w.Compat == "slora" || w.Compat == "vllm-lora") && sources > 0:
		return fmt.Errorf("compat %s generates its requests: it takes no trace, histogram or saved workload", w.Compat)
	case w.usesTrace() && w.TracePath == "":
		return fmt.Errorf("trace %s: trace_path is missing: give the file or folder of the trace with --trace-path", w.traceName())
	}
	return w.checkResample()
}

// asClients gives the requests the times and adapters of a benchmark client, if the scenario selects one.
func (s *Scenario) asClients(in *Input) (err error) {
	w := &s.Workload
	if w.LoraRequestDist != "" {
		in.Source = synth.Assigned(in.Source, w.LoraRequestDist, w.LoraZipfAlpha, s.Seed)
	}
	if !w.paced() {
		return nil
	}
	p := synth.Pace{Rate: w.RequestRate, Burstiness: w.Arrivals.Value().Shape,
		Ramp: synth.Ramp{Strategy: w.RampUpStrategy, Start: w.RampUpStartRPS, End: w.RampUpEndRPS}}
	if !w.likeVLLM() {
		p.Burstiness, p.FromZero = 1, w.RampUpStrategy == ""
	}
	n := w.NumPrompts.Value
	if !w.usesTrace() {
		n = w.generated()
	}
	in.Source, err = synth.Paced(in.Source, p, n, s.Seed)
	return err
}

// fillLengths gives requests their token counts if the source has none, or if the scenario sets others.
func (s *Scenario) fillLengths(ctx context.Context, in *Input) error {
	w := &s.Workload
	choice := w.Lengths.Value()
	var sampler lengths.Sampler
	var err error
	switch {
	case choice.word == NoLengths || choice.word == autoWord && (w.Compat == "slora" || w.llmTrace()):
		return nil
	case w.randomLengths():
		input, output := w.randomRanges()
		sampler, err = lengths.NewRandom(input[1]-1, output[1]-1, w.RandomRangeRatio)
	case choice.word == autoWord:
		sampler, err = lengths.Parse(ctx, defaultLengths)
	default:
		sampler, err = choice.law.Sampler(ctx)
	}
	if err != nil {
		return fmt.Errorf("lengths: %w", err)
	}
	if w.Conversations.Given() {
		sampler = lengths.Rescale(sampler, int(w.generated()), s.Seed)
		return s.converse(in, sampler)
	}
	sampler = lengths.Rescale(sampler, int(in.Source.Len()), s.Seed)
	in.Source = lengths.Fill(in.Source, sampler, s.Seed)
	return nil
}

// converse makes the requests of a generator the first turns of conversations.
func (s *Scenario) converse(in *Input, sampler lengths.Sampler) error {
	w := &s.Workload
	o := synth.ConverseOptions{Lengths: sampler, Rate: w.startRate(), Requests: w.generated(), Duration: w.Window,
		Seed: s.Seed}
	cfg := s.synthetic()
	cfg.Rate, cfg.Pattern, cfg.Drift, cfg.Requests, cfg.Duration = math.Inf(1), synth.Pattern{}, 0, math.MaxInt64, 0
	cfg.Seed = ^cfg.Seed // other adapters than those of the conversations that begin
	var err error
	if o.Going, err = synth.New(cfg); err == nil {
		in.Source, err = synth.Converse(in.Source, w.Conversations.Value(), o)
	}
	return err
}

// startRate is the rate of the generator, in requests/s or, with conversations, in conversations/s.
func (w *Workload) startRate() float64 {
	if !w.Conversations.Given() {
		return w.RequestRate
	}
	return w.RequestRate / w.Conversations.Value().MeanTurns()
}

// randomRanges are the ranges of random lengths, without their ends. Zeros stand
// for the serving benchmarks' lengths.
func (w *Workload) randomRanges() (in, out [2]int32) {
	r := func(longest int) [2]int32 {
		return [2]int32{int32(max(1, float64(longest)*w.RandomRangeRatio)), int32(longest) + 1}
	}
	return r(cmp.Or(w.RandomInputLen, 1024)), r(cmp.Or(w.RandomOutputLen, 128))
}

// budgets is the law of max_new_tokens; keep: where the law's budget is below an output, the output counts. auto is a
// saved workload's own column; what benchmark clients ask for, namely the output, where the workload is one of theirs
// (compat, random and measured lengths); else a constant.
func (w *Workload) budgets() (law budgetChoice, keep bool) {
	given, lengths := w.MaxNewTokens.Value(), w.Lengths.Value()
	switch {
	case given.word != autoWord:
		return given, false
	case w.File != "":
		return budgetChoice{word: budgetOfTrace}, false
	case w.Compat != "" || w.randomLengths() || strings.HasPrefix(lengths.law.Name, "measured") ||
		lengths.law.Name == randomWord || lengths.word == NoLengths:
		return budgetChoice{word: exactBudget}, false
	}
	return budgetChoice{law: func(int32, *rand.Rand) int32 { return defaultBudget }}, true
}

// StatesBudgets reports whether max_new_tokens may differ from the output lengths. It does not consider the limits in
// a saved workload.
func (w *Workload) StatesBudgets() bool {
	law, _ := w.budgets()
	return law.word == ""
}

// WithBudgets returns recorded requests with their max_new_tokens: by the scenario's law, if it has one. Else those
// that state none get the limit of chat clients. No output becomes shorter.
func (s *Scenario) WithBudgets(w *trace.Workload) (*trace.Workload, error) {
	if b, _ := s.Workload.budgets(); s.Workload.MaxNewTokens.Value().word != autoWord && b.law != nil {
		return trace.Collect(lengths.WithBudget(w.Source(), b.law, true, s.Seed))
	}
	filled := &trace.Workload{Adapters: w.Adapters, Requests: slices.Clone(w.Requests)}
	for i := range filled.Requests {
		if r := &filled.Requests[i]; r.MaxNew == 0 {
			r.MaxNew = max(defaultBudget, r.Output)
		}
	}
	return filled, nil
}

// fillBudgets gives requests their max_new_tokens.
func (s *Scenario) fillBudgets(in *Input) error {
	file := s.Workload.File != ""
	b, keep := s.Workload.budgets()
	switch {
	case b.word == budgetOfTrace && !file:
		return errors.New("max_new_tokens trace: only a saved workload states any; expected " + lengths.BudgetHelp)
	case b.word == budgetOfTrace, b.word == exactBudget && !file: // they have none yet, which is the same
		return nil
	}
	in.Source = lengths.WithBudget(in.Source, b.law, keep, s.Seed)
	return nil
}
