package planroute

import "lorasim/router"

// rest is a request as it goes to another worker: what it has generated (a preempted request may have
// generated some) is computed again with its prompt, and is no longer expected as output.
func rest(a *router.InFlight) router.Request {
	return router.Request{ID: a.ID, Adapter: a.Adapter, Prompt: a.Prompt + a.Generated, MaxNew: a.MaxNew - a.Generated,
		Expected: max(int32(left(a)+0.5), 1), Text: a.Text, Known: a.Known}
}

// left is what a request that has generated some tokens still may: at least a
// quarter of what was expected, at most its budget.
func left(a *router.InFlight) float64 {
	expected := router.Request{Expected: a.Expected, MaxNew: a.MaxNew}.ExpectedOutput()
	left := max(expected-float64(a.Generated), expected/4)
	return min(left, float64(max(a.MaxNew-a.Generated, 1)))
}
