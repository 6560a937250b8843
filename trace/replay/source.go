package replay

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
)

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
		return nil, fmt.Errorf("the window has no traffic")
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

// Adapters returns the adapters.
func (s *source) Adapters() []trace.Adapter { return s.adapters }

// Len is not known: what the last pass gives is drawn.
func (s *source) Len() int64 { return -1 }

// Next returns the next request.
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
