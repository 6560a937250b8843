package scenario

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"lorasim/internal/bounds"
	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

func TestEveryFieldIsNamedOnce(t *testing.T) {
	flags, leaves := map[string]string{}, map[string]string{}
	for _, f := range Fields() {
		if f.Help == "" && f.Flag != "" {
			t.Errorf("%s has a flag but no help", f.Key)
		}
		if f.Flag != "" && flags[f.Flag] != "" {
			t.Errorf("--%s stands for %s and %s", f.Flag, flags[f.Flag], f.Key)
		}
		if leaves[f.Leaf()] != "" {
			t.Errorf("%s and %s end alike", leaves[f.Leaf()], f.Key)
		}
		flags[f.Flag], leaves[f.Leaf()] = f.Key, f.Key
		for _, name := range []string{f.Key, f.Leaf()} {
			if g, err := Find(name); err != nil || g.Key != f.Key {
				t.Errorf("Find(%q) = %s, %v; expected %s", name, g.Key, err, f.Key)
			}
		}
	}
}

// The reference benchmark's flags are ours, too.
func TestReferenceFlags(t *testing.T) {
	for _, name := range strings.Fields(`num-prompts request-rate max-concurrency random-input-len random-output-len
		random-range-ratio seed use-trace trace-name trace-path trace-start-time trace-end-time trace-interval-minutes
		trace-total-rate trace-map-stride trace-need-sort`) { // cmd/cli has aliases for the others
		if f, err := Find(name); err != nil || f.Flag != name {
			t.Errorf("--%s: %v, %v", name, f.Key, err)
		}
	}
}

func TestSetAndGetAreInverse(t *testing.T) {
	def := Default()
	for _, f := range Fields() {
		sc := Default()
		if f.optional() {
			continue // it has no default
		}
		if err := f.Set(&sc, f.Get(&def)); err != nil {
			t.Errorf("%s: %v", f.Key, err)
		}
		if d := cmp.Diff(def, sc); d != "" {
			t.Errorf("%s: setting the default changes it: %s", f.Key, d)
		}
	}
	sc := Default()
	for key, value := range map[string]string{
		"policy": "p2c", "request_rate": "inf", "arrivals": "gamma:1,4.5", "no-stream": "true",
		"workload.num_prompts": "7",
		"seed":                 "9",
	} {
		if err := sc.Set(key, value); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		f, _ := Find(key)
		if got := f.Get(&sc); got != value {
			t.Errorf("%s is %q after setting %q", key, got, value)
		}
	}
}

func TestSetNamesTheFault(t *testing.T) {
	for _, c := range []struct{ key, value, want string }{
		{"num_promts", "1", `unknown key "num_promts", did you mean "num_prompts"?`},
		{"workload.seed", "1", `unknown key "workload.seed"`},
		{"num_prompts", "many", `workload.num_prompts: "many" is not a whole number`},
		{"seed", "-1", `seed: "-1" is not a whole number >= 0`},
		{"request_rate", "fast", `"fast" is not a number`},
		{"arrivals", "gamma:1,,2", `"1,,2" is not a list of numbers`},
		{"trace_cv", "1", `unknown key "trace_cv": it is arrivals now, as in gamma:CV`},
		{"no_stream", "maybe", `"maybe" is not true or false`},
	} {
		sc := Default()
		if err := sc.Set(c.key, c.value); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: got %v, expected %s", c.key, c.value, err, c.want)
		}
	}
}

func TestYAMLReadsBack(t *testing.T) {
	sc := Default()
	sc.Name = "x: y"
	for key, value := range map[string]string{"request_rate": "inf", "arrivals": "gamma:1,4",
		"policy":  "bounded-hash:c=1.25",
		"lengths": "random:1,2,0.5"} {
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	text, err := sc.YAML()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(text, "x")
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if d := cmp.Diff(sc, got, notWritten); d != "" {
		t.Errorf("changed by writing and reading: %s", d)
	}
}

// notWritten leaves out where a file sets a setting.
var notWritten = cmpopts.IgnoreFields(Scenario{}, "Written")

func TestParseNamesTheFault(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"workload:\n  num_promts: 3\n", `s.yaml:2: unknown key "num_promts", did you mean "num_prompts"?`},
		{"cluster:\n  starvation_s: 3\n", `s.yaml:2: unknown key "cluster.starvation_s": it is lora_drain_wait_threshold now`},
		{"num_prompts: 3\n", `s.yaml:1: unknown key "num_prompts", did you mean "workload.num_prompts"?`},
		{"cluster:\n  policy: p2c\n", `did you mean "routing.policy"?`},
		{"wrkload: {}\n", `did you mean "workload"?`},
		{"workload:\n  num_prompts: many\n", "num_prompts"},
		{"- 1\n", "expected keys and values"},
		{"seed: 1\n---\nseed: 2\n", "2 documents"},
		{"seed: [", "s.yaml:1: "},
	} {
		if _, err := Parse([]byte(c.text), "s.yaml"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, expected %s", c.text, err, c.want)
		}
	}
	if sc, err := Parse(nil, "empty"); err != nil || cmp.Diff(sc, Default()) != "" {
		t.Errorf("an empty file is %v, %v; expected the defaults", sc, err)
	}
}

func FuzzParse(f *testing.F) {
	def := Default()
	text, _ := def.YAML()
	f.Add(string(text))
	f.Add("workload: {num_prompts: 3, arrivals: {name: gamma, cv: [1, 2]}}\n")
	f.Add("routing:\n  policy: p2c\nseed: 0x10\n")
	f.Fuzz(func(t *testing.T, text string) {
		sc, err := Parse([]byte(text), "fuzz")
		if err != nil {
			return
		}
		out, err := sc.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out, "again")
		if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		if a, b := mustYAML(t, &sc), mustYAML(t, &again); a != b {
			t.Fatalf("changed by writing and reading:\n%s\n%s", a, b)
		}
	})
}

func mustYAML(t *testing.T, s *Scenario) string {
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A setting without a check would take any value.
func TestEveryFieldIsChecked(t *testing.T) {
	for _, f := range Fields() {
		_, isWords := strings.CutPrefix(f.option.Check, "oneof ")
		switch {
		case f.Type() == "bool" || f.Parsed():
			if f.option.Check != "" {
				t.Errorf("%s needs no check", f.Key)
			}
		case f.Type() != "string":
			if b, err := bounds.Parse(f.option.Check); err != nil || f.option.Check == "" || b.Has(math.Inf(-1)) {
				t.Errorf("%s has the check %q, expected bounds (%v)", f.Key, f.option.Check, err)
			}
		case !isWords && f.option.Check != "any":
			t.Errorf("%s has the check %q, expected oneof or any", f.Key, f.option.Check)
		}
	}
}

func TestBadValuesNameFileAndLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"cluster:\n  num_workers: -3", `s.yaml:2: cluster.num_workers: "-3" is not a whole number from 1 to 100000`},
		{"workload:\n  num_prompts: many", `s.yaml:2: workload.num_prompts: "many" is not a whole number from 1 to 1000000000000`},
		{"workload:\n\n  request_rate: .nan",
			`s.yaml:3: workload.request_rate: "NaN" is not a number from 1e-09 to 1000000000, or inf`},
		{"workload: {arrivals: {name: gamma, cv: [1, x]}}", `s.yaml:1: workload.arrivals.cv: "1,x" is not a list of numbers from 0.001 to 1000`},
		{"workload:\n  time_scale: 2", `s.yaml:2: unknown key "workload.time_scale": rate_scale 2 is what time_scale 0.5 was`},
		{"workload: {random_range_ratio: 1.5}",
			`s.yaml:1: workload.random_range_ratio: "1.5" is not a number from 0 to 1`},
		{"cluster: {engine:\n  {scheduler: vlm}}",
			`s.yaml:2: cluster.engine.scheduler: unknown value "vlm", did you mean "vllm"?`},
		{"workload:\n  num_prompts: {a: 1}", "s.yaml:2: workload.num_prompts: keys and values, expected one value"},
		{"workload:\n  num_prompts: [1]", "s.yaml:2: workload.num_prompts: a list, expected one value"},
		{"workload: 5", "s.yaml:1: workload: expected keys and values"},
		{"seed: 1\nseed: 2", `s.yaml:2: mapping key "seed" already defined`},
		{"client:\n  no_stream: maybe", `s.yaml:2: client.no_stream: "maybe" is not true or false`},
		{"seed: *x", "s.yaml:1: "},
		{"scenario:\n  workload:\n    drift: -1", `s.yaml:3: workload.drift: "-1" is not a number from 0`},
	} {
		if _, err := Parse([]byte(c.text), "s.yaml"); err == nil || !strings.HasPrefix(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: got %v, expected %s", c.text, err, c.want)
		}
	}
	got, err := Parse([]byte("seed: 0x10\nworkload: {num_prompts: 1_000, request_rate: .inf, lora_ranks: 8, arrivals: {name: gamma, cv: [1, 2.5]}, lengths: null}\ncluster: {num_workers: &n 3, engine: {max_loras_per_batch: *n}}\nclient: {no_stream: true}"), "s.yaml")
	want := Default()
	want.Seed, want.Workload.NumPrompts, want.Workload.RequestRate = 16, settings.Some[int64](1000), math.Inf(1)
	testutil.Set(t, &want, "lora_ranks", "8", "arrivals", "gamma:1,2.5")
	want.Client.NoStream = true
	want.Cluster.NumWorkers, want.Cluster.Engine.MaxLorasPerBatch = settings.Some(3), 3
	if d := cmp.Diff(want, got, notWritten); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
}
