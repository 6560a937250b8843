package synth

import (
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/internal/popularity"
	"lorasim/trace/internal/renewal"
)

// generator merges renewal processes into one stream of requests.
type generator struct {
	adapters []trace.Adapter
	clock    *clock
	gaps     renewal.Gaps
	procs    []process
	queue    renewal.Queue // next arrivals, in operational time, by index of process

	order  []int32 // adapter of each popularity rank; nil: the rank itself
	pick   *alias  // draws ranks for the total process and for rate inf
	picker *rand.Rand
	drift  float64
	recent *popularity.Recent // nil: no locality
	runs   *sessions          // nil: requests are independent

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

// newGenerator builds the generator of a valid configuration.
func newGenerator(c Config) (*generator, error) {
	shares, err := c.Popularity.Shares(c.Adapters)
	if err != nil {
		return nil, err
	}
	g := &generator{
		adapters: trace.Names(c.Adapters, c.Ranks.For(c.Adapters, c.Seed)),
		clock:    newClock(c.Pattern),
		gaps:     renewal.New(c.Arrivals.Dist, c.Arrivals.CV),
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
		g.recent = popularity.NewRecent(c.Locality.P, c.Locality.Window, stream(c.Seed, forLocality, 0))
	}
	if c.Sessions.Kind != "" {
		g.runs, err = newSessions(c.Sessions, c.Adapters, c.Rate, stream(c.Seed, forSessions, 0), &g.queue)
		return g, err
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
	g.queue = make(renewal.Queue, 0, len(shares)+1)
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
	at := start + g.gaps.First(p.rng)*p.gap
	if at >= p.end {
		return
	}
	g.procs = append(g.procs, p)
	g.queue.Push(renewal.Event{At: at, Item: int32(len(g.procs) - 1)})
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
		t = g.clock.time(e.At)
		if !(t < g.duration) {
			g.requests = g.id // stay at the end
			return trace.Request{}, io.EOF
		}
		if g.runs != nil {
			rank = g.runs.next(&g.queue)
		} else {
			rank, adapter = g.advance(e)
		}
	}
	if rank == drawRank {
		rank = g.pick.draw(g.picker)
	}
	if rank >= 0 {
		adapter = g.adapterOf(rank, t)
	}
	if g.recent != nil {
		adapter = g.recent.Choose(adapter)
	}
	g.id++
	return trace.Request{ID: g.id - 1, Arrival: t, Adapter: adapter}, nil
}

// advance moves the process of event e on to its next arrival, and returns the
// popularity rank and the adapter of its requests.
func (g *generator) advance(e renewal.Event) (rank, adapter int32) {
	p := &g.procs[e.Item]
	if at := e.At + g.gaps.Next(p.rng)*p.gap; at < p.end {
		g.queue.Replace(renewal.Event{At: at, Item: e.Item})
	} else {
		g.queue.Pop()
	}
	return p.rank, p.adapter
}

// adapterOf returns the adapter that has a popularity rank at time t.
func (g *generator) adapterOf(rank int32, t float64) int32 {
	if g.drift > 0 {
		rank = int32(popularity.Drift(int(rank), len(g.adapters), t, g.drift))
	}
	if g.order != nil {
		rank = g.order[rank]
	}
	return rank
}

// Len is known where only the number of requests ends the workload.
func (g *generator) Len() int64 {
	if g.requests == math.MaxInt64 || !math.IsInf(g.duration, 1) {
		return -1
	}
	return g.requests - g.id
}
