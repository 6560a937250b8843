package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/calibrate"
	"lorasim/bench/result/records"
	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// calibrateFlags are the arguments of the calibrate command.
type calibrateFlags struct {
	start, name, output string
	fit                 []string
	evaluations, folds  int
	json                bool

	records []string
	holdout float64

	logs, server string
	concurrency  []int

	table       validateFlags // runs, histograms, groups, seeds
	outGroups   string
	fitGroups   bool
	kernels     string
	kernelsKind string

	vllmRuns, tables string
}

func newCalibrate() *cobra.Command {
	f := &calibrateFlags{}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Fit a worker profile to measurements",
		Long: `Calibrate moves the coefficients of a profile, within bounds, until the
simulator's predictions agree with what was measured, and says how certain each
coefficient is. Coefficients that the data cannot determine are held where the
profile that it starts from has them. The new profile states its errors on data
that the fit has not seen.

It takes one kind of data: per-request records of a live run (most telling, all
the more with the times of the tokens), closed-loop blocks of serving-benchmark
logs, a table of measured runs, or kernel timings of the LoRA backends. With
--vllm-runs it fits the law by distinct adapters of each model of a table of
measured hours of vLLM to the runs of use calibration and to timings of steps, and
writes NAME.yaml for each of them into the folder --output.`,
		Example: `  lorasim calibrate --records run.parquet --profile llama2-7b-24gb --output mine.yaml
  lorasim calibrate --records low.jsonl high.jsonl --profile engine.yaml --output mine.yaml
  lorasim calibrate --logs logs/ --server flashinfer --concurrency 32 --profile analytic:deepseek-v3,h200 --output fitted.yaml
  lorasim calibrate --runs lora_runs.csv --histograms seed_workload.json --folds 4 --output fitted.yaml
  lorasim calibrate --kernels kernels.csv --backend triton --output fitted.yaml
  lorasim calibrate --vllm-runs vllm_lora/runs.csv --output profiles/`,
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.records, "records", nil, "per-request records of a run, `file` (.parquet, .arrow, .csv, .jsonl); of several, separated by commas or spaces")
	fs.Float64Var(&f.holdout, "holdout", 0.25, "share of the requests, the last ones, that the fit does not see")
	fs.StringVar(&f.logs, "logs", "", "`folder` (or file) of serving-benchmark logs")
	fs.StringVar(&f.server, "server", "", "only the blocks of this server, as the log names it")
	fs.IntSliceVar(&f.concurrency, "concurrency", nil, "fit the blocks of these concurrencies, predict the others; default: fit all")
	fs.StringVar(&f.table.runs, "runs", "", "table of measured runs, CSV `file`; rows of use validation are only predicted")
	fs.StringVar(&f.table.histograms, "histograms", "", "invocations per adapter by stride, JSON `file`")
	fs.StringVar(&f.table.groups, "groups", "", "what the table does not tell of its groups of runs, YAML `file`; default: built in")
	fs.IntVar(&f.table.seeds, "seeds", 8, "draws of the lengths")
	fs.Uint64Var(&f.table.seed, "seed", 1, "first seed")
	fs.BoolVar(&f.fitGroups, "fit-groups", false, "fit the lengths of the groups too")
	fs.StringVar(&f.outGroups, "output-groups", "", "write the fitted groups to `file`")
	fs.IntVar(&f.folds, "folds", 0, "cross-validate: fit so many times, each time without one part of the runs; 0: do not")
	fs.StringVar(&f.kernels, "kernels", "", "kernel timings, CSV `file` with backend, batch_size, max_rank, median_ms")
	fs.StringVar(&f.kernelsKind, "backend", "csgmv", "LoRA backend to fit: csgmv or triton")
	fs.StringVar(&f.vllmRuns, "vllm-runs", "", "table of measured hours of vLLM, CSV `file`")
	fs.StringVar(&f.tables, "tables", "", "`folder` of latency.csv, kv_capacity.csv and load_times.csv; default: that of the table")
	fs.StringVar(&f.start, "profile", "llama2-7b-24gb", "profile to start from: a name, a file, - for standard input, or analytic:MODEL,GPU")
	fs.StringSliceVar(&f.fit, "fit", nil, "coefficients to fit; default: those the data say something about ("+strings.Join(calibrate.Coefficients(), ", ")+")")
	fs.IntVar(&f.evaluations, "evaluations", 0, "simulations of all the data at most; 0: 60 for each coefficient")
	fs.StringVar(&f.output, "output", "", "write the fitted profile to `file`; default: print it")
	fs.StringVar(&f.name, "name", "", "name of the fitted profile; default: that of the start with -fitted")
	fs.BoolVar(&f.json, "json", false, "print the fit as one JSON object")
	within(cmd, ">=0 <1", "holdout")
	within(cmd, ">=1 <=1e6", "concurrency")
	within(cmd, ">=1 <=1e6", "seeds")
	within(cmd, ">=0", "seed")
	within(cmd, ">=0 <=1000", "folds")
	within(cmd, ">=0 <=1e9", "evaluations")
	group(cmd, "Records", "records", "holdout")
	group(cmd, "Logs", "logs", "server", "concurrency")
	group(cmd, "Table of runs", "runs", "histograms", "groups", "seeds", "seed", "fit-groups", "output-groups", "folds")
	group(cmd, "Kernels", "kernels", "backend")
	group(cmd, "Measured hours of vLLM", "vllm-runs", "tables")
	group(cmd, "Fit", "profile", "fit", "evaluations")
	group(cmd, outputHeading, "output", "name", "json")
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.records) == 0 && len(args) > 0 {
			return usage(fmt.Errorf("unexpected argument %q: expected files after --records alone", args[0]))
		}
		f.records = append(f.records, args...)
		kinds := 0
		for _, s := range []string{strings.Join(f.records, ","), f.logs, f.table.runs, f.kernels, f.vllmRuns} {
			if s != "" {
				kinds++
			}
		}
		if kinds != 1 {
			return usage(errors.New("expected one of --records, --logs, --runs, --kernels and --vllm-runs"))
		}
		for _, name := range f.fit {
			if known := calibrate.Coefficients(); !slices.Contains(known, name) {
				return usage(fmt.Errorf("--fit: %w", suggest.Unknown("coefficient", name, known)))
			}
		}
		if f.vllmRuns != "" {
			return f.fromVLLM(cmd)
		}
		return f.run(cmd)
	}
	return cmd
}

// fitted is the outcome of any kind of fit.
type fitted struct {
	profile *profile.Profile
	fit     *calibrate.Fit // nil for kernels
	data    string         // what it was fitted to, for the profile's source
	kernels *calibrate.KernelFit
}

func (f *calibrateFlags) run(cmd *cobra.Command) error {
	start, err := loadAny(cmd, f.start)
	if err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr())
	o := calibrate.Options{Start: start, Fit: f.fit, Evaluations: f.evaluations,
		Progress: func(done, total int, loss float64) {
			bar.set("fitting", int64(done), int64(total), fmt.Sprintf("deviation %.2f", loss))
		}}
	var out *fitted
	switch {
	case len(f.records) > 0:
		out, err = f.fromRecords(cmd, o)
	case f.logs != "":
		out, err = f.fromLogs(cmd, o)
	case f.kernels != "":
		out, err = f.fromKernels(start)
	default:
		out, err = f.fromRuns(cmd, o)
	}
	bar.done()
	if err != nil {
		return err
	}
	p := out.profile
	if p.Name = f.name; p.Name == "" {
		p.Name = start.Name + "-fitted"
	}
	p.Uncalibrated = false
	p.Source = fmt.Sprintf("Fitted to %s, starting from %s.", out.data, start.Name)
	if held := out.held(); held != "" {
		p.Source += " Not determined by the data and left as they were: " + held + "."
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("the fitted profile is unsound: %w", err)
	}
	return f.write(cmd, out)
}

func (out *fitted) held() string {
	var names []string
	if out.fit != nil {
		for _, e := range out.fit.Params {
			if e.Held {
				names = append(names, e.Name)
			}
		}
	}
	return strings.Join(names, ", ")
}

func (f *calibrateFlags) fromRecords(cmd *cobra.Command, o calibrate.Options) (*fitted, error) {
	var runs [][]record.Request
	ok := 0
	for _, file := range f.records {
		rs, _, err := records.ReadAll(file)
		if err != nil {
			return nil, fmt.Errorf("--records: %w", err)
		}
		runs = append(runs, rs)
		ok += countOK(rs)
	}
	p, fit, errs, err := calibrate.Records(cmd.Context(), runs, calibrate.RecordsOptions{Options: o, Holdout: f.holdout})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(f.records, ", "), err)
	}
	p.Validation = errs
	return &fitted{profile: p, fit: fit, data: fmt.Sprintf("%d per-request records", ok)}, nil
}

func countOK(rs []record.Request) (n int) {
	for i := range rs {
		if rs[i].Status == record.OK {
			n++
		}
	}
	return n
}

func (f *calibrateFlags) fromLogs(cmd *cobra.Command, o calibrate.Options) (*fitted, error) {
	blocks, err := validate.ReadLogs(f.logs)
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
	p, fit, err := calibrate.Blocks(cmd.Context(), in, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.logs, err)
	}
	p.Validation = nil
	if len(left) > 0 {
		r, err := validate.CompareBlocks(cmd.Context(), left, p)
		if err != nil {
			return nil, err
		}
		p.Validation = r.Validation("blocks not fitted", validate.BlockMetrics)
	}
	names := make([]string, len(in))
	for i := range in {
		names[i] = in[i].Name()
	}
	return &fitted{profile: p, fit: fit, data: fmt.Sprintf("%d closed-loop blocks (%s)", len(in), strings.Join(names, ", "))}, nil
}

func (f *calibrateFlags) fromKernels(start *profile.Profile) (*fitted, error) {
	file, err := os.Open(f.kernels)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	ks, err := calibrate.ReadKernels(file, f.kernels)
	if err != nil {
		return nil, err
	}
	p, k, err := calibrate.Kernels(ks, f.kernelsKind, start)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.kernels, err)
	}
	p.Validation = []profile.Validation{{Runs: fmt.Sprintf("%d kernel timings, five folds", k.Timings), Metric: "decode step without attention",
		MedianAbsError: k.Errors.MedianAbsError, P90AbsError: k.Errors.P90AbsError}}
	return &fitted{profile: p, kernels: k, data: fmt.Sprintf("%d kernel timings of %s", k.Timings, k.Backend)}, nil
}

func (f *calibrateFlags) fromRuns(cmd *cobra.Command, o calibrate.Options) (*fitted, error) {
	runs, hists, groups, err := f.table.table()
	if err != nil {
		return nil, err
	}
	ro := calibrate.RunsOptions{Options: o, Groups: groups, Seeds: f.table.seeds, FirstSeed: f.table.seed, FitGroups: f.fitGroups}
	rf, err := calibrate.Runs(cmd.Context(), runs, hists, ro)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.table.runs, err)
	}
	p := rf.Profile
	p.Validation = nil
	fitRuns, left := 0, []validate.Run{}
	for _, r := range runs {
		if r.Use == validate.Validation {
			left = append(left, r)
		} else {
			fitRuns++
		}
	}
	if len(left) > 0 {
		ps, err := validate.Simulate(cmd.Context(), left, hists, validate.Options{Profile: p, Groups: rf.Groups, Seeds: f.table.seeds, FirstSeed: f.table.seed + 1000})
		if err != nil {
			return nil, err
		}
		p.Validation = validate.NewReport(ps).Validation("runs for validation", validate.Metrics)
	}
	if f.folds > 0 {
		ps, err := calibrate.CrossValidate(cmd.Context(), runs, hists, ro, f.folds)
		if err != nil {
			return nil, err
		}
		p.Validation = append(p.Validation, validate.NewReport(ps).Validation(fmt.Sprintf("runs left out, %d folds", f.folds), validate.Metrics)...)
	}
	if f.outGroups != "" {
		text, err := rf.Groups.YAML()
		if err != nil {
			return nil, err
		}
		if err := writeFile(f.outGroups, text); err != nil {
			return nil, err
		}
	}
	return &fitted{profile: p, fit: rf.Fit, data: fmt.Sprintf("%d measured runs", fitRuns)}, nil
}
