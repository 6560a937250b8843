package main

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"lorasim/bench/stats"
)

// metric is one of the figures for the comparison of policies.
type metric int

const (
	e2e metric = iota
	ttft
	p99
	numMetrics
)

// weights are the weights of the metrics' logarithms in the objective.
var weights = [numMetrics]float64{1, 0.35, 0.15}

// fewest is the least number of completed requests for a policy's latencies to count, as a share of
// the requests that another policy completes.
const fewest = 0.95

// lossAbove is the regret of E2E above which a loss is serious.
const lossAbove = 0.15

// figures are the metrics of a policy in a scenario, by seed.
type figures [numMetrics][]float64

// mean returns the mean of a metric over a set of seeds, given as bits.
func (f *figures) mean(m metric, seeds uint) float64 {
	sum := 0.0
	for i, x := range f[m] {
		if seeds>>i&1 == 1 {
			sum += x
		}
	}
	return sum / float64(bits.OnesCount(seeds))
}

// objective returns the value to minimize, over a set of seeds.
func (f *figures) objective(seeds uint) float64 {
	sum := 0.0
	for m := range numMetrics {
		sum += weights[m] * math.Log(f.mean(m, seeds))
	}
	return sum
}

// Case is a scenario with the figures of the policies.
type Case struct {
	Numbered
	seeds    int
	policies map[string]*figures
	failed   map[string]bool // policies that did not complete requests that others completed
	// sustained is the mean over the seeds of the rate that a policy sustains, requests/s (see sustains); of overloaded
	// scenarios only. If a run cannot tell it, it is the throughput of all: rates of two kinds are not compared.
	sustained map[string]float64
}

// all returns the set of all seeds, as bits.
func (c *Case) all() uint { return 1<<c.seeds - 1 }

// splits returns the halves of the seeds: a policy is chosen on one half and measured on the other.
func (c *Case) splits() (halves []uint) {
	for set := uint(1); set < c.all(); set++ {
		if bits.OnesCount(set) == c.seeds/2 {
			halves = append(halves, set)
		}
	}
	return halves
}

// best returns the policy with the least value in a list, except but; "": none.
func (c *Case) best(among []string, but string, value func(*figures) float64) (policy string) {
	least := math.Inf(1)
	for _, p := range among {
		if f := c.policies[p]; f != nil && p != but && !c.failed[p] && value(f) < least {
			policy, least = p, value(f)
		}
	}
	return policy
}

// Regret is the loss of a policy relative to the best other policy: 0.1 is 10 %. It is 0 for a
// policy that is better than all others.
type Regret struct {
	Scenario int                 `json:"scenario"`
	Policy   string              `json:"policy"`
	Mean     [numMetrics]float64 `json:"mean_ms"` // over the seeds
	Best     [numMetrics]string  `json:"best_other"`
	// Hindsight is relative to the best policy on the same seeds, for each metric.
	Hindsight [numMetrics]float64 `json:"hindsight"`
	// CrossFitted is relative to the policy that is best on one half of the seeds, measured on the
	// other half. It is the mean over all halves.
	CrossFitted [numMetrics]float64 `json:"cross_fitted"`
	// Objective is the difference to the best other policy's objective in hindsight.
	// ObjectiveCrossFitted is the cross-fitted one.
	Objective            float64 `json:"objective"`
	ObjectiveCrossFitted float64 `json:"objective_cross_fitted"`
	// Sustained is the rate that the policy sustains, as a share of the largest rate of the others; 0: not measured.
	Sustained float64 `json:"sustained,omitempty"`
	// Serious says that E2E is more than 15 % worse, and that the 95 % interval of the difference,
	// paired by seed, excludes 0.
	Serious bool `json:"serious"`
}

// regret returns the regret of a policy in a case. ok is false if its figures do not count.
func (c *Case) regret(policy string, baselines []string) (r Regret, ok bool) {
	own := c.policies[policy]
	if own == nil || c.failed[policy] {
		return r, false
	}
	r = Regret{Scenario: c.Index, Policy: policy}
	for m := range numMetrics {
		of := func(seeds uint) func(f *figures) float64 {
			return func(f *figures) float64 { return f.mean(m, seeds) }
		}
		r.Mean[m] = own.mean(m, c.all())
		if r.Best[m] = c.best(baselines, policy, of(c.all())); r.Best[m] == "" {
			return r, false
		}
		r.Hindsight[m] = max(0, r.Mean[m]/c.policies[r.Best[m]].mean(m, c.all())-1)
		r.CrossFitted[m] = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
			other := c.policies[c.best(baselines, policy, of(chosenOn))]
			return own.mean(m, measuredOn)/other.mean(m, measuredOn) - 1
		}))
	}
	of := func(seeds uint) func(f *figures) float64 {
		return func(f *figures) float64 { return f.objective(seeds) }
	}
	other := c.policies[c.best(baselines, policy, of(c.all()))]
	r.Objective = max(0, own.objective(c.all())-other.objective(c.all()))
	r.ObjectiveCrossFitted = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
		other := c.policies[c.best(baselines, policy, of(chosenOn))]
		return own.objective(measuredOn) - other.objective(measuredOn)
	}))
	difference := stats.Paired(own[e2e], c.policies[r.Best[e2e]][e2e])
	r.Sustained = c.share(policy, baselines)
	r.Serious = r.Hindsight[e2e] > lossAbove && difference.Low > 0
	return r, true
}

// share returns the rate that a policy sustains as a share of the largest rate of the other baselines.
func (c *Case) share(policy string, baselines []string) float64 {
	most := 0.0
	for _, p := range baselines {
		if p != policy {
			most = max(most, c.sustained[p])
		}
	}
	if most == 0 {
		return 0
	}
	return c.sustained[policy] / most
}

// chosen returns the regret of choosing the policy with the best objective on one half of the
// seeds, measured on the other half.
func (c *Case) chosen(name string, baselines []string, value func(f *figures, seeds uint) float64) Regret {
	r := Regret{Scenario: c.Index, Policy: name}
	pick := func(on uint) *figures {
		return c.policies[c.best(baselines, "", func(f *figures) float64 { return value(f, on) })]
	}
	for m := range numMetrics {
		of := func(seeds uint) func(f *figures) float64 {
			return func(f *figures) float64 { return f.mean(m, seeds) }
		}
		r.Mean[m] = c.overHalves(func(chosenOn, measuredOn uint) float64 { return pick(chosenOn).mean(m, measuredOn) })
		r.Best[m] = c.best(baselines, "", of(c.all()))
		r.Hindsight[m] = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
			least := c.policies[c.best(baselines, "", of(measuredOn))]
			return pick(chosenOn).mean(m, measuredOn)/least.mean(m, measuredOn) - 1
		}))
		r.CrossFitted[m] = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
			least := c.policies[c.best(baselines, "", of(chosenOn))]
			return pick(chosenOn).mean(m, measuredOn)/least.mean(m, measuredOn) - 1
		}))
	}
	r.Objective = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
		of := func(f *figures) float64 { return f.objective(measuredOn) }
		return pick(chosenOn).objective(measuredOn) - of(c.policies[c.best(baselines, "", of)])
	}))
	r.ObjectiveCrossFitted = max(0, c.overHalves(func(chosenOn, measuredOn uint) float64 {
		of := func(f *figures) float64 { return f.objective(chosenOn) }
		return pick(chosenOn).objective(measuredOn) - c.policies[c.best(baselines, "", of)].objective(measuredOn)
	}))
	return r
}

// overHalves returns the mean over all halves of the seeds, or the value of the only seed.
func (c *Case) overHalves(f func(chosenOn, measuredOn uint) float64) float64 {
	if c.seeds < 2 {
		return f(c.all(), c.all())
	}
	sum, halves := 0.0, c.splits()
	for _, half := range halves {
		sum += f(half, c.all()&^half)
	}
	return sum / float64(len(halves))
}

// Table is the regrets of all policies over all scenarios.
type Table struct {
	Baselines []string `json:"baselines"`
	Policies  []string `json:"policies"` // by mean objective, best first
	LeftOut   []Left   `json:"left_out,omitempty"`
	Regrets   []Regret `json:"regrets"`
	cases     []*Case
}

// Left is a scenario that is left out.
type Left struct {
	Scenario int    `json:"scenario"`
	Why      string `json:"why"`
}

// Names of the rows for choices among the baselines.
const (
	chosenByObjective = "best on other seeds"
	chosenByE2E       = "best E2E on other seeds"
)

// Judge judges the policies of a folder. Scenarios count if all baselines have runs with the same
// seeds. With screen, baselines that [mayBeBest] rules out need the first seeds only. Such a baseline is no candidate
// for the best policy of the scenario, and the table has no row of it.
func Judge(s *Store, baselines []string, only []int, screen int) *Table {
	t := &Table{}
	in := map[string]bool{}
	var policies []string
	for _, r := range s.Runs {
		if !in[r.Policy] {
			in[r.Policy] = true
			policies = append(policies, r.Policy)
		}
	}
	t.Baselines = slices.DeleteFunc(slices.Clone(baselines), func(p string) bool { return !in[p] })
	for _, n := range s.Scenarios {
		if len(only) > 0 && !slices.Contains(only, n.Index) {
			continue
		}
		c, why := newCase(n, s.Runs, t.Baselines, screen)
		if why != "" {
			t.LeftOut = append(t.LeftOut, Left{n.Index, why})
			continue
		}
		t.cases = append(t.cases, c)
		for _, p := range policies {
			if r, ok := c.regret(p, t.Baselines); ok {
				t.Regrets = append(t.Regrets, r)
			}
		}
		t.Regrets = append(t.Regrets, c.chosen(chosenByObjective, t.Baselines, (*figures).objective),
			c.chosen(chosenByE2E, t.Baselines, func(f *figures, seeds uint) float64 { return f.mean(e2e, seeds) }))
	}
	if screen > 0 {
		policies = slices.DeleteFunc(policies, func(p string) bool {
			return slices.ContainsFunc(t.cases, func(c *Case) bool { return c.policies[p] == nil })
		})
	}
	t.Policies = append(policies, chosenByObjective, chosenByE2E)
	slices.SortStableFunc(t.Policies, func(a, b string) int {
		return compareFloats(meanOf(t.of(a), objectiveOf), meanOf(t.of(b), objectiveOf))
	})
	return t
}

func objectiveOf(r Regret) float64 { return r.Objective }

// compareFloats compares numbers for sorting. NaN comes last.
func compareFloats(a, b float64) int {
	switch {
	case a < b || math.IsNaN(b) && !math.IsNaN(a):
		return -1
	case a > b || math.IsNaN(a) && !math.IsNaN(b):
		return 1
	}
	return 0
}

// of returns the regrets of a policy.
func (t *Table) of(policy string) (rs []Regret) {
	for _, r := range t.Regrets {
		if r.Policy == policy {
			rs = append(rs, r)
		}
	}
	return rs
}

func meanOf(rs []Regret, value func(Regret) float64) float64 {
	sum := 0.0
	for _, r := range rs {
		sum += value(r)
	}
	return sum / float64(len(rs))
}

// within is how much worse than the best a policy may be in a metric, on the seeds of a screening, to be run further.
const within = 0.25

// mayBeBest says whether a policy is in some metric within reach of the best policy of a scenario, on the first seeds.
// The policies of package planroute always are: it is they that the others are compared with.
func mayBeBest(runs []Run, scenario int, policy string, screen int) bool {
	if strings.HasPrefix(policy, "plan-and-route") || strings.HasPrefix(policy, "route-only") {
		return true
	}
	sums, completed := map[string]*[numMetrics]float64{}, map[string]float64{}
	for _, r := range runs {
		if r.Index != scenario || r.Seed > uint64(screen) {
			continue
		}
		if sums[r.Policy] == nil {
			sums[r.Policy] = &[numMetrics]float64{}
		}
		for m, x := range r.metrics() {
			sums[r.Policy][m] += x
		}
		completed[r.Policy] += r.Completed
	}
	most := 0.0
	for _, n := range completed {
		most = max(most, n)
	}
	own := sums[policy]
	if own == nil || completed[policy] < fewest*most {
		return own == nil
	}
	for m, x := range own {
		best := x
		for p, of := range sums {
			if completed[p] >= fewest*most {
				best = min(best, of[m])
			}
		}
		if x <= (1+within)*best {
			return true
		}
	}
	return false
}

// newCase collects the runs of a scenario. why is the reason if runs are missing. With screen, see [Judge].
func newCase(n Numbered, runs []Run, baselines []string, screen int) (c *Case, why string) {
	by := map[string]map[uint64]Run{}
	for _, r := range runs {
		if r.Index != n.Index {
			continue
		}
		if by[r.Policy] == nil {
			by[r.Policy] = map[uint64]Run{}
		}
		by[r.Policy][r.Seed] = r
	}
	if len(baselines) == 0 {
		return nil, "no runs of a baseline"
	}
	for _, r := range runs {
		if r.Index == n.Index && r.Error != "" && r.Error != noSuccess && slices.Contains(baselines, r.Policy) {
			return nil, r.Policy + " " + r.Error
		}
	}
	c = &Case{Numbered: n, policies: map[string]*figures{}, failed: map[string]bool{}, sustained: map[string]float64{}}
	for _, p := range baselines {
		if c.seeds = max(c.seeds, len(by[p])); len(by[p]) == 0 {
			return nil, "no runs of " + p
		}
	}
	measured := true
	for _, of := range by {
		for _, r := range of {
			measured = measured && r.Sustained > 0
		}
	}
	most := make([]float64, c.seeds)
	for _, of := range by {
		for i := range most {
			most[i] = max(most[i], of[uint64(i+1)].Completed)
		}
	}
	for p, of := range by {
		var f figures
		complete, failed := true, false
		for i := range c.seeds {
			r, ok := of[uint64(i+1)]
			if complete = complete && ok; !ok {
				continue
			}
			failed = failed || r.Error != "" || r.Completed < fewest*most[i]
			for m, x := range r.metrics() {
				f[m] = append(f[m], x)
			}
		}
		switch {
		case complete:
			c.policies[p], c.failed[p] = &f, failed
			if n.Load > overload {
				for _, r := range of {
					rate := r.Throughput
					if measured {
						rate = r.Sustained
					}
					c.sustained[p] += rate / float64(c.seeds)
				}
			}
		case slices.Contains(baselines, p) && (screen == 0 || mayBeBest(runs, n.Index, p, screen)):
			return nil, "not all seeds of " + p
		}
	}
	return c, ""
}
