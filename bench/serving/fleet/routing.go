package fleet

import (
	"lorasim/router"
	"lorasim/trace"
)

// remembered is the number of latest requests from which a new router learns when it replaces another one.
const remembered = 2048

// routing has the router and its view of the workers.
type routing struct {
	router  *router.Router // replaced when a worker joins, and when adapters are added
	view    router.View
	outputs *router.Outputs
	stale   *router.Stale // nil: reports are current
	history *router.History
}

// expect fills in the expected output of a request, unless it is set.
func (r *routing) expect(q *Request) {
	if q.Expected == 0 {
		q.Expected = q.Output
		if q.Expected == 0 {
			q.Expected = r.outputs.Expect(q.Adapter, q.MaxNew)
		}
	}
}

// replace replaces the router by one for more adapters or other workers. The new router continues from the state of
// the old one. The argument joined is the slot of a worker that has joined, or -1.
func (r *routing) replace(rt *router.Router, all []trace.Adapter, joined int, staleness float64) {
	r.outputs.Grow(len(all) - len(r.view.Adapters))
	r.view.Adapters = all
	rt.Succeed(r.router, r.history, &r.view, joined)
	r.router = rt
	if staleness > 0 {
		r.stale = router.NewStale(staleness) // the old one holds copies for fewer adapters or other workers
	}
}
