package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/ilp"
	"lorasim/ilp/highs"
	"lorasim/internal/suggest"
)

// highsTime limits HiGHS where no limit is given; the embedded solver ends by
// itself.
const highsTime = 20 * time.Second

// solverFlags say how to solve.
type solverFlags struct {
	solver      string
	formulation string
	limit       time.Duration
	work        int64
	gap         float64
	seed        uint64
	warm        bool
}

func newSolve() *cobra.Command {
	var (
		f      solverFlags
		asJSON bool
		plan   bool
	)
	cmd := &cobra.Command{
		Use:   "solve FILE",
		Short: "Solve a migration problem: which adapters and requests should go where",
		Long: `Solve reads a migration problem (JSON, ` + ilp.Format + `; - for stdin): workers
with adapter slots, KV pages and resident adapters, the execution time of each
adapter, and where each request is. It finds for each request a worker such that
the busiest worker is done as early as possible, and proves how far that is from
the best possible. The objective is recomputed independently of the solver.`,
		Example: `  lorasim solve generate 8,128,1000 -o problem.json
  lorasim solve problem.json
  lorasim solve problem.json --time-limit 1s --gap 0.001
  lorasim solve problem.json --solver highs --formulation d0 --warm-start
  lorasim solve problem.json --json
  lorasim solve bench`,
		Args: cobra.MaximumNArgs(1),
	}
	fs := cmd.Flags()
	fs.StringVar(&f.solver, "solver", "embedded", "solver: embedded, highs (see lorasim version for what is built in)")
	fs.StringVar(&f.formulation, "formulation", string(highs.Auto), "how highs states the problem: "+strings.Join(formulations(), ", "))
	fs.BoolVar(&f.warm, "warm-start", false, "start highs from the embedded solver's solution")
	fs.DurationVar(&f.limit, "time-limit", 0, "stop after this time (default: embedded ends by itself, highs after "+highsTime.String()+")")
	fs.Int64Var(&f.work, "work", 0, "stop embedded after so many units of work, the same on every machine")
	fs.Float64Var(&f.gap, "gap", 0, "stop at this relative gap between objective and bound, such as 0.01")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the solver's random choices")
	within(cmd, ">=0", "time-limit", "work", "seed")
	within(cmd, ">=0 <1", "gap")
	group(cmd, "Solver", "solver", "formulation", "warm-start", "time-limit", "work", "gap", "seed")
	fs.BoolVar(&plan, "assignment", false, "print where each request goes as well")
	fs.BoolVar(&asJSON, "json", false, "print the result, with the assignment, as one JSON object")
	group(cmd, outputHeading, "assignment", "json")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(errors.New("FILE is missing (see lorasim solve --help)"))
		}
		solver, err := f.build(cmd.Flags().Changed)
		if err != nil {
			return err
		}
		in, err := readInstance(cmd, args[0])
		if err != nil {
			return err
		}
		s, err := solveInstance(cmd, in, solver, f.budget())
		if err != nil {
			return err
		}
		if asJSON {
			err = s.writeJSON(cmd.OutOrStdout())
		} else {
			err = s.writeTable(cmd.OutOrStdout(), plan)
		}
		// stopped by a signal: what was found by then is printed all the same
		return errors.Join(err, cmd.Context().Err())
	}
	cmd.AddCommand(newSolveGenerate(), newSolveBench())
	return cmd
}

func formulations() []string {
	var names []string
	for _, f := range highs.Formulations() {
		names = append(names, string(f))
	}
	return names
}

func readInstance(cmd *cobra.Command, name string) (*ilp.Instance, error) {
	if name == "-" {
		return ilp.ReadInstance(cmd.InOrStdin(), "stdin")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ilp.ReadInstance(file, name)
}

// budget is the solver's.
func (f *solverFlags) budget() ilp.Budget {
	b := ilp.Budget{Time: f.limit, Work: f.work, Gap: f.gap, Seed: f.seed}
	if b.Time == 0 && f.solver == "highs" {
		b.Time = highsTime
	}
	return b
}

// build checks the flags and returns the solver; changed says whether a flag
// was given.
func (f *solverFlags) build(changed func(string) bool) (ilp.Solver, error) {
	switch {
	case !slices.Contains([]string{"embedded", "highs"}, f.solver):
		return nil, usage(fmt.Errorf("--solver: %w", suggest.Unknown("solver", f.solver, []string{"embedded", "highs"})))
	case !slices.Contains(formulations(), f.formulation):
		return nil, usage(fmt.Errorf("--formulation: %w", suggest.Unknown("formulation", f.formulation, formulations())))
	}
	if f.solver == "highs" {
		if changed("work") {
			return nil, usage(errors.New("--work: is for --solver embedded"))
		}
		return newHighs(f.formulation, f.warm)
	}
	for _, name := range []string{"formulation", "warm-start"} {
		if changed(name) {
			return nil, usage(fmt.Errorf("--%s: is for --solver highs", name))
		}
	}
	return ilp.Embedded{}, nil
}

func newHighs(formulation string, warm bool) (ilp.Solver, error) {
	s, err := highs.New(highs.Options{Formulation: highs.Formulation(formulation)})
	if err != nil {
		return nil, fmt.Errorf("solver highs: %w", err)
	}
	if warm {
		return warmHighs{s}, nil
	}
	return s, nil
}

// warmHighs is HiGHS started from the embedded solver's solution.
type warmHighs struct{ *highs.Solver }

func (w warmHighs) Name() string { return w.Solver.Name() + "-warm" }

func (w warmHighs) Solve(ctx context.Context, p *ilp.Problem, b ilp.Budget) (*ilp.Solution, error) {
	begin := time.Now()
	start, err := ilp.Embedded{}.Solve(ctx, p, ilp.Budget{Gap: b.Gap, Seed: b.Seed})
	if err != nil {
		return nil, err
	}
	if b.Time > 0 {
		b.Time = max(b.Time-time.Since(begin), time.Millisecond)
	}
	s, err := w.SolveFrom(ctx, p, start, b)
	if err != nil {
		return nil, err
	}
	s.Solver = w.Name()
	return s, nil
}

// timed solves a problem and checks the solution.
func timed(ctx context.Context, s ilp.Solver, p *ilp.Problem, b ilp.Budget) (*ilp.Solution, time.Duration, error) {
	start := time.Now()
	sol, err := s.Solve(ctx, p, b)
	took := time.Since(start)
	if err != nil {
		return nil, took, err
	}
	return sol, took, ilp.Verify(p, sol)
}

// solveInstance solves an instance, with a bar where it may take long.
func solveInstance(cmd *cobra.Command, in *ilp.Instance, solver ilp.Solver, b ilp.Budget) (*solved, error) {
	p, members := in.Problem()
	bar := newProgress(cmd.ErrOrStderr())
	done := make(chan struct{})
	if b.Time > 0 {
		go func() {
			begin, tick := time.Now(), time.NewTicker(200*time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
					bar.set("solving", time.Since(begin).Milliseconds(), b.Time.Milliseconds(), solver.Name())
				}
			}
		}()
	}
	sol, took, err := timed(cmd.Context(), solver, p, b)
	close(done)
	bar.done()
	if err != nil {
		return nil, err
	}
	return newSolved(in, p, members, sol, took)
}
