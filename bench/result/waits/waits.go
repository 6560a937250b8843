// Package waits attributes the waiting time of requests in a simulated or live run to causes, such
// as the steps of other requests, a full KV cache, or adapters without a slot. An
// [Observer] follows the run and returns its [Causes]:
//
//	o := waits.New(slo, profiles, adapters)
//	... the run passes its events to o.Watcher() ...
//	c := o.Causes(result)
package waits

import (
	"cmp"
	"fmt"
	"slices"

	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// The causes of waiting.
const (
	Compute    = iota // steps of the worker: of earlier requests, or the request's own if they are too slow
	KVCache           // a full KV cache
	Slots             // no free GPU slot for the adapter
	HostMemory        // load of the adapter to host memory
	Loads             // load of an adapter from host memory to a GPU slot
	Routing           // waiting on a worker while another one had room
	FrontEnd          // the engine's front end, which passes requests to the scheduler one by one
	NumCauses         // number of causes
)

// names are the names of the causes.
var names = [NumCauses]string{"compute", "KV", "slots", "host memory", "loads", "routing", "front end"}

// Causes holds the time that requests lost to each cause, in request-seconds.
type Causes [NumCauses]float64

// Add adds the causes of another run.
func (c *Causes) Add(o *Causes) {
	for i := range c {
		c[i] += o[i]
	}
}

// Bottleneck returns the name of the largest cause; that of Compute if no time was lost.
func (c *Causes) Bottleneck() string {
	top := Compute
	for i, x := range c {
		if x > c[top] {
			top = i
		}
	}
	return names[top]
}

// String lists the causes with their shares, the largest first: "compute 71 %, KV 29 %".
// It omits shares below 0.5 %.
func (c *Causes) String() string {
	sum := 0.0
	order := make([]int, NumCauses)
	for i, x := range c {
		sum += x
		order[i] = i
	}
	if sum == 0 {
		return "none"
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c[b], c[a]) })
	text := ""
	for _, i := range order {
		if share := c[i] / sum; share >= 0.005 {
			text += fmt.Sprintf(", %s %s", names[i], format.Percent(share, 0))
		}
	}
	return text[2:]
}

// Name returns the name of a cause, such as "KV" for KVCache.
func Name(cause int) string { return names[cause] }

// An Observer observes the waiting requests of a run and their causes. The first condition
// that applies determines the cause:
//
//   - Routing: it was sent to a worker while another had room for it, and a worker still
//     has room.
//   - FrontEnd: it is in the worker's front end.
//   - KVCache or Compute: the worker's batch is full. It is Compute if the batch has its
//     largest number of requests.
//   - Loads, HostMemory or Slots: its adapter is being loaded, is not in host memory, or
//     has no slot.
//   - Compute: it waits for the end of the current step.
type Observer struct {
	observed
	slo     result.SLO
	all     bool // there is no SLO, so the TTFT of all requests counts
	workers []worker
	ranks   []int    // by adapter
	warm    observed // at the end of the warm-up
}

// observed are the sums of an observer.
type observed struct {
	waits  Causes
	astray float64 // requests sent to a worker while another had room
	first  float64 // s, TTFT of requests that missed the limit on it
	cold   float64 // s, the part of first spent waiting for adapters
	decode float64 // s, generation of requests that missed the limit on TPOT or E2E
	loads  float64 // number of adapter loads to slots
	load   float64 // s, time of the adapter loads to slots
	fetch  float64 // s, the part of load before host memory
}

// less returns the sums since an earlier time.
func (o observed) less(then *observed) observed {
	for i, x := range then.waits {
		o.waits[i] -= x
	}
	o.astray -= then.astray
	o.first -= then.first
	o.cold -= then.cold
	o.decode -= then.decode
	o.loads -= then.loads
	o.load -= then.load
	o.fetch -= then.fetch
	return o
}

// worker is the state of a worker in the latest state.
type worker struct {
	engine       *profile.Engine
	costs        *profile.Costs
	tiers        []router.Tier // by adapter
	load, queued int
	astray       float64 // waiting requests that were sent here while another worker had room
}

// New returns an observer for a run on workers with the given profiles, one per worker. The
// TTFT or generation time of requests that miss a limit of the SLO counts as lost time, too.
// Without limits the TTFT of every request counts.
func New(slo result.SLO, ps []*profile.Profile, adapters []trace.Adapter) *Observer {
	o := &Observer{slo: slo, all: slo.Empty(), workers: make([]worker, len(ps))}
	for i, p := range ps {
		o.workers[i].engine = &p.Engine
		if i > 0 && p == ps[i-1] {
			o.workers[i].costs = o.workers[i-1].costs
		} else {
			o.workers[i].costs = p.Compile()
		}
	}
	for _, a := range adapters {
		o.ranks = append(o.ranks, a.Rank)
	}
	return o
}

// EndWarmup ends the warm-up. Waits before the call do not count. Without the call, the run has no warm-up.
func (o *Observer) EndWarmup() {
	o.warm = o.observed
	o.warm.first, o.warm.cold, o.warm.decode = 0, 0, 0 // of requests after the warm-up alone
}

// Watcher returns the events that the observer needs.
func (o *Observer) Watcher() record.Watcher {
	return record.Watcher{Kinds: record.EventEnded | record.EventTier | record.EventState, Note: o.Note, Joined: true}
}

// Note adds an event. Do not call it for the ends of requests of the warm-up.
func (o *Observer) Note(e *record.Event) {
	switch e.Kind {
	case record.EventEnded:
		o.done(e.Request)
	case record.EventTier:
		o.tier(int(e.Worker), e.Adapter, e.Tier)
	case record.EventState:
		o.state((e.Until - e.From).Seconds(), e.View)
	}
}

func (o *Observer) done(r *record.Request) {
	if r.Status != record.OK {
		return
	}
	over := func(s, limit float64) bool { return limit > 0 && 1000*s > limit }
	if over(r.TTFT(), o.slo.TTFT) || o.all {
		o.first += r.TTFT()
		o.cold += min(r.ColdLoad, r.TTFT())
	}
	generating := r.Finish - r.FirstToken
	if over(generating/float64(max(r.Output-1, 1)), o.slo.TPOT) || over(r.E2E(), o.slo.E2E) {
		o.decode += generating
	}
}

// tier counts adapter loads to GPU slots.
func (o *Observer) tier(i int, a int32, t router.Tier) {
	w := &o.workers[i]
	if int(a) >= len(w.tiers) {
		return // the first state sets the tiers
	}
	if t == router.GPU {
		all := w.costs.Load(o.ranks[a], w.tiers[a])
		o.loads++
		o.load += all.Seconds()
		o.fetch += (all - min(all, w.costs.Load(o.ranks[a], router.Host))).Seconds()
	}
	w.tiers[a] = t
}

// state adds the waits of d seconds.
func (o *Observer) state(d float64, v *router.View) {
	least, room := 0, 0 // room: number of workers with room among those with the least load
	for i := range v.Workers {
		w := &v.Workers[i]
		if w.Usable() && w.Queued == 0 && w.Running < w.MaxRunning && w.ActiveLoras < w.Slots {
			if room == 0 || w.Load() < least {
				least, room = w.Load(), 1
			} else if w.Load() == least {
				room++
			}
		}
		if s := &o.workers[i]; s.tiers == nil {
			s.tiers = make([]router.Tier, w.NumAdapters())
			for a := range s.tiers {
				s.tiers[a] = w.Adapter(int32(a)).Tier
			}
		}
	}
	for i := range v.Workers {
		w, s := &v.Workers[i], &o.workers[i]
		if w.Queued < s.queued {
			s.astray *= float64(w.Queued) / float64(s.queued)
		}
		more := w.Load() - s.load
		better := max(w.Load()-least, 0) * room / (room + 1) // requests that would wait less on another worker
		astray := float64(max(min(more, better), 0))
		o.astray += astray
		s.astray = min(s.astray+astray, float64(w.Queued))
		s.load, s.queued = w.Load(), w.Queued
		if w.Queued == 0 {
			continue
		}
		moved := min(s.astray, float64(better))
		o.waits[Routing] += moved * d
		entering := float64(w.Entering) * (1 - moved/float64(w.Queued))
		o.waits[FrontEnd] += entering * d
		q := float64(w.Queued) - moved - entering
		for cause, share := range on(w, s.engine) {
			o.waits[cause] += share * q * d
		}
	}
}

// on returns the causes of the requests that wait on a worker, as shares.
func on(w *router.Worker, e *profile.Engine) (shares Causes) {
	Each(w, e, func(_ int32, n, cause int) { shares[cause] += float64(n) / float64(w.Queued) })
	return shares
}

// Each calls f for the requests that wait on a worker: n of an adapter (trace.BaseModel: of none) for a cause, see
// [Observer]. It does not look at other workers and at the front end.
func Each(w *router.Worker, e *profile.Engine, f func(adapter int32, n, cause int)) {
	if w.Full && w.Running >= w.MaxRunning {
		eachQueued(w, func(a int32, n int) { f(a, n, Compute) })
		return
	}
	slots := e.Slots(w.NumAdapters())
	noSlot := w.ActiveLoras >= slots || w.ActiveLoras+w.Loading() >= slots
	if w.Full && !(e.HeadOfLine == profile.HeadOfLineBlock && noSlot && anyWithoutSlot(w, e)) {
		// With head_of_line block, the first request waits for memory or for a slot.
		eachQueued(w, func(a int32, n int) { f(a, n, KVCache) })
		return
	}
	eachQueued(w, func(a int32, n int) {
		st := w.Adapter(a)
		cause := Compute
		switch {
		case a == trace.BaseModel || st.Running > 0:
		case st.Loading:
			cause = Loads
		case fromStore(st, e):
			cause = HostMemory
		case noSlot:
			cause = Slots
		}
		f(a, n, cause)
	})
}

// fromStore reports whether an adapter has to come to host memory first, beside the engine's steps.
func fromStore(st router.AdapterState, e *profile.Engine) bool {
	return st.Tier < router.Host && e.Scheduler != profile.SchedulerVLLM
}

// anyWithoutSlot reports whether requests wait whose adapter needs only a slot.
func anyWithoutSlot(w *router.Worker, e *profile.Engine) bool {
	return slices.ContainsFunc(w.InFlight(), func(f router.AdapterRequests) bool {
		st := w.Adapter(f.Adapter)
		return f.Queued > 0 && f.Running == 0 && !st.Loading && !fromStore(st, e)
	})
}

// eachQueued calls f for each adapter with waiting requests, and for the base model.
func eachQueued(w *router.Worker, f func(adapter int32, n int)) {
	base := w.Queued
	for _, a := range w.InFlight() {
		if n := int(a.Queued); n > 0 {
			base -= n
			f(a.Adapter, n)
		}
	}
	if base > 0 {
		f(trace.BaseModel, base)
	}
}

// Causes returns the causes of a run from the observed waits and the workers' counters in
// res. Two corrections apply. A request sent to a worker that is not the least loaded may
// have saved an adapter load; the time of that load counts as Loads or HostMemory, not as
// Routing. If adapter loads take a share of the workers' busy time, the same share of the
// waits for Compute, KVCache and Slots counts as Loads or HostMemory.
func (o *Observer) Causes(res *result.Result) Causes {
	c, own := o.Parts(res)
	c[Compute] += own
	return c
}

// Parts returns Causes without the requests' own steps, and the own steps in
// request-seconds. These are the prefill of requests whose TTFT counts, and the generation
// of requests that missed a limit on TPOT or E2E.
func (o *Observer) Parts(res *result.Result) (c Causes, own float64) {
	seen := o.observed.less(&o.warm)
	waited := 0.0
	c = seen.waits
	for _, x := range seen.waits {
		waited += x
	}
	prefill := max(0, seen.first-waited)
	cold := min(prefill, max(0, seen.cold-c[Loads]-c[HostMemory]))
	own = seen.decode + prefill - cold
	busy, stalled := 0.0, 0.0
	duration, _ := res.Metrics.Get(result.Duration)
	for _, w := range res.Extra.Workers {
		busy += w.Busy * duration
		stalled += w.LoadTime
	}
	spared := min(c[Routing], seen.astray*seen.load/max(seen.loads, 1))
	c[Routing] -= spared
	cold += spared
	loading := stalled / max(busy, stalled, 1e-9)
	for _, x := range []*float64{&c[Compute], &own, &c[KVCache], &c[Slots]} {
		lost := *x * loading
		*x -= lost
		cold += lost
	}
	fetched := cold * seen.fetch / max(seen.load, 1e-9)
	c[HostMemory] += fetched
	c[Loads] += cold - fetched
	return c, own
}
