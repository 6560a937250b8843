package router

import "math"

// adopt forecasts the demand by the requests of the latest interval; a plan is due at once.
func (p *placer) adopt(h *History, v *View) {
	p.planAt = v.Now - p.interval
	first := v.Now
	for n := h.oldest(); n < h.n; n++ {
		s := h.at(n)
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
	p.planAt, p.planned = max(p.planAt, first-1e-3), true
	for k := range p.demand {
		d := &p.demand[k]
		d.rate = d.arrived / max(v.Now-p.planAt, 1e-3)
	}
}

func (p *planAndRoute) adopt(h *History, v *View) {
	p.placer.adopt(h, v)
	p.pool.adopt(v)
	for j := range p.backlogs {
		p.backlogs[j].entered = math.Inf(-1)
	}
	for n := h.oldest(); n < h.n; n++ {
		s := h.at(n)
		p.prompt.add(float64(s.prompt))
		if n > h.oldest() {
			p.gap.add(max(s.at-p.latest, 0))
		}
		p.latest = s.at
		if s.worker >= 0 {
			l := &p.backlogs[s.worker]
			l.entered = max(l.entered, s.at) + p.workers[s.worker].FrontEnd
			if p.used != nil && isAdapter(s.adapter) {
				p.used[int(s.worker)*len(p.adapters)+int(s.adapter)] = true
			}
		}
		if s.output == 0 || s.worker == None {
			continue
		}
		p.output.add(float64(s.output))
		p.first.addUpTo(s.ttft, 300)
		p.finished(Event{Worker: s.worker, Exec: s.e2e - s.ttft})
	}
	for j := range v.Workers { // the prompts that wait are computed one after the other
		p.backlogs[j].prefilled = v.Now + p.workers[j].Cost.Prefill(v.Workers[j].QueuedToks)
	}
}

// adopt notes what was sent where. Of old prompts it is unlikely that workers still keep them. nil: no index.
func (x *prefixIndex) adopt(s Succession) {
	if x == nil {
		return
	}
	h, v := s.History, s.View
	for n := max(h.oldest(), h.n-mostKept); n < h.n; n++ {
		s := h.at(n)
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

// mostKept bounds the prompts that a new prefix index takes from a history.
const mostKept = 512
