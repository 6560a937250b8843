package router

// firstUse says whether a request would be the first of its adapter on a worker whose front end takes time for that.
func (p *accounts) firstUse(k int32, j int) bool {
	return p.used != nil && isAdapter(k) && !p.used[j*len(p.adapters)+int(k)]
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

// firstUseDelay is a request's share of the time, s, by which the first use of its adapter on a worker delays others.
// The front end is busy until b from now, and with the first use x longer. Who comes until b waits x longer, who comes
// later x/2 on average. That happens once, so the requests of the adapter share it.
func (p *planAndRoute) firstUseDelay(k int32, j int, now float64) float64 {
	x, b := p.env.Workers[j].FirstUse, max(p.backlogs[j].entered-now, 0)
	return p.comes() * x * (b + x/2) / (1 + p.recent(k))
}

// firstUseShared is the part of the delay, s, of a request by its adapter's first use on a worker that later requests
// of the adapter there share: none of them is the first any more. Without the front end the request could start in
// ready s; it passes the front end in enters s.
func (p *planAndRoute) firstUseShared(k int32, j int, ready, enters float64) float64 {
	once := max(ready, enters) - max(ready, enters-p.env.Workers[j].FirstUse)
	return once * p.share(k)
}

// share is the part of what happens once on a worker because of an adapter that its other requests there bear: with
// this one, as many as each worker would get of those that came within the horizon.
func (p *planAndRoute) share(k int32) float64 {
	n := p.recent(k) / float64(len(p.workers))
	return n / (1 + n)
}

// recent is how many requests of an adapter come within the horizon, by the forecast and since.
func (p *planAndRoute) recent(k int32) float64 {
	d := &p.demand[k]
	return d.rate*p.horizon + d.arrived
}
