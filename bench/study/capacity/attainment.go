package capacity

import (
	"lorasim/bench/result"
	"lorasim/sim/record"
	"lorasim/trace"
)

// misses ends a run that cannot meet the SLO often enough any more.
type misses struct {
	left float64 // share of what is counted that may still miss it
	stop func()
}

func (m *misses) add(weight float64) {
	if m.left -= weight; m.left < 0 {
		m.stop()
	}
}

// part counts the requests of a part of a run that meet the SLO.
type part struct {
	good, total int64
	adapters    []tally // the base model in front
}

// tally is of one adapter.
type tally struct {
	good, total int64
	lost        bool // it cannot meet the SLO any more
}

// count counts a request that has ended, and returns the tally of its adapter.
func (p *part) count(r *record.Request, met bool) *tally {
	p.total++
	if met {
		p.good++
	}
	return countAdapter(&p.adapters, r, met)
}

// countAdapter counts a request that has ended in the tally of its adapter.
func countAdapter(adapters *[]tally, r *record.Request, met bool) *tally {
	if n := int(r.Adapter) + 2 - len(*adapters); n > 0 {
		*adapters = append(*adapters, make([]tally, n)...)
	}
	a := &(*adapters)[r.Adapter+1]
	a.total++
	if met {
		a.good++
	}
	return a
}

// counter counts the requests after the warm-up that meet the SLO.
type counter struct {
	part
	opt      *Options
	src      *scaled
	rejected int64
	met      int64   // requests that met the SLO, with those of the warm-up
	waiting  int64   // requests without a first token when the last one arrives
	misses   *misses // nil: none are too many
}

// Done counts a request that has ended.
func (c *counter) Done(r *record.Request) {
	c.src.done++
	if c.src.ended && !(r.FirstToken <= c.src.last) {
		c.waiting++
	}
	met := c.opt.SLO.Met(r)
	if met {
		c.met++
	}
	if r.ID < c.src.size.warm {
		return
	}
	a := c.count(r, met)
	if r.Status == record.Rejected {
		c.rejected++
	}
	if c.misses != nil && !met {
		c.missed(a, int(r.Adapter+1))
	}
}

// missed tells what a miss costs: of the requests its own, of the adapters the
// one that cannot meet the SLO from now on.
func (c *counter) missed(a *tally, i int) {
	switch {
	case c.opt.PerAdapter == 0:
		if c.src.total > 0 {
			c.misses.add(1 / float64(c.src.total-c.src.size.warm))
		}
	case c.src.requests != nil && !a.lost && !c.opt.enough(c.src.requests[i]-a.total+a.good, c.src.requests[i]):
		a.lost = true
		n := 0
		for _, requests := range c.src.requests {
			n += min(int(requests), 1)
		}
		c.misses.add(1 / float64(n))
	}
}

// enough reports whether an adapter reaches the required attainment: good of its requests are within the SLO.
func (o *Options) enough(good, requests int64) bool {
	return result.SLO{Attain: o.Attain}.Enough(good, requests)
}

// share returns the attained share: of the requests within the SLO or, with PerAdapter, of the adapters that reach
// Attain.
func (p *part) share(o *Options) float64 {
	if o.PerAdapter == 0 {
		return float64(p.good) / float64(max(p.total, 1))
	}
	met, n := 0, 0
	for _, a := range p.adapters {
		if a.total > 0 {
			if n++; o.enough(a.good, a.total) {
				met++
			}
		}
	}
	return float64(met) / float64(max(n, 1))
}

// worstOf is the adapter with the smallest share, of several the one with the most
// requests. The base model is in front of the tallies.
func worstOf(tallies []tally, adapters []trace.Adapter) (w result.Worst) {
	for i, a := range tallies {
		share := float64(a.good) / float64(max(a.total, 1))
		if a.total > 0 && (w.Requests == 0 || share < w.Share || share == w.Share && a.total > w.Requests) {
			w = result.Worst{Index: int32(i) - 1, Name: "base model", Requests: a.total, Share: share}
		}
	}
	if w.Index >= 0 && w.Requests > 0 {
		w.Name = adapters[w.Index].Name
	}
	return w
}
