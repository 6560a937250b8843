package sweep

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/stats"
	"lorasim/trace/columnar"
)

// A file of a cell gives back what the result said of each adapter.
func TestAdaptersOfCell(t *testing.T) {
	c := &Cell{Hash: "h"}
	res := &result.Result{Extra: &result.Extra{
		Adapters: []result.AdapterStats{
			{Index: 2, Requests: 9, MeanE2E: 1, P99E2E: 2, MeanTTFT: 3},
			{Index: -1, Requests: 5, MeanE2E: 4, P99E2E: 5, MeanTTFT: 6},
			{Index: 0, Requests: 1, MeanE2E: 7, P99E2E: 8, MeanTTFT: 9},
		},
		Workers: []result.WorkerStats{{Requests: 4, WorkerCounters: result.WorkerCounters{Busy: 0.5}}},
	}}
	res.Metrics.Set(result.MeanTTFT, 12)
	d := &Dir{Path: t.TempDir(), Manifest: &Manifest{}}
	d.base.Files = columnar.Files()
	if err := os.Mkdir(filepath.Join(d.Path, cellsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	read := func(res *result.Result) *CellResult {
		if err := d.writeCell(c, res, series.NewLatencies()); err != nil {
			t.Fatal(err)
		}
		r, err := d.ReadCell(c)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := read(res)
	if want := []CellAdapter{{2, 9, 1, 2, 3}, {-1, 5, 4, 5, 6}, {0, 1, 7, 8, 9}}; !slices.Equal(r.Adapters, want) {
		t.Errorf("%+v, expected %+v", r.Adapters, want)
	}
	if r.Value("mean_ttft_ms") != 12 || !math.IsNaN(r.Value("mean_tft_ms")) || !math.IsNaN(r.Value(workerNames[1])) {
		t.Errorf("%+v", r.Values)
	}
	plain := &result.Result{}
	plain.Metrics.Set(result.MeanTTFT, 12)
	if r := read(plain); len(r.Adapters) != 0 ||
		!reflect.DeepEqual(r.Values, []result.Value{{Name: "mean_ttft_ms", Value: 12}}) {
		t.Errorf("%+v", r)
	}
	if _, err := readCell(columnar.Files(), d.cellPath(c), "g"); err == nil ||
		!strings.HasSuffix(err.Error(), `h.parquet: belongs to another cell ("h", expected "g")`) {
		t.Error(err)
	}
}

// What is not the failure of this very cell is no failure: the cell runs.
func TestFailureFiles(t *testing.T) {
	d := create(t, smallSpec(t))
	c := &d.Cells[0]
	own, _ := json.Marshal(failure{c.Index, c.Hash, "no memory"})
	other, _ := json.Marshal(failure{c.Index, d.Cells[1].Hash, "no memory"})
	for text, want := range map[string]bool{
		string(own): true, string(other): false, "{}": false, string(own[:9]): false, string(own) + "}": false,
	} {
		write(t, d.failurePath(c), text)
		if _, f, broken := d.look(c); broken || (f != nil) != want ||
			want && (f.Error != "no memory" || f.What != d.Describe(c)) {
			t.Errorf("%s: %+v, broken %v", text, f, broken)
		}
	}
	if err := os.Remove(d.failurePath(c)); err != nil {
		t.Fatal(err)
	}
	if r, f, broken := d.look(c); r != nil || f != nil || broken {
		t.Errorf("without a file: %v, %v, %v", r, f, broken)
	}
}

// A folder without a manifest holds no sweep; one whose manifest cannot be read
// is another matter.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(columnar.Files(), dir); err == nil || !strings.Contains(err.Error(), dir+" holds no sweep: ") {
		t.Error(err)
	}
	if err := os.Mkdir(filepath.Join(dir, manifestFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(columnar.Files(), dir); err == nil || strings.Contains(err.Error(), "holds no sweep") {
		t.Error(err)
	}
}

// A sweep that is done is rid of what interrupted runs left; a failure to do so
// is told.
func TestTemporaries(t *testing.T) {
	d := create(t, smallSpec(t))
	stale := []string{filepath.Join(d.Path, ".table.csv.1.tmp"), filepath.Join(d.Path, cellsDir, ".x.2.tmp")}
	keep := filepath.Join(d.Path, "notes.tmp")
	for _, f := range append(stale, keep) {
		write(t, f, "")
	}
	if err := d.removeTemporaries(); err != nil {
		t.Fatal(err)
	}
	for _, f := range stale {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("%s is still there", f)
		}
	}
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(stale[0], "file"), "") // a folder that is not empty stays
	if err := d.removeTemporaries(); err == nil {
		t.Error("no error")
	}
}

func TestRanges(t *testing.T) {
	for _, c := range []struct {
		text  string
		whole bool
		want  string
	}{
		{"1:4", true, "1 2 3 4"}, {"0:0", true, "0"}, {"-3:-1", true, "-3 -2 -1"}, {"-1:0:0.5", false, "-1 -0.5 0"},
		{"0:0.3:0.1", false, "0 0.1 0.2 0.3"},
		{"1:9:4", true, "1 5 9"}, {"1:8:x2", true, "1 2 4 8"}, {"-3:-1:2", true, "-3 -1"},
		{"1:60:5", true, "error: ends at 56, not at 60: expected 1:56:5 or 1:61:5"},
		{"1:7:x2", true, "error: expected 1:4:x2 or 1:8:x2"},
		{"0:1:0.3", false, "error: ends at 0.9, not at 1: expected 0:0.9:0.3 or 0:1.2:0.3"},
		{"4:10:x1.5", true, "error: ends at 9, not at 10: expected 4:9:x1.5"},
		{"1:4.5", true, "error: expected 1:4:1 or 1:5:1"},
		{"-1:-0.4:0.5", false, "error: expected -1:-0.5:0.5 or -1:0:0.5"}, {"0.1:10:x10", false, "0.1 1 10"},
		{"1000000:3000000:1000000", true, "1000000 2000000 3000000"},
		{"1:4", false, "error: expected LO:HI:STEP"}, {"4:1", true, "error: ends below its start"},
		{"1:4:0", true, "error: a step above 0"}, {"1:4:-1", true, "error: a step above 0"},
		{"1:4:x1", true, "error: a factor above 1"}, {"0:4:x2", true, "error: a start above 0"},
		{"1:2:0.5", true, "error: 1.5 is not a whole number"}, {"1:x4:2", true, "error: expected LO:HI:STEP"},
		{"1:inf:2", false, "error: expected LO:HI:STEP"}, {"nan:4:2", false, "error: expected LO:HI:STEP"},
		{"1:2:3:4", true, "error: expected LO:HI:STEP"},
	} {
		values, err := expand(c.text, c.whole)
		got := strings.Join(values, " ")
		if wanted, bad := strings.CutPrefix(c.want, "error: "); bad &&
			(err == nil || !strings.Contains(err.Error(), wanted)) || !bad && (err != nil || got != c.want) {
			t.Errorf("%s: %s, %v; expected %s", c.text, got, err, c.want)
		}
	}
	last := func(n int) string { return "1:" + stats.Number(float64(n)) }
	if v, err := expand(last(maxValues), true); err != nil || len(v) != maxValues {
		t.Errorf("%d values: %v", len(v), err)
	}
	if _, err := expand(last(maxValues+1), true); err == nil {
		t.Error("one too many")
	}
}

func TestSizeOfSweep(t *testing.T) {
	s := &Spec{
		SeedCount: 500, Grid: Grid{
			Policies: []string{"p2c", "static"}, Axes: []Axis{{Values: make([]string, maxCells/1000)}},
		},
	}
	if err := s.complete(); err != nil {
		t.Error(err)
	}
	s.Seeds, s.SeedCount = nil, 501
	if err := s.complete(); err == nil || err.Error() != "the sweep has more than 1000000 cells" {
		t.Error(err)
	}
}
