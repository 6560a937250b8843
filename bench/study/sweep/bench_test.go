package sweep

import (
	"testing"

	"lorasim/bench/scenario"
	"lorasim/trace/settings"
)

// BenchmarkCell is one cell of 20,000 requests on 8 workers, beyond its
// workload, which cells share.
func BenchmarkCell(b *testing.B) {
	s := &Spec{Scenario: scenario.Default(), SeedCount: 1}
	s.Scenario.Workload.NumPrompts, s.Scenario.Workload.NumAdapters = settings.Some[int64](20_000), settings.Some(64)
	s.Scenario.Workload.RequestRate, s.Scenario.Cluster.NumWorkers = 20, settings.Some(8)
	m, err := s.Plan(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	c, err := s.Scenario.Collect(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	j := &job{cell: &m.Cells[0], collect: func() (*scenario.Collected, error) { return c, nil }}
	for b.Loop() {
		if _, _, err := m.simulate(b.Context(), j); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPlan is a sweep of 10,000 cells.
func BenchmarkPlan(b *testing.B) {
	s := &Spec{Scenario: scenario.Default(), SeedCount: 100}
	for _, text := range []string{"request_rate=1:10:1", "num_workers=1:10"} {
		a, err := ParseSet(text)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Add(a); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Plan(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
