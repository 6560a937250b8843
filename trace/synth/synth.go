// Package synth generates workloads from parameters: adapter popularity, arrival processes, rate patterns, drift,
// locality, sessions and conversations. It is the default source of requests of the program.
//
//	cfg := synth.Default()
//	cfg.Adapters = 64
//	cfg.Arrivals, err = synth.ParseArrivals("gamma:4")
//	cfg.Pattern, err = synth.ParsePattern("diurnal:86400,0.5+flash:600,60,10")
//	src, err := synth.New(cfg)
//
// The requests of [New] have arrival times and adapters; package lengths adds token counts. The same Config gives
// the same requests. Every adapter draws from its own stream, derived from the seed, so adapters are independent of
// each other and of their number.
//
// # Time
//
// Arrivals are renewal processes in operational time, in which a process of rate r expects r arrivals per second. A
// rate pattern m(t) stretches operational time: operational time tau is the time t at which the integral of m from 0
// to t reaches tau. Each process starts in equilibrium (its first gap is a residual life). So the expected number of
// requests up to time t is exactly rate times the integral of m, for every t and every CV.
package synth

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
)

// MaxAdapters is the largest number of adapters. It keeps indices in an int32.
const MaxAdapters = 10_000_000

// Config describes a synthetic workload.
type Config struct {
	Adapters   int        // number of adapters, >= 1
	Ranks      Ranks      // LoRA ranks of the adapters
	Popularity Popularity // how requests spread over the adapters
	Arrivals   Arrivals   // distribution of the gaps between requests
	Rate       float64    // requests/s of all adapters together where Pattern is 1; +Inf: all at time 0
	Pattern    Pattern    // how the rate varies with time
	Drift      float64    // s between rotations of the popularity by one rank; 0: none
	Locality   Locality   // repetition of recently used adapters
	Sessions   Sessions   // runs of requests to one adapter; replaces Popularity and Arrivals
	Requests   int64      // most requests; 0: no limit
	Duration   float64    // length of the workload, s; 0: no limit
	Seed       uint64
}

// Default returns the workload of a run without arguments: 32 adapters of rank 16, Zipf 0.9, 8 requests/s,
// exponential gaps, no end.
func Default() Config {
	return Config{
		Adapters:   32,
		Ranks:      Ranks{Values: []int{16}},
		Popularity: Popularity{Kind: Zipf, Param: 0.9},
		Arrivals:   Arrivals{Dist: Exponential},
		Rate:       8,
		Seed:       1,
	}
}

// check returns an error if the config contradicts itself or names adapters that do not exist.
func (c Config) check() error {
	instant, f := math.IsInf(c.Rate, 1), c.Pattern.Flash
	crowd := f.Duration > 0 && f.Adapter != AllAdapters
	if crowd && int(f.Adapter) >= c.Adapters {
		return fmt.Errorf("rate pattern: flash adapter is %d, expected 0 to %d, or %d for all", f.Adapter, c.Adapters-1,
			AllAdapters)
	}
	if c.Sessions.Kind != "" {
		switch {
		case instant:
			return errors.New("rate inf puts all requests at time 0 and excludes sessions")
		case c.Arrivals.Dist != Exponential || c.Arrivals.Total:
			return fmt.Errorf("sessions have gaps of their own and exclude arrivals %s", c.Arrivals.Dist)
		case c.Locality.P > 0:
			return errors.New("sessions repeat adapters by themselves and exclude locality")
		case crowd:
			return errors.New("sessions exclude a flash crowd on one adapter")
		}
	}
	switch {
	case instant && c.Pattern != Pattern{}:
		return errors.New("rate inf puts all requests at time 0 and excludes a rate pattern")
	case instant && c.Drift > 0:
		return errors.New("rate inf puts all requests at time 0 and excludes drift")
	case instant && c.Duration > 0 && c.Requests == 0:
		return errors.New("rate inf with a duration never ends, expected a number of requests")
	}
	return nil
}

// New returns a source of the requests of the workload, with Prompt and Output 0.
func New(c Config) (trace.Source, error) {
	err := c.check()
	var g *generator
	if err == nil {
		g, err = newGenerator(c)
	}
	if err != nil {
		return nil, fmt.Errorf("synthetic workload: %w", err)
	}
	return ending(trace.Names(c.Adapters, c.Ranks.For(c.Adapters, c.Seed)), c.Requests, c.Duration, g.next), nil
}

// ending returns a source of the requests of next. It ends after the given number of requests or at a time, s; 0: no
// limit.
func ending(adapters []trace.Adapter, requests int64, duration float64,
	next func() (trace.Request, error)) trace.Source {
	switch {
	case duration == 0 && requests == 0:
		return trace.Generate(adapters, -1, next)
	case duration == 0:
		return trace.Generate(adapters, requests, next)
	}
	src := trace.Generate(adapters, -1, func() (trace.Request, error) {
		r, err := next()
		if err == nil && !(r.Arrival < duration) {
			err = io.EOF
		}
		return r, err
	})
	if requests > 0 {
		src = trace.Limit(src, requests)
	}
	return src
}

// items holds the subjects of a queue's events, by their Item. It reuses numbers that have become free.
type items[T any] struct {
	of     []T
	unused []int32
}

func (s *items[T]) add(v T) (item int32) {
	n := len(s.unused)
	if n == 0 {
		s.of = append(s.of, v)
		return int32(len(s.of) - 1)
	}
	item, s.unused = s.unused[n-1], s.unused[:n-1]
	s.of[item] = v
	return item
}

func (s *items[T]) remove(item int32) (v T) {
	v, s.of[item] = s.of[item], v
	s.unused = append(s.unused, item)
	return v
}

// generator merges renewal processes into one stream of requests.
type generator struct {
	adapters int
	clock    *clock
	procs    []process
	queue    renewal.Queue // next arrivals, in operational time, by index of process
	instant  bool          // rate inf

	pick   alias // draws ranks for the total process and for rate inf
	picker *rand.Rand
	drift  float64
	recent *renewal.Recent // nil: no locality
	runs   *sessions       // nil: requests are independent
}

// process is one renewal process. Its requests use the adapter of popularity
// rank `rank`, or an adapter drawn (drawRank), or always `adapter` (fixed).
type process struct {
	rng     *rand.Rand
	gaps    *renewal.Gaps // distribution of the gaps, with mean 1
	gap     float64       // mean gap in operational time, s
	end     float64       // no arrivals from here on, operational time
	rank    int32
	adapter int32
}

const (
	drawRank = -1
	fixed    = -2
)

func newGenerator(c Config) (*generator, error) {
	shares, err := c.Popularity.Shares(c.Adapters)
	if err != nil {
		return nil, err
	}
	g := &generator{adapters: c.Adapters, clock: newClock(c.Pattern), drift: c.Drift, instant: math.IsInf(c.Rate, 1)}
	if c.Arrivals.Dist == VLLM {
		return nil, errors.New("arrivals vllm are times of a client: see Paced")
	}
	laws := c.Arrivals.gaps()
	gapsOf := func(adapter int) *renewal.Gaps { return &laws[adapter%len(laws)] }
	if c.Locality.P > 0 {
		g.recent = renewal.NewRecent(c.Locality.P, c.Locality.Window, stream(c.Seed, forLocality, 0))
	}
	if c.Sessions.Kind != "" {
		g.runs, err = newSessions(c.Sessions, c.Adapters, c.Rate, stream(c.Seed, forSessions, 0), &g.queue)
		return g, err
	}
	if c.Arrivals.Total || g.instant {
		g.pick, g.picker = newAlias(shares), stream(c.Seed, forPick, 0)
	}
	switch {
	case g.instant:
		return g, nil
	case c.Arrivals.Total:
		g.add(process{rng: stream(c.Seed, forGaps, 0), gaps: gapsOf(0), rank: drawRank, end: math.Inf(1)}, c.Rate, 0)
	default:
		g.procs, g.queue = make([]process, 0, len(shares)+1), make(renewal.Queue, 0, len(shares)+1)
		for rank, s := range shares {
			adapter := int(g.adapterOf(int32(rank), 0))
			rng := stream(c.Seed, forGaps, adapter)
			g.add(process{rng: rng, gaps: gapsOf(adapter), rank: int32(rank), end: math.Inf(1)}, c.Rate*s, 0)
		}
	}
	g.addCrowd(c, shares, gapsOf)
	return g, nil
}

// addCrowd adds the process of a flash crowd on one adapter.
func (g *generator) addCrowd(c Config, shares []float64, gapsOf func(adapter int) *renewal.Gaps) {
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
	p := process{rng: stream(c.Seed, forCrowd, 0), gaps: gapsOf(int(f.Adapter)), rank: fixed,
		adapter: f.Adapter, end: end}
	g.add(p, c.Rate*shares[rank]*(f.Factor-1), start)
}

// add starts a process of the given rate at operational time start. It leaves out rates so small that they cannot
// matter in any run: they would overflow the gaps.
func (g *generator) add(p process, rate, start float64) {
	const never = 1e-18 // requests/s: one in 3e10 years
	if rate < never {
		return
	}
	p.gap = 1 / rate
	if at := start + p.gaps.First(p.rng)*p.gap; at < p.end {
		g.procs = append(g.procs, p)
		g.queue.Push(renewal.Event{At: at, Item: int32(len(g.procs) - 1)})
	}
}

func (g *generator) next() (trace.Request, error) {
	t, rank, adapter := 0.0, int32(drawRank), int32(0)
	if !g.instant {
		e := g.queue[0]
		t = g.clock.time(e.At)
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
	return trace.Request{Arrival: t, Adapter: adapter}, nil
}

// advance moves the process of event e on to its next arrival, and returns the
// popularity rank and the adapter of its requests.
func (g *generator) advance(e renewal.Event) (rank, adapter int32) {
	p := &g.procs[e.Item]
	if at := e.At + p.gaps.Next(p.rng)*p.gap; at < p.end {
		g.queue.Replace(renewal.Event{At: at, Item: e.Item})
	} else {
		g.queue.Pop()
	}
	return p.rank, p.adapter
}

// adapterOf returns the adapter that has a popularity rank at time t.
func (g *generator) adapterOf(rank int32, t float64) int32 {
	if g.drift == 0 {
		return rank
	}
	return int32(renewal.Drift(int(rank), g.adapters, t, g.drift))
}

// Purposes of random streams. Their numbers are part of what makes a seed
// reproduce a workload: never renumber them. 3 is no longer used.
const (
	forGaps     = 1 // one stream per adapter
	forPick     = 2 // which adapter a request of the total process uses
	forLocality = 4
	forRanks    = 5
	forCrowd    = 6 // gaps of a flash crowd on one adapter
	forExport   = 7 // execution times in exported traces
	forSessions = 8
	forPace     = 9 // gaps of a benchmark's client
	forTurns    = 10
)

// stream returns the random stream of one purpose and one adapter.
func stream(seed uint64, purpose, adapter int) *rand.Rand {
	h := renewal.Mix(seed) ^ renewal.Mix(uint64(purpose)<<32|uint64(adapter))
	return rand.New(rand.NewPCG(renewal.Mix(h), renewal.Mix(h+1)))
}
