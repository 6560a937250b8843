package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"lorasim/internal/suggest"
	"lorasim/trace"
	"lorasim/trace/lengths"
	"lorasim/trace/replay"
	"lorasim/trace/store"
	"lorasim/trace/synth"
)

// Defaults of settings whose zero value stands for "as the source says".
const (
	defaultPrompts  = 2000
	defaultAdapters = 32
	defaultRanks    = "8,16,32,64"
	defaultInput    = 1024 // of the serving benchmarks
	defaultOutput   = 128
	// first turns of chats, short enough for a context of 4096 tokens
	defaultLengths = "lognormal:prompt_mean=344,prompt_sigma=1.5,prompt_cap=2048,output_mean=158,output_sigma=1.2,output_cap=1024"
)

// Streams of random numbers that the workload's parts draw from.
const (
	streamAssign = 0x61737369676e
)

// NoLengths is a value of lengths that leaves requests without token counts.
const NoLengths = "none"

// Traces lists the names of trace_name.
func Traces() []string {
	return []string{"azure_v1", "azure_v2", "azure_llm", "burstgpt", "mooncake", "alibaba_genai"}
}

// compats lists the values of compat.
var compats = []string{"dlora", "slora", "vllm-lora"}

// Input is the request source of a scenario with what is known of it.
type Input struct {
	trace.Source
	// Dataset names the source for results: "synthetic", "azure_v2", ...
	Dataset string
	// Replayed is set for compat=dlora: what the reference generator prints.
	Replayed *replay.Summary
	// Skipped tells how many malformed or failed rows were left out so far.
	Skipped func() int64

	closers []io.Closer
}

// Close releases the files of the source.
func (in *Input) Close() error {
	var err error
	for _, c := range in.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// OpenWorkload builds the request source; when ctx ends, so does the reading of
// files. progress, where not nil, is told the bytes read from input
// files so far and, where known, in all (else 0).
func (s *Scenario) OpenWorkload(ctx context.Context, progress func(read, total int64)) (*Input, error) {
	if err := s.Workload.check(); err != nil {
		return nil, fault(err)
	}
	in, err := s.open(func(read, total int64) error {
		if progress != nil {
			progress(read, total)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	src, err := s.fillBudgets(in.Source)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	in.Source = src
	return in, nil
}

// reading is told the bytes of input read, so far and, where known, in all; its
// error ends the reading.
type reading = func(read, total int64) error

func (s *Scenario) open(progress reading) (*Input, error) {
	w := &s.Workload
	if w.File != "" {
		return s.openFile(progress)
	}
	adapters, err := s.adapters()
	if err != nil {
		return nil, err
	}
	var in *Input
	switch {
	case w.Compat == "slora":
		in, err = s.openSLoRA()
	case w.Compat == "vllm-lora":
		in, err = s.openSharedPoisson()
	case w.TraceHistogram != "":
		in, err = s.openHistogram(adapters)
	case !w.usesTrace():
		in, err = s.openSynthetic()
	case w.traceName() == "azure_v1" || w.traceName() == "azure_v2":
		in, err = s.openFunctions(adapters, progress)
	case w.traceName() == "alibaba_genai":
		in, err = s.openUsage(adapters, progress)
	default:
		in, err = s.openLLM(adapters, progress)
	}
	if err != nil {
		return nil, err
	}
	if err := s.asClients(in); err != nil {
		return nil, errors.Join(fault(err), in.Close())
	}
	if err := s.fillLengths(in); err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return in, nil
}

func (w *Workload) usesTrace() bool { return w.UseTrace || w.TraceName != "" || w.TracePath != "" }

func (w *Workload) traceName() string {
	if w.TraceName == "" {
		return "azure_v2"
	}
	return w.TraceName
}

// check finds settings that are out of range or contradict each other.
func (w *Workload) check() error {
	switch {
	case w.NumPrompts < 0:
		return fmt.Errorf("num_prompts is %d, expected >= 0", w.NumPrompts)
	case w.NumAdapters < 0:
		return fmt.Errorf("num_adapters is %d, expected >= 0", w.NumAdapters)
	case !(w.Window >= 0) || math.IsInf(w.Window, 0):
		return fmt.Errorf("window is %v s, expected a number >= 0", w.Window)
	case w.Compat != "" && !slices.Contains(compats, w.Compat):
		return suggest.Unknown("compat", w.Compat, compats)
	case w.TraceReplay != "rates" && w.TraceReplay != "vanilla":
		return suggest.Unknown("trace_replay", w.TraceReplay, []string{"rates", "vanilla"})
	case w.usesTrace() && !slices.Contains(Traces(), w.traceName()):
		return suggest.Unknown("trace", w.TraceName, Traces())
	case w.RandomInputLen < 0 || w.RandomOutputLen < 0:
		return errors.New("random_input_len and random_output_len must be >= 0")
	}
	for _, c := range []struct {
		key string
		v   float64
	}{{"rate_scale", w.RateScale}, {"cv_scale", w.CVScale}, {"time_scale", w.TimeScale}} {
		if !(c.v > 0) || math.IsInf(c.v, 0) {
			return fmt.Errorf("%s is %v, expected a number > 0", c.key, c.v)
		}
	}
	if err := w.checkClients(); err != nil {
		return err
	}
	sources := 0
	for _, set := range []bool{w.File != "", w.usesTrace(), w.TraceHistogram != ""} {
		if set {
			sources++
		}
	}
	switch {
	case sources > 1:
		return errors.New("a saved workload, a trace and a histogram exclude each other: give one of workload, trace_path and trace_histogram")
	case w.Compat == "dlora" && !w.usesTrace() && w.TraceHistogram == "":
		return errors.New("compat dlora replays function traces: give trace_path, or trace_histogram")
	case w.Compat == "dlora" && w.usesTrace() && w.traceName() != "azure_v1" && w.traceName() != "azure_v2":
		return fmt.Errorf("compat dlora replays azure_v1 and azure_v2, not %s", w.traceName())
	case (w.Compat == "slora" || w.Compat == "vllm-lora") && sources > 0:
		return fmt.Errorf("compat %s generates its requests: it takes no trace, histogram or saved workload", w.Compat)
	case w.usesTrace() && w.TracePath == "":
		return fmt.Errorf("trace %s: trace_path is missing", w.traceName())
	}
	return nil
}

// adapters are the adapters of every source but a saved workload.
func (s *Scenario) adapters() ([]trace.Adapter, error) {
	w := &s.Workload
	n := w.NumAdapters
	if n == 0 {
		n = defaultAdapters
	}
	ranks, err := w.ranks()
	if err != nil {
		return nil, err
	}
	return trace.Names(n, ranks.For(n, s.Seed)), nil
}

// ranks is the law of the adapters' ranks where no saved workload states them.
func (w *Workload) ranks() (synth.Ranks, error) {
	ranks, err := synth.ParseRanks(orElse(w.LoraRanks, defaultRanks))
	if err != nil {
		return ranks, fmt.Errorf("lora_ranks: %w", err)
	}
	return ranks, nil
}

func orElse(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func (s *Scenario) openFile(progress reading) (*Input, error) {
	w := &s.Workload
	size := fileSize(w.File)
	o := store.ReadOptions{Progress: func(n int64) error { return progress(n, size) }}
	if w.NumAdapters > 0 {
		as, err := s.adapters()
		if err != nil {
			return nil, err
		}
		o.Adapters = as
	}
	r, err := store.Open(w.File, o)
	if err != nil {
		return nil, err
	}
	in := &Input{Source: r, Dataset: "workload", closers: []io.Closer{r}}
	if w.LoraRanks != "" && w.NumAdapters == 0 {
		ranks, err := synth.ParseRanks(w.LoraRanks)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lora_ranks: %w", err), r.Close())
		}
		as := slices.Clone(r.Adapters())
		for i, rank := range ranks.For(len(as), s.Seed) {
			as[i].Rank = rank
		}
		in.Source = withAdapters{in.Source, as}
	}
	in.limit(w.NumPrompts)
	return in, nil
}

// withAdapters is a source with other adapters.
type withAdapters struct {
	trace.Source
	adapters []trace.Adapter
}

func (w withAdapters) Adapters() []trace.Adapter { return w.adapters }

func (in *Input) limit(n int64) {
	if n > 0 {
		in.Source = trace.Limit(in.Source, n)
	}
}

func fileSize(path string) int64 {
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
		return st.Size()
	}
	return 0
}

// fillLengths gives requests their token counts where the source has none, or
// where others are asked for.
func (s *Scenario) fillLengths(in *Input) error {
	w := &s.Workload
	spec := w.Lengths
	own := w.Compat == "slora" || w.llmTrace()
	if spec == "auto" {
		switch {
		case own:
			return nil
		case w.RandomInputLen > 0 || w.RandomOutputLen > 0:
			spec = "random"
		default:
			spec = defaultLengths
		}
	}
	if spec == "random" {
		input, output := s.randomRanges()
		spec = fmt.Sprintf("random:%d,%d,%s", input[1]-1, output[1]-1, formatFloat(w.RandomRangeRatio))
	}
	if spec == NoLengths {
		return nil
	}
	sampler, err := lengths.Parse(spec)
	if err != nil {
		return fmt.Errorf("lengths: %w", err)
	}
	sampler = lengths.Rescale(sampler, int(in.Source.Len()), s.Seed)
	in.Source = lengths.Fill(in.Source, sampler, s.Seed)
	return nil
}

// Ignored says which of the given settings have no effect on the workload;
// given tells whether a flag was given.
func (s *Scenario) Ignored(given func(flag string) bool) []string {
	w := &s.Workload
	var notes []string
	note := func(why string, flags ...string) {
		for _, f := range flags {
			if given(f) {
				notes = append(notes, fmt.Sprintf("--%s has no effect: %s", f, why))
			}
		}
	}
	if w.RampUpStrategy != "" {
		note("the ramp-up governs the rate", "request-rate")
	}
	if w.LoraRequestDist != "" {
		note("--lora-request-distribution chooses the adapters", "popularity", "locality")
	}
	if w.LoraRequestDist != synth.SkewedAdapters {
		note("the distribution is not skewed (see --lora-request-distribution)", "lora-zipf-alpha")
	}
	switch {
	case w.File != "":
		note("the saved workload states its arrivals", "request-rate", "arrivals", "pattern", "drift", "locality", "sessions", "popularity")
		note("the saved workload states its token counts", "lengths", "random-input-len", "random-output-len", "random-range-ratio")
	case w.usesTrace() || w.TraceHistogram != "":
		if !w.paced() {
			note("the trace's own rate governs (see --trace-total-rate and --rate-scale)", "request-rate")
		}
		note("the trace governs the arrivals", "arrivals", "pattern", "sessions")
		if w.traceName() == "alibaba_genai" && w.usesTrace() {
			note("the trace states the adapters", "popularity", "drift", "locality")
		}
	case w.Compat == "vllm-lora":
		note("compat vllm-lora has one Poisson process per adapter", "arrivals", "pattern", "drift", "locality", "sessions")
	default:
		if w.Sessions != "" {
			note("sessions choose the adapters (see --sessions)", "popularity")
		}
		note("no trace is replayed (see --trace-path)", "trace-total-rate", "trace-cv", "trace-map", "trace-map-stride",
			"trace-need-sort", "trace-interval-minutes", "trace-arrival-distribution", "trace-start-time", "trace-end-time", "trace-replay",
			"rate-scale", "cv-scale", "time-scale")
	}
	return notes
}
