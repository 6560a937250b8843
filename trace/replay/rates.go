package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"lorasim/internal/bounds"
	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// Distribution names a distribution of the gaps between the requests of one
// adapter. All are scaled to mean 1/rate and a coefficient of variation CV.
type Distribution string

const (
	Exponential Distribution = renewal.Exponential // Poisson arrivals; CV 1, whatever is asked for
	Gamma       Distribution = renewal.Gamma
	Pareto      Distribution = renewal.Pareto  // type I: x^-(shape+1) above a smallest gap; the heaviest tail
	Weibull     Distribution = renewal.Weibull // for CV > 1 a heavier tail than gamma
)

// Config describes the default replay. The window is cut into intervals; in
// each of them the requests of an adapter are a stationary renewal process of
// their own, whose rate is the adapter's in that interval. The random numbers
// of a process depend on the seed, the adapter and the interval alone, so that
// a change to one adapter leaves the others as they were.
type Config struct {
	Trace    azure.Format
	Path     string // file or folder
	Window   azure.Window
	Interval int // minutes, >= 1; the last interval of the window may be shorter
	Mapping  Mapping
	Read     azure.Options

	Seed         uint64
	Distribution Distribution
	CV           []float64 // of the gaps, by adapter, cycled; empty: 1
	CVScale      float64   // multiplies CV

	// TotalRate is the rate of all adapters together, in requests/s, in every
	// interval; the trace then gives the shares of the adapters. Intervals
	// without traffic give none and are left out: the next one follows at once.
	// 0 keeps the trace's own rates, and its silent intervals.
	TotalRate float64
	RateScale float64 // multiplies all rates
	// TimeScale multiplies the length of the intervals: 0.1 runs through the
	// window ten times as fast. The trace's own rates grow accordingly, so that
	// the number of requests stays; TotalRate does not.
	TimeScale float64

	// Requests ends the replay after so many. A window that gives fewer is
	// replayed again, with new random numbers, as often as it takes. 0 stands
	// for those of one pass over the window.
	Requests int64

	// Drift, in s, makes popularity move on: after each such time every adapter
	// takes over the traffic of the one that ranked before it, and the first
	// one that of the last. 0: never.
	Drift float64
	// Locality is the probability that a request uses one of the last Recent
	// distinct adapters, each equally likely, instead of its own.
	Locality float64
	Recent   int // adapters; Locality > 0 only
}

// Default returns the first hour of azure_v2 in one interval, at the trace's
// own rates, with gamma gaps of CV 1.
func Default() Config {
	return Config{
		Trace:        azure.V2,
		Window:       azure.Window{Start: 0, End: 60},
		Interval:     60,
		Mapping:      Mapping{Strategy: Stride, Stride: 1},
		Distribution: Gamma,
		CVScale:      1,
		RateScale:    1,
		TimeScale:    1,
		Recent:       4,
	}
}

// Check says what is wrong with c, or nil. Trace, Path, Window and Mapping are
// checked when they are used.
func (c Config) Check() error {
	if known := []Distribution{Exponential, Gamma, Pareto, Weibull}; !slices.Contains(known, c.Distribution) {
		return fmt.Errorf("unknown arrival distribution %q: expected one of %v", c.Distribution, known)
	}
	for _, f := range []struct {
		name string
		v    float64
		in   string
	}{
		{"interval", float64(c.Interval), ">=1"},
		{"total rate", c.TotalRate, ">=0"},
		{"rate scale", c.RateScale, ">0"},
		{"time scale", c.TimeScale, ">0"},
		{"cv scale", c.CVScale, ">0"},
		{"drift", c.Drift, ">=0"},
		{"number of requests", float64(c.Requests), ">=0"},
		{"locality", c.Locality, ">=0 <=1"},
	} {
		if b := bounds.MustParse(f.in); !b.Has(f.v) {
			return fmt.Errorf("%s is %v, expected a number %s", f.name, f.v, b)
		}
	}
	for k := range max(len(c.CV), 1) {
		if cv := c.cv(k); !(cv >= renewal.MinCV && cv <= renewal.MaxCV) {
			return fmt.Errorf("cv of adapter %d, scaled, is %v, expected %g to %g", k, cv, renewal.MinCV, renewal.MaxCV)
		}
	}
	if c.Locality > 0 && c.Recent < 1 {
		return fmt.Errorf("locality looks at %d recent adapters, expected >= 1", c.Recent)
	}
	return nil
}

// cv returns the coefficient of variation of an adapter.
func (c Config) cv(adapter int) float64 {
	if len(c.CV) == 0 {
		return c.CVScale
	}
	return c.CV[adapter%len(c.CV)] * c.CVScale
}

// Replay prepares the replay of the trace for the adapters.
func (c Config) Replay(adapters []trace.Adapter) (trace.Source, *Traffic, error) {
	if err := c.Check(); err != nil {
		return nil, nil, err
	}
	q := azure.Query{Format: c.Trace, Window: c.Window, Interval: c.Interval}
	t, err := c.Mapping.read(c.Path, q, c.Read, len(adapters), c.Mapping.order)
	if err != nil {
		return nil, nil, fmt.Errorf("replay of %s: %w", c.Path, err)
	}
	src, err := newSource(c, adapters, t.Histogram, c.Window.Minutes())
	return src, t, err
}

// ReplayHistogram prepares the replay of known invocations by adapter and
// interval, without a trace: Trace, Path, Window and Mapping do not matter.
func (c Config) ReplayHistogram(adapters []trace.Adapter, counts [][]int64) (trace.Source, error) {
	if err := cmp.Or(c.Check(), checkHistogram(counts, len(adapters))); err != nil {
		return nil, err
	}
	return newSource(c, adapters, counts, c.Interval*len(counts[0]))
}

// source yields the requests of the default replay: it merges the processes of
// one interval after the other.
type source struct {
	c         Config
	adapters  []trace.Adapter
	histogram [][]int64
	lengths   []float64 // s of each interval, scaled; 0: left out
	sums      []float64 // invocations of each interval

	gaps  []renewal.Gaps // by adapter, cycled
	procs []process
	queue renewal.Queue

	interval int64   // those begun so far, all passes together
	start    float64 // of the current interval, s
	end      float64

	drift  *drift          // nil: none
	recent *renewal.Recent // nil: no locality
	next   int64
}

// process is the renewal process of an adapter in the current interval.
type process struct {
	pcg  rand.PCG
	rng  *rand.Rand
	mean float64 // gap, s
}

func newSource(c Config, adapters []trace.Adapter, histogram [][]int64, minutes int) (*source, error) {
	n := len(histogram[0])
	s := &source{c: c, adapters: adapters, histogram: histogram,
		lengths: make([]float64, n), sums: make([]float64, n), procs: make([]process, len(adapters))}
	expected := 0.0
	for i := range n {
		s.sums[i] = float64(sumInterval(histogram, i))
		if s.sums[i] == 0 && c.TotalRate > 0 {
			continue
		}
		s.lengths[i] = 60 * float64(min(c.Interval, minutes-i*c.Interval)) * c.TimeScale
		if c.TotalRate > 0 {
			expected += c.TotalRate * c.RateScale * s.lengths[i]
		} else {
			expected += s.sums[i] * c.RateScale
		}
	}
	if expected == 0 {
		return nil, errors.New("the window has no traffic")
	}
	// Far more passes than anybody wants point to a mistaken rate.
	const maxPasses = 1e6
	if float64(c.Requests) > maxPasses*expected {
		return nil, fmt.Errorf("%d requests asked for, but the window gives only about %.3g: expected a higher rate or fewer requests", c.Requests, expected)
	}
	for k := range s.procs {
		s.procs[k].rng = rand.New(&s.procs[k].pcg)
	}
	for k := range max(len(c.CV), 1) {
		s.gaps = append(s.gaps, renewal.New(string(c.Distribution), c.cv(k)))
	}
	if c.Drift > 0 {
		s.drift = newDrift(c.Drift, histogram)
	}
	if c.Locality > 0 {
		s.recent = renewal.NewRecent(c.Locality, min(c.Recent, len(adapters)), stream(c.Seed, localityStream, 0))
	}
	return s, nil
}

// meanGap returns the mean gap of an adapter with traffic in interval i, in s.
// Without a total rate it does not depend on the other adapters, not even in
// its rounding.
func (s *source) meanGap(adapter, i int) float64 {
	count := float64(s.histogram[adapter][i])
	if s.c.TotalRate > 0 {
		return s.sums[i] / (count * s.c.TotalRate * s.c.RateScale)
	}
	return s.lengths[i] / (count * s.c.RateScale)
}

func (s *source) Adapters() []trace.Adapter { return s.adapters }

// Len is not known: what the last pass gives is drawn.
func (s *source) Len() int64 { return -1 }

func (s *source) Next() (trace.Request, error) {
	if s.c.Requests > 0 && s.next == s.c.Requests {
		return trace.Request{}, io.EOF
	}
	for len(s.queue) == 0 {
		if s.c.Requests == 0 && s.interval == int64(len(s.lengths)) {
			return trace.Request{}, io.EOF
		}
		s.begin()
	}
	e := s.queue[0]
	p := &s.procs[e.Item]
	if at := e.At + p.mean*s.gapsOf(e.Item).Next(p.rng); at < s.end {
		s.queue.Replace(renewal.Event{At: at, Item: e.Item})
	} else {
		s.queue.Pop()
	}
	r := trace.Request{ID: s.next, Arrival: e.At, Adapter: e.Item}
	s.next++
	if s.drift != nil {
		r.Adapter = s.drift.adapter(r.Adapter, r.Arrival)
	}
	if s.recent != nil {
		r.Adapter = s.recent.Choose(r.Adapter)
	}
	return r, nil
}

func (s *source) gapsOf(adapter int32) *renewal.Gaps { return &s.gaps[int(adapter)%len(s.gaps)] }

// begin starts the processes of the next interval.
func (s *source) begin() {
	i := int(s.interval % int64(len(s.lengths)))
	s.start, s.end = s.end, s.end+s.lengths[i]
	s.interval++
	if s.sums[i] == 0 {
		return
	}
	for k := range s.procs {
		if s.histogram[k][i] == 0 {
			continue
		}
		p := &s.procs[k]
		seedStream(&p.pcg, s.c.Seed, uint64(k), uint64(s.interval))
		p.mean = s.meanGap(k, i)
		if at := s.start + p.mean*s.gapsOf(int32(k)).First(p.rng); at < s.end {
			s.queue.Push(renewal.Event{At: at, Item: int32(k)})
		}
	}
}

// localityStream numbers the stream of locality, beyond those of adapters.
const localityStream = math.MaxUint64

// stream returns a generator of its own for (seed, a, b).
func stream(seed, a, b uint64) *rand.Rand {
	var p rand.PCG
	seedStream(&p, seed, a, b)
	return rand.New(&p)
}

// seedStream seeds p for (seed, a, b). The numbers are scrambled first, as
// streams of PCG whose seeds differ in few bits are similar at the start.
func seedStream(p *rand.PCG, seed, a, b uint64) {
	h := renewal.Mix(renewal.Mix(renewal.Mix(seed)+a) + b)
	p.Seed(h, renewal.Mix(h))
}

// drift moves the popularity ranks of the adapters on by one each period.
type drift struct {
	period float64 // s
	byRank []int32 // adapters by descending traffic of the window
	rank   []int   // of each adapter
}

func newDrift(period float64, histogram [][]int64) *drift {
	d := &drift{period: period, byRank: make([]int32, len(histogram)), rank: make([]int, len(histogram))}
	for k := range d.byRank {
		d.byRank[k] = int32(k)
	}
	slices.SortStableFunc(d.byRank, func(a, b int32) int { return cmp.Compare(total(histogram[b]), total(histogram[a])) })
	for r, k := range d.byRank {
		d.rank[k] = r
	}
	return d
}

// adapter returns which adapter has the traffic of adapter k at time t.
func (d *drift) adapter(k int32, t float64) int32 {
	return d.byRank[renewal.Drift(d.rank[k], len(d.byRank), t, d.period)]
}
