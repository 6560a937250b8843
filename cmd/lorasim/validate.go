package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"lorasim/bench/validate"
	"lorasim/bench/validate/steps"
	"lorasim/internal/atomicfile"
	"lorasim/internal/format"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// validateFlags are the arguments of the validate command.
type validateFlags struct {
	runs, histograms, use, groups string
	logs, profile, plot           string
	vllmSteps, sglangBatches      string
	vllmRuns, tables              string
	seeds                         int
	seed                          uint64
	json                          bool
}

func newValidate() *cobra.Command {
	f := &validateFlags{}
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Hold the simulator's predictions against measured runs",
		Long: `Validate simulates measured runs and says how far off each metric is: the runs
of a table (--runs, whose arrivals follow from --histograms), or the closed-loop
blocks of serving-benchmark logs (--logs).

The lengths of the requests of a table's runs were not recorded. They are drawn
for several seeds, and the prediction is the mean over the seeds. Runs whose
offered load is within 15 % of what the workers can do are marked: there, small
differences in speed decide whether a queue builds up.

With --vllm-runs the table holds measured hours of vLLM with many adapters: Poisson
arrivals for an hour, of which only the completed requests count. What the servers
printed of their KV caches and of adapter loads lies beside it (--tables).

The rules of the engines' schedulers need no times: --vllm-steps holds every step
of the simulated scheduler against the recorded steps of vLLM's own,
--sglang-batches every batch against those of sglang. The command fails where a
case differs.`,
		Example: `  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --use validation
  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --json
  lorasim validate --runs mine.csv --histograms mine.json --profile mine.yaml --plot fit.svg
  lorasim validate --logs logs/
  lorasim validate --vllm-runs vllm_lora/runs.csv --use validation
  lorasim validate --vllm-steps vllm_steps/ --json`,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.runs, "runs", "", "table of measured runs, CSV `file`")
	fs.StringVar(&f.histograms, "histograms", "", "invocations per adapter by stride, JSON `file`")
	fs.StringVar(&f.use, "use", "", "only the runs of this use: calibration or validation (--vllm-runs: or held)")
	fs.StringVar(&f.groups, "groups", "", "what the table does not tell of its groups of runs, YAML `file`; default: built in")
	fs.IntVar(&f.seeds, "seeds", 64, "draws of the lengths")
	fs.Uint64Var(&f.seed, "seed", 1, "first seed")
	fs.StringVar(&f.logs, "logs", "", "`folder` (or file) of serving-benchmark logs instead of a table")
	fs.StringVar(&f.profile, "profile", "", "worker profile, a name or a file; default: llama2-7b-24gb for a table, that of the model and server for a log, of the model for --vllm-runs (else MODEL=PROFILE,...)")
	fs.StringVar(&f.plot, "plot", "", "draw predicted against measured into an SVG `file`")
	fs.StringVar(&f.vllmRuns, "vllm-runs", "", "table of measured hours of vLLM, CSV `file`")
	fs.StringVar(&f.tables, "tables", "", "`folder` of kv_capacity.csv, load_times.csv and sharegpt_hist.csv; default: that of the table")
	fs.StringVar(&f.vllmSteps, "vllm-steps", "", "`folder` of steps of vLLM's scheduler, NAME.case.json and NAME.steps.jsonl")
	fs.StringVar(&f.sglangBatches, "sglang-batches", "", "`folder` of batches of sglang's scheduler, NAME.json")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	within(cmd, ">=1 <=1e6", "seeds")
	within(cmd, ">=0", "seed")
	group(cmd, "Table of runs", "runs", "histograms", "use", "groups", "seeds", "seed")
	group(cmd, "Measured hours of vLLM", "vllm-runs", "tables")
	group(cmd, "Logs", "logs")
	group(cmd, "Steps of an engine's scheduler", "vllm-steps", "sglang-batches")
	group(cmd, outputHeading, "profile", "plot", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.oneSource(); err != nil {
			return err
		}
		if f.vllmSteps != "" || f.sglangBatches != "" {
			return f.steps(cmd)
		}
		if f.vllmRuns != "" {
			report, err := f.vllmReport(cmd)
			if err != nil {
				return err
			}
			return f.print(cmd, report)
		}
		report, err := f.report(cmd)
		if err != nil {
			return err
		}
		return f.print(cmd, report)
	}
	return cmd
}

// print writes a report, and its plot where one is asked for.
func (f *validateFlags) print(cmd *cobra.Command, report interface {
	WriteText(io.Writer) error
	Plot(io.Writer) error
}) error {
	if f.plot != "" {
		if err := atomicfile.Write(f.plot, func(w *atomicfile.File) error { return report.Plot(w) }); err != nil {
			return err
		}
	}
	if f.json {
		return format.JSON(cmd.OutOrStdout(), report, "  ")
	}
	return report.WriteText(cmd.OutOrStdout())
}

// oneSource checks that one kind of measurement was given.
func (f *validateFlags) oneSource() error {
	given := 0
	for _, s := range []string{f.runs, f.logs, f.vllmRuns, f.vllmSteps, f.sglangBatches} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return usage(errors.New("expected one of --runs with --histograms, --logs, --vllm-runs, --vllm-steps, --sglang-batches"))
	}
	return nil
}

// steps holds the simulated schedulers against the steps of an engine.
func (f *validateFlags) steps(cmd *cobra.Command) error {
	compare, dir := steps.VLLM, f.vllmSteps
	if f.sglangBatches != "" {
		compare, dir = steps.SGLang, f.sglangBatches
	}
	report, err := compare(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if f.json {
		err = format.JSON(cmd.OutOrStdout(), report, "  ")
	} else {
		err = report.WriteText(cmd.OutOrStdout())
	}
	return errors.Join(err, report.Err())
}

func (f *validateFlags) report(cmd *cobra.Command) (*validate.Report, error) {
	var p *profile.Profile
	name := f.profile
	if name == "" && f.runs != "" {
		name = "llama2-7b-24gb"
	}
	if name != "" {
		var err error
		if p, err = profile.Load(name); err != nil {
			return nil, err
		}
	}
	if f.logs != "" {
		blocks, err := validate.ReadLogs(f.logs)
		if err != nil {
			return nil, err
		}
		return validate.CompareBlocks(cmd.Context(), blocks, p)
	}
	runs, hists, groups, err := f.table()
	if err != nil {
		return nil, err
	}
	bar := newProgress(cmd.ErrOrStderr())
	ps, err := validate.Simulate(cmd.Context(), runs, hists, validate.Options{
		Profile: p, Groups: groups, Seeds: f.seeds, FirstSeed: f.seed,
		Progress: func(done, total int64) { bar.set("simulating", done, total, fmt.Sprintf("%d of %d runs", done, total)) },
	})
	bar.done()
	if err != nil {
		return nil, err
	}
	report := validate.NewReport(ps)
	report.Profile, report.Seeds = p.Name, f.seeds
	if f.use != "" {
		report.Use = f.use
	}
	return report, nil
}

// table reads the files of a table of runs.
func (f *validateFlags) table() ([]validate.Run, validate.Histograms, *validate.Groups, error) {
	fail := func(err error) ([]validate.Run, validate.Histograms, *validate.Groups, error) {
		return nil, nil, nil, err
	}
	if f.histograms == "" {
		return fail(usage(errors.New("--runs needs --histograms: the runs' arrivals follow from them")))
	}
	if f.seeds < 1 {
		return fail(usage(fmt.Errorf("--seeds is %d, expected >= 1", f.seeds)))
	}
	uses := []string{validate.Calibration, validate.Validation}
	if f.use != "" && !slices.Contains(uses, f.use) {
		return fail(usage(fmt.Errorf("--use: %w", suggest.Unknown("use", f.use, uses))))
	}
	groups := validate.DefaultGroups()
	if f.groups != "" {
		var err error
		if groups, err = validate.LoadGroups(f.groups); err != nil {
			return fail(err)
		}
	}
	file, err := os.Open(f.runs)
	if err != nil {
		return fail(err)
	}
	defer file.Close()
	runs, err := validate.ReadRuns(file, f.runs)
	if err != nil {
		return fail(err)
	}
	if f.use != "" {
		runs = slices.DeleteFunc(runs, func(r validate.Run) bool { return r.Use != f.use })
		if len(runs) == 0 {
			return fail(fmt.Errorf("%s: no run has use %s", f.runs, f.use))
		}
	}
	hf, err := os.Open(f.histograms)
	if err != nil {
		return fail(err)
	}
	defer hf.Close()
	hists, err := validate.ReadHistograms(hf, f.histograms)
	if err != nil {
		return fail(err)
	}
	return runs, hists, groups, nil
}
