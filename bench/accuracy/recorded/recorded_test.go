package recorded

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/accuracy/validate"
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

// server is a profile of law roofline.
func server() *profile.Profile {
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
		rs := simulated(t, server(), 400, 30, limit)
		if limit > 0 {
			for i := range rs {
				rs[i].WorkerLast = -1
			}
		}
		if got := Limit(rs); got != limit {
			t.Errorf("%s: the records show a limit of %d, expected %d", name, got, limit)
		}
		run, err := New(name, rs, 0)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Compare(context.Background(), []*Run{run}, server(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range Metrics {
			if s := r.Summary[m]; s.Runs != 1 || s.WorstAbsError > 1e-6 {
				t.Errorf("%s: %s is off by %v in %d runs", name, m, s.WorstAbsError, s.Runs)
			}
		}
		if e := r.Requests; e.Requests != 400 || e.TTFTMedianAbsError > 1e-6 || e.E2EMedianAbsError > 1e-6 {
			t.Errorf("%s: requests are off: %+v", name, e)
		}
		if w := r.Runs[0].Ran; w.Prompt < 500 || w.Prompt > 600 || w.Requests != 400 || w.Workers != 1 {
			t.Errorf("%s: the run is described as %+v", name, w)
		}
	}
}

// A client that is late now and then has no limit.
func TestLimitNeedsAFullClient(t *testing.T) {
	rs := simulated(t, server(), 300, 6, 0)
	for i := range rs {
		if i%5 == 0 {
			rs[i].Arrival -= 0.2
		}
	}
	if got := Limit(rs); got != 0 {
		t.Errorf("a limit of %d, expected none", got)
	}
}

func TestReport(t *testing.T) {
	rs := simulated(t, server(), 300, 10, 0)
	var runs []*Run
	for _, name := range []string{"a", "b", "c"} {
		run, err := New(name, rs, 0)
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, run)
	}
	slower := server()
	slower.Latency.Decode.BaseMs *= 1.1
	r, err := Compare(context.Background(), runs, slower, nil)
	if err != nil {
		t.Fatal(err)
	}
	if s := r.Summary[TPOTMean]; s.Runs != 3 || s.MedianAbsError < 0.04 || s.WorstAbsError < s.MedianAbsError {
		t.Errorf("a base 10 %% too slow: %+v", s)
	}
	var text, picture bytes.Buffer
	if err := r.WriteText(&text); err != nil || !strings.Contains(text.String(), "tpot_p99") {
		t.Errorf("%v: %s", err, text.String())
	}
	if err := r.Plot(&picture); err != nil || !strings.Contains(picture.String(), "<svg") {
		t.Errorf("%v: no picture", err)
	}
	var decoded struct {
		Summary map[string]struct {
			Runs   int
			Median float64 `json:"median_abs_error"`
			Worst  float64 `json:"worst_abs_error"`
		}
		Runs []struct{ Measured, Predicted, Error map[string]float64 }
	}
	data, err := json.Marshal(r)
	if err == nil {
		err = json.Unmarshal(data, &decoded)
	}
	for _, m := range Metrics {
		if decoded.Summary[string(m)].Runs != 3 {
			t.Errorf("%v: %s is not in the summary: %s", err, m, data)
		}
	}
	if len(decoded.Runs) != 3 || decoded.Runs[0].Measured["duration"] == 0 {
		t.Errorf("runs: %+v", decoded.Runs)
	}
	if in := r.Intervals().One(); in == nil || len(in.Bands) == 0 || in.Workload.Requests != 300 {
		t.Errorf("intervals: %+v", in)
	}
}

// A record that cannot be replayed is left out, with its reason.
func TestUsable(t *testing.T) {
	rs := simulated(t, server(), 20, 10, 0)
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
	run, err := New("x", rs, 0)
	if err != nil || len(run.Measured) != 12 {
		t.Errorf("%+v, %v", run, err)
	}
}

func TestFaults(t *testing.T) {
	ok := simulated(t, server(), 12, 10, 0)
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
		run, err := New("x", rs, 0)
		if err == nil {
			_, err = Compare(context.Background(), []*Run{run}, server(), nil)
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
	columns := map[validate.Quantity]string{
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
		if n := Limit(rs); n != limits[name] {
			t.Errorf("%s: a limit of %d, expected %d", name, n, limits[name])
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
