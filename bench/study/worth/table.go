package worth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/internal/format"
)

// titles are the factors in the table of effects.
var titles = map[Factor]string{
	Routing: "routing", Waiting: "moving waiting requests", Plans: "plans", Placing: "  placing adapters",
	Running:     "  moving running requests",
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

// WriteDetails writes the tables of effects and policies.
func (a *Answer) WriteDetails(w io.Writer) error {
	if _, err := io.WriteString(w, "\n"+a.headroom()); err != nil {
		return err
	}
	if err := format.Table(w, a.rows()); err != nil {
		return err
	}
	tests := fmt.Sprint(a.tests[0])
	if a.tests[1] > 0 {
		tests += fmt.Sprintf(" + %d", a.tests[1])
	}
	looks := format.Count(len(a.opt.looks()), "look")
	note := fmt.Sprintf("paired by seed, ± half of the 95 %% confidence interval or (low to high); "+
		"* significant: t-tests with Holm's correction (%s tests),\nat 5 %% over %s, %.1f %% at this one",
		tests, looks, 100*a.opt.level(len(a.Dir.Seeds)))
	if a.opt.sampling == stats.OneWorkload {
		note = stats.IntervalNote(stats.OneWorkload, 1, "")
	}
	if _, err := fmt.Fprintf(w, "\n%s\n\n", note); err != nil {
		return err
	}
	return a.Dir.WriteText(w, a.Tables, a.columns())
}

// WriteJSON writes the answer and the tables as one JSON object.
func (a *Answer) WriteJSON(w io.Writer) error {
	effects := []any{}
	for _, e := range a.Effects {
		changes := []any{}
		for _, c := range e.Changes {
			o := format.Object{
				"metric", c.Metric, "diff_mean", c.Diff.Mean, "diff_ci95_low", c.Diff.Low,
				"diff_ci95_high", c.Diff.High, "against_mean", c.Base,
			}
			if !math.IsNaN(c.P) {
				o = append(o, "p_holm", c.P, "certain", c.Sure)
			}
			changes = append(changes, o)
		}
		contrast := []any{}
		for _, t := range e.terms {
			contrast = append(contrast, format.Object{"policy", t.policy, "weight", t.weight})
		}
		effects = append(effects,
			format.Object{"factor", e.Factor, "interval_s,omitempty", e.Interval, "against", e.Against,
				"tested", e.tested,
				"pays", e.better, "contrast", contrast, "changes", changes})
	}
	var b bytes.Buffer
	if err := a.Dir.WriteJSON(&b, a.Tables, a.opt.Metrics, sweep.JSONOptions{}); err != nil {
		return err
	}
	pays := append([]Factor{}, a.Pays...)
	worst, _ := a.state()
	return format.JSON(w,
		format.Object{"schema", "lorasim.worth/2", "pays", pays, "move", a.Move(), "policy", a.Chosen(),
			"clear", a.Clear, "state,omitempty", string(worst),
			"sampling,omitempty", string(a.opt.sampling), "text", a.String(),
			"best_interval_s,omitempty", a.Interval, "seeds", len(a.Dir.Seeds),
			"every_seed_the_same,omitempty", a.Fixed, "effects", effects,
			"sweep", json.RawMessage(b.Bytes())}, " ")
}
