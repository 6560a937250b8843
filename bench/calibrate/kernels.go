package calibrate

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/gonum/mat"

	"lorasim/bench/validate"
	"lorasim/internal/suggest"
	"lorasim/sim/profile"
)

// Kernel is one timing of a decode step with adapters, without attention.
type Kernel struct {
	Backend string
	Batch   int     // requests
	MaxRank int     // largest rank among them
	Ms      float64 // median
}

// ReadKernels reads a table of kernel timings: CSV with the columns backend,
// batch_size, max_rank and median_ms. name is the file's name for errors.
func ReadKernels(in io.Reader, name string) ([]Kernel, error) {
	c := csv.NewReader(in)
	c.ReuseRecord = true
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: empty, expected a header line", name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	names := []string{"backend", "batch_size", "max_rank", "median_ms"}
	var at [4]int
	for i, n := range names {
		if at[i] = slices.Index(header, n); at[i] < 0 {
			return nil, fmt.Errorf("%s:1: no column %q", name, n)
		}
	}
	var ks []Kernel
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var v [4]float64
		for i := 1; i < 4; i++ {
			v[i], err = strconv.ParseFloat(row[at[i]], 64)
			whole := i == 3 || v[i] == math.Trunc(v[i])
			if err != nil || !(v[i] > 0) || v[i] > 1e9 || !whole {
				line, _ := c.FieldPos(at[i])
				return nil, fmt.Errorf("%s:%d: %s: %q, expected a number > 0", name, line, names[i], row[at[i]])
			}
		}
		ks = append(ks, Kernel{row[at[0]], int(v[1]), int(v[2]), v[3]})
	}
	if len(ks) == 0 {
		return nil, fmt.Errorf("%s: no timings", name)
	}
	return ks, nil
}

// KernelFit is what timings of one backend say: a step takes
// Fixed + PerRequest*B + LoRA*f(B, r), f = r for csgmv, B*r for triton.
type KernelFit struct {
	Backend                          string
	FixedMs, PerRequestMs, LoRAUs    float64
	FixedStd, PerRequestStd, LoRAStd float64 // standard errors
	Timings                          int
	// Errors are those of timings left out of the fit, a fifth at a time.
	Errors validate.Summary

	perRequest *float64 // where it is held, ms
}

// Kernels fits the LoRA term of a profile to the timings of one backend by
// least squares. Only the LoRA term and the cost of a request go into the
// profile: the fixed part of a kernel benchmark is not that of a server.
func Kernels(ks []Kernel, backend string, start *profile.Profile) (*profile.Profile, *KernelFit, error) {
	if backend != profile.BackendCSGMV && backend != profile.BackendTriton {
		return nil, nil, suggest.Unknown("backend", backend, []string{profile.BackendCSGMV, profile.BackendTriton})
	}
	ks = medians(slices.DeleteFunc(slices.Clone(ks), func(k Kernel) bool { return k.Backend != backend }))
	if len(ks) < 10 {
		return nil, nil, fmt.Errorf("%d timings of backend %s, expected at least 10", len(ks), backend)
	}
	f := &KernelFit{Backend: backend, Timings: len(ks)}
	l := &start.Latency
	if l.LoRA.Backend != backend && l.LoRA.Backend != profile.BackendNone {
		// a second backend of the same server: requests cost what they cost already
		f.perRequest = &l.Decode.PerRequestMs
	}
	x, std, err := f.leastSquares(ks)
	if err != nil {
		return nil, nil, err
	}
	f.FixedMs, f.PerRequestMs, f.LoRAUs = x[0], x[1], x[2]*1000
	f.FixedStd, f.PerRequestStd, f.LoRAStd = std[0], std[1], std[2]*1000
	var errs []float64
	const folds = 5
	for fold := range folds {
		var in, left []Kernel
		for i, k := range ks {
			if i%folds == fold {
				left = append(left, k)
			} else {
				in = append(in, k)
			}
		}
		x, _, err := f.leastSquares(in)
		if err != nil {
			return nil, nil, err
		}
		for _, k := range left {
			t := k.terms()
			errs = append(errs, (x[0]*t[0]+x[1]*t[1]+x[2]*t[2])/k.Ms-1)
		}
	}
	f.Errors = validate.Summarize(errs)
	p := *start
	if backend == profile.BackendCSGMV {
		p.Latency.LoRA.CSGMVUs = max(f.LoRAUs, 0)
	} else {
		p.Latency.LoRA.TritonUs = max(f.LoRAUs, 0)
	}
	if f.perRequest == nil {
		p.Latency.LoRA.Backend, p.Latency.Decode.PerRequestMs = backend, max(f.PerRequestMs, 0)
	}
	return &p, f, nil
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
func medians(ks []Kernel) []Kernel {
	slices.SortStableFunc(ks, func(a, b Kernel) int {
		return cmp.Or(cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.MaxRank, b.MaxRank), cmp.Compare(a.Ms, b.Ms))
	})
	var out []Kernel
	for i := 0; i < len(ks); {
		j := i
		for j < len(ks) && ks[j].Batch == ks[i].Batch && ks[j].MaxRank == ks[i].MaxRank {
			j++
		}
		k := ks[i]
		k.Ms = (ks[(i+j-1)/2].Ms + ks[(i+j)/2].Ms) / 2
		out = append(out, k)
		i = j
	}
	return out
}

// leastSquares solves for the coefficients that are not held.
func (f *KernelFit) leastSquares(ks []Kernel) (x, std [3]float64, err error) {
	free := []int{0, 1, 2}
	if f.perRequest != nil {
		free = []int{0, 2}
		x[1] = *f.perRequest
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
	if err := solution.SolveVec(a, b); err != nil {
		return x, std, fmt.Errorf("the timings do not tell batch and rank apart: %w", err)
	}
	var residual, normal, inverse mat.Dense
	residual.Mul(a, &solution)
	residual.Sub(b, &residual)
	variance := math.Pow(mat.Norm(&residual, 2), 2) / float64(max(len(ks)-len(free), 1))
	normal.Mul(a.T(), a)
	if err := inverse.Inverse(&normal); err != nil {
		return x, std, fmt.Errorf("the timings do not tell batch and rank apart: %w", err)
	}
	for j, c := range free {
		x[c], std[c] = solution.AtVec(j), math.Sqrt(variance*inverse.At(j, j))
	}
	return x, std, nil
}
