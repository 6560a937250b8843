package replay

import (
	"maps"
	"slices"

	"lorasim/router"
	"lorasim/sim/record"
)

// world is a state that events change.
type world struct {
	state *State
	spots map[int32]spot // of requests that are there
}

// spot is where a request is, to find it in the lists of the state.
type spot struct {
	kind   kind
	worker int32
}

// begin is the state before the first event.
func (r *Replay) begin() *world {
	s := &State{Workers: make([]Worker, len(r.Workers))}
	for i, w := range r.Workers {
		s.Workers[i] = Worker{Power: w.Power, Tiers: maps.Clone(w.Tiers)}
		if w.Tiers == nil {
			s.Workers[i].Tiers = map[int32]router.Tier{}
		}
	}
	return &world{s, map[int32]spot{}}
}

// resume returns a world that continues from a state.
func resume(s *State) *world {
	w := &world{s, map[int32]spot{}}
	for i := range s.Workers {
		for _, q := range s.Workers[i].Queue {
			w.spots[q] = spot{queued, int32(i)}
		}
		for _, q := range s.Workers[i].Running {
			w.spots[q] = spot{running, int32(i)}
		}
	}
	for _, m := range s.Moving {
		w.spots[m.Request] = spot{moving, m.From}
	}
	for _, q := range s.Held {
		w.spots[q] = spot{held, -1}
	}
	return w
}

// apply makes one change.
func (w *world) apply(r *Replay, e *event) {
	s := w.state
	switch e.kind {
	case queued, running, moving, held, gone:
		w.place(e)
	case tier:
		here := &s.Workers[e.worker]
		if t := router.Tier(e.x); t == r.Workers[e.worker].Tier {
			delete(here.Tiers, e.n)
		} else {
			here.Tiers[e.n] = t
		}
	case loadOf:
		here := &s.Workers[e.worker]
		here.expire(e.at)
		here.Loading = append(here.Loading, *e.load)
	case power:
		here := &s.Workers[e.worker]
		if here.Power = record.Power(e.x); here.Power == record.Off {
			here.Loading = nil
		}
	case outage:
		here := &s.Workers[e.worker]
		here.Down, here.Loading = e.x != 0, nil
	case plan:
		s.Plans++
	}
}

// place moves a request to its new place.
func (w *world) place(e *event) {
	s := w.state
	if was, ok := w.spots[e.n]; ok {
		switch was.kind {
		case queued:
			s.Workers[was.worker].Queue = without(s.Workers[was.worker].Queue, e.n)
		case running:
			s.Workers[was.worker].Running = without(s.Workers[was.worker].Running, e.n)
		case moving:
			s.Moving = slices.DeleteFunc(s.Moving, func(t Transfer) bool { return t.Request == e.n })
		case held:
			s.Held = without(s.Held, e.n)
		}
	}
	w.spots[e.n] = spot{e.kind, e.worker}
	switch e.kind {
	case queued:
		here := &s.Workers[e.worker]
		here.Queue = append(here.Queue, e.n)
	case running:
		here := &s.Workers[e.worker]
		here.Running = append(here.Running, e.n)
	case moving:
		s.Moving = append(s.Moving, Transfer{e.n, e.worker, e.x})
	case held:
		s.Held = append(s.Held, e.n)
	default:
		delete(w.spots, e.n)
	}
}

// without takes an element out of a list and keeps the order. It moves the shorter side: requests leave long queues
// near the head.
func without(list []int32, n int32) []int32 {
	i := slices.Index(list, n)
	if i < len(list)/2 {
		copy(list[1:i+1], list[:i])
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

// entries is the size of a state.
func (s *State) entries() (n int) {
	for i := range s.Workers {
		w := &s.Workers[i]
		n += 1 + len(w.Tiers) + len(w.Loading) + len(w.Queue) + len(w.Running)
	}
	return n + len(s.Moving) + len(s.Held)
}

// clone copies a state.
func (s *State) clone() *State {
	c := &State{At: s.At, Workers: slices.Clone(s.Workers), Moving: slices.Clone(s.Moving),
		Held: slices.Clone(s.Held), Plans: s.Plans}
	for i := range c.Workers {
		w := &c.Workers[i]
		w.Tiers = maps.Clone(w.Tiers)
		w.Loading, w.Queue, w.Running = slices.Clone(w.Loading), slices.Clone(w.Queue), slices.Clone(w.Running)
	}
	return c
}
