package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// An Outcome is the answer of a gate, or of one of its limits.
type Outcome string

const (
	Passed Outcome = "not worse" // with confidence, not worse by more than the limit
	Failed Outcome = "worse"     // with confidence, worse by more than the limit
	Unsure Outcome = "not sure"  // the runs do not decide
)

// A Gate holds a run, NEW, against another one, BASE, by limits.
type Gate struct {
	Base, New *Run
	Checks    []Check
	Looks     int // number of times that the limits are judged, at most
	// Table has both runs, for those who want to read more.
	Table *Table
}

// A Check is the answer of one limit. Unknown numbers are NaN.
type Check struct {
	Limit
	Base, New float64 // means over the runs that are compared
	// Change is NEW / BASE - 1 with its confidence interval: of pairs, the geometric mean of their ratios, else the
	// ratio of the means. The intervals of all limits and looks hold together in 95 % of cases.
	Change, Low, High float64
	Runs              int  // of each side, or the smaller number
	Paired            bool // by seed
	Outcome           Outcome
	Reason            string // why there is no interval; "": there is one
	// Needed is the number of runs of each side that probably decides; 0: no number does, or it is unknown.
	Needed int

	resampled bool // the runs draw from one workload
}

// SidesError is why BASE and NEW cannot be compared: they did different things, or lack a metric.
type SidesError struct{ error }

// miss is the probability that any of a gate's intervals misses.
const miss = 0.05

// leftTolerance is the difference between shares of requests that did not complete, up to which latencies compare.
const leftTolerance = 0.005

// mostNeeded is the largest number of runs that a gate asks for.
const mostNeeded = 10_000

// NewGate judges NEW against BASE. looks is the largest number of times that the caller judges with more and more runs.
func NewGate(base, changed *Run, limits []Limit, looks int, o Options) (*Gate, error) {
	if len(limits) == 0 {
		return nil, errors.New("a gate without limits")
	}
	base.Name, changed.Name = "BASE", "NEW"
	t, err := New([]*Run{base, changed}, o)
	if err != nil {
		return nil, err
	}
	t.Verdict = nil // the gate's answer stands in its place
	g := &Gate{Base: base, New: changed, Looks: max(looks, 1), Table: t}
	if d := changed.differsFrom(base); d != "" && !changed.sameIDs(base) {
		return nil, SidesError{
			fmt.Errorf("BASE and NEW had different requests, NEW %s: give both the same workload", d),
		}
	}
	for _, l := range limits {
		apart := t.measuredApart(l.Metric)
		if apart[0] || apart[1] {
			return nil, SidesError{fmt.Errorf("%s of BASE and NEW was measured in different ways: %s", l.Metric,
				strings.Join(t.Notes, "; "))}
		}
		c, err := g.check(l, miss/float64(len(limits)*g.Looks))
		if err != nil {
			return nil, err
		}
		g.Checks = append(g.Checks, c)
	}
	return g, nil
}

// Outcome is Failed if any limit is, else Unsure if any limit is, else Passed.
func (g *Gate) Outcome() Outcome {
	for _, o := range []Outcome{Failed, Unsure} {
		if slices.ContainsFunc(g.Checks, func(c Check) bool { return c.Outcome == o }) {
			return o
		}
	}
	return Passed
}

// Needed is the number of runs of each side that probably decides all limits; 0: no number does, or it is unknown.
func (g *Gate) Needed() (n int) {
	for _, c := range g.Checks {
		if c.Outcome == Unsure {
			if c.Needed == 0 {
				return 0
			}
			n = max(n, c.Needed)
		}
	}
	return n
}

// sameIDs reports whether both runs completed all requests, and these have the same ids.
func (r *Run) sameIDs(o *Run) bool {
	return r.whole() && o.whole() && r.fingerprinted() && o.fingerprinted() && slices.Equal(r.Seeds, o.Seeds) &&
		slices.EqualFunc(r.completed, o.completed, result.Completion.SameSet)
}

// check judges one limit. Its interval misses with probability miss.
func (g *Gate) check(l Limit, miss float64) (Check, error) {
	c := Check{Limit: l, Change: math.NaN(), Low: math.NaN(), High: math.NaN(), Outcome: Unsure}
	values := func(name string) func(r *Run, i int) float64 {
		return func(r *Run, i int) float64 { return valueOf(r.numbers[i], name) }
	}
	if len(g.Base.values[l.Metric]) == 0 && len(g.New.values[l.Metric]) == 0 {
		return c, SidesError{fmt.Errorf("neither BASE nor NEW has %s", l.Metric)}
	}
	more := ""
	if !result.MetricOf(l.Metric).AllRequests && !strings.HasSuffix(l.Metric, "_throughput") {
		var compares bool
		if compares, more = g.completes(&c, miss); !compares {
			return c, nil
		}
	}
	m := g.moments(values(l.Metric), l.Metric)
	c.Base, c.New, c.Runs, c.Paired, c.resampled = m.b, m.a, m.n, m.paired, m.of == stats.Resampled
	switch {
	case len(g.New.values[l.Metric]) == 0:
		c.Outcome, c.Reason = Failed, "NEW has no value, BASE has one"
		return c, nil
	case len(g.Base.values[l.Metric]) == 0:
		c.Reason = "BASE has no value"
		return c, nil
	}
	c.Change = m.change()
	if m.why != "" {
		c.Reason, c.Needed = m.why, m.first
		return c, nil
	}
	if m.equal { // also where BASE itself is too noisy for the limit
		c.Low, c.High, c.Outcome = 0, 0, Passed
		return c, nil
	}
	t := stats.TQuantile(1-miss/2, m.freedom)
	c.Low, c.High = m.interval(t)
	x, half := m.beyond(l)
	half *= t
	dust := 1e-9 * (math.Abs(m.a) + math.Abs(m.b))
	if m.ratios {
		dust = 1e-9
	}
	switch {
	case x-half > dust:
		c.Outcome = Failed
	case x+half <= dust:
		c.Outcome = Passed
	default:
		c.Needed = m.needed(l, miss)
	}
	if more != "" && c.Outcome != Passed { // requests that BASE rejects may be the slow ones
		c.Outcome, c.Reason, c.Needed = Unsure, more, 0
	}
	return c, nil
}

// completes reports whether NEW completes the requests that BASE does, or more, so that figures of completed requests
// can show that NEW is not worse. Else the check has its outcome. more says how many more it completes; "": no more.
func (g *Gate) completes(c *Check, miss float64) (compares bool, more string) {
	m := g.moments(func(r *Run, i int) float64 { return r.completed[i].Left() }, "")
	if math.IsNaN(m.a) || math.IsNaN(m.b) || math.Abs(m.a-m.b) <= leftTolerance {
		return true, ""
	}
	share := fmt.Sprintf("%s of its requests do not complete, in BASE %s", format.Percent(m.a, 1),
		format.Percent(m.b, 1))
	if m.a < m.b {
		return true, "NEW completes more requests, so figures of completed requests do not compare " +
			"(limit goodput.share or a throughput instead): " + share
	}
	c.Base, c.New, c.Runs, c.Paired = math.NaN(), math.NaN(), m.n, m.paired
	half := stats.TQuantile(1-miss/2, m.freedom) * m.standardError(1)
	if m.why == "" && m.a-m.b-half > leftTolerance {
		c.Outcome, c.Reason = Failed, "NEW rejects or loses requests: "+share
		return false, ""
	}
	c.Reason = "NEW completes fewer requests, perhaps by chance: " + share
	if c.Needed = m.first; m.why == "" {
		c.Needed = 2 * m.n
	}
	return false, ""
}

func valueOf(values []result.Value, name string) float64 {
	for _, v := range values {
		if v.Name == name {
			return v.Value
		}
	}
	return math.NaN()
}

// moments are the means of NEW (a) and BASE (b), and the variances and covariance of these means.
type moments struct {
	a, b, vaa, vbb, vab float64
	freedom             float64
	n                   int
	paired              bool
	equal               bool // both sides have the same value for every seed
	ratios              bool // a/b is judged by the ratios of the pairs: log and logVariance are known
	log, logVariance    float64
	of                  stats.Sampling
	why                 string // why the variances are unknown; "": they are known
	first               int    // number of runs with which they are known; 0: none
}

// firstRuns is the number of runs of each side to begin with.
const firstRuns = 8

// normal are degrees of freedom for which Student's distribution is the normal one.
const normal = 1e6

// moments compares values of runs that both sides have for the same seed, else all values of both sides.
func (g *Gate) moments(value func(r *Run, i int) float64, metric string) (m moments) {
	list := func(r *Run) (xs []float64) {
		for i := range r.numbers {
			if x := value(r, i); !math.IsNaN(x) {
				xs = append(xs, x)
			}
		}
		return xs
	}
	m.of = g.New.sampling
	var a, b []float64
	if g.New.seeded() && g.Base.seeded() {
		for i, seed := range g.New.Seeds {
			k := slices.Index(g.Base.Seeds, seed)
			if k < 0 {
				continue
			}
			if x, y := value(g.New, i), value(g.Base, k); !math.IsNaN(x) && !math.IsNaN(y) {
				a, b = append(a, x), append(b, y)
			}
		}
	}
	if m.paired = len(a) > 1 || len(a) > 0 && len(g.New.numbers) == 1 && len(g.Base.numbers) == 1; !m.paired {
		a, b = list(g.New), list(g.Base)
	}
	m.a, m.b, m.n = mean(a), mean(b), min(len(a), len(b))
	m.equal = m.paired && m.n > 1 && slices.Equal(a, b)
	same := g.New.sampling == g.Base.sampling
	switch u, v := g.New.within(metric), g.Base.within(metric); {
	case m.n == 0:
		m.why = "one side has no value"
	case !same:
		m.why = "the seeds of BASE and NEW draw different things"
	case len(a) == 1 && len(b) == 1 && u.High >= u.Low && v.High >= v.Low:
		m.vaa, m.vbb = square((u.High-u.Low)/2/1.96), square((v.High-v.Low)/2/1.96)
		m.freedom, m.of = normal, stats.WithinRuns
	case m.n < 2:
		m.why, m.first = "one run of a side has no interval", firstRuns
	case m.paired:
		n := float64(m.n)
		m.vaa, m.vbb, m.vab = stat.Variance(a, nil)/n, stat.Variance(b, nil)/n, stat.Covariance(a, b, nil)/n
		m.freedom = n - 1
		if m.of == stats.Resampled { // their variance is that of one workload, and 1/n that of their mean
			m.vaa, m.vbb, m.vab = m.vaa*(n+1), m.vbb*(n+1), m.vab*(n+1)
		}
		m.byRatios(a, b)
	default: // Welch
		na, nb := float64(len(a)), float64(len(b))
		m.vaa, m.vbb = stat.Variance(a, nil)/na, stat.Variance(b, nil)/nb
		m.freedom = normal
		if sum := m.vaa + m.vbb; sum > 0 {
			m.freedom = sum * sum / (m.vaa*m.vaa/(na-1) + m.vbb*m.vbb/(nb-1))
		}
	}
	if m.of == stats.OneWorkload && m.why == "" && m.standardError(m.ratio()) > 0 {
		m.why = "one workload: the seeds only break ties (see --resample)"
	} else if m.of == stats.OneWorkload && m.why == "" && !m.equal {
		m.why = "one workload: other requests may differ (see --resample)"
	}
	return m
}

// byRatios judges pairs by the mean of the logarithms of their ratios, as benchmarks do. Latencies of loaded workers
// are skewed, so that Student's t-test of their differences needs more runs.
func (m *moments) byRatios(a, b []float64) {
	logs := make([]float64, len(a))
	for i := range a {
		if !(a[i] > 0 && b[i] > 0) {
			return
		}
		logs[i] = math.Log(a[i] / b[i])
	}
	n := float64(len(logs))
	m.ratios, m.log, m.logVariance = true, stat.Mean(logs, nil), stat.Variance(logs, nil)/n
	if m.of == stats.Resampled {
		m.logVariance *= n + 1
	}
}

func (m *moments) ratio() float64 {
	if m.b == 0 {
		return 1
	}
	return m.a / m.b
}

// seeded reports whether every run of a side has a seed of its own.
func (r *Run) seeded() bool {
	seeds := slices.Sorted(slices.Values(r.Seeds))
	return len(seeds) == len(r.numbers) && !slices.Contains(seeds, "") && len(slices.Compact(seeds)) == len(r.numbers)
}

func mean(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	return stat.Mean(xs, nil)
}

func square(x float64) float64 { return x * x }

// change is NEW / BASE - 1; NaN: BASE is 0.
func (m *moments) change() float64 {
	switch {
	case m.ratios:
		return math.Expm1(m.log)
	case m.b == 0:
		return math.NaN()
	}
	return m.a/m.b - 1
}

// beyond is how much worse NEW is than BASE at the limit, in the metric's unit or as a logarithm, with its standard
// error.
func (m *moments) beyond(l Limit) (x, standardError float64) {
	if m.ratios {
		return float64(l.better()) * (m.log - math.Log(l.ratio())), math.Sqrt(m.logVariance)
	}
	return float64(l.better()) * (m.a - l.ratio()*m.b), m.standardError(l.ratio())
}

// standardError is that of a - ratio*b.
func (m *moments) standardError(ratio float64) float64 {
	return math.Sqrt(max(0, m.vaa-2*ratio*m.vab+ratio*ratio*m.vbb))
}

// interval is that of the change: of ratios by Student's t distribution, else of a/b - 1 by Fieller's theorem (Journal
// of the Royal Statistical Society B 16, 1954): the ratios r for which a - r*b lies within t standard errors of 0. NaN:
// it has no ends.
func (m *moments) interval(t float64) (low, high float64) {
	if m.ratios {
		half := t * math.Sqrt(m.logVariance)
		return math.Expm1(m.log - half), math.Expm1(m.log + half)
	}
	p := m.b*m.b - t*t*m.vbb
	q := m.a*m.b - t*t*m.vab
	s := m.a*m.a - t*t*m.vaa
	if !(p > 0) {
		return math.NaN(), math.NaN()
	}
	root := math.Sqrt(max(0, q*q-p*s))
	low, high = (q-root)/p-1, (q+root)/p-1
	return low, high
}

// power is the probability with which the number of runs that a check asks for decides, if the means stay as they are.
const power = 0.8

// needed is the number of runs of each side that decides with probability power; 0: no number does.
func (m *moments) needed(l Limit, miss float64) int {
	x, se := m.beyond(l)
	x = math.Abs(x)
	n := float64(m.n)
	at := func(k float64) float64 { return se * math.Sqrt(n/k) } // the standard error with k runs
	switch m.of {
	case stats.WithinRuns:
		return firstRuns
	case stats.Resampled:
		at = func(k float64) float64 { return se * math.Sqrt((1+1/k)/(1+1/n)) }
	}
	z := stats.TQuantile(power, normal)
	decides := func(k int) bool {
		return (stats.TQuantile(1-miss/2, float64(k)-1)+z)*at(float64(k)) <= x
	}
	k := m.n + 1 + sort.Search(mostNeeded-m.n, func(i int) bool { return decides(m.n + 1 + i) })
	if k <= mostNeeded {
		return max(k, firstRuns) // the spread of fewer is hardly known
	}
	return 0
}
