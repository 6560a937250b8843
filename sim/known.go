package sim

import (
	"cmp"
	"slices"
)

// Requests sent with ignore_eos run to their budget, so that their lengths are
// known in advance. Without a radix cache sglang then asks, instead of
// reserving a share of every budget, whether memory lasts if all requests run
// to their ends (PrefillAdder.add_one_req_ignore_eos in
// managers/schedule_policy.py).

// claim is a request's part in that: the tokens it will still take, and those
// it holds without them.
type claim struct{ left, holds int64 }

// fitsKnown says whether waiting request i, n tokens of which are to be
// prefilled, fits beside the running and chosen requests.
func (w *worker) fitsKnown(i int32, n int64, room *admission) bool {
	take := w.paged(n) + w.kv.size
	if take > room.current || float64(take) > room.total {
		return false
	}
	w.countClaim(i, room)
	free, freed := room.current-take, int64(0)
	for k, c := range room.states {
		b := int64(len(room.states) - k)
		if free+freed-c.left*b <= b { // a token for each, to be safe
			return false
		}
		freed += c.holds
	}
	return true
}

// countClaim enters request i among the claims, in the order of their ends.
func (w *worker) countClaim(i int32, room *admission) {
	if room.counted {
		c := w.claimOf(i)
		if c.left <= 0 {
			return
		}
		// add_req_state inserts one that ends after all others before the last
		at := max(len(room.states)-1, 0)
		if k := slices.IndexFunc(room.states, func(o claim) bool { return c.left <= o.left }); k >= 0 {
			at = k
		}
		room.states = slices.Insert(room.states, at, c)
		return
	}
	room.counted = true
	batch := slices.Clone(w.batch)
	slices.SortFunc(batch, func(a, b int32) int { return cmp.Compare(w.s.reqs[a].order, w.s.reqs[b].order) })
	for _, c := range w.filling {
		batch = append(batch, c.req)
	}
	for _, j := range append([]int32{i}, batch...) {
		if c := w.claimOf(j); c.left > 0 {
			room.states = append(room.states, c)
		}
	}
	slices.SortStableFunc(room.states, func(a, b claim) int { return cmp.Compare(a.left, b.left) })
}

func (w *worker) claimOf(i int32) claim {
	r := &w.s.reqs[i]
	done := int64(r.generated)
	if r.state == running {
		done += w.steps - r.joinStep
	}
	return claim{left: int64(r.maxNew) - done, holds: int64(r.prompt) + done}
}
