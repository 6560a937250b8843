package explain

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/study/remedy"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// The costs of changes, in ascending order.
const (
	setting = iota // a setting alone
	memory         // GPU or host memory, or merged weights
	workers        // one worker more
)

// mostSlots is the largest number of slots that is tried.
const mostSlots = 64

// A Change is a change of the scenario that may help slow adapters.
type Change struct {
	Text     string  `json:"change"`
	SlowTTFT float64 `json:"slow_mean_ttft_ms"` // of the adapters that are slow without it
	TTFT     float64 `json:"mean_ttft_ms"`      // of all requests
	// Low and High are the lowest and the highest SlowTTFT of a seed.
	Low  float64 `json:"slow_low_ms"`
	High float64 `json:"slow_high_ms"`
	// Overloaded is the number of runs in which the workers cannot keep up even so.
	Overloaded int `json:"overloaded_runs"`
	cost       int
	run        func(context.Context, *drawn) (*outcome, error)
}

// ttft is the TTFT of the slow adapters with its range.
func (c *Change) ttft() string {
	text := result.Latency(c.SlowTTFT)
	if c.Low < c.High {
		text += fmt.Sprintf(" (%s to %s)", result.Latency(c.Low), result.Latency(c.High))
	}
	return text
}

// changes lists what may help the slow adapters of a run, the cheapest first.
func changes(sc *scenario.Scenario, res *result.Result, e *profile.Engine, a *Answer,
	w *trace.Workload) (list []Change) {
	add := func(cost int, c remedy.Change) {
		if slices.ContainsFunc(list, func(x Change) bool { return x.Text == c.Text }) {
			return
		}
		run := func(ctx context.Context, d *drawn) (*outcome, error) {
			changed, err := c.Apply(&d.sc)
			if err != nil {
				return nil, err
			}
			return simulate(ctx, changed, d.workload, same)
		}
		list = append(list, Change{Text: c.Text, cost: cost, run: run})
	}
	for _, c := range remedy.Changes(res) {
		switch c.Key() {
		case "max_loras_per_batch": // below, with more choices
		case "policy":
			add(setting, c)
		case "num_workers":
			add(workers, c)
		default:
			add(memory, c)
		}
	}
	if s := res.Scenario.Profiles; len(s) == 1 && s[0].AdapterSlots > 0 && s[0].AdapterSlots < res.Scenario.Adapters {
		slots := s[0].AdapterSlots
		for _, n := range []int{slots + 1, 2 * slots, res.Scenario.Adapters} {
			if n <= min(res.Scenario.Adapters, mostSlots) {
				add(memory, remedy.Set(fmt.Sprintf("%d adapter slots instead of %d", n, slots), "max_loras_per_batch",
					strconv.Itoa(n)))
			}
		}
	}
	if e.HeadOfLine == profile.HeadOfLineBlock {
		add(setting, remedy.Set("requests pass those that wait for a slot (head_of_line skip)", "head_of_line",
			profile.HeadOfLineSkip))
	}
	if e.Scheduler == profile.SchedulerSGLang && e.AdapterLoading == profile.LoadBlocking {
		add(setting, remedy.Set("adapters load beside the steps (adapter_loading overlapped)", "adapter_loading",
			profile.LoadOverlapped))
	}
	for _, hot := range inTheWay(a) {
		list = append(list, merges(sc, hot, w)...)
	}
	slices.SortStableFunc(list, func(x, y Change) int { return x.cost - y.cost })
	return list
}

// simulate runs a scenario on a workload.
func simulate(ctx context.Context, sc *scenario.Scenario, w *scenario.Collected,
	as func(int32) int32) (*outcome, error) {
	res, err := sc.Simulate(ctx, scenario.RunOptions{Input: w.Input()})
	if err != nil {
		return nil, err
	}
	o := &outcome{}
	o.add(res, as)
	return o, nil
}

// merges lists the ways to merge an adapter into the base model: on all workers, if no request wants the base model
// itself, or on a worker of its own. Under vLLM, requests of merged weights use no slot.
func merges(sc *scenario.Scenario, hot *Adapter, w *trace.Workload) (list []Change) {
	if sc.Cluster.Elastic.Given() {
		return nil
	}
	toBase := func(only, merged bool) func(trace.Request) (trace.Request, bool) {
		return func(r trace.Request) (trace.Request, bool) {
			isHot := r.Adapter == hot.index
			if isHot && merged {
				r.Adapter = trace.BaseModel
			}
			return r, isHot || !only
		}
	}
	fromBase := func(k int32) int32 {
		if k == trace.BaseModel {
			return hot.index
		}
		return k
	}
	usesBase := slices.ContainsFunc(w.Requests, func(r trace.Request) bool { return r.Adapter == trace.BaseModel })
	if !usesBase {
		list = append(list, Change{cost: memory,
			Text: fmt.Sprintf("%s merged into the base model of all workers", hot.Name),
			run: func(ctx context.Context, d *drawn) (*outcome, error) {
				return simulate(ctx, &d.sc, filter(d.workload, toBase(false, true)), fromBase)
			}})
	}
	list = append(list, Change{cost: workers,
		Text: fmt.Sprintf("1 worker more, for %s alone, merged into its base model", hot.Name),
		run: func(ctx context.Context, d *drawn) (*outcome, error) {
			rest := func(r trace.Request) (trace.Request, bool) { return r, r.Adapter != hot.index }
			o, err := simulate(ctx, &d.sc, filter(d.workload, rest), same)
			if err != nil {
				return nil, err
			}
			own := d.sc
			if err := own.Set("num_workers", "1"); err != nil {
				return nil, err
			}
			alone, err := simulate(ctx, &own, filter(d.workload, toBase(true, true)), fromBase)
			if err != nil {
				return nil, err
			}
			o.plusAll(alone)
			return o, nil
		}})
	return list
}

// inTheWay returns the adapter that holds slots longest while others wait, and the one with most requests.
func inTheWay(a *Answer) (list []*Adapter) {
	held := map[int32]float64{}
	for _, d := range a.slow() {
		for _, h := range d.Holders {
			held[h.index] += h.Share * d.waits[aSlot] * float64(d.Requests)
		}
	}
	var holder, busiest *Adapter
	for i := range a.Adapters {
		d := &a.Adapters[i]
		if d.index == trace.BaseModel {
			continue
		}
		if held[d.index] > 0 && (holder == nil || held[d.index] > held[holder.index]) {
			holder = d
		}
		if busiest == nil || d.Requests > busiest.Requests {
			busiest = d
		}
	}
	for _, d := range []*Adapter{holder, busiest} {
		if d != nil && !slices.Contains(list, d) {
			list = append(list, d)
		}
	}
	return list
}

// filter returns a copy of a workload with the requests that keep returns and accepts.
func filter(c *scenario.Collected, keep func(trace.Request) (trace.Request, bool)) *scenario.Collected {
	copied := *c
	w := &trace.Workload{Adapters: c.Workload.Adapters}
	for _, r := range c.Workload.Requests {
		if r, ok := keep(r); ok {
			w.Requests = append(w.Requests, r)
		}
	}
	copied.Workload = w
	return &copied
}
