package policies

import (
	"fmt"
	"maps"

	"lorasim/router"
)

// llumnix moves running requests from the worker with the least room for each
// of its requests to the one with the most, after Llumnix (OSDI'24). New
// requests go to the worker with the most room. It knows nothing of adapters;
// workers load them on demand.
type llumnix struct {
	router.Base
	env      router.Env
	interval float64
	moving   map[int64]float64 // requests moved lately, and when
	pause    float64           // time before a request moves again, s
}

type llumnixOptions struct {
	Interval float64 `default:"0.05" check:">=0.001" env:"interval" help:"time between checks, s"`
	Pause    float64 `default:"1" check:">=0" help:"time before a request moves again, s"`
}

// Build implements Builder.
func (o *llumnixOptions) Build(env router.Env) (*router.Router, error) {
	p := &llumnix{
		env: env, moving: map[int64]float64{},
		interval: o.Interval,
		pause:    o.Pause,
	}
	return &router.Router{Policy: p, Planner: p, ReadsKV: true}, nil
}

// freeness is Llumnix's load signal: the KV tokens that are free once those that
// wait are in, for each request.
func freeness(w *router.Worker, requests int, tokens int64) float64 {
	free := float64(w.KVCapacity - w.KVUsed - w.QueuedToks - tokens)
	return free / float64(max(w.Load()+requests, 1))
}

// Route implements Policy.
func (p *llumnix) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *llumnix) Preview(r router.Request, v *router.View) int { return p.pick(r, v) }

func (p *llumnix) pick(_ router.Request, v *router.View) int { return p.roomiest(v, 1) }

// roomiest is the usable worker with the most room, with sign -1 that with the
// least.
func (p *llumnix) roomiest(v *router.View, sign float64) int {
	return v.Least(func(_ int, w *router.Worker) float64 { return -sign * freeness(w, 0, 0) })
}

func (p *llumnix) Interval() float64 { return p.interval }

func (p *llumnix) Applied(*router.Plan, error) {}

// Select implements Planner: what runs on the worst worker.
func (p *llumnix) Select(v *router.View) router.Selection {
	worst := p.roomiest(v, -1)
	return router.Selection{Worker: func(j int) bool { return j == worst }, NoWaiting: true}
}

// Begin pairs the worst worker with the best one and moves the request with the
// least KV cache, if the two are then closer and the worst still the worse.
func (p *llumnix) Begin(s *router.PlannerInput) *router.Pending {
	worst, best := p.roomiest(s.View, -1), p.roomiest(s.View, 1)
	if worst == best {
		s.Idle = "all workers have as many free KV tokens per request"
		return nil
	}
	a := p.smallest(s, int32(worst))
	if a == nil {
		s.Idle = "the fullest worker has no running request that can move"
		return nil
	}
	from, to := &s.Workers[worst], &s.Workers[best]
	before := freeness(to, 0, 0) - freeness(from, 0, 0)
	after := freeness(to, 1, a.KV) - freeness(from, -1, -a.KV)
	if after >= before || after <= 0 {
		s.Idle = "a move would not even out the free KV tokens per request"
		return nil
	}
	p.moving[a.ID] = s.Now
	return router.Ready(&router.Plan{
		Reason: fmt.Sprintf("free KV tokens per request: worker %d %.0f, worker %d %.0f",
			worst, freeness(from, 0, 0), best, freeness(to, 0, 0)),
		Move: []router.Move{{ID: a.ID, From: a.Worker, To: int32(best)}},
	})
}

// smallest is the running request of a worker with the least KV cache that was
// not moved lately.
func (p *llumnix) smallest(s *router.PlannerInput, worker int32) (best *router.InFlight) {
	maps.DeleteFunc(p.moving, func(_ int64, at float64) bool { return s.Now-at >= p.pause })
	for i := range s.Requests {
		a := &s.Requests[i]
		if _, lately := p.moving[a.ID]; lately || a.Worker != worker || !a.Running {
			continue
		}
		if best == nil || a.KV < best.KV || a.KV == best.KV && a.ID < best.ID {
			best = a
		}
	}
	return best
}
