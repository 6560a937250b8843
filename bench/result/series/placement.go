package series

import (
	"lorasim/router"
	"lorasim/sim/tick"
)

// placer tracks the tiers of all adapters. To bound memory it merges stays that lie close
// together when there are more than limit.
type placer struct {
	adapters  int
	host, gpu []lane // by worker*adapters + adapter
	stays     int    // number of closed stays
	limit     int
	grain     tick.Ticks // largest gap between stays that are merged
}

// maxStays is the limit of stays of a placement, besides one per adapter and worker.
const maxStays = 200_000

// lane holds the stays of one adapter on one worker in one tier.
type lane struct {
	stays [][2]tick.Ticks
	open  tick.Ticks // start of the current stay, + 1; 0: none
}

func newPlacer(v *router.View) *placer {
	n := len(v.Workers) * len(v.Adapters)
	p := &placer{adapters: len(v.Adapters), host: make([]lane, n), gpu: make([]lane, n), limit: maxStays}
	for w := range v.Workers {
		for a := range int32(len(v.Adapters)) {
			p.tier(0, w, a, v.Workers[w].Adapter(a).Tier)
		}
	}
	return p
}

func (p *placer) tier(at tick.Ticks, worker int, adapter int32, t router.Tier) {
	i := worker*p.adapters + int(adapter)
	p.set(&p.host[i], at, t >= router.Host)
	p.set(&p.gpu[i], at, t == router.GPU)
}

// set begins or ends a stay.
func (p *placer) set(l *lane, at tick.Ticks, there bool) {
	switch {
	case there && l.open == 0:
		l.open = at + 1
	case !there && l.open > 0:
		before := len(l.stays)
		l.stays = join(append(l.stays, [2]tick.Ticks{l.open - 1, at}), max(before-1, 0), p.grain)
		p.stays += len(l.stays) - before
		l.open = 0
		if p.stays > p.limit {
			p.coarsen()
		}
	}
}

// coarsen doubles the grain until the stays fit, or until there is about one per lane.
func (p *placer) coarsen() {
	for p.stays > p.limit/2 && p.grain < tick.Max/4 {
		p.grain = max(2*p.grain, tick.Second/8)
		p.stays = 0
		for _, lanes := range [][]lane{p.host, p.gpu} {
			for i := range lanes {
				lanes[i].stays = join(lanes[i].stays, 0, p.grain)
				p.stays += len(lanes[i].stays)
			}
		}
		if p.stays <= 2*len(p.host) {
			break
		}
	}
	p.limit = max(p.limit, 2*p.stays)
}

// join merges stays from index from on with gaps of at most grain between them. It keeps a
// stay shorter than grain if no other stay is near.
func join(s [][2]tick.Ticks, from int, grain tick.Ticks) [][2]tick.Ticks {
	out := s[:from]
	for _, x := range s[from:] {
		if n := len(out); n > from && x[0]-out[n-1][1] <= grain {
			out[n-1][1] = x[1]
			continue
		}
		out = append(out, x)
	}
	return out
}

// finish ends all stays at end and returns the placement.
func (p *placer) finish(end tick.Ticks) *Placement {
	seconds := func(lanes []lane) []Stays {
		out := make([]Stays, len(lanes))
		for i, l := range lanes {
			s := l.stays
			if l.open > 0 && l.open-1 < end {
				s = append(s[:len(s):len(s)], [2]tick.Ticks{l.open - 1, end})
			}
			for _, x := range s {
				out[i] = append(out[i], [2]float64{x[0].Seconds(), x[1].Seconds()})
			}
		}
		return out
	}
	return &Placement{Host: seconds(p.host), GPU: seconds(p.gpu), Resolution: p.grain.Seconds()}
}
