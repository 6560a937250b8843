package validate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Ran is how a run was simulated, as far as intervals have to know it.
type Ran struct {
	profile.ValidatedRun
	Base    *profile.Profile // without the settings of the run
	Alike   string           // the runs that are of one kind, and may err together
	Waiting float64          // sim.Waiting
	// draws are the simulations that the prediction is the mean of, each with its
	// own share of waiting; nil: it is of one.
	draws []Values
}

// loads are the classes of load that intervals tell apart, by Ran.Waiting: workers
// keep up, are near saturation, are saturated.
var loads = [][2]float64{{0, 0.05}, {0.05, 0.9}, {0.9, 1}}

// residual is the logarithm of measured over predicted of a metric of a run: over
// what one simulation predicts, since that is what has an interval. Where there
// were several, the residual of each has its share of the run's weight, 1.
type residual struct {
	metric      result.Metric
	load        int // index into loads
	log, weight float64
	alike       string
}

// resultMetrics are the metrics that have intervals.
var resultMetrics = map[Metric]result.Metric{Duration: result.Duration, MeanE2E: result.MeanE2E, MedianE2E: result.MedianE2E, P99E2E: result.P99E2E}

// IntervalReport is what runs that nothing was fitted to say of the predictions of
// profiles, and how far that holds for runs of other kinds.
type IntervalReport struct {
	Schema   string             `json:"schema"`
	Profiles []ProfileIntervals `json:"profiles"`
}

// ProfileIntervals are the intervals of a profile.
type ProfileIntervals struct {
	Profile   string             `json:"profile"`
	Intervals *profile.Intervals `json:"intervals"`
	Coverage  []Coverage         `json:"coverage"`
}

// Coverage is how often intervals from all other kinds of runs hold what was
// measured.
type Coverage struct {
	Metric  string     `json:"metric"`
	Waiting [2]float64 `json:"waiting"`
	Half    Covered    `json:"half"`
	Most    Covered    `json:"most"`
}

// Covered is the share of the runs with an interval that it holds. Width is the
// median of high minus low, over the prediction.
type Covered struct {
	Runs   float64 `json:"runs"`
	Share  float64 `json:"share"`
	Width  float64 `json:"width"`
	widths []float64
}

// add holds residuals against an interval, where there is one.
func (c *Covered) add(rs []residual, in *[2]float64) {
	for _, r := range rs {
		if in == nil {
			break
		}
		c.Runs += r.weight
		if x := math.Exp(r.log); in[0] <= x && x <= in[1] {
			c.Share += r.weight
		}
		c.widths = append(c.widths, in[1]-in[0])
	}
}

// done turns the sums into shares.
func (c *Covered) done() {
	if slices.Sort(c.widths); c.Runs > 0 {
		c.Share, c.Width = c.Share/c.Runs, Quantile(c.widths, 0.5)
	}
}

// cells are the share, of how many runs, and the width.
func (c *Covered) cells() []string {
	if c.Runs == 0 {
		return []string{"-", "-"}
	}
	return []string{fmt.Sprintf("%s of %.0f", format.Percent(c.Share, 0), c.Runs), format.Percent(c.Width, 1)}
}

// Intervals derives intervals from runs; keys are the metrics that have them, by
// their names in results.
func Intervals[Row any, P compared[Row]](rows []Row, keys map[Metric]result.Metric) *IntervalReport {
	var known []*Comparison
	for i := range rows {
		if c := P(&rows[i]).comparison(); c.Predicted != nil && c.Ran.Base != nil {
			known = append(known, c)
		}
	}
	out := &IntervalReport{Schema: "lorasim.intervals/1"}
	names, byName := GroupBy(known, func(c **Comparison) string { return (*c).Ran.Base.Name })
	for _, name := range names {
		var ran []profile.ValidatedRun
		var rs []residual
		for _, c := range byName[name] {
			ran = append(ran, c.Ran.ValidatedRun)
			rs = append(rs, c.residuals(keys)...)
		}
		p := ProfileIntervals{Profile: name, Intervals: profile.NewIntervals(byName[name][0].Ran.Base, ran)}
		classes, of := byClass(rs)
		for _, c := range classes {
			p.Intervals.Bands = append(p.Intervals.Bands, band(c, of[c]))
			p.Coverage = append(p.Coverage, coverage(c, of[c]))
		}
		out.Profiles = append(out.Profiles, p)
	}
	return out
}

// Intervals derives the intervals of the runs of a report.
func (r *Report) Intervals() *IntervalReport {
	return Intervals(Unfitted(r.Runs, func(r *Row) string { return r.Use }), resultMetrics)
}

// One are the intervals of a report on one profile; nil: no run was predicted.
func (r *IntervalReport) One() *profile.Intervals {
	if len(r.Profiles) == 0 {
		return nil
	}
	return r.Profiles[0].Intervals
}

// Unfitted are the runs that are not of use calibration.
func Unfitted[Row any](rows []Row, use func(*Row) string) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return use(&r) == Calibration })
}

func (c *Comparison) residuals(keys map[Metric]result.Metric) (rs []residual) {
	draws := c.Ran.draws
	if draws == nil {
		single := maps.Clone(c.Predicted)
		single[waits] = c.Ran.Waiting
		draws = []Values{single}
	}
	for _, d := range draws {
		load := 0
		for load < len(loads)-1 && d[waits] >= loads[load][1] {
			load++
		}
		for m, key := range keys {
			if a, b := c.Measured[m], d[m]; a > 0 && b > 0 {
				rs = append(rs, residual{key, load, math.Log(a / b), 1 / float64(len(draws)), c.Ran.Alike})
			}
		}
	}
	return rs
}

// class is what a band is of.
type class struct {
	metric result.Metric
	load   int
}

// byClass sorts residuals into classes, by metric and load, of a run or more.
func byClass(rs []residual) ([]class, map[class][]residual) {
	classes, of := GroupBy(rs, func(r *residual) class { return class{r.metric, r.load} })
	classes = slices.DeleteFunc(classes, func(c class) bool { return weight(of[c]) < 1 })
	slices.SortFunc(classes, func(a, b class) int { return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.load, b.load)) })
	return classes, of
}

func band(c class, rs []residual) profile.Band {
	b := profile.Band{Metric: c.metric.String(), Waiting: loads[c.load], Runs: int(weight(rs) + 1e-6), Most: conformal(rs, 0.9)}
	if b.Runs >= 3 { // at which a range of half of the runs need not lie to both sides of the prediction
		b.Half = conformal(rs, 0.5)
	}
	return b
}

func weight(rs []residual) (sum float64) {
	for _, r := range rs {
		sum += r.weight
	}
	return sum
}

// conformal is the range, as factors, in which one more residual like the given
// ones lies with at least the given probability: a split-conformal interval (V. Vovk
// et al., Algorithmic Learning in a Random World, 2005), with a run of several
// draws counting once (R. Dunn et al., JASA 118, 2023). The one to come counts as
// beyond all of these. Where that leaves no room for its half at either end, the
// range is as wide to both sides of the prediction, for which about half as many
// runs do; nil: there are too few for that, too.
func conformal(rs []residual, probability float64) *[2]float64 {
	high, ok := quantile(rs, (1+probability)/2, func(x float64) float64 { return x })
	low, okLow := quantile(rs, (1+probability)/2, func(x float64) float64 { return -x })
	if !ok || !okLow {
		if high, ok = quantile(rs, probability, math.Abs); !ok {
			return nil
		}
		low = high
	}
	const digits = 1e4
	return &[2]float64{math.Floor(digits*math.Exp(-low)) / digits, math.Ceil(digits*math.Exp(high)) / digits}
}

// quantile is the least value of f up to which lies a share of the weight of the
// residuals and one more, infinite; false: it is that one.
func quantile(rs []residual, share float64, f func(float64) float64) (float64, bool) {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b residual) int { return cmp.Compare(f(a.log), f(b.log)) })
	sum, need := 0.0, share*(weight(rs)+1)-1e-6
	for _, r := range rs {
		if sum += r.weight; sum >= need {
			return f(r.log), true
		}
	}
	return 0, false
}

// coverage holds every kind of runs of a class against the interval of the others.
func coverage(c class, rs []residual) Coverage {
	v := Coverage{Metric: c.metric.String(), Waiting: loads[c.load]}
	kinds, alike := GroupBy(rs, func(r *residual) string { return r.alike })
	for _, kind := range kinds {
		b := band(c, slices.DeleteFunc(slices.Clone(rs), func(r residual) bool { return r.alike == kind }))
		v.Half.add(alike[kind], b.Half)
		v.Most.add(alike[kind], b.Most)
	}
	v.Half.done()
	v.Most.done()
	return v
}

// WriteText prints, for every profile, the intervals and how often those of other
// kinds of runs hold.
func (r *IntervalReport) WriteText(w io.Writer) error {
	var rows [][]string
	for _, p := range r.Profiles {
		rows = append(rows, []string{"PROFILE " + p.Profile}, []string{"METRIC", "WAITING", "RUNS", "HALF OF RUNS", "9 IN 10 RUNS",
			"HALF HELD OUT", "WIDTH", "9 IN 10 HELD OUT", "WIDTH"})
		for i, b := range p.Intervals.Bands {
			c := &p.Coverage[i]
			rows = append(rows, slices.Concat([]string{b.Metric, format.Percent(b.Waiting[0], 0) + " to " + format.Percent(b.Waiting[1], 0), strconv.Itoa(b.Runs),
				factors(b.Half), factors(b.Most)}, c.Half.cells(), c.Most.cells()))
		}
		rows = append(rows, nil)
	}
	return format.Table(w, rows[:max(len(rows)-1, 0)])
}

func factors(r *[2]float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%+.1f to %+.1f %%", 100*(r[0]-1), 100*(r[1]-1))
}
