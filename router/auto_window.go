package router

import (
	"math"
	"math/rand/v2"
	"slices"

	"lorasim/trace"
)

// window is what auto remembers of the latest requests, in the order in which they came.
type window struct {
	ring []seen          // request number n is at ring[n%len(ring)]
	n    int64           // requests seen
	from int64           // number of the first one that counts; those before were of another load
	byID map[int64]int64 // numbers of the requests in the ring
	// prefixes: some prompts have told what they have in common with others.
	prefixes bool
	kept     int64 // number of the first request whose prompt no worker keeps yet; at most n
}

// seen is a request and what became of it.
type seen struct {
	id                      int64
	at                      float64 // s
	adapter, prompt, maxNew int32
	text                    *trace.Text
	worker                  int32
	output                  int32 // tokens; 0: not known yet
	generated               int32 // tokens so far, at least
	e2e, ttft               float64
}

func newWindow(capacity int) *window {
	return &window{ring: make([]seen, capacity), byID: make(map[int64]int64, capacity)}
}

func (w *window) at(n int64) *seen { return &w.ring[n%int64(len(w.ring))] }

// oldest is the number of the first request that the window holds, first that of the first one that counts, too.
func (w *window) oldest() int64 { return max(0, w.n-int64(len(w.ring))) }
func (w *window) first() int64  { return max(w.from, w.oldest()) }

// sent notes a request.
func (w *window) sent(r *Request, worker int, now float64) {
	s := w.at(w.n)
	if w.n >= int64(len(w.ring)) {
		delete(w.byID, s.id)
	}
	*s = seen{id: r.ID, at: now, adapter: r.Adapter, prompt: r.Prompt, maxNew: r.MaxNew, text: r.Text,
		worker: int32(worker)}
	w.byID[r.ID] = w.n
	w.prefixes = w.prefixes || r.Text != nil
	w.n++
	w.kept = w.n
}

// get is a request of the window; nil: it is not there.
func (w *window) get(id int64) *seen {
	n, ok := w.byID[id]
	if !ok {
		return nil
	}
	return w.at(n)
}

// snapshot is a copy of the window whose times count from a given one. Nothing can be added to it.
func (w *window) snapshot(zero float64) *window {
	c := *w
	c.ring, c.byID = slices.Clone(w.ring), nil
	for i := range c.ring {
		c.ring[i].at -= zero
	}
	return &c
}

// outputs completes the outputs of requests that have not ended. Each is drawn from the
// adapter's requests that had more tokens than it has now; the tokens of one that has not
// ended either are a lower bound, from which the draw goes on (Efron's redistribution to the
// right: the Kaplan-Meier estimate).
type outputs struct {
	rng     *rand.Rand
	all     []outcome
	adapter map[int32][]outcome // nil: too few
}

// outcome is the output of a request, or how far it was.
type outcome struct {
	tokens int32
	ended  bool
}

// fewOutputs is the number of an adapter's outputs below which those of all adapters tell more.
const fewOutputs = 8

func (w *window) outputs(first int64, rng *rand.Rand) *outputs {
	o := &outputs{rng: rng, adapter: map[int32][]outcome{}}
	known := map[int32]int{}
	for n := first; n < w.n; n++ {
		s := w.at(n)
		x := outcome{s.generated, false}
		if s.output > 0 {
			x = outcome{s.output, true}
			known[s.adapter]++
		} else if s.generated == 0 {
			continue // a bound of 0 says nothing
		}
		o.all = append(o.all, x)
		o.adapter[s.adapter] = append(o.adapter[s.adapter], x)
	}
	for k := range o.adapter {
		if known[k] < fewOutputs {
			delete(o.adapter, k)
		}
	}
	return o
}

// draw returns an output of a request.
func (o *outputs) draw(s *seen) int32 {
	if s.output > 0 {
		return s.output
	}
	from := o.adapter[s.adapter]
	if from == nil {
		from = o.all
	}
	out := o.above(from, s.generated)
	if s.maxNew > 0 {
		out = min(out, s.maxNew)
	}
	return max(out, s.generated, 1)
}

func (o *outputs) above(from []outcome, tokens int32) int32 {
	if len(from) == 0 {
		return max(guessOutput, 2*tokens)
	}
	longer := 0
	for range 16 { // most draws are longer at once
		if x := from[o.rng.IntN(len(from))]; x.tokens > tokens {
			if x.ended {
				return x.tokens
			}
			tokens = x.tokens
		}
	}
	for _, x := range from {
		if x.tokens > tokens && x.ended {
			longer++
		}
	}
	if longer == 0 { // the longest of all: twice that, as of a heavy tail
		return int32(min(2*int64(tokens)+1, math.MaxInt32/4))
	}
	for k := o.rng.IntN(longer); ; {
		for _, x := range from {
			if x.tokens > tokens && x.ended {
				if k--; k < 0 {
					return x.tokens
				}
			}
		}
	}
}
