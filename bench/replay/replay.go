// Package replay records a simulated run as a list of changes: the places of requests, the adapters in GPU slots and
// host memory, adapter loads, moves, plans with their reasons, and workers that join, leave or fail. A [Recorder]
// records a run as a [Replay]. [Replay.StateAt] returns the state of the cluster at any time of the run. [Replay.JSON]
// writes the form that the view in replay.js reads.
package replay

import (
	"slices"
	"sort"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// A Replay is a recorded run.
type Replay struct {
	End      tick.Ticks // time of the last change, or of the last end of a request at its client, whichever is later
	Workers  []Start
	Adapters []trace.Adapter
	Requests []Request // kept requests, in the order in which they were sent
	Plans    []*record.Plan
	Thinned  Thinned

	events    []event
	keyframes []keyframe
}

// A Start is the state of a worker before the run's first change.
type Start struct {
	Slots     int // GPU slots for adapters
	HostSlots int // adapters that fit in host memory; 0: no limit
	Power     record.Power
	Tier      router.Tier           // tier of most adapters: all that Tiers omits
	Tiers     map[int32]router.Tier // tiers of the other adapters
}

// A Request is the record of a kept request, without its places.
type Request struct {
	record.Request
	Ended bool // false: the recording ended first, and times after Sent are unknown
}

// Thinned states what a recording omits because of its limits.
type Thinned struct {
	Every     int   // one of this many requests is kept; 1: all are kept
	Requests  int64 // requests of the run
	PlanEvery int   // one of this many plans that change something is kept; 1: all are kept
	Plans     int64 // plans of the run that change something
	// Until is the time at which the recording reached its size limit; tick.Never: the recording is complete.
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

// A Loading is an adapter load in progress.
type Loading struct {
	Adapter  int32
	Slot     bool // the target is a GPU slot; otherwise host memory
	From, To tick.Ticks
}

// A Transfer is a request that moves between two workers.
type Transfer struct {
	Request  int32 // index into Replay.Requests
	From, To int32
}

// A Worker is the state of a worker at an instant.
type Worker struct {
	Power   record.Power
	Down    bool                  // the worker has failed
	Tiers   map[int32]router.Tier // adapters whose tier is not Start.Tier
	Loading []Loading             // loads in progress
	Queue   []int32               // waiting requests: indices into Replay.Requests, in the order in which they joined
	Running []int32
}

// A State is the state of the cluster at an instant.
type State struct {
	At      tick.Ticks
	Workers []Worker
	Moving  []Transfer
	Held    []int32 // requests that wait until a worker is on
	Plans   int     // number of Replay.Plans made so far
}

// keyframe is the state before the event of index next.
type keyframe struct {
	next  int
	state *State
}

// minSpacing is the minimum number of events between keyframes. At least one event per entry of a keyframe precedes
// it, so keyframes together are no larger than the list of events.
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

// StateAt returns the state at time t, after all changes at t.
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

// Holds returns the adapters in a tier of a worker, in ascending order.
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
