package planroute

import "lorasim/trace"

// firstUse says whether a request would be the first of its adapter on a worker whose front end takes time for that.
func (p *accounts) firstUse(k int32, j int) bool {
	return p.used != nil && k != trace.BaseModel && !p.used[int(k)*len(p.workers)+j]
}

// enters is when a request sent now to a worker will have passed its front end, s.
func (p *accounts) enters(k int32, j int, now float64) float64 {
	s := &p.workers[j]
	t := max(p.backlogs[j].entered, now) + s.FrontEnd
	if p.firstUse(k, j) {
		t += s.FirstUse
	}
	return t
}

// firstUseDelay returns the delay, s, that a request causes for others by the first use of its adapter on a worker.
// The first use occupies the front end for x seconds. The front end is busy for another b seconds anyway. A request
// that arrives within these b seconds waits x longer. A request that arrives in the x seconds after them waits x/2
// longer on average. An adapter has one first use on a worker, so its requests within the horizon share the delay.
func (p *planAndRoute) firstUseDelay(k int32, j int, now float64) float64 {
	x, b := p.Env().Workers[j].FirstUse, max(p.backlogs[j].entered-now, 0)
	return p.comes() * x * (b + x/2) / (1 + p.recent(k))
}

// firstUseShared returns the part of a request's own delay, s, that later requests of its adapter on the worker bear:
// the first use delays this request, and no later one. Without the front end, the request could start in ready seconds;
// it passes the front end in enters seconds.
func (p *planAndRoute) firstUseShared(k int32, j int, ready, enters float64) float64 {
	once := max(ready, enters) - max(ready, enters-p.Env().Workers[j].FirstUse)
	return once * p.share(k)
}

// share returns the part of a one-time cost of an adapter on a worker that the adapter's other requests there bear.
// It assumes that the adapter's requests within the horizon are spread evenly over the workers.
func (p *planAndRoute) share(k int32) float64 {
	n := p.recent(k) / float64(len(p.workers))
	return n / (1 + n)
}

// recent returns the number of requests of an adapter within the horizon: those forecast, and those that arrived since
// the forecast.
func (p *planAndRoute) recent(k int32) float64 {
	d := &p.Demand()[k]
	return d.Rate*p.horizon + d.Arrived
}
