package planroute

import (
	"math"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/trace"
)

// slotPool prices the slots of the cluster. An adapter that is in use on one worker and gets a request on another one
// occupies two slots; where slots are scarce, another adapter then waits for one. That has no price if the adapter
// needs both slots, since the batches or the KV caches of the workers where it is in use are full.
type slotPool struct {
	cost  float64      // executions that others lose for each adapter that waits for a slot
	usage average.Mean // share of the slots that adapters with requests would take, at the latest requests
	price float64      // executions that a second slot costs the request at hand; 0: its adapter is not in use
	// Requests in flight by adapter, the adapters that have some, and these as a share of the slots, on average.
	inFlight []int32
	active   int
	needed   average.Mean
	fresh    average.Mean // share of requests that find no other one of their adapter in flight

	crowded bool // no slot is free
	inUse   int  // workers, up to 2, that have requests of the adapter and room for one more
}

const (
	usageMemory = 300 // requests that usage is an average over
	mostPooled  = 256 // slots of a pool; a larger cluster is priced as a pool of that size with the same usage
)

// newSlotPool begins with all adapters in use: until requests tell otherwise they are kept together, since an adapter
// that is always in use on two workers never gives its second slot back.
func newSlotPool(cost float64, env router.Env) slotPool {
	slots := 0
	for j := range env.Workers {
		slots += env.Workers[j].Slots
	}
	all := average.Mean{Value: min(float64(len(env.Adapters))/float64(max(slots, 1)), 1), N: usageMemory}
	return slotPool{cost: cost, usage: all, needed: all, inFlight: make([]int32, len(env.Adapters))}
}

// count adds a request of an adapter that was sent to a worker (n = 1), or one that has left it (n = -1).
func (p *slotPool) count(adapter, n int32) {
	if adapter == trace.BaseModel {
		return
	}
	before := p.inFlight[adapter]
	p.inFlight[adapter] = max(before+n, 0)
	switch after := p.inFlight[adapter]; {
	case before == 0 && after > 0:
		p.active++
	case before > 0 && after == 0:
		p.active--
	}
}

// look notes how many slots of a cluster are in use when a request comes. Load is that of its adapter, in the time of
// an execution; negative: it has none.
func (p *slotPool) look(slots, taken int, load float64) {
	fresh := 0.0
	if load >= 0 {
		fresh = math.Exp(-load) // the queue M/M/infinity is empty
	}
	p.fresh.AddUpTo(fresh, usageMemory)
	if slots > 0 {
		p.usage.AddUpTo(float64(taken)/float64(slots), usageMemory)
		p.needed.AddUpTo(min(float64(p.active)/float64(slots), 1), usageMemory)
	}
}

// adopt begins with the requests and the usage of a cluster that runs.
func (p *slotPool) adopt(v *router.View, slots, taken int) {
	for j := range v.Workers {
		for _, f := range v.Workers[j].InFlight() {
			p.count(f.Adapter, f.Running+f.Queued)
		}
	}
	if slots > 0 {
		p.usage = average.Mean{Value: float64(taken) / float64(slots), N: usageMemory}
		p.needed = average.Mean{Value: min(float64(p.active)/float64(slots), 1), N: usageMemory}
	}
}

// allReturn is the probability that within an execution as many of the adapters without requests come back as slots are
// free. Erlang's formula lets the slots in use become free in this time, but adapters with frequent requests keep them.
// It is 0 if there are more adapters than slots: then they take turns anyway.
func (p *slotPool) allReturn(adapters, slots, taken int, requests float64) float64 {
	idle, free := adapters-p.active, slots-taken
	if adapters > slots || free <= 0 || idle < free {
		return 0
	}
	usual := max(float64(adapters)-p.needed.Value*float64(slots), 1e-9) // adapters without requests
	return atLeast(free, idle, -math.Expm1(-requests*p.fresh.Value/usual))
}

// atLeast is the probability of n or more successes in trials with probability q each.
func atLeast(n, trials int, q float64) float64 {
	switch {
	case n > trials:
		return 0
	case q >= 1:
		return 1
	}
	sum, term := 0.0, math.Pow(1-q, float64(trials))
	for i := range n {
		sum += term
		term *= float64(trials-i) / float64(i+1) * q / (1 - q)
	}
	return max(1-sum, 0)
}

// beginPool prices a second slot for the adapter of a request.
func (p *planAndRoute) beginPool(r *router.Request, v *router.View) {
	pool := &p.pool
	pool.price, pool.inUse = 0, 0
	if r.Adapter == trace.BaseModel || pool.cost == 0 {
		return
	}
	if pool.inUse = p.inUse(r, v); pool.inUse == 0 {
		return
	}
	slots, taken := p.slots(v)
	pool.crowded = taken >= slots
	back := pool.allReturn(len(p.adapters), slots, taken, p.exec.Or(guessExec)/max(p.gap.Value, 1e-9))
	if slots > mostPooled {
		taken, slots = taken*mostPooled/slots, mostPooled
	}
	soon := blockedBySlot(max(pool.usage.Value*float64(slots), float64(taken)), taken, slots)
	pool.price = pool.cost * max(soon, back)
}

// inUse counts, up to 2, the usable workers that have requests of the adapter, and room for one more in the batch and,
// by count, in the KV cache. Without any, the adapter needs a second slot: it could not do without it. Requests that
// wait for a slot take no room.
func (p *planAndRoute) inUse(r *router.Request, v *router.View) (workers int) {
	for j, w := range v.Having(r.Adapter) {
		st := w.Adapter(r.Adapter)
		if st.Running+st.Queued == 0 || w.MaxRunning > 0 && w.Load() >= w.MaxRunning &&
			w.Load()-p.crowdOf(j, w, v.Now).slotless >= w.MaxRunning {
			continue
		}
		if l := &p.backlogs[j]; l.need(*r, int64(p.holds(w)), w, w.Queued) <= l.room(w) {
			if workers++; workers == 2 {
				break
			}
		}
	}
	return workers
}

// secondSlot is the price, in executions, that others pay if the request at hand goes to a worker where its adapter has
// that state. If n requests of the adapter are there already, one more keeps the slot in use for 1/(n+1) executions
// more on average. So an adapter gives a slot back in which few of its requests run. Where no slot is free, its own
// slots have no price: an adapter with many requests needs several.
func (p *slotPool) secondSlot(st router.AdapterState) float64 {
	n := st.Running + st.Queued
	if n > 0 && p.crowded {
		return 0
	}
	return p.price / float64(n+1)
}

// keepsSlot is the delay, s, of the requests that wait for a slot on a worker if the request at hand goes there, whose
// adapter runs there and has another slot with room. Beside n requests, one more keeps the slot for exec/(n+1) longer
// on average. That delays those who wait if the slot is the next one to become free.
func (p *planAndRoute) keepsSlot(k int32, st router.AdapterState, c *crowd, exec float64) float64 {
	if p.pool.inUse < 2 {
		return 0
	}
	ends := endRate(st.Running, p.rates[k].perSecond*exec)
	return float64(c.slotless) * exec / float64(st.Running+st.Queued+1) * ends / max(c.freed, ends)
}

// blockedBySlot is how many adapters find no free slot on average because one more slot is taken. They come as a
// Poisson process, and would take offered slots on average if there were no limit; taken of the slots are in use.
//
// Where no slot is free it is 1, however many adapters wait. Those have their turns first, and the request's own wait
// for them is part of the time to its first token. Later requests for an adapter that waits take no turn of their own,
// so one turn more does not delay all that come until the queue is empty.
//
// The number is E(slots)/E(taken), with Erlang's probability of blocking E(n) for n slots (K. R. Krishnan and T. J.
// Ott, State-Dependent Routing for Telephone Traffic: Theory and Results, CDC 1986).
func blockedBySlot(offered float64, taken, slots int) float64 {
	if taken >= slots {
		return 1
	}
	inverse, before := 1.0, 1.0 // 1/E(0), 1/E(taken)
	for n := 1; n <= slots; n++ {
		inverse = 1 + float64(n)/offered*inverse // 1/E(n), from 1/E(n-1)
		if n == taken {
			before = inverse
		}
	}
	return before / inverse
}
