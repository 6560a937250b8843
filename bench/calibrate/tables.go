package calibrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/mat"

	"lorasim/bench/stats"
	"lorasim/bench/validate"
	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/sim/profile"
)

// runCoefficients are the coefficients that a table of runs says something
// about. What one more running request and an adapter cost is better known from
// kernel timings.
var runCoefficients = []string{
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
	// Folds, where not 0, cross-validates the fit.
	Folds int
}

// predict predicts runs with a profile and groups.
func (o *RunsOptions) predict(ctx context.Context, runs []validate.Run, hists validate.Histograms, p *profile.Profile, g *validate.Groups) ([]validate.Row, error) {
	return validate.Simulate(ctx, runs, hists, validate.Options{Profile: p, Groups: g, Seeds: o.Seeds, FirstSeed: o.FirstSeed, NoLoad: true})
}

// forCalibration are the runs that may be fitted.
func forCalibration(runs []validate.Run) []validate.Run {
	return slices.DeleteFunc(slices.Clone(runs), func(r validate.Run) bool { return r.Use == validate.Validation })
}

// Runs fits a profile to the runs of a table that are for calibration, and holds it
// against those for validation.
func Runs(ctx context.Context, runs []validate.Run, hists validate.Histograms, o RunsOptions) (*Fit, error) {
	if o.Groups == nil {
		o.Groups = validate.DefaultGroups()
	}
	in := forCalibration(runs)
	fit, err := o.fitRuns(ctx, in, hists)
	if err != nil {
		return nil, err
	}
	p := fit.Profile
	if left := slices.DeleteFunc(slices.Clone(runs), func(r validate.Run) bool { return r.Use != validate.Validation }); len(left) > 0 {
		rows, err := validate.Simulate(ctx, left, hists, validate.Options{Profile: p, Groups: fit.Groups, Seeds: o.Seeds, FirstSeed: o.FirstSeed + 1000})
		if err != nil {
			return nil, err
		}
		r := validate.NewReport(rows)
		p.Validation, p.Intervals = r.Validation("runs for validation"), r.Intervals().One()
	}
	if o.Folds > 0 {
		rows, err := o.crossValidate(ctx, in, hists)
		if err != nil {
			return nil, err
		}
		p.Validation = append(p.Validation, validate.NewReport(rows).Validation(fmt.Sprintf("runs left out, %d folds", o.Folds))...)
	}
	return fit.describe(o.Start, "%d measured runs", len(in))
}

// fitRuns fits a profile to runs.
func (o *RunsOptions) fitRuns(ctx context.Context, runs []validate.Run, hists validate.Histograms) (*Fit, error) {
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
	// The weights are the noise of the measurement and how much the metric depends
	// on the draw of the lengths, which is what makes runs near saturation hard to
	// predict. The latter is taken from the first prediction, so that the fit cannot
	// buy itself noise. Runs with lengths that are not known are no reason to leave a
	// profile far behind: hence the narrow prior.
	_, fit, err := o.fit(ctx, model{profile: o.Start, groups: o.Groups}, knobs, 0.3, func(ctx context.Context, m *model) (r []float64, err error) {
		rows, err := o.predict(ctx, runs, hists, m.profile, m.groups)
		for i, row := range rows {
			for _, metric := range validate.Metrics {
				if measured, ok := row.Measured[metric]; ok && row.Predicted != nil {
					r = append(r, logError(measured, row.Predicted[metric])/math.Hypot(runNoise[metric], first[i].Spread[metric]))
				}
			}
		}
		return r, err
	})
	return fit, err
}

// groupKnobs are the numbers of the groups that the runs belong to.
func groupKnobs(g *validate.Groups, runs []validate.Run) (out []knob) {
	for _, name := range slices.Sorted(maps.Keys(g.Groups)) {
		group := g.Groups[name]
		of := slices.DeleteFunc(slices.Clone(runs), func(r validate.Run) bool { return r.Group != name })
		traces, _ := stats.GroupBy(of, func(r *validate.Run) string { return r.Trace })
		for _, key := range []string{"output_mean", "output_sigma"} {
			pattern := regexp.MustCompile(`\b` + key + `=([^,]*)`)
			found := pattern.FindStringSubmatch(group.Lengths)
			if len(traces) == 0 || found == nil || !strings.HasPrefix(group.Lengths, "measured:") || key == "output_mean" && group.MeanKnown {
				continue
			}
			start, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				continue
			}
			out = append(out, knob{Param{"groups." + name + "." + key, start, start / 2, start * 2}, func(m *model, x float64) {
				gr := m.groups.Groups[name]
				gr.Lengths = pattern.ReplaceAllString(gr.Lengths, fmt.Sprintf("%s=%.5g", key, x))
				m.groups.Groups[name] = gr
			}})
		}
		for _, trace := range traces {
			if share, ok := group.FirstWorker[trace]; ok {
				out = append(out, knob{Param{"groups." + name + ".first_worker." + trace, share, 0.02, 0.98},
					func(m *model, x float64) { m.groups.Groups[name].FirstWorker[trace] = x }})
			}
		}
	}
	return out
}

// folded calls f for each part of a cross-validation with what is in the fit and
// what is left out: element i is in part i modulo folds.
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
func (o *RunsOptions) crossValidate(ctx context.Context, runs []validate.Run, hists validate.Histograms) (out []validate.Row, err error) {
	if o.Folds < 2 || o.Folds > len(runs) {
		return nil, fmt.Errorf("%d folds of %d runs, expected 2 to as many as there are runs", o.Folds, len(runs))
	}
	err = folded(runs, o.Folds, func(in, left []validate.Run) error {
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

// Kernel is one timing of a decode step with adapters, without attention.
type Kernel struct {
	Backend string
	Batch   int     // requests
	MaxRank int     // largest rank among them
	Ms      float64 // median
}

// ReadKernels reads a table of kernel timings: CSV with the columns backend,
// batch_size, max_rank and median_ms.
func ReadKernels(in io.Reader, name string) (ks []Kernel, err error) {
	err = table.ReadCSV(in, name, []string{"backend", "batch_size", "max_rank", "median_ms"}, func(r *table.CSVRow) {
		ks = append(ks, Kernel{r.Text("backend"), r.Count("batch_size", 1, 1e9), r.Count("max_rank", 1, 1e9), r.Positive("median_ms")})
	})
	return ks, err
}

// Kernels fits the LoRA term of a profile to the timings of one backend by least
// squares: a step takes fixed + per_request*B + lora*f(B, r), f = r for csgmv, B*r
// for triton. Only the LoRA term and the cost of a request go into the profile: the
// fixed part of a kernel benchmark is not that of a server. Its errors are those of
// timings left out of the fit, a fifth at a time.
func Kernels(ks []Kernel, backend string, start *profile.Profile) (*Fit, error) {
	if backend != profile.BackendCSGMV && backend != profile.BackendTriton {
		return nil, suggest.Unknown("backend", backend, []string{profile.BackendCSGMV, profile.BackendTriton})
	}
	ks = medians(slices.DeleteFunc(slices.Clone(ks), func(k Kernel) bool { return k.Backend != backend }))
	if len(ks) < 10 {
		return nil, fmt.Errorf("%d timings of backend %s, expected at least 10", len(ks), backend)
	}
	f := &Fit{Profile: model{profile: start}.clone().profile}
	l := &f.Profile.Latency
	term := &l.LoRA.CSGMVUs
	if backend == profile.BackendTriton {
		term = &l.LoRA.TritonUs
	}
	perRequest := math.NaN() // to be fitted
	if b := l.LoRA.Backend; b != backend && b != profile.BackendNone && b != profile.BackendRoofline {
		perRequest = l.Decode.PerRequestMs // a second backend of the same server: requests cost what they cost already
	}
	x, std, err := fitKernels(ks, perRequest)
	if err != nil {
		return nil, err
	}
	estimate := func(name string, start, x, std float64) {
		f.Params = append(f.Params, Estimate{Param: Param{Name: name, Start: start}, Value: x, RelStd: math.Abs(std / x)})
	}
	estimate("fixed part, ms (not used)", 0, x[0], std[0])
	estimate("decode.per_request_ms", l.Decode.PerRequestMs, x[1], std[1])
	estimate("lora."+backend+"_us", *term, 1000*x[2], 1000*std[2])
	off := func(x [3]float64, k Kernel) float64 {
		t := k.terms()
		return (x[0]*t[0]+x[1]*t[1]+x[2]*t[2])/k.Ms - 1
	}
	var all, unseen []float64
	for _, k := range ks {
		all = append(all, off(x, k))
	}
	if err := folded(ks, 5, func(in, left []Kernel) error {
		x, _, err := fitKernels(in, perRequest)
		for _, k := range left {
			unseen = append(unseen, off(x, k))
		}
		return err
	}); err != nil {
		return nil, err
	}
	f.Errors = stats.SummarizeErrors(all)
	const step = "decode step without attention"
	f.Profile.Validation = validate.ValidationOf(stats.SummarizeErrorsBy(map[validate.Metric][]float64{step: unseen}), []validate.Metric{step}, "kernel timings, five folds")
	*term = max(1000*x[2], 0)
	if f.Params[1].Held = !math.IsNaN(perRequest); !f.Params[1].Held {
		l.LoRA.Backend, l.Decode.PerRequestMs = backend, max(x[1], 0)
	}
	return f.describe(start, "%d kernel timings of %s", len(ks), backend)
}

// terms are the factors of the three coefficients.
func (k Kernel) terms() [3]float64 {
	x := float64(k.MaxRank)
	if k.Backend == profile.BackendTriton {
		x *= float64(k.Batch)
	}
	return [3]float64{1, float64(k.Batch), x}
}

// medians puts one timing in the place of all of the same batch and rank: some
// are disturbed by as much as the adapters cost.
func medians(ks []Kernel) (out []Kernel) {
	slices.SortStableFunc(ks, func(a, b Kernel) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.MaxRank, b.MaxRank), cmp.Compare(a.Ms, b.Ms))
	})
	keys, groups := stats.GroupBy(ks, func(k *Kernel) [2]int { return [2]int{k.Batch, k.MaxRank} })
	for _, key := range keys {
		g := groups[key]
		k := g[0]
		k.Ms = (g[(len(g)-1)/2].Ms + g[len(g)/2].Ms) / 2
		out = append(out, k)
	}
	return out
}

// fitKernels solves for the coefficients by least squares; that of a request is
// held unless perRequest is NaN.
func fitKernels(ks []Kernel, perRequest float64) (x, std [3]float64, err error) {
	free := []int{0, 1, 2}
	if !math.IsNaN(perRequest) {
		free = []int{0, 2}
		x[1] = perRequest
	}
	a, b := mat.NewDense(len(ks), len(free), nil), mat.NewVecDense(len(ks), nil)
	for i, k := range ks {
		t := k.terms()
		for j, c := range free {
			a.Set(i, j, t[c])
		}
		b.SetVec(i, k.Ms-x[1]*t[1])
	}
	var solution mat.VecDense
	var residual, normal, inverse mat.Dense
	normal.Mul(a.T(), a)
	if err := cmp.Or(solution.SolveVec(a, b), inverse.Inverse(&normal)); err != nil {
		return x, std, fmt.Errorf("the timings do not tell batch and rank apart: %w", err)
	}
	residual.Mul(a, &solution)
	residual.Sub(b, &residual)
	variance := math.Pow(mat.Norm(&residual, 2), 2) / float64(max(len(ks)-len(free), 1))
	for j, c := range free {
		x[c], std[c] = solution.AtVec(j), math.Sqrt(variance*inverse.At(j, j))
	}
	return x, std, nil
}
