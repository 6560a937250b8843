package hour

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// matrix returns the answer of Prometheus to a range query of all metrics of the fleet, every 15 s.
func (f hidden) matrix(t testing.TB) []byte {
	t.Helper()
	const step, begin = 15.0, 1772373600.0
	type counter struct{ ends, values []float64 }
	counters := map[string]*counter{}
	count := func(at, v float64, name, instance, labels string) {
		key := fmt.Sprintf(`{"__name__":"%s","instance":"%s"%s}`, name, instance, labels)
		if counters[key] == nil {
			counters[key] = &counter{}
		}
		counters[key].ends, counters[key].values = append(counters[key].ends, at), append(counters[key].values, v)
	}
	const gateway = "gateway:9000"
	for _, r := range f.run(t) {
		adapter := fmt.Sprintf(`,"adapter":"%s"`, f.name(r.Adapter))
		both := fmt.Sprintf(`,"worker":"http://gpu%d:8000"%s`, r.WorkerLast, adapter)
		count(r.Finish, 1, "lorasim_gateway_requests_total", gateway, both+`,"code":"200","result":"complete"`)
		count(r.Finish, float64(r.Prompt), "lorasim_gateway_prompt_tokens_total", gateway, both)
		count(r.Finish, float64(r.Output), "lorasim_gateway_generation_tokens_total", gateway, both)
		for name, x := range map[string]float64{"first_byte_seconds": r.TTFT(), "request_duration_seconds": r.E2E()} {
			count(r.Finish, x, "lorasim_gateway_"+name+"_sum", gateway, adapter)
			count(r.Finish, 1, "lorasim_gateway_"+name+"_count", gateway, adapter)
			for le := 0.001; le < 200; le *= 2 {
				if x <= le {
					count(r.Finish, 1, "lorasim_gateway_"+name+"_bucket", gateway,
						adapter+fmt.Sprintf(`,"le":"%g"`, le))
				}
			}
			count(r.Finish, 1, "lorasim_gateway_"+name+"_bucket", gateway, adapter+`,"le":"+Inf"`)
		}
		worker := fmt.Sprintf("gpu%d:8000", r.WorkerLast)
		for le := 4.0; le <= 4096; le *= 2 {
			bucket := fmt.Sprintf(`,"le":"%g"`, le)
			if float64(r.Prompt) <= le {
				count(r.Finish, 1, "sglang:prompt_tokens_histogram_bucket", worker, bucket)
			}
			if float64(r.Output) <= le {
				count(r.Finish, 1, "sglang:generation_tokens_histogram_bucket", worker, bucket)
			}
		}
	}
	for i := range f.workers {
		worker := fmt.Sprintf("gpu%d:8000", i)
		count(0, 1, "lorasim_gateway_worker_up", gateway, fmt.Sprintf(`,"worker":"http://%s"`, worker))
		count(0, 1, "sglang:num_running_reqs", worker, "")
		count(0, 0, "sglang:num_queue_reqs", worker, "")
		count(0, float64(f.slots), "sglang:lora_pool_slots_total", worker, "")
		count(0, float64(f.kv(t)), "sglang:max_total_num_tokens", worker, "")
	}
	var result []string
	for _, key := range slices.Sorted(maps.Keys(counters)) {
		c := counters[key]
		var values []string
		for at := 0.0; at <= f.seconds+60; at += step {
			sum, seen := 0.0, false
			for i, end := range c.ends {
				if end <= at {
					sum, seen = sum+c.values[i], true
				}
			}
			if seen {
				values = append(values, fmt.Sprintf(`[%.0f,"%g"]`, begin+at, sum))
			}
		}
		if values != nil {
			result = append(result, fmt.Sprintf(`{"metric":%s,"values":[%s]}`, key, strings.Join(values, ",")))
		}
	}
	return []byte(`{"status":"success","data":{"resultType":"matrix","result":[` + strings.Join(result, ",") + `]}}`)
}

// drawnHour draws the hour of a fleet from its metrics.
func drawnHour(t testing.TB, f hidden) (*Hour, *Facts) {
	t.Helper()
	path := t.TempDir() + "/metrics.json"
	write(t, path, f.matrix(t))
	m, err := ReadMetrics(t.Context(), []string{path})
	if err != nil {
		t.Fatal(err)
	}
	h, err := FromMetrics(m, time.Time{}, time.Time{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := m.Facts(h.Span())
	if err != nil {
		t.Fatal(err)
	}
	return h, &facts
}

// explainMetrics explains the hour of a fleet by its metrics.
func explainMetrics(t testing.TB, f hidden) *Answer {
	t.Helper()
	h, facts := drawnHour(t, f)
	a, err := Explain(t.Context(), h, settings(t), Options{MaxError: 0.2, Draws: 4, Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// From metrics alone, the hour is drawn: its means are reproduced, and so is what a change really does.
func TestFromMetrics(t *testing.T) {
	f := common
	f.seconds = 900
	h, facts := drawnHour(t, f)
	want := f.run(t)
	if !h.Drawn || math.Abs(float64(len(h.Requests)-len(want))) > 5 || len(h.Adapters) != 36 || len(h.Workers) != 3 {
		t.Fatalf("%d requests of %d, %d adapters, %d workers", len(h.Requests), len(want), len(h.Adapters),
			len(h.Workers))
	}
	was, drawn := outcome(want), outcome(h.Requests)
	if math.Abs(drawn.TTFT/was.TTFT-1) > 0.01 || math.Abs(drawn.E2E/was.E2E-1) > 0.01 {
		t.Errorf("drawn %+v, measured %+v", drawn, was)
	}
	a, err := Explain(t.Context(), h, settings(t), Options{MaxError: 0.2, Draws: 2, Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Refused) > 0 || a.Policy != "static" || len(a.Proof.Rows) != deciding {
		t.Errorf("refused %q, policy %s, %+v", a.Refused, a.Policy, a.Proof.Rows)
	}
	f.workers++
	really := outcome(f.run(t))
	i := slices.IndexFunc(a.Changes, func(c Change) bool { return c.Text == "1 worker more" })
	if i < 0 {
		t.Fatalf("changes: %+v", a.Changes)
	}
	if got := a.Changes[i].Hour; math.Abs(got.TTFT/really.TTFT-1) > 0.25 || math.Abs(got.E2E/really.E2E-1) > 0.1 {
		t.Errorf("1 worker more: %+v, really %+v", got, really)
	}
}

// A counter that a scrape first shows was 0 at the scrape before. One that falls began at 0 again.
func TestIncrements(t *testing.T) {
	m := &Metrics{index: map[string]*series{}}
	for at, v := range []float64{math.NaN(), 5, 7, 7, 3} {
		err := cmp.Or(m.add("up", "gpu0", nil, point{100 + float64(at), 1}), m.add("n", "gpu0", nil,
			point{100 + float64(at), v}))
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []increment{{100, 101, 5}, {101, 102, 2}, {103, 104, 3}}
	if got := m.increments(m.index["n\x00gpu0"]); !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
}

// The lengths of an interval have the counted sum, and none exceeds the longest of the histogram.
func TestLengthsOf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	shape := []bucket{{0, 10, 1}, {10, 100, 8}, {100, 1000, 1}}
	for n := 1; n < 200; n *= 3 {
		sum := int32(0)
		for _, x := range lengthsOf(shape, n, 90*float64(n), rng) {
			if sum += x; x < 1 || x > 1000 {
				t.Errorf("length %d", x)
			}
		}
		if math.Abs(float64(sum)-90*float64(n)) > 1 {
			t.Errorf("%d lengths have a sum of %d", n, sum)
		}
	}
	if got := lengthsOf(nil, 1, 77, rng); !slices.Equal(got, []int32{77}) {
		t.Errorf("%v", got)
	}
}

func TestFromMetricsErrors(t *testing.T) {
	for want, files := range map[string]map[string]string{
		"neither an access log nor metrics of lorasim gateway": {"gpu0-1772373600.txt": sglangText},
		"the time of scrape gateway is unknown": {"gateway.txt": `lorasim_gateway_requests_total{adapter="a",` +
			`worker="w",code="200",result="complete"} 5` + "\n"},
		"expected several scrapes of the gateway": {"gateway-1772373600.txt": `lorasim_gateway_requests_total{` +
			`adapter="a",worker="w",code="200",result="complete"} 5` + "\n"},
	} {
		m, err := metricsOf(t, files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromMetrics(m, time.Time{}, time.Time{}, 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %s", err, want)
		}
	}
}
