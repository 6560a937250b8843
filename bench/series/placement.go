package series

import (
	"lorasim/internal/tick"
	"lorasim/router"
)

// Placement tells when the weights of adapters lay on workers.
type Placement struct {
	// Host and GPU hold the stays by worker*adapters + adapter: in host memory
	// or a GPU slot, and in a GPU slot.
	Host, GPU []Stays
	// Resolution is the shortest stay and the shortest absence that were kept
	// apart, s; 0: all were.
	Resolution float64
}

// Stays are times [from, to) in s, in order.
type Stays [][2]float64

// placer follows the tiers of all adapters. Stays cost memory; when there are
// too many, those that lie close together become one.
type placer struct {
	adapters  int
	host, gpu lane
	stays     int // closed stays held
	limit     int
	grain     tick.Ticks
}

// maxStays bounds the stays of a placement, but for one for each adapter on each
// worker.
const maxStays = 200_000

type lane struct {
	open  []tick.Ticks // since when, -1: not there
	stays [][][2]tick.Ticks
}

func newLane(n int) lane {
	l := lane{open: make([]tick.Ticks, n), stays: make([][][2]tick.Ticks, n)}
	for i := range l.open {
		l.open[i] = -1
	}
	return l
}

func newPlacer(v *router.View) *placer {
	n := len(v.Workers) * len(v.Adapters)
	p := &placer{adapters: len(v.Adapters), host: newLane(n), gpu: newLane(n), limit: maxStays}
	for w := range v.Workers {
		for a, st := range v.Workers[w].Adapters {
			p.tier(0, w, int32(a), st.Tier)
		}
	}
	return p
}

func (p *placer) tier(at tick.Ticks, worker int, adapter int32, t router.Tier) {
	i := worker*p.adapters + int(adapter)
	p.set(&p.host, i, at, t >= router.Host)
	p.set(&p.gpu, i, at, t == router.GPU)
}

// set opens or closes a stay.
func (p *placer) set(l *lane, i int, at tick.Ticks, there bool) {
	switch {
	case there && l.open[i] < 0:
		l.open[i] = at
	case !there && l.open[i] >= 0:
		p.close(l, i, at)
		l.open[i] = -1
		if p.stays > p.limit {
			p.coarsen()
		}
	}
}

// close enters the open stay, joined to the one before it if the gap is below
// the grain. A stay shorter than the grain is kept as long as it stands alone.
func (p *placer) close(l *lane, i int, at tick.Ticks) {
	s := l.stays[i]
	if n := len(s); n > 0 && l.open[i]-s[n-1][1] <= p.grain {
		s[n-1][1] = at
		return
	}
	l.stays[i] = append(s, [2]tick.Ticks{l.open[i], at})
	p.stays++
}

// coarsen doubles the grain until the stays fit.
func (p *placer) coarsen() {
	for p.stays > p.limit/2 && p.grain < tick.Max/4 {
		p.grain = max(2*p.grain, tick.Second/8)
		p.stays = 0
		for _, l := range []*lane{&p.host, &p.gpu} {
			for i, s := range l.stays {
				l.stays[i] = join(s, p.grain)
				p.stays += len(l.stays[i])
			}
		}
		if p.stays <= len(p.host.open)*2 {
			break // one for each is as few as it gets
		}
	}
	p.limit = max(p.limit, 2*p.stays)
}

// join makes one stay of those with at most a gap of grain between them.
func join(s [][2]tick.Ticks, grain tick.Ticks) [][2]tick.Ticks {
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x[0]-out[n-1][1] <= grain {
			out[n-1][1] = x[1]
			continue
		}
		out = append(out, x)
	}
	return out
}

// finish closes what is open and returns all.
func (p *placer) finish(end tick.Ticks) *Placement {
	seconds := func(l *lane) []Stays {
		out := make([]Stays, len(l.stays))
		for i := range l.stays {
			s := l.stays[i]
			if l.open[i] >= 0 && l.open[i] < end {
				s = append(s[:len(s):len(s)], [2]tick.Ticks{l.open[i], end})
			}
			for _, x := range s {
				out[i] = append(out[i], [2]float64{x[0].Seconds(), x[1].Seconds()})
			}
		}
		return out
	}
	return &Placement{Host: seconds(&p.host), GPU: seconds(&p.gpu), Resolution: p.grain.Seconds()}
}
