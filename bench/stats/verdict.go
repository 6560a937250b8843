package stats

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/internal/format"
)

// A Verdict names the best of several candidates by a metric, and compares the others with
// it. All candidates ran with the same seeds. The same values select the best, so all pairs
// are tested, by paired t-tests with Holm's correction. The probability of any wrong "worse"
// is then at most Level.
type Verdict struct {
	Metric string    // name of the metric
	Better Direction // whether higher or lower is better
	Best   string    // candidate with the best mean; "": none
	Mean   float64   // mean of Best
	Seeds  int       // number of seeds that all compared candidates have
	Of     Sampling  // what the seeds draw
	Others []Versus  // the other candidates, the nearest first
	Apart  []string  // candidates that cannot be compared with the others
	// Unsteady lists the candidates without a verdict because they did not reach a steady
	// state, such as "static is overloaded (sustains 12.1 of 16 requests/s)".
	Unsteady []string
	Left     string // the only candidate that can be compared, if there is no Best
}

// A Versus compares another candidate with the best.
type Versus struct {
	Name  string
	Diff  Estimate // its values minus those of the best, paired by seed
	P     float64  // corrected p-value of the paired t-test; NaN: no interval
	Worse bool     // P is below Level
}

// A Candidate is one of the alternatives that a verdict compares, such as a routing policy.
type Candidate struct {
	Name   string
	Values []float64 // values of the metric, by seed; NaN: unknown
	// Apart reports whether the candidate did other work, such as other requests, so its values
	// cannot be compared.
	Apart bool
	// Unsteady is the reason why its values depend on the length of its runs, such as
	// "overloaded"; "" if they do not.
	Unsteady string
}

// Judge compares candidates by a metric, for seeds with sampling of. It returns nil if
// better is Neither, or if fewer than two candidates can be compared and none is unsteady. If
// fewer than two can be compared and some are unsteady, the verdict has no Best.
func Judge(metric string, better Direction, of Sampling, cs []Candidate) *Verdict {
	v := JudgeBy(metric, better, cs, func(i int) Estimate { return MeanOf(of, cs[i].Values) },
		func(i, j int) Estimate { return PairedOf(of, cs[i].Values, cs[j].Values) })
	if v != nil {
		v.Of = of
	}
	return v
}

// JudgeBy is like Judge, with functions for the mean of candidate i and the difference of
// candidates i and j. A mean with N = 0 is unknown. It ignores the candidates' Values.
func JudgeBy(
	metric string, better Direction, cs []Candidate, mean func(i int) Estimate, diff func(i, j int) Estimate,
) *Verdict {
	v := &Verdict{Metric: metric, Better: better}
	var among []int
	for i, c := range cs {
		switch {
		case mean(i).N == 0:
		case c.Unsteady != "":
			v.Unsteady = append(v.Unsteady, c.Name+" is "+c.Unsteady)
		case c.Apart:
			v.Apart = append(v.Apart, c.Name)
		default:
			among = append(among, i)
		}
	}
	switch {
	case better == Neither || len(among) < 2 && v.Unsteady == nil:
		return nil
	case len(among) < 2:
		for _, i := range among {
			v.Left = cs[i].Name
		}
		v.Mean = math.NaN()
		return v
	}
	slices.SortStableFunc(among, func(a, b int) int { return int(better) * cmp.Compare(mean(a).Mean, mean(b).Mean) })
	var ps []float64 // of all pairs, those with the best first
	for k, a := range among {
		for _, b := range among[k+1:] {
			ps = append(ps, diff(a, b).P())
		}
	}
	ps = Holm(ps)
	best := among[0]
	v.Best, v.Mean, v.Seeds = cs[best].Name, mean(best).Mean, math.MaxInt
	for k, i := range among[1:] {
		d := diff(i, best)
		v.Seeds, v.Of = min(v.Seeds, d.N), d.Of
		v.Others = append(v.Others, Versus{cs[i].Name, d, ps[k], ps[k] < Level})
	}
	return v
}

// String returns the verdict in one line.
func (v *Verdict) String() string {
	if v.Best == "" {
		return v.none()
	}
	end := "lowest"
	if v.Better == Higher {
		end = "highest"
	}
	var alike, worse []string
	for _, o := range v.Others {
		text := o.Name + " " + o.Diff.Versus(v.Mean)
		if o.Worse {
			worse = append(worse, text)
		} else {
			alike = append(alike, text)
		}
	}
	text := v.Best + " is the best"
	switch {
	case v.Seeds < 2 && v.Of != WithinRuns:
		text = fmt.Sprintf("%s has the %s value; one run each cannot show whether that is chance: %s",
			v.Best, end, strings.Join(alike, ", "))
	case v.Of == OneWorkload:
		text = fmt.Sprintf(
			"%s has the %s mean for this workload; other workloads may differ (see --resample): %s", v.Best,
			end, strings.Join(alike, ", "))
	case len(alike) > 0:
		text = fmt.Sprintf("%s has the %s mean; not significantly different: %s",
			v.Best, end, strings.Join(alike, ", "))
	}
	if len(worse) > 0 {
		text += "; worse: " + strings.Join(worse, ", ")
	}
	if v.Of == WithinRuns {
		text += " (one run each, by batch means)"
	}
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	if len(v.Unsteady) > 0 {
		text += "; no verdict: " + strings.Join(v.Unsteady, ", ")
	}
	return text
}

// none returns the text of a verdict without a Best.
func (v *Verdict) none() string {
	text := "no verdict: " + strings.Join(v.Unsteady, ", ")
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	if v.Left != "" {
		text += "; only " + v.Left + " can be judged"
	}
	return text
}

// VerdictNote explains verdicts, for reports.
const VerdictNote = "worse: paired t-tests of all pairs, Holm's correction, 5 % level; intervals of 95 %"

// JSON returns a value that encoding/json writes as the verdict's JSON form.
func (v *Verdict) JSON() any {
	others := []any{}
	for _, o := range v.Others {
		others = append(others,
			format.Object{"name", o.Name, "diff_mean", o.Diff.Mean, "diff_ci95_low", o.Diff.Low,
				"diff_ci95_high", o.Diff.High,
				"p_holm", o.P, "worse", o.Worse})
	}
	return format.Object{"metric", v.Metric, "best,omitempty", v.Best, "mean,omitempty", v.Mean, "seeds", v.Seeds,
		"others", others,
		"sampling,omitempty", string(v.Of), "not_comparable,omitempty", v.Apart, "not_steady,omitempty", v.Unsteady,
		"text", v.String()}
}
