// Package sim simulates LLM workers that serve LoRA adapters, as discrete events.
//
// [Run] reads requests from a source and asks the router for a worker for each one (client.go). The worker's engine
// (package engine) queues the request, forms steps and runs the request in its batch until its last token. The observer
// gets a record of every request. Plans move requests (migrate.go); workers fail (outage.go), join and leave
// (elastic.go).
//
//	stats, err := sim.Run(ctx, sim.Config{Source: source, Workers: costs, Router: rt, Observer: observer})
//
// [Server] is a single worker that a program drives.
//
// Events are ordered by (time, kind, worker). At one instant, steps and adapter loads end first, so that their capacity
// is free. Then requests arrive, so that a step that begins at that instant can take them. Then workers between two
// steps begin the next one. Workers share only the router's view, so their order within a kind does not matter.
//
// Decode steps are not simulated one by one. Between two changes of the batch, their lengths form an arithmetic
// progression, which takes one event. Time is an integer (package tick), so the result is exactly that of single steps.
// The tests compare it with an engine that simulates every step.
package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"lorasim/internal/heap"
	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Config describes one simulated run.
type Config struct {
	Source   trace.Source
	Workers  []*profile.Costs // costs of each worker; several may share a value
	Router   *router.Router
	Observer record.Observer
	Watchers []record.Watcher // get the events of the run, in this order

	MaxConcurrency int // limit of requests in flight (closed loop); 0: no limit
	// FailAbove limits the requests in flight, like a client that runs out of ports: a request above the limit fails at
	// once. 0: no limit. It is not a closed loop: no request waits.
	FailAbove int
	// Window ends the run after this time, s; 0: no end. Requests that are unfinished then are cut off
	// (record.Unfinished), and the source is read no further.
	Window   float64
	NoStream bool // clients see all tokens of a reply at its end
	// WarmUp begins the run as after one warm-up request: the adapter of the first request holds a GPU slot. The result
	// excludes the warm-up request.
	WarmUp bool
	// Start lists the adapters that each worker holds at the start, by worker. nil: those of the router's placement, or
	// all adapters, in host memory.
	Start        []Start
	Staleness    float64     // maximum age of worker metrics seen by the router, s
	KnownOutputs bool        // the router sees every request's output length, for bounds
	Home         router.Tier // where adapters lie that a worker does not hold: disk or remote
	TokenTimes   bool        // records the gaps between tokens, at a cost for every token

	MoveMode     router.Moving // how plans move requests
	LoadFailures float64       // probability that an adapter load fails, after its full time
	Outages      []Outage
	Elastic      *Elastic // nil: all workers are on during the whole run
	Push         *Push    // nil: adapters have one version
	NoFailover   bool     // requests of a failed worker fail instead of going to another worker
	Seed         uint64   // seed of random events in the simulator: failed loads

	// Progress, if not nil, is called every 256 instants with the number of ended requests and the simulated time, s.
	Progress func(done int64, now float64)
}

// Start lists adapters that a worker holds at the start: in GPU slots, and in host memory alone. Adapters for which
// there is no room left are ignored.
type Start struct{ Slots, Host []int32 }

// WorkerStats counts what one worker did.
type WorkerStats struct {
	Requests int64 // requests that ended successfully on the worker
	engine.Stats
	On tick.Ticks // time during which the worker used a GPU
}

// Stats counts what happened in a run, in addition to the records of its requests.
type Stats struct {
	Workers          []WorkerStats
	Requests, Events int64      // ended requests; simulated instants
	End              tick.Ticks // when the client saw the last token
	Plans            record.PlanCounters
	Elastic          *ElasticStats // nil: Config.Elastic is nil
	Push             *PushStats    // nil: Config.Push is nil
}

// Run simulates all requests of the source. It returns an error if the configuration is invalid, the source fails or
// ctx ends. The observer has then seen only a part of the run.
func Run(ctx context.Context, cfg Config) (*Stats, error) {
	s, err := newSim(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	return s.stats(), nil
}

type sim struct {
	cfg      Config
	adapters []trace.Adapter // those of the source, then their further versions (see pushing)
	events   record.Stream
	event    record.Event // the latest
	all      []int32      // all adapters
	rng      *rand.Rand

	loop   event.Loop
	window tick.Ticks // end of the run, tick.Never: when all is done

	workers []worker
	allFit  map[*profile.Costs]bool // see worker.startsWhole
	plan    planning
	fault   error // first error of the policy
	elastic elastic
	push    *pushing // nil: no pushes

	reqs  []*request // in flight, and the unused ones in free
	free  []*request
	head  trace.Request
	headT tick.Ticks // arrival of head; tick.Never: the source is at its end

	inFlight int
	releases heap.Heap[struct{}] // when finished requests make room for new ones (closed loop)

	view    router.View
	outputs *router.Outputs
	stale   *router.Stale

	rec                   record.Request // the record under way, reused
	requests, done, loops int64
	end                   tick.Ticks
}

func newSim(cfg Config) (*sim, error) {
	window := tick.Never
	switch w := cfg.Window; {
	case len(cfg.Workers) == 0:
		return nil, errors.New("sim: no workers")
	case cfg.Router == nil || cfg.Router.Policy == nil:
		return nil, errors.New("sim: no router")
	case cfg.MaxConcurrency < 0:
		return nil, fmt.Errorf("sim: max concurrency is %d, expected >= 0", cfg.MaxConcurrency)
	case cfg.FailAbove < 0:
		return nil, fmt.Errorf("sim: limit of requests in flight is %d, expected >= 0", cfg.FailAbove)
	case !(w >= 0) || w >= tick.Max.Seconds():
		return nil, fmt.Errorf("sim: window is %v s, expected 0 (none) to %.0f", w, tick.Max.Seconds())
	case cfg.Home > router.Disk:
		return nil, fmt.Errorf("sim: home tier is %d, expected remote or disk", cfg.Home)
	case w > 0:
		window = tick.FromSeconds(w)
	}
	s := &sim{cfg: cfg, adapters: cfg.Source.Adapters(), window: window, workers: make([]worker, len(cfg.Workers)),
		allFit: map[*profile.Costs]bool{}, rng: rand.New(rand.NewPCG(cfg.Seed, 0x6661756c7473))}
	for a := range s.adapters {
		s.all = append(s.all, int32(a))
	}
	s.view = router.View{Workers: make([]router.Worker, len(cfg.Workers)), Adapters: s.adapters}
	s.view.Index = router.NewIndex(len(cfg.Workers), len(s.adapters))
	s.view.Read = func(j int) { s.workers[j].v.KVUsed = s.workers[j].engine.KVTokens() }
	s.outputs = router.NewOutputs(len(s.adapters))
	if cfg.Staleness > 0 {
		s.stale = router.NewStale(cfg.Staleness)
	}
	for _, w := range cfg.Watchers {
		s.events.Add(w)
	}
	for _, f := range []func() error{s.initElastic, s.initPush} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	for i := range s.workers {
		if err := s.workers[i].init(s, i, cfg.Workers[i]); err != nil {
			return nil, fmt.Errorf("sim: worker %d: %w", i, err)
		}
	}
	if slices.ContainsFunc(cfg.Workers, func(c *profile.Costs) bool { return c.Profile().Engine.PrefixCache }) {
		s.view.Prefixes = prefixes{s}
	}
	for _, f := range []func() error{s.scheduleOutages, s.initPlanning, s.fetch} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	for i := range cfg.Start {
		for _, a := range cfg.Start[i].Slots {
			s.workers[i].engine.LoRA.Begin(&s.workers[i].adapter(a).Adapter)
		}
	}
	if cfg.WarmUp && s.headT != tick.Never {
		s.warmUp(s.head.Adapter)
	}
	return s, nil
}

// run goes from one instant at which something happens to the next.
func (s *sim) run(ctx context.Context) error {
	send := func() error { return s.send(ctx) }
	for now := s.next(); now != tick.Never; now = s.next() {
		if now > s.window {
			s.cutOff()
			break
		}
		if now > tick.Max {
			return fmt.Errorf("sim: the run passes %.0f days of simulated time; compress the workload's times",
				tick.Max.Seconds()/86400)
		}
		s.watch(now)
		s.loop.MoveTo(now)
		if s.loops++; s.loops&0xff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.cfg.Progress != nil {
				s.cfg.Progress(s.done, now.Seconds())
			}
		}
		if err := s.instant(send); err != nil {
			return err
		}
	}
	if left := s.requests - s.done; left > 0 {
		return fmt.Errorf("sim: internal error: %d requests never ended", left)
	}
	return nil
}

// instant processes what is due now, in the order of the package comment.
func (s *sim) instant(arrivals func() error) error {
	s.loop.RunBefore(event.Arrivals)
	if err := arrivals(); err != nil {
		return err
	}
	s.loop.Run()
	s.loop.RunYielded()
	return s.fault
}

// next is the time of the next event.
func (s *sim) next() tick.Ticks {
	t := tick.Never
	if s.headT != tick.Never && s.hasRoom() {
		t = max(s.headT, s.loop.Now()) // in a closed loop the head may be overdue
	}
	if len(s.releases) > 0 {
		t = min(t, tick.Ticks(s.releases[0].Key))
	}
	if t == tick.Never && s.loop.Idle() && len(s.elastic.held) == 0 {
		return t
	}
	return min(t, s.loop.Next())
}

// loadFails draws whether an adapter load fails.
func (s *sim) loadFails() bool { return s.cfg.LoadFailures > 0 && s.rng.Float64() < s.cfg.LoadFailures }

// unfinished says whether there are requests that have not ended, or are to come.
func (s *sim) unfinished() bool { return s.headT != tick.Never || s.done < s.requests }

// hasRoom says whether the client may have one more request in flight.
func (s *sim) hasRoom() bool {
	return s.cfg.MaxConcurrency == 0 || s.inFlight < s.cfg.MaxConcurrency
}

func (s *sim) stats() *Stats {
	end := s.end
	if s.loop.Now() == s.window {
		end = s.window
	}
	st := &Stats{Requests: s.done, Events: s.loops, End: s.end, Plans: s.plan.book.Counters()}
	for i := range s.workers {
		st.Workers = append(st.Workers, s.workers[i].stats(end))
	}
	st.Elastic, st.Push = s.elasticStats(st.Workers, end), s.push.counts()
	return st
}
