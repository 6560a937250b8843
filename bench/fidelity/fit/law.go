package fit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// lawFit is a law by distinct adapters (profile.AdapterLaw) fitted to measured
// hours of vLLM and to timings of its steps.
type lawFit struct {
	law profile.AdapterLaw
	// steps and runs are the relative errors of the fit on the step timings and
	// on the mean time per output token of the runs.
	steps, runs stats.ErrorSummary
	// held names the coefficients that the step timings do not determine.
	held []string
	// bounded names the coefficients at the least value that the GPU allows.
	bounded []string
}

// fitLaw fits the law of one model. loads is the number of adapter loads per step, by run. loadMs
// is the time of one load, ms. leastKVUs is the least time per KV token that the GPU allows, us; 0:
// unknown.
//
// A run's mean time per output token is the mean length of its steps. The work of a mean step
// follows from measurements of the run: running and waiting requests, tokens/s, and the share of
// the KV cache in use. The law is linear in its coefficients, so that least squares fit it without
// a simulation. Only the number of adapter loads comes from a simulation. In a steady state
// requests, prompt tokens and KV tokens rise and fall together: their separate costs come from the
// step timings.
func fitLaw(
	runs []measured.Hour, loads []float64, loadMs float64, t *measured.HourTables, timings []StepTiming,
	start profile.AdapterLaw, leastKVUs float64,
) (*lawFit, error) {
	fit := &lawFit{law: start}
	if err := fit.fitTimings(timings, leastKVUs); err != nil {
		return nil, err
	}
	var points []point
	for i := range runs {
		p, err := newPoint(&runs[i], t)
		if err != nil {
			return nil, err
		}
		if p.ms > 0 && p.running > 0 && p.waiting >= 0 && p.kv >= 0 && p.prompt >= 0 { // else a measurement is missing
			p.loads = loads[i] * loadMs
			points = append(points, p)
		}
	}
	return fit, fit.fitRuns(points)
}

// point is the mean step of a run.
type point struct {
	ms                             float64
	running, prompt, kv, waiting   float64
	adapters, slots, tokens, loads float64
	rank                           int
}

// newPoint returns the mean step of a run.
func newPoint(r *measured.Hour, t *measured.HourTables) (point, error) {
	p := point{ms: r.Measured[measured.TPOT], running: r.Measured[measured.Running],
		waiting: r.Waiting, slots: float64(r.Slots), rank: r.MaxRank}
	kv, err := t.KVTokens(r.Model, r.Slots, r.MaxRank)
	if err != nil {
		return p, fmt.Errorf("run in line %d: %w", r.Line, err)
	}
	p.kv = float64(kv) * r.KVShare
	p.prompt = r.InRate * p.ms / 1000
	p.tokens = p.running + p.prompt
	p.adapters = distinct(r.Rates, p.running, r.Slots)
	return p, nil
}

// distinct returns the mean number of distinct adapters among running requests. Adapters are drawn
// by their rates: each is present with probability 1 - exp(-its share of the requests).
func distinct(rates []float64, running float64, slots int) float64 {
	total, sum := 0.0, 0.0
	for _, r := range rates {
		total += r
	}
	for _, r := range rates {
		sum += 1 - math.Exp(-running*r/total)
	}
	return min(sum, float64(slots))
}

// fitTimings fits the cost of prompt tokens and of KV tokens; the cost of KV tokens is at least
// leastKVUs.
func (f *lawFit) fitTimings(timings []StepTiming, leastKVUs float64) error {
	if len(timings) < 6 {
		return fmt.Errorf("%d step timings without adapters, expected at least 6", len(timings))
	}
	long := slices.ContainsFunc(timings, func(s StepTiming) bool { return s.Prompt > 0 })
	var eqs []equation
	for _, s := range timings {
		e := equation{amounts: []float64{1, s.Batch, s.KV}, ms: s.Ms}
		if long {
			e.amounts = append(e.amounts, s.Prompt)
		}
		eqs = append(eqs, e)
	}
	x, errs, err := nonNegative(eqs)
	if least := leastKVUs / 1000; err == nil && x[2] < least {
		for i := range eqs {
			e := &eqs[i]
			e.known, e.amounts[2] = e.known+least*e.amounts[2], 0
		}
		x, errs, err = nonNegative(eqs)
		if err == nil {
			x[2] = least
			f.bounded = append(f.bounded, "per_kv_token_us")
		}
	}
	if err != nil {
		return err
	}
	f.steps = errs
	f.law.PerKVTokenUs = profile.Round4(1000 * x[2])
	if long {
		f.law.PerTokenUs = profile.Round4(1000 * x[3])
	} else {
		f.held = append(f.held, "per_token_us")
	}
	return nil
}

// fitRuns fits the other coefficients: the fixed part, requests, adapters, slots and the scan of
// the queue.
func (f *lawFit) fitRuns(points []point) error {
	l := &f.law
	ranks := map[int]bool{}
	for _, p := range points {
		ranks[p.rank] = true
	}
	order := slices.Sorted(maps.Keys(ranks))
	const common = 4
	n := common + 3*len(order)
	if len(points) < 2*n {
		return fmt.Errorf("%d runs, expected at least %d for %d coefficients", len(points), 2*n, n)
	}
	var eqs []equation
	for _, p := range points {
		amounts := make([]float64, n)
		copy(amounts, []float64{1, p.running, p.slots, p.waiting})
		copy(amounts[common+3*slices.Index(order, p.rank):], []float64{
			p.adapters, p.adapters * p.tokens, p.slots * p.tokens,
		})
		eqs = append(eqs, equation{amounts, l.PerTokenUs/1000*p.prompt + l.PerKVTokenUs/1000*p.kv + p.loads, p.ms})
	}
	x, errs, err := nonNegative(eqs)
	if err != nil {
		return err
	}
	f.runs = errs
	l.BaseMs, l.PerRequestMs, l.PerSlotUs, l.PerWaitingUs = profile.Round4(x[0]), profile.Round4(x[1]),
		profile.Round4(1000*x[2]), profile.Round4(1000*x[3])
	l.ByRank = nil
	for i, rank := range order {
		c := x[common+3*i:]
		l.ByRank = append(l.ByRank, profile.RankCost{Rank: rank, PerAdapterMs: profile.Round4(c[0]),
			PerAdapterTokenUs: profile.Round4(1000 * c[1]), PerSlotTokenUs: profile.Round4(1000 * c[2])})
	}
	return nil
}

// equation is a duration: the sum of amounts x coefficients, plus a known part.
type equation struct {
	amounts   []float64
	known, ms float64
}

// nonNegative solves equations for coefficients >= 0 by least squares of relative errors. It
// removes coefficients one at a time, the one with the most negative contribution first. It also
// returns the errors.
func nonNegative(eqs []equation) (x []float64, errs stats.ErrorSummary, err error) {
	x = make([]float64, len(eqs[0].amounts))
	var active []int
	for j := range x { // a coefficient that no equation has, such as the queue's, stays 0
		if slices.ContainsFunc(eqs, func(e equation) bool { return e.amounts[j] != 0 }) {
			active = append(active, j)
		}
	}
	for len(active) > 0 {
		a, b := mat.NewDense(len(eqs), len(active), nil), mat.NewVecDense(len(eqs), nil)
		for i, e := range eqs {
			b.SetVec(i, (e.ms-e.known)/e.ms)
			for k, j := range active {
				a.Set(i, k, e.amounts[j]/e.ms)
			}
		}
		var s mat.VecDense
		if err := s.SolveVec(a, b); err != nil {
			if bad := mat.Condition(0); !errors.As(err, &bad) {
				return nil, errs, fmt.Errorf("the measurements do not determine the coefficients separately: %w", err)
			}
		}
		worst, least := -1, 0.0
		for k, j := range active {
			sum := 0.0
			for _, e := range eqs {
				sum += e.amounts[j]
			}
			if c := s.AtVec(k) * sum; c < least {
				worst, least = k, c
			}
		}
		if worst >= 0 {
			active = slices.Delete(active, worst, worst+1)
			continue
		}
		for k, j := range active {
			x[j] = s.AtVec(k)
		}
		off := make([]float64, len(eqs))
		for i, e := range eqs {
			sum := e.known
			for j, v := range e.amounts {
				sum += v * x[j]
			}
			off[i] = sum/e.ms - 1
		}
		return x, stats.SummarizeErrors(off), nil
	}
	return nil, errs, errors.New("all coefficients are 0")
}

// sizes copies the size of the KV cache and the load times from the tables into a profile.
func sizes(p *profile.Profile, model string, t *measured.HourTables) error {
	curves := t.KVCurves(model)
	if len(curves) == 0 {
		return fmt.Errorf("no KV capacity of %s", model)
	}
	p.Memory.KVTokens, p.Memory.KVTable = 0, curves
	host, ranks, disk := t.Loads(model)
	if len(ranks) < 2 {
		return nil // keep the sizes of the start
	}
	p.Adapters.HostToGPU = profile.Stage{LatencyMs: profile.Round4(host), GBPerS: 1000} // hardly depends on the rank
	bytes := make([]float64, len(ranks))                                                // over GB/s, in ms
	for i, rank := range ranks {
		bytes[i] = rank * p.Adapters.BytesPerRank / 1e6
	}
	latency, slope := stat.LinearRegression(bytes, disk, nil, false)
	p.Adapters.DiskToHost = profile.Stage{
		LatencyMs: profile.Round4(max(latency, 0)), GBPerS: profile.Round4(1 / max(slope, 1e-6)),
	}
	return nil
}
