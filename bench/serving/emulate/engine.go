package emulate

import (
	"errors"
	"fmt"
	"log"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"lorasim/internal/guard"
	"lorasim/sim"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// engine runs a simulated worker in wall-clock time, multiplied by a factor. Reports for a later time wait in due.
type engine struct {
	speed float64
	start time.Time
	wake  chan struct{}
	quit  chan struct{}
	done  chan struct{}

	mu      sync.Mutex
	srv     *sim.Server
	streams map[int64]*stream
	due     []report // in the order of their times
	nextID  int64
	waiters []waiter
	awake   tick.Ticks // when run looks again
	broken  error      // a panic that has ended run; nil: none

	measures measures
	lora     loraInfo
}

// report is the progress of a stream at a time.
type report struct {
	at tick.Ticks
	to *stream
	progress
}

// waiter waits for the worker to be in some state.
type waiter struct {
	reached func() bool
	done    chan struct{}
}

// stream is one request as its HTTP handler sees it. The handler is woken when there are new tokens, and takes all of
// them: a slow client costs no memory.
type stream struct {
	id     int64
	rid    string
	prompt int32
	lora   string     // adapter; "": base model
	flow   int        // of measures
	stops  bool       // a stop token is to end it
	came   tick.Ticks // when it was submitted
	last   tick.Ticks // when its latest token came
	made   progress   // in the worker's time; guarded by engine.mu
	news   chan struct{}

	mu    sync.Mutex
	state progress
}

// progress is the progress of a stream.
type progress struct {
	tokens int
	cached int32 // of the prompt, found in the prefix cache
	ended  bool
	status record.Status
	reason string
}

func (s *stream) look() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func newEngine(cfg sim.ServerConfig, speed float64, b bounds) (*engine, error) {
	e := &engine{speed: speed, start: time.Now(), streams: map[int64]*stream{}, measures: newMeasures(b),
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	cfg.Hooks.Token, cfg.Hooks.Ended = e.Token, e.Ended
	var err error
	if e.srv, err = sim.NewServer(cfg); err != nil {
		return nil, err
	}
	go e.run()
	return e, nil
}

// now returns the worker's time.
func (e *engine) now() tick.Ticks {
	return tick.FromSeconds(time.Since(e.start).Seconds() * e.speed)
}

// Token is a hook of sim.ServerHooks; called with mu held, as Ended is.
func (e *engine) Token(id int64, at tick.Ticks) {
	s := e.streams[id]
	s.made.cached = e.srv.Cached(id)
	s.made.tokens++
	e.measures.token(s, at)
	e.due = append(e.due, report{at, s, s.made})
}

// Ended is a hook of sim.ServerHooks.
func (e *engine) Ended(id int64, status record.Status, reason string, at tick.Ticks) {
	s := e.streams[id]
	s.made.ended, s.made.status, s.made.reason = true, status, reason
	e.measures.end(s, at)
	e.due = append(e.due, report{at, s, s.made})
	delete(e.streams, id)
}

// run moves the worker along with the clock.
func (e *engine) run() {
	defer close(e.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-e.wake:
		case <-e.quit:
			return
		}
		var next tick.Ticks
		if err := guard.Do(func() error {
			e.mu.Lock()
			defer e.mu.Unlock()
			next = e.catchUp()
			e.awake = next
			return nil
		}); err != nil {
			e.fail(err)
			return
		}
		if next != tick.Never { // rounded up, so that the time has come when the wait is over
			wait := math.Ceil((next - e.now()).Seconds() / e.speed * float64(time.Second))
			timer.Reset(time.Duration(min(max(wait, 0), math.MaxInt64/2)))
		}
	}
}

// fail ends all requests after a panic of the simulated worker. The worker takes no others; other workers of the
// process go on.
func (e *engine) fail(err error) {
	if p, ok := errors.AsType[*guard.Panic](err); ok {
		log.Printf("the emulated engine failed: %v\n%s", p, p.Stack)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = fmt.Errorf("the emulated engine has failed: %w", err)
	end := func(s *stream) {
		p := s.look() // what its client has seen
		p.ended, p.status, p.reason = true, record.Failed, e.broken.Error()
		(&report{to: s, progress: p}).deliver()
	}
	for _, s := range e.streams {
		end(s)
	}
	for _, r := range e.due { // those that have ended, but in the future
		end(r.to)
	}
	clear(e.streams)
	e.due = nil
}

// catchUp advances the worker to the present and delivers the reports that are due. It returns the time of the next
// work.
func (e *engine) catchUp() tick.Ticks {
	now := e.now()
	e.srv.Advance(now)
	stats := e.srv.Stats()
	e.measures.activated(stats.ColdLoads, stats.Stalled.Seconds())
	n, stepped := 0, false
	for ; n < len(e.due) && e.due[n].at <= now; n++ {
		stepped = e.list(&e.due[n]) || stepped
		e.due[n].deliver()
	}
	if stepped {
		e.lora.step(time.Now())
	}
	e.due = slices.Delete(e.due, 0, n)
	e.waiters = slices.DeleteFunc(e.waiters, func(w waiter) bool {
		reached := w.reached()
		if reached {
			close(w.done)
		}
		return reached
	})
	next := e.srv.Next()
	if len(e.due) > 0 {
		next = min(next, e.due[0].at)
	}
	return next
}

// list updates the list of adapters by a report that is due. It reports whether the report is of a step. The end of an
// aborted request is not.
func (e *engine) list(r *report) (step bool) {
	switch had := r.to.look().tokens; { // only catchUp changes it
	case r.tokens > had && had == 0:
		e.lora.began(r.to.lora)
		step = true
	case r.tokens > had:
		step = true
	}
	if r.ended && r.tokens > 0 {
		e.lora.ended(r.to.lora)
		step = step || r.status == record.OK
	}
	return step
}

func (r *report) deliver() {
	r.to.mu.Lock()
	r.to.state = r.progress
	r.to.mu.Unlock()
	poke(r.to.news)
}

// poke wakes the goroutine that waits on a channel.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// submit passes a request to the worker at the present time. It returns an error if the worker rejects it at once.
func (e *engine) submit(r trace.Request, o *order, news chan struct{}) (*stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return nil, e.broken
	}
	e.nextID++
	r.ID = e.nextID
	s := &stream{id: r.ID, rid: o.rid, prompt: r.Prompt, lora: o.adapter, flow: o.flow, stops: r.Output < r.MaxNew,
		came: e.now(), news: news}
	e.streams[s.id] = s
	if err := e.srv.Submit(r); err != nil {
		delete(e.streams, s.id)
		return nil, err
	}
	if e.catchUp() < e.awake {
		poke(e.wake)
	}
	return s, s.made.failure()
}

// do advances the worker to the present and calls f.
func (e *engine) do(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srv.Advance(e.now())
	f()
	poke(e.wake)
}

// cancel aborts the requests that match.
func (e *engine) cancel(match func(*stream) bool) {
	e.do(func() {
		for _, s := range slices.Collect(maps.Values(e.streams)) { // Cancel takes them out
			if match(s) {
				e.srv.Cancel(s.id)
			}
		}
	})
}

// wait returns a function that returns once reached holds, or the engine stops.
func (e *engine) wait(reached func() bool) func() {
	w := waiter{reached, make(chan struct{})}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiters = append(e.waiters, w)
	poke(e.wake)
	return func() {
		select {
		case <-w.done:
		case <-e.done:
		}
	}
}

func (e *engine) close() {
	close(e.quit)
	<-e.done
}
