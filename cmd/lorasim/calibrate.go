package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/calibrate"
	"lorasim/bench/result/records"
	"lorasim/bench/validate"
	"lorasim/bench/validate/vllmruns"
	"lorasim/internal/format"
	"lorasim/internal/record"
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

	table       tableFlags
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
	flags(cmd, "Records",
		opt(&f.records, "records", nil, "per-request records of a run, `file` (.parquet, .arrow, .csv, .jsonl); of several, separated by commas or spaces"),
		opt(&f.holdout, "holdout", 0.25, "share of the requests, the last ones, that the fit does not see", ">=0 <1"))
	flags(cmd, "Logs",
		opt(&f.logs, "logs", "", "`folder` (or file) of serving-benchmark logs"),
		opt(&f.server, "server", "", "only the blocks of this server, as the log names it"),
		opt(&f.concurrency, "concurrency", nil, "fit the blocks of these concurrencies, predict the others; default: fit all", ">=1 <=1e6"))
	f.table.add(cmd, 8, "table of measured runs, CSV `file`; rows of use validation are only predicted")
	flags(cmd, tableHeading,
		opt(&f.fitGroups, "fit-groups", false, "fit the lengths of the groups too"),
		opt(&f.outGroups, "output-groups", "", "write the fitted groups to `file`"),
		opt(&f.folds, "folds", 0, "cross-validate: fit so many times, each time without one part of the runs; 0: do not", ">=0 <=1000"))
	flags(cmd, "Kernels",
		opt(&f.kernels, "kernels", "", "kernel timings, CSV `file` with backend, batch_size, max_rank, median_ms"),
		opt(&f.kernelsKind, "backend", "csgmv", "LoRA backend to fit: csgmv or triton"))
	flags(cmd, vllmHeading,
		opt(&f.vllmRuns, "vllm-runs", "", vllmRunsHelp),
		opt(&f.tables, "tables", "", "`folder` of latency.csv, kv_capacity.csv and load_times.csv; default: that of the table"))
	flags(cmd, "Fit",
		opt(&f.start, "profile", "llama2-7b-24gb", "profile to start from: a name, a file, - for standard input, or analytic:MODEL,GPU"),
		opt(&f.fit, "fit", nil, "coefficients to fit; default: those the data say something about ("+strings.Join(calibrate.Coefficients(), ", ")+")"),
		opt(&f.evaluations, "evaluations", 0, "simulations of all the data at most; 0: 60 for each coefficient", ">=0 <=1e9"))
	flags(cmd, outputHeading,
		opt(&f.output, "output", "", "write the fitted profile to `file`; default: print it"),
		opt(&f.name, "name", "", "name of the fitted profile; default: that of the start with -fitted"),
		opt(&f.json, "json", false, "print the fit as one JSON object"))
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(f.records) == 0 && len(args) > 0 {
			return usage(fmt.Errorf("unexpected argument %q: expected files after --records alone", args[0]))
		}
		f.records = append(f.records, args...)
		if err := onlyOne("expected one of --records, --logs, --runs, --kernels and --vllm-runs",
			strings.Join(f.records, ","), f.logs, f.table.runs, f.kernels, f.vllmRuns); err != nil {
			return err
		}
		for _, name := range f.fit {
			if err := oneOf("fit", "coefficient", name, calibrate.Coefficients()); err != nil {
				return err
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
	fit     *calibrate.Fit // empty for kernels
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
	p.Name = cmp.Or(f.name, start.Name+"-fitted")
	p.Uncalibrated = false
	p.Source = fmt.Sprintf("Fitted to %s, starting from %s.", out.data, start.Name)
	var held []string
	for _, e := range out.fit.Params {
		if e.Held {
			held = append(held, e.Name)
		}
	}
	if held != nil {
		p.Source += " Not determined by the data and left as they were: " + strings.Join(held, ", ") + "."
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("the fitted profile is unsound: %w", err)
	}
	return f.write(cmd, out)
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
		for i := range rs {
			if rs[i].Status == record.OK {
				ok++
			}
		}
	}
	p, fit, errs, err := calibrate.Records(cmd.Context(), runs, calibrate.RecordsOptions{Options: o, Holdout: f.holdout})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(f.records, ", "), err)
	}
	p.Validation = errs
	return &fitted{profile: p, fit: fit, data: fmt.Sprintf("%d per-request records", ok)}, nil
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
	ks, err := readFile(f.kernels, calibrate.ReadKernels)
	if err != nil {
		return nil, err
	}
	p, k, err := calibrate.Kernels(ks, f.kernelsKind, start)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.kernels, err)
	}
	p.Validation = []profile.Validation{{Runs: fmt.Sprintf("%d kernel timings, five folds", k.Timings), Metric: "decode step without attention",
		MedianAbsError: k.Errors.MedianAbsError, P90AbsError: k.Errors.P90AbsError}}
	return &fitted{profile: p, fit: &calibrate.Fit{}, kernels: k, data: fmt.Sprintf("%d kernel timings of %s", k.Timings, k.Backend)}, nil
}

func (f *calibrateFlags) fromRuns(cmd *cobra.Command, o calibrate.Options) (*fitted, error) {
	runs, hists, groups, err := f.table.read("")
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
		if err := saveYAML(f.outGroups, rf.Groups); err != nil {
			return nil, err
		}
	}
	return &fitted{profile: p, fit: rf.Fit, data: fmt.Sprintf("%d measured runs", fitRuns)}, nil
}

// write saves the profile and prints the fit.
func (f *calibrateFlags) write(cmd *cobra.Command, out *fitted) error {
	if f.output == "" && !f.json {
		out.table(cmd.ErrOrStderr())
		return writeYAML(cmd, out.profile)
	}
	if f.output != "" {
		if err := saveYAML(f.output, out.profile); err != nil {
			return err
		}
	}
	if f.json {
		return out.writeJSON(cmd)
	}
	out.table(cmd.OutOrStdout())
	return nil
}

// table prints the coefficients and the errors on unseen data.
func (out *fitted) table(w io.Writer) {
	tw := format.Columns(w)
	if k := out.kernels; k != nil {
		fmt.Fprintf(tw, "COEFFICIENT\tVALUE\tSTANDARD ERROR\n")
		fmt.Fprintf(tw, "fixed part, ms (not used)\t%.4g\t%.2g\n", k.FixedMs, k.FixedStd)
		fmt.Fprintf(tw, "decode.per_request_ms\t%.4g\t%.2g\n", k.PerRequestMs, k.PerRequestStd)
		fmt.Fprintf(tw, "lora.%s_us\t%.4g\t%.2g\n", k.Backend, k.LoRAUs, k.LoRAStd)
	} else {
		fmt.Fprintln(tw, "COEFFICIENT\tSTART\tVALUE\tSTANDARD ERROR\tNOTE")
		for _, e := range out.fit.Params {
			value, std, note := fmt.Sprintf("%.4g", e.Value), fmt.Sprintf("%.1f %%", 100*e.RelStd), ""
			switch {
			case e.Held:
				value, std, note = "-", "-", "not determined by the data, left as it was"
			case e.AtBound:
				note = "at its bound"
			}
			fmt.Fprintln(tw, strings.TrimRight(fmt.Sprintf("%s\t%.4g\t%s\t%s\t%s", e.Name, e.Start, value, std, note), "\t"))
		}
		fmt.Fprintf(tw, "\ndeviation in units of the noise: %.2f before, %.2f after, %d evaluations\n", out.fit.StartLoss, out.fit.Loss, out.fit.Evaluations)
	}
	if len(out.profile.Validation) > 0 {
		fmt.Fprintln(tw, "\nUNSEEN DATA\tMETRIC\tMEDIAN |ERROR|\tP90")
		for _, v := range out.profile.Validation {
			fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t%.1f %%\n", v.Runs, v.Metric, 100*v.MedianAbsError, 100*v.P90AbsError)
		}
	}
	tw.Flush()
}

func (out *fitted) writeJSON(cmd *cobra.Command) error {
	type coefficient struct {
		Name    string   `json:"name"`
		Start   float64  `json:"start"`
		Value   *float64 `json:"value"`          // null: held
		RelStd  *float64 `json:"relative_error"` // null: infinite
		Held    bool     `json:"held"`
		AtBound bool     `json:"at_bound"`
	}
	type errorOf struct {
		Runs   string  `json:"runs"`
		Metric string  `json:"metric"`
		Median float64 `json:"median_abs_error"`
		P90    float64 `json:"p90_abs_error"`
	}
	object := struct {
		Profile      string        `json:"profile"`
		Coefficients []coefficient `json:"coefficients"`
		StartLoss    *float64      `json:"start_deviation,omitempty"`
		Loss         *float64      `json:"deviation,omitempty"`
		Evaluations  int           `json:"evaluations,omitempty"`
		Unseen       []errorOf     `json:"unseen"`
	}{Profile: out.profile.Name, Coefficients: []coefficient{}, Unseen: []errorOf{}}
	if fit := out.fit; out.kernels == nil {
		object.StartLoss, object.Loss, object.Evaluations = format.Finite(fit.StartLoss), format.Finite(fit.Loss), fit.Evaluations
		for _, e := range fit.Params {
			object.Coefficients = append(object.Coefficients, coefficient{e.Name, e.Start, format.Finite(e.Value), format.Finite(e.RelStd), e.Held, e.AtBound})
		}
	}
	if k := out.kernels; k != nil {
		relative := func(std, x float64) *float64 { return format.Finite(math.Abs(std / x)) }
		object.Coefficients = append(object.Coefficients,
			coefficient{Name: "decode.per_request_ms", Value: format.Finite(k.PerRequestMs), RelStd: relative(k.PerRequestStd, k.PerRequestMs)},
			coefficient{Name: "lora." + k.Backend + "_us", Value: format.Finite(k.LoRAUs), RelStd: relative(k.LoRAStd, k.LoRAUs)})
	}
	for _, v := range out.profile.Validation {
		object.Unseen = append(object.Unseen, errorOf{v.Runs, v.Metric, v.MedianAbsError, v.P90AbsError})
	}
	return writeJSON(cmd, object, "  ")
}

// fromVLLM fits the law by distinct adapters for each model of a table.
func (f *calibrateFlags) fromVLLM(cmd *cobra.Command) error {
	if f.output == "" {
		return usage(errors.New("--vllm-runs needs --output, the folder to write profiles to"))
	}
	dir := cmp.Or(f.tables, filepath.Dir(f.vllmRuns))
	all, err := readFile(f.vllmRuns, vllmruns.Read)
	if err != nil {
		return err
	}
	runs := map[string][]vllmruns.Run{}
	for _, r := range all {
		if r.Use == validate.Calibration {
			runs[r.Model] = append(runs[r.Model], r)
		}
	}
	if len(runs) == 0 {
		return fmt.Errorf("%s: no runs of use calibration", f.vllmRuns)
	}
	tables, err := vllmruns.ReadTables(dir)
	if err != nil {
		return err
	}
	steps, err := readFile(filepath.Join(dir, "latency.csv"), calibrate.ReadStepTimings)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.output, 0o755); err != nil {
		return err
	}
	for _, m := range slices.Sorted(maps.Keys(runs)) {
		name := vllmruns.ProfileOf(m)
		if name == "" {
			return fmt.Errorf("%s: no profile to start from for model %q", f.vllmRuns, m)
		}
		if err := f.vllmModel(cmd, name, m, runs[m], tables, steps[m]); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

// vllmModel fits and writes the profile of one model.
func (f *calibrateFlags) vllmModel(cmd *cobra.Command, name, model string, runs []vllmruns.Run, tables *vllmruns.Tables, steps []calibrate.StepTiming) error {
	p, err := profile.Load(name)
	if err != nil {
		return err
	}
	if err := calibrate.Sizes(p, model, tables); err != nil {
		return err
	}
	fit, err := fitLaw(cmd, p, model, runs, tables, steps)
	if err != nil {
		return err
	}
	if err := refineWaiting(cmd, p, model, runs, tables); err != nil {
		return err
	}
	fit.Law = p.Latency.Adapters
	p.Source = fmt.Sprintf("lorasim calibrate --vllm-runs: the law fitted to the mean time per output token of %d measured hours of vLLM 0.8.5 "+
		"(median error of the fit %.1f %%) with the costs of a prompt token and of a KV token from %d timings of steps without adapters "+
		"(%.1f %%); sizes of the KV cache and load times as measured.",
		len(runs), 100*fit.Runs.MedianAbsError, len(steps), 100*fit.Steps.MedianAbsError)
	if len(fit.Held) > 0 {
		p.Source += " Not determined by the timings and left as it was: " + strings.Join(fit.Held, ", ") + "."
	}
	if err := p.Check(); err != nil {
		return fmt.Errorf("the fitted profile is unsound: %w", err)
	}
	path := filepath.Join(f.output, name+".yaml")
	if err := saveYAML(path, p); err != nil {
		return err
	}
	l := &fit.Law
	tw := format.Columns(cmd.OutOrStdout())
	fmt.Fprintf(tw, "%s\t\n", path)
	fmt.Fprintf(tw, "base_ms\t%.4g\nper_request_ms\t%.4g\nper_token_us\t%.4g\nper_kv_token_us\t%.4g\nper_slot_us\t%.4g\nper_waiting_us\t%.4g\n",
		l.BaseMs, l.PerRequestMs, l.PerTokenUs, l.PerKVTokenUs, l.PerSlotUs, l.PerWaitingUs)
	for _, r := range l.ByRank {
		fmt.Fprintf(tw, "rank %d\tper_adapter_ms %.4g\tper_adapter_token_us %.4g\tper_slot_token_us %.4g\n",
			r.Rank, r.PerAdapterMs, r.PerAdapterTokenUs, r.PerSlotTokenUs)
	}
	fmt.Fprintf(tw, "error of the fit\tmedian %.1f %%\tP90 %.1f %%\n\n", 100*fit.Runs.MedianAbsError, 100*fit.Runs.P90AbsError)
	return tw.Flush()
}

// fitLaw sets the profile's law to the one that fits the runs. How often a step
// loads an adapter is what the runs as simulated with that law say: the law that
// counts none is where it begins, whatever the profile had.
func fitLaw(cmd *cobra.Command, p *profile.Profile, model string, runs []vllmruns.Run, tables *vllmruns.Tables, steps []calibrate.StepTiming) (*calibrate.LawFit, error) {
	loads := make([]float64, len(runs))
	for pass := 1; ; pass++ {
		fit, err := calibrate.FitLaw(runs, loads, p.Adapters.HostToGPU.LatencyMs, tables, steps, p.Latency.Adapters)
		if err != nil {
			return nil, err
		}
		p.Latency.Adapters = fit.Law
		if pass == 3 {
			return fit, nil
		}
		bar := newProgress(cmd.ErrOrStderr())
		rows, err := vllmruns.Simulate(cmd.Context(), runs, tables, vllmruns.Options{Profiles: map[string]*profile.Profile{model: p},
			Progress: func(done, total int64) { bar.set("simulating", done, total, model) }})
		bar.done()
		if err != nil {
			return nil, err
		}
		for i := range rows {
			loads[i] = rows[i].LoadsPerStep
		}
	}
}

// manyWaiting is the mean queue from which on a run tells what a waiting request
// costs: a step then scans it for a millisecond or more.
const manyWaiting = 3000

// refineWaiting sets the cost of a waiting request so that the simulated time per
// output token is right in the median over the runs with many. Mean figures do
// not tell it well: the queue grows all the time, and adapters that wait for a
// slot come and go with it.
func refineWaiting(cmd *cobra.Command, p *profile.Profile, model string, runs []vllmruns.Run, tables *vllmruns.Tables) error {
	runs = slices.DeleteFunc(slices.Clone(runs), func(r vllmruns.Run) bool { return !(r.Waiting > manyWaiting) })
	w := &p.Latency.Adapters.PerWaitingUs
	if len(runs) < 3 || *w == 0 {
		return nil
	}
	deviation := func(at float64) (float64, error) {
		*w = at
		rows, err := vllmruns.Simulate(cmd.Context(), runs, tables, vllmruns.Options{Profiles: map[string]*profile.Profile{model: p}})
		var errs []float64
		for _, r := range rows {
			if e, ok := r.Error[vllmruns.TPOT]; ok {
				errs = append(errs, e)
			}
		}
		slices.Sort(errs)
		if len(errs) == 0 {
			return 0, err
		}
		return (errs[(len(errs)-1)/2] + errs[len(errs)/2]) / 2, err
	}
	whole := *w
	a, err := deviation(whole)
	if err != nil {
		return err
	}
	b, err := deviation(whole / 2)
	if err != nil {
		return err
	}
	if *w = whole; a > b { // the line through both; else it does not matter here
		root := whole - a*(whole/2)/(a-b)
		*w = math.Round(1000*min(max(root, 0), 2*whole)) / 1000
	}
	return nil
}
