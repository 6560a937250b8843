package replay

import (
	"io"
	"slices"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
)

// dloraSource yields the requests of a DLoRA replay.
type dloraSource struct {
	d         DLoRA
	adapters  []trace.Adapter
	histogram [][]int64

	rng      *nprand.Rand // numpy's global generator
	interval int          // the next one
	left     int          // requests left in the current one
	procs    []dloraProcess
	queue    renewal.Queue
	next     int64
	last     float64
}

// dloraProcess draws the gaps of one adapter in one interval.
type dloraProcess struct {
	shape, scale float64
	batch        []float64
	at           int // next gap of the batch
}

func newDLoRASource(d DLoRA, adapters []trace.Adapter, histogram [][]int64) *dloraSource {
	return &dloraSource{d: d, adapters: adapters, histogram: histogram,
		rng: nprand.New(0), procs: make([]dloraProcess, len(adapters))}
}

// Adapters returns the adapters.
func (s *dloraSource) Adapters() []trace.Adapter { return s.adapters }

// Len returns the number of requests still to come.
func (s *dloraSource) Len() int64 { return int64(s.d.Requests) - s.next }

// Next returns the next request.
func (s *dloraSource) Next() (trace.Request, error) {
	for s.left == 0 {
		if s.interval == len(s.histogram[0]) {
			return trace.Request{}, io.EOF
		}
		s.left = s.d.budget(s.interval, len(s.histogram[0]))
		if s.left > 0 {
			s.begin(s.interval)
		}
		s.interval++
	}
	e := s.queue[0]
	s.queue.Replace(renewal.Event{At: e.At + s.gap(&s.procs[e.Item]), Item: e.Item})
	s.left--
	s.last = e.At
	r := trace.Request{ID: s.next, Arrival: e.At, Adapter: e.Item}
	s.next++
	return r, nil
}

// begin starts the processes of an interval. Their first batches are drawn
// here, in the order of the adapters, each from seed 0.
func (s *dloraSource) begin(interval int) {
	cv := s.d.CV
	if s.d.Distribution == "exponential" {
		cv = 1
	}
	sum := float64(sumInterval(s.histogram, interval))
	s.queue = s.queue[:0]
	for k := range s.procs {
		count := s.histogram[k][interval]
		if count == 0 {
			continue
		}
		rate := float64(count) / sum * s.d.TotalRate
		size := max(int(rate*float64(s.d.Interval)*1.2), 1)
		p := &s.procs[k]
		p.shape, p.scale = 1/(cv*cv), cv*cv/rate
		p.batch = slices.Grow(p.batch[:0], size)[:size]
		s.rng.Seed(0)
		s.draw(p)
		s.queue.Push(renewal.Event{At: s.last + s.gap(p), Item: int32(k)})
	}
}

// gap returns the next gap of a process.
func (s *dloraSource) gap(p *dloraProcess) float64 {
	if p.at == len(p.batch) {
		s.draw(p)
	}
	p.at++
	return p.batch[p.at-1]
}

// draw draws a batch.
func (s *dloraSource) draw(p *dloraProcess) {
	for i := range p.batch {
		p.batch[i] = s.rng.Gamma(p.shape, p.scale)
	}
	p.at = 0
}
