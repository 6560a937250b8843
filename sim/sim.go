// Package sim simulates LLM workers that serve LoRA adapters, as discrete
// events.
//
// A request travels: [Run] takes it from the source and asks the router for a worker (client.go); the worker's engine
// (package engine) queues it, forms steps from the queue, runs it in its batch and gives it back when its last token is
// out; its record goes to the observer. Plans move requests (migrate.go), workers fail (outage.go), join and leave
// (elastic.go).
//
// Events are ordered by (time, kind, worker): at one instant, steps and adapter
// loads that end come first, so that their capacity is free; then the requests
// that arrive, so that a step that begins at that instant can take them; then
// workers that are between steps begin the next one. Workers share nothing but
// the router's view, so the order among them does not matter within a kind.
//
// Decode steps are not simulated one by one: between two changes of the batch
// their lengths form an arithmetic progression, which is crossed in one event.
// Time is an integer (internal/tick), so that this gives exactly the result of
// stepping; the tests hold it against an engine that does step.
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

// Config is one simulated run.
type Config struct {
	Source   trace.Source
	Workers  []*profile.Costs // one for each worker; may be the same value
	Router   *router.Router
	Observer record.Observer
	Hooks    []Hooks // observe beside Observer, in this order

	MaxConcurrency int // limits the requests in flight (closed loop); 0: none
	// FailAbove is a number of requests in flight: a request that finds as many fails at once, as if its client
	// had no more ports; 0: none does. Not a closed loop: nobody waits.
	FailAbove int
	// Window ends the run after this time, s: what is unfinished then is cut off (record.Unfinished), and the
	// source is read no further; 0: no end.
	Window   float64
	NoStream bool // clients see all tokens at once, at the end
	// WarmUp sends one request ahead of the run and leaves it out of the
	// result; what remains of it is its adapter in a GPU slot.
	WarmUp       bool
	Staleness    float64     // age up to which workers' reports to the router may lag, s
	KnownOutputs bool        // tells routers every request's output in advance, for bounds
	Home         router.Tier // where adapters lie that a worker does not start with
	TokenTimes   bool        // fills in the gaps of the records, at a cost for every token

	MoveMode     router.Moving // how requests move that plans send elsewhere
	LoadFailures float64       // probability that an adapter load fails, once its time is spent
	Outages      []Outage
	Elastic      *Elastic // nil: all workers are there all the time
	NoFailover   bool     // requests fail with their worker instead of going to another
	Seed         uint64   // of what is random in the simulator itself: failures

	// Progress, where set, is called now and then with the requests done and
	// the simulated time in seconds.
	Progress func(done int64, now float64)
}

// WorkerStats counts what one worker did.
type WorkerStats struct {
	Requests int64 // finished there
	engine.Stats
	On tick.Ticks // time that it cost GPU time
}

// Stats counts what a run did beside its requests' records.
type Stats struct {
	Workers          []WorkerStats
	Requests, Events int64
	End              tick.Ticks // when the client saw the last token
	Plans            PlanStats
	Elastic          *ElasticStats // nil: all workers were there all the time
}

// Run simulates the whole source. It returns an error if the configuration is
// unsound, the source fails or ctx ends; the observer has then seen only part
// of the run.
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
	adapters []trace.Adapter
	hooks    hookList
	all      []int32 // all adapters
	rng      *rand.Rand

	loop   event.Loop
	window tick.Ticks // end of the run, tick.Never: when all is done

	workers []worker
	plan    planning
	elastic elastic

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
		rng: rand.New(rand.NewPCG(cfg.Seed, 0x6661756c7473))}
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
	s.hooks = newHookList(cfg.Hooks)
	if err := s.initElastic(); err != nil {
		return nil, err
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
	if cfg.WarmUp && s.headT != tick.Never {
		s.warmUp(s.head.Adapter)
	}
	return s, nil
}

// run goes from one instant at which something happens to the next.
func (s *sim) run(ctx context.Context) error {
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
		if err := s.instant(s.send); err != nil {
			return err
		}
	}
	if left := s.requests - s.done; left > 0 {
		return fmt.Errorf("sim: internal error: %d requests never ended", left)
	}
	return nil
}

// instant does what is due now, in the order that the package comment explains.
func (s *sim) instant(arrivals func() error) error {
	s.loop.RunBefore(event.Arrivals)
	if err := arrivals(); err != nil {
		return err
	}
	s.loop.Run()
	s.loop.RunYielded()
	return s.cfg.Router.Fault()
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
	st := &Stats{Requests: s.done, Events: s.loops, End: s.end, Plans: s.planStats()}
	for i := range s.workers {
		st.Workers = append(st.Workers, s.workers[i].stats(end))
	}
	st.Elastic = s.elasticStats(st.Workers, end)
	return st
}
