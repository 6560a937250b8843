package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		trace-arrival-distribution trace-total-rate trace-cv trace-map-stride trace-need-sort max-loras-per-batch max-running-requests`) {
		if f, err := Find(name); err != nil || f.Flag != name {
			t.Errorf("--%s: %v, %v", name, f.Key, err)
		}
	}
}

func TestSetAndGetAreInverse(t *testing.T) {
	def := Default()
	for _, f := range Fields() {
		sc := Default()
		if err := sc.Set(f.Key, f.Get(&def)); err != nil {
			t.Errorf("%s: %v", f.Key, err)
		}
		if d := cmp.Diff(def, sc); d != "" {
			t.Errorf("%s: setting the default changes it: %s", f.Key, d)
		}
	}
	sc := Default()
	for key, value := range map[string]string{
		"policy": "p2c", "request_rate": "inf", "trace_cv": "1,4.5", "no-stream": "true", "workload.num_prompts": "7", "seed": "9",
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
		{"trace_cv", "1,,2", `"1,,2" is not a list of numbers`},
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
	for key, value := range map[string]string{"request_rate": "inf", "trace_cv": "1,4", "policy": "bounded-hash:c=1.25", "lengths": "random:1,2,0.5"} {
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
	if d := cmp.Diff(sc, got); d != "" {
		t.Errorf("changed by writing and reading: %s", d)
	}
}

func TestParseNamesTheFault(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"workload:\n  num_promts: 3\n", `s.yaml:2: unknown key "num_promts", did you mean "num_prompts"?`},
		{"num_prompts: 3\n", `s.yaml:1: unknown key "num_prompts", did you mean "workload.num_prompts"?`},
		{"cluster:\n  policy: p2c\n", `did you mean "routing.policy"?`},
		{"wrkload: {}\n", `did you mean "workload"?`},
		{"workload:\n  num_prompts: many\n", "num_prompts"},
		{"- 1\n", "expected keys and values"},
		{"seed: 1\n---\nseed: 2\n", "2 documents"},
		{"seed: [", "scenario s.yaml"},
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
	f.Add("workload: {num_prompts: 3, trace_cv: [1, 2]}\n")
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
