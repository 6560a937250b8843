package policies

import (
	"cmp"
	"math"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/trace/settings"
)

// rankAware is the scheduler of CaraServe (Li et al., 2024; later Toppings,
// ATC 2025), which knows that a batch is as slow as its largest rank. Sending
// request r to a worker with waiting requests q costs
//
//	[prefill(q+r) - prefill(q)] / avg_output + decode(all+r) - decode(all)
//
// seconds per token, where all are its running and waiting requests. A worker
// whose decode step would then exceed the SLO is out. The cheapest wins, the
// first of equals; if all are out, the least loaded, again the first.
//
// The cost is marginal: where it does not grow with the batch, as with a step
// time linear in requests and tokens, workers are equals and fill up one after
// the other, each to its SLO. Late signals therefore do harm around the SLO
// only, but there requests herd past it.
type rankAware struct {
	router.Base
	workers   []router.Spec
	slo       float64 // s; +Inf: none
	avgOutput float64 // tokens; 0: what is expected of the request
}

type rankAwareOptions struct {
	SLO       settings.Number `default:"auto" check:">=0" words:"auto none" help:"longest decode step, ms; auto: 1.5 x a step of one request; none: no limit"`
	AvgOutput settings.Number `key:"avg-output" default:"auto" check:">=1" words:"auto" help:"mean output tokens of a request; auto: the mean so far, by adapter"`
}

// Build implements Builder.
func (o *rankAwareOptions) Build(env router.Env) (*router.Router, error) {
	if err := env.NeedCosts(); err != nil {
		return nil, err
	}
	p := &rankAware{workers: env.Workers, avgOutput: o.AvgOutput.Value}
	switch o.SLO.Word {
	case "auto":
		rank := 0
		for _, a := range env.Adapters {
			rank = max(rank, a.Rank)
		}
		for j := range env.Workers { // the slowest worker, or it would never be within
			p.slo = max(p.slo, 1.5*env.Workers[j].Cost.DecodeStep(1, 1, 0, rank))
		}
	case "none":
		p.slo = math.Inf(1)
	default:
		p.slo = o.SLO.Value / 1000
	}
	return &router.Router{Policy: p, ReadsKV: true}, nil
}

// Route implements Policy.
func (p *rankAware) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

// Preview implements Policy.
func (p *rankAware) Preview(r router.Request, v *router.View) int { return p.pick(r, v) }

func (p *rankAware) pick(r router.Request, v *router.View) int {
	rank := 0
	if r.Adapter >= 0 {
		rank = v.Adapters[r.Adapter].Rank
	}
	output := p.output(r)
	cheapest, emptiest := choose.New(nil), choose.New(nil)
	for i, w := range v.Usable() {
		emptiest.Offer(i, float64(w.Load()))
		cost, tokens := p.workers[i].Cost, w.KVUsed+w.QueuedToks
		decode := cost.DecodeStep(w.Load()+1, w.Load()+1, tokens+int64(r.Prompt), max(w.MaxRank, rank))
		if decode > p.slo {
			continue
		}
		prefill := cost.Prefill(w.QueuedToks+int64(r.Prompt)) - cost.Prefill(w.QueuedToks)
		decode -= cost.DecodeStep(w.Load(), w.Load(), tokens, w.MaxRank)
		cheapest.Offer(i, prefill/output+decode)
	}
	if cheapest.Worker == router.None {
		return emptiest.Worker
	}
	return cheapest.Worker
}

// output estimates the tokens a request generates.
func (p *rankAware) output(r router.Request) float64 { return cmp.Or(p.avgOutput, r.ExpectedOutput()) }
