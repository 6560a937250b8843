package sweep

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/internal/testutil"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// goOn plans a sweep into a folder that may have one.
func goOn(t *testing.T, dir string, s *Spec) *Dir {
	t.Helper()
	s.Scenario.Files = columnar.Files()
	m, err := s.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := Create(dir, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A sweep that takes further policies, seeds and values ends up with the bytes
// of one that had them from the beginning, and runs no cell twice.
func TestGrow(t *testing.T) {
	d := create(t, smallSpec(t))
	runAll(t, d, RunOptions{})
	before := files(t, filepath.Join(d.Path, cellsDir))
	old := time.Now().Add(-time.Hour)
	for name := range before {
		if err := os.Chtimes(filepath.Join(d.Path, cellsDir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	more := func() *Spec {
		s := smallSpec(t, "request_rate=10,20", "policy=static,p2c")
		s.SeedCount = 4
		return s
	}
	d = goOn(t, d.Path, more())
	if got := d.Policies; !slices.Equal(got, []string{"static", "least-loaded", "p2c"}) {
		t.Errorf("policies %q", got)
	}
	if got := d.Axes[0].Values; !slices.Equal(got, []string{"5", "10", "20"}) {
		t.Errorf("rates %q", got)
	}
	if len(d.Seeds) != 4 || len(d.Cells) != 3*3*4 || d.Baseline != "static" {
		t.Errorf("%v, %d cells, baseline %s", d.Seeds, len(d.Cells), d.Baseline)
	}
	sum := runAll(t, d, RunOptions{Shard: Shard{1, 2}})
	rest := runAll(t, d, RunOptions{Shard: Shard{0, 2}})
	if sum.Kept+rest.Kept != 12 || sum.Ran+rest.Ran != 24 {
		t.Errorf("ran %d and %d, kept %d and %d", sum.Ran, rest.Ran, sum.Kept, rest.Kept)
	}
	for name := range before {
		if st, err := os.Stat(filepath.Join(d.Path, cellsDir, name)); err != nil || !st.ModTime().Equal(old) {
			t.Errorf("%s was written again (%v)", name, err)
		}
	}
	if _, err := d.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	all := smallSpec(t, "request_rate=5,10,20", "policy=static,least-loaded,p2c")
	all.SeedCount = 4
	whole := create(t, all)
	runAll(t, whole, RunOptions{})
	if _, err := whole.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, whole.Path, d.Path)
	// one that asks for a part of it changes nothing
	manifest := files(t, d.Path)[manifestFile]
	if d = goOn(t, d.Path, smallSpec(t)); len(d.Cells) != 36 ||
		string(files(t, d.Path)[manifestFile]) != string(manifest) {
		t.Errorf("%d cells", len(d.Cells))
	}
	if sum := runAll(t, d, RunOptions{}); sum.Ran != 0 || sum.Kept != 36 {
		t.Errorf("%+v", sum)
	}
	// a baseline that is asked for is taken
	s := smallSpec(t)
	s.Baseline = "least-loaded"
	if d = goOn(t, d.Path, s); d.Baseline != "least-loaded" {
		t.Errorf("baseline %s", d.Baseline)
	}
}

func TestGrowRefusesOthers(t *testing.T) {
	d := create(t, smallSpec(t))
	for want, change := range map[string]func(*Spec){
		`cluster.num_workers was "2", now "3"`: func(s *Spec) {
			s.Scenario.Cluster.NumWorkers = settings.Some(3)
		},
		`goodput was "ttft:200", now ""`:                    func(s *Spec) { s.Goodput = "" },
		"workload.request_rate was varied and no longer is": func(s *Spec) { s.Axes = nil },
		"cluster.engine.page_size is varied and was not": func(s *Spec) {
			s.Axes = append(s.Axes, Axis{"cluster.engine.page_size", []string{"1", "16"}})
		},
	} {
		s := smallSpec(t)
		change(s)
		m, err := s.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err = Create(d.Path, m); err == nil ||
			!strings.Contains(err.Error(), d.Path+" holds another sweep: "+want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// what the cells have their own values of does not matter
	s := smallSpec(t)
	s.Scenario.Workload.RequestRate = 99
	testutil.Set(t, &s.Scenario, "policy", "p2c")
	if d = goOn(t, d.Path, s); len(d.Cells) != 12 {
		t.Errorf("%d cells", len(d.Cells))
	}
}

func TestUnion(t *testing.T) {
	for _, c := range []struct{ old, new, plain, sorted []int }{
		{[]int{1, 2}, []int{2, 1, 3}, []int{2, 1, 3}, []int{2, 1, 3}},
		{[]int{1, 4}, []int{2, 4}, []int{1, 4, 2}, []int{1, 2, 4}},
		{[]int{4, 1}, []int{2, 5}, []int{4, 1, 2, 5}, []int{4, 1, 2, 5}},
		{[]int{1, 4}, []int{5, 2}, []int{1, 4, 5, 2}, []int{1, 4, 5, 2}},
		{[]int{1, 4}, []int{4}, []int{1, 4}, []int{1, 4}},
	} {
		if got := union(c.old, c.new); !slices.Equal(got, c.plain) {
			t.Errorf("union of %v and %v is %v", c.old, c.new, got)
		}
		if got := sortedUnion(c.old, c.new, cmp.Compare); !slices.Equal(got, c.sorted) {
			t.Errorf("sorted union of %v and %v is %v", c.old, c.new, got)
		}
	}
}

// Cells whose files are broken in any way are named and run again, and give
// what they gave.
func TestBrokenCells(t *testing.T) {
	whole, d := create(t, smallSpec(t)), create(t, smallSpec(t))
	for _, e := range []*Dir{whole, d} {
		runAll(t, e, RunOptions{})
	}
	whole.Merge(MergeOptions{})
	path := func(i int) string { return d.cellPath(&d.Cells[i]) }
	data := files(t, d.Path)
	half := data[filepath.Join(cellsDir, filepath.Base(path(1)))]
	write(t, path(0), "junk")
	write(t, path(1), string(half[:len(half)/2]))
	write(t, path(2), "")
	if err := os.Rename(path(4), path(3)); err != nil { // another cell's; 4 is missing now
		t.Fatal(err)
	}
	status := d.Status()
	if status.Done != 7 || status.Missing != 1 || len(status.Broken) != 4 || len(status.Failed) != 0 {
		t.Fatalf("%+v", status)
	}
	for i, b := range status.Broken {
		if b.Index != i || b.What != d.Describe(&d.Cells[i]) || !strings.Contains(b.Error, path(i)) {
			t.Errorf("%+v", b)
		}
	}
	if _, err := d.Merge(MergeOptions{}); err == nil ||
		!strings.Contains(err.Error(),
			"7 of 12 cells are done, 1 are missing (the first is 4), 4 must run again (cell 0: broken file of a cell: "+
				path(0)) {
		t.Error(err)
	}
	tables, err := d.Tables(MergeOptions{Partial: true})
	if err != nil || len(tables.Points) != 4 || tables.Left != 5 || len(tables.Broken) != 4 {
		t.Fatal(tables, err)
	}
	var told []string
	sum := runAll(t, d, RunOptions{Warn: func(m string) { told = append(told, m) }})
	if sum.Ran != 5 || sum.Kept != 7 || len(told) != 4 ||
		!strings.HasPrefix(told[0], "cell 0 ("+d.Describe(&d.Cells[0])+") runs again: ") {
		t.Errorf("%+v, %q", sum, told)
	}
	if _, err := d.Merge(MergeOptions{}); err != nil {
		t.Fatal(err)
	}
	sameFiles(t, whole.Path, d.Path)
}

// All that can be found out without running the sweep is.
func TestChecksFirst(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		write(t, path, text)
		return path
	}
	good := file("good.csv", "id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,0,10,5\n")
	for _, c := range []struct{ set, want string }{
		{"workload=" + good + "," + filepath.Join(dir, "none.csv"), "none.csv: no such file"},
		{"workload=" + good + "," + file("bad.csv", "id,arrival_s\nx\n"), "bad.csv"},
		{"workload=" + good + "," + file("empty.csv", "id,arrival_s,adapter,prompt_tokens,output_tokens\n"),
			"no request"},
		{"trace_path=" + filepath.Join(dir, "none") + "|", "none: no such file"},
		{"lengths=auto,table:" + filepath.Join(dir, "none.csv"), "none.csv: no such file"},
		{"profile=llama-2-7b-rtx-4090-sglang-0.5|" + filepath.Join(dir, "none.yaml"), "none.yaml: no such file"},
		{"policy=static|explicit:file=" + filepath.Join(dir, "none.txt"), "none.txt: no such file"},
		{"outages=0@1|7@1", "cluster.outages 7@1"},
	} {
		if _, err := smallSpec(t, c.set).Plan(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.set, err, c.want)
		}
	}
	for set, want := range map[string]string{
		"max_concurrency=1,-1":   `client.max_concurrency: "-1" is not a whole number`,
		"adapter_home=disk,moon": `cluster.adapter_home: unknown value "moon"`,
		"view_staleness=0,-1":    `routing.view_staleness: "-1" is not a number`,
		"popularity=zipf,zpf":    `workload.popularity: unknown popularity "zpf", did you mean "zipf"?`,
	} {
		if _, err := ParseSet(set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", set, err, want)
		}
	}
	d := create(t, smallSpec(t))
	for _, c := range []struct{ metric, want string }{
		{"mean_ttft_ms", ""}, {"goodput.share", ""}, {"load_balance.cv", ""},
		{"foo", `unknown metric "foo"`}, {"mean_tft_ms", `did you mean "mean_ttft_ms"?`},
	} {
		err := d.CheckMetrics([]string{"mean_ttft_ms", c.metric})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.metric, err)
		}
	}
	d.Goodput = ""
	if err := d.CheckMetrics([]string{"goodput.share"}); err == nil || !strings.Contains(err.Error(), "--goodput") {
		t.Error(err)
	}
	if err := d.CheckBaseline("p2c"); err == nil || d.CheckBaseline("") != nil ||
		d.CheckBaseline("least-loaded") != nil {
		t.Error(err)
	}
	// a folder that cannot be written to
	if err := os.Remove(filepath.Join(d.Path, cellsDir)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.Path, cellsDir), "a file")
	if sum, err := d.Run(t.Context(), RunOptions{}); err == nil || sum != nil ||
		!strings.Contains(err.Error(), "cannot be written to") {
		t.Error(sum, err)
	}
}

// Every number of a cell is one that can be asked for before.
func TestKnownMetrics(t *testing.T) {
	d := create(t, smallSpec(t))
	runAll(t, d, RunOptions{})
	tables, err := d.Tables(MergeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.CheckMetrics(tables.Metrics); err != nil || len(tables.Metrics) < 30 {
		t.Error(err, tables.Metrics)
	}
}

// Paths in a sweep file are those from its folder; the sweep can be gone on with
// from any working directory, and its cells do not depend on where it lies.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	rows := "id,arrival_s,adapter,prompt_tokens,output_tokens\n0,0,0,10,5\n1,1,1,10,5\n"
	for _, root := range []string{"one", "two/deep"} {
		write(t, filepath.Join(dir, root, "data/w.csv"), rows)
		write(t, filepath.Join(dir, root, "data/place.txt"), "0@0\n1@1\n")
		write(t, filepath.Join(dir, root, "study/s.yaml"), `scenario:
  workload: {file: ../data/w.csv}
  cluster: {num_workers: 2}
policies: [static, "explicit:file=../data/place.txt"]
baseline: "explicit:file=../data/place.txt"
seeds: 2
`)
	}
	t.Chdir(filepath.Join(dir, "one"))
	s, err := LoadSpec(t.Context(), "study/s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if s.Scenario.Workload.File != "data/w.csv" || s.Policies[1] != "explicit:file=data/place.txt" ||
		s.Baseline != s.Policies[1] {
		t.Errorf("%q %q %q", s.Scenario.Workload.File, s.Policies, s.Baseline)
	}
	d := goOn(t, "out", s)
	if d.Policies[1] != "explicit:file=../data/place.txt" || d.Baseline != d.Policies[1] || len(d.Inputs) != 2 {
		t.Errorf("%q %q %v", d.Policies, d.Baseline, d.Inputs)
	}
	runAll(t, d, RunOptions{Shard: Shard{0, 2}})

	t.Chdir(dir)
	again, err := LoadSpec(t.Context(), "one/study/s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d = goOn(t, "one/out", again)
	if sum := runAll(t, d, RunOptions{}); sum.Kept != 2 || sum.Ran != 2 || len(sum.Failed) != 0 {
		t.Errorf("%+v", sum)
	}
	t.Chdir(filepath.Join(dir, "one/data"))
	if d, err = Open(columnar.Files(), "../out"); err != nil {
		t.Fatal(err)
	}
	if sum := runAll(t, d, RunOptions{}); sum.Kept != 4 {
		t.Errorf("%+v", sum)
	}
	sc, err := d.ScenarioOf(&d.Cells[2])
	if err != nil || sc.Workload.File != "w.csv" && sc.Workload.File != "../data/w.csv" {
		t.Error(sc.Workload.File, err)
	}
	t.Chdir(dir)
	if again, err = LoadSpec(t.Context(), "two/deep/study/s.yaml"); err != nil {
		t.Fatal(err)
	}
	other := goOn(t, "two/elsewhere/out", again)
	runAll(t, other, RunOptions{})
	sameFiles(t, "one/out/cells", "two/elsewhere/out/cells")
	if other.Hash != d.Hash {
		t.Error("the hash depends on the folder")
	}
	write(t, "one/data/w.csv", rows+"2,2,0,10,5\n")
	if again, err = LoadSpec(t.Context(), "one/study/s.yaml"); err != nil {
		t.Fatal(err)
	}
	again.Scenario.Files = columnar.Files()
	m, err := again.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create("one/out", m); err == nil || !strings.Contains(err.Error(), "w.csv has changed since") {
		t.Error(err)
	}
}

// A folder's fingerprint tells files that were added, removed or cut.
func TestFolderFingerprint(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	note := func(what string) {
		sum, err := sumPath(dir)
		if err != nil {
			t.Fatal(err)
		}
		if was, ok := seen[sum]; ok {
			t.Errorf("%s: as %s", what, was)
		}
		seen[sum] = what
	}
	note("empty")
	write(t, filepath.Join(dir, "a"), "1")
	note("one file")
	write(t, filepath.Join(dir, "b"), "1")
	note("two files")
	write(t, filepath.Join(dir, "b"), "12")
	note("a longer file")
	if _, err := sumPath(filepath.Join(dir, "none")); err == nil {
		t.Error("no error for a missing file")
	}
}
