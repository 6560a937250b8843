package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/textfile"
	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/llm"
	"lorasim/trace/replay"
	"lorasim/trace/synth"
)

// Defaults of settings whose zero value stands for "as the source says".
const (
	defaultPrompts  = 2000
	defaultAdapters = 32
)

// streamAssign are the random numbers of adapters for LLM traces.
const streamAssign = 0x61737369676e

// reading is called with the bytes of input read so far and in all, if known. Its error ends the reading.
type reading func(read, total int64) error

// open opens the source that in.Dataset names.
func (s *Scenario) open(ctx context.Context, in *Input, progress reading) error {
	w := &s.Workload
	switch in.Dataset {
	case "workload":
		return s.openFile(ctx, in, progress)
	case "synthetic":
		return s.openSynthetic(in)
	case "slora":
		return s.openSLoRA(in)
	case "vllm-lora":
		return s.openSharedPoisson(in)
	case "histogram":
		return s.openHistogram(ctx, in)
	case "azure_v1", "azure_v2":
		return s.openFunctions(ctx, in, azure.Options{SkipBadRows: w.SkipBadRows, Progress: progress})
	case "alibaba_genai":
		return s.openUsage(ctx, in, progress)
	}
	return s.openLLM(ctx, in, progress)
}

// adapters returns n adapters with the scenario's ranks, for all sources except saved workloads with their own
// adapters.
func (s *Scenario) adapters(n int) []trace.Adapter {
	return trace.Names(n, s.Workload.ranks().For(n, s.Seed))
}

// parseNames reads the names of the adapters.
func parseNames(text string) ([]string, error) {
	names := strings.Split(text, ",")
	for i := range names {
		if names[i] = strings.TrimSpace(names[i]); names[i] == "" || slices.Contains(names[:i], names[i]) {
			return nil, fmt.Errorf("name %d is %q, expected distinct names, separated by commas", i+1, names[i])
		}
	}
	return names, nil
}

// Noisy returns the adapters that have their own flash crowd.
func (w *Workload) Noisy() []int32 {
	f := w.Pattern.Value().Flash
	if w.dataset() != "synthetic" || f.Duration == 0 || f.Adapter == synth.AllAdapters {
		return nil
	}
	return []int32{f.Adapter}
}

// numAdapters is the number of adapters if only the settings state it.
func (w *Workload) numAdapters() int {
	return w.NumAdapters.Or(defaultAdapters)
}

// baseOnly reports whether no request has an adapter.
func (w *Workload) baseOnly() bool { return w.NumAdapters.Given && w.NumAdapters.Value == 0 }

// ranks is the law of the adapters' ranks; where it is the default, a run fits it
// to its workers (fitRanks).
func (w *Workload) ranks() synth.Ranks {
	if !w.LoraRanks.Given() {
		return synth.Ranks{Values: fitting(slices.Max(defaultRanks))}
	}
	return w.LoraRanks.Value()
}

// limited ends a source after num_prompts.
func (w *Workload) limited(src trace.Source) trace.Source {
	if w.NumPrompts.Given {
		return trace.Limit(src, w.NumPrompts.Value)
	}
	return src
}

// generated is the number of requests that a generator makes; 0: all that arrive within the window.
func (w *Workload) generated() int64 {
	if w.Window == 0 {
		return w.NumPrompts.Or(defaultPrompts)
	}
	return w.NumPrompts.Value
}

// of is the progress of reading one file.
func (r reading) of(fsys fs.FS, path string) func(n int64) error {
	size := int64(0)
	if st, err := textfile.Stat(fsys, path); err == nil && st.Mode().IsRegular() {
		size = st.Size()
	}
	return func(n int64) error { return r(n, size) }
}

// parsePriorities reads priorities of adapters, "1,0,0".
func parsePriorities(text string) (list []int, err error) {
	for part := range strings.SplitSeq(text, ",") {
		p, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number of 32 bits, expected a list such as 1,0,0", part)
		}
		list = append(list, int(p))
	}
	return list, nil
}

// prioritized gives the adapters of a source priorities, in turn.
func prioritized(src trace.Source, priorities []int) trace.Source {
	adapters := slices.Clone(src.Adapters())
	for i := range adapters {
		adapters[i].Priority = priorities[i%len(priorities)]
	}
	return withAdapters{src, adapters}
}

func (s *Scenario) openSynthetic(in *Input) (err error) {
	cfg := s.synthetic()
	if s.Workload.Conversations.Given() {
		cfg.Requests = 0 // it is turns that end them
	}
	in.Source, err = synth.New(cfg)
	return fault(err)
}

// synthetic is the generator of the scenario.
func (s *Scenario) synthetic() synth.Config {
	w := &s.Workload
	cfg := synth.Default()
	cfg.Adapters, cfg.Rate, cfg.Drift, cfg.Seed = w.numAdapters(), w.startRate(), w.Drift, s.Seed
	cfg.Requests, cfg.Duration = w.generated(), w.Window
	cfg.Ranks, cfg.Popularity, cfg.Locality = w.ranks(), w.Popularity.Value(), w.Locality.Value()
	cfg.Arrivals, cfg.Pattern, cfg.Sessions = w.Arrivals.Value(), w.Pattern.Value(), w.Sessions.Value()
	if w.paced() {
		cfg.Rate, cfg.Arrivals = math.Inf(1), defaults.Workload.Arrivals.Value() // the times are replaced
	}
	if w.LoraRequestDist != "" {
		cfg.Arrivals.Total = true // one process, whatever the adapters
	}
	return cfg
}

// gammaCV is the coefficient of variation of gamma-distributed gaps, which are exponential at 1; false: the gaps are
// others.
func (w *Workload) gammaCV() (float64, bool) {
	a := w.Arrivals.Value()
	cv, one := a.OneCV()
	return cv, one && (a.Dist == synth.Exponential || a.Dist == synth.Gamma)
}

func (s *Scenario) openSLoRA(in *Input) (err error) {
	w := &s.Workload
	p := w.Popularity.Value()
	if p.Kind != synth.PowerLaw {
		return fmt.Errorf("popularity: compat slora draws from powerlaw:ALPHA, not %s", p.Kind)
	}
	cv, ok := w.gammaCV()
	if !ok {
		return fmt.Errorf("arrivals: compat slora draws from gamma:CV, not %s", w.Arrivals)
	}
	n := w.generated()
	if n == 0 {
		n = int64(max(1, w.Window*w.RequestRate))
	}
	input, output := w.randomRanges()
	in.Source, err = synth.NewSLoRA(synth.SLoRA{
		Adapters: w.numAdapters(), Ranks: w.ranks(), Alpha: p.Param, Rate: w.RequestRate,
		CV:       cv,
		Duration: (float64(n) + 0.5) / w.RequestRate, Input: input, Output: output, Seed: uint32(s.Seed),
	})
	return err
}

// openSharedPoisson opens compat vllm-lora. Its client's seed was 0 in all
// published runs; here it is the scenario's.
func (s *Scenario) openSharedPoisson(in *Input) error {
	w := &s.Workload
	rates, err := w.Popularity.Value().Shares(w.numAdapters())
	if err != nil {
		return fmt.Errorf("popularity: %w", err)
	}
	for i := range rates {
		rates[i] *= w.RequestRate
	}
	in.Source, err = synth.NewSharedPoisson(synth.SharedPoisson{
		Rates: rates, Ranks: w.ranks(), Requests: w.generated(), Duration: w.Window, Seed: uint32(s.Seed),
	})
	return err
}

func (s *Scenario) openHistogram(ctx context.Context, in *Input) error {
	w := &s.Workload
	counts, err := w.TraceHistogram.Value().read(ctx)
	if err != nil {
		return fmt.Errorf("trace_histogram: %w", err)
	}
	adapters := s.adapters(w.NumAdapters.Or(len(counts)))
	if w.Compat != "dlora" {
		in.Source, err = s.rates().ReplayHistogram(adapters, counts)
		return err
	}
	d, err := s.dlora()
	if err != nil {
		return err
	}
	in.Source, in.Replayed, err = d.ReplayHistogram(adapters, counts)
	return err
}

// read returns the invocations of each adapter in each interval.
func (h histogram) read(ctx context.Context) ([][]int64, error) {
	if h.file != "" {
		return readHistogram(ctx, h.file)
	}
	return h.counts, nil
}

// parseHistogram reads the invocations of each adapter in each interval from a text.
func parseHistogram(s string) ([][]int64, error) {
	var counts [][]int64
	for i, interval := range strings.Split(s, ";") {
		cells := strings.Split(interval, ",")
		if i == 0 {
			counts = make([][]int64, len(cells))
		}
		if len(cells) != len(counts) {
			return nil, fmt.Errorf("interval %d has %d adapters, the first has %d", i+1, len(cells), len(counts))
		}
		for k, c := range cells {
			n, err := strconv.ParseInt(strings.TrimSpace(c), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%q is not a whole number", c)
			}
			counts[k] = append(counts[k], n)
		}
	}
	return counts, nil
}

func readHistogram(ctx context.Context, file string) ([][]int64, error) {
	data, err := textfile.ReadFile(ctx, file, textfile.MaxData)
	if err != nil {
		return nil, err
	}
	var counts [][]int64
	var flat []int64 // one interval
	if json.Unmarshal(data, &flat) == nil {
		for _, n := range flat {
			counts = append(counts, []int64{n})
		}
	} else if err := json.Unmarshal(data, &counts); err != nil {
		return nil, fmt.Errorf("%s: expected a list of numbers, or of lists of numbers: %w", file, err)
	}
	return counts, nil
}

func (s *Scenario) openFunctions(ctx context.Context, in *Input, read azure.Options) error {
	w := &s.Workload
	format, adapters := azure.Format(in.Dataset), s.adapters(w.numAdapters())
	if w.Compat == "dlora" {
		d, err := s.dlora()
		if err != nil {
			return err
		}
		d.Trace, d.Path, d.Read = format, w.TracePath, read
		if in.Source, in.Replayed, err = d.Replay(ctx, adapters); err != nil {
			return err
		}
		in.Skipped = func() int64 { return in.Replayed.SkippedRows }
		return nil
	}
	window, err := azure.NewWindow(w.TraceStartTime.Value(), w.TraceEndTime.Value())
	if err != nil {
		return err
	}
	mapping := replay.Mapping{Strategy: replay.Strategy(w.TraceMap), Stride: w.TraceMapStride, Sort: w.TraceNeedSort}
	if w.TraceReplay == "vanilla" {
		if format != azure.V2 {
			return fmt.Errorf("trace_replay vanilla needs the times of single invocations, which %s does not hold; use azure_v2", format)
		}
		v := replay.Vanilla{Path: w.TracePath, Window: window, Mapping: mapping, Read: read}
		src, _, err := v.Replay(ctx, adapters)
		if err != nil {
			return err
		}
		in.file = src
		in.Source, err = s.drawnFrom(src)
		return err
	}
	cfg := s.rates()
	cfg.Trace, cfg.Path, cfg.Window, cfg.Mapping, cfg.Read = format, w.TracePath, window, mapping, read
	src, traffic, err := cfg.Replay(ctx, adapters)
	in.Source, in.Skipped = src, func() int64 { return traffic.SkippedRows }
	return err
}

func (s *Scenario) dlora() (replay.DLoRA, error) {
	w := &s.Workload
	cv, ok := w.gammaCV()
	if !ok {
		return replay.DLoRA{}, fmt.Errorf("arrivals: compat dlora draws from gamma:CV, not %s", w.Arrivals)
	}
	return replay.DLoRA{
		Start: w.TraceStartTime.Value(), End: w.TraceEndTime.Value(), NeedSort: w.TraceNeedSort,
		Requests:     int(w.NumPrompts.Or(defaultPrompts)),
		Distribution: synth.Gamma, Interval: w.TraceIntervalMinutes,
		TotalRate: w.TraceTotalRate, CV: cv, MapStride: w.TraceMapStride,
	}, nil
}

func (s *Scenario) rates() replay.Config {
	w, cfg := &s.Workload, replay.Default()
	cfg.Interval, cfg.Seed = w.TraceIntervalMinutes, s.Seed
	// Exponential gaps are drawn as gamma-distributed ones with CV 1, the default of replay, as in earlier versions.
	if a := w.Arrivals.Value(); a.Dist != synth.Exponential {
		cfg.Distribution, cfg.CV = a.Dist, a.CV
	}
	cfg.TotalRate, cfg.RateScale, cfg.Speed = w.TraceTotalRate, w.RateScale, w.TraceSpeed
	cfg.Requests, cfg.Drift = w.NumPrompts.Value, w.Drift
	cfg.Locality, cfg.Recent = w.Locality.Value().P, w.Locality.Value().Window
	return cfg
}

func (s *Scenario) openLLM(ctx context.Context, in *Input, progress reading) error {
	w := &s.Workload
	adapters := s.adapters(w.numAdapters())
	assign, err := w.Popularity.Value().Assigner(len(adapters), rand.New(rand.NewPCG(s.Seed, streamAssign)))
	if err != nil {
		return fmt.Errorf("popularity: %w", err)
	}
	start, end, err := w.llmWindow()
	if err != nil {
		return err
	}
	r, err := llm.Open(ctx, llm.Format(in.Dataset), w.TracePath, llm.Options{
		Adapters: adapters, Assign: assign, Start: start, End: end,
		SkipBadRows: w.SkipBadRows, Sort: w.TraceSort, Progress: progress.of(nil, w.TracePath),
	})
	if err != nil {
		return err
	}
	in.file, in.Skipped = r, func() int64 { st := r.Stats(); return st.Bad + st.Failed }
	in.Source, err = s.drawnFrom(r)
	return err
}

// openUsage opens a record of adapters in use, with its own adapters or the number that the scenario sets.
func (s *Scenario) openUsage(ctx context.Context, in *Input, progress reading) error {
	w := &s.Workload
	start, end, err := w.llmWindow()
	if err != nil {
		return err
	}
	o := llm.Options{Start: start, End: end, SkipBadRows: w.SkipBadRows, Progress: progress.of(nil, w.TracePath)}
	if n := w.NumAdapters.Value; n > 0 {
		o.Adapters = s.adapters(n)
	}
	read, skipped, err := llm.ReadUsage(ctx, w.TracePath, o, func(n int) []int { return w.ranks().For(n, s.Seed) })
	if err != nil {
		return err
	}
	in.Skipped = func() int64 { return skipped }
	in.Source, err = s.drawnFrom(read.Source())
	return err
}

// llmWindow is the part of an LLM trace to read, in s; all of it where none is
// stated.
func (w *Workload) llmWindow() (start, end float64, err error) {
	if d := &defaults.Workload; w.TraceStartTime == d.TraceStartTime && w.TraceEndTime == d.TraceEndTime {
		return 0, 0, nil
	}
	win, err := azure.NewWindow(w.TraceStartTime.Value(), w.TraceEndTime.Value())
	return float64(win.Start) * 60, float64(win.End) * 60, err
}
