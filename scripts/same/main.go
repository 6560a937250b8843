// Same compares the results of two builds of lorasim: every value of every output of some 550 command lines.
//
//	go run ./scripts/same [-quick] [-run REGEXP] OLD NEW
//
// OLD and NEW are binaries. The runs cover every registered policy and each of its options, pairs of settings of
// sim, load shedding, workload sources, result layouts, sweep, capacity, advise, worth, solve, compare, trace, and
// bench against emulated workers (runs.go, pairs.go, live.go). Command lines are written in the spelling of the
// build at commit c841bf9f; spelling.go translates them for a build that spells them in another way.
//
// A differing run is printed with its command line and its first differing values. Differences on purpose are
// named in scripts/same/named.txt, with a reason each; they are counted, and do not fail the comparison. Nor do
// new fields of JSON and CSV, which OLD wrote in no run; they need a name only where the text of a run shows them.
//
// Exit status 1: a run differs, or fewer than three quarters of the runs gave results.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

type options struct {
	jobs   int
	quick  bool
	list   bool
	only   string
	named  string
	inputs string
	keep   string
}

func main() {
	var o options
	flag.IntVar(&o.jobs, "j", runtime.NumCPU(), "runs at a time")
	flag.BoolVar(&o.quick, "quick", false, "only a subset of the runs, which takes about a minute")
	flag.BoolVar(&o.list, "list", false, "print the runs of OLD with their command lines, without running them")
	flag.StringVar(&o.only, "run", "", "only the runs whose name matches this regular expression")
	flag.StringVar(&o.named, "named", "scripts/same/named.txt", "file of the differences on purpose")
	flag.StringVar(&o.inputs, "inputs", "scenarios", "folder of the picker and script files")
	flag.StringVar(&o.keep, "keep", "", "keep all outputs in this folder")
	flag.Parse()
	if flag.NArg() != 2 {
		fmt.Fprintln(os.Stderr, "usage: same [flags] OLD NEW: two binaries of lorasim")
		flag.PrintDefaults()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := same(ctx, o, flag.Arg(0), flag.Arg(1))
	if err != nil {
		fmt.Fprintln(os.Stderr, "same:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// same makes all runs and prints those that differ. It reports whether none did.
func same(ctx context.Context, o options, oldPath, newPath string) (bool, error) {
	dir, done, err := workDir(o)
	if err != nil {
		return false, err
	}
	defer done()
	before, err := probe(ctx, "OLD", oldPath)
	if err != nil {
		return false, err
	}
	after, err := probe(ctx, "NEW", newPath)
	if err != nil {
		return false, err
	}
	names, err := readNamed(o.named)
	if err != nil {
		return false, err
	}
	policies, err := commonPolicies(before, after, names)
	if err != nil {
		return false, err
	}
	runs, err := selected(catalogue(policies, o.quick), o.only)
	if err != nil {
		return false, err
	}
	if o.list {
		for _, r := range runs {
			fmt.Printf("%s\n    %s\n", r.name, before.line(r))
		}
		return true, nil
	}
	c := comparison{before: before, after: after, named: names, dir: dir, inputs: o.inputs}
	c.all(ctx, runs, o.jobs)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	return c.summary(), nil
}

// workDir returns the absolute path of the folder in which the commands run.
func workDir(o options) (dir string, done func(), err error) {
	if o.keep != "" {
		if dir, err = filepath.Abs(o.keep); err != nil {
			return "", nil, err
		}
		return dir, func() {}, os.MkdirAll(dir, 0o777)
	}
	dir, err = os.MkdirTemp("", "same-")
	return dir, func() { os.RemoveAll(dir) }, err
}

// commonPolicies returns the policies that both builds have. It is an error if NEW lacks one that is not named.
func commonPolicies(before, after *build, names *named) ([]policy, error) {
	var all []policy
	for _, p := range before.policies {
		switch {
		case after.knows(p.Name):
			all = append(all, p)
		case first(names.policies, p.Name) == "":
			return nil, fmt.Errorf("NEW has no policy %s; if that is on purpose, name it in scripts/same/named.txt", p.Name)
		}
	}
	return all, nil
}

func selected(runs []run, pattern string) ([]run, error) {
	match, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	runs = slices.DeleteFunc(runs, func(r run) bool { return !match.MatchString(r.name) })
	if len(runs) == 0 {
		return nil, errors.New("no run has a name that matches -run " + pattern)
	}
	return runs, nil
}

// comparison makes runs with both builds. Invariant: out and the counts are written under mu only.
type comparison struct {
	before, after *build
	named         *named
	dir, inputs   string

	mu                     sync.Mutex
	equal, refused, differ int
	reasons                map[string]int  // reason of a difference on purpose -> runs
	old                    map[string]bool // names of all fields that OLD wrote
	added                  []addition      // runs with fields that OLD did not write in them
}

// addition is a run that is the same but for fields that OLD did not write. Whether they are new, or were only left out
// in this run, is known after the last run.
type addition struct {
	run, line string
	changes   []change
}

func (c *comparison) all(ctx context.Context, runs []run, jobs int) {
	c.reasons, c.old = map[string]int{}, map[string]bool{}
	work := make(chan run)
	var group sync.WaitGroup
	for range jobs {
		group.Go(func() {
			for r := range work {
				c.one(ctx, r)
			}
		})
	}
	for _, r := range runs {
		if ctx.Err() != nil {
			break
		}
		work <- r
	}
	close(work)
	group.Wait()
}

// one makes a run with both builds and counts it.
func (c *comparison) one(ctx context.Context, r run) {
	line := c.before.line(r)
	if reason := first(c.named.runs, r.name+" "+line); reason != "" {
		c.mu.Lock()
		c.reasons[reason]++
		c.mu.Unlock()
		return
	}
	a, errA := c.execute(ctx, c.before, r)
	b, errB := c.execute(ctx, c.after, r)
	var changes []change
	var reasons []string
	if errA == nil && errB == nil {
		changes, reasons = c.named.compare(r, a, b)
	}
	fields := fieldNames(a)
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.Copy(c.old, fields)
	switch {
	case ctx.Err() != nil:
	case errA != nil && errB != nil && !errors.Is(errB, errSpelling):
		c.refused++
		fmt.Printf("refused  %s\n    %s\n    %v\n", r.name, line, errA)
	case errA != nil || errB != nil:
		c.differ++
		fmt.Printf("DIFFERS  %s\n    %s\n", r.name, line)
		fmt.Printf("    OLD: %v\n    NEW: %v\n", cmp.Or(errA, errNone), cmp.Or(errB, errNone))
	case len(changes) > 0 && !slices.ContainsFunc(changes, func(ch change) bool { return !ch.adds() }):
		c.added = append(c.added, addition{r.name, line, changes})
	case len(changes) > 0:
		c.differ++
		fmt.Printf("DIFFERS  %s\n    %s\n", r.name, line)
		if other := c.after.line(r); other != line {
			fmt.Printf("    NEW: %s\n", other)
		}
		printChanges(changes)
	case len(reasons) > 0:
		for _, reason := range reasons {
			c.reasons[reason]++
		}
		c.equal++
	default:
		c.equal++
	}
}

// settle counts the runs with additions: as the same if OLD wrote the added fields in no run. It returns the number of
// runs with each of these fields.
func (c *comparison) settle() (fresh map[string]int) {
	fresh = map[string]int{}
	for _, a := range c.added {
		names := map[string]bool{}
		changes := slices.DeleteFunc(a.changes, func(ch change) bool {
			name := fieldName(ch.path)
			if c.old[name] {
				return false
			}
			names[name] = true
			return true
		})
		for name := range names {
			fresh[name]++
		}
		if len(changes) == 0 {
			c.equal++
			continue
		}
		c.differ++
		fmt.Printf("DIFFERS  %s\n    %s\n", a.run, a.line)
		printChanges(changes)
	}
	return fresh
}

// printChanges prints the first changes of each file.
func printChanges(changes []change) {
	const most = 2
	shown := map[string]int{}
	for _, ch := range changes {
		file, _, _ := strings.Cut(ch.path, " ")
		if shown[file]++; shown[file] <= most {
			fmt.Printf("    %s\n", ch)
		}
	}
	fmt.Printf("    %d values differ\n", len(changes))
}

var errNone = errors.New("no error")

// summary prints the counts and reports whether the comparison is good.
func (c *comparison) summary() bool {
	fresh := c.settle()
	for _, field := range slices.Sorted(maps.Keys(fresh)) {
		fmt.Printf("new      %d runs: field %s\n", fresh[field], field)
	}
	named := 0
	for _, reason := range slices.Sorted(mapKeys(c.reasons)) {
		fmt.Printf("named    %d runs: %s\n", c.reasons[reason], reason)
		named++
	}
	fmt.Printf("%d runs the same, %d differing but for %d named, %d refused by both builds\n",
		c.equal, c.differ, named, c.refused)
	return c.differ == 0 && c.equal >= 3*c.refused
}

// execute makes the steps of a run in a folder of its own and returns the outputs by name.
func (c *comparison) execute(ctx context.Context, b *build, r run) (map[string][]byte, error) {
	dir := filepath.Join(c.dir, b.name, r.folder())
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	for _, folder := range []string{"pickers", "policies"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(c.inputs, folder))); err != nil &&
			!errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	for name, content := range r.files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666); err != nil {
			return nil, err
		}
	}
	var urls []string
	if r.workers != nil {
		servers, err := b.serve(ctx, dir, *r.workers)
		if err != nil {
			return nil, err
		}
		defer servers.stop()
		urls = servers.urls
	}
	for i, s := range r.steps {
		if err := b.step(ctx, dir, i, s, urls); err != nil {
			return nil, err
		}
	}
	return outputs(dir)
}

// step runs one command. Its standard output becomes a file.
func (b *build) step(ctx context.Context, dir string, i int, s step, urls []string) error {
	args, err := b.args(s)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, slices.Concat(args, urls)...)
	cmd.Dir = dir
	stdout, err := os.Create(filepath.Join(dir, cmp.Or(s.stdout, fmt.Sprintf("stdout%d.txt", i+1))))
	if err != nil {
		return err
	}
	defer stdout.Close()
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = stdout, &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		return fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}
	return nil
}
