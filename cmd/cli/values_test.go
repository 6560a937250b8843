package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"lorasim/bench/scenario"
	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/profile"
)

// oddValues are what people mistype, and what breaks programs.
var oddValues = []string{"0", "-3", "NaN", "inf", "1e300", "1e-300", "9223372036854775807", "-9223372036854775808",
	"5x", "", "x", "1,,2", ":", "a=b"}

// try runs a command with a value that may or may not be taken: whatever
// happens, it must not panic, must end soon when it is asked to, and must say
// in one line what is wrong, if anything is.
func try(t *testing.T, names []string, args ...string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 60*time.Millisecond)
	defer stop()
	var stderr bytes.Buffer
	code := make(chan int, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("%q: panic: %v", args, r)
				code <- -1
			}
		}()
		code <- run(ctx, args, strings.NewReader(""), new(bytes.Buffer), &stderr)
	}()
	select {
	case c := <-code:
		text := strings.TrimSuffix(stderr.String(), "\n")
		switch {
		case c == exitOK || c == exitInterrupted || c < 0:
		case c == exitUsage || c == exitFailed:
			last := text[strings.LastIndex(text, "\n")+1:]
			if !strings.HasPrefix(last, "lorasim: ") {
				t.Errorf("%q: exit code %d and %q, expected one line from lorasim", args, c, text)
			}
			for _, n := range names {
				if strings.Contains(strings.ToLower(strings.ReplaceAll(last, "_", "-")), strings.ToLower(n)) {
					return
				}
			}
			t.Errorf("%q: %q names none of %q", args, last, names)
		default:
			t.Errorf("%q: exit code %d", args, c)
		}
	case <-time.After(10 * time.Minute):
		t.Fatalf("%q: hangs after it was interrupted: %s", args, stderr.String())
	}
}

// TestEveryFlagTakesOrRefuses gives odd values to every flag of every command.
// Settings of the scenario are tried once, with sim.
func TestEveryFlagTakesOrRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	seen := map[string]bool{}
	var tries sync.WaitGroup
	places := make(chan struct{}, 4) // tries at a time: most only wait for their time to be up
	defer tries.Wait()
	walk(Root(), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, setting := f.Value.(*settingValue)
			switch {
			case setting && seen[f.Name], f.Value.Type() == "bool" && !setting, isAlias(f):
				return
			case setting:
				seen[f.Name] = true
				path = []string{"sim"}
			case isNumber(f) && f.Annotations[boundsKey] == nil:
				t.Errorf("%s --%s is a number without bounds: see opt", cmd.CommandPath(), f.Name)
			case !isNumber(f):
				return // see TestEveryTextFlag
			}
			for _, v := range oddValues {
				args := append(append([]string{}, path...), fmt.Sprintf("--%s=%s", f.Name, v))
				if setting {
					args = append(args, "--json")
					if f.Name != "num-prompts" {
						args = append(args, "--num-prompts=20")
					}
					parts := strings.Split(f.Name, "-")
					places <- struct{}{}
					tries.Go(func() {
						try(t, []string{f.Name, parts[len(parts)-1], v + ":"}, args...) // of files their name is enough
						<-places
					})
					continue
				}
				// a flag is refused before the command looks for its arguments
				if err := cmdError(cmd, f.Name, v); err != nil && (!strings.HasPrefix(err.Error(), "--"+f.Name+": ") ||
					strings.Contains(err.Error(), "\n")) {
					t.Errorf("%q: %v", args, err)
				}
			}
		})
	})
	if len(seen) < 60 {
		t.Errorf("%d settings were tried, expected all", len(seen))
	}
}

// TestEveryTextFlag gives odd values to every flag that is a text, beside
// arguments with which the command runs.
func TestEveryTextFlag(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	worker, err := emulate.New(emulate.Config{Costs: p.Compile(), API: httpapi.SGLang, Speed: 100, Home: router.Disk})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(worker)
	defer worker.Close()
	defer srv.Close()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("runs.csv", []byte(runsCSV), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("hist.json", []byte(histJSON), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"sim --num-prompts 20 --output-file a.jsonl --json",
		"sim --num-prompts 20 --policy static --records a.csv --json",
		"solve generate 2,3,4 -o problem.json",
		"sweep -o done --num-prompts 20 --policies static,p2c --seeds 2",
	} {
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(line), strings.NewReader(""), new(bytes.Buffer),
			&stderr); code != exitOK {
			t.Fatalf("%s: %s", line, stderr.String())
		}
	}
	base := map[string]string{
		"advise":                "--num-prompts 20 --policies static,hash --no-search --no-worst --seeds 2",
		"bench":                 srv.URL + " --num-prompts 2 --request-rate inf --worker-time-scale 99 --lora-names a",
		"capacity":              "--goodput ttft:9000 --max-seeds 1 --window 20 --request-rate 5 --lengths constant:50,10",
		"check":                 srv.URL,
		"compare":               "a.jsonl",
		"explain":               "--num-prompts 20 --seeds 1",
		"explore":               "",
		"gateway":               srv.URL + " --listen 127.0.0.1:0",
		"init":                  "first.yaml --force",
		"profile check records": "a.csv --profile llama-2-7b-rtx-4090-sglang-0.5",
		"profile check runs":    "runs.csv --histograms hist.json --seeds 1",
		"profile compute":       "",
		"profile fit records":   "a.csv --evaluations 2",
		"profile fit runs":      "runs.csv --histograms hist.json --evaluations 2 --seeds 1",
		"report":                "a.jsonl -o r.html",
		"sim":                   "--num-prompts 20 --json",
		"solve":                 "problem.json",
		"solve bench":           "--size 2,3,4",
		"solve generate":        "2,3,4 -o p.json",
		"sweep":                 "-o new --num-prompts 20 --policies static --seeds 1",
		"sweep emit":            "slurm done",
		"sweep merge":           "done",
		"sweep plan":            "-o new --num-prompts 20 --policies static --seeds 1",
		"sweep run":             "done",
		"trace generate":        "--num-prompts 20 -o w.csv",
		"trace import":          "a.csv -o imported.csv",
		"trace info":            "--num-prompts 20",
		"trace plot":            "--num-prompts 20 -o w.svg",
		"trace workload":        "--num-prompts 20 -o w.csv",
		"worker":                "--listen 127.0.0.1:0",
	}
	for path, args := range base { // an error without an odd value would be one with it, if there is time for it
		if args == "" || path == "gateway" || path == "worker" {
			continue // these do not end by themselves, or need a flag
		}
		var stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(path+" "+args), strings.NewReader(""), new(bytes.Buffer),
			&stderr); code != exitOK {
			t.Errorf("%s %s: %s", path, args, stderr.String())
		}
	}
	odd := []string{"", "x", ":", "1,,2", "a=b", "NaN", "-3", "a:b:c"}
	n := 0
	var tries sync.WaitGroup // beside each other: most only wait for their time to be up
	defer tries.Wait()
	walk(Root(), func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		var all [][2][]string // names and arguments
		defer func() {
			tries.Go(func() {
				for _, one := range all {
					try(t, one[0], one[1]...)
				}
			})
		}()
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, setting := f.Value.(*settingValue); setting || isNumber(f) || f.Value.Type() == "bool" || isAlias(f) {
				return
			}
			args, ok := base[strings.Join(path, " ")]
			if kind := strings.Join(path, " "); strings.HasPrefix(kind, "profile ") && !ok {
				return // as profile check runs and profile fit runs, with other data
			}
			if !ok {
				t.Errorf("%s --%s: no arguments to try it with", cmd.CommandPath(), f.Name)
			}
			for _, v := range odd {
				n++
				names := []string{f.Name}
				if v != "" {
					names = append(names, v)
				}
				for _, part := range strings.Split(v, ",") { // of a list the part that is wrong
					names = append(names, fmt.Sprintf("%q", part))
				}
				if f.Shorthand != "" {
					names = append(names, "-"+f.Shorthand+" ")
				}
				all = append(all, [2][]string{names, slices.Concat(path, strings.Fields(args),
					[]string{fmt.Sprintf("--%s=%s", f.Name, v)})})
			}
		})
	})
	if n < 500 {
		t.Errorf("%d values were tried, expected more", n)
	}
}

func walk(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		walk(c, f)
	}
}

func isAlias(f *pflag.Flag) bool {
	_, ok := f.Value.(*aliasValue)
	return ok
}

func isNumber(f *pflag.Flag) bool {
	switch f.Value.Type() {
	case "int", "int64", "uint64", "float64", "duration", "intSlice":
		return true
	}
	return false
}

// cmdError is what a command says to one flag.
func cmdError(like *cobra.Command, name, value string) error {
	cmd, _, err := Root().Find(strings.Fields(like.CommandPath())[1:])
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags([]string{fmt.Sprintf("--%s=%s", name, value)}); err != nil {
		return flagError(cmd, err)
	}
	return checkBounds(cmd)
}

// TestNumbersOutOfBounds: whatever its bounds are, a flag that is a number takes
// neither NaN nor garbage, nor, but for a few, less than 0.
func TestNumbersOutOfBounds(t *testing.T) {
	n := 0
	walk(Root(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, setting := f.Value.(*settingValue); setting || !isNumber(f) {
				return
			}
			n++
			for _, v := range []string{"NaN", "5x", "x", "-1", "-5s", "9223372036854775808000"} {
				if cmdError(cmd, f.Name, v) == nil {
					t.Errorf("%s --%s takes %q", cmd.CommandPath(), f.Name, v)
				}
			}
			// unset stands for something else
			if def := f.DefValue; def != "[]" && cmdError(cmd, f.Name, def) != nil && f.Name != "port" &&
				f.Name != "seeds" {
				t.Errorf("%s --%s does not take its default %q: %v", cmd.CommandPath(), f.Name, def,
					cmdError(cmd, f.Name, def))
			}
		})
	})
	if n < 30 {
		t.Errorf("%d flags are numbers, expected more", n)
	}
}

// TestEveryKeyTakesOrRefuses gives odd values to every key of a scenario file.
func TestEveryKeyTakesOrRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, f := range scenario.Fields() {
		for _, v := range oddValues {
			text := fmt.Sprintf("%s: %q\n", f.Leaf(), v)
			if f.Section != "" {
				text = inSection(f, fmt.Sprintf("%q", v))
			}
			if err := os.WriteFile(filepath.Join(dir, "s.yaml"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := scenario.Load(t.Context(), "s.yaml")
			line := strings.Count(text, "\n")
			if want := fmt.Sprintf("s.yaml:%d: %s: ", line, f.Key); err != nil &&
				(!strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%q: %v, expected %s", text, err, want)
			}
			if f.Type() == "int" || f.Type() == "float" {
				if (v == "NaN" || v == "5x" || v == "-3" || v == "x" || v == "1e300" && f.Leaf() != "request_rate") &&
					err == nil {
					t.Errorf("%q is taken", text)
				}
			}
		}
	}
}
