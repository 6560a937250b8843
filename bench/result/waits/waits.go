// Package waits says what the requests of a simulated run wait for: the time that they lose to the steps of others,
// to a full KV cache, to adapters without a slot, and so on.
//
//	o := waits.New(slo, profiles, adapters)
//	... the run calls o.Done, o.Tier and o.Watch, the hooks of sim.Hooks ...
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
	"lorasim/sim/tick"
	"lorasim/trace"
)

// The things that requests wait for.
const (
	Compute    = iota // the worker's steps: those of others before their turn, or their own where they are too slow
	KVCache           // KV memory
	Slots             // a GPU slot for their adapter
	HostMemory        // their adapter, on its way to host memory
	Loads             // adapters that are brought from host memory to a GPU slot
	Routing           // a worker, while another one had room
	FrontEnd          // the engine's front end, which hands requests to the scheduler one by one
	NumCauses
)

// names are the causes in words.
var names = [NumCauses]string{"compute", "KV", "slots", "host memory", "loads", "routing", "front end"}

// Causes is the time that requests have lost to each of them, request-seconds.
type Causes [NumCauses]float64

// Add adds what requests lost in another run.
func (c *Causes) Add(o *Causes) {
	for i := range c {
		c[i] += o[i]
	}
}

// Bottleneck names the largest; Compute where nothing was lost.
func (c *Causes) Bottleneck() string {
	top := Compute
	for i, x := range c {
		if x > c[top] {
			top = i
		}
	}
	return names[top]
}

// String lists the causes by their shares, "Compute 71 %, KV 29 %".
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

// Name is a cause in words.
func Name(cause int) string { return names[cause] }

// Observer observes what requests wait for, after the warm-up. A request that was sent
// to a worker while another had room for it waits for the router as long as one has.
// Else, while it is in the worker's front end, it waits for that. Else, on a worker
// whose batch is full, it waits for KV memory (or for compute, if the batch has its
// largest number of requests). Else its adapter decides: it waits for the adapter's
// load, for its way to host memory, for a slot, or for the end of the step under way.
type Observer struct {
	observed
	slo     result.SLO
	all     bool // without an SLO: the first tokens of all requests count
	workers []worker
	ranks   []int    // of the adapters
	warm    observed // at the end of the warm-up
}

// observed are the sums of an observer.
type observed struct {
	waits  Causes
	astray float64 // requests
	first  float64 // s, TTFT of those that missed it
	cold   float64 // s, the part of it in which they waited for their adapters
	decode float64 // s, generation in requests that were too slow in it
	loads  float64 // of adapters to slots
	load   float64 // s, of them
	fetch  float64 // s, the part of it from beyond host memory
}

// less is what was observed since an earlier time.
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

// worker is how a worker was when it was last looked at.
type worker struct {
	engine       *profile.Engine
	costs        *profile.Costs
	tiers        []router.Tier // of the adapters
	load, queued int
	astray       float64 // of those that wait: sent there while another worker had room
}

// New returns an observer for a run on workers of the given profiles. Requests that miss a limit of the SLO have lost
// time, too, where they missed it; without limits, the time to the first token of every request counts.
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

// EndWarmup ends the warm-up: what was observed so far does not count. Without it, a run has none.
func (o *Observer) EndWarmup() {
	o.warm = o.observed
	o.warm.first, o.warm.cold, o.warm.decode = 0, 0, 0 // of requests after the warm-up alone
}

// Done is a hook of sim.Hooks, as are Tier and Watch. Requests of the warm-up are not to be told.
func (o *Observer) Done(r *record.Request) {
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

// Tier counts loads into GPU slots.
func (o *Observer) Tier(_ tick.Ticks, i int, a int32, t router.Tier) {
	w := &o.workers[i]
	if w.tiers == nil {
		return // the first Watch tells
	}
	if t == router.GPU {
		all := w.costs.Load(o.ranks[a], w.tiers[a])
		o.loads++
		o.load += all.Seconds()
		o.fetch += (all - min(all, w.costs.Load(o.ranks[a], router.Host))).Seconds()
	}
	w.tiers[a] = t
}

// Watch counts what requests wait for.
func (o *Observer) Watch(from, to tick.Ticks, v *router.View) {
	d, least, room := (to - from).Seconds(), 0, 0 // so many workers with the least load have room
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
			s.tiers = make([]router.Tier, len(w.Adapters))
			for a := range w.Adapters {
				s.tiers[a] = w.Adapters[a].Tier
			}
		}
	}
	for i := range v.Workers {
		w, s := &v.Workers[i], &o.workers[i]
		if w.Queued < s.queued {
			s.astray *= float64(w.Queued) / float64(s.queued)
		}
		more := w.Load() - s.load
		better := max(w.Load()-least, 0) * room / (room + 1) // so many would wait elsewhere no longer
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

// on is what the requests that wait on a worker wait for, as shares.
func on(w *router.Worker, e *profile.Engine) (shares Causes) {
	if w.Full && (w.Running >= w.MaxRunning || e.HeadOfLine != profile.HeadOfLineBlock) {
		if w.Running >= w.MaxRunning {
			shares[Compute] = 1
		} else {
			shares[KVCache] = 1
		}
		return shares
	}
	taken := w.ActiveLoras
	for a := range w.Adapters {
		if w.Adapters[a].Loading && w.Adapters[a].Running == 0 {
			taken++
		}
	}
	n := float64(w.Queued)
	shares[Compute] = 1
	for a := range w.Adapters {
		st := &w.Adapters[a]
		if st.Queued == 0 || st.Running > 0 {
			continue
		}
		cause := Compute
		switch {
		case st.Loading:
			cause = Loads
		case st.Tier < router.Host && e.Scheduler != profile.SchedulerVLLM:
			cause = HostMemory
		case taken >= e.Slots(len(w.Adapters)):
			cause = Slots
		}
		shares[cause] += float64(st.Queued) / n
		shares[Compute] -= float64(st.Queued) / n
	}
	if w.Full && shares[Slots] == 0 { // head_of_line block: memory, or one without a slot
		return Causes{KVCache: 1}
	}
	return shares
}

// Causes sums up what was observed, with what the workers counted. Who was sent to
// a worker that is not the least loaded may have been spared a load, which is then
// what it waits for; who waits for others to go on or to leave, waits for their
// adapters' loads for the part of the steps' time that these take.
func (o *Observer) Causes(res *result.Result) Causes {
	c, own := o.Parts(res)
	c[Compute] += own
	return c
}

// Parts is Causes with the requests' own steps apart, request-seconds: the prefill of those whose first token counts,
// and the generation of those that were too slow in it.
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
