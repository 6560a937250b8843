package scenario

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// windowed is an overloaded worker that is watched for 20 s.
func windowed() Scenario {
	sc := Default()
	sc.Workload.NumAdapters, sc.Workload.RequestRate, sc.Workload.Window = settings.Some(4), 40, 20
	sc.Cluster.NumWorkers = settings.Some(1)
	sc.Routing.Policy = as[policyText]("static")
	return sc
}

// TestWindowedRun: the figures of a run with a window are those of its completed
// requests, over the length of the window, and every request has a record.
func TestWindowedRun(t *testing.T) {
	sc := windowed()
	file := filepath.Join(t.TempDir(), "r.csv")
	res, err := sc.Simulate(context.Background(), RunOptions{RecordsFile: file, KeepRecords: true})
	if err != nil {
		t.Fatal(err)
	}
	var n, completed, tokens, unfinished int64
	sum := 0.0
	for _, r := range res.Records {
		n++
		if r.Finish > 20 || r.Arrival >= 20 {
			t.Fatalf("a request came at %v s and ended at %v s, the window is 20 s", r.Arrival, r.Finish)
		}
		switch r.Status {
		case record.OK:
			completed++
			tokens += int64(r.Prompt) + int64(r.Output)
			sum += r.TTFT()
		case record.Unfinished:
			unfinished++
		}
	}
	if math.Abs(float64(n)-800) > 150 || completed < 20 || unfinished < 100 || completed+unfinished != n {
		t.Fatalf("%d requests, %d completed, %d unfinished; expected about 800, some of each", n, completed, unfinished)
	}
	for metric, want := range map[result.ID]float64{
		result.Duration: 20, result.Completed: float64(completed), result.TotalThroughput: float64(tokens) / 20,
		result.MeanTTFT: 1000 * sum / float64(completed),
	} {
		if got, _ := res.Metrics.Get(metric); math.Abs(got/want-1) > 1e-6 {
			t.Errorf("%v is %v, expected %v", metric, got, want)
		}
	}
	if res.Extra.Unfinished != unfinished || res.Extra.Requests != n {
		t.Errorf("the result tells of %d unfinished of %d, expected %d of %d", res.Extra.Unfinished, res.Extra.Requests,
			unfinished, n)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := int64(strings.Count(string(b), "\n")) - 1; lines != n ||
		strings.Count(string(b), ",unfinished,") != int(unfinished) {
		t.Errorf("the file of records has %d rows, expected %d, %d of them unfinished", lines, n, unfinished)
	}
}

// TestMaxInFlightFail: with a limit of requests in flight some fail, and no more
// than the limit are unfinished.
func TestMaxInFlightFail(t *testing.T) {
	sc := windowed()
	sc.Client.MaxInFlightFail = 50
	res, err := sc.Simulate(context.Background(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n := res.Extra.Unfinished; n > 50 || n < 45 || res.Extra.Failed < 100 {
		t.Errorf("%d unfinished and %d failed, expected at most 50 (nearly all of them) and many", res.Extra.Unfinished,
			res.Extra.Failed)
	}
}

// TestCompatVLLMLora: the adapters' rates are the total rate times their shares.
func TestCompatVLLMLora(t *testing.T) {
	sc := windowed()
	sc.Workload.Compat, sc.Workload.RequestRate, sc.Workload.Window = "vllm-lora", 5, 2000
	testutil.Set(t, &sc, "popularity", "explicit:1,2,3,4")
	in, err := sc.OpenWorkload(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(in)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]float64, 4)
	for _, r := range w.Requests {
		counts[r.Adapter]++
		if r.Prompt < 1 || r.Output < 1 {
			t.Fatalf("request %d has no lengths", r.ID)
		}
	}
	for i, n := range counts {
		want := 1000 * float64(i+1)
		if math.Abs(n-want) > 4*math.Sqrt(want) {
			t.Errorf("adapter %d has %v requests, expected about %v", i, n, want)
		}
	}
	if !slices.IsSortedFunc(w.Requests, func(a, b trace.Request) int { return int(1e9 * (a.Arrival - b.Arrival)) }) {
		t.Error("arrivals are not in order")
	}
	sc.Workload.NumPrompts, sc.Workload.Window = settings.Optional[int64]{}, 0
	if in, err = sc.OpenWorkload(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	if n := in.Source.Len(); n != defaultPrompts {
		t.Errorf("%d requests without a window, expected %d", n, defaultPrompts)
	}
}

func TestBadWindows(t *testing.T) {
	for want, change := range map[string]func(*Workload){
		`window: "-1" is not a number from 0`:     func(w *Workload) { w.Window = -1 },
		`window: "inf" is not a number`:           func(w *Workload) { w.Window = math.Inf(1) },
		`did you mean "vllm-lora"?`:               func(w *Workload) { w.Compat = "vllm-lor" },
		"compat vllm-lora generates its requests": func(w *Workload) { w.Compat, w.TracePath = "vllm-lora", "x" },
		"popularity: ": func(w *Workload) {
			w.Compat, w.Popularity = "vllm-lora",
				as[popularityText]("explicit:1,2")
		},
		"rate of adapter 0 is +Inf": func(w *Workload) {
			w.Compat, w.RequestRate = "vllm-lora",
				math.Inf(1)
		},
	} {
		sc := windowed()
		change(&sc.Workload)
		if _, err := sc.OpenWorkload(context.Background(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, expected one with %q", err, want)
		}
	}
}
