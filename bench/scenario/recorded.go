package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/trace"
	"lorasim/trace/resample"
	"lorasim/trace/rescale"
	"lorasim/trace/settings"
	"lorasim/trace/synth"
)

// Ended reports whether a run of own requests has used all recorded requests, so that no larger num_prompts gives more.
func (w *Workload) Ended(own int64) bool {
	return w.recorded() && (!w.NumPrompts.Given || own < w.NumPrompts.Value)
}

// recorded reports whether the requests have recorded times: those in a saved workload, an LLM trace, or the
// invocations of a function trace.
func (w *Workload) recorded() bool {
	switch w.dataset() {
	case "workload", "alibaba_genai":
		return true
	case "azure_v1", "azure_v2":
		return w.TraceReplay == "vanilla" && w.Compat == ""
	}
	return w.llmTrace()
}

// checkResample finds workloads from which resample cannot draw.
func (w *Workload) checkResample() error {
	switch {
	case !w.Resample.Given():
		return nil
	case !w.recorded():
		return errors.New("resample needs a saved workload or a trace with its own times (LLM traces, trace_replay vanilla); generated requests differ by seed without it")
	case w.paced():
		return errors.New("resample draws from the trace's own times, which burstiness, ramp_up and use_trace_timestamps=false replace")
	}
	return nil
}

// drawnFrom makes a run's requests of recorded ones: draws from them, changes their
// times, and ends after num_prompts, in this order.
func (s *Scenario) drawnFrom(src trace.Source) (trace.Source, error) {
	w := &s.Workload
	if w.Resample.Given() {
		all, err := trace.Collect(src)
		if err != nil {
			return nil, err
		}
		if all, err = resample.Draw(all, w.Resample.Value(), s.Seed); err != nil {
			return nil, fmt.Errorf("resample %s: %w", w.Resample, err)
		}
		src = all.Source()
	}
	return w.limited(rescale.Times(src, rescale.Options{Rate: w.RateScale, Time: w.TimeScale, CV: w.CVScale})), nil
}

// Sampling reports what changes with the seed of the scenario: the workload is fresh, resampled, or the same.
func (s *Scenario) Sampling() stats.Sampling {
	w := &s.Workload
	if w.Resample.Given() {
		return stats.Resampled
	}
	if !w.recorded() && w.Compat != "dlora" || w.llmTrace() && s.adaptersOfTrace() > 1 {
		return stats.Fresh
	}
	// The requests are recorded. What else of a workload is drawn shows in a few.
	own := *s
	own.Workload.NumPrompts, own.Workload.Window = settings.Some[int64](probes), 0
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a file of lengths that is a pipe is not for this probe
	a, err1 := own.probe(ctx)
	own.Seed++
	b, err2 := own.probe(ctx)
	if err1 != nil || err2 != nil || !slices.Equal(a.Adapters, b.Adapters) || !slices.Equal(a.Requests, b.Requests) {
		return stats.Fresh
	}
	return stats.OneWorkload
}

// adaptersOfTrace is the number of adapters that an LLM trace's requests are given to.
func (s *Scenario) adaptersOfTrace() int {
	return cmp.Or(len(s.Workload.LoraNames.Value()), s.Workload.numAdapters())
}

const probes = 200 // requests

// probe draws for a few made-up requests everything that the scenario draws for recorded requests: times, lengths,
// budgets, ranks.
func (s *Scenario) probe(ctx context.Context) (*trace.Workload, error) {
	adapters := trace.Names(16, nil)
	if w := &s.Workload; w.File == "" || w.LoraRanks.Given() {
		adapters = s.adapters(16)
	}
	i := int32(0)
	in := &Input{Source: trace.Generate(adapters, probes, func() (trace.Request, error) {
		i++
		return trace.Request{Arrival: float64(i), Adapter: i % 16, Prompt: 10 * i, Output: i}, nil
	})}
	if s.Workload.File == "" {
		if err := s.asClients(in); err != nil {
			return nil, err
		}
		if err := s.fillLengths(ctx, in); err != nil {
			return nil, err
		}
	}
	if err := s.fillBudgets(in); err != nil {
		return nil, err
	}
	return trace.Collect(in)
}

// Ignored returns notes on the given settings that have no effect on the workload. given reports whether a flag was
// given.
func (s *Scenario) Ignored(given func(flag string) bool) (notes []string) {
	w := &s.Workload
	note := func(applies bool, why, flags string) {
		for f := range strings.FieldsSeq(flags) {
			text := fmt.Sprintf("--%s has no effect: ", f)
			if applies && given(f) && !slices.ContainsFunc(notes, func(n string) bool {
				return strings.HasPrefix(n, text)
			}) {
				notes = append(notes, text+why)
			}
		}
	}
	const (
		redrawn = "trace-total-rate trace-cv trace-interval-minutes trace-arrival-distribution"
		mapped  = "trace-map trace-map-stride trace-need-sort"
		window  = "trace-start-time trace-end-time"
		ofLLM   = "use-trace-timestamps trace-sort"
		scales  = "rate-scale cv-scale time-scale"
	)
	kind := w.dataset()
	file, dlora, compat := w.File != "", w.Compat == "dlora", w.Compat == "vllm-lora"
	histogram, functions := kind == "histogram", kind == "azure_v1" || kind == "azure_v2"
	vanilla := functions && w.TraceReplay == "vanilla" && !dlora
	traced := !file && (w.usesTrace() || histogram)
	generated := !file && !traced

	note(w.RampUpStrategy != "", "the ramp-up governs the rate", "request-rate")
	note(w.LoraRequestDist != "", "--lora-request-distribution chooses the adapters", "popularity locality drift")
	note(w.LoraRequestDist != synth.SkewedAdapters, "the distribution is not skewed (see --lora-request-distribution)",
		"lora-zipf-alpha")
	note(w.paced() && traced, "the trace's times are replaced (see --use-trace-timestamps)", scales)

	note(file, "the saved workload states its arrivals (see --rate-scale, --time-scale, --cv-scale)",
		"request-rate arrivals pattern drift locality sessions conversations popularity "+redrawn)
	note(file, "the saved workload states its token counts",
		"lengths random-input-len random-output-len random-range-ratio")
	note(file, "it is for traces, not for saved workloads",
		mapped+" "+window+" "+ofLLM+" trace-replay trace-name skip-bad-rows")
	note(!file, "it is for saved workloads (see --workload)", "prefix-block")

	note(traced && !w.paced() && (histogram || functions) && !vanilla,
		"the trace's own rate governs (see --trace-total-rate and --rate-scale)", "request-rate")
	note(traced && !w.paced(), "the trace's own rate governs (see --rate-scale)", "request-rate")
	note(traced, "the trace governs the arrivals", "arrivals pattern sessions")
	note(kind == "alibaba_genai" && traced, "the trace states the adapters",
		"popularity drift locality use-trace-timestamps trace-sort")
	note(w.llmTrace() && traced, "adapters are given by popularity alone", "drift locality")
	note(traced && (functions || histogram), "the trace governs the shares of the adapters", "popularity")
	note(traced && (functions || histogram), "it is for LLM traces", ofLLM)
	note(traced && !functions && !histogram, "it is for function traces", redrawn+" "+mapped+" trace-replay")
	note(vanilla, "the invocations keep their times (see --trace-replay)", redrawn+" drift locality")
	note(histogram, "a histogram has one line of intervals for each adapter",
		mapped+" "+window+" trace-replay skip-bad-rows")
	note(dlora, "compat dlora repeats the published generator", scales+" drift locality trace-map trace-replay")

	note(compat, "compat vllm-lora has one Poisson process per adapter", "arrivals pattern drift locality sessions")
	note(generated && w.Sessions.Given(), "sessions choose the adapters (see --sessions)", "popularity")
	note(generated, "no trace is replayed (see --trace-path)",
		redrawn+" "+mapped+" "+window+" "+ofLLM+" trace-replay skip-bad-rows "+scales)
	return notes
}
