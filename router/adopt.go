package router

// adopter is a policy that can take over while a run goes on: it learns from the requests of a
// window what it would know had it seen them.
type adopter interface {
	adopt(w *window, v *View)
}

// adopt forecasts the demand by the requests of the latest interval; a plan is due at once.
func (p *placer) adopt(w *window, v *View) {
	p.planAt = v.Now - p.interval
	first := v.Now
	for n := w.first(); n < w.n; n++ {
		s := w.at(n)
		first = min(first, s.at)
		if !isAdapter(s.adapter) {
			continue
		}
		d := &p.demand[s.adapter]
		d.prompt.add(float64(s.prompt))
		if s.output > 0 {
			d.output.add(float64(s.output))
		}
		if s.at > p.planAt {
			d.arrived++
		}
	}
	p.planAt = max(p.planAt, first-1e-3)
	for k := range p.demand {
		d := &p.demand[k]
		d.rate = d.arrived / max(v.Now-p.planAt, 1e-3)
	}
}

func (p *planAndRoute) adopt(w *window, v *View) {
	p.placer.adopt(w, v)
	for n := w.first(); n < w.n; n++ {
		s := w.at(n)
		p.prompt.add(float64(s.prompt))
		if s.output == 0 || s.worker == None {
			continue
		}
		p.output.add(float64(s.output))
		p.first.addUpTo(s.ttft, 300)
		p.finished(Finished{Worker: s.worker, Exec: s.e2e - s.ttft})
	}
	for j := range v.Workers { // the prompts that wait are computed one after the other
		p.backlogs[j].prefilled = v.Now + p.workers[j].Cost.Prefill(v.Workers[j].QueuedToks)
	}
}

// adopt notes what was sent where.
func (x *prefixIndex) adopt(w *window, v *View) {
	for n := w.keptFrom(); n < w.kept; n++ {
		s := w.at(n)
		if s.worker < 0 {
			continue
		}
		r := Request{ID: s.id, Adapter: s.adapter, Prompt: s.prompt, MaxNew: s.maxNew, Text: s.text}
		if s.text != nil {
			r.Known = s.text.Known(s.prompt)
		}
		x.add(&r, v, int(s.worker))
	}
}

func (p *cacheAware) adopt(w *window, v *View) { p.index.adopt(w, v) }
func (p *kvRouter) adopt(w *window, v *View)   { p.index.adopt(w, v) }

func (p *affinity) adopt(w *window, v *View) {
	if p.index != nil {
		p.index.adopt(w, v)
	}
}
