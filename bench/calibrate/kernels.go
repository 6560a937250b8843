package calibrate

import (
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
// Fixed + PerRequest*B + LoRA*f(B, r), f = sqrt(B*r) for csgmv, B*r for triton.
type KernelFit struct {
	Backend                          string
	FixedMs, PerRequestMs, LoRAUs    float64
	FixedStd, PerRequestStd, LoRAStd float64 // standard errors
	Timings                          int
	// Errors are those of timings left out of the fit, a fifth at a time.
	Errors validate.Summary
}

// Kernels fits the LoRA term of a profile to the timings of one backend by
// least squares. Only the LoRA term and the cost of a request go into the
// profile: the fixed part of a kernel benchmark is not that of a server.
func Kernels(ks []Kernel, backend string, start *profile.Profile) (*profile.Profile, *KernelFit, error) {
	if backend != profile.BackendCSGMV && backend != profile.BackendTriton {
		return nil, nil, suggest.Unknown("backend", backend, []string{profile.BackendCSGMV, profile.BackendTriton})
	}
	ks = slices.DeleteFunc(slices.Clone(ks), func(k Kernel) bool { return k.Backend != backend })
	if len(ks) < 10 {
		return nil, nil, fmt.Errorf("%d timings of backend %s, expected at least 10", len(ks), backend)
	}
	f := &KernelFit{Backend: backend, Timings: len(ks)}
	x, std, err := leastSquares(ks)
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
		x, _, err := leastSquares(in)
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
	p.Latency.LoRA.Backend, p.Latency.LoRA.DecodeUs = backend, max(f.LoRAUs, 0)
	p.Latency.Decode.PerRequestMs = max(f.PerRequestMs, 0)
	return &p, f, nil
}

// terms are the factors of the three coefficients.
func (k Kernel) terms() [3]float64 {
	br := float64(k.Batch) * float64(k.MaxRank)
	if k.Backend == profile.BackendCSGMV {
		br = math.Sqrt(br)
	}
	return [3]float64{1, float64(k.Batch), br}
}

func leastSquares(ks []Kernel) (x, std [3]float64, err error) {
	a, b := mat.NewDense(len(ks), 3, nil), mat.NewVecDense(len(ks), nil)
	for i, k := range ks {
		t := k.terms()
		a.SetRow(i, t[:])
		b.SetVec(i, k.Ms)
	}
	var solution mat.VecDense
	if err := solution.SolveVec(a, b); err != nil {
		return x, std, fmt.Errorf("the timings do not tell batch and rank apart: %w", err)
	}
	var residual, normal, inverse mat.Dense
	residual.Mul(a, &solution)
	residual.Sub(b, &residual)
	variance := math.Pow(mat.Norm(&residual, 2), 2) / float64(max(len(ks)-3, 1))
	normal.Mul(a.T(), a)
	if err := inverse.Inverse(&normal); err != nil {
		return x, std, fmt.Errorf("the timings do not tell batch and rank apart: %w", err)
	}
	for i := range x {
		x[i], std[i] = solution.AtVec(i), math.Sqrt(variance*inverse.At(i, i))
	}
	return x, std, nil
}
