// Package explain finds the slow adapters of a scenario, what their requests wait for, and the one change that helps
// them: it simulates the scenario, then each change on the same requests.
//
//	answer, err := explain.Find(ctx, &sc, explain.Options{Seeds: 3})
//	answer.WriteText(os.Stdout)
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/trace"
)

const (
	// slowRatio is how many times the TTFT of the fast adapters a slow one has at least.
	slowRatio = 2
	// slowWait is the least mean wait of a slow adapter, ms: nobody notices less.
	slowWait = 100
	// waitShare is the share of their TTFT from which on waiting makes requests slow, whatever others have.
	waitShare = 0.5
	// cured is the largest share of their mean TTFT that slow adapters have after a cure.
	cured = 0.5
	// clearly is the largest ratio of two TTFTs of which the second change, no dearer, is better.
	clearly = 0.9
	// harmless is the largest growth of the mean TTFT of all requests that a cure may have.
	harmless = 1.03
)

// Options are the options of [Find].
type Options struct {
	Seeds    int                // number of runs of a generated workload, each with its own seed; at least 1
	Measured map[string]float64 // mean TTFT of adapters by their names, ms, if the workload is a log that states it
	Progress func(done, total int64)
}

// An Adapter is what the requests of an adapter met.
type Adapter struct {
	Name     string             `json:"adapter"`
	Requests int64              `json:"requests"`
	Share    float64            `json:"share"`
	TTFT     float64            `json:"mean_ttft_ms"`
	Measured float64            `json:"measured_mean_ttft_ms,omitempty"` // in the log; 0: not stated
	waits    [numCauses]float64 `json:"-"`                               // ms a request, by cause
	WaitsFor map[string]float64 `json:"waits_ms,omitempty"`              // the same by the names of the causes
	Holders  []Holder           `json:"slot_holders,omitempty"`          // who runs in the slots while it waits for one
	Slow     bool               `json:"slow"`
	index    int32
}

// wait is the waiting time of a request, ms.
func (a *Adapter) wait() (sum float64) {
	for _, x := range a.waits {
		sum += x
	}
	return sum
}

// cause is the largest cause.
func (a *Adapter) cause() int {
	top := 0
	for c, x := range a.waits {
		if x > a.waits[top] {
			top = c
		}
	}
	return top
}

// An Answer is the outcome of [Find].
type Answer struct {
	Seeds int `json:"seeds"`
	// Overloaded is the number of runs in which the workers could not keep up with the requests: their TTFT grows with
	// the length of the run.
	Overloaded int       `json:"overloaded_runs"`
	Adapters   []Adapter `json:"adapters"` // the slowest first
	SlowTTFT   float64   `json:"slow_mean_ttft_ms"`
	FastTTFT   float64   `json:"other_mean_ttft_ms"` // of the other adapters; 0: there is none
	TTFT       float64   `json:"mean_ttft_ms"`
	Tried      []Change  `json:"changes"` // the cheapest first
	// Cure is the cheapest change that at least halves SlowTTFT and, if most runs are overloaded, ends that.
	Cure *Change `json:"cure,omitempty"`
	Best *Change `json:"best,omitempty"` // the change with the lowest TTFT of the slow adapters
}

var errTooLong = errors.New("the workload has too many requests to be held in memory: limit it with num_prompts")

// slow lists the slow adapters.
func (a *Answer) slow() (list []*Adapter) {
	for i := range a.Adapters {
		if a.Adapters[i].Slow {
			list = append(list, &a.Adapters[i])
		}
	}
	return list
}

// isSlow returns a function that reports whether an adapter is slow, by its index.
func (a *Answer) isSlow() func(int32) bool {
	in := map[int32]bool{}
	for _, d := range a.slow() {
		in[d.index] = true
	}
	return func(k int32) bool { return in[k] }
}

func anyAdapter(int32) bool { return true }

// totals are the requests of an adapter and their TTFT.
type totals struct {
	requests, completed int64
	ttft                float64 // ms, summed over completed requests
}

// outcome is a run, or several that serve one workload together.
type outcome struct {
	of         map[int32]totals // by adapter
	overloaded bool
}

func (o *outcome) add(res *result.Result, as func(int32) int32) {
	o.overloaded = o.overloaded || isOverloaded(res)
	for _, a := range res.Extra.Adapters {
		k := as(a.Index)
		o.plus(k, totals{a.Requests, a.Completed, a.MeanTTFT * float64(a.Completed)})
	}
}

func (o *outcome) plus(k int32, t totals) {
	if o.of == nil {
		o.of = map[int32]totals{}
	}
	was := o.of[k]
	o.of[k] = totals{was.requests + t.requests, was.completed + t.completed, was.ttft + t.ttft}
}

// plusAll adds another outcome.
func (o *outcome) plusAll(other *outcome) {
	for k, t := range other.of {
		o.plus(k, t)
	}
	o.overloaded = o.overloaded || other.overloaded
}

// isOverloaded reports whether requests arrive faster than the workers can serve them.
func isOverloaded(res *result.Result) bool {
	return res.Steady != nil && res.Steady.State == steady.Overloaded
}

// mean is the mean TTFT of some adapters, ms.
func (o *outcome) mean(in func(int32) bool) float64 {
	n, sum := int64(0), 0.0
	for _, k := range slices.Sorted(maps.Keys(o.of)) {
		if in(k) {
			n += o.of[k].completed
			sum += o.of[k].ttft
		}
	}
	return sum / float64(max(n, 1))
}

// Find simulates a scenario, finds its slow adapters, and simulates the changes that may help them on the same
// requests. It returns an error if the workload is too long to be held in memory.
func Find(ctx context.Context, sc *scenario.Scenario, o Options) (*Answer, error) {
	runs, err := draw(ctx, sc, o.Seeds)
	if err != nil {
		return nil, err
	}
	a := &Answer{Seeds: len(runs)}
	first, engine, err := a.observe(ctx, runs, o)
	if err != nil || len(a.slow()) == 0 {
		return a, err
	}
	a.Tried = changes(sc, first, engine, a, runs[0].workload.Workload)
	if err := a.try(ctx, runs, o); err != nil {
		return nil, err
	}
	a.judge()
	return a, nil
}

// drawn is the scenario with one seed, and its workload.
type drawn struct {
	sc       scenario.Scenario
	workload *scenario.Collected
}

// draw draws the workload with several seeds. A workload that does not depend on the seed comes once.
func draw(ctx context.Context, sc *scenario.Scenario, seeds int) (runs []drawn, err error) {
	for i := range max(seeds, 1) {
		d := drawn{sc: *sc}
		d.sc.Seed += uint64(i)
		if d.workload, err = d.sc.Collect(ctx); err != nil {
			return nil, err
		}
		if d.workload == nil {
			return nil, errTooLong
		}
		if i > 0 && slices.Equal(d.workload.Workload.Requests, runs[0].workload.Workload.Requests) {
			break
		}
		runs = append(runs, d)
	}
	return runs, nil
}

// observe simulates the scenario as it is, and fills the adapters of the answer. It returns the result of the first
// run, and the engine of its first worker.
func (a *Answer) observe(ctx context.Context, runs []drawn, o Options) (*result.Result, *profile.Engine, error) {
	results := make([]*result.Result, len(runs))
	watched := make([]*observer, len(runs))
	err := parallel.Do(ctx, len(runs), func(i int) (err error) {
		results[i], watched[i], err = watch(ctx, &runs[i].sc, runs[i].workload)
		return err
	}, nil)
	if err != nil {
		return nil, nil, err
	}
	all := outcome{}
	for _, res := range results {
		if isOverloaded(res) {
			a.Overloaded++
		}
		all.add(res, same)
	}
	adapters := runs[0].workload.Workload.Adapters
	name := func(k int32) string {
		if k == trace.BaseModel {
			return "base model"
		}
		return adapters[k].Name
	}
	requests := int64(0)
	for _, t := range all.of {
		requests += t.requests
	}
	for _, k := range slices.Sorted(maps.Keys(all.of)) {
		t := all.of[k]
		d := Adapter{Name: name(k), Requests: t.requests, Share: float64(t.requests) / float64(requests),
			TTFT: t.ttft / float64(max(t.completed, 1)), Measured: o.Measured[name(k)], index: k}
		sum := waited{holders: map[int32]float64{}}
		for _, w := range watched {
			w := &w.adapters[k+1]
			for c, s := range w.causes {
				d.waits[c] += 1000 * s / float64(t.requests)
			}
			for h, s := range w.holders {
				sum.holders[h] += s
			}
		}
		d.Holders = sum.holding(name)
		d.WaitsFor = named(d.waits)
		a.Adapters = append(a.Adapters, d)
	}
	a.markSlow()
	slow := a.isSlow()
	a.SlowTTFT, a.TTFT = all.mean(slow), all.mean(anyAdapter)
	a.FastTTFT = all.mean(func(k int32) bool { return !slow(k) })
	slices.SortStableFunc(a.Adapters, func(x, y Adapter) int { return cmp.Compare(y.TTFT, x.TTFT) })
	return results[0], watched[0].engines[0], nil
}

func same(k int32) int32 { return k }

func named(waits [numCauses]float64) map[string]float64 {
	m := map[string]float64{}
	for c, x := range waits {
		if x > 0 {
			m[causeNames[c]] = x
		}
	}
	return m
}

// markSlow marks the adapters whose requests wait, and have a TTFT of [slowRatio] times that of the fastest quarter of
// requests or wait for [waitShare] of it. A TTFT that is long because prompts are long does not count.
func (a *Answer) markSlow() {
	byTTFT := slices.Clone(a.Adapters)
	slices.SortFunc(byTTFT, func(x, y Adapter) int { return cmp.Compare(x.TTFT, y.TTFT) })
	fast, share := math.Inf(1), 0.0
	for _, d := range byTTFT {
		if share += d.Share; share >= 0.25 {
			fast = d.TTFT
			break
		}
	}
	for i := range a.Adapters {
		d := &a.Adapters[i]
		d.Slow = d.wait() >= slowWait && (d.TTFT >= slowRatio*fast || d.wait() >= waitShare*d.TTFT)
	}
}

// try simulates the changes, each on the workloads of all runs. A change that the scenario does not allow is left out.
func (a *Answer) try(ctx context.Context, runs []drawn, o Options) error {
	slow := a.isSlow()
	n := len(a.Tried) * len(runs)
	outcomes := make([]*outcome, n)
	err := parallel.Do(ctx, n, func(k int) error {
		got, err := a.Tried[k/len(runs)].run(ctx, &runs[k%len(runs)])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			outcomes[k] = got
		}
		return nil
	}, o.Progress)
	if err != nil {
		return err
	}
	tried := a.Tried[:0]
	for i, c := range a.Tried {
		sum := outcome{}
		c.Low, c.High = math.Inf(1), 0
		ran := 0
		for _, one := range outcomes[i*len(runs) : (i+1)*len(runs)] {
			if one == nil {
				continue
			}
			ran++
			ttft := one.mean(slow)
			c.Low, c.High = min(c.Low, ttft), max(c.High, ttft)
			if one.overloaded {
				c.Overloaded++
			}
			sum.plusAll(one)
		}
		if ran < len(runs) {
			continue
		}
		c.SlowTTFT, c.TTFT = sum.mean(slow), sum.mean(anyAdapter)
		tried = append(tried, c)
	}
	a.Tried = tried
	return nil
}

// isOverloaded reports whether most runs are overloaded.
func (a *Answer) isOverloaded() bool { return 2*a.Overloaded > a.Seeds }

// cures reports whether a change halves the TTFT of the slow adapters. Where the workers cannot keep up, it must end
// that: how far it lowers a TTFT that grows with the length of the run says nothing.
func (a *Answer) cures(c *Change) bool {
	return c.SlowTTFT <= cured*a.SlowTTFT && !(a.isOverloaded() && 2*c.Overloaded > a.Seeds)
}

// judge chooses the cure: the cheapest change that cures without harm to the others.
func (a *Answer) judge() {
	for i := range a.Tried {
		c := &a.Tried[i]
		if c.TTFT > harmless*a.TTFT || c.SlowTTFT >= a.SlowTTFT {
			continue
		}
		if a.Best == nil || c.SlowTTFT < a.Best.SlowTTFT {
			a.Best = c
		}
		if a.cures(c) && (a.Cure == nil ||
			c.cost == a.Cure.cost && c.SlowTTFT < clearly*a.Cure.SlowTTFT) {
			a.Cure = c
		}
	}
}

// String describes a change with the TTFT of the slow adapters, and its range over the seeds.
func (c *Change) String() string {
	return fmt.Sprintf("%s: their mean TTFT %s", c.Text, c.ttft())
}
