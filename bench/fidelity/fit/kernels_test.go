package fit

import (
	"math"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/textfile"
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
		f, err := Kernels(ks, backend, truth())
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []float64{17, 0.03, 2} {
			if got := f.Params[i]; math.Abs(got.Value-want) > 1e-6 || got.Held {
				t.Errorf("%s: %+v, expected %v", backend, got, want)
			}
		}
		l, v := f.Profile.Latency.LoRA, f.Profile.Validation
		if l.Backend != backend || l.CSGMVUs+l.TritonUs != f.Params[2].Value || len(v) != 1 ||
			v[0].MedianAbsError > 0.01 || f.Errors.MedianAbsError > 0.01 {
			t.Errorf("%s: profile %+v, errors %+v, unseen %+v", backend, l, f.Errors, v)
		}
	}
}

// The measured table: for triton an independent fit, to all timings and not to
// medians, gave 0.00233 ms for each request and rank.
func TestKernelsMeasured(t *testing.T) {
	ks, err := textfile.Read(t.Context(), shareddata.Path(t, "measured/lora_decode_kernels_rtx4090.csv"), ReadKernels)
	if err != nil {
		t.Fatal(err)
	}
	fit, err := Kernels(ks, profile.BackendTriton, truth())
	if err != nil {
		t.Fatal(err)
	}
	e := fit.Params[2]
	t.Logf("triton: %+v", e)
	if math.Abs(e.Value-2.33) > 3*e.RelStd*e.Value || fit.Profile.Validation[0].MedianAbsError > 0.05 {
		t.Errorf("%+v", *fit)
	}
	fit, err = Kernels(ks, profile.BackendCSGMV, truth())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("csgmv: %+v", fit.Params[2])
	if fit.Profile.Validation[0].MedianAbsError > 0.02 {
		t.Errorf("%+v", *fit)
	}
}

func TestReadKernelsNamesTheFault(t *testing.T) {
	head := "backend,batch_size,max_rank,median_ms\n"
	for name, c := range map[string]struct{ text, want string }{
		"empty":  {"", "t.csv: file is empty"},
		"column": {"backend,batch_size,max_rank\n", `no column "median_ms"`},
		"number": {head + "csgmv,4,8,17\ncsgmv,4,x,17\n", `t.csv:3: max_rank: "x"`},
		"whole":  {head + "csgmv,4.5,8,17\n", `t.csv:2: batch_size: "4.5"`},
		"none":   {head, "no rows"},
	} {
		if _, err := ReadKernels(strings.NewReader(c.text), "t.csv"); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
	if _, err := Kernels(nil, "csgmw", truth()); err == nil || !strings.Contains(err.Error(), "did you mean") {
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
