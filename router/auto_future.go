package router

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"lorasim/trace"
)

// future makes up requests to come like those of the window, and the state in which they find the cluster: count
// requests whose latencies count, and a tail that keeps the load up until those have ended. It returns nil while
// nothing is known of outputs.
//
// Where prompts share prefixes, the latest half of the window comes again first, to workers that keep what they
// kept before it came, so that conversations go on where they were.
func (w *window) future(s *PlannerInput, used [][]uint64, count, tail int, rng *rand.Rand) *Future {
	n := count + tail
	first := max(w.first(), w.n-mostFuture)
	outs, replies := w.outputs(first, rng), w.replies()
	if len(outs.all) == 0 {
		return nil
	}
	f := &Future{Requests: make([]trace.Request, 0, n), Count: count, State: w.state(s, used, outs)}
	last := 0.0
	add := func(q *seen, gap float64, adapter int32, text *trace.Text) {
		last += gap
		f.Requests = append(f.Requests, q.request(last, adapter, text, outs.draw(q), replies))
	}
	if w.prefixes {
		w.kept = max(first, w.n-int64(n), (first+w.n)/2)
		f.State.Kept = w.keptBy(s.View)
		first = w.kept
		for k := first; k < w.n; k++ {
			q, gap := w.at(k), 0.0
			if k > first {
				gap = max(q.at-w.at(k-1).at, 0)
			}
			add(q, gap, q.adapter, q.text)
		}
	}
	e := w.extension(first, len(s.Adapters), rng)
	for len(f.Requests) < n {
		e.next()
		add(e.request, e.gap, e.adapter, e.text)
	}
	return f
}

// request is a request like one that was seen.
func (s *seen) request(at float64, adapter int32, text *trace.Text, output int32,
	replies map[*trace.Text]*trace.Text) trace.Request {
	r := trace.Request{Arrival: at, Adapter: adapter, Prompt: s.prompt, Output: output, MaxNew: max(s.maxNew, output),
		Text: text, Reply: text}
	if text != nil && replies[text] != nil {
		r.Reply = replies[text]
	}
	return r
}

// keptBy lists what workers keep of the prompts of the window before number kept.
func (w *window) keptBy(v *View) (list []Kept) {
	for n := w.keptFrom(); n < w.kept; n++ {
		s := w.at(n)
		if s.text == nil || s.worker < 0 || !v.Workers[s.worker].Usable() {
			continue
		}
		tokens := s.prompt
		if s.text.Block == 0 {
			tokens += s.output
		}
		list = append(list, Kept{Worker: s.worker, Adapter: s.adapter, Tokens: s.text.Known(tokens), Text: s.text})
	}
	return list
}

// mostKept bounds the prompts of which it counts that workers keep them.
const mostKept = 512

// keptFrom is the number of the first request whose prompt counts.
func (w *window) keptFrom() int64 { return max(w.oldest(), w.kept-mostKept) }

// state is how the cluster is.
func (w *window) state(s *PlannerInput, used [][]uint64, outs *outputs) State {
	n := len(s.Workers)
	st := placementState(s.View, (*Worker).Usable)
	st.Used = make([][]int32, n)
	listed := make([]int, n) // requests
	for j := range s.Workers {
		if !s.Workers[j].Usable() {
			continue
		}
		for k := range s.Workers[j].Adapters {
			if used[j][k/64]>>(k%64)&1 > 0 {
				st.Used[j] = append(st.Used[j], int32(k))
			}
		}
	}
	hold := func(a *InFlight, running bool) {
		if a.Running != running || !s.Workers[a.Worker].Usable() {
			return
		}
		listed[a.Worker]++
		q := seen{adapter: a.Adapter, prompt: a.Prompt, maxNew: a.MaxNew, generated: a.Generated, text: a.Text}
		h := Held{Request: q.request(0, a.Adapter, a.Text, outs.draw(&q), nil), Worker: a.Worker, Age: a.Age}
		if running {
			h.Generated, h.KV = a.Generated, a.KV
			h.Output = max(h.Output, a.Generated+1)
			h.MaxNew = max(h.MaxNew, h.Output)
		}
		st.InFlight = append(st.InFlight, h)
	}
	known := make(map[int64]bool, len(s.Requests))
	running := make([]*InFlight, 0, len(s.Requests))
	for i := range s.Requests {
		known[s.Requests[i].ID] = true
		running = append(running, &s.Requests[i])
	}
	// callers list running requests in an order that may tell which one ends first
	slices.SortFunc(running, func(a, b *InFlight) int { return cmp.Compare(a.ID, b.ID) })
	for _, a := range running {
		hold(a, true)
	}
	ran := len(st.InFlight)
	for i := range s.Requests {
		hold(&s.Requests[i], false)
	}
	// the youngest that are not listed: they are in a front end, or their prompts are being computed
	var between []Held
	for k := w.n - 1; k >= w.oldest(); k-- {
		q := w.at(k)
		if q.output > 0 || q.worker < 0 || known[q.id] || !s.Workers[q.worker].Usable() ||
			listed[q.worker] >= s.Workers[q.worker].Load() {
			continue
		}
		listed[q.worker]++
		r := q.request(0, q.adapter, q.text, outs.draw(q), nil)
		between = append(between, Held{Request: r, Worker: q.worker, Age: -q.at})
	}
	slices.Reverse(between)
	st.InFlight = slices.Insert(st.InFlight, ran, between...)
	return st
}

// replies tell which text goes on from a prompt and its reply: the latest one that did.
func (w *window) replies() map[*trace.Text]*trace.Text {
	var on map[*trace.Text]*trace.Text
	for n := w.oldest(); n < w.n; n++ {
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
