package record

import (
	"lorasim/router"
	"lorasim/sim/tick"
)

// An EventKind is a kind of [Event], or a set of kinds.
type EventKind uint16

// The kinds of events.
const (
	// The place of a request: it has one at a time, from the first event of its ID on.
	EventQueued EventKind = 1 << iota // it is in the front end or in the queue of Worker
	// EventRunning: it is in a prefill step of Worker, between two of them, or in the batch. On a real worker it has a
	// token.
	EventRunning
	EventMoving // it is between Worker and To, with its KV cache
	EventHeld   // it waits until a worker is on
	EventEnded  // it has ended; Request is its record

	EventTier // Adapter is now in the memory Tier of Worker

	// EventLoad reports an adapter load on Worker, from From to Until: into a GPU slot (Slot), or into host memory. A
	// simulated load is reported when it is booked and ends early if the worker loses its memory. A real load is
	// reported at its end.
	EventLoad

	// EventPower reports the new Power of Worker. At the start of a run, the workers are on whose first view is not
	// draining.
	EventPower
	EventOutage // an outage of Worker has begun (Down), or its last outage has ended, whatever its power
	EventPlan   // a plan was applied or dropped: Plan

	// EventState reports the state of the workers from From to Until: View. Only KV caches changed meanwhile. The
	// periods leave no gap, and the first View includes all changes before it.
	EventState
)

// AllEvents are the events of every kind.
const AllEvents = ^EventKind(0)

// An Event is something that happened in a run, simulated or live, to a request, an adapter, a worker or a plan.
// Kind determines which other fields have a meaning. An event is valid only during the call that reports it.
type Event struct {
	Kind    EventKind
	At      tick.Ticks // time of the run; events come in its order
	Worker  int32      // index; -1: none
	Adapter int32      // index; of a request, EventTier and EventLoad; trace.BaseModel: base model
	ID      int64      // of a request

	To          int32
	Tier        router.Tier
	Slot        bool
	Down        bool
	Power       Power
	From, Until tick.Ticks
	Request     *Request
	Plan        *Plan // complete, and not reused
	View        *router.View
}

// Power is the state of a worker in an elastic cluster.
type Power uint8

// The states of a worker. A worker uses a GPU in all of them except Off.
const (
	On       Power = iota // takes requests
	Draining              // finishes its requests and takes no new ones
	Off                   // uses no GPU
	Starting              // takes requests after its cold start
)

// Plan is a plan and its outcome. Times are those of the run, s.
type Plan struct {
	Made    float64      `json:"made_s"`    // when the plan was made
	Applied float64      `json:"applied_s"` // when the plan was applied or dropped
	Plan    *router.Plan `json:"plan"`
	Dropped string       `json:"dropped,omitempty"` // reason why the plan was not applied; "": it was
	Moved   int          `json:"moved"`             // number of requests that moved
	Gone    int          `json:"gone"`              // number of requests that had ended before; 0 in a live run
}

// A Watcher gets the events of some kinds.
type Watcher struct {
	Kinds EventKind
	Note  func(*Event)
	// Joined says that periods of EventState without requests may come as one in place of several.
	Joined bool
}

// WatchEnds returns a watcher that gets the records of ended requests.
func WatchEnds(done func(*Request)) Watcher {
	return Watcher{Kinds: EventEnded, Note: func(e *Event) { done(e.Request) }}
}

// A Stream passes events to watchers. The zero value has none.
type Stream struct {
	kinds    EventKind // that some watcher gets
	apart    bool      // some watcher gets each period of EventState
	watchers []Watcher
}

// Add adds a watcher. Watchers get an event in the order in which they were added.
func (s *Stream) Add(w Watcher) {
	s.kinds |= w.Kinds
	s.apart = s.apart || w.Kinds&EventState != 0 && !w.Joined
	s.watchers = append(s.watchers, w)
}

// Wants reports whether a watcher gets events of a kind. Nobody needs to build other events.
func (s *Stream) Wants(k EventKind) bool { return s.kinds&k != 0 }

// Apart reports whether a watcher gets each period of EventState, also if no requests are there.
func (s *Stream) Apart() bool { return s.apart }

// Emit passes an event to the watchers that get its kind.
func (s *Stream) Emit(e *Event) {
	for i := range s.watchers {
		if w := &s.watchers[i]; w.Kinds&e.Kind != 0 {
			w.Note(e)
		}
	}
}

// Waiting measures the load of the workers in a run.
type Waiting struct{ queued, running float64 }

// Watcher returns the events that a Waiting reads.
func (w *Waiting) Watcher() Watcher { return Watcher{Kinds: EventState, Note: w.note, Joined: true} }

// note adds a period to the sums of requests x s.
func (w *Waiting) note(e *Event) {
	for i := range e.View.Workers {
		v := &e.View.Workers[i]
		w.queued += float64(v.Queued) * (e.Until - e.From).Seconds()
		w.running += float64(v.Running) * (e.Until - e.From).Seconds()
	}
}

// Share returns the share of requests' time at workers that they spend waiting, 0 to 1, as a mean over the run. It is
// near 0 while the workers keep up, and near 1 if a queue only grows.
func (w *Waiting) Share() float64 { return w.queued / max(w.queued+w.running, 1e-9) }
