// Package replay records a simulated run as a list of changes: where requests are, which adapters are in GPU slots and
// in host memory, loads, moves, plans with their reasons, workers that join, leave and fail. [Replay.StateAt] tells the
// state of the cluster at any time of the run. [Replay.JSON] is the form that the view in replay.js reads.
package replay

import (
	"slices"
	"sort"

	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Replay is a recorded run.
type Replay struct {
	End      tick.Ticks // of the last change, and of the last request at its client
	Workers  []Start
	Adapters []trace.Adapter
	Requests []Request // kept, in the order in which they were sent
	Plans    []*sim.PlanRecord
	Thinned  Thinned

	events    []event
	keyframes []keyframe
}

// Start is a worker before the run's first change.
type Start struct {
	Slots     int // GPU slots for adapters
	HostSlots int // adapters that host memory holds; 0: no limit
	Power     sim.Power
	Tier      router.Tier           // of most adapters
	Tiers     map[int32]router.Tier // of the others
}

// Request is what is known of a kept request beside its places.
type Request struct {
	record.Request
	Ended bool // else the recording ended before it did; times after Sent are unknown
}

// Thinned says what of the run the recording does not have.
type Thinned struct {
	Every     int   // one of this many requests is kept; 1: all are
	Requests  int64 // of the run
	PlanEvery int   // one of this many plans that change something is kept; 1: all are
	Plans     int64 // of the run that change something
	// Until is when the recording ended because of its size; tick.Never: it has the whole run.
	Until tick.Ticks
}

// kind is the kind of a change.
type kind uint8

// The kinds of changes, with the meaning of event's n, worker and x.
const (
	queued  kind = iota // request n is in the queue of worker
	running             // request n runs on worker
	moving              // request n is between worker and worker x
	held                // request n waits for a worker
	gone                // request n has ended
	tier                // adapter n is in tier x of worker
	loadOf              // adapter n is being loaded on worker; x: in loads
	power               // worker is in the power state x
	outage              // worker is down (x = 1), or no longer
	plan                // plan n was applied or dropped
)

// event is one change.
type event struct {
	at     tick.Ticks
	kind   kind
	n      int32
	worker int32
	x      int32
	load   *Loading // of a load
}

// Loading is a load of an adapter.
type Loading struct {
	Adapter  int32
	Slot     bool // into a GPU slot; else to host memory
	From, To tick.Ticks
}

// Transfer is a request between two workers.
type Transfer struct {
	Request  int32 // index into Requests
	From, To int32
}

// Worker is the state of a worker at an instant.
type Worker struct {
	Power   sim.Power
	Down    bool                  // for an outage
	Tiers   map[int32]router.Tier // of the adapters whose tier is not Start.Tier
	Loading []Loading             // not over yet
	Queue   []int32               // indices into Requests, in the order in which they came
	Running []int32
}

// State is the cluster at an instant.
type State struct {
	At      tick.Ticks
	Workers []Worker
	Moving  []Transfer
	Held    []int32 // requests that wait for a worker to be on
	Plans   int     // of Plans so far
}

// keyframe is the state before the event of index next.
type keyframe struct {
	next  int
	state *State
}

// minSpacing is the least number of events between keyframes. As a keyframe comes only after as many events as it has
// entries, keyframes together are no larger than the list of events.
const minSpacing = 1024

// makeKeyframes walks through the events once.
func (r *Replay) makeKeyframes() {
	w := r.begin()
	last := 0
	for i := range r.events {
		if n := i - last; n >= minSpacing && n >= w.state.entries() {
			r.keyframes = append(r.keyframes, keyframe{i, w.state.clone()})
			last = i
		}
		w.apply(r, &r.events[i])
	}
}

// StateAt is the state at time t, changes at that very instant included.
func (r *Replay) StateAt(t tick.Ticks) *State {
	last := sort.Search(len(r.events), func(i int) bool { return r.events[i].at > t })
	k := sort.Search(len(r.keyframes), func(i int) bool { return r.keyframes[i].next > last }) - 1
	w, from := r.begin(), 0
	if k >= 0 {
		w, from = resume(r.keyframes[k].state.clone()), r.keyframes[k].next
	}
	for i := from; i < last; i++ {
		w.apply(r, &r.events[i])
	}
	w.state.At = t
	for i := range w.state.Workers {
		w.state.Workers[i].expire(t)
	}
	return w.state
}

// Holds lists the adapters in a tier of a worker, in order.
func (r *Replay) Holds(s *State, worker int, t router.Tier) (adapters []int32) {
	for a := range int32(len(r.Adapters)) {
		got, ok := s.Workers[worker].Tiers[a]
		if !ok {
			got = r.Workers[worker].Tier
		}
		if got == t {
			adapters = append(adapters, a)
		}
	}
	return adapters
}

// expire forgets the loads that are over.
func (w *Worker) expire(t tick.Ticks) {
	w.Loading = slices.DeleteFunc(w.Loading, func(l Loading) bool { return l.To <= t })
}
