package scenario

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/llm"
	"lorasim/trace/replay"
	"lorasim/trace/synth"
	"lorasim/trace/usage"
)

func (s *Scenario) openSynthetic() (*Input, error) {
	w := &s.Workload
	cfg := synth.Default()
	cfg.Adapters = w.NumAdapters
	if cfg.Adapters == 0 {
		cfg.Adapters = defaultAdapters
	}
	cfg.Rate, cfg.Drift, cfg.Seed = w.RequestRate, w.Drift, s.Seed
	cfg.Requests, cfg.Duration = w.generated(), w.Window
	if w.paced() {
		cfg.Rate = math.Inf(1) // the times are replaced
	}
	var err error
	for _, p := range []struct {
		key   string
		parse func() error
	}{
		{"lora_ranks", func() error { cfg.Ranks, err = synth.ParseRanks(orElse(w.LoraRanks, defaultRanks)); return err }},
		{"popularity", func() error { cfg.Popularity, err = synth.ParsePopularity(w.Popularity); return err }},
		{"arrivals", func() error { cfg.Arrivals, err = synth.ParseArrivals(w.Arrivals); return err }},
		{"pattern", func() error { cfg.Pattern, err = synth.ParsePattern(orElse(w.Pattern, "constant")); return err }},
		{"sessions", func() error { cfg.Sessions, err = synth.ParseSessions(w.Sessions); return err }},
		{"locality", func() error { cfg.Locality, err = parseLocality(w.Locality); return err }},
	} {
		if err := p.parse(); err != nil {
			return nil, fmt.Errorf("%s: %w", p.key, err)
		}
	}
	if w.LoraRequestDist != "" {
		cfg.Arrivals.Total = true // one process, whatever the adapters
	}
	src, err := synth.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Input{Source: src, Dataset: "synthetic"}, nil
}

func parseLocality(s string) (synth.Locality, error) {
	if s == "" {
		return synth.Locality{}, nil
	}
	return synth.ParseLocality(s)
}

func (s *Scenario) openSLoRA() (*Input, error) {
	w := &s.Workload
	adapters, err := s.adapters()
	if err != nil {
		return nil, err
	}
	p, err := synth.ParsePopularity(w.Popularity)
	if err != nil {
		return nil, fmt.Errorf("popularity: %w", err)
	}
	if p.Kind != synth.PowerLaw {
		return nil, fmt.Errorf("popularity: compat slora draws from powerlaw:ALPHA, not %s", p)
	}
	a, err := synth.ParseArrivals(w.Arrivals)
	if err != nil {
		return nil, fmt.Errorf("arrivals: %w", err)
	}
	n := w.generated()
	if n == 0 {
		n = int64(max(1, w.Window*w.RequestRate))
	}
	ranks, err := w.ranks()
	if err != nil {
		return nil, err
	}
	in, out := s.randomRanges()
	src, err := synth.NewSLoRA(synth.SLoRA{
		Adapters: len(adapters), Ranks: ranks, Alpha: p.Param, Rate: w.RequestRate, CV: a.CV,
		Duration: (float64(n) + 0.5) / w.RequestRate, Input: in, Output: out, Seed: uint32(s.Seed),
	})
	if err != nil {
		return nil, err
	}
	return &Input{Source: src, Dataset: "slora"}, nil
}

// openSharedPoisson opens compat vllm-lora. Its client's seed was 0 in all
// published runs; here it is the scenario's.
func (s *Scenario) openSharedPoisson() (*Input, error) {
	w := &s.Workload
	adapters, err := s.adapters()
	if err != nil {
		return nil, err
	}
	p, err := synth.ParsePopularity(w.Popularity)
	if err != nil {
		return nil, fmt.Errorf("popularity: %w", err)
	}
	shares, err := p.Shares(len(adapters))
	if err != nil {
		return nil, fmt.Errorf("popularity: %w", err)
	}
	for i := range shares {
		shares[i] *= w.RequestRate
	}
	ranks, err := w.ranks()
	if err != nil {
		return nil, err
	}
	src, err := synth.NewSharedPoisson(synth.SharedPoisson{
		Rates: shares, Ranks: ranks, Requests: w.generated(), Duration: w.Window, Seed: uint32(s.Seed),
	})
	if err != nil {
		return nil, err
	}
	return &Input{Source: src, Dataset: "vllm-lora"}, nil
}

// generated is the number of requests that a generator makes; 0: as many as the
// window takes.
func (w *Workload) generated() int64 {
	if w.NumPrompts == 0 && w.Window == 0 {
		return defaultPrompts
	}
	return w.NumPrompts
}

func (s *Scenario) randomRanges() (in, out [2]int32) {
	w := &s.Workload
	r := func(longest, def int) [2]int32 {
		if longest == 0 {
			longest = def
		}
		return [2]int32{int32(max(1, float64(longest)*w.RandomRangeRatio)), int32(longest) + 1}
	}
	return r(w.RandomInputLen, defaultInput), r(w.RandomOutputLen, defaultOutput)
}

func (s *Scenario) openFunctions(adapters []trace.Adapter, progress reading) (*Input, error) {
	w := &s.Workload
	format, err := azure.ParseFormat(w.traceName())
	if err != nil {
		return nil, err
	}
	read := azure.Options{SkipBadRows: w.SkipBadRows, Progress: progress}
	if w.Compat == "dlora" {
		d, err := s.dlora()
		if err != nil {
			return nil, err
		}
		d.Trace, d.Path, d.Read = format, w.TracePath, read
		src, sum, err := d.Replay(adapters)
		if err != nil {
			return nil, err
		}
		return &Input{Source: src, Dataset: w.traceName(), Replayed: sum, Skipped: func() int64 { return sum.SkippedRows }}, nil
	}
	window, err := azure.ParseWindow(w.TraceStartTime, w.TraceEndTime)
	if err != nil {
		return nil, err
	}
	mapping := replay.Mapping{Strategy: replay.Strategy(w.TraceMap), Stride: w.TraceMapStride, Sort: w.TraceNeedSort}
	if w.TraceReplay == "vanilla" {
		if format != azure.V2 {
			return nil, fmt.Errorf("trace_replay vanilla needs the times of single invocations, which %s does not hold; use azure_v2", w.traceName())
		}
		v := replay.Vanilla{Path: w.TracePath, Window: window, Mapping: mapping, TimeScale: w.TimeScale, Read: read}
		src, _, err := v.Replay(adapters)
		if err != nil {
			return nil, err
		}
		in := &Input{Source: src, Dataset: w.traceName(), closers: []io.Closer{src}}
		in.limit(w.NumPrompts)
		return in, nil
	}
	cfg, err := s.rates()
	if err != nil {
		return nil, err
	}
	cfg.Trace, cfg.Path, cfg.Window, cfg.Mapping, cfg.Read = format, w.TracePath, window, mapping, read
	src, traffic, err := cfg.Replay(adapters)
	if err != nil {
		return nil, err
	}
	return &Input{Source: src, Dataset: w.traceName(), Skipped: func() int64 { return traffic.SkippedRows }}, nil
}

func (s *Scenario) dlora() (replay.DLoRA, error) {
	w := &s.Workload
	n := w.NumPrompts
	if n == 0 {
		n = defaultPrompts
	}
	if len(w.TraceCV) != 1 {
		return replay.DLoRA{}, fmt.Errorf("trace_cv: compat dlora takes one, not %d", len(w.TraceCV))
	}
	return replay.DLoRA{
		Start: w.TraceStartTime, End: w.TraceEndTime, NeedSort: w.TraceNeedSort, Requests: int(n),
		Distribution: w.TraceArrivalDistribution, Interval: w.TraceIntervalMinutes,
		TotalRate: w.TraceTotalRate, CV: w.TraceCV[0], MapStride: w.TraceMapStride,
	}, nil
}

func (s *Scenario) rates() (replay.Config, error) {
	w := &s.Workload
	loc, err := parseLocality(w.Locality)
	if err != nil {
		return replay.Config{}, fmt.Errorf("locality: %w", err)
	}
	cfg := replay.Default()
	cfg.Interval, cfg.Seed = w.TraceIntervalMinutes, s.Seed
	cfg.Distribution = replay.Distribution(w.TraceArrivalDistribution)
	cfg.CV, cfg.CVScale = w.TraceCV, w.CVScale
	cfg.TotalRate, cfg.RateScale, cfg.TimeScale = w.TraceTotalRate, w.RateScale, w.TimeScale
	cfg.Requests, cfg.Drift = w.NumPrompts, w.Drift
	cfg.Locality, cfg.Recent = loc.P, loc.Window
	return cfg, nil
}

func (s *Scenario) openLLM(adapters []trace.Adapter, progress reading) (*Input, error) {
	w := &s.Workload
	p, err := synth.ParsePopularity(w.Popularity)
	if err != nil {
		return nil, fmt.Errorf("popularity: %w", err)
	}
	assign, err := p.Assigner(len(adapters), rand.New(rand.NewPCG(s.Seed, streamAssign)))
	if err != nil {
		return nil, fmt.Errorf("popularity: %w", err)
	}
	window, err := s.llmWindow()
	if err != nil {
		return nil, err
	}
	size := fileSize(w.TracePath)
	r, err := llm.Open(llm.Format(w.traceName()), w.TracePath, llm.Options{
		Adapters: adapters, Assign: assign, Start: window[0], End: window[1],
		TimeScale: w.TimeScale / w.RateScale, SkipBadRows: w.SkipBadRows, Sort: w.TraceSort,
		Progress: func(n int64) error { return progress(n, size) },
	})
	if err != nil {
		return nil, err
	}
	in := &Input{Source: r, Dataset: w.traceName(), closers: []io.Closer{r},
		Skipped: func() int64 { st := r.Stats(); return st.Bad + st.Failed }}
	in.limit(w.NumPrompts)
	return in, nil
}

// openUsage opens a record of adapters in use: its own adapters, or as many as
// the scenario asks for.
func (s *Scenario) openUsage(adapters []trace.Adapter, progress reading) (*Input, error) {
	w := &s.Workload
	window, err := s.llmWindow()
	if err != nil {
		return nil, err
	}
	size := fileSize(w.TracePath)
	o := usage.Options{
		Start: window[0], End: window[1], TimeScale: w.TimeScale / w.RateScale, SkipBadRows: w.SkipBadRows,
		Progress: func(n int64) error { return progress(n, size) },
	}
	if w.NumAdapters > 0 {
		o.Adapters = adapters
	} else {
		ranks, err := w.ranks()
		if err != nil {
			return nil, err
		}
		o.Ranks = func(n int) []int { return ranks.For(n, s.Seed) }
	}
	read, skipped, err := usage.Read(w.TracePath, o)
	if err != nil {
		return nil, err
	}
	in := &Input{Source: read.Source(), Dataset: w.traceName(), Skipped: func() int64 { return skipped }}
	in.limit(w.NumPrompts)
	return in, nil
}

func (s *Scenario) llmWindow() ([2]float64, error) {
	w, def := &s.Workload, Default().Workload
	if w.TraceStartTime == def.TraceStartTime && w.TraceEndTime == def.TraceEndTime {
		return [2]float64{}, nil
	}
	win, err := azure.ParseWindow(w.TraceStartTime, w.TraceEndTime)
	if err != nil {
		return [2]float64{}, err
	}
	return [2]float64{float64(win.Start) * 60, float64(win.End) * 60}, nil
}
