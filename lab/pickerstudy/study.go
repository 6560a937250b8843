package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"lorasim/bench/stats"
	"lorasim/bench/study/sweep"
	"lorasim/router/epp"
)

// Metrics of the tables.
const e2e, ttft, p99 = "mean_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms"

// study is the result for a workload.
type study struct {
	name, about string
	labels      []string // of the policies, in the order of the sweep
	specs       []string
	tables      *sweep.Tables
}

func (s *study) add(label, spec string) {
	s.labels, s.specs = append(s.labels, label), append(s.specs, spec)
}

// label returns the name of a policy in tables.
func label(ctx context.Context, spec string) string {
	c, err := epp.ReadPickerConfig(ctx, spec)
	if err != nil || c == nil {
		return spec
	}
	switch filepath.Base(c.File) {
	case "kserve-lora.yaml":
		return "KServe, LoRA"
	case "gie.yaml":
		return "GIE"
	case "llmd-baseline.yaml":
		return "llm-d baseline"
	}
	return filepath.Base(c.File)
}

// check returns an error unless the tables have all points, by rate and then by policy.
func (s *study) check(ctx context.Context) error {
	if len(s.tables.Points)%len(s.labels) != 0 || len(s.tables.Points) == 0 {
		return fmt.Errorf("%d points of %d policies", len(s.tables.Points), len(s.labels))
	}
	for i := range s.tables.Points {
		if p := &s.tables.Points[i]; !(p.Left == 0) {
			return fmt.Errorf("%s: %g of the requests did not complete", p.Policy, p.Left)
		}
		if got := label(ctx, s.specs[i%len(s.labels)]); !strings.Contains(s.tables.Points[i].Policy, "=") &&
			got != s.tables.Points[i].Policy {
			return errors.New("points are in another order than policies")
		}
	}
	return nil
}

// rates returns the number of rates.
func (s *study) rates() int { return len(s.tables.Points) / len(s.labels) }

// point returns the point of a policy at a rate, both by index.
func (s *study) point(rate, policy int) *sweep.Point {
	return &s.tables.Points[rate*len(s.labels)+policy]
}

// scores returns the objective balanced of advise, by seed. All requests must be completed.
func scores(p *sweep.Point) []float64 {
	out := make([]float64, len(p.BySeed(e2e)))
	for metric, weight := range map[string]float64{e2e: 1, ttft: 0.35, p99: 0.15} {
		for i, ms := range p.BySeed(metric) {
			out[i] += weight * math.Log(ms)
		}
	}
	return out
}

// versus returns the ratio of a policy's objective to the first policy's: the mean, and the 95 %
// interval of the differences paired by seed.
func (s *study) versus(rate, policy int) (mean, low, high float64) {
	p := s.point(rate, policy)
	d := stats.PairedOf(p.Sampling, scores(p), scores(s.point(rate, 0)))
	return math.Exp(d.Mean), math.Exp(d.Low), math.Exp(d.High)
}

// markdown returns the table of a study.
func (s *study) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s\n\n", s.name, s.about)
	b.WriteString("| requests/s | policy | objective | mean TTFT (ms) | P99 TTFT (ms) | mean E2E (ms) | state |\n" +
		"|---:|---|---:|---:|---:|---:|---|\n")
	for r := range s.rates() {
		for i, name := range s.labels {
			p := s.point(r, i)
			mean, low, high := s.versus(r, i)
			objective := "-"
			if i > 0 {
				objective = fmt.Sprintf("%+.1f %% (%+.1f to %+.1f)", 100*(mean-1), 100*(low-1), 100*(high-1))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", p.Values[0], name, objective,
				figures(p, ttft), figures(p, p99), figures(p, e2e), p.State)
		}
	}
	return b.String()
}

func figures(p *sweep.Point, metric string) string { return stats.Mean(p.BySeed(metric)).String() }
