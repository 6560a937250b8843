package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/accuracy/calibrate"
	"lorasim/bench/accuracy/validate"
	"lorasim/bench/accuracy/vllmruns"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// calibrateFlags are the arguments of the calibrate command.
type calibrateFlags struct {
	start, name, output string
	hardware, version   string
	fit                 []string
	evaluations, folds  int

	recorded recordedFlags
	holdout  float64

	logs, server string
	concurrency  []int

	table       tableFlags
	outGroups   string
	fitGroups   bool
	kernels     string
	kernelsKind string

	vllmRuns, tables string
	slora            sloraFlags
}

func newCalibrate() *cobra.Command {
	f := &calibrateFlags{}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit a worker profile to measurements",
		Long: `Calibrate fits the coefficients of a profile, within bounds, so that the simulator's
predictions match measurements. It prints the standard error of each coefficient.
Coefficients that the data cannot determine keep the values of the profile that
the fit starts from. The new profile states its errors on data that the fit has not
seen.

Calibrate takes one kind of data: per-request records of a live run (the best data,
above all with the times of the tokens), closed-loop blocks of serving-benchmark
logs, a table of measured runs, or kernel timings of the LoRA backends.

With --vllm-runs it fits the law of distinct adapters to a table of measured hours of
vLLM (runs of use calibration) and to timings of steps. It writes a profile NAME.yaml
for each model into the folder --output. With --slora-runs it fits the published
runs of S-LoRA of use calibration.

Coefficients of --fit:
` + strings.Join(format.Wrap(strings.Join(calibrate.Coefficients(), ", "), 80), "\n"),
		Example: `  lorasim calibrate --records run.parquet --profile llama-2-7b-rtx-4090-sglang-0.5 --output mine.yaml
  lorasim calibrate --records low.jsonl high.jsonl --profile engine.yaml --output mine.yaml
  lorasim calibrate --logs logs/ --server flashinfer --concurrency 32 --profile analytic:deepseek-v3,h200 --output fitted.yaml
  lorasim calibrate --runs lora_runs.csv --histograms seed_workload.json --folds 4 --output fitted.yaml
  lorasim calibrate --kernels kernels.csv --backend triton --output fitted.yaml
  lorasim calibrate --vllm-runs vllm_lora/runs.csv --output profiles/
  lorasim calibrate --slora-runs slora_runs/runs.csv --output mine.yaml`,
	}
	f.recorded.add(cmd, "Records")
	flags(cmd, "Records",
		opt(&f.holdout, "holdout", 0.25, "Share of the requests, the last ones, that the fit does not see", ">=0 <1"))
	flags(cmd, "Logs",
		opt(&f.logs, "logs", "", "Logs of serving benchmarks: `folder` or file"),
		opt(&f.server, "server", "", "Use only the blocks of this server, by its name in the log"),
		opt(&f.concurrency, "concurrency", nil,
			"Concurrencies of the blocks to fit; the others are predicted (default: fit all)", ">=1 <=1e6"))
	f.table.add(cmd, 8, "Table of measured runs, CSV `file`; rows of use validation are only predicted")
	flags(cmd, tableHeading,
		opt(&f.fitGroups, "fit-groups", false, "Fit the lengths of the groups too"),
		opt(&f.outGroups, "output-groups", "", "Write the fitted groups to `file`"),
		opt(&f.folds, "folds", 0, "Number of folds of a cross-validation (0 disables)", ">=0 <=1000"))
	writes(cmd, nil, "output-groups")
	flags(cmd, "Kernels",
		opt(&f.kernels, "kernels", "", "Kernel timings, CSV `file` with backend, batch_size, max_rank, median_ms"),
		opt(&f.kernelsKind, "backend", "csgmv", "LoRA backend to fit: csgmv or triton"))
	flags(cmd, vllmHeading,
		opt(&f.vllmRuns, "vllm-runs", "", vllmRunsHelp),
		opt(&f.tables, "tables", "", "`Folder` of latency.csv, kv_capacity.csv and load_times.csv (default: that of the table)"))
	f.slora.add(cmd)
	flags(cmd, "Fit",
		opt(&f.start, "profile", "llama-2-7b-rtx-4090-sglang-0.5",
			"Profile to start from: a name, a file, - for standard input, or analytic:MODEL,GPU"),
		opt(&f.fit, "fit", nil,
			"Coefficients to fit, from the list above (default: those that the data identify)"),
		opt(&f.evaluations, "evaluations", 0, "Maximum number of simulations (default: 60 for each coefficient)",
			">=0 <=1e9"))
	flags(cmd, outputHeading,
		opt(&f.output, "output", "", "Write the fitted profile to `file`; default: print it"),
		opt(&f.name, "name", "", "Name of the fitted profile; default: that of the start with -fitted"),
		opt(&f.hardware, "hardware", "", "Hardware of the data, as in \"H100 80 GB\", stated in the profile"),
		opt(&f.version, "engine-version", "",
			"Engine and version of the data, as in \"vLLM 0.8.5\", stated in the profile"),
		opt(new(bool), "json", false, "Print the fit as one JSON object"))
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.recorded.take(args); err != nil {
			return err
		}
		if err := onlyOne("expected one of --records, --logs, --runs, --kernels, --vllm-runs and --slora-runs",
			f.recorded.given(), f.logs, f.table.runs, f.kernels, f.vllmRuns, f.slora.runs); err != nil {
			return err
		}
		for _, name := range f.fit {
			if err := oneOf("fit", "coefficient", name, calibrate.Coefficients()); err != nil {
				return err
			}
		}
		if f.kernels != "" {
			if err := oneOf("backend", "backend", f.kernelsKind, []string{"csgmv", "triton"}); err != nil {
				return err
			}
		}
		if f.vllmRuns != "" {
			return f.fromVLLM(cmd)
		}
		if f.output != "" {
			if err := checkFile(f.output, nil); err != nil {
				return fmt.Errorf("--output: %w", err)
			}
		}
		if f.slora.runs != "" && !cmd.Flags().Changed("profile") {
			f.start = sloraProfile
		}
		return f.run(cmd)
	}
	return cmd
}

func (f *calibrateFlags) run(cmd *cobra.Command) error {
	start, err := loadAny(cmd, f.start)
	if err != nil {
		return err
	}
	if err := f.recorded.override(cmd, start); err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr())
	o := calibrate.Options{Start: start, Fit: f.fit, Evaluations: f.evaluations,
		Progress: func(done, total int, loss float64) {
			bar.set("fitting", int64(done), int64(total), fmt.Sprintf("deviation %.2f", loss))
		}}
	var fit *calibrate.Fit
	switch {
	case f.recorded.given() != "":
		fit, err = f.fromRecords(cmd, o)
	case f.logs != "":
		fit, err = f.fromLogs(cmd, o)
	case f.kernels != "":
		fit, err = f.fromKernels(cmd.Context(), start)
	case f.slora.runs != "":
		fit, err = f.slora.calibrate(cmd, o)
	default:
		fit, err = f.fromRuns(cmd, o)
	}
	bar.done()
	if err != nil {
		return err
	}
	p := fit.Profile
	p.Name, p.Hardware, p.EngineVersion = cmp.Or(f.name, p.Name), cmp.Or(f.hardware, p.Hardware),
		cmp.Or(f.version, p.EngineVersion)
	if f.output == "" && !wantsJSON(cmd) {
		if err := fit.WriteText(cmd.ErrOrStderr()); err != nil {
			return err
		}
		return writeYAML(cmd, fit.Profile)
	}
	if f.output != "" {
		if err := saveYAML(f.output, fit.Profile); err != nil {
			return err
		}
	}
	return show(cmd, fit.WriteText, inJSON(fit, "  "))
}

// of adds the name of the file to an error.
func of(file string, fit *calibrate.Fit, err error) (*calibrate.Fit, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return fit, nil
}

func (f *calibrateFlags) fromRecords(cmd *cobra.Command, o calibrate.Options) (*calibrate.Fit, error) {
	runs, err := f.recorded.requests(cmd)
	if err != nil {
		return nil, err
	}
	fit, err := calibrate.Records(cmd.Context(), runs, calibrate.RecordsOptions{Options: o, Holdout: f.holdout,
		MaxConcurrency: f.recorded.maxConcurrency})
	return of(f.recorded.given(), fit, err)
}

func (f *calibrateFlags) fromLogs(cmd *cobra.Command, o calibrate.Options) (*calibrate.Fit, error) {
	blocks, err := validate.ReadLogs(cmd.Context(), f.logs)
	if err != nil {
		return nil, err
	}
	var in, left []validate.Block
	for _, b := range blocks {
		switch {
		case b.Skipped != "" || f.server != "" && b.Server != f.server:
		case len(f.concurrency) == 0 || slices.Contains(f.concurrency, b.Concurrency):
			in = append(in, b)
		default:
			left = append(left, b)
		}
	}
	fit, err := calibrate.Blocks(cmd.Context(), in, left, o)
	return of(f.logs, fit, err)
}

func (f *calibrateFlags) fromKernels(ctx context.Context, start *profile.Profile) (*calibrate.Fit, error) {
	ks, err := textfile.Read(ctx, f.kernels, calibrate.ReadKernels)
	if err != nil {
		return nil, err
	}
	fit, err := calibrate.Kernels(ks, f.kernelsKind, start)
	return of(f.kernels, fit, err)
}

func (f *calibrateFlags) fromRuns(cmd *cobra.Command, o calibrate.Options) (*calibrate.Fit, error) {
	t := &f.table
	runs, hists, groups, err := t.read(cmd.Context(), "")
	if err != nil {
		return nil, err
	}
	fit, err := calibrate.Runs(cmd.Context(), runs, hists, calibrate.RunsOptions{
		Options: o, Groups: groups, Seeds: t.seeds, FirstSeed: t.seed, FitGroups: f.fitGroups, Folds: f.folds})
	if err == nil && f.outGroups != "" {
		return fit, saveYAML(f.outGroups, fit.Groups)
	}
	return of(t.runs, fit, err)
}

// fromVLLM fits the law by distinct adapters for each model of a table.
func (f *calibrateFlags) fromVLLM(cmd *cobra.Command) error {
	if f.output == "" {
		return usage(errors.New("--vllm-runs needs --output, the folder to write profiles to"))
	}
	dir := cmp.Or(f.tables, filepath.Dir(f.vllmRuns))
	all, err := textfile.Read(cmd.Context(), f.vllmRuns, vllmruns.Read)
	if err != nil {
		return err
	}
	fitted := slices.DeleteFunc(slices.Clone(all), func(r vllmruns.Run) bool { return r.Use != validate.Calibration })
	models, _ := stats.GroupBy(fitted, func(r *vllmruns.Run) string { return r.Model })
	if len(models) == 0 {
		return fmt.Errorf("%s: no runs of use calibration", f.vllmRuns)
	}
	tables, err := vllmruns.ReadTables(cmd.Context(), dir)
	if err != nil {
		return err
	}
	steps, err := textfile.Read(cmd.Context(), filepath.Join(dir, "latency.csv"), calibrate.ReadStepTimings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.output, 0o755); err != nil {
		return err
	}
	slices.Sort(models)
	bar := newProgress(cmd.ErrOrStderr())
	for _, m := range models {
		name := vllmruns.ProfileOf(m)
		if name == "" {
			return fmt.Errorf("%s: no profile to start from for model %q", f.vllmRuns, m)
		}
		start, err := profile.Load(cmd.Context(), name)
		if err != nil {
			return err
		}
		hours := calibrate.Hours{Model: m, Tables: tables, Timings: steps[m],
			Runs:     slices.DeleteFunc(slices.Clone(all), func(r vllmruns.Run) bool { return r.Model != m }),
			Progress: func(done, total int64) { bar.set("simulating", done, total, m) }}
		fit, err := hours.Fit(cmd.Context(), start)
		bar.done()
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		path := filepath.Join(f.output, name+".yaml")
		if err := saveYAML(path, fit.Profile); err != nil {
			return err
		}
		if !wantsJSON(cmd) {
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}
		if err := show(cmd, fit.WriteText, inJSON(fit, "  ")); err != nil {
			return err
		}
	}
	return nil
}
