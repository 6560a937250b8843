package main

import (
	"context"
	"fmt"
	"strings"
)

const (
	h100 = "vllm_h100_qwen3_14b" // folder of the recorded runs
	// server is the configuration of the recorded runs' engine, from its log.
	server = "--max-concurrency 256 --scheduler vllm --engine-args max_num_batched_tokens=8192 --engine-args kv_tokens=288608 --engine-args page_size=16 " +
		"--engine-args context_length=40960 --engine-args max_running_requests=256"
)

// The runs by use: fitted by both calibrations, fitted by the calibration from four runs, and
// compared by all. Repeats of other runs are in none: tenants2 has the requests of rate4.
var (
	fitted   = []string{"rate2-vanilla", "rate4-vanilla"}
	loaded   = []string{"w5-rate24", "w7-rate6"}
	recorded = []string{"rate6-vanilla", "tenants1-vanilla", "tenants4-vanilla", "w5-rate12", "w7-rate18"}
)

// blis are the errors of BLIS, as shares: mean TTFT, TPOT and E2E.
var blis = map[string][3]float64{
	"rate6-vanilla": {-.50, -.10, -.11}, "tenants1-vanilla": {-.42, .03, .02}, "tenants4-vanilla": {-.54, -.17, -.18},
	"w5-rate12": {-.67, -.41, -.42}, "w5-rate24": {-.92, -.83, -.83}, "w7-rate6": {-.82, -.50, -.52},
	"w7-rate18": {-.99, -.83, -.92},
}

// files returns the paths of runs below DATA.
func files(runs ...string) string {
	for i, r := range runs {
		runs[i] = fmt.Sprintf("DATA/%s/%s.csv.gz", h100, r)
	}
	return strings.Join(runs, " ")
}

func join(lists ...[]string) (out []string) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// h100Commands are the commands of the section: two calibrations, and three validations.
var h100Commands = []string{
	"lorasim profile fit records " + files(join(fitted)...) + " --profile " +
		"analytic:qwen3-14b,h100 " + server +
		" --output OUT/two.yaml",
	"lorasim profile check records " + files(join(recorded, loaded)...) + " --profile OUT/two.yaml " +
		"--max-concurrency 256 --json",
	"lorasim profile fit records " + files(join(fitted, loaded)...) + " --profile " +
		"analytic:qwen3-14b,h100 " + server +
		" --output OUT/four.yaml",
	"lorasim profile check records " + files(join(recorded)...) + " --profile OUT/four.yaml " +
		"--max-concurrency 256 --json",
	"lorasim profile check records " + files(join(recorded, loaded)...) + " --profile " +
		"analytic:qwen3-14b,h100 " + server +
		" --json",
}

// goals are the largest errors by metric, in the order of means; zero: none.
type goals struct{ ttft, tpot, e2e, duration target }

// vllmH100 adds the recorded runs, predicted with three profiles.
func vllmH100(ctx context.Context, r *runner, s *section) error {
	parts := []struct {
		fit, check int // indices of commands; fit -1: none
		name       string
		goals      goals
		each, peer bool // print a row for each run; print the peer's errors
	}{
		{0, 1, "calibrated with two runs",
			goals{target{.03, .15}, target{.03, .08}, target{.03, .08}, target{worst: .04}}, true, false},
		{2, 3, "calibrated with four runs",
			goals{target{.02, .06}, target{.02, .05}, target{.02, .05}, target{}}, false, false},
		{-1, 4, "nothing measured",
			goals{target{.12, .30}, target{.10, .15}, target{.10, .15}, target{}}, true, true},
	}
	for _, p := range parts {
		if p.fit >= 0 {
			if _, err := r.run(ctx, "", s.commands[p.fit]); err != nil {
				return err
			}
		}
		var got report
		if err := r.decode(ctx, fmt.Sprintf("%s-%s", s.name, letter(p.check)), s.commands[p.check], &got); err != nil {
			return err
		}
		first := len(s.rows)
		if err := s.recorded(&got, p.name, p.goals, p.each, p.peer); err != nil {
			return err
		}
		for i := first; i < len(s.rows); i++ {
			s.rows[i].command = letter(p.check)
		}
	}
	return nil
}

// recorded appends the rows of one profile.
func (s *section) recorded(got *report, name string, g goals, each, peer bool) error {
	means := []summary{
		{"mean TTFT, " + name, "ttft_mean", " ms", g.ttft, all},
		{"mean TPOT, " + name, "tpot_mean", " ms", g.tpot, all},
		{"mean E2E, " + name, "e2e_mean", " ms", g.e2e, all},
	}
	first := len(s.rows)
	if err := s.summaries(got, append(means[:3:3],
		summary{"P99 TTFT, " + name, "ttft_p99", " ms", target{}, all},
		summary{"P99 E2E, " + name, "e2e_p99", " ms", target{}, all},
		summary{"duration, " + name, "duration", " s", g.duration, all})); err != nil {
		return err
	}
	if peer {
		for i := range means {
			s.rows[first+i].peers = peerOver(got.Runs, i)
		}
	}
	if !each {
		return nil
	}
	for i := range got.Runs {
		for k, m := range means {
			c, ok := got.Runs[i].compared(m.metric)
			if !ok {
				continue
			}
			row := one(m.claim+", "+got.Runs[i].Run, m.unit, c, m.target.worst)
			if e, known := blis[got.Runs[i].Run]; peer && known {
				row.peers = signed(e[k])
			}
			s.rows = append(s.rows, row)
		}
	}
	return nil
}

// peerOver returns the peer's error over its runs: the median and the worst of figure k of blis.
func peerOver(runs []run, k int) string {
	var cs []comparison
	for _, r := range runs {
		if e, ok := blis[r.Run]; ok {
			cs = append(cs, comparison{1, 1 + e[k]})
		}
	}
	if len(cs) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%d runs)", several("", "", cs, target{}).err, len(cs))
}
