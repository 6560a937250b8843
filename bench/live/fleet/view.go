package fleet

import (
	"cmp"
	"slices"
	"sync/atomic"

	"lorasim/router"
	"lorasim/trace"
)

// Request is a request in flight, as routers and planners know it. Its fields
// are set by its owner and not changed while the fleet has it.
type Request struct {
	router.Request         // but for Expected, which the fleet fills in
	Output         int32   // tokens it will generate, where routers are to know; 0: they expect
	Sent           float64 // s on the fleet's clock
	// Move, where set, asks the owner to take the request to another worker; it
	// must not block. It returns false where the request cannot go.
	Move func(from, to int) bool

	generated atomic.Int32
	worker    int // -1: none; this and the next guarded by Fleet.mu
	running   bool
}

// Generated is the number of tokens so far.
func (r *Request) Generated() int { return int(r.generated.Load()) }

// Route picks a worker for a request and books it there; router.None: no worker
// is usable. avoid is a worker to pass over if there is another, -1: none.
func (f *Fleet) Route(r *Request, avoid int) int {
	defer f.lock()()
	v := f.fresh()
	var hidden bool
	if avoid >= 0 && f.usable(avoid) > 0 {
		hidden = v.Workers[avoid].Up
		v.Workers[avoid].Up = false
	}
	f.expect(r)
	w := f.cfg.Router.Policy.Route(r.Request, v)
	if hidden {
		v.Workers[avoid].Up = true
	}
	if w != router.None {
		f.book(r, w)
		f.adjustLocked()
	}
	return w
}

// Refuse says why the router does not take a request, "" if it does, and in how many
// seconds it may be worth another try.
func (f *Fleet) Refuse(r *Request) (reason string, after float64) {
	if f.cfg.Router.Admission == nil {
		return "", 0
	}
	defer f.lock()()
	f.expect(r)
	return f.cfg.Router.Admission.Refuse(r.Request, f.fresh())
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
	defer f.lock()()
	f.book(r, w)
}

// BookOr puts a request on the worker that a plan wants, or, if that is not
// usable any more, on one that the policy picks.
func (f *Fleet) BookOr(r *Request, w int) int {
	f.mu.Lock()
	usable := f.view.Workers[w].Usable()
	if usable {
		f.book(r, w)
	}
	f.mu.Unlock()
	if !usable {
		return f.Route(r, w)
	}
	return w
}

// First is the first usable worker that holds an adapter, else the first usable
// one; router.None: there is none.
func (f *Fleet) First(a int32) int {
	defer f.lock()()
	first := router.None
	for i, k := range f.workers {
		switch {
		case !k.view.Usable():
		case a == trace.BaseModel || k.adapters[a].held:
			return i
		case first == router.None:
			first = i
		}
	}
	return first
}

// expect fills in the output that routers expect of a request, from its first
// booking on.
func (f *Fleet) expect(r *Request) {
	if r.Expected == 0 {
		r.Expected = cmp.Or(r.Output, f.outputs.Expect(r.Adapter, r.MaxNew))
	}
}

func (f *Fleet) book(r *Request, w int) {
	f.expect(r)
	k := f.workers[w]
	r.worker, r.running = w, false
	k.requests[r.ID] = r
	k.view.Tokens += int64(r.Prompt) + int64(r.Expected)
	k.count(r, 0, 1)
	if r.Adapter != trace.BaseModel {
		k.adapters[r.Adapter].leaving = false // it is needed after all
		k.view.MaxRank = max(k.view.MaxRank, f.cfg.Adapters[r.Adapter].Rank)
	}
}

// count changes the requests that run and that wait by a request.
func (k *worker) count(r *Request, running, queued int32) {
	v := k.view
	v.Running += int(running)
	v.Queued += int(queued)
	v.QueuedToks += int64(queued) * int64(r.Prompt)
	if running != 0 {
		k.kv.Add(int64(running) * (int64(r.Prompt) + int64(r.generated.Load())))
	}
	if r.Adapter != trace.BaseModel {
		v.Count(r.Adapter, running, queued)
	}
}

// Tokens notes n new tokens of a request; with the first on a worker it counts
// as running there.
func (f *Fleet) Tokens(r *Request, n int, first bool) {
	r.generated.Add(int32(n))
	k := f.workers[r.worker] // only the owner changes it
	if !first {
		k.kv.Add(int64(n))
		return
	}
	defer f.lock()()
	if k.requests[r.ID] != r || r.running {
		return
	}
	r.running = true
	k.count(r, 1, -1)
	if r.Adapter != trace.BaseModel {
		k.used(r.Adapter)
	}
}

// Left takes a request off its worker.
func (f *Fleet) Left(r *Request) {
	defer f.lock()()
	if r.worker < 0 {
		return
	}
	k := f.workers[r.worker]
	v := k.view
	r.worker = -1
	delete(k.requests, r.ID)
	v.Tokens -= int64(r.Prompt) + int64(r.Expected)
	if r.running {
		k.count(r, -1, 0)
	} else {
		k.count(r, 0, -1)
	}
	if r.Adapter == trace.BaseModel {
		return
	}
	st := &v.Adapters[r.Adapter]
	if st.Running+st.Queued == 0 && f.cfg.Adapters[r.Adapter].Rank == v.MaxRank {
		v.MaxRank = 0
		for a := range v.Adapters {
			if st := &v.Adapters[a]; st.Running+st.Queued > 0 {
				v.MaxRank = max(v.MaxRank, f.cfg.Adapters[a].Rank)
			}
		}
	}
	if st.Running == 0 {
		k.slots()
	}
	if k.postedOf(r.Adapter) <= 0 {
		k.notify()
	}
}

// Finished notes the output of a request that ended well, and tells a policy that
// learns; exec is the time from its first token to its end.
func (f *Fleet) Finished(r *Request, w int, exec float64) {
	defer f.lock()()
	f.outputs.Ended(r.Adapter, r.generated.Load())
	if l, ok := f.cfg.Router.Policy.(router.Learner); ok {
		l.Finished(router.Finished{Adapter: r.Adapter, Worker: int32(w), Output: r.generated.Load(), Exec: exec, Now: f.cfg.Now()})
	}
}

// fresh brings the view up to now.
func (f *Fleet) fresh() *router.View {
	f.view.Now = max(f.view.Now, f.cfg.Now())
	for _, k := range f.workers {
		k.view.KVUsed = k.kv.Load()
		k.view.Age = f.view.Now - k.polled
	}
	if f.stale != nil {
		return f.stale.Update(&f.view)
	}
	return &f.view
}

// used notes that a request with the adapter runs on the worker: its weights are
// in a GPU slot now, and those used least recently have made room.
func (k *worker) used(a int32) {
	if i := slices.Index(k.lru, a); i >= 0 {
		k.lru = slices.Delete(k.lru, i, i+1)
	}
	k.lru = slices.Insert(k.lru, 0, a)
	k.slots()
}

// slots derives the tiers of adapters from their latest uses.
func (k *worker) slots() {
	k.lru = slices.DeleteFunc(k.lru, func(a int32) bool { return !k.adapters[a].held })
	v := k.view
	v.SlotsUsed, v.SlotsIdle = 0, 0
	for i, a := range k.lru {
		st := &v.Adapters[a]
		if st.Tier = router.Host; v.Slots == 0 || i < v.Slots {
			st.Tier = router.GPU
			v.SlotsUsed++
			if st.Running == 0 {
				v.SlotsIdle++
			}
		}
	}
}

// resetTiers enters that the worker holds nothing but what held says.
func (k *worker) resetTiers() {
	for a, s := range k.adapters {
		k.view.Adapters[a].Tier = router.Disk
		if s.held {
			k.view.Adapters[a].Tier = router.Host
		}
	}
	k.slots()
}

// foreign notes what the worker says of its load beyond the fleet's own requests,
// at a time: own is the largest number of these while it was asked.
func (k *worker) foreign(l load, own int, now float64) {
	others := max(l.Running+l.Queued-own, 0)
	queued := min(others, l.Queued)
	k.view.Queued += queued - k.foreignQueued
	k.view.Running += others - queued - k.foreignRunning
	k.foreignQueued, k.foreignRunning, k.polled = queued, others-queued, now
}
