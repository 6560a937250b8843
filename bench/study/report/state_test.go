package report_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"lorasim/bench/study/report"
	"lorasim/bench/study/sweep"
)

// pageData is what the page's script reads.
type pageData struct {
	At   []string
	Runs []struct {
		Name, Block string
		Placement   struct{ Show string }
	}
	Compared struct {
		Rows []struct {
			Title string
			Best  []bool
		}
		States []struct{ State, Mark, Text string }
	}
	Sweeps []struct {
		Points []struct {
			At      []int
			Reached struct{ State, Text string }
		}
		Maps []struct {
			Blocks []struct{ Cells [][]struct{ Policy string } }
		}
	}
}

func dataOf(t *testing.T, p *report.Page) (d pageData) {
	t.Helper()
	var b bytes.Buffer
	if err := p.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindSubmatch(b.Bytes())
	if found == nil {
		t.Fatal("no data in the page")
	}
	if err := json.Unmarshal(found[1], &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// A sweep into overload: the page says where its runs are and which of them are
// overloaded, and stars no latency of such runs.
func TestOverloadOnThePage(t *testing.T) {
	spec, err := sweep.ParseSpec([]byte(`
name: load
scenario:
  workload: {num_prompts: 1200, num_adapters: 8}
  cluster: {num_workers: 2, engine: {max_loras_per_batch: 8}}
set:
  request_rate: [3, 40]
  max_running_requests: [32, 64]
policies: [random, least-loaded]
seeds: 3
`), "load.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := runSweep(t, spec)
	d := dataOf(t, load(t, report.Options{At: map[string]string{"request_rate": "40"}}, dir))
	if len(d.At) != 1 || d.At[0] != "sweep load at request_rate = 40, max_running_requests = 64" {
		t.Errorf("%q", d.At)
	}
	for i, s := range d.Compared.States {
		if s.State != "overloaded" || !strings.HasPrefix(s.Mark, "OVERLOADED (") ||
			!strings.Contains(s.Text, "sustains") {
			t.Errorf("run %d: %+v", i, s)
		}
	}
	for _, row := range d.Compared.Rows {
		for i, best := range row.Best {
			if best && strings.HasSuffix(row.Title, "(ms)") {
				t.Errorf("a star for %s of overloaded run %d", row.Title, i)
			}
		}
	}
	for _, p := range d.Sweeps[0].Points {
		if over := p.At[0] == 1; over != (p.Reached.State == "overloaded") {
			t.Errorf("%v: %+v", p.At, p.Reached)
		}
	}
	for _, m := range d.Sweeps[0].Maps {
		for _, b := range m.Blocks {
			for _, row := range b.Cells {
				if row[1].Policy != "" {
					t.Errorf("%s is the best where all are overloaded", row[1].Policy)
				}
			}
		}
	}
	for _, r := range d.Runs {
		if !strings.HasPrefix(r.Block, "Policy    "+r.Name) {
			t.Errorf("%.40q", r.Block)
		}
		// every worker's host memory holds all adapters, and its slots do: nothing to see
		if r.Placement.Show == "host" {
			t.Errorf("%s: the placement in host memory never changes", r.Name)
		}
	}
	d = dataOf(t, load(t, report.Options{At: map[string]string{"request_rate": "3"}}, dir))
	if d.Compared.States[0].State != "steady" {
		t.Errorf("%+v", d.Compared.States)
	}
}

// static holds each adapter on one worker, so that host memory tells something.
func TestPlacementThatTells(t *testing.T) {
	spec, err := sweep.ParseSpec(
		[]byte("scenario: {workload: {num_prompts: 100}}\npolicies: [p2c, static]\nseeds: 1\n"), "p.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := dataOf(t, load(t, report.Options{}, runSweep(t, spec)))
	if d.Runs[0].Placement.Show != "gpu" || d.Runs[1].Placement.Show != "host" {
		t.Errorf("%+v", d.Runs)
	}
	if len(d.At) != 0 {
		t.Errorf("a sweep without axes has no point: %q", d.At)
	}
}

func TestOlderResultsOnThePage(t *testing.T) {
	d := dataOf(t, load(t, report.Options{}, "../compare/testdata/v1.json", "../compare/testdata/v1.jsonl"))
	if len(d.Runs) != 2 || d.Compared.States[0].State != "" || !strings.HasPrefix(d.Runs[0].Block, "\n====") {
		t.Errorf("%+v", d.Compared.States)
	}
}
