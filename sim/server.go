package sim

import (
	"fmt"
	"io"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Listener hears what happens to the requests of a [Server]. Times are those at
// which a client sees it, so they may lie a request overhead after the instant
// the server has advanced to; for one request they never go back.
type Listener interface {
	// Token reports the next token of a request.
	Token(id int64, at tick.Ticks)
	// Ended reports a request's end, once for each, after its last token.
	Ended(id int64, status record.Status, reason string, at tick.Ticks)
}

// ServerConfig describes one simulated worker that a program drives.
type ServerConfig struct {
	Costs    *profile.Costs
	Listener Listener
	// MaxAdapters is the number of adapters that may be defined, GPU slots and
	// host memory aside.
	MaxAdapters int
	Home        router.Tier // where adapters lie that were not loaded: disk or remote
}

// Server is one simulated worker without a workload of its own: a program hands
// it requests when they come and moves its clock. It is the same worker as in
// [Run], and gives the same times; only the leaps over decode steps are of one
// step each, so that every token is reported. It knows no wall clock and is for
// one goroutine.
//
//	srv, err := sim.NewServer(sim.ServerConfig{Costs: costs, Listener: l, MaxAdapters: 8})
//	srv.Define(0, trace.Adapter{Name: "chat", Rank: 16})
//	srv.Load(0)
//	err = srv.Submit(trace.Request{ID: 1, Adapter: 0, Prompt: 100, Output: 20})
//	for t := srv.Next(); t != tick.Never; t = srv.Next() {
//		srv.Advance(t)
//	}
type Server struct {
	s     *sim
	w     *worker
	inbox []trace.Request
}

// NewServer returns a worker at time 0 with no adapter defined.
func NewServer(cfg ServerConfig) (*Server, error) {
	if cfg.Costs == nil || cfg.Listener == nil {
		return nil, fmt.Errorf("sim: a server needs costs and a listener")
	}
	if cfg.MaxAdapters < 0 {
		return nil, fmt.Errorf("sim: room for %d adapters, expected >= 0", cfg.MaxAdapters)
	}
	s, err := newSim(Config{
		Source:   noRequests{make([]trace.Adapter, cfg.MaxAdapters)},
		Workers:  []*profile.Costs{cfg.Costs},
		Router:   &router.Router{Policy: onlyWorker{}, Placement: [][]int32{nil}},
		Observer: endings{cfg.Listener},
		Home:     cfg.Home,
	})
	if err != nil {
		return nil, err
	}
	s.listener = cfg.Listener
	if s.stepper, _ = cfg.Listener.(StepListener); s.stepper != nil {
		s.workers[0].noted = newStep()
	}
	s.plan.byID = map[int64]int32{}
	return &Server{s: s, w: &s.workers[0]}, nil
}

// noRequests is a source of adapters alone.
type noRequests struct{ adapters []trace.Adapter }

func (n noRequests) Adapters() []trace.Adapter    { return n.adapters }
func (n noRequests) Len() int64                   { return 0 }
func (n noRequests) Next() (trace.Request, error) { return trace.Request{}, io.EOF }

type onlyWorker struct{}

func (onlyWorker) Route(router.Request, *router.View) int { return 0 }

// endings tells a listener of the ends of requests.
type endings struct{ Listener }

func (e endings) Done(r *record.Request) {
	e.Ended(r.ID, r.Status, r.Error, tick.FromSeconds(r.Finish))
}
func (endings) Tokens(tick.Ticks, int64) {}
func (endings) Steps(record.Steps)       {}
func (endings) Gap(tick.Ticks, int64)    {}

// Now is the time the server has advanced to.
func (v *Server) Now() tick.Ticks { return v.s.now }

// Next is the time of the next event, tick.Never if nothing is under way.
func (v *Server) Next() tick.Ticks {
	if len(v.inbox) > 0 {
		return v.s.now
	}
	return v.s.next()
}

// Submit hands in a request that arrives at the time of the next Advance; its
// arrival time is ignored. IDs of requests in flight must differ.
func (v *Server) Submit(r trace.Request) error {
	r.Arrival = 0
	if err := r.Check(len(v.s.adapters)); err != nil {
		return err
	}
	if _, ok := v.s.plan.byID[r.ID]; ok || slices.ContainsFunc(v.inbox, func(q trace.Request) bool { return q.ID == r.ID }) {
		return fmt.Errorf("request %d is in flight already", r.ID)
	}
	v.inbox = append(v.inbox, r)
	return nil
}

// Advance moves the clock to the given time, deals with every event up to it,
// and lets the submitted requests arrive. A time in the past counts as now.
func (v *Server) Advance(to tick.Ticks) {
	s := v.s
	to = max(min(to, tick.Max), s.now)
	for t := s.next(); t < to; t = s.next() {
		s.now = t
		v.endDue()
		v.settle()
	}
	s.now = to
	v.endDue()
	v.arrive()
	v.settle()
}

// endDue, arrive and settle are what happens at one instant, in the order that
// [Run] has: endDue ends the steps and loads that are due.
func (v *Server) endDue() {
	s := v.s
	for s.timers.top() == s.now {
		if slot := s.timers.pop(); slot < len(s.workers) {
			s.workers[slot].endStep()
		} else {
			s.workers[slot-len(s.workers)].endLoad()
		}
	}
	s.handle(eventArrivals) // requests that leave the front end
}

// arrive hands the submitted requests to the worker.
func (v *Server) arrive() {
	s := v.s
	for _, r := range v.inbox {
		r.Arrival = s.now.Seconds()
		s.head, s.headT = r, s.now
		s.requests++
		s.sendHead()
	}
	s.headT = tick.Never
	v.inbox = v.inbox[:0]
}

// settle lets the worker begin the step that it is ready for.
func (v *Server) settle() {
	s := v.s
	for k := 0; k < len(s.ready); k++ { // one may make another ready
		s.workers[s.ready[k]].begin()
	}
	s.ready = s.ready[:0]
}

// Cancel gives a request up. One that waits ends at once; one that runs ends
// with the step under way, one whose prompt is being prefilled when that is
// done; tokens that come until then are reported. It returns false if there is
// no such request, or no longer.
func (v *Server) Cancel(id int64) bool {
	if k := slices.IndexFunc(v.inbox, func(r trace.Request) bool { return r.ID == id }); k >= 0 {
		v.inbox = slices.Delete(v.inbox, k, k+1)
		v.s.listener.Ended(id, record.Aborted, canceledReason, v.s.now+v.w.costs.Overhead)
		return true
	}
	i, ok := v.s.plan.byID[id]
	if !ok {
		return false
	}
	v.w.cancel(i)
	v.settle()
	return true
}

// Define says what adapter i is. No request may use it meanwhile.
func (v *Server) Define(i int32, a trace.Adapter) {
	v.s.adapters[i] = a
	v.w.ranks.set(i, v.w.costs.Rank(a.Rank))
}

// Preload puts an adapter into host memory at once, as at a server's start.
func (v *Server) Preload(i int32) {
	if v.w.v.Adapters[i].Tier < router.Host && !v.w.adapters.rows[i].fetching() {
		v.w.fetchHost(i)
		v.w.setTier(i, router.Host)
	}
}

// Load begins to bring an adapter to host memory; see Loaded.
func (v *Server) Load(i int32) {
	r := &v.w.adapters.rows[i]
	r.leaving = false
	if v.w.v.Adapters[i].Tier < router.Host && !r.fetching() {
		v.w.startFetch(i)
	}
}

// Unload drops an adapter as soon as no request uses it; see Gone.
func (v *Server) Unload(i int32) {
	v.w.release(i)
	v.settle()
}

// Pin keeps an adapter from being evicted, or allows it again.
func (v *Server) Pin(i int32, pinned bool) {
	v.w.v.Adapters[i].Pinned = pinned
	v.w.adapters.pins = true
}

// Loaded says whether an adapter's weights are in host memory or a GPU slot.
func (v *Server) Loaded(i int32) bool {
	return v.w.v.Adapters[i].Tier >= router.Host && !v.w.adapters.rows[i].fetch
}

// Gone says whether an adapter has left the worker, and is not on its way to it.
func (v *Server) Gone(i int32) bool {
	return v.w.v.Adapters[i].Tier < router.Host && !v.w.adapters.rows[i].fetching()
}

// View is the worker as a router sees it; valid until the next call of the
// server.
func (v *Server) View() *router.Worker {
	v.w.v.KVUsed = v.w.kvNow()
	return v.w.v
}

// Stats counts what the worker did so far.
func (v *Server) Stats() WorkerStats { return v.w.stats }
