package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"lorasim/bench/validate"
	"lorasim/internal/atomicfile"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// validateFlags are the arguments of the validate command.
type validateFlags struct {
	runs, histograms, use, groups string
	logs, profile, plot           string
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
differences in speed decide whether a queue builds up.`,
		Example: `  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --use validation
  lorasim validate --runs lora_runs.csv --histograms seed_workload.json --json
  lorasim validate --runs mine.csv --histograms mine.json --profile mine.yaml --plot fit.svg
  lorasim validate --logs logs/`,
	}
	fs := cmd.Flags()
	fs.StringVar(&f.runs, "runs", "", "table of measured runs, CSV `file`")
	fs.StringVar(&f.histograms, "histograms", "", "invocations per adapter by stride, JSON `file`")
	fs.StringVar(&f.use, "use", "", "only the runs of this use: calibration or validation")
	fs.StringVar(&f.groups, "groups", "", "what the table does not tell of its groups of runs, YAML `file`; default: built in")
	fs.IntVar(&f.seeds, "seeds", 64, "draws of the lengths")
	fs.Uint64Var(&f.seed, "seed", 1, "first seed")
	fs.StringVar(&f.logs, "logs", "", "`folder` (or file) of serving-benchmark logs instead of a table")
	fs.StringVar(&f.profile, "profile", "", "worker profile, a name or a file; default: llama2-7b-24gb for a table, that of the model and server for a log")
	fs.StringVar(&f.plot, "plot", "", "draw predicted against measured into an SVG `file`")
	fs.BoolVar(&f.json, "json", false, "print one JSON object")
	group(cmd, "Table of runs", "runs", "histograms", "use", "groups", "seeds", "seed")
	group(cmd, "Logs", "logs")
	group(cmd, outputHeading, "profile", "plot", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if (f.runs == "") == (f.logs == "") {
			return usage(errors.New("expected either --runs with --histograms, or --logs"))
		}
		report, err := f.report(cmd)
		if err != nil {
			return err
		}
		if f.plot != "" {
			if err := atomicfile.Write(f.plot, func(w *atomicfile.File) error { return report.Plot(w) }); err != nil {
				return err
			}
		}
		if f.json {
			return report.WriteJSON(cmd.OutOrStdout())
		}
		return report.WriteText(cmd.OutOrStdout())
	}
	return cmd
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
