// Command fuzzers runs fuzz targets and prints a table of their results. scripts/fuzz runs it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"
)

// target is a fuzz test.
type target struct{ pkg, dir, name string }

// outcome is the result of a target.
type outcome struct {
	target
	status string // ok, failed, not run
	took   time.Duration
	execs  string // number of executions; "": not reported
	input  string // path of the failing input; "": none
	output string // output of a failed target
}

type options struct {
	each, total time.Duration
	match       *regexp.Regexp
	jobs        int
	list        bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failed, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("scripts/fuzz", flag.ContinueOnError)
	fs.DurationVar(&o.total, "total", 0, "time of all targets together (0: no limit)")
	pattern := fs.String("run", "", "regular expression: targets whose PACKAGE.NAME matches")
	fs.IntVar(&o.jobs, "jobs", 2, "targets at a time, with one process each")
	fs.BoolVar(&o.list, "list", false, "print the targets and end")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if o.match, err = regexp.Compile(*pattern); err != nil {
		return o, fmt.Errorf("--run: %w", err)
	}
	if fs.NArg() > 1 || o.jobs < 1 || o.total < 0 {
		return o, errors.New("expected [--total TIME] [--run PATTERN] [--jobs N] [--list] [TIME]")
	}
	if fs.NArg() == 1 {
		if o.each, err = time.ParseDuration(fs.Arg(0)); err != nil || o.each <= 0 {
			return o, fmt.Errorf("%q is not a time such as 30s", fs.Arg(0))
		}
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (failed bool, err error) {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	all, err := targets(ctx)
	if err != nil {
		return false, err
	}
	all = slices.DeleteFunc(all, func(t target) bool { return !o.match.MatchString(t.pkg + "." + t.name) })
	if len(all) == 0 {
		return false, errors.New("no fuzz target matches --run")
	}
	if o.list {
		for _, t := range all {
			fmt.Fprintln(out, t.pkg, t.name)
		}
		return false, nil
	}
	if o.each == 0 && o.total > 0 { // shares of the time, minus the time to build
		o.each = max(time.Second, o.total*time.Duration(o.jobs)/time.Duration(len(all))*3/4)
	}
	o.each = cmp.Or(o.each, time.Minute)
	results := fuzzAll(ctx, all, o, out)
	return report(out, results), nil
}

var declaration = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(\w+ \*testing\.F\)`)

// targets finds the fuzz tests of all packages in their source.
func targets(ctx context.Context) (all []target, err error) {
	const form = `{{.ImportPath}}{{"\t"}}{{.Dir}}{{range .TestGoFiles}}{{"\t"}}{{.}}{{end}}{{range .XTestGoFiles}}{{"\t"}}{{.}}{{end}}`
	text, err := exec.CommandContext(ctx, "go", "list", "-f", form, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		for _, file := range fields[2:] {
			src, err := os.ReadFile(filepath.Join(fields[1], file))
			if err != nil {
				return nil, err
			}
			for _, m := range declaration.FindAllSubmatch(src, -1) {
				all = append(all, target{fields[0], fields[1], string(m[1])})
			}
		}
	}
	return all, nil
}

// fuzzAll fuzzes the targets, several at a time, and prints each as it ends.
func fuzzAll(ctx context.Context, all []target, o options, out io.Writer) []outcome {
	folder, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		return []outcome{{status: "failed", output: err.Error()}}
	}
	defer os.RemoveAll(folder)
	end := time.Time{}
	if o.total > 0 {
		end = time.Now().Add(o.total)
	}
	results := make([]outcome, len(all))
	programs := make([]func() (string, error), len(all))
	for i, t := range all { // one test program for all targets of a package
		if i > 0 && all[i-1].pkg == t.pkg {
			programs[i] = programs[i-1]
			continue
		}
		programs[i] = sync.OnceValues(func() (string,
			error) {
			return compile(ctx, t, filepath.Join(folder, fmt.Sprint(i)))
		})
	}
	var wg sync.WaitGroup
	var print sync.Mutex
	next := make(chan int)
	for range o.jobs {
		wg.Go(func() {
			for i := range next {
				r := outcome{target: all[i], status: "not run"}
				if ctx.Err() == nil && (end.IsZero() || time.Now().Before(end)) {
					r = fuzz(ctx, all[i], programs[i], o.each)
				}
				results[i] = r
				print.Lock()
				fmt.Fprintf(out, "%s %s: %s\n", r.pkg, r.name, r.status)
				print.Unlock()
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	wg.Wait()
	return results
}

// compile builds the test program of a package, with the fuzzer's instrumentation.
func compile(ctx context.Context, t target, program string) (string, error) {
	c := exec.CommandContext(ctx, "go", "test", "-c", "-fuzz", "^Fuzz", "-o", program, t.pkg)
	text, err := c.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, text)
	}
	return program, err
}

var (
	executions = regexp.MustCompile(`execs: (\d+)`)
	written    = regexp.MustCompile(`Failing input written to (\S+)`)
)

// slack is the time that a target may take beyond its own time: for the baseline, for minimizing,
// and for one slow input.
const slack = 2 * time.Minute

func fuzz(ctx context.Context, t target, program func() (string, error), each time.Duration) outcome {
	r := outcome{target: t, status: "failed"}
	path, err := program()
	if err != nil {
		r.output = err.Error()
		return r
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		r.output = err.Error()
		return r
	}
	limited, cancel := context.WithTimeout(ctx, each+slack)
	defer cancel()
	c := exec.CommandContext(limited, path, "-test.run", "^$", "-test.fuzz", "^"+t.name+"$", "-test.fuzztime",
		each.String(),
		"-test.fuzzminimizetime", "20x", "-test.parallel", "1", "-test.fuzzcachedir",
		filepath.Join(strings.TrimSpace(string(cache)), "fuzz", t.pkg))
	c.Dir = t.dir
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the target's workers end with it
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	var text bytes.Buffer
	c.Stdout, c.Stderr = &text, &text
	begun := time.Now()
	err = c.Run()
	r.took = time.Since(begun)
	if m := executions.FindAllStringSubmatch(text.String(), -1); m != nil {
		r.execs = m[len(m)-1][1]
	} else if strings.Contains(text.String(), "gathering baseline coverage") {
		r.execs = "known inputs" // the time ended before all known inputs were tried
	}
	if m := written.FindStringSubmatch(text.String()); m != nil {
		r.input = filepath.Join(t.dir, m[1])
	}
	switch {
	case err == nil:
		r.status = "ok"
	case ctx.Err() != nil:
		r.status = "interrupted"
	case limited.Err() != nil:
		r.output = fmt.Sprintf("not done %v after its time\n", slack)
	}
	if r.status == "failed" {
		r.output += tail(text.String(), 40)
	}
	return r
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// report prints the output of failed targets, and the table of all targets.
func report(out io.Writer, results []outcome) (failed bool) {
	for _, r := range results {
		if r.status == "failed" {
			fmt.Fprintf(out, "\n== %s %s\n%s\n", r.pkg, r.name, r.output)
		}
	}
	counts := map[string]int{}
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PACKAGE\tTARGET\tRESULT\tSECONDS\tEXECUTIONS\tFAILING INPUT")
	for _, r := range results {
		counts[r.status]++
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%s\t%s\n", r.pkg, r.name, r.status, r.took.Seconds(), cmp.Or(r.execs, "-"),
			cmp.Or(r.input, "-"))
	}
	w.Flush()
	fmt.Fprintf(out, "\n%d targets: %d ok, %d failed, %d not run to their end\n", len(results), counts["ok"],
		counts["failed"],
		counts["not run"]+counts["interrupted"])
	return counts["failed"] > 0
}
