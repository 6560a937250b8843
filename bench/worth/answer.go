package worth

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/bench/sweep"
	"lorasim/internal/format"
)

// Answer is what came out of a study.
type Answer struct {
	Dir    *sweep.Dir
	Tables *sweep.Tables
	// Effects are the tested ones (routing, waiting requests, plans and their parts)
	// and those that are only shown.
	Effects []Effect
	// Pays are the factors whose effect is a certain gain; of the plans those parts
	// that have one, or Plans where that is certain of neither part.
	Pays []Factor
	// Interval is that of the plans that pay, s, else of those that come closest; "":
	// none can be compared.
	Interval string
	// Clear: more seeds would hardly change the answer.
	Clear bool
	Fixed bool // every seed gives the same run

	opt   Options
	tests [2]int // in the families: whether each stage gains; which part of the plans
	runs  runs
}

// decide measures and judges the effects.
func (a *Answer) decide() {
	level := a.opt.level(len(a.Dir.Seeds))
	stages, split, shown := a.opt.effects()
	for i, family := range [][]Effect{stages, split, shown} {
		for k := range family {
			family[k].measure(a.runs, a.opt.Metrics, a.opt.sampling)
		}
		if i < 2 {
			a.tests[i] = judge(family, level, a.opt.MinGain)
		}
	}
	for i := range stages {
		if e := &stages[i]; e.Factor == Routing && a.unsteady(e.Against) != "" {
			e.withdraw()
		}
	}
	a.Effects = slices.Concat(stages, split, shown)
	a.Fixed = a.fixed()
	a.Clear, a.Pays = true, nil
	for _, e := range stages {
		switch e.Factor {
		case Routing:
			if e.Against == a.baseline() && e.better {
				a.Pays = append(a.Pays, Routing)
			}
		case Waiting:
			a.Clear = a.Clear && e.settled()
			if e.better {
				a.Pays = append(a.Pays, Waiting)
			}
		}
	}
	best := a.bestPlans()
	if best == nil {
		return
	}
	a.Interval = best.Interval
	if !best.better {
		for i := range stages {
			if stages[i].Interval != "" {
				a.Clear = a.Clear && stages[i].settled()
			}
		}
		return
	}
	if best.Factor == Placing {
		a.Pays = append(a.Pays, Placing)
		return
	}
	placing, running := a.find(Placing, a.Interval), a.find(Running, a.Interval)
	if !placing.better && !running.better {
		a.Pays = append(a.Pays, Plans)
	}
	if placing.better {
		a.Pays = append(a.Pays, Placing)
	}
	if running.better {
		a.Pays = append(a.Pays, Running)
	}
	a.Clear = a.Clear && (placing.better || running.better || placing.settled() && running.settled())
}

// bestPlans is the effect of plans at the best interval: of those that pay, else of
// all, the one with the lowest product of the metrics; nil: none can be compared.
func (a *Answer) bestPlans() (best *Effect) {
	for i := range a.Effects {
		e := &a.Effects[i]
		if !a.whole(e) || len(e.Changes) == 0 {
			continue
		}
		if best == nil || e.better && !best.better || e.better == best.better && e.decrease < best.decrease {
			best = e
		}
	}
	return best
}

// whole says whether an effect is that of plans as a whole.
func (a *Answer) whole(e *Effect) bool {
	return e.Factor == Plans || e.Factor == Placing && !a.opt.full().running
}

// find is an effect by its factor and interval, nil: there is none.
func (a *Answer) find(f Factor, interval string) *Effect {
	i := slices.IndexFunc(a.Effects, func(e Effect) bool { return e.Factor == f && e.Interval == interval })
	if i < 0 {
		return nil
	}
	return &a.Effects[i]
}

// baseline is the plain policy that is the best by the first metric; "": none.
func (a *Answer) baseline() string {
	if len(a.opt.Baselines) == 0 {
		return ""
	}
	sign := float64(result.Better(a.opt.Metrics[0]))
	return slices.MinFunc(a.opt.Baselines, func(p, q string) int {
		return cmp.Compare(sign*a.mean(p, a.opt.Metrics[0]), sign*a.mean(q, a.opt.Metrics[0]))
	})
}

// routing is the effect of routing against the best plain policy, nil: none.
func (a *Answer) routing() *Effect {
	b := a.baseline()
	i := slices.IndexFunc(a.Effects, func(e Effect) bool { return e.Factor == Routing && e.Against == b })
	if i < 0 {
		return nil
	}
	return &a.Effects[i]
}

// fixed says whether the planner's runs are the same with every seed.
func (a *Answer) fixed() bool {
	any := false
	for _, e := range a.Effects {
		if e.Factor == Routing || !e.tested {
			continue
		}
		for _, c := range e.Changes {
			any = true
			for _, t := range e.terms {
				if stats.Mean(a.runs.values(t.policy, c.Metric)).Std != 0 {
					return false
				}
			}
		}
	}
	return any
}

// Move says whether moving requests or placing adapters pays.
func (a *Answer) Move() bool {
	return slices.ContainsFunc(a.Pays, func(f Factor) bool { return f != Routing })
}

// Chosen is the policy that the answer recommends among those with this routing:
// with the parts that pay. Plans are recommended as they were measured, on top of
// moving waiting requests.
func (a *Answer) Chosen() string { return a.chosen().policy(a.Interval) }

func (a *Answer) chosen() parts {
	plans := slices.Contains(a.Pays, Plans)
	p := parts{running: plans || slices.Contains(a.Pays, Running), places: plans || slices.Contains(a.Pays, Placing)}
	p.waiting = a.opt.base().waiting && (slices.Contains(a.Pays, Waiting) || p.running || p.places)
	return p
}

// String is the answer in plain words, a line for each part of it.
func (a *Answer) String() string {
	lines := append([]string{a.headline()}, a.caveats()...)
	lines = append(lines, a.reasons()...)
	if a.Fixed {
		lines = append(lines, "Every seed gives the same run, so this is about this workload alone.")
	}
	if left := a.mean(a.Chosen(), "oracle.mean_e2e_regret"); left > 0 {
		lines = append(lines, fmt.Sprintf("Headroom: with perfect knowledge mean E2E could be at most %.0f %% lower.", 100*left/(1+left)))
	}
	for _, m := range a.opt.Metrics {
		if o := a.ahead(m); o != nil {
			lines = append(lines, fmt.Sprintf("But by %s %s is better: %s.", short(m), o.Name, o.Diff.Versus(a.mean(a.Chosen(), m))))
		}
	}
	return strings.Join(lines, "\n")
}

// caveats say that the effects hold for runs of their length only, where the planner's
// runs are not steady.
func (a *Answer) caveats() (lines []string) {
	worst, text := a.state()
	switch worst {
	case steady.Overloaded:
		lines = append(lines, "Overloaded: "+text+". Latencies grow with the length of the run: the effects hold for runs of this length only.")
	case steady.Transient:
		lines = append(lines, "Transient: "+text+". The runs are too short to extrapolate: longer ones may show other effects.")
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
var verbs = map[Factor]string{Waiting: "move waiting requests", Running: "move running requests", Placing: "place adapters",
	Plans: "make plans, which place adapters and move running requests"}

// headline says what to do.
func (a *Answer) headline() string {
	if a.opt.sampling == stats.OneWorkload {
		return "No recommendation: one workload has no intervals, so no effect is certain (see --resample)."
	}
	var yes, no []string
	full := a.opt.full()
	for _, f := range []Factor{Waiting, Plans, Placing, Running} {
		switch {
		case f == Plans && !slices.Contains(a.Pays, Plans) || f != Waiting && f != Plans && slices.Contains(a.Pays, Plans):
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

// reasons says of each factor what it changes.
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
	if best.better && best.Factor == Plans {
		placing, running := a.find(Placing, a.Interval), a.find(Running, a.Interval)
		lines = append(lines, fmt.Sprintf("Of this, placing adapters: %s; moving running requests: %s.", placing.changes(), running.changes()))
	}
	return lines
}

// reason words an effect.
func (a *Answer) reason(what string, e *Effect) string {
	gain, s := fmt.Sprintf("%g %%", 100*a.opt.MinGain), "s"
	if e.Factor == Plans {
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
		what += fmt.Sprintf(" show%s no certain gain of %s with %d seeds: ", s, gain, len(a.Dir.Seeds))
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
	title, _, _ := strings.Cut(result.Title(metric), " (")
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

// titles are the factors in the table of effects.
var titles = map[Factor]string{
	Routing: "routing", Waiting: "moving waiting requests", Plans: "plans", Placing: "  placing adapters", Running: "  moving running requests",
	Interaction: "  interaction of the two", PlansOnly: "plans without moving waiting requests",
}

// rows is the table of effects: those of an interval stand together.
func (a *Answer) rows() [][]string {
	head := []string{"effect of", "every"}
	for _, m := range a.opt.Metrics {
		head = append(head, short(m))
	}
	rows := [][]string{append(head, "in % of")}
	add := func(e *Effect) {
		title, every := titles[e.Factor], ""
		if a.whole(e) {
			title = strings.TrimSpace(title)
		}
		if e.Interval != "" {
			every = e.Interval + " s"
		}
		row := []string{title, every}
		for i := range a.opt.Metrics {
			text := stats.NotComparable
			if i < len(e.Changes) {
				c := &e.Changes[i]
				if text = c.Diff.Versus(c.Base); c.Sure {
					text += " *"
				}
			}
			row = append(row, text)
		}
		rows = append(rows, append(row, e.Against))
	}
	for _, s := range append([]string{""}, a.opt.Intervals...) {
		for i := range a.Effects {
			if a.Effects[i].Interval == s {
				add(&a.Effects[i])
			}
		}
	}
	return rows
}

// columns are those of the table of policies.
func (a *Answer) columns() []string {
	out := slices.Clone(a.opt.Metrics)
	for _, m := range []string{"mean_ttft_ms", "migrations", "plans.loads"} {
		if !slices.Contains(out, m) && slices.Contains(a.Tables.Metrics, m) {
			out = append(out, m)
		}
	}
	return out
}

// WriteText prints the answer and, below it, the tables of effects and of policies.
func (a *Answer) WriteText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", a); err != nil {
		return err
	}
	if err := format.Table(w, a.rows()); err != nil {
		return err
	}
	tests := fmt.Sprint(a.tests[0])
	if a.tests[1] > 0 {
		tests += fmt.Sprintf(" + %d", a.tests[1])
	}
	looks := plural(len(a.opt.looks()), "look", "looks")
	note := fmt.Sprintf("paired by seed, ± half of the 95 %% confidence interval; "+
		"* certain: t-tests with Holm's correction (%s tests),\nat 5 %% over %s, %.1f %% at this one",
		tests, looks, 100*a.opt.level(len(a.Dir.Seeds)))
	if a.opt.sampling == stats.OneWorkload {
		note = stats.IntervalNote(stats.OneWorkload, 1, "")
	}
	if _, err := fmt.Fprintf(w, "\n%s\n\n", note); err != nil {
		return err
	}
	return a.Dir.WriteText(w, a.Tables, a.columns())
}

func plural(n int, one, many string) string {
	if n == 1 {
		many = one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// WriteJSON prints the answer and the tables as one JSON object.
func (a *Answer) WriteJSON(w io.Writer) error {
	effects := []any{}
	for _, e := range a.Effects {
		changes := []any{}
		for _, c := range e.Changes {
			o := format.Object{"metric", c.Metric, "diff_mean", c.Diff.Mean, "diff_ci95_low", c.Diff.Low, "diff_ci95_high", c.Diff.High, "against_mean", c.Base}
			if !math.IsNaN(c.P) {
				o = append(o, "p_holm", c.P, "certain", c.Sure)
			}
			changes = append(changes, o)
		}
		contrast := []any{}
		for _, t := range e.terms {
			contrast = append(contrast, format.Object{"policy", t.policy, "weight", t.weight})
		}
		effects = append(effects, format.Object{"factor", e.Factor, "interval_s,omitempty", e.Interval, "against", e.Against, "tested", e.tested,
			"pays", e.better, "contrast", contrast, "changes", changes})
	}
	var b bytes.Buffer
	if err := a.Dir.WriteJSON(&b, a.Tables, a.opt.Metrics); err != nil {
		return err
	}
	pays := append([]Factor{}, a.Pays...)
	worst, _ := a.state()
	return format.JSON(w, format.Object{"schema", "lorasim.worth/2", "pays", pays, "move", a.Move(), "policy", a.Chosen(), "clear", a.Clear, "state,omitempty", string(worst),
		"sampling,omitempty", string(a.opt.sampling), "text", a.String(),
		"best_interval_s,omitempty", a.Interval, "seeds", len(a.Dir.Seeds), "every_seed_the_same,omitempty", a.Fixed, "effects", effects,
		"sweep", json.RawMessage(b.Bytes())}, " ")
}
