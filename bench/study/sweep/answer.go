package sweep

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// mostNamed is the largest number of policies or values that a line of the answer names.
const mostNamed = 3

// Answer states the outcome of a sweep in a few lines: the best policy, the effect of each axis, and how many points
// have no verdict.
func (d *Dir) Answer(t *Tables, metric string, effects []AxisEffect) (lines []string) {
	if line := d.bestPolicy(t, metric); line != "" {
		lines = append(lines, line)
	}
	for _, own := range byAxis(effects) {
		line := "Effect of " + own[0].Axis.Leaf()
		if own[0].metric != metric {
			line += " on " + result.MetricOf(own[0].metric).Title
		}
		lines = append(lines, line+": "+d.axisAnswer(own))
	}
	count := map[steady.State]int{}
	for _, p := range t.Points {
		count[p.State]++
	}
	if n := count[steady.Transient] + count[steady.Overloaded]; n > 0 && result.MetricOf(metric).NeedsSteady {
		lines = append(lines, fmt.Sprintf("No verdict for %d of %d points: %d overloaded, %d too short", n,
			len(t.Points), count[steady.Overloaded], count[steady.Transient]))
	}
	if line := t.tooShort(metric); line != "" {
		lines = append(lines, line)
	}
	return lines
}

// tooShort says at how many points the runs are too short for the intervals of a metric; "": at none.
func (t *Tables) tooShort(metric string) string {
	points, needed := 0, int64(0)
	for i := range t.Points {
		if s, short := t.Points[i].Short(metric); short && t.Points[i].Sampling == stats.Fresh {
			points, needed = points+1, max(needed, s.Needed)
		}
	}
	if points == 0 {
		return ""
	}
	return fmt.Sprintf("Too short at %d of %d points for intervals of %s: needs about %d requests", points,
		len(t.Points), result.MetricOf(metric).Title, needed)
}

// bestPolicy names the best policy of a sweep, or how often each is the best; "": there is one policy.
func (d *Dir) bestPolicy(t *Tables, metric string) string {
	if len(d.Policies) < 2 {
		return ""
	}
	verdicts := d.Verdicts(t, metric)
	title := result.MetricOf(metric).Title
	if len(verdicts) == 1 {
		return policyAnswer(verdicts[0], title)
	}
	var best, clear tally
	none := 0
	for _, v := range verdicts {
		if v == nil || v.Best == "" {
			none++
			continue
		}
		best.add(v.Best)
		if !slices.ContainsFunc(v.Others, func(o stats.Versus) bool { return !o.Worse }) {
			clear.add(v.Best)
		}
	}
	if len(best) == 0 {
		return fmt.Sprintf("Best policy by %s: no verdict at any of %d settings", title, len(verdicts))
	}
	text := fmt.Sprintf("Best policy by %s: %s of %d settings", title, best.text(), len(verdicts))
	if sum := clear.sum(); sum > 0 {
		text += fmt.Sprintf("; significantly better than all others in %d", sum)
	}
	return text
}

// policyAnswer is a verdict on policies in one line.
func policyAnswer(v *stats.Verdict, title string) string {
	if v == nil || v.Best == "" {
		return "Best policy by " + title + ": no verdict"
	}
	var alike, worse []string
	for _, o := range v.Others {
		if text := o.Name + " " + o.Diff.Versus(v.Mean); o.Worse {
			worse = append(worse, text)
		} else {
			alike = append(alike, text)
		}
	}
	text := fmt.Sprintf("Best policy by %s: %s (%s)", title, v.Best, stats.Number(v.Mean))
	if len(worse) > 0 {
		text += "; worse: " + some(worse)
	}
	if len(alike) > 0 {
		text += "; not significantly different: " + some(alike)
	}
	return text
}

// axisAnswer is the effect of an axis on all policies.
func (d *Dir) axisAnswer(list []AxisEffect) string {
	var policies []string
	by := map[string]tally{}
	for _, e := range list {
		if !slices.Contains(policies, e.Policy) {
			policies = append(policies, e.Policy)
		}
		of, what := by[e.Policy], "no verdict"
		switch {
		case len(list) == len(d.Policies):
			what = e.summary()
		case e.None != "":
			what = "no effect"
		case e.significant():
			what = "best at " + e.Verdict.Best
		case e.best() >= 0:
			what = "no significant effect"
		}
		of.add(what)
		by[e.Policy] = of
	}
	var parts []string
	for _, p := range policies {
		of := by[p]
		what := of.text()
		if len(list) == len(d.Policies) {
			what = of[0].what
		} else if len(of) > 0 {
			what += fmt.Sprintf(" of %d settings", of.sum())
		}
		parts = append(parts, p+": "+what)
	}
	return strings.Join(parts, "; ")
}

// tally counts words, in the order in which they came.
type tally []struct {
	what string
	n    int
}

func (t *tally) add(what string) {
	for i := range *t {
		if (*t)[i].what == what {
			(*t)[i].n++
			return
		}
	}
	*t = append(*t, struct {
		what string
		n    int
	}{what, 1})
}

func (t tally) sum() (n int) {
	for _, w := range t {
		n += w.n
	}
	return n
}

// text lists the words with their counts, the most frequent first.
func (t tally) text() string {
	own := slices.Clone(t)
	slices.SortStableFunc(own, func(a, b struct {
		what string
		n    int
	}) int {
		return b.n - a.n
	})
	var parts []string
	for _, w := range own {
		parts = append(parts, fmt.Sprintf("%s in %d", w.what, w.n))
	}
	return some(parts)
}

// some lists the first texts, and how many more there are.
func some(list []string) string {
	if n := len(list); n > mostNamed+1 {
		return strings.Join(list[:mostNamed], ", ") + fmt.Sprintf(" and %d more", n-mostNamed)
	}
	return strings.Join(list, ", ")
}

// Needed returns the number of requests that all transient points need, and the largest number of requests of their
// runs; 0: no point is transient.
func (t *Tables) Needed() (needed, own int64) {
	for i := range t.Points {
		if p := &t.Points[i]; p.State == steady.Transient {
			needed = max(needed, p.Needed)
			if m, ok := p.Metric("requests"); ok {
				own = max(own, int64(m.Mean))
			}
		}
	}
	return needed, own
}

// MoreSeeds returns the number of seeds with which differences of gain, as a share, would be significant: those between
// policies and, of effects, between values. The half width of an interval falls with the root of the number of seeds.
// 0: all are, or more seeds do not help.
func (d *Dir) MoreSeeds(t *Tables, metric string, effects []AxisEffect, gain float64) int {
	need, n := 0.0, float64(len(d.Seeds))
	look := func(v *stats.Verdict) {
		if v == nil || v.Best == "" || v.Of == stats.OneWorkload || v.Of == stats.Resampled {
			return
		}
		for _, o := range v.Others {
			if o.Worse || !o.Diff.HasInterval() || !(v.Mean > 0) {
				continue
			}
			// the difference is either below gain or significant once the interval is this narrow
			target := max(gain*v.Mean, o.Diff.Mean*0.7)
			if half := o.Diff.HalfAt(0.05); half > target {
				need = max(need, n*(half/target)*(half/target))
			}
		}
	}
	for _, v := range d.Verdicts(t, metric) {
		look(v)
	}
	for _, e := range effects {
		if e.metric == metric {
			look(e.Verdict)
		}
	}
	if need <= n {
		return 0
	}
	return int(need) + 1
}
