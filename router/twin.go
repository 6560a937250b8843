package router

import "lorasim/trace"

// Twin simulates policies on the cluster that a router drives. It knows what a router knows: the workers' profiles, and
// a future that the policy makes up from the requests that it has seen.
type Twin interface {
	// Simulate sends the requests of a future where a router says and tells how they end. The router is used for this
	// run alone.
	Simulate(rt *Router, f *Future) (*Outcome, error)
}

// Future is the state of a cluster and the requests that come from then on.
type Future struct {
	State    State
	Requests []trace.Request // by arrival; Arrival counts from the start of the future
	// Count is the number of requests, the first ones, whose latencies count. Those after them keep the load up until
	// all that count have ended, when the simulation stops. 0: all count.
	Count  int
	Error  ProfileError
	Yield  func()    // called often during the simulation; nil: nothing
	Slower []float64 // by worker: step times relative to the profile's; nil: as in the profile
}

// State is how a cluster is, as far as a router can tell.
type State struct {
	Down     []int     // workers that take no requests
	Host     [][]int32 // by worker: adapters in host memory, and in slots; nil: unknown, and as at a start
	Slots    [][]int32 // by worker: adapters in GPU slots
	Used     [][]int32 // by worker: adapters that requests were sent for before
	Kept     []Kept    // what workers keep of prompts, the latest last
	InFlight []Held    // requests, on each worker in the order in which it serves them
}

// Kept is the beginning of a text that a worker keeps.
type Kept struct {
	Worker, Adapter, Tokens int32
	Text                    *trace.Text
}

// Held is a request in flight; its Arrival does not count.
type Held struct {
	trace.Request
	Worker    int32
	Generated int32   // tokens
	KV        int64   // tokens in the KV cache; 0: it waits
	Age       float64 // s since it was sent
}

// ProfileError makes a twin's profiles wrong on purpose, to measure what a profile that does not fit costs.
type ProfileError struct {
	Share float64 // by which step times are too long or too short; 0: none
	Seed  uint64
}

// Counted is the number of requests whose latencies count.
func (f *Future) Counted() int {
	if f.Count > 0 {
		return min(f.Count, len(f.Requests))
	}
	return len(f.Requests)
}

// Outcome is how the requests that count ended: those of a future by their places in it, then those that were in
// flight.
type Outcome struct {
	E2E  []float32 // s; NaN: the request did not end well
	TTFT []float32 // s; NaN also where the first token came before the future
	Sent int       // requests of the future that were sent before the simulation stopped
}
