package fleet

import (
	"cmp"
	"slices"

	"lorasim/router"
)

// mostDrawn is the number of running, and of waiting requests of a worker that a snapshot lists.
const mostDrawn = 60

// A Snapshot is the state of a fleet at one time, for a page. An adapter is its index in Adapters.
type Snapshot struct {
	Workers  []WorkerHolds `json:"workers"`
	Adapters []string      `json:"adapters"` // names of all adapters that the fleet knows
	Requests []Drawn       `json:"requests"` // in flight: at most 60 running and 60 waiting ones of each worker
	Policy   string        `json:"policy"`
}

// WorkerHolds is the state of a worker with the memory in which its adapters are. Servers do not report which adapters
// are in GPU slots; the fleet assumes those of the latest requests.
type WorkerHolds struct {
	WorkerState
	Slot    []int32 `json:"in_slots"`       // adapters in GPU slots
	Host    []int32 `json:"in_host_memory"` // other loaded adapters
	Loading []int32 `json:"loading"`        // adapters whose load is under way
}

// Drawn is a request in flight.
type Drawn struct {
	ID      int64 `json:"id"`
	Worker  int   `json:"worker"`
	Adapter int32 `json:"adapter"` // -1: the base model
	Prompt  int32 `json:"prompt"`  // tokens
	Running bool  `json:"running"` // false: it waits for its first token
}

// Snapshot returns the state of the workers, their adapters and their requests.
func (f *Fleet) Snapshot() Snapshot {
	defer f.lock()()
	s := Snapshot{Workers: []WorkerHolds{}, Requests: []Drawn{}, Adapters: make([]string, len(f.catalog.list())),
		Policy: f.router.Name}
	for i, a := range f.catalog.list() {
		s.Adapters[i] = a.Name
	}
	for _, state := range f.status() {
		k := f.workers[state.Worker]
		h := WorkerHolds{WorkerState: state, Slot: []int32{}, Host: []int32{}, Loading: []int32{}}
		for a, row := range k.loras.rows {
			switch {
			case row.held && k.view.Adapters[a].Tier == router.GPU:
				h.Slot = append(h.Slot, int32(a))
			case row.held:
				h.Host = append(h.Host, int32(a))
			case row.call != nil && !row.call.unload:
				h.Loading = append(h.Loading, int32(a))
			}
		}
		s.Workers = append(s.Workers, h)
		s.Requests = append(s.Requests, k.books.drawn(k.index)...)
	}
	return s
}

// drawn returns requests on the worker in the order in which they were booked: some that run and some that wait.
func (b *books) drawn(worker int) (list []Drawn) {
	all := make([]*Request, 0, len(b.requests))
	for _, r := range b.requests {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(a.booked, b.booked), cmp.Compare(a.ID, b.ID))
	})
	room := map[bool]int{true: mostDrawn, false: mostDrawn}
	for _, r := range all {
		if room[r.running]--; room[r.running] >= 0 {
			list = append(list, Drawn{r.ID, worker, r.Adapter, r.Prompt, r.running})
		}
	}
	return list
}
