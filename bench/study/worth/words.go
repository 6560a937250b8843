package worth

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// String returns the answer in words, one line per part.
func (a *Answer) String() string {
	lines := append([]string{a.headline()}, a.caveats()...)
	lines = append(lines, a.reasons()...)
	if a.Fixed {
		lines = append(lines, "Every seed gives the same run, so the answer holds for this workload only.")
	}
	for _, m := range a.opt.Metrics {
		if o := a.ahead(m); o != nil {
			lines = append(lines,
				fmt.Sprintf("By %s, however, %s is better: %s.", short(m), o.Name,
					o.Diff.Versus(a.mean(a.Chosen(), m))))
		}
	}
	return strings.Join(lines, "\n")
}

// headroom states how much perfect knowledge could gain; "": unknown.
func (a *Answer) headroom() string {
	left := a.mean(a.Chosen(), "oracle.mean_e2e_regret")
	if !(left > 0) {
		return ""
	}
	return fmt.Sprintf("Headroom: with perfect knowledge mean E2E could be at most %.0f %% lower.\n\n",
		100*left/(1+left))
}

// caveats say that the effects hold for runs of their length only, where the planner's
// runs are not steady.
func (a *Answer) caveats() (lines []string) {
	worst, text := a.state()
	switch worst {
	case steady.Overloaded:
		lines = append(lines, "Overloaded: "+text+
			". Latencies grow with the length of the run: the effects hold for runs of this length only.")
	case steady.Transient:
		lines = append(lines,
			"Transient: "+text+". The runs are too short to extrapolate: longer ones may show other effects.")
	}
	return lines
}

// unsteady words the state of a policy whose runs did not reach a steady state; "": they
// did, or that is unknown.
func (a *Answer) unsteady(policy string) string {
	if a.Tables == nil {
		return ""
	}
	if p := (tableRuns{a.Tables}).point(policy); !p.Judge() {
		return p.Stationarity.String()
	}
	return ""
}

// state is the worst state of the planner's variants, and words the first one in it.
func (a *Answer) state() (worst steady.State, text string) {
	if a.Tables == nil {
		return "", ""
	}
	rank := []steady.State{"", steady.Steady, steady.Transient, steady.Overloaded}
	for _, p := range a.Tables.Points {
		planner := p.Policy == Alone || strings.HasPrefix(p.Policy, Planner+":")
		if planner && slices.Index(rank, p.State) > slices.Index(rank, worst) {
			worst, text = p.State, p.Policy+" is "+p.Stationarity.String()
		}
	}
	return worst, text
}

// verbs are the factors as things to do.
var verbs = map[Factor]string{Waiting: "move waiting requests", Running: "move running requests",
	Placing: "place adapters",
	Plans:   "make plans, which place adapters and move running requests"}

// headline states the recommendation.
func (a *Answer) headline() string {
	if a.opt.sampling == stats.OneWorkload {
		return "No recommendation: one workload has no intervals, so no effect can be significant (see --resample)."
	}
	var yes, no []string
	full := a.opt.full()
	for _, f := range []Factor{Waiting, Plans, Placing, Running} {
		switch {
		case f == Plans && !slices.Contains(a.Pays, Plans) ||
			f != Waiting && f != Plans && slices.Contains(a.Pays, Plans):
		case f == Waiting && !full.waiting || f == Running && !full.running: // the scenario rules it out
		case slices.Contains(a.Pays, f):
			yes = append(yes, verbs[f])
		case f == Waiting && a.chosen().waiting: // plans were measured with it
		default:
			no = append(no, verbs[f])
		}
	}
	do := list(yes, "and")
	if p := a.chosen(); p.running || p.places {
		do += fmt.Sprintf(" (plans every %s s)", a.Interval)
	}
	if len(yes) > 0 && len(no) > 0 {
		do += "; "
	}
	if len(no) > 0 {
		do += "do not " + list(no, "or")
	}
	return strings.ToUpper(do[:1]) + do[1:] + ": --policy " + a.Chosen()
}

// list joins words: a, b and c.
func list(words []string, last string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " " + last + " " + words[n-1]
	}
	return strings.Join(words, "")
}

// reasons describes the effect of each factor.
func (a *Answer) reasons() (lines []string) {
	if e := a.routing(); e != nil {
		if why := a.unsteady(e.Against); why != "" {
			lines = append(lines, fmt.Sprintf("Routing: no verdict on latencies, because %s is %s.", e.Against, why))
		} else {
			lines = append(lines, a.reason("Routing, compared with "+e.Against+",", e))
		}
	}
	if e := a.find(Waiting, ""); e != nil {
		lines = append(lines, a.reason("Moving waiting requests", e))
	}
	best, what := a.bestPlans(), "Placing adapters"
	if a.opt.full().running {
		what = "Plans (placing adapters, moving running requests)"
	}
	switch {
	case best == nil:
		return append(lines, what+": unknown, different requests completed.")
	case !slices.ContainsFunc(a.Effects, func(e Effect) bool { return a.whole(&e) && !e.idle() }):
		return append(lines, what+": no change at any interval.")
	case best.better:
		what += fmt.Sprintf(" every %s s", best.Interval)
	default:
		what += fmt.Sprintf(", best interval %s s,", best.Interval)
	}
	lines = append(lines, a.reason(what, best))
	if a.alone {
		what = fmt.Sprintf("Plans alone (without moving waiting requests) every %s s", a.Interval)
		return append(lines, a.reason(what, a.find(PlansOnly, a.Interval)))
	}
	if best.better && best.Factor == Plans {
		placing, running := a.find(Placing, a.Interval), a.find(Running, a.Interval)
		lines[len(lines)-1] += fmt.Sprintf(" Parts of it: placing adapters: %s; moving running requests: %s.",
			placing.changes(), running.changes())
	}
	return lines
}

// reason words an effect.
func (a *Answer) reason(what string, e *Effect) string {
	gain, s := fmt.Sprintf("%g %%", 100*a.opt.MinGain), "s"
	if e.Factor == Plans || e.Factor == PlansOnly {
		s = "" // of the verbs
	}
	switch {
	case len(e.Changes) == 0:
		return what + ": unknown, different requests completed."
	case e.idle():
		return what + " change" + s + " nothing."
	case e.better:
		what += " pay" + s + ": "
	case e.trades(a.opt.MinGain):
		what += " trade" + s + " one metric for another: "
	case e.worse:
		what += " cost" + s + ": "
	case e.nothing:
		what += " gain" + s + " less than " + gain + ": "
	case a.opt.sampling == stats.OneWorkload:
		what += " change" + s + ": "
	default:
		what += fmt.Sprintf(" show%s no significant gain of %s with %d seeds: ", s, gain, len(a.Dir.Seeds))
	}
	return what + e.changes() + "."
}

// changes words the changes, the certain ones first.
func (e *Effect) changes() string {
	var sure, others []string
	for _, c := range e.Changes {
		if text := short(c.Metric) + " " + c.Diff.Versus(c.Base); c.Sure {
			sure = append(sure, text)
		} else if c.Diff.N == 1 {
			others = append(others, text)
		} else {
			others = append(others, text+" (may be chance)")
		}
	}
	return strings.Join(append(sure, others...), ", ")
}

// short is the name of a metric without its unit.
func short(metric string) string {
	title, _, _ := strings.Cut(result.MetricOf(metric).Title, " (")
	return strings.Replace(title, "E2E Latency", "E2E", 1)
}

// ahead is the other policy that is the best by a metric, against the chosen one;
// nil: none is, or not for certain.
func (a *Answer) ahead(metric string) *stats.Versus {
	if a.Tables == nil {
		return nil
	}
	v := a.Dir.Verdicts(a.Tables, metric)[0]
	if v == nil || !slices.Contains(a.opt.Others, v.Best) && !slices.Contains(a.opt.Baselines, v.Best) {
		return nil
	}
	for _, o := range v.Others {
		if o.Name == a.Chosen() && o.Worse {
			d := o.Diff
			d.Mean, d.Low, d.High = -d.Mean, -d.High, -d.Low
			return &stats.Versus{Name: v.Best, Diff: d}
		}
	}
	return nil
}
