package sim

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim/engine"
	adapters "lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// ServerHooks observe the requests of a [Server]. A nil function is not called. Times are those at which a
// client sees it, so they may lie a request overhead after the instant the server has advanced to; for one
// request they never go back.
type ServerHooks struct {
	// Token tells the next token of a request.
	Token func(id int64, at tick.Ticks)
	// Ended tells a request's end, once for each, after its last token.
	Ended func(id int64, status record.Status, reason string, at tick.Ticks)
	// Step tells every step at its end, after the ends of the requests that ended with it.
	Step func(*engine.Report)
}

// ServerConfig describes one simulated worker that a program drives.
type ServerConfig struct {
	Costs *profile.Costs
	Hooks ServerHooks
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
//	srv, err := sim.NewServer(sim.ServerConfig{Costs: costs, Hooks: hooks, MaxAdapters: 8})
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
	switch {
	case cfg.Costs == nil:
		return nil, errors.New("sim: a server needs costs")
	case cfg.MaxAdapters < 0:
		return nil, fmt.Errorf("sim: room for %d adapters, expected >= 0", cfg.MaxAdapters)
	}
	s, err := newSim(Config{
		Source:   noRequests{make([]trace.Adapter, cfg.MaxAdapters)},
		Workers:  []*profile.Costs{cfg.Costs},
		Router:   &router.Router{Policy: onlyWorker{}, Placement: [][]int32{nil}},
		Observer: endings{cfg.Hooks.Ended},
		Home:     cfg.Home,
	}, cfg.Hooks)
	if err != nil {
		return nil, err
	}
	s.plan.byID = map[int64]*request{}
	return &Server{s: s, w: &s.workers[0]}, nil
}

// noRequests is a source of adapters alone.
type noRequests struct{ adapters []trace.Adapter }

func (n noRequests) Adapters() []trace.Adapter    { return n.adapters }
func (n noRequests) Len() int64                   { return 0 }
func (n noRequests) Next() (trace.Request, error) { return trace.Request{}, io.EOF }

type onlyWorker struct{}

func (onlyWorker) Route(router.Request, *router.View) int { return 0 }

// endings tells the ends of requests.
type endings struct {
	ended func(int64, record.Status, string, tick.Ticks)
}

func (e endings) Done(r *record.Request) {
	e.end(r.ID, r.Status, r.Error, tick.FromSeconds(r.Finish))
}

func (e endings) end(id int64, status record.Status, reason string, at tick.Ticks) {
	if e.ended != nil {
		e.ended(id, status, reason, at)
	}
}

func (endings) Tokens(tick.Ticks, int64) {}
func (endings) Steps(record.Steps)       {}
func (endings) Gap(tick.Ticks, int64)    {}

// Now is the time the server has advanced to.
func (v *Server) Now() tick.Ticks { return v.s.loop.Now() }

// Next is the time of the next event, tick.Never if nothing is under way.
func (v *Server) Next() tick.Ticks {
	if len(v.inbox) > 0 {
		return v.s.loop.Now()
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
	to = max(min(to, tick.Max), s.loop.Now())
	for t := s.next(); t < to; t = s.next() {
		s.loop.MoveTo(t)
		_ = s.instant(func() error { return nil })
	}
	s.loop.MoveTo(to)
	_ = s.instant(v.arrive) // nothing there fails
}

// arrive hands the submitted requests to the worker.
func (v *Server) arrive() error {
	s := v.s
	for _, r := range v.inbox {
		r.Arrival = s.loop.Now().Seconds()
		s.head, s.headT = r, s.loop.Now()
		s.requests++
		s.sendHead()
	}
	s.headT = tick.Never
	v.inbox = v.inbox[:0]
	return nil
}

// Cancel gives a request up. One that waits ends at once; one that runs ends
// with the step under way, one whose prompt is being prefilled when that is
// done; tokens that come until then are reported. It returns false if there is
// no such request, or no longer.
func (v *Server) Cancel(id int64) bool {
	if k := slices.IndexFunc(v.inbox, func(r trace.Request) bool { return r.ID == id }); k >= 0 {
		v.inbox = slices.Delete(v.inbox, k, k+1)
		v.s.cfg.Observer.(endings).end(id, record.Aborted, engine.Aborted, v.s.loop.Now()+v.w.costs.Overhead)
		return true
	}
	r, ok := v.s.plan.byID[id]
	if ok {
		v.w.engine.Abort(&r.Request)
		v.s.loop.RunYielded()
	}
	return ok
}

func (v *Server) lora() *adapters.Manager           { return &v.w.engine.LoRA }
func (v *Server) adapter(i int32) *adapters.Adapter { return &v.w.adapter(i).Adapter }

// Define says what adapter i is. No request may use it meanwhile.
func (v *Server) Define(i int32, a trace.Adapter) {
	v.s.adapters[i] = a
	v.w.engine.Redefine(i)
}

// Preload puts an adapter into host memory at once, as at a server's start.
func (v *Server) Preload(i int32) {
	if v.Gone(i) {
		v.lora().Preload(v.adapter(i))
	}
}

// Load begins to bring an adapter to host memory; see Loaded.
func (v *Server) Load(i int32) {
	v.adapter(i).Keep()
	v.lora().StartFetch(v.adapter(i))
}

// Unload drops an adapter as soon as no request uses it; see Gone.
func (v *Server) Unload(i int32) {
	v.lora().Unload(v.adapter(i))
	v.s.loop.RunYielded()
}

// Pin keeps an adapter from being evicted, or allows it again.
func (v *Server) Pin(i int32, pinned bool) {
	v.lora().Pin(i, pinned)
}

// Loaded says whether an adapter's weights are in host memory or a GPU slot.
func (v *Server) Loaded(i int32) bool {
	return v.lora().Loaded(v.adapter(i))
}

// Gone says whether an adapter has left the worker, and is not on its way to it.
func (v *Server) Gone(i int32) bool {
	return v.lora().Gone(v.adapter(i))
}

// View is the worker as a router sees it; valid until the next call of the
// server.
func (v *Server) View() *router.Worker {
	v.w.v.KVUsed = v.w.engine.KVTokens()
	return v.w.v
}

// Cached is how many tokens of the prompt of a request in flight were in the prefix
// cache when it first ran.
func (v *Server) Cached(id int64) int32 {
	r := v.s.plan.byID[id]
	if r == nil {
		return 0
	}
	return r.Found
}

// FlushCache empties the prefix cache, but for what running requests hold.
func (v *Server) FlushCache() {
	v.w.engine.KV.Flush()
}

// Stats counts what the worker did so far.
func (v *Server) Stats() WorkerStats { return v.w.stats(0) }
