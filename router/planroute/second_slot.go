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

	inUse    []bool  // by adapter: whether a usable worker has requests of it, as of the latest look
	adapters int     // in use
	left     []int32 // adapters of requests that have left a worker since
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
	return slotPool{cost: cost, inUse: make([]bool, len(env.Adapters)), usage: average.Mean{
		Value: min(float64(len(env.Adapters))/float64(max(slots, 1)), 1), N: usageMemory}}
}

// look notes how many slots of a cluster are in use now.
func (p *slotPool) look(slots, taken int) {
	if slots > 0 {
		p.usage.AddUpTo(float64(taken)/float64(slots), usageMemory)
	}
}

// set notes whether an adapter is in use.
func (p *slotPool) set(k int32, used bool) {
	switch {
	case k == trace.BaseModel || used == p.inUse[k]:
		return
	case used:
		p.adapters++
	default:
		p.adapters--
	}
	p.inUse[k] = used
}

// lookAgain looks at the adapters of requests that have left a worker.
func (p *slotPool) lookAgain(v *router.View) {
	for _, k := range p.left {
		p.set(k, isInUse(k, v))
	}
	p.left = p.left[:0]
}

// isInUse says whether a usable worker has requests of an adapter.
func isInUse(k int32, v *router.View) bool {
	for _, w := range v.Having(k) {
		if st := w.Adapter(k); st.Running+st.Queued > 0 {
			return true
		}
	}
	return false
}

// crowdsOut says whether a second slot makes another adapter wait although the cluster has a slot for each: the second
// slots that are in use already are as many as are left over.
func (p *slotPool) crowdsOut(slots, taken int) bool {
	return len(p.inUse) <= slots && taken-p.adapters >= slots-len(p.inUse)
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
	pool.price = 0
	if r.Adapter == trace.BaseModel || pool.cost == 0 || !p.inUse(r, v) {
		return
	}
	slots, taken := p.slots(v)
	cost := pool.cost
	if pool.crowdsOut(slots, taken) {
		cost *= p.busyPeriod(r.Adapter, v)
	}
	if slots > mostPooled {
		taken, slots = taken*mostPooled/slots, mostPooled
	}
	pool.price = cost * othersDelayed(max(pool.usage.Value*float64(slots), float64(taken)), taken, slots)
}

// busyPeriod is for how many executions an adapter keeps a second slot. Its requests that come while others are there pay
// nothing for the slot. It is the busy period of a queue M/M/infinity, if the adapter's requests are spread evenly over
// the workers that have some and the new one.
func (p *planAndRoute) busyPeriod(k int32, v *router.View) float64 {
	workers := 1
	for _, w := range v.Having(k) {
		if st := w.Adapter(k); st.Running+st.Queued > 0 {
			workers++
		}
	}
	load := p.rates[k].perSecond * p.exec.Or(guessExec) / float64(workers)
	if load < 1e-6 {
		return 1
	}
	return min(math.Expm1(load)/load, longestBusy)
}

// longestBusy is the longest busy period that a second slot is priced with, in executions.
const longestBusy = 100

// inUse says whether a usable worker has requests of the adapter, and has room for one more in its batch and, by count,
// in its KV cache: else the adapter needs a second slot, and the slot is not one that it could do without.
func (p *planAndRoute) inUse(r *router.Request, v *router.View) bool {
	for j, w := range v.Having(r.Adapter) {
		st := w.Adapter(r.Adapter)
		if st.Running+st.Queued == 0 || w.MaxRunning > 0 && w.Load() >= w.MaxRunning {
			continue
		}
		if l := &p.backlogs[j]; l.need(*r, int64(p.holds(w)), w, w.Queued) <= l.room(w) {
			return true
		}
	}
	return false
}

// secondSlot is the price, in executions, that others pay if the request at hand goes to a worker where its adapter has
// that state.
func (p *slotPool) secondSlot(st router.AdapterState) float64 {
	if st.Running+st.Queued > 0 {
		return 0
	}
	return p.price
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
	blocking, blocked := 1.0, 1.0 // E(0)
	for n := 1; n <= slots; n++ {
		ratio := offered / (float64(n) + offered*blocking) // E(n)/E(n-1)
		blocking *= ratio
		if n > taken {
			blocked *= ratio
		}
	}
	return blocked
}
