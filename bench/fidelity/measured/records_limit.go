package measured

import (
	"cmp"
	"slices"

	"lorasim/sim/record"
)

const (
	// held is the time between arrival and sending, s, from which a request waited in the client.
	// It exceeds the delay of a busy client.
	held = 0.05
	// leastHeld is the share of waiting requests from which the client has a limit. fullWhenHeld is
	// the share of waiting requests that the client sent at its limit.
	leastHeld, fullWhenHeld = 0.01, 0.9
)

// limitShown returns the client's limit of requests in flight, derived from the records. There is a limit if requests
// waited in the client, and nearly all waiting requests were sent at the same number in flight, the largest one. It
// returns 0 if the records show no limit.
func limitShown(rs []record.Request) int {
	type change struct {
		at   float64
		by   int
		held bool
	}
	var changes []change
	waited := 0
	for i := range rs {
		r := &rs[i]
		if !(r.Finish > r.Sent) {
			continue
		}
		w := r.ClientQueue() > held
		if w {
			waited++
		}
		changes = append(changes, change{r.Sent, 1, w}, change{r.Finish, -1, false})
	}
	if float64(waited) < max(leastHeld*float64(len(rs)), 1) {
		return 0
	}
	// At equal times, requests end before others are sent.
	slices.SortStableFunc(changes, func(a, b change) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	n, most, sent := 0, 0, 0
	counts := map[int]int{} // number of requests that waited, by requests in flight after sending
	for i, c := range changes {
		n += c.by
		most = max(most, n)
		if c.held {
			sent++
		}
		if i+1 == len(changes) || changes[i+1].at > c.at { // counts all changes at this time
			counts[n] += sent
			sent = 0
		}
	}
	full := 0
	for k, times := range counts {
		if float64(k) >= 0.98*float64(most) {
			full += times
		}
	}
	if float64(full) < fullWhenHeld*float64(waited) {
		return 0
	}
	return most
}
