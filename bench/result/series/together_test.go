package series

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// observed is what the observers of a run made of it.
type observed struct {
	series         *Series
	oracle         any
	plans, records []byte
}

// observe runs a scenario with the observers asked for.
func observe(t *testing.T, watch, oracle, plans, records bool) observed {
	t.Helper()
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](400)
	sc.Workload.RequestRate = 8
	sc.Cluster.NumWorkers = settings.Some(4)
	testutil.Set(t, &sc, "policy", "plan-and-route:interval=5")
	dir := t.TempDir()
	o := scenario.RunOptions{Oracle: oracle}
	rec := NewRecorder(sc.Cluster.NumWorkers.Value)
	if watch {
		o.Watch = rec.Watching
	}
	if plans {
		o.PlansFile = filepath.Join(dir, "plans.jsonl")
	}
	if records {
		o.RecordsFile = filepath.Join(dir, "r.csv")
	}
	res, err := sc.Simulate(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	out := observed{oracle: res.Extra.Oracle}
	if watch {
		out.series = rec.Series()
	}
	read := func(path string) []byte {
		if path == "" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			t.Fatal(path, err)
		}
		return data
	}
	out.plans, out.records = read(o.PlansFile), read(o.RecordsFile)
	return out
}

// A watcher, the oracle, plans and records together see what each sees alone.
func TestObserversTogether(t *testing.T) {
	all := observe(t, true, true, true, true)
	alone := observe(t, true, false, false, false).series
	if !reflect.DeepEqual(alone, all.series) {
		t.Error("the series differ")
	}
	busy := 0.0
	for _, w := range all.series.Workers {
		for _, r := range w.Running {
			busy += r
		}
	}
	if busy == 0 || len(all.series.Plans) == 0 {
		t.Error("the series saw nothing")
	}
	if d := cmp.Diff(observe(t, false, true, false, false).oracle, all.oracle); d != "" || all.oracle == nil {
		t.Errorf("oracle (-alone +together):\n%s", d)
	}
	if !bytes.Equal(observe(t, false, false, true, false).plans, all.plans) {
		t.Error("plans differ")
	}
	if !bytes.Equal(observe(t, false, false, false, true).records, all.records) {
		t.Error("records differ")
	}
}

// Hooks with one function alone observe, and hooks with none do no harm.
func TestHooksOfOneFunction(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](5)
	ends := 0
	for _, h := range []record.Watcher{{}, record.WatchEnds(func(*record.Request) { ends++ })} {
		if _, err := sc.Simulate(t.Context(),
			scenario.RunOptions{Watch: func([]trace.Adapter) record.Watcher { return h }}); err != nil {
			t.Fatal(err)
		}
	}
	if ends != 5 {
		t.Errorf("saw %d requests end, expected 5", ends)
	}
}
