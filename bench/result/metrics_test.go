package result

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// The table has exactly the numbers that a result has: those of a run, of a worker and of an adapter.
func TestTableIsTheResult(t *testing.T) {
	in := map[string]bool{SteadyStateName: true}
	add := func(prefix string, values []Value) {
		for _, v := range values {
			in[prefix+v.Name] = true
		}
	}
	of := func(x any) []Value { return flatten(nil, "", reflect.ValueOf(x), true) }
	for id := range NumMetrics {
		in[id.String()] = true
	}
	add("", of(Extra{}))
	add("", steadyValues(&steady.Assessment{OfferedRate: 2, SustainableRate: 1, Needed: 1}))
	add(adaptersPrefix, of(AdapterStats{}))
	for _, v := range of(WorkerStats{}) {
		if !in[v.Name] || byName[workersPrefix+v.Name] != nil { // totals of the run have one entry
			in[workersPrefix+v.Name] = true
		}
	}
	n := 0
	for _, g := range groups() {
		for i := range g.Metrics {
			m := &g.Metrics[i]
			if n++; !in[m.Name] {
				t.Errorf("no number is called %s", m.Name)
			}
			if m.Help == "" || m.Title == "" || byName[m.Name] != m {
				t.Errorf("%s: no help, no title, or twice in the table", m.Name)
			}
			delete(in, m.Name)
		}
	}
	for name := range in {
		t.Errorf("the table lacks %s", name)
	}
	if n < 100 {
		t.Errorf("%d metrics", n)
	}
}

// Rules that hold for all metrics of a kind.
func TestTableRules(t *testing.T) {
	for _, g := range groups() {
		for i := range g.Metrics {
			m := &g.Metrics[i]
			if m.Unit == "ms" && m.ofRun() && (m.Better != stats.Lower || !m.NeedsSteady || m.AllRequests) {
				t.Errorf("%s is a latency: lower is better, in a steady state, of successful requests", m.Name)
			}
			if m.ofRun() && (m.Unit == "ms") != strings.HasSuffix(m.Name, "_ms") {
				t.Errorf("%s has unit %q", m.Name, m.Unit)
			}
			good := g.Title == "Goodput"
			if strings.HasPrefix(m.Name, "goodput.") != good || good && !m.NeedsSteady {
				t.Errorf("%s is in group %s", m.Name, g.Title)
			}
			if (m.Compare || m.Sweep > 0) && (m.Hidden || !m.ofRun()) {
				t.Errorf("%s is a default and not shown", m.Name)
			}
		}
	}
	if got := SweepDefaults(); !slices.Equal(got, []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms",
		"p99_ttft_ms", "output_throughput"}) {
		t.Errorf("columns of a sweep: %q", got)
	}
	for _, name := range KnownValues() {
		if strings.HasPrefix(name, workersPrefix) || MetricOf(name).Hidden {
			t.Errorf("%s is no known value", name)
		}
	}
}

// A number that the table lacks has a title all the same.
func TestTitleOfUnknown(t *testing.T) {
	for name, want := range map[string]string{"old_time_s": "Old time (s)", "plans.old": "Plans old", "": "",
		"mean_ttft_ms": "Mean TTFT (ms)"} {
		if got := MetricOf(name).Title; got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
