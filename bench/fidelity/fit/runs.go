package fit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// runCoefficients are the coefficients that affect a table of runs. Kernel timings determine the
// cost of a running request and of an adapter better.
var runCoefficients = []string{
	"decode.base_ms", "decode.per_kv_token_us", "prefill.base_ms", "prefill.per_token_us", "request_overhead_ms",
}

// runNoise is the relative difference between repeated runs of one workload: the variation of six
// measured repeats.
var runNoise = map[measured.Metric]float64{
	measured.Duration: 0.009, measured.MeanE2E: 0.037, measured.MedianE2E: 0.064, measured.P99E2E: 0.056,
}

// RunsOptions configures a fit to a table of runs.
type RunsOptions struct {
	Options
	Groups    *measured.Groups // nil: measured.DefaultGroups
	Seeds     int
	FirstSeed uint64
	// FitGroups fits two quantities that the table does not contain, beside the profile: the
	// distribution of output lengths of each group, and the share of the first worker if there is
	// no histogram.
	FitGroups bool
	// Folds is the number of parts of a cross-validation; 0 disables it.
	Folds int
}

// predict predicts runs with a profile and groups.
func (o *RunsOptions) predict(
	ctx context.Context, runs []measured.Run, hists measured.Histograms, p *profile.Profile, g *measured.Groups,
) ([]measured.PredictedRun, error) {
	return measured.PredictRuns(ctx, runs, hists, measured.RunOptions{
		Profile: p, Groups: g, Seeds: o.Seeds, FirstSeed: o.FirstSeed, NoLoad: true,
	})
}

// forCalibration returns the runs that may be fitted.
func forCalibration(runs []measured.Run) []measured.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r measured.Run) bool { return r.Use == measured.Validation })
}

// Runs fits a profile to those runs of a table that are for calibration. Its errors are on the runs
// for validation. hists are the invocations per adapter.
func Runs(ctx context.Context, runs []measured.Run, hists measured.Histograms, o RunsOptions) (*Result, error) {
	if o.Groups == nil {
		o.Groups = measured.DefaultGroups()
	}
	in := forCalibration(runs)
	fit, err := o.fitRuns(ctx, in, hists)
	if err != nil {
		return nil, err
	}
	p := fit.Profile
	fitted := func(r measured.Run) bool { return r.Use != measured.Validation }
	if left := slices.DeleteFunc(slices.Clone(runs), fitted); len(left) > 0 {
		rows, err := measured.PredictRuns(ctx, left, hists, measured.RunOptions{
			Profile: p, Groups: fit.Groups, Seeds: o.Seeds, FirstSeed: o.FirstSeed + 1000,
		})
		if err != nil {
			return nil, err
		}
		r := check.NewRunsReport(rows)
		p.Validation, p.Intervals = r.Validation("runs for validation"), r.Intervals().One()
	}
	if o.Folds > 0 {
		rows, err := o.crossValidate(ctx, in, hists)
		if err != nil {
			return nil, err
		}
		p.Validation = append(p.Validation,
			check.NewRunsReport(rows).Validation(fmt.Sprintf("runs left out, %d folds", o.Folds))...)
	}
	return fit.describe(o.Start, "%d measured runs", len(in))
}

// fitRuns fits a profile to runs.
func (o *RunsOptions) fitRuns(ctx context.Context, runs []measured.Run, hists measured.Histograms) (*Result, error) {
	knobs, err := o.knobs(runCoefficients, false)
	if err != nil {
		return nil, err
	}
	if len(runs) == 0 {
		return nil, errors.New("no run for calibration in the table: all are marked as validation")
	}
	if o.FitGroups {
		knobs = append(knobs, groupKnobs(o.Groups, runs)...)
	}
	first, err := o.predict(ctx, runs, hists, o.Start, o.Groups)
	if err != nil {
		return nil, err
	}
	// The weights combine the measurement noise and the sensitivity of the metric to the draw of
	// the lengths, which makes runs near saturation hard to predict. The sensitivity is taken from
	// the first prediction, so that the fit cannot increase its own noise. The lengths of the runs
	// are unknown, so that a profile should stay close to its start: hence the narrow prior.
	_, fit, err := o.fit(ctx, model{profile: o.Start, groups: o.Groups}, knobs, 0.3,
		func(ctx context.Context, m *model) (r []float64, err error) {
			rows, err := o.predict(ctx, runs, hists, m.profile, m.groups)
			for i, row := range rows {
				for _, metric := range measured.RunMetrics {
					if measured, ok := row.Measured[metric]; ok && row.Predicted != nil {
						r = append(r,
							logError(measured, row.Predicted[metric])/math.Hypot(runNoise[metric],
								first[i].Spread[metric]))
					}
				}
			}
			return r, err
		})
	return fit, err
}

// groupKnobs returns the numbers of the groups that the runs belong to.
func groupKnobs(g *measured.Groups, runs []measured.Run) (out []knob) {
	for _, name := range slices.Sorted(maps.Keys(g.Groups)) {
		group := g.Groups[name]
		of := slices.DeleteFunc(slices.Clone(runs), func(r measured.Run) bool { return r.Group != name })
		traces, _ := stats.GroupBy(of, func(r *measured.Run) string { return r.Trace })
		for _, key := range []string{"output_mean", "output_sigma"} {
			pattern := regexp.MustCompile(`\b` + key + `=([^,]*)`)
			found := pattern.FindStringSubmatch(group.Lengths)
			if len(traces) == 0 || found == nil || !strings.HasPrefix(group.Lengths, "measured:") ||
				key == "output_mean" && group.MeanKnown {
				continue
			}
			start, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				continue
			}
			out = append(out,
				knob{Param{Name: "groups." + name + "." + key, Start: start, Min: start / 2, Max: start * 2},
					func(m *model, x float64) {
						gr := m.groups.Groups[name]
						gr.Lengths = pattern.ReplaceAllString(gr.Lengths, fmt.Sprintf("%s=%.5g", key, x))
						m.groups.Groups[name] = gr
					}})
		}
		for _, trace := range traces {
			if share, ok := group.FirstWorker[trace]; ok {
				out = append(out, knob{
					Param{Name: "groups." + name + ".first_worker." + trace, Start: share, Min: 0.02, Max: 0.98},
					func(m *model, x float64) { m.groups.Groups[name].FirstWorker[trace] = x }})
			}
		}
	}
	return out
}

// folded calls f for each part of a cross-validation with the elements in the fit and those left
// out. Element i is in part i modulo folds.
func folded[T any](xs []T, folds int, f func(in, left []T) error) error {
	for fold := range folds {
		var parts [2][]T
		for i, x := range xs {
			k := 0
			if i%folds == fold {
				k = 1
			}
			parts[k] = append(parts[k], x)
		}
		if err := f(parts[0], parts[1]); err != nil {
			return fmt.Errorf("fold %d: %w", fold+1, err)
		}
	}
	return nil
}

// crossValidate fits o.Folds times, each time without one part of the runs, and
// returns the predictions of the parts left out.
func (o *RunsOptions) crossValidate(
	ctx context.Context, runs []measured.Run, hists measured.Histograms,
) (out []measured.PredictedRun, err error) {
	if o.Folds < 2 || o.Folds > len(runs) {
		return nil, fmt.Errorf("%d folds of %d runs, expected 2 to the number of runs", o.Folds, len(runs))
	}
	err = folded(runs, o.Folds, func(in, left []measured.Run) error {
		f, err := o.fitRuns(ctx, in, hists)
		if err != nil {
			return err
		}
		rows, err := o.predict(ctx, left, hists, f.Profile, f.Groups)
		out = append(out, rows...)
		return err
	})
	return out, err
}
