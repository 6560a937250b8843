package compare

import (
	"math"
	"path/filepath"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/result/records"
	"lorasim/bench/scenario"
	"lorasim/sim/record"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// TestAttainmentOfAdapters: what a run says of its adapters and an SLO is what its
// file of records says, looked at one adapter after the other.
func TestAttainmentOfAdapters(t *testing.T) {
	for _, changes := range []map[string]string{
		{"policy": "least-loaded", "request_rate": "9", "num_workers": "4"},
		{"policy": "static", "request_rate": "6", "popularity": "zipf:1.2", "load_failure_rate": "0.2"},
		{"no_stream": "true", "request_rate": "10", "window": "30"},
		{"context_length": "900", "request_rate": "4"}, // some are rejected
		{"pattern": "flash:10,20,10,3", "request_rate": "10"},
	} {
		slo := result.SLO{TTFT: 400, TPOT: 60, E2E: 20_000, Attain: 0.9}
		if changes["no_stream"] != "" {
			slo.TTFT = 15_000
		}
		sc := scenario.Default()
		sc.Files = columnar.Files()
		sc.Workload.NumPrompts = settings.Some[int64](600)
		sc.Workload.NumAdapters = settings.Some(24)
		for key, value := range changes {
			if err := sc.Set(key, value); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "r.csv")
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: slo, RecordsFile: path})
		if err != nil {
			t.Fatal(err)
		}
		recs, _, err := records.ReadAll(t.Context(), columnar.Files(), path)
		if err != nil {
			t.Fatal(err)
		}
		good := func(r *record.Request) bool {
			ms := func(from, to float64) float64 { return 1000 * (to - from) }
			tpot := 0.0
			if r.Output > 1 {
				tpot = ms(r.FirstToken, r.Finish) / float64(r.Output-1)
			}
			return r.Status == record.OK && ms(r.Sent, r.FirstToken) <= slo.TTFT && tpot <= slo.TPOT &&
				ms(r.Sent, r.Finish) <= slo.E2E
		}
		adapters, met, all, squares, sum := 0.0, 0.0, 0.0, 0.0, 0.0
		noisy, noisyGood := 0.0, 0.0 // requests of adapter 3
		worst := result.Worst{Share: math.Inf(1)}
		for a := int32(-1); a < 24; a++ {
			n, within := 0.0, 0.0
			for i := range recs {
				if recs[i].Adapter != a {
					continue
				}
				n++
				if good(&recs[i]) {
					within++
				}
			}
			if n == 0 {
				continue
			}
			if a == 3 {
				noisy, noisyGood = n, within
			}
			adapters++
			all += within
			if within/n >= slo.Attain {
				met++
			}
			sum += within / n
			squares += within / n * within / n
			if share := within / n; share < worst.Share || share == worst.Share && int64(n) > worst.Requests {
				worst = result.Worst{Index: a, Requests: int64(n), Share: share}
			}
		}
		g := res.Extra.Goodput
		if met == 0 || met == adapters || worst.Share == 1 || all == 0 {
			t.Errorf("%v: %v of %v adapters meet the SLO, the case tells nothing", changes, met, adapters)
		}
		near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		same := func(g *result.Goodput) bool {
			return near(g.Share, all/float64(len(recs))) && near(g.Adapters, met/adapters) &&
				near(g.Fairness, sum*sum/(adapters*squares)) && g.Attain == slo.Attain &&
				g.Worst.Index == worst.Index && g.Worst.Requests == worst.Requests && near(g.Worst.Share, worst.Share)
		}
		if !same(g) {
			t.Errorf("%v: %+v, worst %+v; expected %v of %v adapters, worst %+v",
				changes, g, g.Worst, met, adapters, worst)
		}
		if o := g.Others; (o != nil) != (changes["pattern"] != "") {
			t.Errorf("%v: of the others %+v", changes, o)
		} else if o != nil && (noisyGood == noisy || !near(o.Share, (all-noisyGood)/(float64(len(recs))-noisy))) {
			t.Errorf("%v: of the others %+v, expected %v", changes, o, (all-noisyGood)/(float64(len(recs))-noisy))
		}
		runs, _, err := Load(t.Context(), columnar.Files(), []string{path}, slo)
		if err != nil {
			t.Fatal(err)
		}
		if got := runs[0].Results[0].Extra.Goodput; !same(got) {
			t.Errorf("%v: of the records %+v, worst %+v; expected %v of %v adapters, worst %+v",
				changes, got, got.Worst, met, adapters, worst)
		}
		if v := runs[0].value("goodput.worst_adapter.share"); !near(v.Mean, worst.Share) {
			t.Errorf("%v: the comparison has %+v, expected %v", changes, v, worst.Share)
		}
	}
}

// TestAttainmentOfImported: requests that another client wrote are held to an SLO.
func TestAttainmentOfImported(t *testing.T) {
	runs, _, err := Load(t.Context(), columnar.Files(), []string{"../../result/importer/testdata/aiperf.jsonl"},
		result.SLO{TTFT: 150, Attain: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]float64{
		"goodput.share": 0.25, "goodput.adapter_share": 1, "goodput.worst_adapter.requests": 4,
	} {
		if v := runs[0].value(metric); v.N != 1 || v.Mean != want {
			t.Errorf("%s is %+v, expected %v", metric, v, want)
		}
	}
	if runs, _, err = Load(t.Context(), columnar.Files(), []string{"../../result/importer/testdata/aiperf.jsonl"},
		result.SLO{}); err != nil ||
		runs[0].value("goodput.share").N > 0 {
		t.Errorf("without an SLO: %v, %v", runs[0].value("goodput.share"), err)
	}
}
