package hour

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/stats"
	"lorasim/internal/parallel"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/resample"
)

// An Outcome is the means over the requests of an hour, ms.
type Outcome struct {
	TTFT float64 `json:"mean_ttft_ms"`
	E2E  float64 `json:"mean_e2e_ms"`
	P99  float64 `json:"p99_ttft_ms"`
	Lost int     `json:"requests_without_reply,omitempty"`
}

// outcome summarizes simulated requests.
func outcome(rs []record.Request) (o Outcome) {
	var ttft []float64
	for i := range rs {
		r := &rs[i]
		if r.Status != record.OK {
			o.Lost++
			continue
		}
		ttft = append(ttft, 1000*r.TTFT())
		o.TTFT += 1000 * r.TTFT()
		o.E2E += 1000 * r.E2E()
	}
	n := float64(max(len(ttft), 1))
	o.TTFT, o.E2E = o.TTFT/n, o.E2E/n
	if slices.Sort(ttft); len(ttft) > 0 {
		o.P99 = stats.Quantile(ttft, 0.99)
	}
	return o
}

// A Change is another fleet on the requests of the hour.
type Change struct {
	Text string  `json:"change"`
	Hour Outcome `json:"hour"`
	// Differences from the fleet as it is, as shares. The 95 % intervals come from resampled hours and the error of
	// the proof.
	TTFT Difference `json:"ttft_change"`
	E2E  Difference `json:"e2e_change"`
	Why  string     `json:"not_simulated,omitempty"` // why the change could not be simulated
	make func() (*fleet, plan, error)
}

// A Difference is a relative difference with its interval.
type Difference struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Clear reports whether the interval excludes 0.
func (d *Difference) Clear() bool { return d.Low > 0 || d.High < 0 }

// plan changes a workload before it runs; nil functions change nothing.
type plan struct {
	requests func(*trace.Workload) *trace.Workload
	route    func(*trace.Workload) func(id int64) int // takes the place of the policy
}

// run simulates a workload on a fleet by a plan.
func (f *fleet) runPlan(ctx context.Context, w *trace.Workload, p plan) (Outcome, error) {
	if p.requests != nil {
		w = p.requests(w)
	}
	var route func(int64) int
	if p.route != nil {
		route = p.route(w)
	}
	rs, err := f.run(ctx, w, route)
	if err != nil {
		return Outcome{}, err
	}
	return outcome(rs), nil
}

// change simulates the changes of the fleet, on the hour and on resampled hours.
func (s *hourStudy) change(ctx context.Context, a *Answer) error {
	hours := []*trace.Workload{&s.workload}
	block := resample.Spec{Kind: resample.Block, Seconds: s.length() / parts}
	for i := range s.opt.Draws {
		w, err := resample.Draw(&s.workload, block, uint64(i)+1)
		if err != nil {
			return err
		}
		hours = append(hours, w)
	}
	changes := append([]Change{{make: func() (*fleet, plan, error) { return &s.base, plan{}, nil }}}, s.changes(a)...)
	outcomes := make([][]Outcome, len(changes))
	for i := range outcomes {
		outcomes[i] = make([]Outcome, len(hours))
	}
	err := parallel.Do(ctx, len(changes)*len(hours), func(k int) error {
		c, i := &changes[k/len(hours)], k%len(hours)
		f, p, err := c.make()
		if err == nil {
			outcomes[k/len(hours)][i], err = f.runPlan(ctx, hours[i], p)
		}
		if err != nil && (k < len(hours) || ctx.Err() != nil) {
			return err
		}
		if err != nil && i == 0 {
			c.Why = err.Error()
		}
		return nil
	}, s.phase("changes"))
	if err != nil {
		return err
	}
	a.Base = outcomes[0][0]
	ttft, e2e := a.Proof.routedError(proven[0].name), a.Proof.routedError(proven[1].name)
	for i := range changes[1:] {
		c, own := &changes[i+1], outcomes[i+1]
		if c.Why == "" {
			c.Hour = own[0]
			c.TTFT = difference(outcomes[0], own, func(o Outcome) float64 { return o.TTFT }, ttft)
			c.E2E = difference(outcomes[0], own, func(o Outcome) float64 { return o.E2E }, e2e)
		}
		a.Changes = append(a.Changes, *c)
	}
	slices.SortStableFunc(a.Changes, func(x, y Change) int {
		return cmp.Or(cmp.Compare(len(x.Why), len(y.Why)), cmp.Compare(x.Hour.TTFT, y.Hour.TTFT))
	})
	return nil
}

// routedError is the relative error of a figure of the prediction by the policy.
func (p *Proof) routedError(metric string) float64 {
	for i := range p.Rows {
		if p.Rows[i].Metric == metric {
			_, routed := p.Rows[i].Errors()
			return math.Abs(routed)
		}
	}
	return 0
}

// difference compares a change with the base. The first outcome is that of the hour, whose ratio is the mean. The
// spread of the ratios of the resampled hours and the error of the prediction make the interval.
func difference(base, changed []Outcome, of func(Outcome) float64, off float64) Difference {
	ratio := of(changed[0]) / of(base[0])
	var logs []float64
	for i := 1; i < len(base); i++ {
		logs = append(logs, math.Log(of(changed[i])/of(base[i])))
	}
	half := 0.0
	if len(logs) > 1 {
		e := stats.MeanOf(stats.Resampled, logs)
		half = math.Hypot(e.Half(), math.Log1p(off))
	}
	return Difference{ratio - 1, ratio*math.Exp(-half) - 1, ratio*math.Exp(half) - 1}
}

// policies are the policies that are compared with that of the fleet.
var policies = []string{"static", "least-loaded", "plan-and-route"}

// changes lists the changes to simulate.
func (s *hourStudy) changes(a *Answer) (list []Change) {
	add := func(text string, make func() (*fleet, plan, error)) {
		list = append(list, Change{Text: text, make: make})
	}
	for _, name := range policies {
		if name != a.Policy {
			add(fmt.Sprintf("policy %s instead of %s", name, a.Policy), func() (*fleet, plan, error) {
				f, err := s.base.with("policy", name)
				return f, plan{}, err
			})
		}
	}
	add("1 worker more", func() (*fleet, plan, error) {
		f := s.base
		f.workers++
		return &f, plan{}, nil
	})
	for _, n := range moreSlots(a.Slots, len(s.Adapters)) {
		add(fmt.Sprintf("%d adapter slots instead of %d", n, a.Slots), func() (*fleet, plan, error) {
			f, err := s.base.with("max_loras_per_batch", strconv.Itoa(n))
			return f, plan{}, err
		})
	}
	if s.base.workers > 1 && len(s.Adapters) > 1 {
		home := s.balanced()
		add("adapters placed by their tokens, each on one worker", func() (*fleet, plan, error) {
			return &s.base, plan{route: func(w *trace.Workload) func(int64) int {
				return func(id int64) int { return home(&w.Requests[id]) }
			}}, nil
		})
	}
	if hot, ok := s.busiest(); ok {
		add(fmt.Sprintf("%s merged into the base model of all workers", s.Adapters[hot].Name),
			func() (*fleet, plan, error) { return &s.base, plan{requests: merged(hot)}, nil })
	}
	return list
}

// moreSlots lists larger numbers of slots.
func moreSlots(slots, adapters int) (list []int) {
	for _, n := range []int{2 * slots, 3 * slots, adapters} {
		if n > slots && n <= adapters && n <= mostSlots && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// mostSlots is the largest number of slots to try.
const mostSlots = 64

// balanced places each adapter on one worker, those with most tokens first, on the worker with the fewest tokens so
// far. Requests for the base model go to the workers in turn.
func (s *hourStudy) balanced() func(*trace.Request) int {
	tokens := make([]int64, len(s.Adapters))
	for i := range s.Requests {
		if r := &s.Requests[i]; r.Adapter >= 0 {
			tokens[r.Adapter] += int64(r.Prompt) + int64(r.Output)
		}
	}
	order := make([]int32, len(tokens))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(tokens[b], tokens[a]) })
	home, load := make([]int, len(tokens)), make([]int64, s.base.workers)
	for _, k := range order {
		w := 0
		for i := range load {
			if load[i] < load[w] {
				w = i
			}
		}
		home[k], load[w] = w, load[w]+tokens[k]
	}
	return func(r *trace.Request) int {
		if r.Adapter < 0 {
			return int(r.ID % int64(s.base.workers))
		}
		return home[r.Adapter]
	}
}

// busiest returns the adapter with most requests, if hardly any request is for the base model.
func (s *hourStudy) busiest() (hot int32, ok bool) {
	const hardly = 0.01
	counts, base := make([]int, len(s.Adapters)), 0
	for i := range s.Requests {
		if k := s.Requests[i].Adapter; k == trace.BaseModel {
			base++
		} else {
			counts[k]++
		}
	}
	if float64(base) > hardly*float64(len(s.Requests)) {
		return 0, false
	}
	for k := range counts {
		if counts[k] > counts[hot] {
			hot = int32(k)
		}
	}
	return hot, len(counts) > 1
}

// merged returns a change of a workload: requests of an adapter are for the base model, into which it is merged.
func merged(hot int32) func(*trace.Workload) *trace.Workload {
	return func(w *trace.Workload) *trace.Workload {
		changed := &trace.Workload{Adapters: w.Adapters, Requests: slices.Clone(w.Requests)}
		for i := range changed.Requests {
			if r := &changed.Requests[i]; r.Adapter == hot {
				r.Adapter = trace.BaseModel
			}
		}
		return changed
	}
}
