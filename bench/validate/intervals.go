package validate

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Ran is how a run was simulated, as far as intervals have to know it.
type Ran struct {
	profile.ValidatedRun
	Base    *profile.Profile // without the settings of the run
	Alike   string           // the runs that are of one kind, and may err together
	Repeat  string           // the runs that are one, repeated; "": there is no other
	Waiting float64          // sim.Waiting
	// draws are the simulations that the prediction is the mean of, each with its
	// own share of waiting; nil: it is of one.
	draws []Values
}

// loads are the classes of load that intervals tell apart, by Ran.Waiting: workers
// keep up, are near saturation, are saturated.
var loads = [][2]float64{{0, 0.05}, {0.05, 0.9}, {0.9, 1}}

// LoadNames are the names of the classes of load: workers keep up below 5 % of
// waiting, are at the edge of saturation, and are saturated from 90 %.
var LoadNames = [...]string{"keeps up", "edge", "saturated"}

// LoadOf is the class of load of a run, an index into LoadNames, by the share of
// its requests' time at the workers that they wait (sim.Waiting).
func LoadOf(waiting float64) (class int) {
	for class < len(loads)-1 && waiting >= loads[class][1] {
		class++
	}
	return class
}

// edge is the class of runs near saturation.
const edge = 1

// residual is the logarithm of measured over predicted of a metric of a run: over
// what one simulation predicts, since that is what has an interval. Where there
// were several, the residual of each has its share of the run's weight, which is 1,
// or of a run that was repeated its share of that.
type residual struct {
	metric      result.Metric
	load        int // index into loads
	log, weight float64
	alike       string
	ran         *Ran
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
	// Extrapolated says how often widened intervals of some runs hold others that
	// leave what these were like.
	Extrapolated []Extrapolated `json:"extrapolated,omitempty"`
}

// Extrapolated is how often the intervals of all other runs hold the runs of a
// policy, or with many adapters or slots: as they are, and widened. It is over the
// figures of all metrics and classes of load for which there are intervals.
type Extrapolated struct {
	HeldOut string  `json:"held_out"`
	Figures float64 `json:"figures"`
	Half    [2]Held `json:"half"` // as they are, widened
	Most    [2]Held `json:"most"`
}

// Held is the share of figures that a range holds, and its median width.
type Held struct {
	Share float64 `json:"share"`
	Width float64 `json:"width"`
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
		c.Share, c.Width = c.Share/c.Runs, stats.Quantile(c.widths, 0.5)
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
	names, byName := stats.GroupBy(known, func(c **Comparison) string { return (*c).Ran.Base.Name })
	for _, name := range names {
		var ran []profile.ValidatedRun
		var rs []residual
		_, repeats := stats.GroupBy(byName[name], func(c **Comparison) string { return (*c).Ran.Repeat })
		for _, c := range byName[name] {
			ran = append(ran, c.Ran.ValidatedRun)
			times := 1
			if c.Ran.Repeat != "" {
				times = len(repeats[c.Ran.Repeat])
			}
			rs = append(rs, c.residuals(keys, 1/float64(times))...)
		}
		p := ProfileIntervals{Profile: name, Intervals: profile.NewIntervals(byName[name][0].Ran.Base, ran)}
		p.Intervals.Bands = bands(rs)
		p.Coverage = coverage(rs, p.Intervals.Bands)
		p.Extrapolated = extrapolations(rs)
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

func (c *Comparison) residuals(keys map[Metric]result.Metric, share float64) (rs []residual) {
	draws := c.Ran.draws
	if draws == nil {
		single := maps.Clone(c.Predicted)
		single[waits] = c.Ran.Waiting
		draws = []Values{single}
	}
	for _, d := range draws {
		load := LoadOf(d[waits])
		for m, key := range keys {
			if a, b := c.Measured[m], d[m]; a > 0 && b > 0 {
				rs = append(rs, residual{key, load, math.Log(a / b), share / float64(len(draws)), c.Ran.Alike, &c.Ran})
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

func (r *residual) class() class { return class{r.metric, r.load} }

// bands are the bands of all classes that about a run or more is in, by metric and
// load. At the edge of saturation a range that would be narrower than where workers
// keep up takes in that one.
func bands(rs []residual) (out []profile.Band) {
	classes, of := stats.GroupBy(rs, (*residual).class)
	slices.SortFunc(classes, func(a, b class) int { return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.load, b.load)) })
	for _, c := range classes {
		if weight(of[c]) < 0.9 {
			continue
		}
		b := band(c, of[c])
		if n := len(out); c.load == edge && n > 0 && out[n-1].Metric == b.Metric {
			b.Half, b.Most = noNarrower(b.Half, out[n-1].Half), noNarrower(b.Most, out[n-1].Most)
		}
		out = append(out, b)
	}
	return out
}

// noNarrower is a range, or where it is narrower than another, one that holds both.
func noNarrower(r, other *[2]float64) *[2]float64 {
	if r == nil || other == nil || r[1]/r[0] >= other[1]/other[0] {
		return r
	}
	return &[2]float64{min(r[0], other[0]), max(r[1], other[1])}
}

// band is the band of a class. So many runs support a range of a level n / (n+1) at
// most; half of them need not lie to both sides of the prediction from 3 on.
func band(c class, rs []residual) profile.Band {
	n := weight(rs)
	level := min(0.9, math.Floor(100*n/(n+1))/100)
	b := profile.Band{Metric: c.metric.String(), Waiting: loads[c.load], Runs: math.Round(10*n) / 10, Most: wide(rs, level), Level: level}
	if n >= 3 {
		b.Half = wide(rs, 0.5)
	}
	return b
}

// wide is the conformal range of a probability. Runs of one kind err in a direction
// of their own: where ranges from all other kinds hold fewer of a kind, it is that
// of a higher probability, of which they do.
func wide(rs []residual, probability float64) (in *[2]float64) {
	kinds, alike := stats.GroupBy(rs, func(r *residual) string { return r.alike })
	for p := probability; p < 0.995; p += 0.02 {
		wider := conformal(rs, p)
		if wider == nil {
			break
		}
		in = wider
		var held Covered
		for _, kind := range kinds {
			held.add(alike[kind], conformal(without(rs, kind), p))
		}
		if held.Share >= probability*held.Runs {
			break
		}
	}
	return in
}

// without are the residuals of all other kinds of runs.
func without(rs []residual, kind string) []residual {
	return slices.DeleteFunc(slices.Clone(rs), func(r residual) bool { return r.alike == kind })
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
// runs do; nil: there are too few for that, too, or the range says nothing.
func conformal(rs []residual, probability float64) *[2]float64 {
	high, ok := quantile(rs, (1+probability)/2, func(x float64) float64 { return x })
	low, _ := quantile(rs, (1+probability)/2, func(x float64) float64 { return -x })
	if !ok {
		if high, ok = quantile(rs, probability, math.Abs); !ok {
			return nil
		}
		low = high
	}
	const digits = 1e4
	r := [2]float64{math.Floor(digits*math.Exp(-low)) / digits, math.Ceil(digits*math.Exp(high)) / digits}
	if r[0] == 0 || r[1] >= 1e6 {
		return nil
	}
	return &r
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

// coverage holds every kind of runs against the bands of all others.
func coverage(rs []residual, of []profile.Band) (out []Coverage) {
	for _, b := range of {
		out = append(out, Coverage{Metric: b.Metric, Waiting: b.Waiting})
	}
	kinds, alike := stats.GroupBy(rs, func(r *residual) string { return r.alike })
	for _, kind := range kinds {
		_, held := stats.GroupBy(alike[kind], func(r *residual) [2]any { return [2]any{r.metric.String(), loads[r.load]} })
		for _, b := range bands(without(rs, kind)) {
			i := slices.IndexFunc(out, func(c Coverage) bool { return c.Metric == b.Metric && c.Waiting == b.Waiting })
			out[i].Half.add(held[[2]any{b.Metric, b.Waiting}], b.Half)
			out[i].Most.add(held[[2]any{b.Metric, b.Waiting}], b.Most)
		}
	}
	for i := range out {
		out[i].Half.done()
		out[i].Most.done()
	}
	return out
}

// extrapolations hold out what a run may leave the validated ones by: each policy,
// where there are several; the runs with more than twice the adapters of the others;
// and those with up to twice the slots of the others (profile.Intervals.Compare).
func extrapolations(rs []residual) (out []Extrapolated) {
	policy := func(r *residual) string { name, _, _ := strings.Cut(r.ran.Policy, ":"); return name }
	policies, _ := stats.GroupBy(rs, policy)
	for _, p := range policies {
		if len(policies) > 1 {
			is := func(r residual) bool { return policy(&r) == p }
			out = append(out, extrapolated("policy "+p, rs, is, is))
		}
	}
	for _, size := range []struct {
		name string
		few  int // the others have at most one such part of the most
		of   func(*Ran) int
	}{
		{"adapters", 4, func(r *Ran) int { return r.Adapters }},
		{"slots", 2, func(r *Ran) int { return r.Profile.Engine.MaxLorasPerBatch }},
	} {
		most := 0
		for i := range rs {
			most = max(most, size.of(rs[i].ran))
		}
		few := func(r residual) bool { return size.few*size.of(r.ran) <= most }
		many := func(r residual) bool { return 2*size.of(r.ran) > most }
		if slices.ContainsFunc(rs, few) {
			out = append(out, extrapolated(fmt.Sprintf("%d to %d %s, from up to %d", most/2+1, most, size.name, most/size.few), rs, many, func(r residual) bool { return !few(r) }))
		}
	}
	return out
}

// extrapolated holds the runs that test selects against the intervals of those that
// are not to be left out.
func extrapolated(what string, rs []residual, test, leave func(residual) bool) Extrapolated {
	in := profile.Intervals{Bands: bands(slices.DeleteFunc(slices.Clone(rs), leave))}
	var half, most [2]Covered
	for _, r := range rs {
		if !test(r) {
			continue
		}
		for _, b := range in.Bands {
			if b.Metric != r.metric.String() || b.Waiting != loads[r.load] {
				continue
			}
			for i, b := range []profile.Band{b, b.Widened()} {
				half[i].add([]residual{r}, b.Half)
				most[i].add([]residual{r}, b.Most)
			}
		}
	}
	out := Extrapolated{HeldOut: what, Figures: most[0].Runs}
	for i := range half {
		half[i].done()
		most[i].done()
		out.Half[i], out.Most[i] = Held{half[i].Share, half[i].Width}, Held{most[i].Share, most[i].Width}
	}
	return out
}

// WriteText prints, for every profile, the intervals and how often those of other
// kinds of runs hold.
func (r *IntervalReport) WriteText(w io.Writer) error {
	var rows [][]string
	for _, p := range r.Profiles {
		rows = append(rows, []string{"PROFILE " + p.Profile}, []string{"METRIC", "WAITING", "RUNS", "HALF OF RUNS", "MOST RUNS", "OF",
			"HALF HELD OUT", "WIDTH", "MOST HELD OUT", "WIDTH"})
		for i, b := range p.Intervals.Bands {
			c := &p.Coverage[i]
			rows = append(rows, slices.Concat([]string{b.Metric, format.Percent(b.Waiting[0], 0) + " to " + format.Percent(b.Waiting[1], 0), strconv.FormatFloat(b.Runs, 'f', -1, 64),
				factors(b.Half), factors(b.Most), format.Percent(b.Level, 0)}, c.Half.cells(), c.Most.cells()))
		}
		if rows = append(rows, nil); len(p.Extrapolated) > 0 {
			rows = append(rows, []string{"HELD OUT", "FIGURES", "HALF", "WIDTH", "WIDENED", "WIDTH", "MOST", "WIDTH", "WIDENED", "WIDTH"})
			for _, x := range p.Extrapolated {
				row := []string{x.HeldOut, fmt.Sprintf("%.0f", x.Figures)}
				for _, h := range slices.Concat(x.Half[:], x.Most[:]) {
					row = append(row, format.Percent(h.Share, 0), format.Percent(h.Width, 0))
				}
				rows = append(rows, row)
			}
			rows = append(rows, nil)
		}
	}
	return format.Table(w, rows[:max(len(rows)-1, 0)])
}

func factors(r *[2]float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%+.1f to %+.1f %%", 100*(r[0]-1), 100*(r[1]-1))
}
