package measured

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result/records"
	"lorasim/internal/shareddata"
	"lorasim/internal/table"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/columnar"
)

// recordedServer is a profile of law roofline.
func recordedServer() *profile.Profile {
	p := profile.Default()
	p.Name = "server"
	p.Engine.UseVLLM()
	p.Latency.Law = profile.LawRoofline
	p.Latency.Decode = profile.Decode{BaseMs: 11, PerRequestMs: 0.04, PerKVTokenUs: 0.05}
	p.Latency.Prefill = profile.Prefill{PerTokenUs: 43}
	p.Latency.RequestOverheadMs = 5
	p.Memory.KVTokens = 40_000
	return &p
}

// simulated are the records of n requests at a rate, /s, with a limit in flight.
func simulated(t testing.TB, p *profile.Profile, n int, rate float64, limit int) []record.Request {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	w := trace.Workload{}
	at := 0.0
	for i := range n {
		at += rng.ExpFloat64() / rate
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: at, Adapter: trace.BaseModel,
			Prompt: 100 + rng.Int32N(900), Output: 20 + rng.Int32N(100)})
	}
	var rs []record.Request
	if _, err := sim.Run(context.Background(), sim.Config{Source: w.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: router.Always(0)}, Home: router.Disk,
		MaxConcurrency: limit, Observer: record.Ends(func(r *record.Request) { rs = append(rs, *r) })}); err != nil {
		t.Fatal(err)
	}
	return rs
}

// The simulator's own records come out as they are, behind a client's limit or not, and
// whether a worker is recorded or not.
func TestReplayIsExact(t *testing.T) {
	for name, limit := range map[string]int{"open": 0, "limited": 20} {
		rs := simulated(t, recordedServer(), 400, 30, limit)
		if limit > 0 {
			for i := range rs {
				rs[i].WorkerLast = -1
			}
		}
		if got := limitShown(rs); got != limit {
			t.Errorf("%s: the records show a limit of %d, expected %d", name, got, limit)
		}
		run, err := NewRecording(name, rs, 0)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := PredictRecordings(context.Background(), []*Recording{run}, recordedServer(), nil)
		if err != nil {
			t.Fatal(err)
		}
		row := rows[0]
		for _, m := range RecordingMetrics {
			if e, ok := row.Error[m]; !ok || math.Abs(e) > 1e-6 {
				t.Errorf("%s: %s is off by %v", name, m, e)
			}
		}
		if e := row.Requests; e.Requests != 400 || e.TTFTMedianAbsError > 1e-6 || e.E2EMedianAbsError > 1e-6 {
			t.Errorf("%s: requests are off: %+v", name, e)
		}
		if w := row.Ran; w.Prompt < 500 || w.Prompt > 600 || w.Requests != 400 || w.Workers != 1 {
			t.Errorf("%s: the run is described as %+v", name, w)
		}
	}
}

// A client that is late now and then has no limit.
func TestLimitNeedsAFullClient(t *testing.T) {
	rs := simulated(t, recordedServer(), 300, 6, 0)
	for i := range rs {
		if i%5 == 0 {
			rs[i].Arrival -= 0.2
		}
	}
	if got := limitShown(rs); got != 0 {
		t.Errorf("a limit of %d, expected none", got)
	}
}

func TestPredictRecordings(t *testing.T) {
	run, err := NewRecording("a", simulated(t, recordedServer(), 300, 10, 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	slower := recordedServer()
	slower.Latency.Decode.BaseMs *= 1.1
	rows, err := PredictRecordings(context.Background(), []*Recording{run, run}, slower, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if e := row.Error[TPOTMean]; e < 0.04 || len(row.Measured) != len(RecordingMetrics) {
			t.Errorf("a base 10 %% too slow: %+v", row.Comparison)
		}
		if row.Requests.Requests != 300 || row.Requests.E2EMedianAbsError < 0.04 || row.Ran.Requests != 300 {
			t.Errorf("single requests: %+v, of %+v", row.Requests, row.Ran)
		}
	}
	if all := AllRequests(rows); all.Requests != 600 || all.E2EMedianAbsError != rows[0].Requests.E2EMedianAbsError {
		t.Errorf("all requests: %+v", all)
	}
}

// A record that cannot be replayed is left out, with its reason.
func TestUsable(t *testing.T) {
	rs := simulated(t, recordedServer(), 20, 10, 0)
	slices.SortFunc(rs, func(a, b record.Request) int { return int(a.ID - b.ID) })
	rs[2].Output, rs[4].Output = 0, 0
	rs[3].Prompt, rs[5].WorkerLast, rs[6].Adapter = 0, -1, 1_000_000
	rs[7].Finish, rs[8].Sent = rs[7].Sent-1, math.NaN()
	rs[9].Status, rs[9].Output = record.Failed, 0
	got, left := Usable(rs)
	if len(got) != 13 || !slices.ContainsFunc(got, func(r record.Request) bool { return r.Status == record.Failed }) {
		t.Errorf("%d records are usable: %v", len(got), got)
	}
	want := []string{
		"request 2: left out, and 1 more row: 0 output tokens, expected at least 1",
		"request 3: left out: 0 prompt tokens, expected at least 1",
		"request 5: left out: no worker is recorded, but other requests have one",
		"request 6: left out: the adapter's index is out of range, expected -1 to 999999",
		"request 7: left out: it ends before it was sent",
		"request 8: left out: it succeeded, but the time of sending or the end is missing",
	}
	if !slices.Equal(left.Lines(), want) {
		t.Errorf("left out:\n%s", strings.Join(left.Lines(), "\n"))
	}
	run, err := NewRecording("x", rs, 0)
	if err != nil || len(run.Measured) != 12 {
		t.Errorf("%+v, %v", run, err)
	}
}

func TestFaults(t *testing.T) {
	ok := simulated(t, recordedServer(), 12, 10, 0)
	with := func(change func(r *record.Request)) []record.Request {
		rs := slices.Clone(ok)
		change(&rs[3])
		return rs
	}
	broken := slices.Clone(ok)
	for i := range broken {
		broken[i].ID, broken[i].Finish = int64(i), broken[i].Sent-1
	}
	for want, rs := range map[string][]record.Request{
		"at least 10": ok[:3],
		"usable requests, expected at least 10 (request 0: left out, and 11 more rows: it ends ": broken,
		"fail in the simulation (": with(func(r *record.Request) { r.Prompt = 9000 }),
	} {
		run, err := NewRecording("x", rs, 0)
		if err == nil {
			_, err = PredictRecordings(context.Background(), []*Recording{run}, recordedServer(), nil)
		}
		testutil.ExpectError(t, err, want)
	}
}

// The figures of the recorded runs are those that their table states.
func TestFiguresOfMeasuredRuns(t *testing.T) {
	dir := shareddata.Path(t, "vllm_h100_qwen3_14b")
	data, err := os.ReadFile(dir + "/runs.csv")
	if err != nil {
		t.Fatal(err)
	}
	columns := map[Metric]string{
		TTFTMean: "mean_ttft_ms", TTFTMedian: "p50_ttft_ms", TTFTP90: "p90_ttft_ms", TTFTP99: "p99_ttft_ms",
		TPOTMean: "mean_tpot_ms", TPOTP99: "p99_tpot_ms", E2EMean: "mean_e2e_ms", E2EP90: "p90_e2e_ms",
		E2EP99: "p99_e2e_ms",
	}
	limits := map[string]int{"w5-rate24": 256, "w7-rate18": 256}
	err = table.ReadCSV(bytes.NewReader(data), "runs.csv", []string{"run"}, func(row *table.CSVRow) {
		name := row.Text("run")
		rs, _, err := records.ReadAll(t.Context(), columnar.Files(), dir+"/"+name+".csv.gz")
		if err != nil {
			t.Fatal(err)
		}
		got := Figures(rs, rs)
		for m, column := range columns {
			if want := row.Positive(column); math.Abs(got[m]-want) > 0.006 {
				t.Errorf("%s: %s is %v, stated %v", name, m, got[m], want)
			}
		}
		if n := limitShown(rs); n != limits[name] {
			t.Errorf("%s: a limit of %d, expected %d", name, n, limits[name])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
