package calibrate

import (
	"math"
	"strings"
	"testing"

	"lorasim/bench/validate"
	"lorasim/internal/shareddata"
	"lorasim/sim/profile"
)

// Timings made from known coefficients, with a known disturbance of mean 0.
func TestKernelsRecover(t *testing.T) {
	for _, backend := range []string{profile.BackendCSGMV, profile.BackendTriton} {
		var ks []Kernel
		for _, b := range []int{1, 4, 8, 16, 32} {
			for _, r := range []int{8, 16, 32, 64} {
				k := Kernel{Backend: backend, Batch: b, MaxRank: r}
				x := k.terms()
				k.Ms = 17 + 0.03*x[1] + 0.002*x[2]
				up, down := k, k
				up.Ms += 0.05
				down.Ms -= 0.05
				ks = append(ks, up, down)
			}
		}
		start := profile.Default()
		p, f, err := Kernels(ks, backend, &start)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(f.LoRAUs-2) > 1e-6 || math.Abs(f.PerRequestMs-0.03) > 1e-9 || math.Abs(f.FixedMs-17) > 1e-6 {
			t.Errorf("%s: %v us, %v ms, %v ms, expected 2, 0.03, 17", backend, f.LoRAUs, f.PerRequestMs, f.FixedMs)
		}
		if p.Latency.LoRA.Backend != backend || p.Latency.LoRA.CSGMVUs+p.Latency.LoRA.TritonUs != f.LoRAUs || f.Errors.MedianAbsError > 0.01 {
			t.Errorf("%s: profile %+v, errors %+v", backend, p.Latency.LoRA, f.Errors)
		}
	}
}

// The measured table: for triton an independent fit, to all timings and not to
// medians, gave 0.00233 ms for each request and rank.
func TestKernelsMeasured(t *testing.T) {
	ks, err := validate.FromFile(shareddata.Path(t, "measured/lora_decode_kernels_rtx4090.csv"), ReadKernels)
	if err != nil {
		t.Fatal(err)
	}
	start := profile.Default()
	_, fit, err := Kernels(ks, profile.BackendTriton, &start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("triton: %+v", *fit)
	if math.Abs(fit.LoRAUs-2.33) > 3*fit.LoRAStd || fit.Errors.MedianAbsError > 0.05 {
		t.Errorf("%+v", *fit)
	}
	_, fit, err = Kernels(ks, profile.BackendCSGMV, &start)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("csgmv: %+v", *fit)
	if fit.Errors.MedianAbsError > 0.02 {
		t.Errorf("%+v", *fit)
	}
}

func TestReadKernelsNamesTheFault(t *testing.T) {
	head := "backend,batch_size,max_rank,median_ms\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":  {"", "t.csv: empty"},
		"column": {"backend,batch_size,max_rank\n", `no column "median_ms"`},
		"number": {head + "csgmv,4,8,17\ncsgmv,4,x,17\n", `t.csv:3: max_rank: "x"`},
		"whole":  {head + "csgmv,4.5,8,17\n", `t.csv:2: batch_size: "4.5"`},
		"none":   {head, "no rows"},
	} {
		if _, err := ReadKernels(strings.NewReader(c.text), "t.csv"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	start := profile.Default()
	if _, _, err := Kernels(nil, "csgmw", &start); err == nil || !strings.Contains(err.Error(), "did you mean") {
		t.Errorf("unknown backend: %v", err)
	}
}

func FuzzReadKernels(f *testing.F) {
	f.Add("backend,batch_size,max_rank,median_ms\ncsgmv,4,8,17\n")
	f.Fuzz(func(t *testing.T, s string) {
		ks, err := ReadKernels(strings.NewReader(s), "fuzz")
		for _, k := range ks {
			if err == nil && (k.Batch < 1 || k.MaxRank < 1 || !(k.Ms > 0)) {
				t.Errorf("accepted %+v", k)
			}
		}
	})
}
