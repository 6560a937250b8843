package main

import (
	"context"
	"fmt"
	"strings"
)

// A report is the part of the output of profile check that this page needs.
type report struct {
	Runs        []run                  `json:"runs"`
	PolicyRatio struct{ Rows []ratio } `json:"policy_ratio"`
	ServerRatio []ratio                `json:"server_ratio"`
}

// A run is one measured run with its prediction; the keys of the maps are metrics.
type run struct {
	Run            string             `json:"run"` // --records, --vllm-runs
	Policy         string             `json:"policy"`
	Rate           float64            `json:"total_rate"`
	Stride         int                `json:"map_stride"`
	NearSaturation bool               `json:"near_saturation"`
	Model          string             `json:"model"`
	Starved        bool               `json:"starved_measured"`
	StarvedToo     bool               `json:"starved_predicted"`
	Skipped        string             `json:"skipped"`
	Measured       map[string]float64 `json:"measured"`
	Predicted      map[string]float64 `json:"predicted"`
}

// A ratio is the ratio of two runs' mean E2E latencies.
type ratio struct {
	Concurrency         int `json:"max_concurrency"`
	Measured, Predicted float64
	NearSaturation      bool `json:"near_saturation"`
}

// compared returns the comparisons of a metric over the runs that have it and pass a filter.
func (r *report) compared(metric string, pass func(*run) bool) (cs []comparison) {
	for i := range r.Runs {
		if c, ok := r.Runs[i].compared(metric); ok && pass(&r.Runs[i]) {
			cs = append(cs, c)
		}
	}
	return cs
}

func (r *run) compared(metric string) (comparison, bool) {
	m, measured := r.Measured[metric]
	p, predicted := r.Predicted[metric]
	return comparison{m, p}, measured && predicted && m != 0
}

func all(*run) bool     { return true }
func clear(r *run) bool { return !r.NearSaturation }

// sglangRuns adds the runs of two sglang workers.
func sglangRuns(ctx context.Context, r *runner, s *section) error {
	var got report
	if err := r.decode(ctx, s.name, s.commands[0], &got); err != nil {
		return err
	}
	var ratios []comparison
	for _, p := range got.PolicyRatio.Rows {
		if !p.NearSaturation {
			ratios = append(ratios, comparison{p.Measured, p.Predicted})
		}
	}
	err := s.summaries(&got, []summary{
		{"duration", "duration", " s", target{.03, .12}, all},
		{"mean E2E", "mean_e2e", " ms", target{median: .06}, all},
		{"mean E2E, away from saturation", "mean_e2e", " ms", target{worst: .20}, clear},
		{"median E2E", "median_e2e", " ms", target{median: .12}, all},
		{"P99 E2E", "p99_e2e", " ms", target{median: .15}, all},
	})
	if err != nil {
		return err
	}
	s.rows = append(s.rows, several("mean E2E, least-loaded over static, away from saturation", "", ratios,
		target{worst: .10}))
	for i := range sortedBy(got.Runs, func(r *run) float64 { return r.Rate }) {
		run := &got.Runs[i]
		c, ok := run.compared("mean_e2e")
		if !ok {
			continue
		}
		claim := fmt.Sprintf("mean E2E, %s, %g/s, stride %d", run.Policy, run.Rate, run.Stride)
		most := .20
		if run.NearSaturation {
			claim, most = claim+", near saturation", 0
		}
		s.rows = append(s.rows, one(claim, " ms", c, most))
	}
	return nil
}

// A summary is a row over several runs.
type summary struct {
	claim, metric, unit string
	target              target
	pass                func(*run) bool
}

// summaries appends rows over several runs.
func (s *section) summaries(got *report, rows []summary) error {
	for _, row := range rows {
		cs := got.compared(row.metric, row.pass)
		if len(cs) == 0 {
			return fmt.Errorf("no run has metric %s", row.metric)
		}
		s.rows = append(s.rows, several(row.claim, row.unit, cs, row.target))
	}
	return nil
}

// deepseekLogs adds the blocks of logs that embedded profiles predict.
func deepseekLogs(ctx context.Context, r *runner, s *section) error {
	var got report
	if err := r.decode(ctx, s.name, s.commands[0], &got); err != nil {
		return err
	}
	metrics := []struct {
		claim, metric, unit string
		most                float64
	}{
		{"mean E2E", "mean_e2e", " ms", .05}, {"median E2E", "median_e2e", " ms", .05},
		{"mean ITL", "mean_itl", " ms", .05}, {"median ITL", "median_itl", " ms", .05},
		{"mean TTFT", "mean_ttft", " ms", .20}, {"median TTFT", "median_ttft", " ms", 0},
		{"P99 TTFT", "p99_ttft", " ms", 0}, {"P99 ITL", "p99_itl", " ms", 0}, {"duration", "duration", " s", 0},
	}
	for i := range got.Runs {
		run := &got.Runs[i]
		if run.Skipped != "" {
			continue
		}
		server, shape, _ := strings.Cut(run.Policy, " ") // "flashinfer 256x32": requests x concurrency
		_, concurrency, _ := strings.Cut(shape, "x")
		for _, m := range metrics {
			c, ok := run.compared(m.metric)
			if !ok {
				continue
			}
			claim, most := fmt.Sprintf("%s, %s, concurrency %s", m.claim, server, concurrency), m.most
			if concurrency == "32" {
				claim, most = claim+" (fitted)", 0
			}
			s.rows = append(s.rows, one(claim, m.unit, c, most))
		}
	}
	for _, q := range got.ServerRatio {
		s.rows = append(s.rows, one(fmt.Sprintf("mean E2E, flashinfer over triton, concurrency %d", q.Concurrency), "",
			comparison{q.Measured, q.Predicted}, .02))
	}
	if len(s.rows) == 0 {
		return fmt.Errorf("no block of the logs was predicted")
	}
	return nil
}

// vllmHours adds the hours of vLLM: all, by model, and by whether the server was starved.
func vllmHours(ctx context.Context, r *runner, s *section) error {
	var got report
	if err := r.decode(ctx, s.name, s.commands[0], &got); err != nil {
		return err
	}
	type metric struct {
		claim, metric, unit string
		most                float64
		peer                string // docs/vllm-hours.md
	}
	metrics := []metric{
		{"throughput", "throughput", " tokens/s", .022, "10.6 %"},
		{"time per output token", "tpot", " ms", .043, "-"},
		{"mean ITL", "itl", " ms", .049, "15.5 %"},
		{"mean TTFT", "ttft_mean", " ms", .055, "157 %"},
		{"median TTFT", "ttft_median", " ms", 0, "-"},
	}
	add := func(group string, pass func(*run) bool, overall bool) {
		for _, m := range metrics {
			cs := got.compared(m.metric, pass)
			if len(cs) == 0 {
				continue
			}
			row := several(m.claim+group, m.unit, cs, target{})
			if overall {
				row = several(m.claim+group, m.unit, cs, target{median: m.most})
				row.peers = m.peer
			}
			s.rows = append(s.rows, row)
		}
	}
	add("", all, true)
	for _, model := range models(got.Runs) {
		for _, starved := range []bool{false, true} {
			group := ", " + model + ", not starved"
			if starved {
				group = ", " + model + ", starved"
			}
			add(group, func(r *run) bool { return r.Model == model && r.Starved == starved }, false)
		}
	}
	s.rows = append(s.rows, starved(got.Runs))
	return nil
}

// models returns the names of the models in the order of the runs.
func models(runs []run) (list []string) {
	seen := map[string]bool{}
	for _, r := range runs {
		if !seen[r.Model] {
			seen[r.Model], list = true, append(list, r.Model)
		}
	}
	return list
}

// starved returns the row with the share of correct predictions of starvation.
func starved(runs []run) row {
	measured, predicted, right, n := 0, 0, 0, 0
	for _, r := range runs {
		if r.Skipped != "" {
			continue
		}
		n++
		if r.Starved {
			measured++
		}
		if r.StarvedToo {
			predicted++
		}
		if r.Starved == r.StarvedToo {
			right++
		}
	}
	return row{fmt.Sprintf("starved or not, %d runs", n), fmt.Sprintf("%d starved", measured),
		fmt.Sprintf("%d starved", predicted), "right in " + percent(float64(right)/float64(n)), "-", "-", "a"}
}

// sloraRuns adds the published runs of S-LoRA's authors.
func sloraRuns(ctx context.Context, r *runner, s *section) error {
	for i, system := range []string{"", ", last come, first served", ", early abort"} {
		if err := s.sloraSystem(ctx, r, i, system); err != nil {
			return err
		}
	}
	return nil
}

// sloraSystem adds the runs of one system of S-LoRA, which command i predicts.
func (s *section) sloraSystem(ctx context.Context, r *runner, i int, system string) error {
	var got struct {
		Rows []struct{ Measured, Predicted map[string]any }
	}
	if err := r.decode(ctx, s.name+"-"+letter(i), s.commands[i], &got); err != nil {
		return err
	}
	var rep report
	for _, row := range got.Rows {
		rep.Runs = append(rep.Runs, run{Measured: floats(row.Measured), Predicted: floats(row.Predicted)})
	}
	before := len(s.rows)
	err := s.summaries(&rep, []summary{
		{"total time" + system, "total_time", " s", target{.01, .04}, all},
		{"mean latency" + system, "avg_latency", " s", target{.03, .12}, all},
		{"mean time to first token" + system, "avg_first_token", " s", target{.05, .25}, all},
	})
	for k := range s.rows[before:] {
		s.rows[before+k].command = letter(i)
	}
	return err
}

// floats returns the numbers of a JSON object.
func floats(object map[string]any) map[string]float64 {
	out := map[string]float64{}
	for k, v := range object {
		if x, ok := v.(float64); ok {
			out[k] = x
		}
	}
	return out
}

// cases returns a function that adds the rows of recorded decisions, one per command. All must be
// exact.
func cases(steps, what string) func(context.Context, *runner, *section) error {
	return func(ctx context.Context, r *runner, s *section) error {
		for i, command := range s.commands {
			var got struct {
				Summary struct{ Cases, Exact, Skipped int }
				Cases   []struct{ Steps int }
			}
			if err := r.decode(ctx, fmt.Sprintf("%s-%s", s.name, letter(i)), command, &got); err != nil {
				return err
			}
			n := 0
			for _, c := range got.Cases {
				n += c.Steps
			}
			compared := got.Summary.Cases - got.Summary.Skipped
			row := row{fmt.Sprintf("every %s as recorded", what), fmt.Sprintf("%d cases, %d %s", compared, n, steps),
				fmt.Sprintf("%d cases exact", got.Summary.Exact), fmt.Sprintf("%d differ", compared-got.Summary.Exact),
				"all exact: met", "-", letter(i)}
			if compared != got.Summary.Exact {
				row.target = "all exact: " + missed
			}
			if got.Summary.Skipped > 0 {
				row.claim += fmt.Sprintf(" (%d skipped)", got.Summary.Skipped)
			}
			s.rows = append(s.rows, row)
		}
		return nil
	}
}
