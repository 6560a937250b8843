//go:build linux

// Faults measures the cost of faults of workers and clients for a gateway: requests that are
// lost, executed twice, answered with another request's reply, or hung; memory; and the time until
// all workers serve again. It starts fake workers (lorasim/bench/serving/faultworker) and the program
// lorasim, and talks to them over loopback.
//
//	go run ./faults                                     # builds lorasim, runs all rows, 16 minutes
//	go run ./faults --quick                             # a smoke test, 30 s
//	go run ./faults --list                              # the rows
//	go run ./faults --only cut,kill --policies all      # some rows, under every policy of `lorasim policies`
//	go run ./faults --lorasim OLD --json old.json       # another program; results to a file
//	go run ./faults --before old.json --markdown        # the tables of docs/faults.md, old and new figures
//	go run ./faults --check                             # fails if a figure is beyond its bound (bounds.go)
//	go run ./faults --from new.json --markdown          # the tables from a file, without a measurement
//
// All processes that it starts end with it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/lab/internal/process"
	"lorasim/lab/internal/repo"
)

// Result is one cell of the table.
type Result struct {
	Row     string   `json:"row"`
	What    string   `json:"what"`
	Policy  string   `json:"policy"`
	Special bool     `json:"special,omitempty"` // a row with figures of its own
	Figures []Figure `json:"figures"`
	Error   string   `json:"error,omitempty"` // reason for missing figures
	Seconds float64  `json:"seconds"`
	Load    float64  `json:"load_average"`
}

type options struct {
	lorasim                       string
	only, skip, policies          string
	jsonFile, before, from, extra string
	quick, markdown, check, list  bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "worker-process" {
		fmt.Fprintln(os.Stderr, workerMain(os.Args[2]))
		os.Exit(1)
	}
	var o options
	flag.StringVar(&o.lorasim, "lorasim", "", "program to measure (default: built from the source)")
	flag.StringVar(&o.only, "only", "", "rows to run, NAME,NAME,... (default: all)")
	flag.StringVar(&o.skip, "skip", "", "rows to leave out, NAME,NAME,...")
	flag.StringVar(&o.policies, "policies", "least-loaded,affinity,plan-and-route,static",
		"policies, NAME,NAME,..., or all")
	flag.StringVar(&o.jsonFile, "json", "", "file for the results; rows that it has already are replaced")
	flag.StringVar(&o.before, "before", "", "file of --json whose figures are shown beside the new ones")
	flag.StringVar(&o.from, "from", "", "print the results of a file of --json instead of measuring")
	flag.StringVar(&o.extra, "gateway-args", "", "further flags of lorasim gateway, separated by spaces")
	flag.BoolVar(&o.quick, "quick", false, "a smoke test: few rows, few requests")
	flag.BoolVar(&o.markdown, "markdown", false, "print the tables of docs/faults.md")
	flag.BoolVar(&o.check, "check", false, "fail if a figure is beyond its bound")
	flag.BoolVar(&o.list, "list", false, "list the rows")
	flag.Parse()
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if signal.Ignored(syscall.SIGHUP) { // as under nohup: children must begin with the default
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	} else {
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	err := o.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(1)
	}
}

// quickRows are the rows of --quick.
var quickRows = []string{"none", "cut", "drop", "second", "metrics-{}", "kill", "sigterm", "slow-bodies", "places"}

// job is one cell to measure.
type job struct {
	row, what, policy string
	special           bool
	run               func(c *cell) error
}

// jobs returns the cells to measure. Rows that are measured once use the first policy.
func (o *options) jobs(policies []string) (list []job, err error) {
	names := map[string]bool{}
	wanted := func(name string) bool {
		names[name] = true
		if slices.Contains(strings.Split(o.skip, ","), name) {
			return false
		}
		if o.only == "" {
			return !o.quick || slices.Contains(quickRows, name)
		}
		return slices.Contains(strings.Split(o.only, ","), name)
	}
	for _, f := range faults() {
		for _, p := range policies {
			if wanted(f.name) {
				list = append(list, job{f.name, f.what, p, false, f.run})
			}
		}
	}
	for _, s := range specials() {
		use := policies[:1]
		if s.policies {
			use = policies
		}
		for _, p := range use {
			if wanted(s.name) {
				list = append(list, job{s.name, s.what, p, true, s.run})
			}
		}
	}
	for _, name := range strings.Split(o.only+","+o.skip, ",") {
		if name != "" && !names[name] {
			return nil, fmt.Errorf("unknown row %q; --list lists them", name)
		}
	}
	return list, nil
}

func (o *options) run(ctx context.Context) error {
	if o.list {
		for _, f := range faults() {
			fmt.Printf("%-18s %s\n", f.name, f.what)
		}
		for _, s := range specials() {
			fmt.Printf("%-18s %s\n", s.name, s.what)
		}
		return nil
	}
	before, err := read(o.before)
	if err != nil {
		return err
	}
	if o.from != "" {
		results, err := read(o.from)
		if err != nil {
			return err
		}
		return o.print(results, before)
	}
	return repo.InFolder(ctx, "faults", o.lorasim, func(_, lorasim string) error {
		results, err := o.measure(ctx, lorasim)
		if err != nil {
			return err
		}
		return o.print(results, before)
	})
}

func (o *options) print(results, before []Result) error {
	if o.markdown {
		printMarkdown(os.Stdout, results, before)
	} else if len(before) > 0 {
		printDifferences(os.Stdout, results, before)
	}
	if o.check {
		if n := check(os.Stdout, results, o.quick); n > 0 {
			return fmt.Errorf("%d figures are beyond their bounds", n)
		}
	}
	return nil
}

func read(name string) (list []Result, err error) {
	if name == "" {
		return nil, nil
	}
	data, err := os.ReadFile(name)
	if err == nil {
		if err = json.Unmarshal(data, &list); err != nil {
			err = fmt.Errorf("%s: expected the output of --json: %w", name, err)
		}
	}
	return list, err
}

// measure runs all cells with a program, one after the other.
func (o *options) measure(ctx context.Context, lorasim string) (results []Result, err error) {
	b := &bench{lorasim: lorasim, quick: o.quick, extra: strings.Fields(o.extra), spawner: process.NewSpawner(),
		limit: 5 * time.Second}
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	help, err := exec.CommandContext(ctx, b.lorasim, "gateway", "--help-all").Output()
	if err != nil { // an older program
		help, err = exec.CommandContext(ctx, b.lorasim, "gateway", "--help").Output()
	}
	if err != nil {
		return nil, fmt.Errorf("%s gateway --help: %w", b.lorasim, err)
	}
	b.help = string(help)
	policies, err := o.policyList(ctx, b.lorasim)
	if err != nil {
		return nil, err
	}
	jobs, err := o.jobs(policies)
	if err != nil {
		return nil, err
	}
	known, err := read(o.jsonFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, j := range jobs {
		r := b.measure(ctx, j)
		if ctx.Err() != nil {
			return results, errors.New("interrupted")
		}
		results = append(results, r)
		if !o.markdown {
			printLine(os.Stdout, r)
		} else {
			printLine(os.Stderr, r)
		}
		if err := o.save(merge(known, results)); err != nil {
			return results, err
		}
	}
	return results, nil
}

func (o *options) policyList(ctx context.Context, lorasim string) (list []string, err error) {
	if o.policies != "all" && !o.quick {
		return strings.Split(o.policies, ","), nil
	}
	if o.quick && o.policies != "all" {
		return strings.Split(o.policies, ",")[:1], nil
	}
	out, err := exec.CommandContext(ctx, lorasim, "policies").Output()
	if err != nil {
		return nil, fmt.Errorf("%s policies: %w", lorasim, err)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0:
		case words[0] == "explicit": // requires a table
			list = append(list, "explicit:map=rest@all")
		default:
			list = append(list, words[0])
		}
	}
	return list, nil
}

// merge returns a list in which newer results replace older ones of the same row and policy, in the
// order of the rows.
func merge(old, now []Result) (all []Result) {
	for _, r := range old {
		if find(now, r.Row, r.Policy) == nil {
			all = append(all, r)
		}
	}
	all = append(all, now...)
	place := map[string]int{}
	for i, f := range faults() {
		place[f.name] = i
	}
	for i, s := range specials() {
		place[s.name] = 1000 + i
	}
	slices.SortStableFunc(all, func(a, b Result) int { return place[a.Row] - place[b.Row] })
	return all
}

func (o *options) save(results []Result) error {
	if o.jsonFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.jsonFile, append(data, '\n'), 0o644)
}

// cellLimit is the time limit of a cell.
const cellLimit = 4 * time.Minute

func (b *bench) measure(ctx context.Context, j job) (r Result) {
	ctx, cancel := context.WithTimeout(ctx, cellLimit)
	defer cancel()
	c := &cell{bench: b, ctx: ctx, policy: j.policy, book: new(faultworker.Book)}
	begun := time.Now()
	r = Result{Row: j.row, What: j.what, Policy: j.policy, Special: j.special}
	err := j.run(c)
	c.close()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Figures, r.Seconds, r.Load = c.figures, float64(int(time.Since(begun).Seconds()*10))/10, process.LoadAverage()
	return r
}
