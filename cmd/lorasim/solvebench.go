package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"lorasim/ilp"
	"lorasim/ilp/highs"
	"lorasim/internal/atomicfile"
	"lorasim/internal/suggest"
)

// problemSize is a number of workers, adapters and requests.
type problemSize struct{ workers, adapters, requests int }

func (z problemSize) String() string {
	return fmt.Sprintf("%d, %d, %d", z.workers, z.adapters, z.requests)
}

// maxCells keeps a mistyped size from using up the memory.
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
	var (
		out  string
		seed uint64
	)
	cmd := &cobra.Command{
		Use:   "generate WORKERS,ADAPTERS,REQUESTS",
		Short: "Write a random migration problem",
		Long: `Generate draws a migration problem: execution times uniform from 1 to 7 s,
adapters of Zipf popularity with exponent 0.9, one adapter slot per worker more
than an even share of all needs, requests on random holders of their adapters,
log-normal KV pages, and capacities of 0.8 to 1.2 of an even share of the pages.
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
			if out == "" {
				return in.Write(cmd.OutOrStdout())
			}
			return atomicfile.Write(out, func(f *atomicfile.File) error { return in.Write(f) })
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`file` to write (default: stdout)")
	cmd.Flags().Uint64Var(&seed, "seed", 0, "seed of the draw")
	within(cmd, ">=0", "seed")
	return cmd
}

// benchSizes and benchSolvers are what solve bench runs if not told otherwise.
var benchSizes = []string{"2,4,32", "2,4,200", "2,32,200", "8,32,200", "8,128,1000", "16,128,5000", "32,512,5000", "64,512,5000"}

func benchSolvers() []string {
	if highs.Available() {
		return []string{"embedded", "highs", "highs:auto:warm"}
	}
	return []string{"embedded"}
}

func newSolveBench() *cobra.Command {
	var (
		sizes, solvers []string
		seeds          int
		limit          time.Duration
		asJSON         bool
	)
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
			b := solverBench{seeds: seeds}
			for _, text := range sizes {
				z, err := parseSize(text)
				if err != nil {
					return usage(fmt.Errorf("--size: %w", err))
				}
				b.sizes = append(b.sizes, z)
			}
			for _, text := range solvers {
				s, err := parseBenchSolver(text, limit)
				if err != nil {
					return fmt.Errorf("--solvers: %w", err)
				}
				b.solvers = append(b.solvers, s)
			}
			bar := newProgress(cmd.ErrOrStderr())
			rows, err := b.run(cmd.Context(), bar)
			bar.done()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]any{"seeds": seeds, "rows": rows})
			}
			return writeBench(cmd.OutOrStdout(), rows)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&sizes, "size", benchSizes, "workers,adapters,requests; may be given several times")
	fs.StringSliceVar(&solvers, "solvers", benchSolvers(), "solvers to compare")
	fs.IntVar(&seeds, "seeds", 5, "problems of each size")
	fs.DurationVar(&limit, "time-limit", highsTime, "of highs, for each problem")
	within(cmd, ">=1 <=1e5", "seeds")
	within(cmd, ">0", "time-limit")
	fs.BoolVar(&asJSON, "json", false, "print as one JSON object")
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
	parts := strings.Split(text, ":")
	options := parts[1:]
	switch parts[0] {
	case "embedded":
		s.solver = ilp.Embedded{}
		if len(options) == 1 {
			s.budget.Time, err = time.ParseDuration(options[0])
		}
		if err != nil || s.budget.Time < 0 || len(options) > 1 {
			return s, usage(fmt.Errorf("solver %q: expected embedded or embedded:TIME, such as embedded:1s", text))
		}
	case "highs":
		s.budget.Time = limit
		formulation, warm := string(highs.Auto), false
		if n := len(options); n > 0 && options[n-1] == "warm" {
			warm, options = true, options[:n-1]
		}
		if len(options) > 0 {
			formulation = options[0]
		}
		if len(options) > 1 || !slices.Contains(formulations(), formulation) {
			return s, usage(fmt.Errorf("solver %q: expected highs[:FORMULATION][:warm], where FORMULATION is one of %s", text, strings.Join(formulations(), ", ")))
		}
		s.solver, err = newHighs(formulation, warm)
	default:
		err = usage(suggest.Unknown("solver", parts[0], []string{"embedded", "highs"}))
	}
	return s, err
}

// solverBench compares solvers on problems of several sizes.
type solverBench struct {
	sizes   []problemSize
	solvers []benchSolver
	seeds   int
}

// benchRow holds the medians of one solver on one size.
type benchRow struct {
	Size      string  `json:"size"`
	Solver    string  `json:"solver"`
	Seconds   float64 `json:"seconds"`
	Objective float64 `json:"objective"`
	Bound     float64 `json:"bound"`
	Gap       float64 `json:"gap"`
	Optimal   int     `json:"optimal"` // problems proven optimal
	Problems  int     `json:"problems"`
}

func (b *solverBench) run(ctx context.Context, bar *progress) ([]benchRow, error) {
	var rows []benchRow
	cell, cells := int64(0), int64(len(b.sizes)*len(b.solvers)*b.seeds)
	for _, z := range b.sizes {
		var problems []*ilp.Problem
		for seed := range b.seeds {
			p, _ := ilp.Generate(z.workers, z.adapters, z.requests, uint64(seed)).Problem()
			problems = append(problems, p)
		}
		for _, s := range b.solvers {
			row := benchRow{Size: z.String(), Solver: s.name, Problems: b.seeds}
			var seconds, objectives, bounds, gaps []float64
			for _, p := range problems {
				bar.set("solving", cell, cells, s.name+" on "+z.String())
				sol, took, err := timed(ctx, s.solver, p, s.budget)
				if err := errors.Join(ctx.Err(), err); err != nil {
					return nil, err
				}
				seconds = append(seconds, took.Seconds())
				objectives = append(objectives, sol.Objective)
				bounds = append(bounds, sol.Bound)
				gaps = append(gaps, sol.Gap())
				if sol.Status == ilp.Optimal {
					row.Optimal++
				}
				cell++
			}
			row.Seconds, row.Objective, row.Bound, row.Gap = median(seconds), median(objectives), median(bounds), median(gaps)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

func median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	return (x[(n-1)/2] + x[n/2]) / 2
}

func writeBench(w io.Writer, rows []benchRow) error {
	fmt.Fprintln(w, "| workers, adapters, requests | solver | time | objective (s) | lower bound (s) | gap | optimal |")
	_, err := fmt.Fprintln(w, "|---|---|---:|---:|---:|---:|---:|")
	for _, r := range rows {
		_, err = fmt.Fprintf(w, "| %s | %s | %s | %.3f | %.3f | %.3f %% | %d of %d |\n", r.Size, r.Solver,
			duration(time.Duration(r.Seconds*1e9)), r.Objective, r.Bound, 100*r.Gap, r.Optimal, r.Problems)
	}
	return err
}
