package capacity

import (
	"context"
	"math"
	"testing"

	"lorasim/bench/result"
)

// TestTracks: a run that pauses counts what a run of that length counts. It may be continued or dropped at any time.
func TestTracks(t *testing.T) {
	sc := describe(t, "request_rate=11", "num_adapters=8", "policy=least-loaded", "num_workers=4")
	for _, adapters := range []float64{0, 0.5} {
		s := newSearch(t.Context(), sc, Options{
			SLO: result.SLO{TTFT: 150, TPOT: 100}, Attain: 0.8, PerAdapter: adapters, MaxWorkers: 8, MaxSeeds: 9,
		})
		c := Candidate{Workers: 4}
		p := s.tracks(c, 2)
		for _, z := range []size{half(16000), {requests: 24000, warm: 8000}, {requests: 40000, warm: 16000}} {
			runs, err := p.runs(t.Context(), z)
			if err != nil || len(runs) != 2 {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			for i, r := range runs {
				whole, err := s.measure(c, 1, s.seed(forDecision, i), z, false)
				if err != nil {
					t.Fatal(err)
				}
				// the last requests of the whole run have the cluster to themselves
				if d := math.Abs(r.value - whole.value); d > 0.002 && adapters == 0 || d > 0.13 || r.value == 0 {
					t.Errorf("%v: %v, the whole run %v", z, r.value, whole.value)
				}
				if math.Abs(r.growth) > 0.002 || math.Abs(r.trend) > 0.05 && adapters == 0 || r.worst.Requests == 0 {
					t.Errorf("%v: %+v", z, r)
				}
			}
			if n := p.cost(z.requests); n != 0 {
				t.Errorf("%v: %d requests are left", z, n)
			}
		}
		if over, err := p.overloaded(s); over || err != nil {
			t.Errorf("overloaded: %v, %v", over, err)
		}
		if read := p[0].src.read; read < 40000 || read > 41000 {
			t.Errorf("the run ended after %d requests", read)
		}
		s.dropAll()
	}
	ctx, stop := context.WithCancel(t.Context())
	s := newSearch(ctx, sc, Options{SLO: result.SLO{TTFT: 150}, Attain: 0.9, MaxWorkers: 8, MaxSeeds: 9})
	p := s.tracks(Candidate{Workers: 1}, 2)
	if runs, err := p.runs(ctx, half(16000)); err != nil || len(runs) != 2 || runs[0].growth < growthLimit {
		t.Errorf("too few workers: %+v, %v", runs, err)
	}
	stop()
	if runs, err := p.runs(ctx, half(32000)); err != nil || len(runs) != 0 {
		t.Errorf("stopped: %d runs, %v", len(runs), err)
	}
	s.dropAll()
}
