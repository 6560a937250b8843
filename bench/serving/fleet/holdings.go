package fleet

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"lorasim/router"
	"lorasim/sim/record"
)

// adapter is the state of one adapter on one worker.
type adapter struct {
	held     bool  // the worker has loaded it
	at       int   // its place in holdings.held
	leaving  bool  // to be unloaded once no request uses it
	lost     bool  // it left the worker without the fleet's doing
	outside  int   // booked requests that wait for a place, a load or an unload
	waiting  int   // of outside: those that wait for a place, see places.go
	call     *call // under way; nil: none
	yielding bool  // it takes no new requests, so that another adapter gets its place

	failures int       // loads that failed in a row
	failure  error     // of the latest one
	retryAt  time.Time // when the next load may begin
	foreign  string    // path from which the worker holds other weights by the name; "": it does not

	since   time.Time // when it was loaded, or first seen on the worker
	touched int64     // order of its latest use, by holdings.uses
}

// call is a load or unload under way.
type call struct {
	unload bool
	done   chan struct{} // closed at its end
	err    error
}

func (c *call) String() string {
	if c.unload {
		return "unload"
	}
	return "load"
}

// Pauses between loads that fail, which double.
const (
	firstRest   = time.Second
	longestRest = time.Minute
)

// rest begins a pause after a load that failed. Its length is random between a half and all of the limit, so that
// workers and gateways do not stay in step.
func (s *adapter) rest(err error) {
	limit := min(firstRest<<min(s.failures, 10), longestRest)
	s.failures++
	s.failure, s.retryAt = err, time.Now().Add(limit/2+rand.N(limit/2))
}

// resting reports whether a load failed and the next one must wait.
func (s *adapter) resting() bool { return s.failure != nil && time.Now().Before(s.retryAt) }

// holdings are the adapters on a worker.
//
// Invariants: an adapter has tier Disk if and only if it is not held; the adapters with tier GPU are the first ones of
// recent, as many as the worker has slots.
type holdings struct {
	view *router.Worker
	rows []*adapter // by index of the adapter
	held []int32    // adapters with held, in no order
	// recent are held adapters in the order of their latest use, the latest first. The first ones are assumed to be
	// in GPU slots, unless the server says which are; see resident.
	recent []int32
	most   int // adapters that the worker can hold, by its own information; 0: unknown

	counts *record.Counters // what the workers in the slot did, as far as the fleet knows; they share it

	calls     int         // adapters with a call under way
	yielding  int         // adapters with yielding
	uses      int64       // counts uses of adapters
	version   int         // changes with calls, with what is held, and when the worker registers or goes down
	contested atomic.Bool // see LoRAManager.Contested
}

// grow adds rows for n more adapters, which the worker does not hold.
func (h *holdings) grow(n int) {
	for range n {
		h.rows = append(h.rows, new(adapter))
		h.view.Adapters = append(h.view.Adapters, router.AdapterState{Tier: router.Disk})
	}
}

// add notes that the worker holds an adapter.
func (h *holdings) add(a int32) {
	s := h.rows[a]
	if s.held {
		return
	}
	s.held, s.at, h.held = true, len(h.held), append(h.held, a)
	s.since = time.Now()
	h.touch(a)
	h.view.Adapters[a].Tier = router.Host
	if h.most > 0 && len(h.held) >= h.most {
		h.contested.Store(true)
	}
}

// loaded notes that the worker has loaded an adapter for the fleet.
func (h *holdings) loaded(a int32) {
	h.add(a)
	s := h.rows[a]
	s.lost, s.failures, s.failure = false, 0, nil
}

// remove notes that the worker does not hold an adapter. The caller must call updateSlots afterwards.
func (h *holdings) remove(a int32) {
	s := h.rows[a]
	if !s.held {
		return
	}
	last := h.held[len(h.held)-1]
	h.held[s.at], h.rows[last].at = last, s.at
	h.held = h.held[:len(h.held)-1]
	s.held = false
	h.setYielding(a, false)
	h.view.Adapters[a].Tier = router.Disk
}

// gone notes that an adapter has left the worker.
func (h *holdings) gone(a int32) {
	h.remove(a)
	h.version++
	h.updateSlots()
}

// listed updates the held adapters by the worker's list.
func (h *holdings) listed(there func(a int32) bool) {
	for a, s := range h.rows {
		if there(int32(a)) {
			h.add(int32(a))
		} else {
			s.lost = s.lost || s.held
			h.remove(int32(a))
		}
	}
	h.updateSlots()
}

// clear notes that the worker is down: it holds nothing.
func (h *holdings) clear() {
	for a, s := range h.rows {
		h.remove(int32(a))
		s.leaving = false
	}
	h.recent = nil
	h.version++
	h.updateSlots()
}

// begin notes the start of a load or unload.
func (h *holdings) begin(a int32, unload bool) *call {
	c := &call{unload: unload, done: make(chan struct{})}
	h.rows[a].call = c
	h.calls++
	h.version++
	return c
}

// end notes the end of a load or unload.
func (h *holdings) end(a int32, err error) {
	s := h.rows[a]
	s.call.err = err
	close(s.call.done)
	s.call = nil
	h.calls--
	h.version++
}

// ready reports whether the worker's state permits requests for an adapter to be sent.
func (h *holdings) ready(a int32) bool { return h.rows[a].held && h.rows[a].call == nil }

// idle reports whether the worker holds an adapter that has no request of the fleet and no call under way.
func (h *holdings) idle(a int32) bool {
	st := &h.view.Adapters[a]
	return h.ready(a) && int(st.Running+st.Queued) == h.rows[a].waiting
}

// posted returns the number of the fleet's requests for an adapter that may have reached the worker.
func (h *holdings) posted(a int32) int {
	st := &h.view.Adapters[a]
	return int(st.Running+st.Queued) - h.rows[a].outside
}

// outside returns the number of booked requests that wait for their adapter.
func (h *holdings) outside() (n int) {
	for _, s := range h.rows {
		n += s.outside
	}
	return n
}

// exhausted reports whether adapters in use, or being loaded, fill all places that the worker has reported.
func (h *holdings) exhausted() bool {
	if h.most <= 0 || len(h.held) < h.most {
		return false
	}
	inUse := h.calls
	for _, a := range h.held {
		if !h.idle(a) {
			inUse++
		}
	}
	return inUse >= h.most
}

// setYielding makes an adapter take no new requests, or take them again.
func (h *holdings) setYielding(a int32, yields bool) {
	if s := h.rows[a]; s.yielding != yields {
		s.yielding = yields
		if yields {
			h.yielding++
		} else {
			h.yielding--
		}
	}
}

// leastRecent returns the adapter to evict: the least recently used one that is neither pinned nor in use, and for
// which keep returns false; -1: none.
func (h *holdings) leastRecent(keep func(a int32) bool) int32 {
	victim := int32(-1)
	for _, a := range h.held {
		if h.view.Adapters[a].Pinned || !h.idle(a) || keep(a) {
			continue
		}
		if victim < 0 || h.rows[a].touched < h.rows[victim].touched {
			victim = a
		}
	}
	return victim
}

// longestHeld returns the adapter that yields its place next: the one that has held it longest, and at least for the
// time hold; -1: none.
func (h *holdings) longestHeld() int32 {
	oldest := int32(-1)
	for _, a := range h.held {
		s := h.rows[a]
		if h.ready(a) && !s.yielding && !h.view.Adapters[a].Pinned && time.Since(s.since) >= hold &&
			(oldest < 0 || s.since.Before(h.rows[oldest].since)) {
			oldest = a
		}
	}
	return oldest
}

// touch makes an adapter the most recently used one of those that may be evicted.
func (h *holdings) touch(a int32) {
	h.uses++
	h.rows[a].touched = h.uses
}

// used notes that a request with the adapter runs. Its weights are in a GPU slot now, and the least recently used
// adapters have left their slots.
func (h *holdings) used(a int32) {
	h.touch(a)
	i := slices.Index(h.recent, a)
	if i < 0 {
		i, h.recent = len(h.recent), append(h.recent, a)
	}
	copy(h.recent[1:i+1], h.recent[:i])
	h.recent[0] = a
	h.updateSlots()
}

// unknownSlots is the number of adapters that are assumed to be in GPU slots where the number of slots is unknown.
const unknownSlots = 128

// updateSlots derives the tiers of the held adapters and the slots in use from the latest uses. It forgets adapters
// that have left their slots, so that its cost does not grow with the number of adapters.
func (h *holdings) updateSlots() {
	h.recent = slices.DeleteFunc(h.recent, func(a int32) bool { return !h.rows[a].held })
	v := h.view
	v.SlotsUsed, v.SlotsIdle = 0, 0
	most := cmp.Or(v.Slots, unknownSlots)
	for i, a := range h.recent {
		st := &v.Adapters[a]
		if st.Tier = router.Host; i < most {
			st.Tier = router.GPU
			v.SlotsUsed++
			if st.Running == 0 {
				v.SlotsIdle++
			}
		}
	}
	h.recent = h.recent[:min(len(h.recent), most)]
}
