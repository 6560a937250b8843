// Package synth generates workloads without any file: adapter popularity,
// arrival processes, rate patterns, drift and locality. It is the program's
// default source of requests.
//
//	cfg := synth.Default()
//	cfg.Adapters = 64
//	cfg.Arrivals, err = synth.ParseArrivals("gamma:4")
//	cfg.Pattern, err = synth.ParsePattern("diurnal:86400,0.5+flash:600,60,10")
//	src, err := synth.New(cfg)
//
// The requests carry arrival times and adapters; token counts are another
// package's business. Same Config, same requests: every adapter draws from its
// own stream, derived from the seed, so adapters are independent of each other
// and of how many there are.
//
// # Time
//
// Arrivals are renewal processes in operational time, in which a process of
// rate r expects r arrivals per second. A rate pattern m(t) stretches that
// time: operational time tau happens when the integral of m from 0 to t
// reaches tau. Each process starts in equilibrium (its first gap is a residual
// life), so the expected number of requests up to time t is exactly rate times
// the integral of m, from the first second on and for every CV.
package synth

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/trace"
	"lorasim/trace/internal/renewal"
)

// MaxAdapters keeps indices in an int32.
const MaxAdapters = 10_000_000

// The rates that keep arrival times finite, in requests/s.
const (
	minRate = 1e-9
	maxRate = 1e9
)

// Config describes a synthetic workload.
type Config struct {
	Adapters   int        // number of adapters, >= 1
	Ranks      Ranks      // LoRA ranks of the adapters
	Popularity Popularity // how requests spread over the adapters
	Arrivals   Arrivals   // distribution of the gaps between requests
	Rate       float64    // requests/s of all adapters where Pattern is 1; +Inf: all at time 0
	Pattern    Pattern    // how the rate varies with time
	Drift      float64    // s between rotations of the popularity by one rank; 0: none
	Locality   Locality   // repetition of recently used adapters
	Sessions   Sessions   // requests in runs to one adapter, which replaces Popularity and Arrivals
	Requests   int64      // end after so many; 0: no limit
	Duration   float64    // end at this time, s; 0: no limit
	Seed       uint64
}

// Default is the workload of a run without arguments: 32 adapters of rank 16,
// Zipf 0.9, 8 requests/s, exponential gaps, without end.
func Default() Config {
	return Config{
		Adapters:   32,
		Ranks:      Ranks{Values: []int{16}},
		Popularity: Popularity{Kind: Zipf, Param: defaultZipf},
		Arrivals:   Arrivals{Dist: Exponential, CV: 1},
		Rate:       8,
		Seed:       1,
	}
}

// Check says what is wrong with the configuration, or nil.
func (c Config) Check() error {
	if err := cmp.Or(
		check("number of adapters", float64(c.Adapters), "", ">=1 <=1e7"),
		check("rate", c.Rate, " requests/s", ">=1e-9 <=1e9 inf"), // inf: all at time 0
		check("drift", c.Drift, " s", ">=0"),
		check("number of requests", float64(c.Requests), "", ">=0"),
		check("duration", c.Duration, " s", ">=0"),
		c.Ranks.Check(), c.Popularity.Check(c.Adapters), c.Arrivals.Check(), c.Pattern.Check(c.Adapters), c.Locality.Check(),
		c.checkSessions(),
	); err != nil {
		return err
	}
	if !math.IsInf(c.Rate, 1) {
		return nil
	}
	switch {
	case c.Pattern != Pattern{}:
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for the rate pattern %q", c.Pattern)
	case c.Drift > 0:
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for drift")
	case c.Duration > 0 && c.Requests == 0:
		return fmt.Errorf("rate inf with a duration never ends, expected a number of requests")
	}
	return nil
}

// checkSessions refuses what has no meaning together with sessions.
func (c Config) checkSessions() error {
	if c.Sessions.Kind == "" {
		return nil
	}
	if err := c.Sessions.Check(); err != nil {
		return fmt.Errorf("sessions: %w", err)
	}
	switch {
	case math.IsInf(c.Rate, 1):
		return fmt.Errorf("rate inf puts all requests at time 0 and leaves no room for sessions")
	case c.Arrivals != Arrivals{Dist: Exponential, CV: 1}:
		return fmt.Errorf("sessions have gaps of their own and leave no room for arrivals %s", c.Arrivals)
	case c.Locality.P > 0:
		return fmt.Errorf("sessions repeat adapters by themselves and leave no room for locality")
	case c.Pattern.Flash.Duration > 0 && c.Pattern.Flash.Adapter != AllAdapters:
		return fmt.Errorf("sessions leave no room for a flash crowd on one adapter")
	}
	return nil
}

// New returns the workload's requests, with Prompt and Output 0.
func New(c Config) (trace.Source, error) {
	err := c.Check()
	var g *generator
	if err == nil {
		g, err = newGenerator(c)
	}
	if err != nil {
		return nil, fmt.Errorf("synthetic workload: %w", err)
	}
	return g, nil
}

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
	recent *renewal.Recent // nil: no locality
	runs   *sessions       // nil: requests are independent

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
		g.recent = renewal.NewRecent(c.Locality.P, c.Locality.Window, stream(c.Seed, forLocality, 0))
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
		rank = int32(renewal.Drift(int(rank), len(g.adapters), t, g.drift))
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

// Purposes of random streams. Their numbers are part of what makes a seed
// reproduce a workload: never renumber them.
const (
	forGaps     = 1 // one stream per adapter
	forPick     = 2 // which adapter a request of the total process uses
	forShuffle  = 3 // which adapter has which popularity
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
