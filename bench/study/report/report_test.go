package report_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/bench/result"
	"lorasim/bench/result/series"
	"lorasim/bench/scenario"
	"lorasim/bench/study/report"
	"lorasim/bench/study/sweep"
	"lorasim/trace/columnar"
	"lorasim/trace/settings"
)

// makeSweep runs a small sweep, of a policy that plans and one that does not.
func makeSweep(t *testing.T) string {
	t.Helper()
	spec, err := sweep.ParseSpec([]byte(`
name: small
about: Does <b>moving</b> adapters pay?
scenario:
  workload: {num_prompts: 600, num_adapters: 16, request_rate: 12, drift: 15}
  cluster: {num_workers: 4, engine: {max_loras_per_batch: 4, max_loaded_loras: 6}}
set:
  migration_interval: [2, 5, 10]
policies: [affinity-spill, plan-and-route, "k-shard:k=1,max=2"]
seeds: 3
`), "small.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return runSweep(t, spec)
}

func runSweep(t *testing.T, spec *sweep.Spec) string {
	t.Helper()
	spec.Scenario.Files = columnar.Files()
	m, err := spec.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := sweep.Create(filepath.Join(t.TempDir(), "out"), m)
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := d.Run(t.Context(), sweep.RunOptions{}); err != nil || len(sum.Failed) > 0 {
		t.Fatal(err, sum)
	}
	return d.Path
}

// makeFiles writes records and the result of a run.
func makeFiles(t *testing.T) (records, result string) {
	t.Helper()
	dir := t.TempDir()
	records, result = filepath.Join(dir, "live.parquet"), filepath.Join(dir, "sim.json")
	sc := scenario.Default()
	sc.Files = columnar.Files()
	sc.Workload.NumPrompts = settings.Some[int64](300)
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{RecordsFile: records})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := res.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(result, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return records, result
}

func load(t *testing.T, o report.Options, paths ...string) *report.Page {
	t.Helper()
	o.Files = columnar.Files()
	p, _, err := report.Load(t.Context(), o, paths...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// writePage writes a page with everything in it and returns its path.
func writePage(t *testing.T) string {
	t.Helper()
	records, result := makeFiles(t)
	path := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := load(t, report.Options{}, makeSweep(t), records, result).WriteHTML(f); err != nil {
		t.Fatal(err)
	}
	return path
}

// The page is one file: it names no other, and no text of the data can end its
// script.
func TestSelfContained(t *testing.T) {
	data, err := os.ReadFile(writePage(t))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	for _, bad := range []string{" src=", "@import", "url(", "<link rel=\"stylesheet", "<b>moving"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	for _, scheme := range []string{"https://", "http://"} {
		for _, part := range strings.Split(page, scheme)[1:] {
			if !strings.HasPrefix(part, "www.w3.org/2000/svg") { // the name of SVG's elements, not an address
				t.Errorf("the page names %s%.40s", scheme, part)
			}
		}
	}
	if n := strings.Count(page, "</script>"); n != 2 {
		t.Errorf("%d script elements end", n)
	}
}

// A sweep over two settings has a map: across the first, up the second.
func TestMaps(t *testing.T) {
	spec, err := sweep.ParseSpec([]byte(`
name: two
scenario: {workload: {num_prompts: 200, num_adapters: 8}, cluster: {num_workers: 2}}
set: {drift: [0, 10], max_loras_per_batch: [2, 4, 8]}
policies: [static, least-loaded]
seeds: 2
`), "two.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p := load(t, report.Options{NoRuns: true}, runSweep(t, spec))
	files, err := p.WriteFigures(t.TempDir(), "svg")
	if err != nil || !slices.Contains(files, "map-two-p99_ttft_ms.svg") {
		t.Error(files, err)
	}
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil || !strings.Contains(b.String(), `"maps":[{"metric":"mean_e2e_latency_ms"`) {
		t.Error("the page has no map", err)
	}
}

// A sweep over elastic clusters has a picture of each policy and other setting.
func TestCosts(t *testing.T) {
	spec, err := sweep.ParseSpec([]byte(`
name: grows
scenario: {workload: {num_prompts: 200, num_adapters: 4}}
set: {elastic: ["min=2,max=2", "min=1,max=3,target=4", "min=1,max=3,target=8"], request_rate: [5, 10]}
policies: [static, p2c]
seeds: 1
goodput: ttft:1000
`), "grows.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := load(t, report.Options{NoRuns: true}, runSweep(t, spec)).WriteFigures(dir, "svg"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"5_static", "5_p2c", "10_static", "10_p2c"} {
		text, err := os.ReadFile(filepath.Join(dir, "sweep-grows-gpu-hours-"+name+".svg"))
		if err != nil {
			t.Fatal(err)
		}
		for word, there := range map[string]bool{"GPU-hours": true, "fixed": true, "reactive": true, "known": false} {
			if strings.Contains(string(text), ">"+word+"<") != there {
				t.Errorf("%s: %s is there: %v, expected %v", name, word, !there, there)
			}
		}
	}
}

// A run of a sweep that is run again is the run of the sweep.
func TestRunsAgainAreTheSweeps(t *testing.T) {
	dir := makeSweep(t)
	p := load(t, report.Options{At: map[string]string{"migration_interval": "10"}}, dir)
	d, err := sweep.Open(columnar.Files(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Runs) != 3 {
		t.Fatal(len(p.Runs))
	}
	for _, r := range p.Runs {
		found := false
		for i := range d.Cells {
			c := &d.Cells[i]
			if c.Policy != r.Name || c.Seed != 1 || c.Values[0] != "10" {
				continue
			}
			found = true
			cell, err := d.ReadCell(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range result.Values(r.Result) {
				if cell.Value(v.Name) != v.Value {
					t.Errorf("%s: %s is %v, in the sweep %v", r.Name, v.Name, v.Value, cell.Value(v.Name))
				}
			}
		}
		if !found {
			t.Errorf("the sweep has no run %s", r.Name)
		}
	}
	if p.Runs[1].Series.Plans == nil {
		t.Error("no plans of plan-and-route")
	}
}

// What a sweep kept of its runs is shown without running them again, and tells
// the same: with one seed, the same distribution.
func TestNoRuns(t *testing.T) {
	dir := makeSweep(t)
	kept, again := load(t, report.Options{NoRuns: true}, dir), load(t, report.Options{}, dir)
	if len(kept.Runs) != 3 || len(kept.Runs[0].Kept) != 3 || kept.Runs[0].Series != nil {
		t.Fatal(len(kept.Runs))
	}
	for i, r := range again.Runs {
		want := series.QuantilesOf(r.Series.Latencies.E2E)
		if d := cmp.Diff(want, kept.Runs[i].Kept[0].E2E); d != "" {
			t.Errorf("%s: %s", r.Name, d)
		}
	}
	if kept.Compared == nil || kept.Compared.Rows[0].Cells[0].N != 3 {
		t.Error("no table of the seeds' means")
	}
	var b bytes.Buffer
	if err := kept.WriteHTML(&b); err != nil || !strings.Contains(b.String(), "mean of 3 seeds") {
		t.Error(err)
	}
}

// With one policy, the runs shown are those of the second axis.
func TestSecondAxis(t *testing.T) {
	spec, err := sweep.ParseSpec(
		[]byte("scenario: {workload: {num_prompts: 60}}\nset: {request_rate: [4, 8], num_workers: [1, 2, 3]}\nseeds: 2\n"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	spec.Scenario.Files = columnar.Files()
	m, err := spec.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := sweep.Create(filepath.Join(t.TempDir(), "out"), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(t.Context(), sweep.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   map[string]string
		want []string // number of workers of each run
	}{
		{nil, []string{"1", "2", "3"}},
		{map[string]string{"request_rate": "4"}, []string{"1", "2", "3"}},
		{map[string]string{"num_workers": "3"}, []string{"3"}},
	} {
		var got []string
		for _, r := range load(t, report.Options{At: c.at}, d.Path).Runs {
			got = append(got, fmt.Sprint(len(r.Series.Workers)))
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%v: %s", c.at, d)
		}
	}
}

func TestLoadErrors(t *testing.T) {
	dir := makeSweep(t)
	for want, c := range map[string]struct {
		o    report.Options
		path string
	}{
		"small has no run at migration_interval 3; it has 2, 5, 10": {
			report.Options{At: map[string]string{"migration_interval": "3"}}, dir,
		},
		"small does not vary num_workers": {report.Options{At: map[string]string{"num_workers": "3"}}, dir},
		`did you mean "num_workers"`:      {report.Options{At: map[string]string{"num_worker": "3"}}, dir},
		"absent.json":                     {report.Options{}, "absent.json"},
		"absent.yaml":                     {report.Options{}, "absent.yaml"},
	} {
		c.o.Files = columnar.Files()
		if _, _, err := report.Load(t.Context(), c.o, c.path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestFigures(t *testing.T) {
	records, result := makeFiles(t)
	p := load(t, report.Options{}, makeSweep(t), records, result)
	for format, magic := range map[string]string{"png": "\x89PNG", "svg": "<?xml"} {
		dir := t.TempDir()
		files, err := p.WriteFigures(dir, format)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"cdf-e2e", "cdf-ttft", "cdf-tpot", "adapters", "queue", "running", "queue-plan-and-route",
			"placement-plan-and-route",
			"sweep-small-mean_e2e_latency_ms", "placement-k-shard_k_1_max_2", "queue-live.parquet",
		} {
			data, err := os.ReadFile(filepath.Join(dir, want+"."+format))
			if err != nil || !bytes.HasPrefix(data, []byte(magic)) {
				t.Errorf("%s.%s: %v", want, format, err)
			}
		}
		again := t.TempDir()
		if _, err := p.WriteFigures(again, format); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			a, _ := os.ReadFile(filepath.Join(dir, f))
			b, _ := os.ReadFile(filepath.Join(again, f))
			if !bytes.Equal(a, b) || len(a) == 0 {
				t.Errorf("%s differs from one time to the next", f)
			}
		}
	}
	if _, err := p.WriteFigures(t.TempDir(), "pdf"); err == nil {
		t.Error("an unknown format")
	}
}
