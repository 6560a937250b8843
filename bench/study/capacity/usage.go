package capacity

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
)

// The things that requests wait for.
const (
	compute    = iota // the worker's steps: those of others before their turn, or their own where they are too slow
	kvCache           // KV memory
	slots             // a GPU slot for their adapter
	hostMemory        // their adapter, on its way to host memory
	loads             // adapters that are brought from host memory to a GPU slot
	routing           // a worker, while another one had room
	frontEnd          // the engine's front end, which hands requests to the scheduler one by one
	numCauses
)

var causeNames = [numCauses]string{"compute", "KV", "slots", "host memory", "loads", "routing", "front end"}

// Causes is the time that requests have lost to each of them, request-seconds.
type Causes [numCauses]float64

func (c *Causes) add(o *Causes) {
	for i := range c {
		c[i] += o[i]
	}
}

// Bottleneck names the largest; compute where nothing was lost.
func (c *Causes) Bottleneck() string {
	top := compute
	for i, x := range c {
		if x > c[top] {
			top = i
		}
	}
	return causeNames[top]
}

// String lists the causes by their shares, "compute 71 %, KV 29 %".
func (c *Causes) String() string {
	sum := 0.0
	order := make([]int, numCauses)
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
			text += fmt.Sprintf(", %s %s", causeNames[i], format.Percent(share, 0))
		}
	}
	return text[2:]
}

// usage observes what requests wait for, after the warm-up. A request that was sent
// to a worker while another had room for it waits for the router as long as one has.
// Else, while it is in the worker's front end, it waits for that. Else, on a worker
// whose batch is full, it waits for KV memory (or for compute, if the batch has its
// largest number of requests). Else its adapter decides: it waits for the adapter's
// load, for its way to host memory, for a slot, or for the end of the step under way.
type usage struct {
	counter
	observed
	workers []worker
	ranks   []int    // of the adapters
	warm    observed // at the end of the warm-up
	warmed  bool     // it is over
}

// observed are the sums of a usage.
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

func newUsage(o *Options, ps []*profile.Profile, src *scaled) *usage {
	u := &usage{counter: counter{opt: o, src: src}, workers: make([]worker, len(ps))}
	for i, p := range ps {
		u.workers[i].engine = &p.Engine
		if i > 0 && p == ps[i-1] {
			u.workers[i].costs = u.workers[i-1].costs
		} else {
			u.workers[i].costs = p.Compile()
		}
	}
	for _, a := range src.Adapters() {
		u.ranks = append(u.ranks, a.Rank)
	}
	return u
}

// Done is a hook of sim.Hooks, as are Tier and Watch.
func (u *usage) Done(r *record.Request) {
	u.counter.Done(r)
	if r.Status != record.OK || r.ID < u.src.size.warm {
		return
	}
	over := func(s, limit float64) bool { return limit > 0 && 1000*s > limit }
	if over(r.TTFT(), u.opt.SLO.TTFT) {
		u.first += r.TTFT()
		u.cold += min(r.ColdLoad, r.TTFT())
	}
	generating := r.Finish - r.FirstToken
	if over(generating/float64(max(r.Output-1, 1)), u.opt.SLO.TPOT) || over(r.E2E(), u.opt.SLO.E2E) {
		u.decode += generating
	}
}

// Tier counts loads into GPU slots.
func (u *usage) Tier(_ tick.Ticks, i int, a int32, t router.Tier) {
	w := &u.workers[i]
	if w.tiers == nil {
		return // the first Watch tells
	}
	if t == router.GPU {
		all := w.costs.Load(u.ranks[a], w.tiers[a])
		u.loads++
		u.load += all.Seconds()
		u.fetch += (all - min(all, w.costs.Load(u.ranks[a], router.Host))).Seconds()
	}
	w.tiers[a] = t
}

// Watch counts what requests wait for.
func (u *usage) Watch(from, to tick.Ticks, v *router.View) {
	d, least, room := (to - from).Seconds(), 0, 0 // so many workers with the least load have room
	if !u.warmed && u.src.read >= u.src.size.warm {
		u.warmed, u.warm = true, u.observed
		u.warm.first, u.warm.cold, u.warm.decode = 0, 0, 0 // of requests after the warm-up alone
	}
	for i := range v.Workers {
		w := &v.Workers[i]
		if w.Usable() && w.Queued == 0 && w.Running < w.MaxRunning && w.ActiveLoras < w.Slots {
			if room == 0 || w.Load() < least {
				least, room = w.Load(), 1
			} else if w.Load() == least {
				room++
			}
		}
		if s := &u.workers[i]; s.tiers == nil {
			s.tiers = make([]router.Tier, len(w.Adapters))
			for a := range w.Adapters {
				s.tiers[a] = w.Adapters[a].Tier
			}
		}
	}
	for i := range v.Workers {
		w, s := &v.Workers[i], &u.workers[i]
		if w.Queued < s.queued {
			s.astray *= float64(w.Queued) / float64(s.queued)
		}
		more := w.Load() - s.load
		better := max(w.Load()-least, 0) * room / (room + 1) // so many would wait elsewhere no longer
		astray := float64(max(min(more, better), 0))
		u.astray += astray
		s.astray = min(s.astray+astray, float64(w.Queued))
		s.load, s.queued = w.Load(), w.Queued
		if w.Queued == 0 {
			continue
		}
		moved := min(s.astray, float64(better))
		u.waits[routing] += moved * d
		entering := float64(w.Entering) * (1 - moved/float64(w.Queued))
		u.waits[frontEnd] += entering * d
		q := float64(w.Queued) - moved - entering
		for cause, share := range on(w, s.engine) {
			u.waits[cause] += share * q * d
		}
	}
}

// on is what the requests that wait on a worker wait for, as shares.
func on(w *router.Worker, e *profile.Engine) (shares Causes) {
	if w.Full && (w.Running >= w.MaxRunning || e.HeadOfLine != profile.HeadOfLineBlock) {
		if w.Running >= w.MaxRunning {
			shares[compute] = 1
		} else {
			shares[kvCache] = 1
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
	shares[compute] = 1
	for a := range w.Adapters {
		st := &w.Adapters[a]
		if st.Queued == 0 || st.Running > 0 {
			continue
		}
		cause := compute
		switch {
		case st.Loading:
			cause = loads
		case st.Tier < router.Host && e.Scheduler != profile.SchedulerVLLM:
			cause = hostMemory
		case taken >= e.Slots(len(w.Adapters)):
			cause = slots
		}
		shares[cause] += float64(st.Queued) / n
		shares[compute] -= float64(st.Queued) / n
	}
	if w.Full && shares[slots] == 0 { // head_of_line block: memory, or one without a slot
		return Causes{kvCache: 1}
	}
	return shares
}

// causes sums up what was observed, with what the workers counted. Who was sent to
// a worker that is not the least loaded may have been spared a load, which is then
// what it waits for; who waits for others to go on or to leave, waits for their
// adapters' loads for the part of the steps' time that these take.
func (u *usage) causes(res *result.Result) Causes {
	o := u.observed.less(&u.warm)
	c, waited := o.waits, 0.0
	for _, x := range o.waits {
		waited += x
	}
	own := max(0, o.first-waited) // in their own prefill steps
	cold := min(own, max(0, o.cold-c[loads]-c[hostMemory]))
	c[compute] += o.decode + own - cold
	busy, stalled := 0.0, 0.0
	duration, _ := res.Metrics.Get(result.Duration)
	for _, w := range res.Extra.Workers {
		busy += w.Busy * duration
		stalled += w.LoadTime
	}
	spared := min(c[routing], o.astray*o.load/max(o.loads, 1))
	c[routing] -= spared
	cold += spared
	for _, cause := range []int{compute, kvCache, slots} {
		lost := c[cause] * stalled / max(busy, stalled, 1e-9)
		c[cause] -= lost
		cold += lost
	}
	fetched := cold * o.fetch / max(o.load, 1e-9)
	c[hostMemory] += fetched
	c[loads] += cold - fetched
	return c
}
