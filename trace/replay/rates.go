package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
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
	Distribution string    // of the gaps between the requests of an adapter, one of package renewal's
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

	// Requests is the number of requests of the replay. A window that gives fewer is replayed again with new
	// random numbers. 0: the requests of one pass over the window.
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
		Distribution: renewal.Gamma,
		CVScale:      1,
		RateScale:    1,
		TimeScale:    1,
		Recent:       4,
	}
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
	q := azure.Query{Format: c.Trace, Window: c.Window, Interval: c.Interval}
	t, err := c.Mapping.read(c.Path, q, c.Read, len(adapters), c.Mapping.order)
	if err != nil {
		return nil, nil, fmt.Errorf("replay of %s: %w", c.Path, err)
	}
	src, err := c.source(adapters, t.Histogram, c.Window.Minutes())
	return src, t, err
}

// ReplayHistogram prepares the replay of known invocations by adapter and
// interval, without a trace: Trace, Path, Window and Mapping do not matter.
func (c Config) ReplayHistogram(adapters []trace.Adapter, counts [][]int64) (trace.Source, error) {
	if err := checkHistogram(counts, len(adapters)); err != nil {
		return nil, err
	}
	return c.source(adapters, counts, c.Interval*len(counts[0]))
}

// rates merges the processes of one interval after the other.
type rates struct {
	Config
	histogram [][]int64
	lengths   []float64 // s of each interval, scaled; 0: left out
	sums      []float64 // invocations of each interval

	gaps  []renewal.Gaps // by adapter, cycled
	procs []process
	queue renewal.Queue

	interval int64   // those begun so far, all passes together
	end      float64 // of the current one, s

	drift  *drift          // nil: none
	recent *renewal.Recent // nil: no locality
}

// process is the renewal process of an adapter in the current interval.
type process struct {
	pcg  rand.PCG
	rng  *rand.Rand
	mean float64 // gap, s
}

func (c Config) source(adapters []trace.Adapter, histogram [][]int64, minutes int) (trace.Source, error) {
	n := len(histogram[0])
	s := &rates{Config: c, histogram: histogram, lengths: make([]float64, n), sums: make([]float64, n),
		procs: make([]process, len(adapters))}
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
	for k := range max(len(c.CV), 1) {
		cv := c.cv(k)
		if !(cv >= renewal.MinCV && cv <= renewal.MaxCV) {
			return nil, fmt.Errorf("cv of adapter %d, scaled, is %v, expected %g to %g", k, cv, renewal.MinCV,
				renewal.MaxCV)
		}
		s.gaps = append(s.gaps, renewal.New(c.Distribution, cv))
	}
	for k := range s.procs {
		s.procs[k].rng = rand.New(&s.procs[k].pcg)
	}
	if c.Drift > 0 {
		s.drift = newDrift(c.Drift, histogram)
	}
	if c.Locality > 0 {
		var pcg rand.PCG
		seedPCG(&pcg, c.Seed, localityStream, 0)
		s.recent = renewal.NewRecent(c.Locality, min(c.Recent, len(adapters)), rand.New(&pcg))
	}
	src := trace.Generate(adapters, -1, s.next) // what the last pass gives is drawn
	if c.Requests > 0 {
		src = trace.Limit(src, c.Requests)
	}
	return src, nil
}

// meanGap returns the mean gap of an adapter with traffic in interval i, in s.
// Without a total rate it does not depend on the other adapters, not even in
// its rounding.
func (s *rates) meanGap(adapter, i int) float64 {
	count := float64(s.histogram[adapter][i])
	if s.TotalRate > 0 {
		return s.sums[i] / (count * s.TotalRate * s.RateScale)
	}
	return s.lengths[i] / (count * s.RateScale)
}

func (s *rates) next() (trace.Request, error) {
	for len(s.queue) == 0 {
		if s.Requests == 0 && s.interval == int64(len(s.lengths)) {
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
	r := trace.Request{Arrival: e.At, Adapter: e.Item}
	if s.drift != nil {
		r.Adapter = s.drift.adapter(r.Adapter, r.Arrival)
	}
	if s.recent != nil {
		r.Adapter = s.recent.Choose(r.Adapter)
	}
	return r, nil
}

func (s *rates) gapsOf(adapter int32) *renewal.Gaps { return &s.gaps[int(adapter)%len(s.gaps)] }

// begin starts the processes of the next interval.
func (s *rates) begin() {
	i := int(s.interval % int64(len(s.lengths)))
	start := s.end
	s.end += s.lengths[i]
	s.interval++
	for k := range s.procs {
		if s.histogram[k][i] == 0 {
			continue
		}
		p := &s.procs[k]
		seedPCG(&p.pcg, s.Seed, uint64(k), uint64(s.interval))
		p.mean = s.meanGap(k, i)
		if at := start + p.mean*s.gapsOf(int32(k)).First(p.rng); at < s.end {
			s.queue.Push(renewal.Event{At: at, Item: int32(k)})
		}
	}
}

// localityStream numbers the stream of locality, beyond those of adapters.
const localityStream = math.MaxUint64

// seedPCG seeds p for (seed, a, b). The numbers are scrambled first, as streams of
// PCG whose seeds differ in few bits are similar at the start.
func seedPCG(p *rand.PCG, seed, a, b uint64) {
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
	slices.SortStableFunc(d.byRank, func(a, b int32) int {
		return cmp.Compare(total(histogram[b]), total(histogram[a]))
	})
	for r, k := range d.byRank {
		d.rank[k] = r
	}
	return d
}

// adapter returns which adapter has the traffic of adapter k at time t.
func (d *drift) adapter(k int32, t float64) int32 {
	return d.byRank[renewal.Drift(d.rank[k], len(d.byRank), t, d.period)]
}
