package sim

import (
	"errors"
	"fmt"
	"slices"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/event"
	"lorasim/sim/lora"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// ServerHooks observe the requests of a [Server]. A nil function is not called. Times are those at which the client
// sees an event; they may be later than the server's clock by one request overhead. For one request they never
// decrease.
type ServerHooks struct {
	// Token reports the next token of a request.
	Token func(id int64, at tick.Ticks)
	// Ended reports the end of a request. It is called once for each request, after its last token.
	Ended func(id int64, status record.Status, reason string, at tick.Ticks)
	// Step reports every step at its end, after the ends of the requests that ended with it.
	Step func(*engine.Report)
}

// ServerConfig describes the simulated worker of a [Server].
type ServerConfig struct {
	Costs *profile.Costs
	Hooks ServerHooks
	// MaxAdapters is the number of adapters that may be defined. It is independent of GPU slots and host memory.
	MaxAdapters int
	Home        router.Tier // where adapters lie that are not loaded: disk or remote
}

// Server is one simulated worker without a workload of its own. A program submits requests and moves the worker's
// clock. It is the worker of [Run] and gives the same times. Every decode step is one event, so that every token is
// reported. A Server does not use the wall clock, and is not safe for concurrent use.
//
//	srv, err := sim.NewServer(sim.ServerConfig{Costs: costs, Hooks: hooks, MaxAdapters: 8})
//	srv.Define(0, trace.Adapter{Name: "chat", Rank: 16})
//	srv.Load(0)
//	err = srv.Submit(trace.Request{ID: 1, Adapter: 0, Prompt: 100, Output: 20})
//	for t := srv.Next(); t != tick.Never; t = srv.Next() {
//		srv.Advance(t)
//	}
type Server struct {
	cfg      ServerConfig
	loop     event.Loop
	engine   *engine.Engine
	view     router.Worker
	adapters []trace.Adapter
	outputs  *router.Outputs
	inbox    []trace.Request
	requests map[int64]*engine.Request // in flight
	finished int64
}

// NewServer returns a worker at time 0 with no adapter defined.
func NewServer(cfg ServerConfig) (*Server, error) {
	switch {
	case cfg.Costs == nil:
		return nil, errors.New("sim: a server needs costs")
	case cfg.MaxAdapters < 0:
		return nil, fmt.Errorf("sim: room for %d adapters, expected >= 0", cfg.MaxAdapters)
	case cfg.Home > router.Disk:
		return nil, fmt.Errorf("sim: home tier is %d, expected remote or disk", cfg.Home)
	}
	v := &Server{cfg: cfg, adapters: make([]trace.Adapter, cfg.MaxAdapters),
		outputs:  router.NewOutputs(cfg.MaxAdapters),
		requests: map[int64]*engine.Request{}}
	var err error
	v.engine, err = engine.New(engine.Config{
		Costs: cfg.Costs, Adapters: v.adapters, View: &v.view, Index: router.NewIndex(1, cfg.MaxAdapters),
		Home:     cfg.Home,
		Observer: unobserved{}, Hooks: engine.Hooks{Token: cfg.Hooks.Token, Step: cfg.Hooks.Step},
		Fails: func() bool { return false }, Kind: kindOf(cfg.Costs),
	}, v, &v.loop)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	v.view.Up = true
	return v, nil
}

// unobserved is the observer of a server's tokens. It ignores them, since the server reports each token itself.
type unobserved struct{}

func (unobserved) Tokens(tick.Ticks, int64) {}
func (unobserved) Steps(record.Steps)       {}
func (unobserved) Gap(tick.Ticks, int64)    {}

// Now returns the time of the server's clock.
func (v *Server) Now() tick.Ticks { return v.loop.Now() }

// Next returns the time of the next event, or tick.Never if there is none.
func (v *Server) Next() tick.Ticks {
	if len(v.inbox) > 0 {
		return v.loop.Now()
	}
	return v.loop.Next()
}

// Submit adds a request that arrives at the time of the next Advance; its arrival time is ignored. Requests in flight
// must have different IDs.
func (v *Server) Submit(r trace.Request) error {
	if err := v.checkRequest(&r); err != nil {
		return err
	}
	v.inbox = append(v.inbox, r)
	return nil
}

// SubmitNow is Submit for use in hooks: the request arrives before the hook returns.
func (v *Server) SubmitNow(r trace.Request) error {
	if err := v.checkRequest(&r); err != nil {
		return err
	}
	v.arrive(&r)
	return nil
}

// checkRequest checks a submitted request.
func (v *Server) checkRequest(r *trace.Request) error {
	r.Arrival = 0
	if err := r.Check(len(v.adapters)); err != nil {
		return err
	}
	same := func(q trace.Request) bool { return q.ID == r.ID }
	if _, ok := v.requests[r.ID]; ok || slices.ContainsFunc(v.inbox, same) {
		return fmt.Errorf("request %d is in flight already", r.ID)
	}
	return nil
}

// Advance moves the clock to the given time, processes every event up to it, and lets the submitted requests arrive. A
// time in the past counts as now.
func (v *Server) Advance(to tick.Ticks) {
	to = max(min(to, tick.Max), v.loop.Now())
	for t := v.loop.Next(); t < to; t = v.loop.Next() {
		v.loop.MoveTo(t)
		v.instant(false)
	}
	v.loop.MoveTo(to)
	v.instant(true)
}

// instant processes what is due now. With arrivals, the submitted requests arrive, including those that hooks submit at
// this instant.
func (v *Server) instant(arrivals bool) {
	v.loop.RunBefore(event.Arrivals)
	if arrivals {
		for i := 0; i < len(v.inbox); i++ {
			v.arrive(&v.inbox[i])
		}
		v.inbox = v.inbox[:0]
	}
	v.loop.Run()
	v.loop.RunYielded()
}

// arrive adds a request to the engine.
func (v *Server) arrive(q *trace.Request) {
	r := &engine.Request{ID: q.ID, Output: q.Output, MaxNew: q.Budget(), FirstTokenAt: tick.Never,
		StartedAt: tick.Never}
	r.Prompt, r.Adapter, r.Text, r.Reply = q.Prompt, q.Adapter, q.Text, q.Reply
	if q.Adapter == trace.BaseModel {
		r.Adapter = int32(len(v.adapters))
	}
	r.Expected = v.outputs.Expect(q.Adapter, r.MaxNew)
	v.requests[r.ID] = r
	if reason := v.engine.Refuse(r); reason != "" {
		v.Finished(r, record.Rejected, reason, v.loop.Now()+v.cfg.Costs.Overhead)
		return
	}
	v.engine.Add(r)
}

// Finished implements engine.Host.
func (v *Server) Finished(r *engine.Request, status record.Status, reason string, at tick.Ticks) {
	delete(v.requests, r.ID)
	r.Leaving = engine.Staying
	if status == record.OK {
		v.finished++
		a := r.Adapter
		if int(a) == len(v.adapters) {
			a = trace.BaseModel
		}
		v.outputs.Ended(a, r.Output)
	}
	v.ended(r.ID, status, reason, at)
}

func (v *Server) ended(id int64, status record.Status, reason string, at tick.Ticks) {
	if v.cfg.Hooks.Ended != nil {
		v.cfg.Hooks.Ended(id, status, reason, at)
	}
}

// Ejected implements engine.Host. No request of a server moves.
func (v *Server) Ejected(*engine.Request, int64) {}

// Cancel cancels a request. A waiting request ends at once, a running request with the current step, and a request in
// prefill when its prompt is done. Tokens that come until then are reported. Cancel returns false if no request in
// flight has the ID.
func (v *Server) Cancel(id int64) bool {
	if k := slices.IndexFunc(v.inbox, func(r trace.Request) bool { return r.ID == id }); k >= 0 {
		v.inbox = slices.Delete(v.inbox, k, k+1)
		v.ended(id, record.Aborted, engine.Aborted, v.loop.Now()+v.cfg.Costs.Overhead)
		return true
	}
	r, ok := v.requests[id]
	if ok {
		v.engine.Abort(r)
		v.loop.RunYielded()
	}
	return ok
}

func (v *Server) adapter(i int32) *lora.Adapter { return &v.engine.Rows.Of(i).Adapter }

// Define sets the name and rank of adapter i. No request in flight may use that adapter.
func (v *Server) Define(i int32, a trace.Adapter) {
	v.adapters[i] = a
	v.engine.Redefine(i)
}

// Preload puts an adapter into host memory at once, as at a server's start.
func (v *Server) Preload(i int32) {
	if v.Gone(i) {
		v.engine.LoRA.Preload(v.adapter(i))
	}
}

// Load starts loading an adapter into host memory. [Server.Loaded] reports when it is there.
func (v *Server) Load(i int32) {
	v.adapter(i).Keep()
	v.engine.LoRA.StartFetch(v.adapter(i))
}

// Unload removes an adapter as soon as no request uses it. [Server.Gone] reports when it is gone.
func (v *Server) Unload(i int32) {
	v.engine.LoRA.Unload(v.adapter(i))
	v.loop.RunYielded()
}

// Pin protects an adapter from eviction, or ends that protection.
func (v *Server) Pin(i int32, pinned bool) {
	v.engine.LoRA.Pin(i, pinned)
}

// Loaded reports whether an adapter's weights are in host memory or a GPU slot.
func (v *Server) Loaded(i int32) bool {
	return v.engine.LoRA.Loaded(v.adapter(i))
}

// Gone reports whether an adapter is neither on the worker nor being loaded.
func (v *Server) Gone(i int32) bool {
	return v.engine.LoRA.Gone(v.adapter(i))
}

// View returns the worker as a router sees it. It is valid until the next call of the server.
func (v *Server) View() *router.Worker {
	v.view.KVUsed = v.engine.KVTokens()
	return &v.view
}

// Cached returns the number of prompt tokens of a request in flight that were in the prefix cache when it first ran.
func (v *Server) Cached(id int64) int32 {
	r := v.requests[id]
	if r == nil {
		return 0
	}
	return r.Found
}

// FlushCache empties the prefix cache, except for the pages that running requests hold.
func (v *Server) FlushCache() {
	v.engine.KV.Flush()
}

// Stats returns the worker's counts so far.
func (v *Server) Stats() WorkerStats { return WorkerStats{Requests: v.finished, Stats: v.engine.Stats} }
