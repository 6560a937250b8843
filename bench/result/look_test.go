package result

import (
	"bytes"
	"strings"
	"testing"

	"lorasim/bench/steady"
	"lorasim/sim/record"
)

// A first look by hand.
func TestLook(t *testing.T) {
	r := &Result{Extra: &Extra{}, Steady: &steady.Assessment{
		State: steady.Steady, OfferedRate: 9.712,
		Intervals: []steady.Interval{{Metric: "mean_ttft_ms", Low: 62.59, High: 77.26}},
	}}
	for id, v := range map[ID]float64{MeanTTFT: 70.11, P99TTFT: 223.47, MeanE2E: 3133.8, P99E2E: 1234567,
		RequestThroughput: 9.01, OutputThroughput: 1351.9} {
		r.Metrics.Set(id, v)
	}
	r.Extra.SetPlans(&record.PlanCounters{Made: 23, Applied: 4, Loads: 27, Moves: map[string]int64{"queued": 1}})
	want := `
State     steady, 9.71 requests/s offered
TTFT      mean 70.1 ms (95 % interval 62.6 ms to 77.3 ms), P99 223 ms
E2E       mean 3.13 s, P99 1235 s
Rates     9.01 requests/s, 1352 output tokens/s
Plans     23 made, 4 applied; 27 adapters loaded and 0 unloaded by them, 1 request moved
Waits     for a bus
Next      ` + strings.Repeat("word ", 30) + "end\n"
	var b bytes.Buffer
	err := r.WriteLook(&b, LookLine{Label: "Waits", Text: "for a bus"}, LookLine{Label: "Nothing"},
		LookLine{"Next", strings.Repeat("word ", 30) + "end", true})
	if err != nil || b.String() != want {
		t.Errorf("%v:\n%s", err, b.String())
	}
	for _, c := range []struct {
		plans record.PlanCounters
		want  string
	}{
		{record.PlanCounters{}, ""},
		{record.PlanCounters{Made: 3, Idle: []record.Idle{{Reason: "stay: no gain", Count: 2}, {Count: 1}}},
			"3 made, 0 applied; 3 times nothing to change (most often: stay: no gain)"},
		{record.PlanCounters{Idle: []record.Idle{{Reason: "no worker is full", Count: 9}}},
			"0 made, 0 applied; 9 times nothing to change (most often: no worker is full)"},
		{record.PlanCounters{Made: 3, Dropped: 2}, "3 made, 0 applied; 2 came too late to be carried out"},
	} {
		if r.Extra.SetPlans(&c.plans); r.plansText() != c.want {
			t.Errorf("%+v: %s", c.plans, r.plansText())
		}
	}
	r.Steady = &steady.Assessment{
		State: steady.Overloaded, OfferedRate: 1500, SustainableRate: 12, Reason: "the queue grows",
	}
	if got := r.stateText(); got != "overloaded, 1500 requests/s offered, 12 sustainable: the queue grows" {
		t.Error(got)
	}
}
