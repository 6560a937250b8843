package router

import "lorasim/trace"

// Twin simulates policies on the cluster that a router drives. It has what a router has: the workers' profiles, and
// a future that the policy derives from past requests.
type Twin interface {
	// Simulate sends the requests of a future by a router and returns their latencies. The router is used for this
	// run only.
	Simulate(rt *Router, f *Future) (*Outcome, error)
}

// Future is the state of a cluster and the requests that follow.
type Future struct {
	State    State
	Requests []trace.Request // by arrival; Arrival counts from the start of the future, s
	// Count is the number of requests, from the first, whose latencies count; 0: all. Later requests keep up the
	// load until all counted requests have ended, which ends the simulation.
	Count  int
	Error  ProfileError
	Yield  func()    // called often during the simulation; nil: nothing is called
	Slower []float64 // by worker: step times relative to the profile's; nil: 1
}

// State is the state of a cluster, as far as a router knows it.
type State struct {
	Down     []int     // workers that take no requests
	Host     [][]int32 // by worker: adapters in host memory, slots included; nil: unknown, as at a start
	Slots    [][]int32 // by worker: adapters in GPU slots
	Used     [][]int32 // by worker: adapters for which requests were sent before
	Kept     []Kept    // prefixes in the workers' caches, the latest last
	InFlight []Held    // by worker: requests in the order in which it serves them
}

// placementState returns the state of the workers in v that serve, without requests: their adapters in host memory and
// in GPU slots. The others are down.
func placementState(v *View, serves func(*Worker) bool) State {
	st := State{Host: make([][]int32, len(v.Workers)), Slots: make([][]int32, len(v.Workers))}
	for j := range v.Workers {
		w := &v.Workers[j]
		if !serves(w) {
			st.Down = append(st.Down, j)
			continue
		}
		for k := range w.Adapters {
			if w.Adapters[k].Tier >= Host {
				st.Host[j] = append(st.Host[j], int32(k))
			}
			if w.Adapters[k].Tier == GPU && len(st.Slots[j]) < w.Slots {
				st.Slots[j] = append(st.Slots[j], int32(k))
			}
		}
	}
	return st
}

// Kept is a prefix of a text that a worker keeps in its cache.
type Kept struct {
	Worker, Adapter, Tokens int32
	Text                    *trace.Text
}

// Held is a request in flight. Its Arrival is ignored.
type Held struct {
	trace.Request
	Worker    int32
	Generated int32   // tokens
	KV        int64   // tokens in the KV cache; 0: it waits
	Age       float64 // time since it was sent, s
}

// ProfileError changes a twin's step times on purpose, to measure the cost of a wrong profile.
type ProfileError struct {
	Share float64 // largest relative change of step times; 0: none
	Seed  uint64
}

// Counted returns the number of requests whose latencies count.
func (f *Future) Counted() int {
	if f.Count > 0 {
		return min(f.Count, len(f.Requests))
	}
	return len(f.Requests)
}

// Outcome is the latencies of the counted requests: those of the future in its order, then those that were in
// flight.
type Outcome struct {
	E2E  []float32 // s; NaN: the request failed
	TTFT []float32 // s; NaN also where the first token was before the future
	Sent int       // requests of the future that were sent before the simulation stopped
}
