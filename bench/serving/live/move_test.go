package live

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/trace"
)

// planner is a policy that begins with every adapter on worker 0 and makes the
// plans it is given, one every interval.
type planner struct {
	router.Base
	mu       sync.Mutex
	interval float64
	next     func(s *router.PlannerInput) *router.Plan
	home     int
	applied  int
	dropped  int
}

func (p *planner) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *planner) pick(r router.Request, v *router.View) int {
	for i := range v.Workers {
		if w := (p.home + i) % len(v.Workers); v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}

func (p *planner) Interval() float64                            { return p.interval }
func (p *planner) Begin(s *router.PlannerInput) *router.Pending { return router.Ready(p.next(s)) }
func (p *planner) Applied(plan *router.Plan, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.dropped++
	} else {
		p.applied++
	}
}

// evacuate first has the adapters loaded on worker 1 and then, as soon as there
// is something to move, plans once that everything on worker 0 goes there. The
// loads stand in the second plan too: they take no time any more.
func evacuate(adapters int) *planner {
	p := &planner{interval: 0.1}
	step := 0
	p.next = func(s *router.PlannerInput) *router.Plan {
		if step == 2 || len(s.Requests) < 10 {
			return nil
		}
		step++
		plan := &router.Plan{Reason: "evacuate"}
		for a := range int32(adapters) {
			plan.Load = append(plan.Load, router.Placement{Worker: 1, Adapter: a})
		}
		if step == 1 {
			return plan
		}
		for a := range int32(adapters) {
			plan.Unload = append(plan.Unload, router.Placement{Worker: 0, Adapter: a})
		}
		for _, r := range s.Requests {
			plan.Move = append(plan.Move, router.Move{ID: r.ID, From: 0, To: 1})
		}
		p.home = 1
		return plan
	}
	return p
}

func (p *planner) router(workers, adapters int) *router.Router {
	place := make([][]int32, workers)
	for a := range int32(adapters) {
		place[0] = append(place[0], a)
	}
	return &router.Router{Name: "test", Policy: p, Planner: p, Placement: place}
}

// long makes requests last some 1.3 s, so that there is something to move.
func long(w *trace.Workload) *trace.Workload {
	for i := range w.Requests {
		w.Requests[i].Output += 90
	}
	return w
}

// once wraps a worker and notes requests that are on it; over all workers a
// request must never be on two at a time.
type once struct {
	mu    sync.Mutex
	open  map[string]int
	twice []string
	calls map[string]int
}

func (o *once) wrap(name string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.calls[name+r.URL.Path]++
		o.mu.Unlock()
		if r.URL.Path != "/generate" {
			next.ServeHTTP(rw, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var g struct {
			RID string `json:"rid"`
		}
		if err := json.Unmarshal(body, &g); err != nil {
			panic(err)
		}
		id := g.RID[:strings.LastIndexByte(g.RID, '-')]
		o.mu.Lock()
		if o.open[id]++; o.open[id] > 1 {
			o.twice = append(o.twice, id)
		}
		o.mu.Unlock()
		next.ServeHTTP(&closing{ResponseWriter: rw, end: func() {
			o.mu.Lock()
			o.open[id]--
			o.mu.Unlock()
		}}, r)
	})
}

// count is how often a path of a worker was called.
func (o *once) count(call string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.calls[call]
}

// closing calls end before the last bytes of a reply leave, when its worker has
// ended it.
type closing struct {
	http.ResponseWriter
	end  func()
	done bool
}

func (c *closing) Write(b []byte) (int, error) {
	if !c.done && bytes.Contains(b, []byte("[DONE]")) {
		c.done = true
		c.end()
	}
	return c.ResponseWriter.Write(b)
}

func (c *closing) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

// A planner that sends requests back and forth at random, in every mode and over
// both forms of streams: no token is lost or repeated, and no request is on two
// workers at a time.
func TestMovesKeepTokens(t *testing.T) {
	for _, c := range []struct {
		move   router.Moving
		stream bool
		api    httpapi.Kind
	}{
		{router.MoveNone, false, httpapi.SGLang},
		{router.MoveQueued, false, httpapi.SGLang},
		{router.MoveRecompute, false, httpapi.SGLang},
		{router.MoveRecompute, true, httpapi.SGLang},
		{router.MoveRecompute, false, httpapi.VLLM},
	} {
		t.Run(fmt.Sprintf("%s %v %s", c.move, c.stream, c.api), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				wl := long(workload(150, 2, 0.01))
				o := startWorkers(t, sound(3, faults{API: c.api, StreamOutput: c.stream, Loaded: 2})...)
				rng := rand.New(rand.NewPCG(1, 2))
				p := &planner{interval: 0.05}
				left := 80
				p.next = func(s *router.PlannerInput) *router.Plan {
					if left--; left < 0 {
						return nil // else requests would be moved before they get anywhere
					}
					plan := &router.Plan{Reason: "chaos"}
					for _, r := range s.Requests {
						if rng.IntN(4) == 0 {
							plan.Move = append(plan.Move, router.Move{ID: r.ID, From: r.Worker,
								To: (r.Worker + 1 + int32(rng.IntN(2))) % 3})
						}
					}
					p.home = rng.IntN(3)
					return plan
				}
				run := liveRun{cluster: o, wl: wl, router: p.router(3, 2), move: c.move,
					set: func(c *Config) { c.Retries = 1000 }}
				if c.api == httpapi.VLLM {
					run.backend = VLLM
				}
				out := run.run(context.Background(), t)
				if ok := out.check(t, wl); ok != 150 {
					t.Errorf("%d of 150 succeeded: %v", ok, out.reasons())
				}
				if len(o.twice) > 0 {
					t.Errorf("on two workers at a time: %v", o.twice)
				}
				var migrations int64
				for _, r := range out.recs {
					migrations += int64(r.Migrations)
				}
				if migrations != out.stats.Moved || (migrations > 20) != (c.move == router.MoveRecompute) &&
					c.move != router.MoveQueued {
					t.Errorf("%d moves in the records, %d counted", migrations, out.stats.Moved)
				}
				counted := int64(0)
				for _, n := range out.fleet.Plans.Moves {
					counted += n
				}
				if counted != migrations || c.move == router.MoveNone && counted > 0 {
					t.Errorf("%d moves in the records, the fleet counted %v", migrations, out.fleet.Plans.Moves)
				}
			})
		})
	}
}

// A plan is carried out in order: the destination loads before anything is
// routed there, and the source unloads when its requests are gone.
func TestPlanOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := long(workload(120, 2, 0.02))
		o := startWorkers(t, faults{}, faults{})
		p := evacuate(2)
		out := liveRun{cluster: o, wl: wl, router: p.router(2, 2), move: router.MoveRecompute}.run(context.Background(),
			t)
		if ok := out.check(t, wl); ok != 120 {
			t.Errorf("%d of 120 succeeded: %v", ok, out.reasons())
		}
		if p.applied != 2 || p.dropped != 0 || out.stats.Moved < 1 {
			t.Errorf("%d plans applied, %d dropped, %d requests moved", p.applied, p.dropped, out.stats.Moved)
		}
		if o.count("1/load_lora_adapter") != 2 || o.count("0/load_lora_adapter") != 2 ||
			o.count("0/unload_lora_adapter") != 2 {
			t.Errorf("%d loads on worker 1, %d on worker 0, %d unloads, expected 2 of each",
				o.count("1/load_lora_adapter"), o.count("0/load_lora_adapter"), o.count("0/unload_lora_adapter"))
		}
	})
}

// A load that fails drops the whole plan: nothing moves, and what came goes.
func TestPlanDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := long(workload(120, 2, 0.02))
		o := startWorkers(t, faults{}, faults{Fail: []string{"/load_lora_adapter"}})
		p := evacuate(2)
		p.home = 0
		next := p.next
		p.next = func(s *router.PlannerInput) *router.Plan { plan := next(s); p.home = 0; return plan }
		out := liveRun{cluster: o, wl: wl, router: p.router(2, 2), move: router.MoveRecompute}.run(context.Background(),
			t)
		if ok := out.check(t, wl); ok != 120 {
			t.Errorf("%d of 120 succeeded: %v", ok, out.reasons())
		}
		if p.dropped != 2 || out.stats.Moved != 0 || o.count("1/generate") != 0 {
			t.Errorf("%d plans dropped, %d requests moved, %d sent to the destination", p.dropped, out.stats.Moved,
				o.count("1/generate"))
		}
	})
}

// An abort that fails leaves requests where they are.
func TestAbortFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wl := long(workload(120, 2, 0.02))
		o := startWorkers(t, sound(2, faults{Fail: []string{"/abort_request"}})...)
		p := evacuate(2)
		out := liveRun{cluster: o, wl: wl, router: p.router(2, 2), move: router.MoveRecompute}.run(context.Background(),
			t)
		if ok := out.check(t, wl); ok != 120 {
			t.Errorf("%d of 120 succeeded: %v", ok, out.reasons())
		}
		if out.stats.MovesOff == 0 || out.stats.MovesOff < out.stats.Moved {
			t.Errorf("%d requests moved, %d stayed", out.stats.Moved, out.stats.MovesOff)
		}
	})
}

// A worker dies in each phase of a migration from worker 0 to worker 1; a third
// one is there to help.
func TestDeathInMigration(t *testing.T) {
	for _, c := range []struct {
		phase  string
		victim int
		die    string
	}{
		{"loading at the destination", 1, "/load_lora_adapter"},
		{"aborting at the source", 0, "/abort_request"},
		{"taking over at the destination", 1, "resumed"},
		{"unloading at the source", 0, "/unload_lora_adapter"},
	} {
		t.Run(c.phase, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { dieInMigration(t, c.victim, c.die) })
		})
	}
}

// dieInMigration runs a migration in which a worker dies on a request for the
// given path, and checks what came of it.
func dieInMigration(t *testing.T, victim int, path string) {
	wl := long(workload(120, 2, 0.02))
	fs := []faults{{Prompt: 26, Loaded: 2}, {Prompt: 26}, {Prompt: 26, Loaded: 2}}
	fs[victim].DieOn = path
	p := evacuate(2)
	out := liveRun{cluster: startWorkers(t, fs...), wl: wl, router: p.router(3, 2),
		move: router.MoveRecompute}.run(context.Background(), t)
	if ok := out.check(t, wl); ok != 120 {
		t.Errorf("%d of 120 succeeded: %v", ok, out.reasons())
	}
	if dropped := path == "/load_lora_adapter"; (p.dropped > 0) != dropped {
		t.Errorf("%d plans dropped", p.dropped)
	}
	if out.fleet.Downs == 0 {
		t.Error("nobody noticed that the worker is down")
	}
}
