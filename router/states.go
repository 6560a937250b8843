package router

import (
	"iter"
	"maps"
	"slices"
)

// fewAdapters is the number of adapters up to which a simulated worker has their states in Worker.Adapters.
const fewAdapters = 4096

// rows are the states of a worker's adapters where there are many: those that a request or a load has met have a row.
type rows struct {
	adapters int
	tier     Tier // of the adapters without a row, which have no requests
	of       map[int32]*AdapterState
	unused   []AdapterState // for rows to come, which are allocated many at a time

	loads  []*AdapterState // those that are being loaded into a slot
	listed bool            // loads is kept
}

// SetAdapters gives a worker n adapters without requests, all of them in a tier.
func (w *Worker) SetAdapters(n int, tier Tier) {
	if n > fewAdapters {
		w.Adapters, w.rows = nil, &rows{adapters: n, tier: tier, of: map[int32]*AdapterState{}, listed: true}
		return
	}
	w.Adapters, w.rows = slices.Repeat([]AdapterState{{Tier: tier}}, n), nil
}

// Adapter returns the state of an adapter; the zero value for the base model.
func (w *Worker) Adapter(a int32) AdapterState {
	if uint(a) < uint(len(w.Adapters)) {
		return w.Adapters[a]
	}
	return w.rows.state(a)
}

func (r *rows) state(a int32) AdapterState {
	switch {
	case r == nil || a < 0 || int(a) >= r.adapters:
		return AdapterState{}
	case r.of[a] != nil:
		return *r.of[a]
	}
	return AdapterState{Tier: r.tier}
}

// Row returns the state of an adapter, to change it.
func (w *Worker) Row(a int32) *AdapterState {
	if w.rows == nil {
		return &w.Adapters[a]
	}
	st := w.rows.of[a]
	if st == nil {
		r := w.rows
		if len(r.unused) == 0 {
			r.unused = make([]AdapterState, 16)
		}
		st, r.unused = &r.unused[0], r.unused[1:]
		st.Tier = r.tier
		r.of[a] = st
	}
	return st
}

// Rows yields the states of adapters in ascending order. Where there are many adapters, it leaves out some
// without requests, whose tier has not changed since [Worker.SetAdapters].
func (w *Worker) Rows() iter.Seq2[int32, AdapterState] {
	return func(yield func(int32, AdapterState) bool) {
		for a, st := range w.Adapters {
			if !yield(int32(a), st) {
				return
			}
		}
		if w.rows == nil {
			return
		}
		for _, a := range slices.Sorted(maps.Keys(w.rows.of)) {
			if !yield(a, *w.rows.of[a]) {
				return
			}
		}
	}
}

// Loading returns the number of adapters that are being loaded into a slot and have no running requests.
func (w *Worker) Loading() (n int) {
	waits := func(st *AdapterState) {
		if st.Loading && st.Running == 0 {
			n++
		}
	}
	for a := range w.Adapters {
		waits(&w.Adapters[a])
	}
	switch {
	case w.rows == nil:
	case w.rows.listed:
		for _, st := range w.rows.loads {
			waits(st)
		}
	default:
		for _, st := range w.rows.of {
			waits(st)
		}
	}
	return n
}

// NumAdapters returns the number of adapters of a worker.
func (w *Worker) NumAdapters() int {
	if w.rows != nil {
		return w.rows.adapters
	}
	return len(w.Adapters)
}

// copyStates gives a worker copies of the states of another one. It reuses its memory.
func (w *Worker) copyStates(from *Worker) {
	w.Adapters, w.rows = append(w.Adapters[:0], from.Adapters...), from.rows.clone()
}

// copyRequests gives the adapters of a worker the requests that they have on another one.
func (w *Worker) copyRequests(from *Worker) {
	if from.rows == nil {
		for a := range from.Adapters {
			w.Adapters[a].Running, w.Adapters[a].Queued = from.Adapters[a].Running, from.Adapters[a].Queued
		}
		return
	}
	for a := range w.Rows() { // those without a row there have none
		r, l := w.Row(a), from.Adapter(a)
		r.Running, r.Queued = l.Running, l.Queued
	}
	for _, f := range from.InFlight() {
		r := w.Row(f.Adapter)
		r.Running, r.Queued = f.Running, f.Queued
	}
}

// Tiers are the tiers of a worker's adapters at one time.
type Tiers struct {
	all    []Tier
	others Tier // of those that are not in of
	of     map[int32]Tier
}

// Tiers returns the present tiers. Later changes of the worker do not change them.
func (w *Worker) Tiers() (t Tiers) {
	if w.rows == nil {
		t.all = make([]Tier, len(w.Adapters))
		for a := range w.Adapters {
			t.all[a] = w.Adapters[a].Tier
		}
		return t
	}
	t.others, t.of = w.rows.tier, map[int32]Tier{}
	for a, st := range w.rows.of {
		if st.Tier != t.others {
			t.of[a] = st.Tier
		}
	}
	return t
}

// Of returns the tier of an adapter.
func (t *Tiers) Of(a int32) Tier {
	if t.all != nil {
		return t.all[a]
	}
	if tier, ok := t.of[a]; ok {
		return tier
	}
	return t.others
}

func (r *rows) clone() *rows {
	if r == nil {
		return nil
	}
	c := &rows{adapters: r.adapters, tier: r.tier, of: make(map[int32]*AdapterState, len(r.of))}
	for a, st := range r.of {
		copied := *st
		c.of[a] = &copied
	}
	return c
}

// Hosted returns the number of adapters in a worker's host memory or in a slot.
func (w *Worker) Hosted() (n int) {
	if r := w.rows; r != nil && r.tier >= Host {
		n = r.adapters - len(r.of)
	}
	for _, st := range w.Rows() {
		if st.Tier >= Host {
			n++
		}
	}
	return n
}
