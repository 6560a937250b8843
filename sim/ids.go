package sim

import (
	"cmp"
	"slices"
)

// sentIDs finds requests in flight by their ID. IDs mostly ascend with the arrival, so that a list in the order of
// arrival is sorted, and adding a request costs next to nothing. Those that have ended leave the list when they are
// many.
type sentIDs struct {
	on       bool // there is a planner, which names requests
	list     []sentID
	unsorted bool
	room     int // length of the list at which those that have ended leave it
}

type sentID struct {
	id   int64
	slot int32 // of sim.reqs; invariant: the request has this ID there, or has ended
}

// add enters a request that is sent.
func (l *sentIDs) add(r *request, all []*request) {
	if !l.on {
		return
	}
	if len(l.list) >= max(l.room, 64) {
		l.list = slices.DeleteFunc(l.list, func(s sentID) bool { return all[s.slot].ID != s.id })
		l.room = 2 * len(l.list)
	}
	if n := len(l.list); n > 0 && l.list[n-1].id >= r.ID {
		l.unsorted = true
	}
	l.list = append(l.list, sentID{r.ID, r.Slot})
}

// withID returns the request in flight with an ID; nil: none.
func (s *sim) withID(id int64) *request {
	l := &s.plan.sent
	if l.unsorted {
		slices.SortStableFunc(l.list, func(a, b sentID) int { return cmp.Compare(a.id, b.id) })
		l.unsorted = false
	}
	k, _ := slices.BinarySearchFunc(l.list, id, func(e sentID, id int64) int { return cmp.Compare(e.id, id) })
	var found *request
	for ; k < len(l.list) && l.list[k].id == id; k++ {
		if r := s.reqs[l.list[k].slot]; r.ID == id {
			found = r // of several with one ID, the latest
		}
	}
	return found
}
