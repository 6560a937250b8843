// Package vllmlaw fits the step-time law by distinct adapters
// (profile.AdapterLaw) to measured hours of vLLM and to timings of its steps.
//
//	steps, err := vllmlaw.ReadSteps("latency.csv")
//	fit, err := vllmlaw.Fit(runs, loads, tables, steps["llama-3.1-8b-instruct"], start)
//
// A run's mean time per output token is the mean length of its steps, and what a
// mean step computes follows from what was measured of the run: requests running
// and waiting, tokens/s, the share of the KV cache in use. So the law, linear in
// its coefficients, is fitted by least squares without simulating; only how often
// adapters are loaded is a simulation's answer. In a steady state requests,
// prompt tokens and KV tokens go up and down together: what one of each costs is
// taken from the step timings.
package vllmlaw

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"lorasim/bench/validate"
	"lorasim/bench/validate/vllmruns"
	"lorasim/sim/profile"
)

// Result is a fitted law.
type Result struct {
	Law profile.AdapterLaw
	// Steps and Runs are the relative errors of the fit on the step timings and
	// on the mean time per output token of the runs.
	Steps, Runs validate.Summary
	// Held names coefficients that the step timings do not tell.
	Held []string
}

// Fit fits the law of one model. loads are loads of adapters per step, by run;
// loadMs is what one of them takes.
func Fit(runs []vllmruns.Run, loads []float64, loadMs float64, t *vllmruns.Tables, steps []Step, start profile.AdapterLaw) (*Result, error) {
	res := &Result{Law: start}
	if err := res.fitSteps(steps); err != nil {
		return nil, err
	}
	var points []point
	for i := range runs {
		p, ok, err := newPoint(&runs[i], t)
		if err != nil {
			return nil, err
		}
		if ok {
			p.loads = loads[i] * loadMs
			points = append(points, p)
		}
	}
	return res, res.fitRuns(points)
}

// point is the mean step of a run.
type point struct {
	ms                             float64
	running, prompt, kv, waiting   float64
	adapters, slots, tokens, loads float64
	rank                           int
}

// newPoint works out the mean step of a run; false where it had none, or what
// it takes was not measured.
func newPoint(r *vllmruns.Run, t *vllmruns.Tables) (point, bool, error) {
	p := point{ms: r.Measured[vllmruns.TPOT], running: r.Measured[vllmruns.Running],
		waiting: r.Waiting, slots: float64(r.Slots), rank: r.MaxRank}
	kv, err := t.KVTokens(r.Model, r.Slots, r.MaxRank)
	if err != nil {
		return p, false, fmt.Errorf("run in line %d: %w", r.Line, err)
	}
	p.kv = float64(kv) * r.KVShare
	p.prompt = r.InRate * p.ms / 1000
	p.tokens = p.running + p.prompt
	p.adapters = distinct(r.Rates, p.running, r.Slots)
	ok := p.ms > 0 && p.running > 0 && p.waiting >= 0 && p.kv >= 0 && p.prompt >= 0
	return p, ok, nil
}

// distinct is the mean number of adapters among running requests that are drawn
// by the adapters' rates: each is there with probability 1 - exp(-its share).
func distinct(rates []float64, running float64, slots int) float64 {
	total := 0.0
	for _, r := range rates {
		total += r
	}
	sum := 0.0
	for _, r := range rates {
		sum += 1 - math.Exp(-running*r/total)
	}
	return min(sum, float64(slots))
}

// fitSteps fits the cost of requests, prompt tokens and KV tokens.
func (res *Result) fitSteps(steps []Step) error {
	long := slices.ContainsFunc(steps, func(s Step) bool { return s.Prompt > 0 })
	var rows [][]float64
	var ms []float64
	for _, s := range steps {
		row := []float64{1, s.Batch, s.KV}
		if long {
			row = append(row, s.Prompt)
		}
		rows, ms = append(rows, row), append(ms, s.Ms)
	}
	if len(rows) < 6 {
		return fmt.Errorf("%d step timings without adapters, expected at least 6", len(rows))
	}
	x, err := nonNegative(rows, nil, ms)
	if err != nil {
		return err
	}
	res.Steps = errorsOf(rows, nil, ms, x)
	res.Law.PerKVTokenUs = round(1000 * x[2])
	if long {
		res.Law.PerTokenUs = round(1000 * x[3])
	} else {
		res.Held = append(res.Held, "per_token_us")
	}
	return nil
}

// fitRuns fits what is left: the fixed part, requests, adapters, slots and the
// scan of the queue.
func (res *Result) fitRuns(points []point) error {
	l := &res.Law
	ranks := map[int]bool{}
	for _, p := range points {
		ranks[p.rank] = true
	}
	var order []int
	for r := range ranks {
		order = append(order, r)
	}
	slices.Sort(order)
	const common = 4
	n := common + 3*len(order)
	if len(points) < 2*n {
		return fmt.Errorf("%d runs, expected at least %d for %d coefficients", len(points), 2*n, n)
	}
	var rows [][]float64
	var known, ms []float64
	for _, p := range points {
		row := make([]float64, n)
		copy(row, []float64{1, p.running, p.slots, p.waiting})
		k := common + 3*slices.Index(order, p.rank)
		copy(row[k:], []float64{p.adapters, p.adapters * p.tokens, p.slots * p.tokens})
		rows, ms = append(rows, row), append(ms, p.ms)
		known = append(known, l.PerTokenUs/1000*p.prompt+l.PerKVTokenUs/1000*p.kv+p.loads)
	}
	x, err := nonNegative(rows, known, ms)
	if err != nil {
		return err
	}
	res.Runs = errorsOf(rows, known, ms, x)
	l.BaseMs, l.PerRequestMs, l.PerSlotUs, l.PerWaitingUs = round(x[0]), round(x[1]), round(1000*x[2]), round(1000*x[3])
	l.ByRank = nil
	for i, rank := range order {
		c := x[common+3*i:]
		l.ByRank = append(l.ByRank, profile.RankCost{Rank: rank, PerAdapterMs: round(c[0]),
			PerAdapterTokenUs: round(1000 * c[1]), PerSlotTokenUs: round(1000 * c[2])})
	}
	return nil
}

// nonNegative solves rows*x + known = y for x >= 0 by least squares of relative
// errors, leaving out, one after the other, the coefficient that would take most
// time away. known may be nil.
func nonNegative(rows [][]float64, known, y []float64) ([]float64, error) {
	n := len(rows[0])
	active := make([]int, n)
	for j := range active {
		active[j] = j
	}
	x := make([]float64, n)
	for len(active) > 0 {
		a, b := mat.NewDense(len(rows), len(active), nil), mat.NewVecDense(len(rows), nil)
		for i, row := range rows {
			rest := y[i]
			if known != nil {
				rest -= known[i]
			}
			b.SetVec(i, rest/y[i])
			for k, j := range active {
				a.Set(i, k, row[j]/y[i])
			}
		}
		var s mat.VecDense
		if err := s.SolveVec(a, b); err != nil {
			if bad := mat.Condition(0); !errors.As(err, &bad) {
				return nil, fmt.Errorf("the measurements do not tell the coefficients apart: %w", err)
			}
		}
		worst, least := -1, 0.0
		for k, j := range active {
			sum := 0.0
			for _, row := range rows {
				sum += row[j]
			}
			if c := s.AtVec(k) * sum; c < least {
				worst, least = k, c
			}
		}
		if worst < 0 {
			for k, j := range active {
				x[j] = s.AtVec(k)
			}
			return x, nil
		}
		active = slices.Delete(active, worst, worst+1)
	}
	return nil, errors.New("no coefficient takes time")
}

// errorsOf summarizes the relative errors of a fit.
func errorsOf(rows [][]float64, known, y, x []float64) validate.Summary {
	errs := make([]float64, len(rows))
	for i, row := range rows {
		sum := 0.0
		if known != nil {
			sum = known[i]
		}
		for j, v := range row {
			sum += v * x[j]
		}
		errs[i] = sum/y[i] - 1
	}
	return validate.Summarize(errs)
}

// round keeps four digits.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// Sizes takes what the tables say of the KV cache and of loads into a
// profile.
func Sizes(p *profile.Profile, model string, t *vllmruns.Tables) error {
	curves := t.KVCurves(model)
	if len(curves) == 0 {
		return fmt.Errorf("no KV capacity of %s", model)
	}
	p.Memory.KVTokens, p.Memory.KVTable = 0, curves
	host, ranks, disk := t.Loads(model)
	if len(ranks) < 2 {
		return nil // those of the start
	}
	p.Adapters.HostToGPU = profile.Stage{LatencyMs: round(host), GBPerS: 1000} // hardly depends on the rank
	// disk = latency + bytes/bandwidth, a line through the ranks
	var n, sx, sy, sxx, sxy float64
	for i := range ranks {
		x := ranks[i] * p.Adapters.BytesPerRank / 1e6 // bytes/(GB/s) in ms
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+disk[i], sxx+x*x, sxy+x*disk[i]
	}
	slope := (n*sxy - sx*sy) / (n*sxx - sx*sx)
	p.Adapters.DiskToHost = profile.Stage{LatencyMs: round(max((sy-slope*sx)/n, 0)), GBPerS: round(1 / max(slope, 1e-6))}
	return nil
}
