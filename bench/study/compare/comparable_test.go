package compare

import (
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// values are the numbers of a run with a mean latency.
func values(requests, completed, set, e2e float64) []result.Value {
	return []result.Value{{Name: "requests", Value: requests}, {Name: "completed", Value: completed}, {
		Name: "rejected", Value: requests - completed,
	},
		{Name: "completed_set", Value: set}, {Name: "mean_e2e_latency_ms", Value: e2e}, {Name: "duration", Value: e2e}}
}

func compared(t *testing.T, runs ...*Run) *Table {
	t.Helper()
	tab, err := New(runs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// The run that rejects requests is faster with the rest: it is never the best,
// but among runs that completed the same requests there is one.
func TestOtherRequestsCompleted(t *testing.T) {
	one := []string{"1"}
	run := func(name string, v []result.Value) *Run { return FromValues(name, one, [][]result.Value{v}) }
	tab := compared(t, run("rejects", values(100, 10, 3, 5)), run("slow", values(100, 100, 7, 90)),
		run("fast", values(100, 100, 7, 80)))
	for _, m := range []string{"mean_e2e_latency_ms", "duration"} {
		c := tab.row(m).Cells
		if !c[0].Apart || c[0].Best || c[1].Apart || c[1].Best || c[2].Apart || !c[2].Best {
			t.Errorf("%s: %+v", m, c)
		}
	}
	if c := tab.row("rejected").Cells; c[0].Apart || c[0].Best || !c[1].Best || !c[2].Best {
		t.Errorf("rejected: %+v", c)
	}
	var b strings.Builder
	if err := tab.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"5 ≠ ", "*80", "≠ not comparable", "note: rejects: 90 % of its requests did not complete",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "completed_set") {
		t.Error("a fingerprint is no number to show")
	}

	tab = compared(t, run("a", values(100, 10, 3, 5)), run("b", values(100, 10, 3, 6)), run("c", values(100, 10, 4, 4)))
	if c := tab.row("mean_e2e_latency_ms").Cells; !c[0].Best || c[1].Best || c[1].Apart || !c[2].Apart || c[2].Best {
		t.Errorf("same and other tenths: %+v", c)
	}
}

// With several seeds the best is marked where the paired interval excludes 0.
func TestBestByIntervals(t *testing.T) {
	run := func(name string, e2e ...float64) *Run {
		var all [][]result.Value
		for _, x := range e2e {
			all = append(all, values(10, 10, 1, x))
		}
		return FromValues(name, []string{"1", "2", "3"}[:len(e2e)], all)
	}
	for _, c := range []struct {
		name        string
		a, b        *Run
		best, clear bool // of a
	}{
		{"always 10 less", run("a", 90, 190, 290), run("b", 100, 200, 301), true, true},
		{"less by a hair and by chance", run("a", 90, 205, 299), run("b", 100, 200, 300), false, false},
		{"one seed", run("a", 90), run("b", 100), true, false},
	} {
		got := compared(t, c.a, c.b).row("mean_e2e_latency_ms").Cells
		if got[0].Best != c.best || got[0].Clear != c.clear || got[1].Best || got[1].Clear {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// A TTFT near E2E is what overload looks like: whether the client streamed is
// what the result says.
func TestStreamingIsAFact(t *testing.T) {
	res := func(s record.Streaming, ttft float64) *result.Result {
		r := &result.Result{Meta: result.Meta{Source: result.Sim, Streamed: s}}
		r.Metrics.Set(result.MeanE2E, 1000)
		r.Metrics.Set(result.MeanTTFT, ttft)
		return r
	}
	for _, c := range []struct {
		overloaded record.Streaming
		apart      bool
	}{{record.Streamed, false}, {record.StreamingUnknown, false}, {record.NotStreamed, true}} {
		tab := compared(t, FromResult("over", res(c.overloaded, 990)), FromResult("calm", res(record.Streamed, 100)))
		cells := tab.row("mean_ttft_ms").Cells
		if cells[0].Apart != c.apart || cells[1].Apart || cells[1].Best == c.apart || (len(tab.Notes) > 0) != c.apart {
			t.Errorf("%q: %+v, %q", c.overloaded, cells, tab.Notes)
		}
		if tab.row("mean_e2e_latency_ms").Cells[0].Apart {
			t.Errorf("%q: E2E compares all the same", c.overloaded)
		}
	}
	both := compared(t, FromResult("a", res(record.NotStreamed, 990)), FromResult("b", res(record.NotStreamed, 900)))
	if c := both.row("mean_ttft_ms").Cells; c[0].Apart || !c[1].Best {
		t.Errorf("two that did not stream compare: %+v", c)
	}
}

// Lines of --output-file and records tell what was run, and how.
func TestLinesTellRunsApart(t *testing.T) {
	dir := t.TempDir()
	lines, records := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "r.csv")
	for _, policy := range []string{"static", "p2c"} {
		sc := scenario.Default()
		sc.Files = columnar.Files()
		sc.Workload.NumPrompts = settings.Some[int64](30)
		sc.Cluster.NumWorkers = settings.Some(2)
		sc.Client.NoStream = policy == "p2c"
		testutil.Set(t, &sc, "policy", policy)
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{RecordsFile: records})
		if err != nil {
			t.Fatal(err)
		}
		if policy == "p2c" {
			res.Source = result.Live
		}
		if err := res.AppendJSONL(lines, false); err != nil {
			t.Fatal(err)
		}
	}
	runs, _, err := Load(t.Context(), columnar.Files(), []string{lines, records}, result.SLO{})
	if err != nil || len(runs) != 3 {
		t.Fatal(runs, err)
	}
	for i, want := range []struct {
		source, what string
		streamed     record.Streaming
	}{
		{"sim", "lorasim, static, rate 10.0, num_prompts=30 num_workers=2", record.Streamed},
		{"live", "lorasim, p2c, rate 10.0, num_prompts=30 num_workers=2 no_stream=true", record.NotStreamed},
		{"records", "request records", record.NotStreamed},
	} {
		if r := runs[i]; r.Source != want.source || r.What != want.what || r.Streamed != want.streamed {
			t.Errorf("%s, %s, streamed %q; want %+v", r.Source, r.What, r.Streamed, want)
		}
	}
}
