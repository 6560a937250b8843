package main

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/internal/atomicfile"
)

// notable is the regret from which a scenario counts as lost.
const notable = 0.03

// Markdown returns the tables. worst is the number of scenarios in the lists of the largest
// regrets.
func (t *Table) Markdown(worst int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d scenarios", len(t.cases))
	if len(t.cases) > 0 {
		fmt.Fprintf(&b, ", %d seeds each", t.cases[0].seeds)
	}
	fmt.Fprintf(&b, ", %d baselines: %s.\n", len(t.Baselines), strings.Join(t.Baselines, ", "))
	for _, l := range t.LeftOut {
		fmt.Fprintf(&b, "Left out: scenario %d, %s.\n", l.Scenario, l.Why)
	}
	b.WriteString("\nRegret in percent, against the best other baseline of each scenario and metric, on the same seeds:\n\n")
	t.regrets(&b, func(r Regret) [numMetrics]float64 { return r.Hindsight }, objectiveOf)
	b.WriteString("\nThe same, against the baseline that is best on half of the seeds, measured on the other half:\n\n")
	t.regrets(&b, func(r Regret) [numMetrics]float64 { return r.CrossFitted },
		func(r Regret) float64 { return r.ObjectiveCrossFitted })
	t.sustained(&b)
	b.WriteString("\nScenarios in which each policy is the best, by metric:\n\n")
	t.wins(&b)
	for _, p := range t.Policies {
		if worst > 0 && (p == "plan-and-route" || strings.Contains(p, "@")) {
			t.worst(&b, p, worst)
		}
	}
	return b.String()
}

// regrets writes a row per policy.
func (t *Table) regrets(b *strings.Builder, of func(Regret) [numMetrics]float64, objective func(Regret) float64) {
	b.WriteString("| policy | scenarios | objective | E2E mean / median / P90 / worst | > 3 % | serious |" +
		" TTFT mean / median / P90 / worst | > 3 % | P99 TTFT mean / median / P90 / worst | > 3 % |\n" +
		"|---|---:|---:|---|---:|---:|---|---:|---|---:|\n")
	for _, p := range t.Policies {
		rs := t.of(p)
		if len(rs) == 0 {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %d | %.3f |", p, len(rs), meanOf(rs, objective))
		for m := range numMetrics {
			s := summarize(rs, func(r Regret) float64 { return of(r)[m] })
			fmt.Fprintf(b, " %s / %s / %s / %s %% | %.0f %% |", percent(s.mean), percent(s.median), percent(s.p90),
				percent(s.worst), 100*s.notable)
			if m == e2e {
				serious := 0
				for _, r := range rs {
					if r.Serious {
						serious++
					}
				}
				if p == chosenByObjective || p == chosenByE2E {
					b.WriteString(" |") // no policy whose single run could be compared
				} else {
					fmt.Fprintf(b, " %d |", serious)
				}
			}
		}
		b.WriteString("\n")
	}
}

// sustained writes a row per policy: the rate that it sustains as a share of the largest rate of the others.
func (t *Table) sustained(b *strings.Builder) {
	head := "\nSustained rate, as a share of the largest one of the other baselines:\n\n" +
		"| policy | scenarios | mean | median | worst | below 0.99 |\n|---|---:|---:|---:|---:|---|\n"
	for _, p := range t.Policies {
		var shares []float64
		var below []string
		sum := 0.0
		for _, r := range t.of(p) {
			if r.Sustained == 0 {
				continue
			}
			shares = append(shares, r.Sustained)
			if sum += r.Sustained; r.Sustained < 0.99 {
				below = append(below, fmt.Sprint(r.Scenario))
			}
		}
		if len(shares) == 0 {
			continue
		}
		slices.Sort(shares)
		fmt.Fprintf(b, "%s| `%s` | %d | %.3f | %.3f | %.3f | %s |\n", head, p, len(shares), sum/float64(len(shares)),
			stats.Quantile(shares, 0.5), shares[0], strings.Join(below, ", "))
		head = ""
	}
}

// summary of the regrets of a policy.
type summary struct {
	mean, median, p90, worst float64
	notable                  float64 // share of scenarios with a notable regret
}

func summarize(rs []Regret, of func(Regret) float64) (s summary) {
	var xs []float64
	for _, r := range rs {
		xs = append(xs, of(r))
		if of(r) > notable {
			s.notable += 1 / float64(len(rs))
		}
	}
	slices.Sort(xs)
	s.mean, s.median, s.p90 = meanOf(rs, of), stats.Quantile(xs, 0.5), stats.Quantile(xs, 0.9)
	s.worst = xs[len(xs)-1]
	return s
}

// percent formats a share as a percentage, with one decimal if it is small.
func percent(x float64) string {
	if 100*x < 9.95 {
		return fmt.Sprintf("%.1f", 100*x)
	}
	return fmt.Sprintf("%.0f", 100*x)
}

// wins prints the number of scenarios in which each policy is the best.
func (t *Table) wins(b *strings.Builder) {
	b.WriteString("| policy | objective | E2E | TTFT | P99 TTFT |\n|---|---:|---:|---:|---:|\n")
	counts := map[string]*[numMetrics + 1]int{}
	for _, c := range t.cases {
		count := func(i metric, value func(*figures) float64) {
			p := c.best(t.Baselines, "", value)
			if counts[p] == nil {
				counts[p] = new([numMetrics + 1]int)
			}
			counts[p][i]++
		}
		count(0, func(f *figures) float64 { return f.objective(c.all()) })
		for m := range numMetrics {
			count(m+1, func(f *figures) float64 { return f.mean(m, c.all()) })
		}
	}
	for _, p := range t.Policies {
		if n := counts[p]; n != nil {
			fmt.Fprintf(b, "| `%s` | %d | %d | %d | %d |\n", p, n[0], n[1], n[2], n[3])
		}
	}
}

// worst prints the n scenarios in which a policy has the largest regret of the objective.
func (t *Table) worst(b *strings.Builder, policy string, n int) {
	rs := t.of(policy)
	slices.SortStableFunc(rs, func(x, y Regret) int { return compareFloats(-x.Objective, -y.Objective) })
	fmt.Fprintf(b, "\nWhere `%s` does worst:\n\n| scenario | E2E | TTFT | P99 TTFT | command |\n|---:|---|---|---|---|\n", policy)
	for _, r := range rs[:min(n, len(rs))] {
		if math.IsNaN(r.Objective) {
			continue
		}
		fmt.Fprintf(b, "| %d |", r.Scenario)
		for m := range numMetrics {
			fmt.Fprintf(b, " +%s %% `%s` |", percent(r.Hindsight[m]), r.Best[m])
		}
		fmt.Fprintf(b, " `lorasim sim %s` |\n", t.command(r.Scenario))
	}
}

// command returns the command of a scenario.
func (t *Table) command(index int) string {
	i := slices.IndexFunc(t.cases, func(c *Case) bool { return c.Index == index })
	return t.cases[i].Command
}

// WriteJSON writes all regrets.
func (t *Table) WriteJSON(path string) error {
	out := struct {
		Schema  string              `json:"schema"`
		Metrics [numMetrics]string  `json:"metrics"`
		Weights [numMetrics]float64 `json:"objective_weights"`
		*Table
	}{"lorasim.random-scenarios/1", [numMetrics]string{"mean_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms"},
		weights, t}
	return atomicfile.Write(path, func(f *atomicfile.File) error {
		e := json.NewEncoder(f)
		e.SetIndent("", " ")
		return e.Encode(out)
	})
}
