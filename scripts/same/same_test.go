package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Every two values of two factors that are allowed together are in one of the runs.
func TestCoverHoldsEveryPair(t *testing.T) {
	all := []factor{
		{"scheduler", []string{"sglang", "vllm"}}, {"chunk", []string{"-", "eos"}},
		{"order", []string{"fcfs", "vtc"}}, {"prefix", []string{"-", "pages"}},
		{"policy", []string{"static", "hash", "p2c"}},
	}
	rows := cover(all, false)
	has := func(a, v, b, w string) bool {
		return slices.ContainsFunc(rows, func(is map[string]string) bool { return is[a] == v && is[b] == w })
	}
	for i, a := range all {
		for _, b := range all[i+1:] {
			for _, v := range a.values {
				for _, w := range b.values {
					impossible := a.name == "scheduler" && b.name == "chunk" && v == "vllm" && w == "eos"
					if has(a.name, v, b.name, w) == impossible {
						t.Errorf("%s %s with %s %s: impossible is %t", a.name, v, b.name, w, impossible)
					}
				}
			}
		}
	}
	if quick := cover(all, true); len(quick) != 3 {
		t.Errorf("quick: %d runs, want one for each of 3 policies", len(quick))
	}
}

func TestParse(t *testing.T) {
	r := parse("x", "sweep plan --output out --json --policies 'a|b c' > p.log && solve problem.json --work 5")
	if len(r.steps) != 2 {
		t.Fatalf("%d steps, want 2", len(r.steps))
	}
	s := r.steps[0]
	if s.command != "sweep plan" || s.stdout != "p.log" || !slices.Equal(s.flags,
		[]setting{{"output", "out"}, {"json", ""}, {"policies", "a|b c"}}) {
		t.Errorf("first step %+v", s)
	}
	if s = r.steps[1]; s.command != "solve" || !slices.Equal(s.args, []string{"problem.json"}) {
		t.Errorf("second step %+v", s)
	}
}

// A build that has moved engine keys, and takes a scenario as argument, gets them so.
func TestSpelling(t *testing.T) {
	b := &build{name: "NEW", commands: "  sim   x\n  advise   y\n", flags: map[string]map[string]bool{
		"sim":            {"json": true, "engine-args": true},
		"advise --parts": {"json": true},
	}}
	line := "sim --scenario s.yaml --json --kv-tokens 4096 --ignore-eos && worth --json"
	if got, want := b.line(parse("", line)), "lorasim sim --json --engine-args kv_tokens=4096,ignore_eos=true s.yaml"+
		" && lorasim advise --parts --json"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	_, err := b.args(parse("", "worth --seeds 3").steps[0])
	if err == nil || !strings.Contains(err.Error(), "--seeds") {
		t.Errorf("an unknown flag: error %v", err)
	}
}

func TestCompare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "named.txt")
	text := "# comment\nmoved \\.old$ .new # renamed\nfield \\sgone$ # removed\nrun ^auto/ # no auto\n"
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	n, err := readNamed(path)
	if err != nil {
		t.Fatal(err)
	}
	if first(n.runs, "auto/x") == "" || first(n.runs, "pairs/1") != "" {
		t.Error("named runs: want auto/x alone")
	}
	a := map[string][]byte{"o.json": []byte(`{"a":{"old":1.50},"gone":2,"b":[1,2],"seconds":3}`),
		"r.csv": []byte("id,w\n0,1\n1,2\n")}
	b := map[string][]byte{"o.json": []byte(`{"a":{"new":1.50},"b":[1,7],"seconds":4}`),
		"r.csv": []byte("w,id\n1,0\n3,1\n")}
	changes, reasons := n.compare(run{clock: solverClock}, a, b)
	want := []change{{"o.json b.1", "2", "7"}, {"r.csv 1.w", "2", "3"}}
	if !slices.Equal(changes, want) {
		t.Errorf("changes %v, want %v", changes, want)
	}
	if !slices.Equal(reasons, []string{"removed", "renamed"}) {
		t.Errorf("reasons %q", reasons)
	}
	if changes, _ := n.compare(run{}, a, a); len(changes) > 0 {
		t.Errorf("a run differs from itself: %v", changes)
	}
}

// A field that OLD wrote in no run is new. One that OLD left out of a run only makes that run differ.
func TestNewFields(t *testing.T) {
	c := comparison{reasons: map[string]int{}, old: fieldNames(map[string][]byte{
		"o.json": []byte(`{"workers":[{"loads":3}]}`), "t.csv": []byte("metric,policy,mean\nevictions,p2c,2\n")})}
	old := map[string][]byte{"o.json": []byte(`{"workers":[{"x":1}]}`), "t.csv": []byte("metric,policy,mean\n")}
	for name, now := range map[string]map[string][]byte{
		"new": {"o.json": []byte(`{"workers":[{"x":1,"again":[{"mean":2}]}]}`),
			"t.csv": []byte("metric,policy,mean\nreloads,p2c,1\n")},
		"left out": {"o.json": []byte(`{"workers":[{"x":1,"loads":2}]}`), "t.csv": old["t.csv"]},
		"row":      {"o.json": old["o.json"], "t.csv": []byte("metric,policy,mean\nevictions,p2c,1\n")},
	} {
		changes, _ := new(named).compare(run{}, old, now)
		c.added = append(c.added, addition{run: name, changes: changes})
	}
	fresh := c.settle()
	if !maps.Equal(fresh, map[string]int{"again": 1, "reloads": 1}) || c.equal != 1 || c.differ != 2 {
		t.Errorf("new fields %v, %d runs the same, %d differ; expected 1 and 2", fresh, c.equal, c.differ)
	}
	if text := (change{"stdout1.txt line 3", none, "Reloads: 4"}); text.adds() {
		t.Errorf("%s: a line of text is not a field", text)
	}
}

// The values of options are not their defaults, and the committed lists can be read.
func TestCatalogue(t *testing.T) {
	if _, err := readNamed("named.txt"); err != nil {
		t.Error(err)
	}
	runs := catalogue([]policy{{Name: "p2c"}, {Name: "k", Options: []option{{Name: "c", Default: "1.5"}}}}, false)
	names := map[string]bool{}
	for _, r := range runs {
		if names[r.folder()] {
			t.Errorf("two runs have the folder %s", r.folder())
		}
		names[r.folder()] = true
	}
	if !names["option_k_c_3"] || !names["bench_p2c"] || !names["sweep_grid"] {
		t.Error("want runs option/k/c=3, bench/p2c and sweep/grid")
	}
}

// The file of differences on purpose can be read, and has no rule twice.
func TestNamedFile(t *testing.T) {
	n, err := readNamed("named.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range slices.Concat(n.policies, n.runs, n.fields, n.moved) {
		if seen[r.match.String()] {
			t.Errorf("named.txt has %s twice", r.match)
		}
		seen[r.match.String()] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d rules, expected tens", len(seen))
	}
}
