package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
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
		return errors.New("resample draws from the trace's own times, which arrivals vllm, ramp_up and use_trace_timestamps=false replace")
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
	return w.limited(rescale.Times(src, rescale.Options{Rate: w.RateScale, CV: w.CVScale})), nil
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

// Ignored returns notes on the given settings that have no effect on the workload. spelled returns how the user wrote a
// setting, "--drift" or "s.yaml:7: workload.drift"; "": it is not given.
func (s *Scenario) Ignored(spelled func(f Field) string) (notes []string) {
	w := &s.Workload
	noted := map[string]bool{}
	note := func(applies bool, why, keys string) {
		if !applies {
			return
		}
		for key := range strings.FieldsSeq(keys) {
			f, err := Find(key)
			if err != nil {
				panic(err) // a fault of the lists below
			}
			if how := spelled(f); how != "" && !noted[key] {
				noted[key] = true
				notes = append(notes, fmt.Sprintf("%s has no effect: %s", how, inSpelling(why, how)))
			}
		}
	}
	const (
		redrawn = "trace_total_rate trace_interval_minutes trace_speed"
		mapped  = "trace_map trace_map_stride trace_need_sort"
		window  = "trace_start_time trace_end_time"
		ofLLM   = "use_trace_timestamps trace_sort"
		scales  = "rate_scale cv_scale"
	)
	kind := w.dataset()
	file, dlora, compat := w.File != "", w.Compat == "dlora", w.Compat == "vllm-lora"
	histogram, functions := kind == "histogram", kind == "azure_v1" || kind == "azure_v2"
	vanilla := functions && w.TraceReplay == "vanilla" && !dlora
	traced := !file && (w.usesTrace() || histogram)
	generated := !file && !traced

	note(w.RampUpStrategy != "", "the ramp-up governs the rate", "request_rate")
	note(w.LoraRequestDist != "", "{lora_request_distribution} chooses the adapters", "popularity locality drift")
	note(w.LoraRequestDist != synth.SkewedAdapters, "the distribution is not skewed (see {lora_request_distribution})",
		"lora_zipf_alpha")
	note(w.paced() && traced, "the trace's times are replaced (see {use_trace_timestamps})", scales)

	note(file, "the saved workload states its arrivals (see {rate_scale}, {cv_scale})",
		"request_rate arrivals pattern drift locality sessions conversations popularity "+redrawn)
	note(file, "the saved workload states its token counts",
		"lengths random_input_len random_output_len random_range_ratio")
	note(file, "it is for traces, not for saved workloads",
		mapped+" "+window+" "+ofLLM+" trace_replay trace_name skip_bad_rows")
	note(!file, "it is for saved workloads (see {file})", "prefix_block")

	note(w.atRates(), "the trace's own rate governs (see {trace_total_rate} and {rate_scale})", "request_rate")
	note(traced && !w.paced(), "the trace's own rate governs (see {rate_scale})", "request_rate")
	note(traced && !w.paced() && !w.atRates(), "the trace states its arrivals (see {cv_scale})", "arrivals")
	note(traced, "the trace governs the arrivals", "pattern sessions")
	note(kind == "alibaba_genai" && traced, "the trace states the adapters",
		"popularity drift locality use_trace_timestamps trace_sort")
	note(w.llmTrace() && traced, "adapters are given by popularity alone", "drift locality")
	note(traced && (functions || histogram), "the trace governs the shares of the adapters", "popularity")
	note(traced && (functions || histogram), "it is for LLM traces", ofLLM)
	note(traced && !functions && !histogram, "it is for function traces", redrawn+" "+mapped+" trace_replay")
	note(vanilla, "the invocations keep their times (see {trace_replay})", redrawn+" drift locality")
	note(histogram, "a histogram has one line of intervals for each adapter",
		mapped+" "+window+" trace_replay skip_bad_rows")
	note(dlora, "compat dlora repeats the published generator",
		scales+" trace_speed drift locality trace_map trace_replay")

	note(compat, "compat vllm-lora has one Poisson process per adapter", "arrivals pattern drift locality sessions")
	note(generated && w.Sessions.Given(), "sessions choose the adapters (see {sessions})", "popularity")
	note(generated, "no trace is replayed (see {trace_path})",
		redrawn+" "+mapped+" "+window+" "+ofLLM+" trace_replay skip_bad_rows "+scales)
	return notes
}

var inBraces = regexp.MustCompile(`\{\w+\}`)

// inSpelling replaces the keys in braces by flags if how is a flag, else by their names in a file.
func inSpelling(text, how string) string {
	return inBraces.ReplaceAllStringFunc(text, func(key string) string {
		f, err := Find(strings.Trim(key, "{}"))
		if err == nil && strings.HasPrefix(how, "--") {
			return "--" + f.Flag
		}
		return strings.Trim(key, "{}")
	})
}
