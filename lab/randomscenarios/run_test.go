package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/trace/settings"
)

const small = "--num-prompts 60 --num-adapters 4 --request-rate 4 --num-workers 2"

// smallFolder is a folder with one small scenario and no runs.
func smallFolder(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	s, err := OpenStore(out, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.AddScenario(Numbered{Generator: 7, Command: small}); err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs the command, and returns the runs of the folder by policy and seed.
func try(t *testing.T, out string, args ...string) (map[string]Run, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args = append([]string{out, "--seed", "7", "--scenarios", "1", "--seeds", "2"}, args...)
	if err := command(t.Context(), args, &stdout, &stderr); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	s, err := OpenStore(out, 7, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	runs := map[string]Run{}
	for _, r := range s.Runs {
		key := fmt.Sprintf("%s/%d", r.Policy, r.Seed)
		if _, twice := runs[key]; twice {
			t.Errorf("%s ran twice", key)
		}
		runs[key] = r
	}
	return runs, stderr.String()
}

// direct is the result of the small scenario.
func direct(t *testing.T, policy string, seed uint64) *result.Result {
	t.Helper()
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](60)
	sc.Workload.NumAdapters = settings.Some(4)
	sc.Workload.RequestRate = 4
	sc.Cluster.NumWorkers, sc.Seed = settings.Some(2), seed
	testutil.Set(t, &sc, "policy", policy)
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// TestResume: a folder goes on after a line that was cut off, and takes further policies.
func TestResume(t *testing.T) {
	out := smallFolder(t)
	first, _ := try(t, out, "--policies", "static|least-loaded")
	if len(first) != 4 {
		t.Fatalf("%v, expected 4 runs", first)
	}
	want, _ := direct(t, "static", 2).Metrics.Get(result.MeanE2E)
	if got := first["static/2"]; got.E2E != want || got.Completed != 60 || got.Requests != 60 || got.Error != "" {
		t.Errorf("%+v, expected mean E2E %g", got, want)
	}
	path := filepath.Join(out, runsFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text[:len(text)-20], 0o666); err != nil {
		t.Fatal(err)
	}
	second, progress := try(t, out, "--policies", "static,least-loaded,random")
	if len(second) != 6 || !strings.Contains(progress, "3 of 3 runs, scenario 0, ETA 0s") {
		t.Errorf("%d runs, expected 6, of which 3 are new:\n%s", len(second), progress)
	}
	for key, r := range first {
		if r.Seconds, second[key] = 0, without(second[key]); second[key] != r {
			t.Errorf("%s: %+v, before %+v", key, second[key], r)
		}
	}
}

// without leaves out how long the run took.
func without(r Run) Run {
	r.Seconds = 0
	return r
}

// TestOtherBuild: another build gets the scenario as a command line, and its policies a label.
func TestOtherBuild(t *testing.T) {
	out, other := smallFolder(t), t.TempDir()
	var json bytes.Buffer
	res := direct(t, "random", 1)
	if err := res.WriteJSON(&json); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(other, "lorasim")
	script := "#!/bin/sh\necho \"$@\" >> " + other + "/args\ncat " + other + "/json\n"
	for path, text := range map[string]string{program: script, filepath.Join(other, "json"): json.String()} {
		if err := os.WriteFile(path, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	runs, _ := try(t, out, "--lorasim", program, "--policies", "random", "--label", "@old", "--jobs", "1")
	want, _ := res.Metrics.Get(result.P99TTFT)
	if got := runs["random@old/2"]; got.P99TTFT != want || got.Completed != 60 || len(runs) != 2 {
		t.Errorf("%+v, expected P99 TTFT %g", runs, want)
	}
	args, err := os.ReadFile(filepath.Join(other, "args"))
	line := "sim " + small + " --policy random --seed 1 --json\n"
	if err != nil || !strings.HasPrefix(string(args), line) {
		t.Errorf("%s, %v, expected %s", args, err, line)
	}
}

// TestLimit: a scenario with a run beyond the limit is not run further, and left out.
func TestLimit(t *testing.T) {
	out := smallFolder(t)
	runs, _ := try(t, out, "--policies", "static", "--limit", "1ns", "--jobs", "1")
	if len(runs) != 1 || runs["static/1"].Error != "took more than 1ns" {
		t.Errorf("%+v, expected one run beyond the limit", runs)
	}
}

// TestRefuse: what the command line cannot mean.
func TestRefuse(t *testing.T) {
	out := smallFolder(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{}, "expected one argument, the folder OUT, got 0"},
		{[]string{out, "--seed", "8"}, "has scenarios of --seed 7, not 8"},
		{[]string{out, "--seed", "7", "--only", "x"}, `"x" is neither a number nor a range of scenarios from 0 to 59`},
		{[]string{out, "--seed", "7", "--only", "5-3"}, `"5-3" is neither`},
		{[]string{out, "--seed", "7", "--scenarios", "9", "--only", "3,4-9"},
			`"4-9" is neither a number nor a range of scenarios from 0 to 8`},
		{[]string{out, "--seed", "7", "--screen", "5"}, "--screen: expected 0 to 4, the number of --seeds, got 5"},
		{[]string{out, "--seed", "7", "--screen", "2", "--load", "2"}, "--screen compares latencies"},
		{[]string{out, "--seed", "7", "--seeds", "0"}, "are at least 1"},
	} {
		var b bytes.Buffer
		if err := command(t.Context(), c.args, &b, &b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, expected %s", c.args, err, c.want)
		}
	}
}

// TestYAML: the files are scenarios.
func TestYAML(t *testing.T) {
	out, folder := smallFolder(t), filepath.Join(t.TempDir(), "y")
	try(t, out, "--yaml", folder)
	sc, err := scenario.Load(t.Context(), filepath.Join(folder, "0.yaml"))
	if err != nil || Command(&sc) != small && sc.Workload.NumPrompts.Value != 60 || sc.Name != "random 7-0" {
		t.Errorf("%s, %s, %v", sc.Name, Command(&sc), err)
	}
}
