package emulate

import (
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim"
	"lorasim/trace"
)

// engine runs a simulated worker on the wall clock, speeded up by a factor.
// What the worker reports for a later time waits in due until then.
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
	head    int      // of due
	nextID  int64
	waiters []*waiter
	awake   tick.Ticks // when run looks again
}

// report is something that a client sees at a time: a token, or the end.
type report struct {
	at  tick.Ticks
	to  *stream
	end *progress // nil: a token
}

// waiter waits for the worker to be in some state.
type waiter struct {
	reached func() bool
	done    chan struct{}
}

// stream is one request as its HTTP handler sees it. The handler is told that
// there is something new, and takes all there is: a slow client costs no memory.
type stream struct {
	id   int64
	rid  string
	news chan struct{}

	mu    sync.Mutex
	state progress
}

// progress is how far a stream is.
type progress struct {
	tokens int
	ended  bool
	status record.Status
	reason string
}

func (s *stream) look() progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func newEngine(cfg sim.ServerConfig, speed float64) (*engine, error) {
	e := &engine{speed: speed, start: time.Now(), streams: map[int64]*stream{},
		wake: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{})}
	cfg.Listener = e
	var err error
	if e.srv, err = sim.NewServer(cfg); err != nil {
		return nil, err
	}
	go e.run()
	return e, nil
}

// now is the worker's time.
func (e *engine) now() tick.Ticks {
	return tick.FromSeconds(time.Since(e.start).Seconds() * e.speed)
}

// Token implements sim.Listener; called with mu held, as Ended is.
func (e *engine) Token(id int64, at tick.Ticks) {
	e.due = append(e.due, report{at: at, to: e.streams[id]})
}

// Ended implements sim.Listener.
func (e *engine) Ended(id int64, status record.Status, reason string, at tick.Ticks) {
	e.due = append(e.due, report{at: at, to: e.streams[id], end: &progress{ended: true, status: status, reason: reason}})
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
		e.mu.Lock()
		next := e.catchUp()
		e.awake = next
		e.mu.Unlock()
		if next != tick.Never {
			timer.Reset(e.until(next))
		}
	}
}

// until is the wall time to wait for a time of the worker, rounded up so that
// the time has come when it is over.
func (e *engine) until(t tick.Ticks) time.Duration {
	wait := math.Ceil((t - e.now()).Seconds() / e.speed * float64(time.Second))
	return time.Duration(min(max(wait, 0), math.MaxInt64/2))
}

// catchUp brings the worker to the present and hands out what is due. It
// returns when there is something to do next.
func (e *engine) catchUp() tick.Ticks {
	now := e.now()
	e.srv.Advance(now)
	for e.head < len(e.due) && e.due[e.head].at <= now {
		e.due[e.head].deliver()
		e.due[e.head].to = nil
		e.head++
	}
	if e.head == len(e.due) {
		e.due, e.head = e.due[:0], 0
	} else if e.head > 1024 && e.head > len(e.due)/2 {
		n := copy(e.due, e.due[e.head:])
		clear(e.due[n:])
		e.due, e.head = e.due[:n], 0
	}
	e.waiters = slices.DeleteFunc(e.waiters, func(w *waiter) bool {
		reached := w.reached()
		if reached {
			close(w.done)
		}
		return reached
	})
	next := e.srv.Next()
	if e.head < len(e.due) {
		next = min(next, e.due[e.head].at)
	}
	return next
}

func (r *report) deliver() {
	s := r.to
	s.mu.Lock()
	if r.end != nil {
		tokens := s.state.tokens
		s.state = *r.end
		s.state.tokens = tokens
	} else {
		s.state.tokens++
	}
	s.mu.Unlock()
	poke(s.news)
}

// poke makes whoever waits look again.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// submit hands a request to the worker now.
func (e *engine) submit(r trace.Request, rid string) (*stream, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nextID++
	r.ID = e.nextID
	s := &stream{id: r.ID, rid: rid, news: make(chan struct{}, 1)}
	e.streams[s.id] = s
	if err := e.srv.Submit(r); err != nil {
		delete(e.streams, s.id)
		return nil, err
	}
	if e.catchUp() < e.awake {
		poke(e.wake)
	}
	return s, nil
}

// cancel gives up the requests that match.
func (e *engine) cancel(match func(*stream) bool) {
	e.do(func() {
		for _, s := range slices.Collect(maps.Values(e.streams)) { // Cancel takes them out
			if match(s) {
				e.srv.Cancel(s.id)
			}
		}
	})
}

func (e *engine) cancelOne(s *stream) { e.do(func() { e.srv.Cancel(s.id) }) }

// do calls f with the worker brought to the present.
func (e *engine) do(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.srv.Advance(e.now())
	f()
	poke(e.wake)
}

// wait returns a function that returns once reached holds, or the engine stops.
func (e *engine) wait(reached func() bool) func() {
	w := &waiter{reached, make(chan struct{})}
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
