package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

// The duration of a run is that of its window, or, without one, the time of its
// last reply.
func TestDurationOfRun(t *testing.T) {
	for _, window := range []float64{0, 7} {
		sc := Default()
		sc.Workload.NumPrompts, sc.Workload.Window, sc.Workload.RequestRate = settings.Some[int64](40), window, 2
		res, err := sc.Simulate(t.Context(), RunOptions{KeepRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		want := window
		for i := range res.Records {
			if window == 0 {
				want = max(want, res.Records[i].Finish)
			}
		}
		if got, _ := res.Metrics.Get(result.Duration); got < want-1e-6 || got > want+1e-6 {
			t.Errorf("window %v: %v s, expected %v", window, got, want)
		}
	}
}

// The file of plans has a line for each plan made.
func TestPlansFile(t *testing.T) {
	sc := Default()
	sc.Workload.NumPrompts = settings.Some[int64](300)
	testutil.Set(t, &sc, "policy", "plan-and-route")
	path := filepath.Join(t.TempDir(), "plans.jsonl")
	res, err := sc.Simulate(t.Context(), RunOptions{PlansFile: path})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil || res.Extra.SolverRuns == 0 || int64(strings.Count(string(data), "\n")) != res.Extra.SolverRuns {
		t.Errorf("%v, %d plans made, file:\n%s", err, res.Extra.SolverRuns, data)
	}
	if _, err := sc.Simulate(t.Context(), RunOptions{PlansFile: filepath.Join(path, "x")}); err == nil {
		t.Error("a file within a file")
	}
}

// A workload without a request is told of before anything runs.
func TestFirst(t *testing.T) {
	const head = "id,arrival_s,adapter,prompt_tokens,output_tokens\n"
	sc := Default()
	sc.Workload.File = testutil.File(t, "w.csv", head)
	if _, err := sc.First(t.Context()); err == nil || !strings.Contains(err.Error(), "w.csv: empty workload") {
		t.Error(err)
	}
	sc.Workload.File = testutil.File(t, "w.csv", head+"0,0.5,0,10,5\n1,1,0,10,5\n")
	w, err := sc.First(t.Context())
	if err != nil || len(w.Requests) != 1 || w.Requests[0].Arrival != 0.5 {
		t.Fatalf("%+v, %v", w, err)
	}
	if err := sc.Check(t.Context(), w); err != nil {
		t.Error(err)
	}
	sc.Workload.File = testutil.File(t, "w.csv", head+"0,0.5,0,ten,5\n")
	if _, err := sc.First(t.Context()); err == nil || !strings.Contains(err.Error(), "w.csv") {
		t.Error(err)
	}
}

// Function traces: counts per minute are drawn anew at their rates, times of
// invocations are kept where that is asked for.
func TestFunctionTraces(t *testing.T) {
	var v1 strings.Builder
	v1.WriteString("HashOwner,HashApp,HashFunction,Trigger")
	for m := 1; m <= 1440; m++ {
		fmt.Fprintf(&v1, ",%d", m)
	}
	v1.WriteString("\no,a,f,http" + strings.Repeat(",3", 1440) + "\n")
	v2 := "app,func,end_timestamp,duration\na,f,10.5,0.5\na,g,20,1\na,f,40,10\n"
	for _, c := range []struct{ name, text, replay string }{
		{"azure_v1", v1.String(), "rates"}, {"azure_v2", v2, "rates"}, {"azure_v2", v2, "vanilla"},
	} {
		w, in, err := opened(t, func(w *Workload) {
			w.TraceName, w.TracePath, w.TraceReplay, w.NumAdapters, w.TraceTotalRate = c.name,
				testutil.File(t, "t.csv", c.text), c.replay, settings.Some(1), 0
		})
		if err != nil || in.Dataset != c.name || len(w.Requests) == 0 {
			t.Errorf("%s, %s: %v", c.name, c.replay, err)
			continue
		}
		if c.replay == "vanilla" && (len(w.Requests) != 3 || w.Requests[1].Arrival-w.Requests[0].Arrival != 9) {
			t.Errorf("began at 10, 19 and 30: %+v", w.Requests)
		}
	}
	if _, _, err := opened(t, func(w *Workload) {
		w.TraceName, w.TracePath, w.TraceReplay = "azure_v1", testutil.File(t, "t.csv", v1.String()), "vanilla"
	}); err == nil || !strings.Contains(err.Error(), "azure_v1 does not hold; use azure_v2") {
		t.Error(err)
	}
}
