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
// later x/2 on average. That happens once, so the requests of the adapter share it: this one and those that came
// within the horizon.
func (p *planAndRoute) firstUseDelay(k int32, j int, now float64) float64 {
	x, b := p.env.Workers[j].FirstUse, max(p.backlogs[j].entered-now, 0)
	d := &p.demand[k]
	return p.comes() * x * (b + x/2) / (1 + d.rate*p.horizon + d.arrived)
}
