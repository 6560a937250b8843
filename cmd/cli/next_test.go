package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/steady"
)

// wordsOf splits a command line that a command printed. It has no quotes.
func wordsOf(t *testing.T, line string) []string {
	t.Helper()
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "lorasim" || strings.ContainsAny(line, `'"`) {
		t.Fatalf("%q is no plain command of lorasim", line)
	}
	return words[1:]
}

// lookLine returns the text of a line of the first look; "": there is none.
func lookLine(text, label string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, fmt.Sprintf("%-10s", label)); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// shortScenarios are runs that are too short to decide their state: random clusters, loads from 0.3 to 0.95 of what
// they sustain.
func shortScenarios(n int) (list [][]string) {
	rng := rand.New(rand.NewPCG(43, 4))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	for range n {
		workers := 1 + rng.IntN(6)
		rate := float64(workers) * 3.6 * (0.3 + 0.65*rng.Float64())
		list = append(list, []string{"sim", "--num-workers", fmt.Sprint(workers),
			"--num-adapters", one("4", "16", "64"), "--popularity", one("zipf", "uniform"),
			"--request-rate", fmt.Sprintf("%.2f", rate), "--policy", one("plan-and-route", "static", "p2c", "affinity"),
			"--num-prompts", one("150", "300", "500", "800"), "--seed", fmt.Sprint(1 + rng.IntN(1000))})
	}
	return list
}

// TestNextDecides: the command that sim prints after a transient run decides its state in most scenarios.
func TestNextDecides(t *testing.T) {
	transient, decided := 0, 0
	for _, args := range shortScenarios(30) {
		text := lorasim(t, args...)
		if !strings.HasPrefix(lookLine(text, "State"), "transient") {
			continue
		}
		transient++
		next := lookLine(text, "Next")
		var after struct{ Steady *steady.Assessment }
		// As JSON it is the same run, without the changes that sim tries on its own.
		out := lorasim(t, append(wordsOf(t, next), "--json")...)
		if err := json.Unmarshal([]byte(out), &after); err != nil || after.Steady == nil {
			t.Fatalf("%s: %v, %s", next, err, out)
		}
		if after.Steady.State != steady.Transient {
			decided++
		}
		t.Logf("%s\n  %s\n  %s", lookLine(text, "State"), next, after.Steady.State)
	}
	t.Logf("%d of %d transient runs decided by the next command", decided, transient)
	if transient < 20 || decided < transient*7/10 {
		t.Errorf("%d of %d transient runs decided by the next command, expected 70 %% of at least 20", decided, transient)
	}
}

// nextOf returns the command that an answer ends with; "": there is none.
func nextOf(text string) string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "Next"); ok {
			_, command, _ := strings.Cut(rest, ": ")
			return strings.TrimSpace(command)
		}
	}
	return ""
}

// TestNextOfAnswersDecides: the commands that capacity, sweep, sweep merge, advise and compare print after an answer
// that is open decide it in most cases.
func TestNextOfAnswersDecides(t *testing.T) {
	t.Chdir(t.TempDir())
	short := strings.Fields("--lengths constant:50,10 --num-adapters 8 --num-prompts 300 --request-rate")
	// ask runs a command; it may find nothing.
	ask := func(args ...string) string {
		var out, errs bytes.Buffer
		if code := run(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitOK && code != exitFailed {
			t.Fatalf("%q: exit code %d: %s", args, code, errs.String())
		}
		return out.String()
	}
	open, decided := map[string]int{}, map[string]int{}
	count := func(command, text, after string) {
		open[command]++
		if rest := nextOf(after); rest == "" {
			decided[command]++
		} else {
			t.Logf("%s is open after %s: %s", command, nextOf(text), rest)
		}
	}
	for i, rate := range []string{"60", "80", "40"} {
		dir := "sweep" + rate
		with := func(command string) []string { return slices.Concat(strings.Fields(command), short, []string{rate}) }
		text := ask(with("sweep --policies static,least-loaded --seeds 3 --metrics mean_ttft_ms -o " + dir)...)
		if nextOf(text) != "" {
			merged := ask("sweep", "merge", dir, "--metrics", "mean_ttft_ms")
			if of := nextOf(merged); i%2 == 0 {
				count("sweep merge", merged, ask(append(wordsOf(t, of), "--metrics", "mean_ttft_ms")...))
			} else {
				count("sweep", text, ask(wordsOf(t, nextOf(text))...))
			}
		}
		text = ask(with("advise --policies static,least-loaded --no-search --no-worst --seeds 4")...)
		if nextOf(text) != "" {
			count("advise", text, ask(wordsOf(t, nextOf(text))...))
		}
		for _, policy := range []string{"static", "p2c"} {
			result := ask(with("sim --json --policy " + policy)...)
			if err := os.WriteFile(policy+".json", []byte(result), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if text = ask("compare", "static.json", "p2c.json"); nextOf(text) != "" {
			for line := range strings.Lines(text) {
				if _, command, ok := strings.Cut(line, ": "); ok && strings.HasPrefix(line, "Next, for ") {
					command, file, _ := strings.Cut(strings.TrimSpace(command), " > ")
					if err := os.WriteFile(file, []byte(ask(wordsOf(t, command)...)), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			count("compare", text, ask("compare", "A.json", "B.json"))
		}
		if i == 0 {
			text = ask(with("capacity --goodput ttft:200 --policy least-loaded --max-workers 8 --budget 100000")...)
			count("capacity", text, ask(wordsOf(t, nextOf(text))...))
		}
	}
	for _, command := range []string{"capacity", "sweep", "sweep merge", "advise", "compare"} {
		if n := open[command]; n == 0 || 2*decided[command] <= n {
			t.Errorf("%s: %d of %d open answers are decided by the next command", command, decided[command], n)
		}
	}
	t.Logf("open: %v, decided: %v", open, decided)
}

// TestAgain: a command line with other flags.
func TestAgain(t *testing.T) {
	for in, want := range map[string]string{
		"--request-rate 12":                              "lorasim sim --request-rate 12 --num-prompts 4000",
		"--num-prompts 300 --seed 2":                     "lorasim sim --seed 2 --num-prompts 4000",
		"--num-prompts=300 --seed=2":                     "lorasim sim --seed=2 --num-prompts 4000",
		"--num-prompts 300 --goodput ttft:500":           "lorasim sim --goodput ttft:500 --num-prompts 4000",
		"--lengths constant:50,10 --num-prompts 300":     "lorasim sim --lengths constant:50,10 --num-prompts 4000",
		"--window 10 --request-rate 4 --num-prompts 300": "lorasim sim --request-rate 4 --num-prompts 4000 --window 80",
	} {
		var got string
		root := Root()
		for _, c := range root.Commands() {
			if c.Name() == "sim" {
				args := strings.Fields("sim " + in)
				c.SetContext(withArgs(t.Context(), args))
				if err := c.ParseFlags(args[1:]); err != nil {
					t.Fatal(err)
				}
				changes := []string{"num-prompts", "4000"}
				if strings.Contains(in, "window") {
					changes = append(changes, "window", "80")
				}
				got = again(c, changes...)
			}
		}
		if got != want {
			t.Errorf("%s: %s, expected %s", in, got, want)
		}
	}
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"sim", "--num-prompts", "300"}, strings.NewReader(""), &out, &errs)
	if code != 0 || !strings.Contains(out.String(), "\nNext      lorasim sim --num-prompts ") {
		t.Errorf("exit code %d, %s", code, out.String())
	}
}
