// Command randomscenarios compares policies over random scenarios: by how much is each worse than the best of
// all others?
//
//	go run ./randomscenarios OUT --scenarios 60 --seed 7 --seeds 4 [--policies 'a|b|c'] [--only 3,17,20-39]
//	go run ./randomscenarios OUT --scenarios 60 --seed 7 --seeds 8 --screen 2     # a third of the time
//	go run ./randomscenarios OUT --scenarios 60 --seed 7 --print             # the scenarios, as commands
//	go run ./randomscenarios OUT --scenarios 60 --seed 7 --yaml FOLDER       # the scenarios, as files
//	go run ./randomscenarios OUT --seed 7 --report --plot regret.svg --json regret.json --markdown regret.md
//	go run ./randomscenarios OUT --scenarios 60 --seed 7 --load 2            # which rate each policy sustains
//	go run ./randomscenarios OUT --lorasim OLD --policies period_mig --label @old    # another build
//
// Runs are kept in OUT/runs.jsonl, scenarios in OUT/scenarios.jsonl: the same command goes on where it was
// stopped, and --policies adds a policy to the results that are there. --label tells the results of another
// build from those of this one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"lorasim/internal/atomicfile"
)

// baselines are the policies to compare others with. plan-and-route:margin=1 is left out: it never
// moves anything, so its runs equal those of route-only.
const baselines = "static|round-robin|least-loaded|least-tokens|p2c|bounded-hash|any-worker|affinity-spill|" +
	"affinity:variant=residency|cache-aware|prefix-scorer|kv-router|min-cost-flow|route-only|plan-and-route"

// options are the flags.
type options struct {
	out       string
	scenarios int
	generator uint64
	seeds     int
	screen    int
	policies  []string
	baselines []string
	only      []int
	label     string
	lorasim   string
	jobs      int
	limit     time.Duration
	print     bool
	yaml      string
	report    bool
	markdown  string
	json      string
	plot      string
	worst     int
	load      float64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "randomscenarios:", err)
		os.Exit(1)
	}
}

// parse parses the command line.
func parse(args []string) (o options, err error) {
	f := pflag.NewFlagSet("randomscenarios", pflag.ContinueOnError)
	f.SortFlags = false
	f.IntVar(&o.scenarios, "scenarios", 60, "number of scenarios")
	f.Uint64Var(&o.generator, "seed", 1, "seed of the generator of scenarios")
	f.Float64Var(&o.load, "load", 1,
		"multiply the drawn rates; above 1.5, the cluster is overloaded, and the report compares sustained rates")
	f.IntVar(&o.seeds, "seeds", 4, "seeds of each scenario: 1, 2, ...")
	f.IntVar(&o.screen, "screen", 0,
		"run the seeds after this one of policies that may be the best only; 0: of all policies")
	policies := f.String("policies", baselines, "policies to run, separated by | or, where no policy has one, commas")
	base := f.String("baselines", baselines, "policies that the others are compared with; only those in OUT count")
	only := f.String("only", "", "numbers and ranges of scenarios, as in 3,17,20-39: run these only")
	f.StringVar(&o.label, "label", "", "added to the names of the policies in OUT, as in @branch")
	f.StringVar(&o.lorasim, "lorasim", "", "run the policies by this build of lorasim, not in this process")
	f.IntVar(&o.jobs, "jobs", 2, "runs at a time")
	f.DurationVar(&o.limit, "limit", 5*time.Minute, "longest run by the clock; a scenario with one is left out")
	f.BoolVar(&o.print, "print", false, "print the scenarios as commands, and run nothing")
	f.StringVar(&o.yaml, "yaml", "", "write the scenarios into this folder as YAML, and run nothing")
	f.BoolVar(&o.report, "report", false, "run nothing, report what OUT has")
	f.StringVar(&o.markdown, "markdown", "", "write the tables to this file, too")
	f.StringVar(&o.json, "json", "", "write all regrets to this file")
	f.StringVar(&o.plot, "plot", "", "draw the regrets of all policies (.svg, .png)")
	f.IntVar(&o.worst, "worst", 5, "scenarios to list in which plan-and-route does worst")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if !(o.load > 0) {
		return o, fmt.Errorf("--load: expected a positive number, got %v", o.load)
	}
	if f.NArg() != 1 {
		return o, fmt.Errorf("expected one argument, the folder OUT, got %d", f.NArg())
	}
	o.out = f.Arg(0)
	o.policies, o.baselines = split(*policies), split(*base)
	for _, text := range split(*only) {
		first, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = first
		}
		a, err := strconv.ParseUint(first, 10, 31)
		b, err2 := strconv.ParseUint(last, 10, 31)
		if err != nil || err2 != nil || a > b || b >= uint64(max(o.scenarios, 0)) {
			return o, fmt.Errorf("--only: %q is neither a number nor a range of scenarios from 0 to %d", text,
				o.scenarios-1)
		}
		for n := a; n <= b; n++ {
			o.only = append(o.only, int(n))
		}
	}
	if o.screen < 0 || o.screen > o.seeds {
		return o, fmt.Errorf("--screen: expected 0 to %d, the number of --seeds, got %d", o.seeds, o.screen)
	}
	if o.screen > 0 && o.load > overload {
		return o, fmt.Errorf("--screen compares latencies: with --load above %v, run all seeds", overload)
	}
	if o.scenarios < 1 || o.seeds < 1 || o.jobs < 1 {
		return o, errors.New("--scenarios, --seeds and --jobs are at least 1")
	}
	return o, nil
}

// split splits a list at |, or else at commas.
func split(text string) []string {
	if text == "" {
		return nil
	}
	if strings.Contains(text, "|") {
		return strings.Split(text, "|")
	}
	return strings.Split(text, ",")
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	s, err := OpenStore(o.out, o.generator, o.load)
	if err != nil {
		return err
	}
	defer s.Close()
	if !o.report {
		list, err := o.draw(ctx, s, stderr)
		switch {
		case err != nil:
			return err
		case o.print:
			for _, n := range list {
				fmt.Fprintf(stdout, "%d: lorasim sim %s\n", n.Index, n.Command)
			}
			return nil
		case o.yaml != "":
			return writeYAML(o.yaml, list)
		}
		runner := &Runner{Program: o.lorasim, Limit: o.limit}
		first := o.seeds
		if o.screen > 0 {
			first = o.screen
		}
		if err := RunAll(ctx, s, o.missing(list, 0, first), runner, o.jobs, stderr); err != nil {
			return err
		}
		jobs := slices.DeleteFunc(o.missing(list, first, o.seeds), func(j job) bool {
			return !mayBeBest(s.Runs, j.scenario.Index, j.policy, o.screen)
		})
		if err := RunAll(ctx, s, jobs, runner, o.jobs, stderr); err != nil {
			return err
		}
	}
	return o.write(s, stdout)
}

// draw returns the requested scenarios, and draws those that are missing in the folder.
func (o *options) draw(ctx context.Context, s *Store, stderr io.Writer) (list []Numbered, err error) {
	for i := range o.scenarios {
		if len(o.only) > 0 && !slices.Contains(o.only, i) {
			continue
		}
		n, ok := s.Scenario(i)
		if !ok {
			sc, sustained, err := Generate(ctx, o.generator, i)
			if err != nil {
				return nil, err
			}
			n = Numbered{Generator: o.generator, Index: i}
			if o.load != 1 {
				n.Load = o.load
				sc.Workload.RequestRate *= o.load
			}
			if o.load > overload {
				if err := saturate(ctx, sc, sustained); err != nil {
					return nil, err
				}
			}
			n.Command = Command(sc)
			if err := s.AddScenario(n); err != nil {
				return nil, err
			}
			fmt.Fprintf(stderr, "scenario %d of %d: %s\n", i, o.scenarios, n.Command)
		}
		list = append(list, n)
	}
	return list, nil
}

// missing returns the requested runs of the seeds from first to last-1, counted from 0.
func (o *options) missing(list []Numbered, first, last int) (jobs []job) {
	for _, n := range list {
		for _, policy := range o.policies {
			for seed := first; seed < last; seed++ {
				jobs = append(jobs, job{n, policy + o.label, policy, uint64(seed + 1)})
			}
		}
	}
	return jobs
}

// writeYAML writes each scenario as a file for --scenario.
func writeYAML(folder string, list []Numbered) error {
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return err
	}
	for _, n := range list {
		sc, err := ParseCommand(n.Command)
		if err != nil {
			return err
		}
		sc.Name = fmt.Sprintf("random %d-%d", n.Generator, n.Index)
		text, err := sc.YAML()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.yaml", n.Index)), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// write writes the report of the folder.
func (o *options) write(s *Store, stdout io.Writer) error {
	t := Judge(s, o.baselines, o.only, o.screen)
	text := t.Markdown(o.worst)
	if _, err := io.WriteString(stdout, text); err != nil {
		return err
	}
	if o.markdown != "" {
		if err := atomicfile.Write(o.markdown, func(f *atomicfile.File) error {
			_, err := io.WriteString(f, text)
			return err
		}); err != nil {
			return err
		}
	}
	if o.json != "" {
		if err := t.WriteJSON(o.json); err != nil {
			return err
		}
	}
	if o.plot != "" {
		return t.Plot(o.plot)
	}
	return nil
}
