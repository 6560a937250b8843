package sweep

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/table"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

func smallSpec(t *testing.T, sets ...string) *Spec {
	t.Helper()
	s := &Spec{Name: "small", Scenario: scenario.Default(), SeedCount: 3, Grid: Grid{Goodput: "ttft:200"}}
	s.Scenario.Files, s.Scenario.Workload.NumPrompts = columnar.Files(), settings.Some[int64](150)
	s.Scenario.Cluster.NumWorkers = settings.Some(2)
	for _, text := range append([]string{"request_rate=5,20", "policy=static,least-loaded"}, sets...) {
		a, err := ParseSet(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Add(a); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func create(t *testing.T, s *Spec) *Dir {
	t.Helper()
	m, err := s.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Create(filepath.Join(t.TempDir(), "out"), m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func runAll(t *testing.T, d *Dir, o RunOptions) *Summary {
	t.Helper()
	sum, err := d.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// files returns all files below a folder.
func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		out[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readColumn reads a column of a table of any columns.
func readColumn[T any](t *testing.T, path, name string) (values []T) {
	t.Helper()
	var cell T
	r, err := table.Open(t.Context(), path, []table.Column{{Name: name, Value: &cell, Nullable: true}},
		table.Options{Files: table.Files(columnar.Files())})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for err = r.Read(); err == nil; err = r.Read() {
		values = append(values, cell)
	}
	if !errors.Is(err, io.EOF) || len(values) == 0 {
		t.Fatalf("%s: %d values of %s: %v", path, len(values), name, err)
	}
	return values
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	fa, fb := files(t, a), files(t, b)
	for name := range fb {
		if _, ok := fa[name]; !ok {
			t.Errorf("only the second folder has %s", name)
		}
	}
	for name, data := range fa {
		if !bytes.Equal(data, fb[name]) {
			t.Errorf("%s differs", name)
		}
	}
}

// A cell holds what the simulator gives for its scenario, though it shares its
// workload with others.
func TestCellIsSimulation(t *testing.T) {
	d := create(t, smallSpec(t))
	runAll(t, d, RunOptions{})
	tables, err := d.Merge(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(d.Path, "cells.parquet")
	if rows := readColumn[int64](t, merged, "cell"); len(rows) != 12 || rows[11] != 11 {
		t.Fatal(rows)
	}
	seen := map[string][]float64{}
	for i := range d.Cells {
		c := &d.Cells[i]
		sc, err := d.ScenarioOf(c)
		if err != nil {
			t.Fatal(err)
		}
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{SLO: d.SLO(), KeepRecords: true})
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.ReadCell(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range result.Values(res) {
			if got.Value(v.Name) != v.Value {
				t.Errorf("cell %d: %s is %v, the simulator says %v", i, v.Name, got.Value(v.Name), v.Value)
			}
			if v.Name == result.SteadyStateName { // a word in the merged table
				continue
			}
			if seen[v.Name] == nil {
				seen[v.Name] = readColumn[float64](t, merged, v.Name)
			}
			if x := seen[v.Name][i]; x != v.Value {
				t.Errorf("cell %d: %s is %v in the merged table", i, v.Name, x)
			}
		}
		// the quantiles are those of the records, to the width of a bin
		slowest := 0.0
		for k := range res.Records {
			slowest = max(slowest, 1000*res.Records[k].E2E())
		}
		if q := got.E2E[len(got.E2E)-1]; math.Abs(q-slowest) > 0.005*slowest {
			t.Errorf("cell %d: the largest latency is %v ms, expected %v", i, q, slowest)
		}
	}
	if res := tables.Points[0]; res.Policy != "static" || len(tables.Points) != 4 {
		t.Error(res.Policy, len(tables.Points))
	}
}

// Common random numbers: requests of a seed are the same for every policy.
func TestSameRequestsForEveryPolicy(t *testing.T) {
	d := create(t, smallSpec(t))
	runAll(t, d, RunOptions{})
	for first := 0; first < len(d.Cells); first += 6 {
		for seed := range 3 {
			a, err1 := d.ReadCell(&d.Cells[first+seed])
			b, err2 := d.ReadCell(&d.Cells[first+3+seed])
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			if a.Value("total_input_tokens") != b.Value("total_input_tokens") {
				t.Errorf("seed %d: the policies saw other requests", seed)
			}
			if a.Value("mean_e2e_latency_ms") == b.Value("mean_e2e_latency_ms") {
				t.Errorf("seed %d: both policies did the same", seed)
			}
		}
	}
}

// However a sweep is cut up and interrupted, its files are the same.
func TestInterruptedAndShardedIsSame(t *testing.T) {
	whole := create(t, smallSpec(t))
	runAll(t, whole, RunOptions{Jobs: 1})
	if _, err := whole.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}

	stopped := create(t, smallSpec(t))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := stopped.Run(ctx, RunOptions{Jobs: 3, Progress: func(done, _, _ int) {
		if done == 4 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	var incomplete *incompleteError
	if _, err := stopped.Merge(MergeOptions{}); !errors.As(err, &incomplete) || incomplete.Done < 4 ||
		incomplete.Done > 6 {
		t.Fatal(err)
	}
	left := filepath.Join(stopped.Path, cellsDir, ".000007.parquet.123.tmp")
	if err := os.WriteFile(left, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := Open(columnar.Files(), stopped.Path)
	if err != nil {
		t.Fatal(err)
	}
	sum := runAll(t, again, RunOptions{})
	if sum.Kept != incomplete.Done || sum.Ran+sum.Kept != 12 {
		t.Errorf("%+v", sum)
	}
	if _, err := again.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, whole.Path, stopped.Path)

	sharded := create(t, smallSpec(t))
	ran := 0
	for i := range 5 {
		ran += runAll(t, sharded, RunOptions{Shard: Shard{i, 5}}).Ran
	}
	if ran != 12 {
		t.Errorf("the shards ran %d cells", ran)
	}
	if _, err := sharded.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, whole.Path, sharded.Path)
}

// Failed cells are named, do not stop the others, and run again on request.
func TestFailedCells(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "a.csv"), filepath.Join(dir, "b.csv")
	rows := "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,10,5\n2023-11-16 18:15:47.6805900,10,5\n"
	write(t, good, rows)
	write(t, bad, rows+"2023-11-16 18:15:48.6805900,ten,5\n") // begins well
	d := create(t, smallSpec(t, "trace_name=azure_llm", "trace_path="+good+","+bad, "request_rate=1"))
	sum := runAll(t, d, RunOptions{})
	if sum.Ran != 12 || len(sum.Failed) != 6 || !strings.Contains(sum.Failed[0].Error, "b.csv") ||
		!strings.Contains(sum.Failed[0].What, "policy=static seed=1") {
		t.Fatalf("%+v", sum)
	}
	if _, err := d.Merge(MergeOptions{}); err == nil || !strings.Contains(err.Error(), "6 failed (cell 6: ") {
		t.Error(err)
	}
	tables, err := d.Merge(MergeOptions{Partial: true})
	if err != nil || len(readColumn[int64](t, filepath.Join(d.Path, "cells.parquet"), "cell")) != 6 ||
		tables.Left != 6 {
		t.Fatal(err)
	}
	if sum = runAll(t, d, RunOptions{}); sum.Ran != 0 || len(sum.Failed) != 6 {
		t.Errorf("failed cells ran again unasked: %+v", sum)
	}
	if sum = runAll(t, d, RunOptions{Retry: true}); sum.Ran != 6 || len(sum.Failed) != 6 {
		t.Errorf("%+v", sum)
	}
	// a cell that failed for a passing reason is done after the next try
	c := &d.Cells[0]
	if err := os.Remove(d.cellPath(c)); err != nil {
		t.Fatal(err)
	}
	if err := d.writeFailure(c, errors.New("no memory")); err != nil {
		t.Fatal(err)
	}
	if status := d.Status(); status.Done != 5 || len(status.Failed) != 7 || status.Failed[0].Error != "no memory" {
		t.Errorf("%+v", status)
	}
	runAll(t, d, RunOptions{Retry: true})
	if status := d.Status(); status.Done != 6 || len(status.Failed) != 6 {
		t.Errorf("%+v", status)
	}
	// an input that is not what it was is noticed
	write(t, good, rows+rows)
	if _, err := d.Run(t.Context(), RunOptions{}); err == nil || !strings.Contains(err.Error(), "a.csv has changed") {
		t.Error(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestManifest(t *testing.T) {
	d := create(t, smallSpec(t))
	m, err := smallSpec(t).Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(d.Path, m); err != nil {
		t.Errorf("the same sweep again: %v", err)
	}
	changed := smallSpec(t)
	changed.Scenario.Workload.NumPrompts = settings.Some[int64](151)
	other, err := changed.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if other.Hash == m.Hash {
		t.Error("two sweeps have the same hash")
	}
	if _, err := Create(d.Path, other); err == nil ||
		!strings.Contains(err.Error(), `holds another sweep: workload.num_prompts was "150", now "151";`) {
		t.Error(err)
	}
	if _, err := Open(columnar.Files(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "holds no sweep") {
		t.Error(err)
	}
	data, err := os.ReadFile(filepath.Join(d.Path, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{
		`"20"`:                "\"21\"",
		`"seed": 2`:           `"seed": 4`,
		"num_prompts: 150":    "num_prompts: 151",
		`"lorasim.sweep/2"`:   `"lorasim.sweep/1"`,
		`"hash": "` + m.Hash:  `"hash": "` + other.Hash,
		"\"policies\"":        `"polices"`,
		`"goodput": "ttft:2`:  `"goodput": "ttft:3`,
		`"baseline": "static`: `"baseline": "least-loaded`,
	} {
		if !bytes.Contains(data, []byte(from)) {
			t.Fatalf("the manifest has no %s", from)
		}
		changed := bytes.Replace(data, []byte(from), []byte(to), 1)
		if _, err := readManifest(changed, "m.json"); err == nil || !strings.Contains(err.Error(), "m.json") {
			t.Errorf("%s -> %s: %v", from, to, err)
		}
	}
}

func TestParseShard(t *testing.T) {
	env := func(kv ...string) func(string) string {
		return func(name string) string {
			for i := 0; i < len(kv); i += 2 {
				if kv[i] == name {
					return kv[i+1]
				}
			}
			return ""
		}
	}
	for _, c := range []struct {
		text string
		env  func(string) string
		want Shard
		err  string
	}{
		{"0/1", env(), Shard{0, 1}, ""},
		{"7/8", env(), Shard{7, 8}, ""},
		{"auto/8", env("SLURM_ARRAY_TASK_ID", "3"), Shard{3, 8}, ""},
		{"auto/8", env("JOB_COMPLETION_INDEX", "4"), Shard{4, 8}, ""},
		{"auto/8", env("JOB_COMPLETION_INDEX", "8"), Shard{}, "8/8"},
		{"auto/8", env(), Shard{}, "none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX is set"},
		{"8/8", env(), Shard{}, "0 <= I < N"},
		{"-1/8", env(), Shard{}, "0 <= I < N"},
		{"1", env(), Shard{}, "expected I/N"},
		{"a/b", env(), Shard{}, "expected I/N"},
	} {
		got, err := ParseShard(c.text, c.env)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", c.text, got, err)
		}
	}
}
