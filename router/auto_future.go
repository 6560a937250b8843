package router

import (
	"math/rand/v2"

	"lorasim/trace"
)

// future makes the requests of the window from number first on a future, and goes on with
// resampled ones until there are n.
func (w *window) future(first int64, n int, adapters int, rng *rand.Rand) *Future {
	start := w.at(first).at
	f := &Future{Requests: make([]trace.Request, 0, max(n, int(w.n-first))), Down: w.downtimes(start)}
	outs, replies := w.outputs(first, rng), w.replies(first)
	add := func(s *seen, at float64, adapter int32, text *trace.Text) {
		r := trace.Request{Arrival: at, Adapter: adapter, Prompt: s.prompt, Output: outs.draw(s), MaxNew: s.maxNew, Text: text}
		if text != nil {
			if r.Reply = text; text == s.text && replies[text] != nil {
				r.Reply = replies[text]
			}
		}
		r.MaxNew = max(r.MaxNew, r.Output)
		f.Requests = append(f.Requests, r)
	}
	last := 0.0
	for k := first; k < w.n; k++ {
		s := w.at(k)
		last = max(last, s.at-start)
		add(s, last, s.adapter, s.text)
	}
	if len(f.Requests) >= n {
		return f
	}
	e := w.extension(first, adapters, rng)
	for len(f.Requests) < n {
		e.next()
		last += e.gap
		add(e.request, last, e.adapter, e.text)
	}
	return f
}

// replies tell which text goes on from a prompt and its reply: the latest one that did.
func (w *window) replies(first int64) map[*trace.Text]*trace.Text {
	var on map[*trace.Text]*trace.Text
	for n := first; n < w.n; n++ {
		t := w.at(n).text
		if t == nil || t.Block == 0 || t.Parent == nil {
			continue // an endless text is its own reply
		}
		if on == nil {
			on = map[*trace.Text]*trace.Text{}
		}
		for p := t.Parent; p != nil; p = p.Parent {
			on[p] = t
		}
	}
	return on
}

// extension resamples a window in blocks of consecutive requests, which keeps bursts and
// sessions (block bootstrap). Where prompts share prefixes the block is the whole window,
// so that conversations keep their turns, and each time they are other conversations. An adapter
// that the window has once stands for all that it has once or never (Good and Turing: that is the
// share of requests for adapters that are new).
type extension struct {
	w        *window
	first    int64
	rng      *rand.Rand
	block    int64
	texts    map[*trace.Text]*trace.Text // of this block; nil: there are none
	rare     []int32
	isRare   map[int32]bool
	at, left int64

	request *seen // the next one
	gap     float64
	adapter int32
	text    *trace.Text
}

func (w *window) extension(first int64, adapters int, rng *rand.Rand) *extension {
	n := w.n - first
	e := &extension{w: w, first: first, rng: rng, block: max(n/8, min(n, 8)), isRare: map[int32]bool{}}
	count := make([]int32, adapters)
	for k := first; k < w.n; k++ {
		s := w.at(k)
		if isAdapter(s.adapter) {
			count[s.adapter]++
		}
		if s.text != nil {
			e.block, e.texts = n, map[*trace.Text]*trace.Text{}
		}
	}
	for k, c := range count {
		if c <= 1 {
			e.rare = append(e.rare, int32(k))
			e.isRare[int32(k)] = true
		}
	}
	return e
}

// next moves on to the next request.
func (e *extension) next() {
	n := e.w.n - e.first
	if e.left == 0 {
		e.at, e.left = e.first+e.rng.Int64N(n-e.block+1), e.block
		clear(e.texts)
	}
	s := e.w.at(e.at)
	switch {
	case e.at > e.first:
		e.gap = max(s.at-e.w.at(e.at-1).at, 0)
	case n > 1: // the first has no predecessor
		e.gap = (e.w.at(e.w.n-1).at - s.at) / float64(n-1)
	}
	e.request, e.adapter, e.text = s, s.adapter, e.other(s.text)
	if isAdapter(s.adapter) && e.isRare[s.adapter] {
		e.adapter = e.rare[e.rng.IntN(len(e.rare))]
	}
	e.at++
	e.left--
}

// other is a text like a given one, of another conversation, the same all through the block.
func (e *extension) other(t *trace.Text) *trace.Text {
	if t == nil {
		return nil
	}
	o := e.texts[t]
	if o == nil {
		o = &trace.Text{Parent: t.Parent, Start: t.Start, Block: t.Block, ID: e.rng.Int64()}
		e.texts[t] = o
	}
	return o
}
