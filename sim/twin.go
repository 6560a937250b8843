package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Twin implements router.Twin: it simulates each future in a run of its own. It uses only the parts of its
// configuration that a router can see. It ignores the source, the outages and the elastic rule, which lie in the
// future.
type Twin struct {
	cfg      Config
	adapters []trace.Adapter
	wrong    map[router.ProfileError][]*profile.Costs
	slower   map[correction]*profile.Costs
}

// NewTwin returns a twin of the cluster that cfg describes.
func NewTwin(cfg Config, adapters []trace.Adapter) *Twin {
	return &Twin{adapters: adapters, wrong: map[router.ProfileError][]*profile.Costs{},
		slower: map[correction]*profile.Costs{}, cfg: Config{
			Workers: cfg.Workers, NoStream: cfg.NoStream, Staleness: cfg.Staleness, Home: cfg.Home,
			MoveMode:     cfg.MoveMode,
			LoadFailures: cfg.LoadFailures, NoFailover: cfg.NoFailover, Seed: cfg.Seed,
		}}
}

// Simulate implements router.Twin. The IDs of the simulated requests are their positions in the future.
func (t *Twin) Simulate(rt *router.Router, f *router.Future) (*router.Outcome, error) {
	cfg, o := t.cfg, newTwinObserver(f)
	src := &futureSource{adapters: t.adapters, requests: f.Requests, observer: o, yield: f.Yield}
	cfg.Router, cfg.Source, cfg.Observer = rt, src, o
	rt.Placement = f.State.Host
	if f.Error.Share > 0 {
		cfg.Workers = t.mistaken(f.Error)
	}
	cfg.Workers = t.corrected(cfg.Workers, f.Slower)
	for _, w := range f.State.Down {
		cfg.Outages = append(cfg.Outages, Outage{Worker: w})
	}
	s, err := newSim(cfg)
	if err == nil {
		s.resume(f, o)
		err = s.run(context.Background())
	}
	if err != nil && !errors.Is(err, errCountedEnded) {
		return nil, fmt.Errorf("twin: %w", err)
	}
	o.Sent = src.next
	return &o.Outcome, nil
}

// resume brings a new cluster into the state at the start of a future. The IDs of requests in flight follow those of
// the future's requests.
func (s *sim) resume(f *router.Future, o *twinObserver) {
	st := &f.State
	for j := range s.workers {
		e := s.workers[j].engine
		for _, a := range of(st.Slots, j) {
			e.LoRA.WarmUp(&s.workers[j].adapter(a).Adapter)
		}
		for _, a := range of(st.Used, j) {
			e.Rows.Of(a).Meet()
		}
	}
	for _, k := range st.Kept {
		s.workers[k.Worker].engine.KV.Seed(k.Text, s.row(k.Adapter), k.Tokens)
	}
	for i := range st.InFlight {
		if s.resumeRequest(&st.InFlight[i], int64(len(f.Requests)+i)) {
			o.left++
		}
	}
}

// of returns list j, or nil if there are fewer lists.
func of(lists [][]int32, j int) []int32 {
	if j < len(lists) {
		return lists[j]
	}
	return nil
}

// row returns an adapter's index in the tables of workers.
func (s *sim) row(adapter int32) int32 {
	if adapter == trace.BaseModel {
		return int32(len(s.adapters))
	}
	return adapter
}

// resumeRequest puts a request in flight on its worker. It returns false if the worker does not accept it.
func (s *sim) resumeRequest(h *router.Held, id int64) bool {
	w := &s.workers[h.Worker]
	r := s.alloc()
	r.ID = id
	r.FirstTokenAt, r.StartedAt = tick.Never, tick.Never
	r.Prompt, r.Output, r.MaxNew, r.Adapter = h.Prompt, h.Output, h.Budget(), s.row(h.Adapter)
	r.Text, r.Reply, r.asked = h.Text, h.Reply, r.MaxNew
	r.Expected = s.outputs.Expect(h.Adapter, r.MaxNew)
	r.workerFirst, r.worker = h.Worker, h.Worker
	if h.Generated > 0 {
		r.Generated, r.TransferredKV, r.FirstTokenAt, r.StartedAt = h.Generated, h.KV, 0, 0
	}
	if w.engine.Refuse(&r.Request) != "" || r.Generated >= r.Output {
		r.ID = -1
		s.free = append(s.free, r)
		return false
	}
	s.requests++
	s.inFlight++
	w.requests++
	if s.plan.byID != nil {
		s.plan.byID[r.ID] = r
	}
	w.engine.Resume(&r.Request)
	return true
}

// mistaken returns the workers with deliberately wrong profiles.
func (t *Twin) mistaken(e router.ProfileError) []*profile.Costs {
	if costs := t.wrong[e]; costs != nil {
		return costs
	}
	rng := rand.New(rand.NewPCG(e.Seed, 0x77726f6e67))
	known := map[*profile.Profile]*profile.Costs{}
	costs := make([]*profile.Costs, len(t.cfg.Workers))
	for i, c := range t.cfg.Workers {
		p := c.Profile()
		if known[p] == nil {
			known[p] = p.Mistaken(e.Share, rng).Compile()
		}
		costs[i] = known[p]
	}
	t.wrong[e] = costs
	return costs
}

// errCountedEnded stops a simulation: all counted requests have ended.
var errCountedEnded = errors.New("all counted requests have ended")

// futureSource yields the requests of a future.
type futureSource struct {
	adapters []trace.Adapter
	requests []trace.Request
	observer *twinObserver
	next     int
	yield    func() // nil: nothing
}

// yieldEvery is the number of requests after which a simulation yields; they take about 50 us.
const yieldEvery = 16

func (s *futureSource) Adapters() []trace.Adapter { return s.adapters }
func (s *futureSource) Len() int64                { return int64(len(s.requests) - s.next) }

func (s *futureSource) Next() (trace.Request, error) {
	if s.yield != nil && s.next%yieldEvery == 0 {
		s.yield()
	}
	switch {
	case s.next == len(s.requests):
		return trace.Request{}, io.EOF
	case s.observer.left == 0:
		return trace.Request{}, errCountedEnded
	}
	r := s.requests[s.next]
	r.ID = int64(s.next)
	s.next++
	return r, nil
}

// twinObserver records how the counted requests end.
type twinObserver struct {
	unobserved
	router.Outcome
	f       *router.Future
	counted int // requests of the future that count
	left    int // requests that count and have not ended
}

func newTwinObserver(f *router.Future) *twinObserver {
	n := f.Counted() + len(f.State.InFlight)
	o := &twinObserver{Outcome: router.Outcome{E2E: make([]float32, n), TTFT: make([]float32, n)}, f: f,
		counted: f.Counted(), left: f.Counted()}
	nan := float32(math.NaN())
	for i := range n {
		o.E2E[i], o.TTFT[i] = nan, nan
	}
	return o
}

// Done implements record.Observer.
func (o *twinObserver) Done(r *record.Request) {
	at, held := int(r.ID), int(r.ID)-len(o.f.Requests)
	if held < 0 && at >= o.counted {
		return
	}
	o.left--
	if r.Status != record.OK {
		return
	}
	e2e, ttft := r.E2E(), r.TTFT()
	if held >= 0 {
		at = o.counted + held
		h := &o.f.State.InFlight[held]
		if e2e, ttft = e2e+h.Age, ttft+h.Age; h.Generated > 0 {
			ttft = math.NaN()
		}
	}
	o.E2E[at], o.TTFT[at] = float32(e2e), float32(ttft)
}

var _ record.Observer = (*twinObserver)(nil)
