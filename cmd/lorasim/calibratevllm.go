package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"lorasim/bench/calibrate/vllmlaw"
	"lorasim/bench/validate/vllmruns"
	"lorasim/sim/profile"
)

// fromVLLM fits the law by distinct adapters for each model of a table.
func (f *calibrateFlags) fromVLLM(cmd *cobra.Command) error {
	if f.output == "" {
		return usage(errors.New("--vllm-runs needs --output, the folder to write profiles to"))
	}
	dir := f.tables
	if dir == "" {
		dir = filepath.Dir(f.vllmRuns)
	}
	all, err := vllmruns.Read(f.vllmRuns)
	if err != nil {
		return err
	}
	runs := map[string][]vllmruns.Run{}
	var models []string
	for _, r := range all {
		if r.Use != vllmruns.Calibration {
			continue
		}
		if runs[r.Model] == nil {
			models = append(models, r.Model)
		}
		runs[r.Model] = append(runs[r.Model], r)
	}
	if len(models) == 0 {
		return fmt.Errorf("%s: no runs of use calibration", f.vllmRuns)
	}
	tables, err := vllmruns.ReadTables(dir)
	if err != nil {
		return err
	}
	steps, err := vllmlaw.ReadSteps(filepath.Join(dir, "latency.csv"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.output, 0o755); err != nil {
		return err
	}
	slices.Sort(models)
	for _, m := range models {
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
func (f *calibrateFlags) vllmModel(cmd *cobra.Command, name, model string, runs []vllmruns.Run, tables *vllmruns.Tables, steps []vllmlaw.Step) error {
	p, err := profile.Load(name)
	if err != nil {
		return err
	}
	if err := vllmlaw.Sizes(p, model, tables); err != nil {
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
	text, err := p.YAML()
	if err != nil {
		return err
	}
	path := filepath.Join(f.output, name+".yaml")
	if err := writeFile(path, text); err != nil {
		return err
	}
	l := &fit.Law
	tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
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
func fitLaw(cmd *cobra.Command, p *profile.Profile, model string, runs []vllmruns.Run, tables *vllmruns.Tables, steps []vllmlaw.Step) (*vllmlaw.Result, error) {
	loads := make([]float64, len(runs))
	for pass := 1; ; pass++ {
		fit, err := vllmlaw.Fit(runs, loads, p.Adapters.HostToGPU.LatencyMs, tables, steps, p.Latency.Adapters)
		if err != nil {
			return nil, err
		}
		p.Latency.Adapters = fit.Law
		if pass == 3 {
			return fit, nil
		}
		bar := newProgress(cmd.ErrOrStderr())
		rows, err := vllmruns.Simulate(cmd.Context(), runs, tables, vllmruns.Options{
			Profiles: map[string]*profile.Profile{model: p},
			Progress: func(done, total int64) { bar.set("simulating", done, total, model) },
		})
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
