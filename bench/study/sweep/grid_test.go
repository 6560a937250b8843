package sweep

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/internal/table"
)

func TestParseSet(t *testing.T) {
	for _, c := range []struct {
		text, key string
		want      []string
	}{
		{"request_rate=4,8, 16", "workload.request_rate", []string{"4", "8", "16"}},
		{"request-rate=1:2:0.25", "workload.request_rate", []string{"1", "1.25", "1.5", "1.75", "2"}},
		{"request_rate=0.1:0.7:0.1", "workload.request_rate", []string{
			"0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7",
		}},
		{"request_rate=inf", "workload.request_rate", []string{"inf"}},
		{"num_workers=2:5", "cluster.num_workers", []string{"2", "3", "4", "5"}},
		{"num_workers=1,4:8:4", "cluster.num_workers", []string{"1", "4", "8"}},
		{"max_loras_per_batch=1:64:x4", "cluster.engine.max_loras_per_batch", []string{"1", "4", "16", "64"}},
		{"lora_ranks=8|8,64|16,32", "workload.lora_ranks", []string{"8", "8,64", "16,32"}},
		{"lora_ranks=8,64|", "workload.lora_ranks", []string{"8,64"}},
		{"popularity=zipf:1.2,uniform", "workload.popularity", []string{"zipf:1.2", "uniform"}},
		{"arrivals=gamma:1|gamma:1,2", "workload.arrivals", []string{"gamma:1", "gamma:1,2"}},
		{"policy=static,affinity:lora=1,kv=0,p2c", "routing.policy", []string{"static", "affinity:lora=1,kv=0", "p2c"}},
		{"policy=explicit:map=0@0,1@1|static", "routing.policy", []string{"explicit:map=0@0,1@1", "static"}},
		{"no_stream=true,false", "client.no_stream", []string{"true", "false"}},
	} {
		a, err := ParseSet(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if a.Key != c.key || !cmp.Equal(a.Values, c.want) {
			t.Errorf("%s: got %s %q, want %s %q", c.text, a.Key, a.Values, c.key, c.want)
		}
	}
}

func TestParseSetErrors(t *testing.T) {
	for text, want := range map[string]string{
		"request_rate":                "expected KEY=VALUES",
		"reqest_rate=1":               `did you mean "request_rate"`,
		"burstiness=1,2":              "arrivals vllm:SHAPE is vLLM's burstiness",
		"request_rate=":               `"" is not a number`,
		"request_rate=1,1.0":          `"1" is given twice`,
		"request_rate=1:2":            "expected LO:HI:STEP",
		"request_rate=2:1:1":          "ends below its start",
		"request_rate=1:2:0":          "step above 0",
		"request_rate=1:2:-1":         "step above 0",
		"request_rate=0:2:x2":         "factor above 1 and a start above 0",
		"request_rate=1:inf:1":        "expected LO:HI:STEP",
		"request_rate=x1:2:1":         "expected LO:HI:STEP",
		"request_rate=0:1:0.0000001":  "more than 100000 values",
		"num_workers=1:2:0.5":         "1.5 is not a whole number",
		"max_loras_per_batch=1:63:x4": `cluster.engine.max_loras_per_batch: range "1:63:x4" ends at 16, not at 63: expected 1:16:x4 or 1:64:x4`,
		"num_workers=a":               "not a whole number",
	} {
		if _, err := ParseSet(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

func TestParseSpec(t *testing.T) {
	s, err := ParseSpec([]byte(`
name: demo
about: a question
seeds: 3
scenario:
  seed: 7
  cluster: {num_workers: 2}
set:
  request_rate: "4:8:2"
  lora_ranks: [[8, 16], 64]
policies: [static, "affinity:lora=1,kv=0"]
goodput: "ttft:500"
`), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []Axis{{"workload.request_rate", []string{"4", "6", "8"}}, {"workload.lora_ranks", []string{"8,16", "64"}}}
	if d := cmp.Diff(want, m.Axes); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]uint64{7, 8, 9}, m.Seeds); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"static", "affinity:lora=1,kv=0"}, m.Policies); d != "" {
		t.Error(d)
	}
	if len(m.Cells) != 3*2*2*3 || m.base.Cluster.NumWorkers.Value != 2 || m.Baseline != "static" {
		t.Error(len(m.Cells), m.base.Cluster.NumWorkers.Value, m.Baseline)
	}
	// the first axis varies slowest, the seed fastest
	c := m.Cells[len(m.Cells)-1]
	if d := cmp.Diff(Cell{
		Index: 35, Seed: 9, Policy: "affinity:lora=1,kv=0", Values: []string{"8", "64"}, Hash: c.Hash,
	}, c); d != "" {
		t.Error(d)
	}
}

func TestParseSpecErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "s.yaml: expected one document",
		"- a":                            "s.yaml: expected keys and values",
		"nme: x":                         `s.yaml:1: unknown key "nme", did you mean "name"?`,
		"name: a\nname: b":               "s.yaml",
		"name: [a]":                      "s.yaml:1: name: expected a single value",
		"name: a\nset:\n  rate: [1]":     `s.yaml:3: unknown key "rate"`,
		"name: a\nset: 4":                "s.yaml:2: set: expected keys and values",
		"set:\n  num_workers: [1, x]":    `"x" is not a whole number`,
		"set:\n  num_workers: [{a: 1}]":  `s.yaml:2: num_workers.a: unknown key "a"`,
		"set:\n  num_workers: {from: 1}": "s.yaml:2: num_workers: to is missing",
		"set: {drift: {from: 1, to: 4}}": "range \"1:4\": expected LO:HI:STEP",
		"set: {drift: {from: 1, to: 4, step: 1, factor: 2}}":          "both step and factor",
		"set:\n  policy:\n  - name: affinity-spill\n    threshold: 0": `s.yaml:4: policy.threshold: "0" is not`,
		"set:\n  elastic:\n  - {max: 8}":                              "s.yaml:3: elastic: target is missing",
		"seeds: 0":                                                    "s.yaml:1: seeds: ",
		"seeds: [1, 1]":                                               "given twice",
		"seeds: some":                                                 "whole number",
		"scenario:\n  cluster:\n    n: 1":                             `s.yaml:3: unknown key "n"`,
		"scenario: 5":                                                 "expected keys and values",
		"a: {":                                                        "s.yaml",
	} {
		if _, err := ParseSpec([]byte(text), "s.yaml"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// TestAllErrorsOfASweepFile: one message names each error, of the sweep and of its scenario.
func TestAllErrorsOfASweepFile(t *testing.T) {
	_, err := ParseSpec([]byte("nme: x\nseeds: some\npolicies: [static, nosuch]\nset:\n  num_workers: [1, x]\n"+
		"scenario:\n  workload: {num_prompts: many}\n  cluster:\n    n: 1\n"), "s.yaml")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`s.yaml:1: unknown key "nme"`, `s.yaml:2: seed`,
		`s.yaml:3: routing.policy: unknown policy "nosuch"`,
		`"x" is not a whole number`, `s.yaml:7: workload.num_prompts: "many"`, `s.yaml:9: unknown key "n"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
}

// A value or a range is the same sweep, to the byte, as keys and values and as a text.
func TestNestedEqualsShort(t *testing.T) {
	for nested, short := range map[string]string{
		"set: {request_rate: {from: 4, to: 16, step: 4}}":          `set: {request_rate: "4:16:4"}`,
		"set: {num_workers: [1, {from: 4, to: 6}]}":                `set: {num_workers: [1, "4:6"]}`,
		"set: {drift: {from: 1, to: 64, factor: 2}}":               `set: {drift: "1:64:x2"}`,
		"policies: [static, {name: affinity-spill, threshold: 4}]": "policies: [static, affinity-spill:threshold=4]",
		"set: {elastic: [{max: 8, target: 6}, {min: 2, max: 8, target: 6}]}": `set: {elastic: ["max=8,target=6", ` +
			`"min=2,max=8,target=6"]}`,
		"set: {pattern: [{name: constant}, [{name: diurnal, period: 60, amplitude: 0.5}, {name: constant}]]}": `set: ` +
			`{pattern: [constant, "diurnal:60,0.5+constant"]}`,
		"set: {lengths: &l {name: constant, prompt: 10, output: 5}}":   `set: {lengths: "constant:10,5"}`,
		"set: {popularity: [{name: explicit, weights: [1, 2]}, zipf]}": `set: {popularity: ["explicit:1,2", zipf]}`,
		"scenario: {routing: {policy: {name: affinity-spill, threshold: 4}}}": "scenario: {routing: {policy: " +
			"affinity-spill:threshold=4}}",
	} {
		a, err := ParseSpec([]byte(nested), "s.yaml")
		b, err2 := ParseSpec([]byte(short), "s.yaml")
		if err != nil || err2 != nil || !cmp.Equal(a, b) {
			t.Errorf("%s: %v, %v: %s", nested, err, err2, cmp.Diff(a, b))
		}
	}
}

func TestPlanErrors(t *testing.T) {
	for text, want := range map[string]string{
		"baseline: p2c":                      "unknown baseline",
		"goodput: fast":                      "goodput: ",
		"policies: [statc]":                  `did you mean "static"`,
		"set: {popularity: [zipf, zpf]}":     `workload.popularity: unknown popularity "zpf", did you mean "zipf"?`,
		"set: {head_of_line: [block, jump]}": `cluster.engine.head_of_line: unknown value "jump"`,
		"set: {num_workers: [-1]}":           `cluster.num_workers: "-1" is not a whole number from 1 to 100000`,

		"seeds: 100000\nset: {request_rate: '1:100:1'}": "more than 1000000 cells",
	} {
		s, err := ParseSpec([]byte(text), "s.yaml")
		if err == nil {
			_, err = s.Plan(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

func FuzzParseSet(f *testing.F) {
	for _, s := range []string{"request_rate=1:4:0.5,9", "policy=a:b=1,c=2", "lora_ranks=8|8,9", "num_workers=1:9:x3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseSet(text)
		if err != nil {
			return
		}
		// what it gives it takes back unchanged
		if a.Key == policyKey {
			return // options are joined only once
		}
		b, err := NewAxis(a.Key, a.Values)
		if err != nil || !cmp.Equal(a, b) {
			t.Errorf("%q gave %q, which gave %q (%v)", text, a.Values, b.Values, err)
		}
	})
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte("name: a\nset: {request_rate: [1, 2]}\npolicies: [static]\nseeds: 2\nscenario: {seed: 3}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSpec(data, "s.yaml")
		if err != nil {
			if !strings.HasPrefix(strings.TrimPrefix(err.Error(), "sweep "), "s.yaml") {
				t.Errorf("the error does not name the file: %v", err)
			}
			return
		}
		for _, a := range s.Axes {
			if len(a.Values) == 0 {
				t.Errorf("axis %s has no values", a.Key)
			}
		}
	})
}

func FuzzReadManifest(f *testing.F) {
	f.Add([]byte(
		`{"schema":"lorasim.sweep/2","scenario":"seed: 1","axes":[{"key":"cluster.num_workers","values":["1"]}],"policies":["static"],"seeds":[1],"cells":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := readManifest(data, "m.json")
		if err == nil && len(m.Cells) == 0 {
			t.Error("a manifest without cells")
		}
		if err != nil && !strings.Contains(err.Error(), "m.json") {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}

// Every study of the repository can be planned.
func TestNamedScenarios(t *testing.T) {
	files, err := filepath.Glob("../../../scenarios/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		s, err := LoadSpec(t.Context(), f)
		if err != nil {
			t.Error(err)
			continue
		}
		m, err := s.Plan(t.Context())
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		if want := strings.TrimSuffix(filepath.Base(f), ".yaml"); m.Name != want || m.About == "" {
			t.Errorf("%s: is called %q, about %q", f, m.Name, m.About)
		}
	}
}

// Columns of settings hold numbers where all values are numbers, else texts. Cells
// with the same workload are run one after the other, so that they share it.
func TestColumnsAndOrder(t *testing.T) {
	d := create(t, smallSpec(t, "num_workers=2,4", "popularity=uniform,zipf:1"))
	columns, set := d.settings()
	set([]string{"20", "4", "zipf:1"})
	for i, want := range map[string]any{"request_rate": 20.0, "num_workers": 4.0, "popularity": "zipf:1"} {
		k := slices.IndexFunc(columns, func(c table.Column) bool { return c.Name == i })
		if k < 0 || !reflect.DeepEqual(reflect.ValueOf(columns[k].Value).Elem().Interface(), want) {
			t.Errorf("column %s of %+v, expected %v", i, columns, want)
		}
	}
	order, err := d.byWorkload()
	if err != nil || len(order) != len(d.Cells) {
		t.Fatalf("%d of %d cells, %v", len(order), len(d.Cells), err)
	}
	changes := 0
	for i := 1; i < len(order); i++ {
		if order[i].workload != order[i-1].workload {
			changes++
		}
	}
	if changes != 2*2*3-1 { // rates, popularities, seeds
		t.Errorf("the workload changes %d times", changes)
	}
}
