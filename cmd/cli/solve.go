package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"lorasim/ilp"
	"lorasim/ilp/highs"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
)

// highsTime is the default time limit of HiGHS. The embedded solver stops by itself.
const highsTime = 20 * time.Second

// solverNames are the values of --solver, formulations those of --formulation.
var (
	solverNames  = []string{"embedded", "highs"}
	formulations = highs.Formulations()
)

// solverFlags configure the solver.
type solverFlags struct {
	solver, formulation string
	budget              ilp.Budget
	warm                bool
}

func newSolve() *cobra.Command {
	var f solverFlags
	var plan bool
	cmd := &cobra.Command{
		Use:   "solve FILE",
		Short: "Solve a migration problem: what should go where",
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
	flags(cmd, "Solver",
		opt(&f.solver, "solver", "embedded", "Solver: embedded, highs (see lorasim version for what is built in)"),
		opt(&f.formulation, "formulation", highs.Auto,
			"Formulation of the problem for highs: "+strings.Join(formulations, ", ")),
		opt(&f.warm, "warm-start", false, "Start highs from the embedded solver's solution"),
		opt(&f.budget.Time, "time-limit", 0,
			"Stop after this time (default: embedded ends by itself, highs after "+highsTime.String()+")", ">=0"),
		opt(&f.budget.Work, "work", 0, "Limit of embedded's work, in units that do not depend on the machine", ">=0"),
		opt(&f.budget.Gap, "gap", 0, "Stop at this relative gap between objective and bound, such as 0.01", ">=0 <1"),
		opt(&f.budget.Seed, "seed", 0, "Seed of the solver's random choices", ">=0"))
	flags(cmd, outputHeading,
		opt(&plan, "assignment", false, "Print the worker of each request, too"),
		opt(new(bool), "json", false, "Print the result, with the assignment, as one JSON object"))
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
		s, err := solveInstance(cmd, in, solver, f.budget)
		if err != nil {
			return err
		}
		err = show(cmd, func(w io.Writer) error { return s.writeTable(w, plan) }, s.writeJSON)
		// stopped by a signal: print the best solution so far
		return errors.Join(err, cmd.Context().Err())
	}
	cmd.AddCommand(newSolveGenerate(), newSolveBench())
	return cmd
}

func readInstance(cmd *cobra.Command, name string) (*ilp.Instance, error) {
	if name == "-" {
		return ilp.ReadInstance(cmd.InOrStdin(), "stdin")
	}
	return textfile.Read(cmd.Context(), name, ilp.ReadInstance)
}

// build checks the flags and returns the solver. changed reports whether a flag was given.
func (f *solverFlags) build(changed func(string) bool) (ilp.Solver, error) {
	if err := cmp.Or(oneOf("solver", "solver", f.solver, solverNames), oneOf("formulation", "formulation",
		f.formulation, formulations)); err != nil {
		return nil, err
	}
	other, foreign := "highs", []string{"formulation", "warm-start"}
	if f.solver == "highs" {
		other, foreign = "embedded", []string{"work"}
	}
	if i := slices.IndexFunc(foreign, changed); i >= 0 {
		return nil, usage(fmt.Errorf("--%s needs --solver %s", foreign[i], other))
	}
	if f.solver == "embedded" {
		return ilp.Embedded{}, nil
	}
	f.budget.Time = cmp.Or(f.budget.Time, highsTime)
	return newHighs(f.formulation, f.warm)
}

func newHighs(formulation string, warm bool) (ilp.Solver, error) {
	s, err := highs.New(formulation)
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
	if err == nil {
		err = ilp.Verify(p, sol)
	}
	return sol, took, err
}

// solveInstance solves an instance, with a progress bar if it may take long.
func solveInstance(cmd *cobra.Command, in *ilp.Instance, solver ilp.Solver, b ilp.Budget) (*solved, error) {
	p, members := in.Problem()
	stop := newProgress(cmd.ErrOrStderr()).until(b.Time, "solving", solver.Name())
	sol, took, err := timed(cmd.Context(), solver, p, b)
	if stop(); err != nil {
		return nil, err
	}
	s := &solved{in: in, solution: sol, took: took, at: in.Assignment(sol.Flows, members),
		adapters: make([][]int32, len(in.Workers))}
	s.before, s.stuck = ilp.Evaluate(p, ilp.StayFlows(p))
	s.after, err = ilp.Evaluate(p, sol.Flows)
	for i, j := range s.at {
		s.adapters[j] = append(s.adapters[j], in.Requests[i].Adapter)
	}
	for j := range s.adapters {
		slices.Sort(s.adapters[j])
		s.adapters[j] = append([]int32{}, slices.Compact(s.adapters[j])...)
	}
	return s, err
}

// solved is a solution with all printed values.
type solved struct {
	in            *ilp.Instance
	solution      *ilp.Solution
	took          time.Duration
	before, after ilp.Outcome
	stuck         error     // why not all requests can stay where they are; nil: they can
	at            []int32   // worker by request
	adapters      [][]int32 // with requests, by worker
}

// writeJSON prints one object; gap is relative, times are in s.
func (s *solved) writeJSON(w io.Writer) error {
	return format.JSON(w, format.Object{"objective", s.after.Objective, "bound", s.solution.Bound, "gap",
		s.solution.Gap(), "seconds", s.took.Seconds(),
		"status", s.solution.Status, "solver", s.solution.Solver,
		// worker of each request; adapters with requests of each worker
		"assignment", format.Object{"requests", s.at, "workers", s.adapters}}, "")
}

// writeTable prints the result as a table, with every request if whole.
func (s *solved) writeTable(w io.Writer, whole bool) error {
	in := s.in
	tw := format.Columns(w)
	fmt.Fprintf(tw, "Problem\t%d workers, %d adapters, %d requests\nSolver\t%s\nStatus\t%s\n",
		len(in.Workers), len(in.Adapters), len(in.Requests), s.solution.Solver, s.solution.Status)
	fmt.Fprintf(tw, "Objective\t%.4f s\nBound\t%.4f s\nGap\t%.3f %%\nTime\t%s\n",
		s.after.Objective, s.solution.Bound, 100*s.solution.Gap(), duration(s.took))
	stay := fmt.Sprintf("%.4f s", s.before.Objective)
	if s.stuck != nil {
		stay = "impossible: " + s.stuck.Error()
	}
	fmt.Fprintf(tw, "If nothing moves\t%s\nRequests moved\t%d\nAdapters loaded\t%d\n", stay, s.after.Moves,
		s.after.Loads)
	if err := tw.Flush(); err != nil {
		return err
	}
	now := make([][2]int, len(in.Workers))
	for i, r := range in.Requests {
		now[r.Worker][0]++
		now[s.at[i]][1]++
	}
	right := rightColumns(w, "\nWORKER\tSLOTS\tADAPTERS\tREQUESTS BEFORE\tAFTER\tLOAD BEFORE (s)\tAFTER (s)\t")
	for j, worker := range in.Workers {
		before := fmt.Sprintf("%.4f", s.before.Busy[j])
		if s.stuck != nil {
			before = "-"
		}
		fmt.Fprintf(right, "%d\t%d\t%d\t%d\t%d\t%s\t%.4f\t\n", j, worker.Slots, len(s.adapters[j]), now[j][0],
			now[j][1], before, s.after.Busy[j])
	}
	if err := right.Flush(); err != nil || !whole {
		return err
	}
	fmt.Fprintln(w, "\nAdapters with requests on each worker (+: to be loaded)")
	for j, list := range s.adapters {
		line := fmt.Sprintf("  %d:", j)
		for _, k := range list {
			mark := " "
			if !slices.Contains(in.Workers[j].Resident, k) {
				mark = " +"
			}
			line += fmt.Sprint(mark, k)
		}
		fmt.Fprintln(w, line)
	}
	right = rightColumns(w, "\nREQUEST\tADAPTER\tFROM\tTO\t")
	for i, r := range in.Requests {
		fmt.Fprintf(right, "%d\t%d\t%d\t%d\t\n", i, r.Adapter, r.Worker, s.at[i])
	}
	return right.Flush()
}

// rightColumns right-aligns cells that end in tabs, below a head.
func rightColumns(w io.Writer, head string) *tabwriter.Writer {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, head)
	return tw
}

// duration formats a time with three digits and its unit.
func duration(d time.Duration) string {
	switch s := d.Seconds(); {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", 1e3*s)
	default:
		return fmt.Sprintf("%.3g µs", 1e6*s)
	}
}

// problemSize is a number of workers, adapters and requests.
type problemSize struct{ workers, adapters, requests int }

func (z problemSize) String() string {
	return fmt.Sprintf("%d, %d, %d", z.workers, z.adapters, z.requests)
}

// maxCells limits the memory that a mistyped size can take.
const maxCells = 100_000_000

func parseSize(s string) (z problemSize, err error) {
	parts := strings.Split(s, ",")
	if len(parts) != 3 {
		return z, fmt.Errorf("size is %q, expected workers,adapters,requests such as 8,128,1000", s)
	}
	for i, to := range []*int{&z.workers, &z.adapters, &z.requests} {
		if *to, err = strconv.Atoi(strings.TrimSpace(parts[i])); err != nil || *to < 1 || *to > maxCells {
			return z, fmt.Errorf("size is %q: %q is not a number from 1 to %d", s, parts[i], maxCells)
		}
	}
	if z.workers > maxCells/z.adapters {
		return z, fmt.Errorf("size is %q: more than %d workers x adapters", s, maxCells)
	}
	return z, nil
}

func newSolveGenerate() *cobra.Command {
	var out string
	var seed uint64
	cmd := &cobra.Command{
		Use:   "generate WORKERS,ADAPTERS,REQUESTS",
		Short: "Write a random migration problem",
		Long: `Generate draws a migration problem. Execution times are uniform from 1 to 7 s, and
adapters have Zipf popularity with exponent 0.9. Each worker has one adapter slot
more than an even share of all needs. Requests are on random workers that hold their
adapter. KV pages are log-normal, and capacities are 0.8 to 1.2 of an even share.
The same seed gives the same bytes.`,
		Example: `  lorasim solve generate 8,128,1000 --seed 1 -o problem.json
  lorasim solve generate 2,4,32 | lorasim solve -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			z, err := parseSize(args[0])
			if err != nil {
				return usage(err)
			}
			in := ilp.Generate(z.workers, z.adapters, z.requests, seed)
			if err := cmd.Context().Err(); err != nil {
				return err // interrupted: nothing is written
			}
			if out == "" {
				return in.Write(cmd.OutOrStdout())
			}
			return atomicfile.Write(out, func(f *atomicfile.File) error { return in.Write(f) })
		},
	}
	flags(cmd, "",
		opt(&out, "output,o", "", "Write to `file` (default: stdout)"),
		opt(&seed, "seed", 0, "Seed of the draw", ">=0"))
	return cmd
}

// benchSizes are the default sizes of solve bench.
var benchSizes = repeated{"2,4,32", "2,4,200", "2,32,200", "8,32,200", "8,128,1000", "16,128,5000", "32,512,5000",
	"64,512,5000"}

func newSolveBench() *cobra.Command {
	var (
		sizes repeated
		seeds int
		limit time.Duration
	)
	solvers := []string{"embedded"}
	if highs.Available() {
		solvers = append(solvers, "highs", "highs:auto:warm")
	}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare the solvers on random problems, as a Markdown table",
		Long: `Bench solves random problems (see solve generate) of several sizes and prints
medians over seeds: wall time, objective, proven lower bound, gap. A solver is
embedded[:TIME] or highs[:FORMULATION][:warm]; warm starts from the embedded
solver's solution. Without TIME, embedded ends by its own budget of work.`,
		Example: `  lorasim solve bench
  lorasim solve bench --size 8,128,1000 --size 32,512,5000 --seeds 11
  lorasim solve bench --solvers embedded,embedded:1s,highs:flow,highs:d0,highs:d0:warm --time-limit 10s`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var zs []problemSize
			for _, text := range sizes {
				z, err := parseSize(text)
				if err != nil {
					return usage(fmt.Errorf("--size: %w", err))
				}
				zs = append(zs, z)
			}
			var ss []benchSolver
			for _, text := range solvers {
				s, err := parseBenchSolver(text, limit)
				if err != nil {
					return fmt.Errorf("--solvers: %w", err)
				}
				ss = append(ss, s)
			}
			bar := newProgress(cmd.ErrOrStderr())
			rows, err := compareSolvers(cmd.Context(), bar, zs, ss, seeds)
			bar.done()
			if err != nil {
				return err
			}
			return show(cmd, func(w io.Writer) (err error) {
				fmt.Fprintln(w, "| workers, adapters, requests | solver | time | objective (s) | lower bound (s) | gap | optimal |")
				fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|")
				for _, r := range rows {
					_, err = fmt.Fprintf(w, "| %s | %s | %s | %.3f | %.3f | %.3f %% | %d of %d |\n", r.Size, r.Solver,
						duration(time.Duration(r.Seconds*1e9)), r.Objective, r.Bound, 100*r.Gap, r.Optimal, r.Problems)
				}
				return err
			}, inJSON(map[string]any{"seeds": seeds, "rows": rows}, ""))
		},
	}
	flags(cmd, "",
		opt(&sizes, "size", benchSizes, "Workers,adapters,requests; repeatable"),
		opt(&solvers, "solvers", solvers, "Solvers to compare"),
		opt(&seeds, "seeds", 5, "Problems of each size", ">=1 <=1e5"),
		opt(&limit, "time-limit", highsTime, "Time limit of highs for each problem", ">0"))
	jsonFlag(cmd, "Print as one JSON object")
	return cmd
}

// benchSolver is a solver with its budget.
type benchSolver struct {
	name   string
	solver ilp.Solver
	budget ilp.Budget
}

func parseBenchSolver(text string, limit time.Duration) (s benchSolver, err error) {
	s.name = text
	kind, options, more := strings.Cut(text, ":")
	switch kind {
	case "embedded":
		s.solver = ilp.Embedded{}
		if more {
			s.budget.Time, err = time.ParseDuration(options)
		}
		if err != nil || s.budget.Time < 0 {
			err = usage(fmt.Errorf("solver %q: expected embedded or embedded:TIME, such as embedded:1s", text))
		}
	case "highs":
		s.budget.Time = limit
		formulation, warm := highs.Auto, options == "warm"
		if more && !warm {
			formulation, warm = strings.CutSuffix(options, ":warm")
		}
		if !slices.Contains(formulations, formulation) {
			return s, usage(fmt.Errorf("solver %q: expected highs[:FORMULATION][:warm], where FORMULATION is one of %s",
				text, strings.Join(formulations, ", ")))
		}
		s.solver, err = newHighs(formulation, warm)
	default:
		err = usage(suggest.Unknown("solver", kind, solverNames))
	}
	return s, err
}

// benchRow holds the medians of one solver on one size.
type benchRow struct {
	Size      string  `json:"size"`
	Solver    string  `json:"solver"`
	Seconds   float64 `json:"seconds"`
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Gap       float64 `json:"gap"`
	Optimal   int     `json:"optimal"` // number of problems proven optimal
	Problems  int     `json:"problems"`
}

// compareSolvers solves problems of several sizes, one per seed.
func compareSolvers(ctx context.Context, bar *progress, sizes []problemSize, solvers []benchSolver,
	seeds int) (rows []benchRow, err error) {
	cell, cells := int64(0), int64(len(sizes)*len(solvers)*seeds)
	for _, z := range sizes {
		problems := make([]*ilp.Problem, seeds)
		for seed := range problems {
			problems[seed], _ = ilp.Generate(z.workers, z.adapters, z.requests, uint64(seed)).Problem()
		}
		for _, s := range solvers {
			row := benchRow{Size: z.String(), Solver: s.name, Problems: seeds}
			var numbers [4][]float64 // by problem
			for _, p := range problems {
				bar.set("solving", cell, cells, s.name+" on "+z.String())
				sol, took, err := timed(ctx, s.solver, p, s.budget)
				if err := errors.Join(ctx.Err(), err); err != nil {
					return nil, err
				}
				for i, x := range []float64{took.Seconds(), sol.Objective, sol.Bound, sol.Gap()} {
					numbers[i] = append(numbers[i], x)
				}
				if sol.Status == ilp.Optimal {
					row.Optimal++
				}
				cell++
			}
			for i, median := range []*float64{&row.Seconds, &row.Objective, &row.Bound, &row.Gap} {
				slices.Sort(numbers[i])
				*median = (numbers[i][(seeds-1)/2] + numbers[i][seeds/2]) / 2
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}
