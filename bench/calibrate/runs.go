package calibrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/validate"
	"lorasim/sim/profile"
)

// RunCoefficients are the coefficients that a table of runs says something
// about. What one more running request and an adapter cost is better known from
// kernel timings.
var RunCoefficients = []string{
	"decode.base_ms", "decode.per_kv_token_us", "prefill.base_ms", "prefill.per_token_us", "request_overhead_ms",
}

// runNoise is how far apart repeated runs of one workload lie, as a fraction:
// the variation of six repeats that were measured.
var runNoise = map[validate.Metric]float64{
	validate.Duration: 0.009, validate.MeanE2E: 0.037, validate.MedianE2E: 0.064, validate.P99E2E: 0.056,
}

// RunsOptions say how to fit to a table of runs.
type RunsOptions struct {
	Options
	Groups    *validate.Groups // nil: validate.DefaultGroups
	Seeds     int
	FirstSeed uint64
	// FitGroups fits, beside the profile, what the table does not tell: the
	// distribution of the output lengths of each group, and the share of the
	// first worker where there is no histogram.
	FitGroups bool
}

// groupCoefficient is a number of a group that a fit may move.
type groupCoefficient struct {
	param Param
	set   func(g *validate.Groups, x float64)
}

// RunsFit is a profile fitted to a table of runs.
type RunsFit struct {
	Profile *profile.Profile
	Groups  *validate.Groups
	Fit     *Fit
}

// Runs fits a profile to the runs of a table that are for calibration.
func Runs(ctx context.Context, runs []validate.Run, hists validate.Histograms, o RunsOptions) (*RunsFit, error) {
	p, cs, err := o.problem(RunCoefficients, false)
	if err != nil {
		return nil, err
	}
	if o.Groups == nil {
		o.Groups = validate.DefaultGroups()
	}
	var use []validate.Run
	for _, r := range runs {
		if r.Use != validate.Validation {
			use = append(use, r)
		}
	}
	if len(use) == 0 {
		return nil, errors.New("no run for calibration in the table: all are marked as validation")
	}
	var gs []groupCoefficient
	if o.FitGroups {
		if gs, err = groupCoefficients(o.Groups, use); err != nil {
			return nil, err
		}
		for _, g := range gs {
			p.Params = append(p.Params, g.param)
		}
	}
	apply := func(x []float64) (*profile.Profile, *validate.Groups) {
		groups := cloneGroups(o.Groups)
		for i, g := range gs {
			if v := x[len(cs)+i]; !math.IsNaN(v) {
				g.set(groups, v)
			}
		}
		return with(o.Start, cs, x[:len(cs)]), groups
	}
	simulate := func(ctx context.Context, p *profile.Profile, g *validate.Groups) ([]validate.Row, error) {
		return validate.Simulate(ctx, use, hists, validate.Options{Profile: p, Groups: g, Seeds: o.Seeds, FirstSeed: o.FirstSeed, NoLoad: true})
	}
	first, err := simulate(ctx, o.Start, o.Groups)
	if err != nil {
		return nil, err
	}
	p.Residuals = func(ctx context.Context, x []float64) ([]float64, error) {
		profile, groups := apply(x)
		ps, err := simulate(ctx, profile, groups)
		if err != nil {
			return nil, err
		}
		return runResiduals(ps, first), nil
	}
	p.Prior = 0.3 // runs with lengths that are not known are no reason to leave a profile far behind
	fit, err := Solve(ctx, p)
	if err != nil {
		return nil, err
	}
	out := &RunsFit{Fit: fit}
	out.Profile, out.Groups = apply(fit.X)
	return out, nil
}

// runResiduals weighs each error by the noise of the measurement and by how
// much the metric depends on the draw of the lengths, which is what makes runs
// near saturation hard to predict. The latter is taken from the first
// prediction, so that the fit cannot buy itself noise.
func runResiduals(ps, first []validate.Row) []float64 {
	var r []float64
	for i := range ps {
		for _, m := range validate.Metrics {
			if measured, ok := ps[i].Measured[m]; ok && first[i].Predicted != nil {
				r = append(r, logError(measured, ps[i].Predicted[m])/math.Hypot(runNoise[m], first[i].Spread[m]))
			}
		}
	}
	return r
}

func cloneGroups(g *validate.Groups) *validate.Groups {
	c := &validate.Groups{Groups: maps.Clone(g.Groups), Other: g.Other}
	for name, gr := range c.Groups {
		gr.FirstWorker = maps.Clone(gr.FirstWorker)
		c.Groups[name] = gr
	}
	return c
}

// groupCoefficients are those of the groups that the runs belong to.
func groupCoefficients(g *validate.Groups, runs []validate.Run) ([]groupCoefficient, error) {
	var out []groupCoefficient
	for _, name := range slices.Sorted(maps.Keys(g.Groups)) {
		var traces []string
		for i := range runs {
			if runs[i].Group == name && !slices.Contains(traces, runs[i].Trace) {
				traces = append(traces, runs[i].Trace)
			}
		}
		if len(traces) == 0 {
			continue
		}
		cs, err := lengthCoefficients(name, g.Groups[name])
		if err != nil {
			return nil, err
		}
		out = append(out, cs...)
		for _, trace := range traces {
			share, ok := g.Groups[name].FirstWorker[trace]
			if !ok {
				continue
			}
			out = append(out, groupCoefficient{Param{"groups." + name + ".first_worker." + trace, share, 0.02, 0.98},
				func(g *validate.Groups, x float64) { g.Groups[name].FirstWorker[trace] = x }})
		}
	}
	return out, nil
}

// lengthCoefficients are the mean and the shape of the outputs of a group that
// states them, unless the mean is known.
func lengthCoefficients(name string, gr validate.Group) ([]groupCoefficient, error) {
	values, ok := specValues(gr.Lengths)
	if !ok {
		return nil, nil
	}
	var out []groupCoefficient
	for _, key := range []string{"output_mean", "output_sigma"} {
		start, ok := values[key]
		if !ok || key == "output_mean" && gr.MeanKnown {
			continue
		}
		out = append(out, groupCoefficient{Param{"groups." + name + "." + key, start, start / 2, start * 2},
			func(g *validate.Groups, x float64) {
				gr := g.Groups[name]
				gr.Lengths = setSpec(gr.Lengths, key, x)
				g.Groups[name] = gr
			}})
	}
	return out, nil
}

// specValues reads the numbers of a spec measured:key=value,...
func specValues(spec string) (map[string]float64, bool) {
	args, ok := strings.CutPrefix(spec, "measured:")
	if !ok {
		return nil, false
	}
	values := map[string]float64{}
	for part := range strings.SplitSeq(args, ",") {
		key, text, _ := strings.Cut(part, "=")
		if x, err := strconv.ParseFloat(text, 64); err == nil {
			values[key] = x
		}
	}
	return values, true
}

// setSpec changes one number of such a spec.
func setSpec(spec, key string, x float64) string {
	args := strings.Split(strings.TrimPrefix(spec, "measured:"), ",")
	for i, part := range args {
		if k, _, _ := strings.Cut(part, "="); k == key {
			args[i] = fmt.Sprintf("%s=%.5g", key, x)
		}
	}
	return "measured:" + strings.Join(args, ",")
}

// CrossValidate fits folds times, each time without one part of the runs for
// calibration, and returns the predictions of the parts left out. Run i is in
// part i modulo folds.
func CrossValidate(ctx context.Context, runs []validate.Run, hists validate.Histograms, o RunsOptions, folds int) ([]validate.Row, error) {
	var use []validate.Run
	for _, r := range runs {
		if r.Use != validate.Validation {
			use = append(use, r)
		}
	}
	if folds < 2 || folds > len(use) {
		return nil, fmt.Errorf("%d folds of %d runs, expected 2 to as many as there are runs", folds, len(use))
	}
	var out []validate.Row
	for fold := range folds {
		var in, left []validate.Run
		for i, r := range use {
			if i%folds == fold {
				left = append(left, r)
			} else {
				in = append(in, r)
			}
		}
		f, err := Runs(ctx, in, hists, o)
		if err != nil {
			return nil, fmt.Errorf("fold %d: %w", fold+1, err)
		}
		ps, err := validate.Simulate(ctx, left, hists, validate.Options{Profile: f.Profile, Groups: f.Groups, Seeds: o.Seeds, FirstSeed: o.FirstSeed})
		if err != nil {
			return nil, err
		}
		out = append(out, ps...)
	}
	return out, nil
}
