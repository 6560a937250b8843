package planroute

import (
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

	crowded bool // no slot is free
	inUse   int  // workers, up to 2, that have requests of the adapter and room for one more
}

const (
	usageMemory = 300 // requests that usage is an average over
	mostUsed    = 0.9 // usage that a queue for slots is priced with, near saturation
	mostPooled  = 256 // slots of a pool; a larger cluster is priced as a pool of that size with the same usage
)

// newSlotPool begins with all adapters in use: until requests tell otherwise they are kept together, since an adapter
// that is always in use on two workers never gives its second slot back.
func newSlotPool(cost float64, env router.Env) slotPool {
	slots := 0
	for j := range env.Workers {
		slots += env.Workers[j].Slots
	}
	return slotPool{cost: cost, usage: average.Mean{
		Value: min(float64(len(env.Adapters))/float64(max(slots, 1)), 1), N: usageMemory}}
}

// look notes how many slots of a cluster are in use now.
func (p *slotPool) look(slots, taken int) {
	if slots > 0 {
		p.usage.AddUpTo(float64(taken)/float64(slots), usageMemory)
	}
}

// adopt begins with the usage of a cluster that runs.
func (p *slotPool) adopt(slots, taken int) {
	if slots > 0 {
		p.usage = average.Mean{Value: float64(taken) / float64(slots), N: usageMemory}
	}
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
	if slots > mostPooled {
		taken, slots = taken*mostPooled/slots, mostPooled
	}
	pool.price = pool.cost * othersDelayed(max(pool.usage.Value*float64(slots), float64(taken)), taken, slots)
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

// othersDelayed is how many adapters wait for a slot on average because one more slot is taken. If adapters wait
// already, taken counts them. One more takes its turn before all that come until the queue is empty: each that waits
// adds 1/(slots*(1-usage)), as in the queue M/M/slots, whose relative values are quadratic in the queue.
func othersDelayed(offered float64, taken, slots int) float64 {
	waiting := max(taken-slots, 0)
	return blockedBySlot(offered, taken, slots) * (1 + float64(waiting)/(float64(max(slots, 1))*(1-mostUsed)))
}

// blockedBySlot is how many adapters find no free slot on average because one more slot is taken. They come as a
// Poisson process, and would take offered slots on average if there were no limit; taken of the slots are in use.
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
