package advise

import (
	"io"
	"math"

	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// WriteJSON writes the answer as one JSON object.
func (a *Advice) WriteJSON(w io.Writer) error {
	finalists, rounds, skipped := []any{}, []any{}, []any{}
	for _, f := range a.Finalists {
		finalists = append(finalists, a.finalistJSON(f))
	}
	for _, r := range a.Rounds {
		entries := []any{}
		for _, e := range r.Entries {
			entries = append(entries, format.Object{"policy", e.Spec, "score_above_best", e.Worse, "kept", e.Kept})
		}
		rounds = append(rounds, format.Object{"what", r.What, "seeds", r.Seeds, "candidates", entries})
	}
	for _, s := range a.Skipped {
		skipped = append(skipped, format.Object{"policy", s.Spec, "reason", s.Why})
	}
	pick := a.recommended()
	alike := []string{}
	for _, f := range a.alike()[1:] {
		alike = append(alike, f.Spec)
	}
	o := format.Object{"schema", "lorasim.advise/1", "policy", pick.Spec, "class", pick.Class().String(),
		"not_significantly_different", alike, "confirmed", a.Confirmed && a.Sampling != stats.OneWorkload,
		"attempts", a.Attempts, "text", a.Words(),
		"objective", a.Objective.Name, "difference_unit", a.Objective.unit(), "min_gain", a.MinGain,
		"goodput,omitempty", a.SLO.String(), "sampling,omitempty", string(a.Sampling),
		"seed", a.Scenario.Seed, "requests_per_run", a.Requests, "length_chosen", a.Chosen,
		"candidates", a.Raced, "choice_seeds", a.ChoiceSeeds, "held_out_seeds", a.recommended().E2E.N,
		"requests_simulated", a.Spent,
		"finalists", finalists, "rounds", rounds, "cannot_run", skipped}
	if len(a.Tuned) > 0 {
		o = append(o, "configurations", a.tunedJSON())
	}
	if a.Worst != nil {
		o = append(o, "worst_scenario", a.worstJSON())
	}
	return format.JSON(w, o, " ")
}

func (a *Advice) finalistJSON(f *Finalist) any {
	return format.Object{"policy", f.Spec, "class", f.Class().String(), "roles,omitempty", f.Roles,
		"state,omitempty", string(f.State), "states,omitempty", f.Counts(),
		"too_short,omitempty", f.TooShort,
		"mean_ttft_ms", estimate(f.TTFT), "p99_ttft_ms", estimate(f.P99TTFT),
		"mean_e2e_latency_ms", estimate(f.E2E), "goodput_share,omitempty", nothing(f.Good),
		"completed_share", f.Completed.Mean, "oracle_mean_e2e_regret,omitempty", nothing(f.Regret),
		"difference,omitempty", a.difference(f.Diff), "p_holm,omitempty", f.P, "worse", f.Worse}
}

func (a *Advice) tunedJSON() any {
	list := []any{}
	for _, t := range a.Tuned {
		changes := []any{}
		for _, ch := range t.Changes {
			changes = append(changes, format.Object{"number", ch.Name, "from", ch.From, "to", ch.Value,
				"added", ch.Added})
		}
		list = append(list, format.Object{"policy", t.Of.Spec, "file,omitempty", t.Config.File, "tried", t.Tried,
			"better", t.Better(), "best,omitempty", t.Best.Spec, "changes", changes,
			"difference,omitempty", a.difference(t.Diff), "text", a.TunedText(t)})
	}
	return list
}

func (a *Advice) worstJSON() any {
	w := a.Worst
	changes := []any{}
	for _, c := range w.Changes {
		settings := format.Object{}
		for _, s := range c.Settings {
			settings = append(settings, s[0], s[1])
		}
		changes = append(changes, format.Object{"what", c.What, "settings", settings})
	}
	figures := func(f *Figures) any {
		return format.Object{"mean_ttft_ms", f.TTFT, "p99_ttft_ms", f.P99TTFT, "mean_e2e_latency_ms", f.E2E,
			"goodput_share,omitempty", f.Good}
	}
	return format.Object{"tried", w.Tried, "changes", changes, "state,omitempty", string(w.State.State),
		"rival", w.Rival.Spec, "difference", a.difference(w.Loss), "p", w.P, "worse", w.Lost(),
		"recommended", figures(&w.Pick), "of_rival", figures(&w.Other),
		"command", w.Command(a.recommended().Candidate)}
}

// estimate is a mean with its interval.
func estimate(e stats.Estimate) any {
	return format.Object{"mean", e.Mean, "ci95_low,omitempty", e.Low, "ci95_high,omitempty", e.High}
}

// nothing is nil where there is no mean.
func nothing(e stats.Estimate) any {
	if math.IsNaN(e.Mean) {
		return nil
	}
	return estimate(e)
}

// difference is a difference of scores in the objective's unit; nil: none.
func (a *Advice) difference(d stats.Estimate) any {
	if math.IsNaN(d.Mean) {
		return nil
	}
	p := a.Objective.Percent
	return format.Object{"mean", p(d.Mean), "ci95_low,omitempty", p(d.Low), "ci95_high,omitempty", p(d.High)}
}
