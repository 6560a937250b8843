package emulate

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
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

	prompts, cached int64 // prompt tokens of requests that have begun, and those found in the prefix cache
}

// report is something that a client sees at a time: a token, or the end.
type report struct {
	at     tick.Ticks
	to     *stream
	cached int32     // tokens of the prompt found in the prefix cache
	end    *progress // nil: a token
}

// waiter waits for the worker to be in some state.
type waiter struct {
	reached func() bool
	done    chan struct{}
}

// stream is one request as its HTTP handler sees it. The handler is told that
// there is something new, and takes all there is: a slow client costs no memory.
type stream struct {
	id     int64
	rid    string
	prompt int32
	begun  bool // guarded by engine.mu
	news   chan struct{}

	mu    sync.Mutex
	state progress
}

// progress is how far a stream is.
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
	s, cached := e.streams[id], e.srv.Cached(id)
	e.due = append(e.due, report{at: at, to: s, cached: cached})
	if !s.begun {
		s.begun = true
		e.prompts += int64(s.prompt)
		e.cached += int64(cached)
	}
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
		r.end.tokens, r.end.cached = s.state.tokens, s.state.cached
		s.state = *r.end
	} else {
		s.state.tokens++
		s.state.cached = r.cached
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
	s := &stream{id: r.ID, rid: rid, prompt: r.Prompt, news: make(chan struct{}, 1)}
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

// Adapter is an adapter as its loader names it.
type Adapter struct {
	Name string
	Path string
	Rank int // 0: as the path says, else what was known of that name, else the profile's default
}

// registry knows the adapters by name. An adapter keeps its row of the
// simulated worker for good, so that one that comes back is the same.
type registry struct {
	max  int // adapters loaded at a time, 0: no limit
	rows map[string]*row
}

type row struct {
	index  int32
	rank   int
	path   string
	loaded bool // requests may use it
	busy   bool // being loaded or unloaded
}

var rankInPath = regexp.MustCompile(`(?:[?&]rank=|[-_/]r)([0-9]+)$`)

// rankOf is the rank that a path states at its end (?rank=16, -r16), 0 if none.
func rankOf(path string) int {
	m := rankInPath.FindStringSubmatch(path)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // 0 where it is too large
	return n
}

func (w *Worker) preload(a Adapter) error {
	r, err := w.beginLoad(a)
	if err != nil {
		return err
	}
	w.eng.srv.Preload(r.index)
	r.loaded, r.busy = true, false
	return nil
}

// refusal is why an adapter is not loaded or unloaded, as the engines word it.
type refusal string

func (r refusal) Error() string { return string(r) }

// beginLoad books the load of an adapter; called with the engine locked.
func (w *Worker) beginLoad(a Adapter) (*row, error) {
	g := &w.adapters
	r := g.rows[a.Name]
	refuse := func(format string, args ...any) (*row, error) {
		return nil, refusal(fmt.Sprintf("Failed to load LoRA adapter %s: "+format, append([]any{a.Name}, args...)...))
	}
	if a.Name == "" || a.Name == w.cfg.ModelName {
		return nil, fmt.Errorf("%q is no name for an adapter", a.Name)
	}
	if r != nil && (r.loaded || r.busy) {
		return refuse("it is already loaded")
	}
	if n := g.taken(); g.max > 0 && n >= g.max {
		return refuse("%d of at most %d adapters are loaded", n, g.max)
	}
	rank := cmp.Or(a.Rank, rankOf(a.Path))
	if limit := w.cfg.Costs.Profile().Engine.MaxLoraRank; rank > limit {
		return refuse("rank %d is incompatible with the memory pool of max_lora_rank %d", rank, limit)
	}
	if r == nil {
		if len(g.rows) == w.cfg.MaxAdapters {
			return refuse("%d names are known, and no more fit", len(g.rows))
		}
		r = &row{index: int32(len(g.rows)), rank: -1}
		g.rows[a.Name] = r
	}
	if rank == 0 {
		rank = max(r.rank, 0)
	}
	if rank != r.rank && w.eng.srv.Gone(r.index) {
		r.rank = rank
		w.eng.srv.Define(r.index, trace.Adapter{Name: a.Name, Rank: rank})
	}
	r.path, r.busy = a.Path, true
	return r, nil
}

// lookup is the index of an adapter that requests may use.
func (w *Worker) lookup(name string) (int32, bool) {
	w.eng.mu.Lock()
	defer w.eng.mu.Unlock()
	r := w.adapters.rows[name]
	if r == nil || !r.loaded {
		return trace.BaseModel, false
	}
	return r.index, true
}

// taken counts the adapters that take a place.
func (g *registry) taken() (n int) {
	for _, r := range g.rows {
		if r.loaded || r.busy {
			n++
		}
	}
	return n
}

// load brings an adapter to the worker and returns when it is there.
func (w *Worker) load(a Adapter, pinned bool) error {
	var r *row
	var err error
	w.eng.do(func() {
		if r, err = w.beginLoad(a); err == nil {
			w.eng.srv.Load(r.index)
			w.eng.srv.Pin(r.index, pinned)
		}
	})
	if err != nil {
		return err
	}
	w.eng.wait(func() bool { return w.eng.srv.Loaded(r.index) })()
	w.eng.do(func() { r.loaded, r.busy = true, false })
	return nil
}

// unload stops new requests from using an adapter and drops it once those in
// flight have ended; wait: not before it has returned.
func (w *Worker) unload(name string, wait bool) error {
	var r *row
	var err error
	w.eng.do(func() {
		if r = w.adapters.rows[name]; r == nil || !r.loaded {
			err = refusal(fmt.Sprintf("Failed to unload LoRA adapter %s: it is not loaded", name))
			return
		}
		r.loaded, r.busy = false, true
		w.eng.srv.Pin(r.index, false)
		w.eng.srv.Unload(r.index)
	})
	if err != nil {
		return err
	}
	gone := w.eng.wait(func() bool {
		if !w.eng.srv.Gone(r.index) {
			return false
		}
		r.busy = false // under the engine's lock
		return true
	})
	if wait {
		gone()
	}
	return nil
}

// loadedAdapters maps the names of the loaded adapters to their paths.
func (w *Worker) loadedAdapters() map[string]string {
	m := map[string]string{}
	w.eng.do(func() {
		for name, r := range w.adapters.rows {
			if r.loaded {
				m[name] = r.path
			}
		}
	})
	return m
}
