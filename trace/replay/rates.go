package replay

import (
	"cmp"
	"context"
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

// Config describes the default replay. It divides the window into intervals. In each interval the requests of an
// adapter form a stationary renewal process with the adapter's rate in that interval. The random numbers of a
// process depend only on the seed, the adapter and the interval, so a change to one adapter does not affect the
// others.
type Config struct {
	Trace    azure.Format
	Path     string // file or folder
	Window   azure.Window
	Interval int // length of an interval, minutes, >= 1; the last one of the window may be shorter
	Mapping  Mapping
	Read     azure.Options

	Seed         uint64
	Distribution string    // distribution of the gaps of an adapter, a constant of package renewal
	CV           []float64 // coefficients of variation of the gaps, by adapter, cycled; empty: 1

	// TotalRate is the rate of all adapters together, requests/s, in every interval; the trace then gives only
	// the shares of the adapters. Intervals without traffic are left out: the next interval follows at once. 0
	// keeps the rates of the trace and its intervals without traffic.
	TotalRate float64
	RateScale float64 // multiplies all rates
	// Speed divides the length of the intervals: 10 replays the window ten times as fast. The rates of the trace
	// are multiplied by it, so the number of requests stays the same; TotalRate is not changed.
	Speed float64

	// Requests is the number of requests of the replay. A window that gives fewer is replayed again with new
	// random numbers. 0: the requests of one pass over the window.
	Requests int64

	// Drift is the time, s, after which popularity moves on: every adapter takes over the traffic of the adapter
	// ranked before it, and the first one the traffic of the last. 0: never.
	Drift float64
	// Locality is the probability that a request uses one of the last Recent
	// distinct adapters, each equally likely, instead of its own.
	Locality float64
	Recent   int // number of adapters; used only if Locality > 0
}

// Default returns the replay of the first hour of azure_v2 in one interval, at the rates of the trace, with gamma
// gaps of CV 1.
func Default() Config {
	return Config{
		Trace:        azure.V2,
		Window:       azure.Window{Start: 0, End: 60},
		Interval:     60,
		Mapping:      Mapping{Strategy: Stride, Stride: 1},
		Distribution: renewal.Gamma,
		RateScale:    1,
		Speed:        1,
		Recent:       4,
	}
}

// cv returns the coefficient of variation of an adapter.
func (c Config) cv(adapter int) float64 {
	if len(c.CV) == 0 {
		return 1
	}
	return c.CV[adapter%len(c.CV)]
}

// Replay returns the replay of the trace for the adapters, and the traffic of the window.
func (c Config) Replay(ctx context.Context, adapters []trace.Adapter) (trace.Source, *Traffic, error) {
	q := azure.Query{Format: c.Trace, Window: c.Window, Interval: c.Interval}
	t, err := c.Mapping.read(ctx, c.Path, q, c.Read, len(adapters), c.Mapping.order)
	if err != nil {
		return nil, nil, fmt.Errorf("replay of %s: %w", c.Path, err)
	}
	src, err := c.source(adapters, t.Histogram, c.Window.Minutes())
	return src, t, err
}

// ReplayHistogram is Replay for given invocations by adapter and interval. It ignores Trace, Path, Window and
// Mapping.
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
		s.lengths[i] = 60 * float64(min(c.Interval, minutes-i*c.Interval)) / c.Speed
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
			return nil, fmt.Errorf("cv of adapter %d is %v, expected %g to %g", k, cv, renewal.MinCV,
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
