package planroute

import (
	"slices"

	"lorasim/router"
	"lorasim/trace"
)

// firstUses are the adapters that each worker has used since it started. A server's front end takes time for the first
// use of an adapter.
type firstUses struct {
	used  []bool  // used[k*workers+j]: adapter k on worker j; nil: no front end takes time for the first use
	known []int32 // by adapter: workers that take no more time for it
	takes []bool  // by worker: its front end takes time
}

func newFirstUses(env *router.Env) (u firstUses) {
	if !slices.ContainsFunc(env.Workers, func(s router.Spec) bool { return s.FirstUse > 0 }) {
		return u
	}
	u.used = make([]bool, len(env.Workers)*len(env.Adapters))
	u.takes = make([]bool, len(env.Workers))
	never := int32(0)
	for j := range env.Workers {
		if u.takes[j] = env.Workers[j].FirstUse > 0; !u.takes[j] {
			never++
		}
	}
	u.known = slices.Repeat([]int32{never}, len(env.Adapters))
	return u
}

// isFirst says whether a request would be the first of its adapter on a worker whose front end takes time for that.
func (u *firstUses) isFirst(k int32, j int) bool {
	return u.used != nil && k != trace.BaseModel && u.takes[j] && !u.used[int(k)*len(u.takes)+j]
}

// note notes a request.
func (u *firstUses) note(k int32, j int) {
	if u.isFirst(k, j) {
		u.used[int(k)*len(u.takes)+j] = true
		u.known[k]++
	}
}

// forget notes that a worker starts anew.
func (u *firstUses) forget(j int) {
	for k := range u.known {
		if used := &u.used[k*len(u.takes)+j]; *used {
			*used = false
			u.known[k]--
		}
	}
}

// queues is when a request sent now is in the worker's queue unless it is the first one of its adapter, s.
func (l *backlog) queues(s *router.Spec, now float64) float64 {
	return max(l.entered, now) + s.FrontEnd
}

// enters is when a request sent now to a worker will have passed its front end, s.
func (p *accounts) enters(k int32, j int, now float64) float64 {
	s := &p.workers[j]
	t := p.backlogs[j].queues(s, now)
	if p.uses.isFirst(k, j) {
		t += s.FirstUse
	}
	return t
}

// firstUseDelay returns the delay, s, that a request causes for others by the first use of its adapter on a worker.
// The first use occupies the front end for x seconds. The front end is busy for another b seconds anyway. A request
// that arrives within these b seconds waits x longer. A request that arrives in the x seconds after them waits x/2
// longer on average. The front end has no time for that while it works for others: with the utilization u it is behind
// for 1/(1-u) times as long (the relative value of a queue M/G/1). The adapter's requests within the horizon share the
// delay.
func (p *planAndRoute) firstUseDelay(k int32, j int, now float64) float64 {
	l := &p.backlogs[j]
	x, b := p.Env().Workers[j].FirstUse, max(l.entered-now, 0)
	return p.comes() * x * (b + x/2) / (1 - l.frontEnd.share(now, loaderMemory)) * (1 - p.shareOf(p.recent(k), k))
}

// firstUseShared returns the part of a request's own delay, s, that later requests of its adapter on the worker bear:
// the first use delays this request, and no later one. Without the front end, the request could start in ready seconds;
// it passes the front end in enters seconds.
func (p *planAndRoute) firstUseShared(k int32, j int, ready, enters float64) float64 {
	once := max(ready, enters) - max(ready, enters-p.Env().Workers[j].FirstUse)
	return once * p.share(k)
}

// share returns the part of a request's own delay by its adapter's first use on a worker that later requests of the
// adapter bear. Among equal workers, a first use gains the difference of their loads now, so the requests within the
// horizon count. Among workers of several kinds, it gains a better worker for good: as many requests are expected as
// have come.
func (p *planAndRoute) share(k int32) float64 {
	n := p.recent(k)
	if len(p.bounds.costs) > 1 {
		n = max(n, p.rates[k].all-1)
	}
	return p.shareOf(n, k)
}

// shareOf returns the part of the cost of an adapter's first use on a worker that n other requests bear. It assumes
// that they are spread evenly over that worker and those that know the adapter.
func (p *planAndRoute) shareOf(n float64, k int32) float64 {
	n /= float64(p.uses.known[k] + 1)
	return n / (1 + n)
}

// recent returns the number of requests of an adapter within the horizon: those forecast, and those that arrived since
// the forecast.
func (p *planAndRoute) recent(k int32) float64 {
	d := &p.Demand()[k]
	return d.Rate*p.horizon + d.Arrived
}
