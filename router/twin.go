package router

import "lorasim/trace"

// Twin simulates policies on the cluster that a router drives. It knows what a router knows: the workers' profiles, and
// a future that the policy makes up from the requests that it has seen.
type Twin interface {
	// Simulate sends the requests of a future where a router says and tells how they end. The router is used for this
	// run alone.
	Simulate(rt *Router, f *Future) (*Outcome, error)
}

// Future is a list of requests that a twin serves, from workers without requests on.
type Future struct {
	Requests []trace.Request // by arrival; Arrival counts from the start of the future
	// Down lists the workers that take no requests for some time.
	Down []Downtime
	// Placement lists for each worker the adapters it starts with in host memory; nil: as in Router.
	Placement [][]int32
	Error     ProfileError
}

// Downtime is a time during which a worker takes no requests.
type Downtime struct {
	Worker   int
	From, To float64 // s; To 0: to the end
}

// ProfileError makes a twin's profiles wrong on purpose, to measure what a profile that does not fit costs.
type ProfileError struct {
	Share float64 // by which step times are too long or too short; 0: none
	Seed  uint64
}

// Outcome is how the requests of a future ended, by their places in it.
type Outcome struct {
	E2E, TTFT []float32 // s; NaN: the request did not end well
}
