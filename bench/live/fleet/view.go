package fleet

import (
	"slices"
	"sync/atomic"

	"lorasim/router"
	"lorasim/trace"
)

// Request is a request in flight, as routers and planners know it. Its fields
// are set by its owner and not changed while the fleet has it.
type Request struct {
	ID      int64
	Adapter int32 // trace.BaseModel: none
	Prompt  int32
	MaxNew  int32
	Output  int32   // tokens it will generate, where routers are to know; 0: they expect
	Sent    float64 // s on the fleet's clock
	// Move, where set, asks the owner to take the request to another worker; it
	// must not block. It returns false where the request cannot go.
	Move func(from, to int) bool

	expected  int32 // output that routers expect
	generated atomic.Int32
	worker    int // -1: none; this and the next guarded by Fleet.mu
	running   bool
}

// Generated is the number of tokens so far.
func (r *Request) Generated() int { return int(r.generated.Load()) }

// account is what the fleet itself knows of one worker's load.
type account struct {
	requests map[int64]*Request
	ranks    map[int]int // requests by rank
	kv       atomic.Int64
	lru      []int32 // adapters in the order of their latest use, the latest first
	// requests of others, by the worker's own account
	foreignRunning, foreignQueued int
	polled                        float64 // when the worker's signals were read
}

// Route picks a worker for a request and books it there; router.None: no worker
// is usable. avoid is a worker to pass over if there is another, -1: none.
func (f *Fleet) Route(r *Request, avoid int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.fresh()
	var hidden bool
	if avoid >= 0 && f.usable(avoid) > 0 {
		hidden = v.Workers[avoid].Up
		v.Workers[avoid].Up = false
	}
	w := f.cfg.Router.Policy.Route(router.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, MaxNew: r.MaxNew, Expected: f.expect(r)}, v)
	if hidden {
		v.Workers[avoid].Up = true
	}
	if w != router.None {
		f.book(r, w)
		f.adjustLocked()
	}
	return w
}

// usable counts the usable workers other than one.
func (f *Fleet) usable(other int) (n int) {
	for i := range f.view.Workers {
		if i != other && f.view.Workers[i].Usable() {
			n++
		}
	}
	return n
}

// Book puts a request on a worker that its owner picked.
func (f *Fleet) Book(r *Request, w int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.book(r, w)
}

// expect is the output that routers expect of a request, from its first booking on.
func (f *Fleet) expect(r *Request) int32 {
	if r.expected == 0 {
		if r.expected = r.Output; r.expected == 0 {
			r.expected = f.outputs.Expect(r.Adapter, r.MaxNew)
		}
	}
	return r.expected
}

func (f *Fleet) book(r *Request, w int) {
	v, a := &f.view.Workers[w], f.workers[w].acct
	r.worker, r.running = w, false
	a.requests[r.ID] = r
	delete(f.workers[w].leaving, r.Adapter) // it is needed after all
	v.Queued++
	v.Tokens += int64(r.Prompt) + int64(f.expect(r))
	v.QueuedToks += int64(r.Prompt)
	if r.Adapter != trace.BaseModel {
		v.Count(r.Adapter, 0, 1)
		a.ranks[f.ranks[r.Adapter]]++
		v.MaxRank = max(v.MaxRank, f.ranks[r.Adapter])
	}
}

// Tokens notes n new tokens of a request; with the first on a worker it counts
// as running there.
func (f *Fleet) Tokens(r *Request, n int, first bool) {
	r.generated.Add(int32(n))
	if !first {
		f.workers[r.worker].acct.kv.Add(int64(n)) // only the owner changes worker
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v, a := &f.view.Workers[r.worker], f.workers[r.worker].acct
	if a.requests[r.ID] != r || r.running {
		return
	}
	r.running = true
	a.kv.Add(int64(r.Prompt) + int64(r.generated.Load()))
	v.Queued--
	v.Running++
	v.QueuedToks -= int64(r.Prompt)
	if r.Adapter != trace.BaseModel {
		v.Count(r.Adapter, 1, -1)
		f.used(r.worker, r.Adapter)
	}
}

// Left takes a request off its worker.
func (f *Fleet) Left(r *Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.worker < 0 {
		return
	}
	v, a := &f.view.Workers[r.worker], f.workers[r.worker].acct
	delete(a.requests, r.ID)
	v.Tokens -= int64(r.Prompt) + int64(r.expected)
	if r.running {
		v.Running--
		a.kv.Add(-int64(r.Prompt) - int64(r.generated.Load()))
	} else {
		v.Queued--
		v.QueuedToks -= int64(r.Prompt)
	}
	if r.Adapter != trace.BaseModel {
		st := &v.Adapters[r.Adapter]
		if r.running {
			v.Count(r.Adapter, -1, 0)
		} else {
			v.Count(r.Adapter, 0, -1)
		}
		rank := f.ranks[r.Adapter]
		if a.ranks[rank]--; a.ranks[rank] == 0 {
			delete(a.ranks, rank)
			v.MaxRank = 0
			for k := range a.ranks {
				v.MaxRank = max(v.MaxRank, k)
			}
		}
		if st.Running == 0 {
			f.slots(r.worker)
		}
		if f.postedOf(r.worker, r.Adapter) <= 0 {
			f.workers[r.worker].drained.notify()
		}
	}
	r.worker = -1
}

// Finished notes the output of a request that ended well, and tells a policy that
// learns; exec is the time from its first token to its end.
func (f *Fleet) Finished(r *Request, w int, exec float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outputs.Ended(r.Adapter, r.generated.Load())
	if l, ok := f.cfg.Router.Policy.(router.Learner); ok {
		l.Finished(router.Finished{Adapter: r.Adapter, Worker: int32(w), Output: r.generated.Load(), Exec: exec, Now: f.cfg.Now()})
	}
}

// fresh brings the view up to now.
func (f *Fleet) fresh() *router.View {
	f.view.Now = max(f.view.Now, f.cfg.Now())
	for i := range f.view.Workers {
		v, a := &f.view.Workers[i], f.workers[i].acct
		v.KVUsed = a.kv.Load()
		v.Age = f.view.Now - a.polled
	}
	if f.stale != nil {
		return f.stale.Update(&f.view)
	}
	return &f.view
}

// used notes that a request with the adapter runs on a worker: its weights are
// in a GPU slot now, and those used least recently have made room.
func (f *Fleet) used(w int, a int32) {
	acct := f.workers[w].acct
	if k := slices.Index(acct.lru, a); k >= 0 {
		acct.lru = slices.Delete(acct.lru, k, k+1)
	}
	acct.lru = slices.Insert(acct.lru, 0, a)
	f.slots(w)
}

// slots derives the tiers of a worker's adapters from their latest uses.
func (f *Fleet) slots(w int) {
	v, acct := &f.view.Workers[w], f.workers[w].acct
	acct.lru = slices.DeleteFunc(acct.lru, func(a int32) bool { return !f.workers[w].held[a] })
	used, idle := 0, 0
	for k, a := range acct.lru {
		st := &v.Adapters[a]
		switch {
		case v.Slots == 0 || k < v.Slots:
			st.Tier = router.GPU
			used++
			if st.Running == 0 {
				idle++
			}
		default:
			st.Tier = router.Host
		}
	}
	v.SlotsUsed, v.SlotsIdle = used, idle
}

// foreign notes what a worker says of its load beyond the fleet's own requests:
// own is the largest number of these while it was asked.
func (f *Fleet) foreign(w int, l load, own int) {
	v, a := &f.view.Workers[w], f.workers[w].acct
	others := max(l.Running+l.Queued-own, 0)
	queued := min(others, l.Queued)
	v.Queued += queued - a.foreignQueued
	v.Running += others - queued - a.foreignRunning
	a.foreignQueued, a.foreignRunning = queued, others-queued
	a.polled = f.cfg.Now()
}

// First is the first usable worker that holds an adapter, else the first usable
// one; router.None: there is none.
func (f *Fleet) First(a int32) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := router.None
	for i := range f.view.Workers {
		if !f.view.Workers[i].Usable() {
			continue
		}
		if a == trace.BaseModel || f.workers[i].held[a] {
			return i
		}
		if first == router.None {
			first = i
		}
	}
	return first
}

// BookOr puts a request on the worker that a plan wants, or, if that is not
// usable any more, on one that the policy picks.
func (f *Fleet) BookOr(r *Request, w int) int {
	f.mu.Lock()
	if f.view.Workers[w].Usable() {
		f.book(r, w)
		f.mu.Unlock()
		return w
	}
	f.mu.Unlock()
	return f.Route(r, w)
}

// Forget notes that a worker turned out not to hold an adapter.
func (f *Fleet) Forget(w int, a int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workers[w].held, a)
	f.workers[w].lost[a] = true
	f.workers[w].changes++
	f.view.Workers[w].Adapters[a].Tier = router.Disk
	f.slots(w)
}

// Assume takes a worker for healthy without asking it.
func (f *Fleet) Assume(w int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers[w].known = true
	f.view.Workers[w].Up = true
}
