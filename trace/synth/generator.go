package synth

import (
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
)

// generator merges renewal processes into one stream of requests.
type generator struct {
	adapters []trace.Adapter
	clock    *clock
	gaps     *gaps
	procs    []process
	queue    []event // heap of the next arrival of every process

	order  []int32 // adapter of each popularity rank; nil: the rank itself
	pick   *alias  // draws ranks for the total process and for rate inf
	picker *rand.Rand
	drift  float64
	recent *recent // nil: no locality

	id       int64
	requests int64   // end before this id
	duration float64 // end before this time, s
	instant  bool    // rate inf
}

// process is one renewal process. Its requests use the adapter of popularity
// rank `rank`, or an adapter drawn (drawRank), or always `adapter` (fixed).
type process struct {
	rng     *rand.Rand
	gap     float64 // mean gap in operational time, s
	end     float64 // no arrivals from here on, operational time
	rank    int32
	adapter int32
}

const (
	drawRank = -1
	fixed    = -2
)

// event is the next arrival of a process, in operational time.
type event struct {
	at   float64
	proc int32
}

// newGenerator builds the generator of a valid configuration.
func newGenerator(c Config) (*generator, error) {
	shares, err := c.Popularity.Shares(c.Adapters)
	if err != nil {
		return nil, err
	}
	g := &generator{
		adapters: trace.Names(c.Adapters, c.Ranks.For(c.Adapters, c.Seed)),
		clock:    newClock(c.Pattern),
		gaps:     newGaps(c.Arrivals),
		drift:    c.Drift,
		requests: math.MaxInt64,
		duration: math.Inf(1),
		instant:  math.IsInf(c.Rate, 1),
	}
	if c.Requests > 0 {
		g.requests = c.Requests
	}
	if c.Duration > 0 {
		g.duration = c.Duration
	}
	if c.Popularity.Shuffle {
		g.order = permutation(c.Adapters, stream(c.Seed, forShuffle, 0))
	}
	if c.Locality.P > 0 {
		g.recent = newRecent(c.Locality, stream(c.Seed, forLocality, 0))
	}
	if c.Arrivals.Total || g.instant {
		g.pick, g.picker = newAlias(shares), stream(c.Seed, forPick, 0)
	}
	if !g.instant {
		g.addProcesses(c, shares)
		g.addCrowd(c, shares)
	}
	return g, nil
}

// addProcesses adds the process of the total, or one per adapter.
func (g *generator) addProcesses(c Config, shares []float64) {
	if c.Arrivals.Total {
		g.add(process{rng: stream(c.Seed, forGaps, 0), rank: drawRank, end: math.Inf(1)}, c.Rate, 0)
		return
	}
	g.procs = make([]process, 0, len(shares)+1)
	g.queue = make([]event, 0, len(shares)+1)
	for rank, s := range shares {
		p := process{rank: int32(rank), end: math.Inf(1)}
		p.rng = stream(c.Seed, forGaps, int(g.adapterOf(p.rank, 0)))
		g.add(p, c.Rate*s, 0)
	}
}

// addCrowd adds the extra requests of a flash crowd on one adapter.
func (g *generator) addCrowd(c Config, shares []float64) {
	f := c.Pattern.Flash
	if f.Duration == 0 || f.Adapter == AllAdapters {
		return
	}
	rank := 0
	for g.adapterOf(int32(rank), f.At) != f.Adapter {
		rank++
	}
	edges := newClock(c.Pattern)
	start := edges.operational(f.At)
	end := edges.operational(f.At + f.Duration)
	p := process{rng: stream(c.Seed, forCrowd, 0), rank: fixed, adapter: f.Adapter, end: end}
	g.add(p, c.Rate*shares[rank]*(f.Factor-1), start)
}

// add starts a process of the given rate at operational time start. Rates too
// small to matter in any run are left out: they would overflow the gaps.
func (g *generator) add(p process, rate, start float64) {
	const never = 1e-18 // requests/s: one in 3e10 years
	if rate < never {
		return
	}
	p.gap = 1 / rate
	at := start + g.gaps.first(p.rng)*p.gap
	if at >= p.end {
		return
	}
	g.procs = append(g.procs, p)
	g.queue = append(g.queue, event{at, int32(len(g.procs) - 1)})
	g.siftUp()
}

// Adapters returns the adapters lora0, lora1, ...
func (g *generator) Adapters() []trace.Adapter { return g.adapters }

// Next returns the next request.
func (g *generator) Next() (trace.Request, error) {
	if g.id >= g.requests {
		return trace.Request{}, io.EOF
	}
	t, rank, adapter := 0.0, int32(drawRank), int32(0)
	if !g.instant {
		e := g.queue[0]
		t = g.clock.time(e.at)
		if !(t < g.duration) {
			g.requests = g.id // stay at the end
			return trace.Request{}, io.EOF
		}
		p := &g.procs[e.proc]
		rank, adapter = p.rank, p.adapter
		g.advance(p, e.at)
	}
	if rank == drawRank {
		rank = g.pick.draw(g.picker)
	}
	if rank >= 0 {
		adapter = g.adapterOf(rank, t)
	}
	if g.recent != nil {
		adapter = g.recent.choose(adapter)
	}
	g.id++
	return trace.Request{ID: g.id - 1, Arrival: t, Adapter: adapter}, nil
}

// adapterOf returns the adapter that has a popularity rank at time t.
func (g *generator) adapterOf(rank int32, t float64) int32 {
	if g.drift > 0 {
		k := float64(len(g.adapters))
		steps := int(math.Mod(math.Floor(t/g.drift), k))
		rank = int32((int(rank) + steps) % len(g.adapters))
	}
	if g.order != nil {
		rank = g.order[rank]
	}
	return rank
}

// advance moves the process at the top of the heap to its next arrival.
func (g *generator) advance(p *process, at float64) {
	at += g.gaps.draw(p.rng) * p.gap
	if at < p.end {
		g.queue[0].at = at
	} else {
		last := len(g.queue) - 1
		g.queue[0] = g.queue[last]
		g.queue = g.queue[:last]
	}
	g.siftDown()
}

// before orders events; equal times go by process, for a unique order.
func (e event) before(f event) bool {
	return e.at < f.at || e.at == f.at && e.proc < f.proc
}

// siftUp restores the heap after an append.
func (g *generator) siftUp() {
	q := g.queue
	for i := len(q) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q[i].before(q[parent]) {
			return
		}
		q[i], q[parent] = q[parent], q[i]
		i = parent
	}
}

// siftDown restores the heap after its top has changed. (Container/heap calls
// through an interface for every comparison and boxes what it moves.)
func (g *generator) siftDown() {
	q := g.queue
	e, i := q[0], 0
	for {
		child := 2*i + 1
		if child >= len(q) {
			break
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(e) {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = e
}

// sized is a generator that only a number of requests ends.
type sized struct{ *generator }

// Len returns the number of requests still to come.
func (s sized) Len() int64 { return s.requests - s.id }
