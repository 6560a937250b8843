package sweep

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// other is for each setting that Unused may name a value that is not the default.
var other = map[string]string{"routing.view_staleness": "3", "routing.known_outputs": "true",
	"routing.migration_interval":      "0.7",
	"routing.migration_req_threshold": "2", "routing.request_migration": "none", "routing.solver": "embedded"}

func outcome(t *testing.T, sc *scenario.Scenario) string {
	t.Helper()
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	// the settings differ; what happened must not
	res.Config, res.Scenario = nil, result.Scenario{}
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A setting that a policy is said not to use changes no byte of the result, with
// queues, evictions and moves. One that it uses changes the result of some policy.
func TestUnusedSettingsChangeNothing(t *testing.T) {
	base := scenario.Default()
	w := &base.Workload
	w.NumPrompts, w.RequestRate = settings.Some[int64](250), 40
	testutil.Set(t, &base, "arrivals", "gamma:3")
	base.Cluster.NumWorkers = settings.Some(3)
	base.Cluster.Engine.MaxLorasPerBatch = 4
	base.Cluster.Engine.MaxLoadedLoras = 12
	claims, used := 0, map[string]bool{}
	var specs []string
	for _, d := range router.List() {
		switch d.Name {
		case "explicit":
			d.Name += ":map=0-9@0,10@1+2,rest@all"
		case "script":
			d.Name += ":file=../../../scenarios/policies/affinity-spill.star"
		}
		specs = append(specs, d.Name)
	}
	for _, spec := range append(specs, "plan-and-route:interval=2", "dlora_period_mig:threshold=4,interval=1") {
		sc := base
		testutil.Set(t, &sc, "policy", spec)
		is := outcome(t, &sc)
		unused := sc.Unused()
		for key, value := range other {
			changed := sc
			if err := changed.Set(key, value); err != nil {
				t.Fatal(err)
			}
			same := outcome(t, &changed) == is
			if slices.Contains(unused, key) {
				if claims++; !same {
					t.Errorf("%s is said not to use %s, but %s changes its result", spec, key, value)
				}
			}
			used[key] = used[key] || !same
		}
	}
	if claims < 80 {
		t.Errorf("%d claims were tried, expected at least 80", claims)
	}
	delete(other, "routing.solver") // the other one may not be built in
	for key := range other {
		if !used[key] {
			t.Errorf("%s changes no policy's result: the test is too weak", key)
		}
	}
}

func TestSignalsCount(t *testing.T) {
	sc := scenario.Default()
	testutil.Set(t, &sc, "policy", "static")
	if !slices.Contains(sc.Unused(), "routing.view_staleness") {
		t.Error("static looks at signals")
	}
	for key, value := range map[string]string{
		"outages": "0@1-2", "shed": "queue:3", "elastic": "min=1,max=2,target=4",
	} {
		c := sc
		if err := c.Set(key, value); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(c.Unused(), "routing.view_staleness") ||
			slices.Contains(c.Unused(), "routing.known_outputs") {
			t.Errorf("with %s %s signals count", key, value)
		}
	}
}

func sharedSpec(t *testing.T, sets ...string) *Spec {
	t.Helper()
	s := smallSpec(t, append([]string{"migration_interval=1,4", "policy=static,plan-and-route,p2c"}, sets...)...)
	s.SeedCount, s.Scenario.Workload.NumPrompts = 2, settings.Some[int64](60)
	return s
}

// 2 rates, 2 intervals, 2 seeds: static and p2c do not plan, so that their cells
// with the second interval share the run of the first.
func TestSharedCellsRunOnce(t *testing.T) {
	d := create(t, sharedSpec(t))
	if len(d.Cells) != 24 || d.Shared() != 8 {
		t.Fatalf("%d cells, %d share", len(d.Cells), d.Shared())
	}
	ran := map[string]bool{}
	for _, shard := range []Shard{{2, 3}, {0, 3}, {1, 3}} {
		for _, path := range newFiles(t, d, func() { runAll(t, d, RunOptions{Shard: shard}) }) {
			if ran[path] {
				t.Errorf("%s ran twice", path)
			}
			ran[path] = true
		}
	}
	if len(ran) != 16 {
		t.Errorf("%d cells ran, expected 16", len(ran))
	}
	if sum := runAll(t, d, RunOptions{}); sum.Ran != 0 || sum.Kept != 16 || sum.Shared != 8 {
		t.Errorf("%+v", sum)
	}
	tables, err := d.Merge(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s := d.Status(); s.Done != 24 || s.Shared != 8 {
		t.Errorf("%+v", s)
	}
	merged := filepath.Join(d.Path, "cells.csv")
	runs, cells := readColumn[int64](t, merged, "run_of_cell"), readColumn[int64](t, merged, "cell")
	for i, c := range d.Cells {
		want := int64(i)
		if c.Policy != "plan-and-route" && c.Values[1] == "4" {
			want -= 6
		}
		if cells[i] != int64(i) || runs[i] != want {
			t.Errorf("cell %d (%s) has the run of %d, expected %d", i, d.Describe(&c), runs[i], want)
		}
		// and that is what the cell's own scenario gives
		if sc, err := d.ScenarioOf(&c); err != nil {
			t.Fatal(err)
		} else if res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: d.SLO()}); err != nil {
			t.Fatal(err)
		} else if r, err := d.ReadCell(&c); err != nil ||
			r.Value("mean_e2e_latency_ms") != result.ValueOf(result.Values(res), "mean_e2e_latency_ms") {
			t.Errorf("cell %d: %v, %v", i, r, err)
		}
	}
	var text strings.Builder
	if err := d.WriteText(&text, tables, result.SweepDefaults()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(),
		"static, p2c: no effect of migration_interval; one run serves all its values") {
		t.Errorf("%s", text.String())
	}
}

// newFiles lists the cell files that f writes.
func newFiles(t *testing.T, d *Dir, f func()) (names []string) {
	t.Helper()
	before := files(t, filepath.Join(d.Path, cellsDir))
	f()
	for name := range files(t, filepath.Join(d.Path, cellsDir)) {
		if _, ok := before[name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// A sweep of a version that ran each cell by itself is complete, whichever of the
// files are left; its failures count for all that share.
func TestSharedCellsOfOlderSweeps(t *testing.T) {
	d := create(t, sharedSpec(t))
	for i := range d.Cells { // as that version did
		c := &d.Cells[i]
		res, lat, err := d.simulate(t.Context(), &job{cell: c})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.writeCell(c, res, lat); err != nil {
			t.Fatal(err)
		}
	}
	for i := range d.Cells {
		if c := &d.Cells[i]; d.Runs(c) == i && d.sharing(c) != nil {
			if err := os.Remove(d.cellPath(c)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s := d.Status(); s.Done != 24 {
		t.Fatalf("%+v", s)
	}
	if sum := runAll(t, d, RunOptions{}); sum.Ran != 0 || sum.Kept != 16 {
		t.Errorf("%+v", sum)
	}
	// now without any of static's first seed at the first rate, and one has failed
	for _, i := range d.sharing(&d.Cells[0]) {
		_ = os.Remove(d.cellPath(&d.Cells[i]))
	}
	if err := d.writeFailure(&d.Cells[6], os.ErrInvalid); err != nil {
		t.Fatal(err)
	}
	if s := d.Status(); s.Done != 22 || len(s.Failed) != 2 {
		t.Errorf("%+v", s)
	}
	if sum := runAll(t, d, RunOptions{Retry: true}); sum.Ran != 1 || len(sum.Failed) != 0 {
		t.Errorf("%+v", sum)
	}
	if s := d.Status(); s.Done != 24 {
		t.Errorf("%+v", s)
	}
}

// A value that comes before those that ran does not make them run again.
func TestSharedCellsGrow(t *testing.T) {
	d := create(t, sharedSpec(t))
	runAll(t, d, RunOptions{})
	d = goOn(t, d.Path, sharedSpec(t, "migration_interval=0.5,4"))
	if !slices.Equal(d.Axes[1].Values, []string{"0.5", "1", "4"}) || d.Shared() != 16 {
		t.Fatalf("%v, %d share", d.Axes[1].Values, d.Shared())
	}
	if sum := runAll(t, d, RunOptions{}); sum.Ran != 4 || sum.Kept != 16 { // plan-and-route at 0.5
		t.Errorf("%+v", sum)
	}
	if s := d.Status(); s.Done != 36 {
		t.Errorf("%+v", s)
	}
}

// The folder of a sweep from before engines' keys had a section of their own is refused, with the key's new place.
func TestSweepOfAnOlderVersion(t *testing.T) {
	_, err := Open(columnar.Files(), "testdata/v1")
	testutil.ExpectError(t, err, `unknown key "cluster.scheduler", did you mean "cluster.engine.scheduler"?`)
}

// A policy has the same cells by each of its names.
func TestHashOfRenamedPolicy(t *testing.T) {
	was := smallSpec(t, "policy=static,period_mig:interval=5,busy=0")
	is := smallSpec(t, "policy=static,plan-and-route:interval=5,busy=0")
	was.Baseline = "period_mig:interval=5,busy=0"
	is.Baseline = "plan-and-route:interval=5,busy=0"
	a, b := create(t, was).Manifest, create(t, is).Manifest
	if a.Hash != b.Hash || !reflect.DeepEqual(a.Cells, b.Cells) || a.Cells[len(a.Seeds)].Policy != is.Baseline {
		t.Errorf("%+v\n%+v", a, b)
	}
	_, err := ParseSet("policy=static,period_mig,plan-and-route")
	testutil.ExpectError(t, err, `"plan-and-route" is given twice`)
}

// A profile has the same hash by each of its names, alone and in a list.
func TestHashOfProfileAlias(t *testing.T) {
	m := create(t, smallSpec(t, "policy=static")).Manifest
	path := func(p string) string { return p }
	hash := func(list string) string {
		sc := scenario.Default()
		testutil.Set(t, &sc, "profile", list)
		return m.hash(&sc, path)
	}
	for was, is := range map[string]string{
		"llama2-7b-24gb":                      "llama-2-7b-rtx-4090-sglang-0.5",
		"llama2-7b-24gb*2,qwen-2.5-7b-h100*1": "llama-2-7b-rtx-4090-sglang-0.5*2,qwen2.5-7b-h100-64gb-vllm-0.8.5*1",
	} {
		if hash(was) != hash(is) {
			t.Errorf("%s and %s have different hashes", was, is)
		}
	}
	if hash("llama2-7b-24gb") == hash("qwen3-14b-h100") {
		t.Error("two profiles have the same hash")
	}
}

// A setting that is added gets a hash of its own only where it is not at its default.
func TestHashesOfLaterSettings(t *testing.T) {
	later := 0
	for _, f := range scenario.Fields() {
		if !slices.Contains(hashed, f.Key) {
			later++
		}
	}
	if len(hashed) != 96 || later == 0 {
		t.Errorf("%d settings in every hash, %d added later", len(hashed), later)
	}
	m := &Manifest{}
	path := func(p string) string { return p }
	a, b := scenario.Default(), scenario.Default()
	testutil.Set(t, &b, "warmup", "5")
	if m.hash(&a, path) == m.hash(&b, path) {
		t.Error("a warm-up does not change the hash")
	}
}
