package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"lorasim/bench/validate/vllmruns"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// vllmReport holds the simulator against a table of measured hours of vLLM.
func (f *validateFlags) vllmReport(cmd *cobra.Command) (*vllmruns.Report, error) {
	uses := []string{vllmruns.Calibration, vllmruns.Validation, vllmruns.Held}
	if f.use != "" && !slices.Contains(uses, f.use) {
		return nil, usage(fmt.Errorf("--use: %w", suggest.Unknown("use", f.use, uses)))
	}
	profiles, err := profilesOf(f.profile)
	if err != nil {
		return nil, err
	}
	runs, err := vllmruns.Read(f.vllmRuns)
	if err != nil {
		return nil, err
	}
	if f.use != "" {
		runs = slices.DeleteFunc(runs, func(r vllmruns.Run) bool { return r.Use != f.use })
		if len(runs) == 0 {
			return nil, fmt.Errorf("%s: no run has use %s", f.vllmRuns, f.use)
		}
	}
	dir := f.tables
	if dir == "" {
		dir = filepath.Dir(f.vllmRuns)
	}
	tables, err := vllmruns.ReadTables(dir)
	if err != nil {
		return nil, fmt.Errorf("the tables beside the runs (see --tables): %w", err)
	}
	bar := newProgress(cmd.ErrOrStderr())
	defer bar.done()
	rows, err := vllmruns.Simulate(cmd.Context(), runs, tables, vllmruns.Options{
		Profiles: profiles,
		Progress: func(done, total int64) {
			bar.set("simulating", done, total, fmt.Sprintf("%d of %d runs", done, total))
		},
	})
	if err != nil {
		return nil, err
	}
	return vllmruns.NewReport(rows, f.use), nil
}

// profilesOf reads MODEL=PROFILE,... of --profile with --vllm-runs.
func profilesOf(list string) (map[string]*profile.Profile, error) {
	if list == "" {
		return nil, nil
	}
	ps := map[string]*profile.Profile{}
	for pair := range strings.SplitSeq(list, ",") {
		model, name, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usage(errors.New("--profile: with --vllm-runs expected MODEL=PROFILE for each model, with commas between"))
		}
		p, err := profile.Load(name)
		if err != nil {
			return nil, err
		}
		ps[model] = p
	}
	return ps, nil
}
