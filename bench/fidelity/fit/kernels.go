package fit

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/sim/profile"
)

// Kernel is one timing of a decode step with adapters, without attention.
type Kernel struct {
	Backend string  // LoRA backend: csgmv or triton
	Batch   int     // number of requests
	MaxRank int     // largest rank in the batch
	Ms      float64 // median, ms
}

// ReadKernels reads a table of kernel timings: CSV with the columns backend, batch_size, max_rank
// and median_ms. name is the name of the file in errors.
func ReadKernels(in io.Reader, name string) (ks []Kernel, err error) {
	err = table.ReadCSV(in, name, []string{"backend", "batch_size", "max_rank", "median_ms"}, func(r *table.CSVRow) {
		ks = append(ks, Kernel{
			r.Text("backend"), r.Count("batch_size", 1, 1e9), r.Count("max_rank", 1, 1e9), r.Positive("median_ms"),
		})
	})
	return ks, err
}

// Kernels fits the LoRA term of a profile to the timings of one backend by least squares. A step
// takes fixed + per_request*B + lora*f(B, r), with f = r for csgmv and f = B*r for triton. Only the
// LoRA term and the cost of a request go into the profile: the fixed part of a kernel benchmark is
// not that of a server. The errors are on held-out timings, a fifth at a time.
func Kernels(ks []Kernel, backend string, start *profile.Profile) (*Result, error) {
	if backend != profile.BackendCSGMV && backend != profile.BackendTriton {
		return nil, suggest.Unknown("backend", backend, []string{profile.BackendCSGMV, profile.BackendTriton})
	}
	ks = medians(slices.DeleteFunc(slices.Clone(ks), func(k Kernel) bool { return k.Backend != backend }))
	if len(ks) < 10 {
		return nil, fmt.Errorf("%d timings of backend %s, expected at least 10", len(ks), backend)
	}
	f := &Result{Profile: model{profile: start}.clone().profile}
	l := &f.Profile.Latency
	term := &l.LoRA.CSGMVUs
	if backend == profile.BackendTriton {
		term = &l.LoRA.TritonUs
	}
	perRequest := math.NaN() // to be fitted
	if b := l.LoRA.Backend; b != backend && b != profile.BackendNone {
		perRequest = l.Decode.PerRequestMs // fitted already with the server's first backend
	}
	x, std, err := fitKernels(ks, perRequest)
	if err != nil {
		return nil, err
	}
	estimate := func(name string, start, x, std float64) {
		f.Params = append(f.Params, Estimate{
			Param: Param{Name: name, Start: start}, Value: x, RelStd: math.Abs(std / x),
		})
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
	const step measured.Metric = "decode step without attention"
	f.Profile.Validation = check.Summary{step: stats.SummarizeErrors(unseen)}.Validation([]measured.Metric{step},
		"kernel timings, five folds")
	*term = max(1000*x[2], 0)
	if f.Params[1].Held = !math.IsNaN(perRequest); !f.Params[1].Held {
		l.LoRA.Backend, l.Decode.PerRequestMs = backend, max(x[1], 0)
	}
	return f.describe(start, "%d kernel timings of %s", len(ks), backend)
}

// terms returns the factors of the three coefficients.
func (k Kernel) terms() [3]float64 {
	x := float64(k.MaxRank)
	if k.Backend == profile.BackendTriton {
		x *= float64(k.Batch)
	}
	return [3]float64{1, float64(k.Batch), x}
}

// medians replaces all timings of the same batch and rank by their median: the disturbance of
// single timings can be as large as the cost of the adapters.
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

// fitKernels solves for the coefficients by least squares. It holds the cost of a request unless
// perRequest is NaN.
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
		return x, std, fmt.Errorf("the timings do not separate the effects of batch size and rank: %w", err)
	}
	residual.Mul(a, &solution)
	residual.Sub(b, &residual)
	variance := math.Pow(mat.Norm(&residual, 2), 2) / float64(max(len(ks)-len(free), 1))
	for j, c := range free {
		x[c], std[c] = solution.AtVec(j), math.Sqrt(variance*inverse.At(j, j))
	}
	return x, std, nil
}
