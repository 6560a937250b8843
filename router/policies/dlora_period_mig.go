package policies

import (
	"fmt"
	"slices"

	"lorasim/ilp"
	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/router/place"
	"lorasim/trace"
)

// dloraPeriodMig is dLoRA's periodic migration: dispatch_only, and from time to time
// a plan for two workers that are out of balance, by its migration ILP.
type dloraPeriodMig struct {
	dispatch
	interval  float64 // s
	threshold float64 // requests above the mean that trigger a plan
	exec      []meanTime
	next      [][]int32 // placement that the plan under way leads to
	idle      string    // reason for no plan
}

type meanTime struct{ sum, n float64 }

// What dLoRA assumes.
const (
	dloraExec     = 5.0  // s, execution time of an adapter's requests before any was seen
	dloraMove     = 0.05 // s that a moved request costs its new worker
	dloraKVFull   = 0.9  // share of the KV pages from which a worker is full
	dloraKVCopied = 32 << 30
)

type dloraPeriodMigOptions struct {
	Interval  float64 `default:"10" check:">=0.001" env:"interval" help:"time between checks, s"`
	Threshold float64 `default:"16" check:">=0" env:"threshold" help:"requests above the mean that trigger a plan"`
}

// Build implements Builder.
func (o *dloraPeriodMigOptions) Build(env router.Env) (*router.Router, error) {
	d := newDLoRA(env, true)
	p := &dloraPeriodMig{
		dispatch: dispatch{d}, exec: make([]meanTime, len(env.Adapters)),
		interval:  o.Interval,
		threshold: o.Threshold, idle: fmt.Sprintf("no worker had %g requests more than the mean", o.Threshold),
	}
	return &router.Router{Policy: p, Planner: p, ReadsKV: true, Placement: place.Clone(d.held)}, nil
}

func (p *dloraPeriodMig) Interval() float64 { return p.interval }

// Note implements Policy.
func (p *dloraPeriodMig) Note(e router.Event) error {
	if e.Kind == router.Finished && e.Adapter != trace.BaseModel {
		p.exec[e.Adapter].sum += e.Exec
		p.exec[e.Adapter].n++
	}
	return nil
}

func (p *dloraPeriodMig) execTime(k int32) float64 {
	if k == trace.BaseModel || p.exec[k].n == 0 {
		return dloraExec
	}
	return p.exec[k].sum / p.exec[k].n
}

func (p *dloraPeriodMig) Begin(s *router.PlannerInput) *router.Pending {
	pair, reason := p.trigger(s.View)
	if pair == nil {
		s.Idle = p.idle
		return nil
	}
	g := p.problem(s, pair)
	if len(g.Problem.Groups) == 0 {
		s.Idle = "the two workers have no request that can move"
		return nil
	}
	after := &dlora{env: p.env, cap: slices.Clone(p.cap), arrived: slices.Clone(p.arrived), total: p.total,
		held: place.Clone(p.held), where: make([][]int32, len(p.where))}
	for j := range after.cap {
		if !s.Workers[j].Usable() { // it gets nothing back
			after.cap[j] = min(after.cap[j], len(after.held[j]))
		}
	}
	var plan *router.Plan
	solved := false
	return &router.Pending{Solve: func() {
		var sol *ilp.Solution
		var err error
		if sol, plan, err = place.Solve(&p.env, g.Problem, p.interval); err != nil {
			plan = &router.Plan{Reason: fmt.Sprintf("%s, but: %v", reason, err)}
			return
		}
		solved = true
		plan.Reason = reason
		plan.Move = g.Moves(s, sol.Flows, pair)
		after.replace(g, sol, pair)
	}, Plan: func() *router.Plan {
		if solved {
			p.next = after.held
			plan.Load, plan.Unload = place.Difference(p.held, p.next)
		}
		return plan
	}}
}

func (p *dloraPeriodMig) Applied(_ *router.Plan, err error) {
	if err == nil && p.next != nil {
		p.setPlacement(p.next)
	}
	p.next = nil
}

func (d *dlora) setPlacement(held [][]int32) {
	d.held, d.where = held, place.Transpose(held, len(d.where))
}

// trigger returns the two workers to plan for and why, or nil: the worker whose
// KV cache is full and the emptiest; else the busiest, if it has at least
// threshold requests more than the mean of all workers, itself included, and the
// idlest. Of equals the busiest is the last and the idlest the first, as where
// the reference sorts (EngineManager.migration_schedule in vllm/engine/
// engine_manager.py of the artifact; _check_migration_needed in
// instance_manager.py of its port to sglang). With two workers a threshold of 16
// is thus a difference of 32.
func (p *dloraPeriodMig) trigger(v *router.View) (pair []int32, reason string) {
	var up []int32
	for j := range v.Usable() {
		up = append(up, int32(j))
	}
	if len(up) < 2 {
		return nil, ""
	}
	fill := func(j int32) float64 { return float64(v.Workers[j].KVUsed) / float64(max(v.Workers[j].KVCapacity, 1)) }
	load := func(j int32) float64 { return float64(v.Workers[j].Load()) }
	full, empty := mostOf(up, fill), fewestOf(up, fill)
	if fill(full) >= dloraKVFull && fill(empty) < dloraKVFull {
		return []int32{full, empty}, fmt.Sprintf("KV cache of worker %d is %.0f %% full, of worker %d %.0f %%",
			full, 100*fill(full), empty, 100*fill(empty))
	}
	total := 0.0
	for _, j := range up {
		total += load(j)
	}
	busiest, idlest, mean := mostOf(up, load), fewestOf(up, load), total/float64(len(up))
	if delta := load(busiest) - mean; delta <= 0 || delta < p.threshold {
		return nil, ""
	}
	return []int32{busiest, idlest},
		fmt.Sprintf("worker %d has %.0f requests, the mean is %.1f", busiest, load(busiest), mean)
}

// mostOf returns the last of the workers with the largest value.
func mostOf(ws []int32, value func(int32) float64) int32 {
	t := choose.New(nil)
	for _, j := range slices.Backward(ws) {
		t.Offer(int(j), -value(j))
	}
	return int32(t.Worker)
}

// fewestOf returns the first of the workers with the smallest value.
func fewestOf(ws []int32, value func(int32) float64) int32 {
	t := choose.New(nil)
	for _, j := range ws {
		t.Offer(int(j), value(j))
	}
	return int32(t.Worker)
}

// problem is dLoRA's migration problem for the chosen workers.
func (p *dloraPeriodMig) problem(s *router.PlannerInput, chosen []int32) *place.Grouping {
	pr := &ilp.Problem{Adapters: len(p.env.Adapters)}
	page, kvBytes := place.PageSize(&p.env), 0.0
	for _, j := range chosen {
		kvBytes = max(kvBytes, p.env.Workers[j].KVBytes)
	}
	if kvBytes > 0 {
		pr.PageRate = dloraKVCopied / (kvBytes * page)
	}
	for _, j := range chosen {
		resident := slices.Clone(p.held[j])
		slices.Sort(resident)
		pr.Workers = append(pr.Workers, ilp.Worker{
			Slots: len(resident), Resident: resident,
			Pages: float64(s.Workers[j].KVCapacity) / page,
		})
	}
	g := place.NewGrouping(pr)
	present := make([]map[int32]bool, len(chosen))
	for i := range s.Requests {
		a := &s.Requests[i]
		n := slices.Index(chosen, a.Worker)
		if n < 0 || a.Adapter == trace.BaseModel {
			continue
		}
		g.Add(i, a, int32(n), p.execTime(a.Adapter), dloraMove, place.Pages(page, a))
		if present[n] == nil {
			present[n] = map[int32]bool{}
		}
		present[n][a.Adapter] = true
	}
	for n := range pr.Workers { // requests may still be there whose adapter the placement has taken away
		pr.Workers[n].Slots = max(pr.Workers[n].Slots, len(present[n]))
	}
	return g
}

// replace makes the placement what a solution leads to: the adapters that have
// requests on the chosen workers, those that would have no replica elsewhere,
// and then what the greedy refinement adds.
func (d *dlora) replace(g *place.Grouping, sol *ilp.Solution, chosen []int32) {
	before := slices.Clone(d.held)
	for n, j := range chosen {
		var ks []int32
		for _, f := range sol.Flows {
			if k := g.Problem.Groups[f.Group].Adapter; int(f.Worker) == n && !slices.Contains(ks, k) {
				ks = append(ks, k)
			}
		}
		d.held[j] = ks
	}
	d.setPlacement(d.held)
	for _, j := range chosen {
		for _, k := range before[j] {
			if len(d.where[k]) == 0 && len(d.held[j]) < max(d.cap[j], 1) {
				d.add(int(j), k)
			}
		}
	}
	d.refine()
}
