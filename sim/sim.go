// Package sim simulates LLM workers that serve LoRA adapters, as discrete
// events.
//
// A request travels: [Run] takes it from the source and asks the router for a
// worker (client.go); the worker queues it, picks it for a prefill step
// (prefill.go), runs it in its decode batch (decode.go) and reports its record
// to the observer when its last token is out. Adapter weights come and go in
// adapters.go, KV pages in kv.go.
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
	"io"
	"math/rand/v2"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Config is one simulated run.
type Config struct {
	Source   trace.Source
	Workers  []*profile.Costs // one for each worker; may be the same value
	Router   *router.Router
	Observer record.Observer
	// Others watch beside Observer. Each is asked for what it can: DoneObserver,
	// Watcher, PlanObserver; so is Observer.
	Others []any

	// MaxConcurrency limits the requests in flight (closed loop); 0: none.
	MaxConcurrency int
	// FailAbove: a request that finds so many in flight fails at once, as where
	// a client runs out of ports; 0: none does. Not a closed loop: nobody waits.
	FailAbove int
	// Window ends the run after so many seconds: what is unfinished then is cut
	// off (record.Unfinished), and the source is read no further; 0: no end.
	Window float64
	// NoStream: clients see all tokens at once, at the end.
	NoStream bool
	// WarmUp sends one request ahead of the run and leaves it out of the
	// result; what remains of it is its adapter in a GPU slot.
	WarmUp bool
	// Staleness is the age up to which workers' reports to the router may lag, s.
	Staleness float64
	// KnownOutputs tells routers every request's output in advance, for bounds.
	KnownOutputs bool
	// Home is where adapters lie that a worker does not start with.
	Home router.Tier

	// TokenTimes fills in the gaps of the records, at a cost for every token.
	TokenTimes bool

	// MoveMode is how requests move that plans send elsewhere.
	MoveMode router.Moving
	// LoadFailures is the probability that an adapter load fails, once its time
	// is spent.
	LoadFailures float64
	Outages      []Outage
	// NoFailover: requests fail with their worker instead of going to another.
	NoFailover bool
	// Seed of what is random in the simulator itself: failures.
	Seed uint64

	// Progress, where set, is called now and then with the requests done and
	// the simulated time in seconds.
	Progress func(done int64, now float64)
}

// WorkerStats counts what one worker did.
type WorkerStats struct {
	Requests     int64 // finished there
	PrefillSteps int64
	DecodeSteps  int64
	Busy         tick.Ticks // time in steps, adapter loads within them included
	Loads        int64      // adapter loads into a GPU slot
	LoadTime     tick.Ticks // time those loads took
	Stalled      tick.Ticks // part of Busy spent waiting for adapter loads
	Evictions    int64      // adapters that lost their GPU slot
	Failures     int64      // loads that failed
	Retractions  int64      // requests that lost their KV cache
	PeakRunning  int64
	PeakKV       int64 // tokens
}

// Stats counts what a run did beside its requests' records.
type Stats struct {
	Workers  []WorkerStats
	Requests int64
	Events   int64
	End      tick.Ticks // when the client saw the last token
	Plans    PlanStats
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
	obs      record.Observer
	others   others   // who else wants to see what
	listener Listener // of a Server: wants to hear of every token
	stepper  StepListener

	now    tick.Ticks
	events events
	rng    *rand.Rand
	plan   planning
	// transfers under way; an id below 0 marks an unused place
	transfers []transfer

	window  tick.Ticks // end of the run, tick.Never: when all is done
	tooMany string     // why requests fail beyond Config.FailAbove

	timers  timers // slot w: end of worker w's step; slot W+w: end of its adapter load
	workers []worker
	ready   []int32 // workers to begin a step at this instant

	reqs  []request   // requests in flight, by index
	free  []int32     // unused indices of reqs
	gaps  [][]float64 // by index of reqs, with Config.TokenTimes
	head  trace.Request
	headT tick.Ticks // arrival of head; tick.Never: the source is at its end

	inFlight int
	releases times // when finished requests make room for new ones (closed loop)

	view    router.View
	outputs *router.Outputs
	stale   *router.Stale

	rec      record.Request // the record under way, reused
	requests int64
	done     int64
	loops    int64
	end      tick.Ticks
}

func newSim(cfg Config) (*sim, error) {
	if len(cfg.Workers) == 0 {
		return nil, errors.New("sim: no workers")
	}
	if cfg.Router == nil || cfg.Router.Policy == nil {
		return nil, errors.New("sim: no router")
	}
	if cfg.MaxConcurrency < 0 {
		return nil, fmt.Errorf("sim: max concurrency is %d, expected >= 0", cfg.MaxConcurrency)
	}
	if cfg.FailAbove < 0 {
		return nil, fmt.Errorf("sim: limit of requests in flight is %d, expected >= 0", cfg.FailAbove)
	}
	window, err := cfg.windowEnd()
	if err != nil {
		return nil, err
	}
	if cfg.Home > router.Disk {
		return nil, fmt.Errorf("sim: home tier is %d, expected remote or disk", cfg.Home)
	}
	s := &sim{cfg: cfg, adapters: cfg.Source.Adapters(), obs: cfg.Observer, window: window,
		tooMany: fmt.Sprintf("the client has %d requests in flight", cfg.FailAbove)}
	if err := s.others.add(cfg); err != nil {
		return nil, err
	}
	n := len(cfg.Workers)
	s.timers.init(2 * n)
	s.view = router.View{Workers: make([]router.Worker, n), Adapters: s.adapters}
	s.outputs = router.NewOutputs(len(s.adapters))
	s.workers = make([]worker, n)
	for i := range s.workers {
		if err := s.workers[i].init(s, i, cfg.Workers[i]); err != nil {
			return nil, fmt.Errorf("sim: worker %d: %w", i, err)
		}
	}
	if cfg.Staleness > 0 {
		s.stale = router.NewStale(cfg.Staleness)
	}
	s.rng = rand.New(rand.NewPCG(cfg.Seed, 0x6661756c7473))
	if err := s.scheduleOutages(); err != nil {
		return nil, err
	}
	if err := s.initPlanning(); err != nil {
		return nil, err
	}
	if err := s.fetch(); err != nil {
		return nil, err
	}
	if cfg.WarmUp && s.headT != tick.Never {
		s.warmUp(s.head.Adapter)
	}
	return s, nil
}

// run is the event loop; the package comment explains the order of events.
func (s *sim) run(ctx context.Context) error {
	for {
		now := s.next()
		if now == tick.Never {
			break
		}
		if now > s.window {
			s.cutOff()
			break
		}
		if now > tick.Max {
			return fmt.Errorf("sim: the run passes %.0f days of simulated time; compress the workload's times", tick.Max.Seconds()/86400)
		}
		s.watch(now)
		s.now = now
		s.loops++
		if s.loops&0xfff == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
			if s.cfg.Progress != nil {
				s.cfg.Progress(s.done, now.Seconds())
			}
		}
		for s.timers.top() == now {
			if slot := s.timers.pop(); slot < len(s.workers) {
				s.workers[slot].endStep()
			} else {
				s.workers[slot-len(s.workers)].endLoad()
			}
		}
		s.handle(eventArrivals)
		if err := s.send(); err != nil {
			return err
		}
		s.handle(eventPlan + 1)
		for k := 0; k < len(s.ready); k++ { // one may make another ready
			s.workers[s.ready[k]].begin()
		}
		s.ready = s.ready[:0]
	}
	if left := s.requests - s.done; left > 0 {
		return fmt.Errorf("sim: internal error: %d requests never ended", left)
	}
	return nil
}

// next is the time of the next event.
func (s *sim) next() tick.Ticks {
	t := s.timers.top()
	if s.headT != tick.Never && s.hasRoom() {
		t = min(t, max(s.headT, s.now)) // in a closed loop the head may be overdue
	}
	if len(s.releases) > 0 {
		t = min(t, s.releases[0])
	}
	if t == tick.Never && s.events.work == 0 {
		return t // planning alone is no reason to go on
	}
	return min(t, s.events.top())
}

// handle deals with the events that are due and of a kind before the given one.
func (s *sim) handle(before eventKind) {
	for {
		e, ok := s.events.due(s.now, before)
		if !ok {
			return
		}
		switch e.kind {
		case eventTransfer:
			s.endTransfer(e.what)
		case eventDown:
			s.workers[e.what].fail()
		case eventUp:
			s.workers[e.what].recover()
		case eventEnter:
			s.workers[e.what].enter()
		case eventApply:
			s.applyPending()
		case eventPlan:
			s.planNow()
		}
	}
}

// hasRoom says whether the client may have one more request in flight.
func (s *sim) hasRoom() bool {
	return s.cfg.MaxConcurrency == 0 || s.inFlight < s.cfg.MaxConcurrency
}

// fetch reads the next request of the source into head.
func (s *sim) fetch() error {
	r, err := s.cfg.Source.Next()
	if errors.Is(err, io.EOF) {
		s.headT = tick.Never
		return nil
	}
	if err != nil {
		return err
	}
	if err := r.Check(len(s.adapters)); err != nil {
		return fmt.Errorf("sim: request %d: %w", r.ID, err)
	}
	if r.Arrival >= tick.Max.Seconds() {
		return fmt.Errorf("sim: request %d arrives after %.0f days, expected at most %.0f; compress the workload's times",
			r.ID, r.Arrival/86400, tick.Max.Seconds()/86400)
	}
	t := tick.FromSeconds(r.Arrival)
	if s.requests > 0 && t < s.headT {
		return fmt.Errorf("sim: request %d arrives at %v s, before its predecessor", r.ID, r.Arrival)
	}
	s.head, s.headT = r, t
	s.requests++
	return nil
}

func (s *sim) stats() *Stats {
	st := &Stats{Requests: s.done, Events: s.loops, End: s.end, Plans: s.planStats()}
	for i := range s.workers {
		st.Workers = append(st.Workers, s.workers[i].stats)
	}
	return st
}

// request is one request in flight.
type request struct {
	id      int64
	arrival float64    // as the workload states it, s
	arrived tick.Ticks // the same in ticks
	sent    tick.Ticks
	first   tick.Ticks // first token, tick.Never before
	last    tick.Ticks // latest token seen before it left a batch
	queued  tick.Ticks // when it entered its worker's queue
	cold    tick.Ticks // waited for adapter weights

	prompt, output, maxNew int32
	expected               int32 // output that routers expect
	asked                  int32 // max_new_tokens as the client stated it
	adapter                int32 // index into a worker's adapter table
	generated              int32 // tokens generated before it joined the batch
	prefilled              int32 // tokens of prompt + generated in the KV cache

	joinStep   int64 // worker's decode steps when it joined the batch
	joinTime   tick.Ticks
	finishStep int64 // worker's decode steps when its last token is out

	seq                      int64 // order in the queue
	order                    int64 // order in the batch
	next, prev, anext, aprev int32 // neighbours in the queue, and among its adapter's

	workerFirst, worker int32
	migrations          int32

	state   state
	moving  moving
	dest    int32      // worker that it moves to
	carried int64      // KV tokens that come with it
	copied  int64      // KV tokens that a precopy has sent ahead
	started tick.Ticks // when it first entered a prefill step
}

// state is where a request is.
type state uint8

const (
	waiting  state = iota // in a worker's queue
	filling               // in a prefill step, or between two chunks
	running               // in a batch
	transit               // between two workers
	entering              // in a worker's front end
)

// alloc returns the index of an unused request.
func (s *sim) alloc() int32 {
	if n := len(s.free); n > 0 {
		i := s.free[n-1]
		s.free = s.free[:n-1]
		if s.gaps != nil {
			s.gaps[i] = nil
		}
		return i
	}
	s.reqs = append(s.reqs, request{})
	if s.cfg.TokenTimes {
		s.gaps = append(s.gaps, nil)
	}
	return int32(len(s.reqs) - 1)
}
