package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/sim/profile"
)

const (
	kitHead = "gpu,engine,version,model,layers,phase,mode,tokens,adapters,split,rank,slots,variant,base_us,both_us," +
		"lora_us,lora_alone_us,lora_ms_step,base_ms_step,ratio,adapter_bytes_layer,spread_us,copies,rounds,seconds\n"
	loadsHead = "gpu,stage,method,source,model,rank,slot_rank,bytes,tensors,wall_ms,wall_min_ms,enqueue_ms,gpu_ms," +
		"gb_per_s,repeats\n"
)

// kitFolder writes a folder of the kit: kernels of the law
//
//	0.9 ms + 6 us * ranks + 30 ns * ranks of the tokens
//
// or of backend csgmv, 12 us * rank, and loads of 3 ms + bytes / 20 GB/s and 40 ms + bytes / 2 GB/s. Times have 3 %
// noise.
func kitFolder(t *testing.T, engine string) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return math.Exp(0.03 * rng.NormFloat64()) }
	var kernels, loads strings.Builder
	kernels.WriteString(kitHead)
	row := func(phase, mode string, tokens, adapters, rank, slots int, variant string, ms float64) {
		us := ms / 32 * 1000
		fmt.Fprintf(&kernels, "NVIDIA H100,%s,0.33.0,llama-3.1-8b,32,%s,%s,%d,%d,equal,%d,%d,%s,100,%.3f,%.3f,%.3f,%.5f,"+
			"3.2,%.4f,1000,0.5,4,10,0.1\n", engine, phase, mode, tokens, adapters, rank, slots, variant, 100+us, us,
			us, ms, us/100)
	}
	for _, rank := range []int{8, 16, 64} {
		for _, tokens := range []int{1, 8, 64, 256, 2048} {
			for _, adapters := range []int{1, 4, 16} {
				if adapters > tokens {
					continue
				}
				phase := "decode"
				if tokens > 1000 {
					phase = "prefill"
				}
				ms := 0.9 + 0.006*float64(adapters*rank) + 30e-6*float64(tokens*rank)
				if engine == "sglang-csgmv" {
					ms = 0.012 * float64(rank)
				}
				row(phase, "graph", tokens, adapters, rank, adapters, "", ms*noise())
				row(phase, "eager", tokens, adapters, rank, adapters, "", 50)
				row(phase, "graph", tokens, adapters, rank, 64, "", 70)
			}
		}
	}
	row("decode", "graph", 8, 4, 16, 4, "specialize", 90)
	row("decode", "graph", 8, 4, 16, 4, "", 0.0001) // below its spread
	kernels.WriteString("NVIDIA H100,vllm,0.33.0,llama-3.1-8b,32,decode,graph,8,4,equal,16,4,,nan,nan,nan,nan,nan,nan,nan,1,nan,4,1,1\n")
	loads.WriteString(loadsHead)
	for _, rank := range []int{16, 32, 64} {
		bytes := 5.24e6 * float64(rank)
		for _, method := range []string{"vllm,pinned", "sglang-pin-each,pageable"} {
			fmt.Fprintf(&loads, "NVIDIA H100,host_to_gpu,%s,llama-3.1-8b,%d,%d,%.0f,448,%.4f,1,1,1,1,5\n", method, rank,
				rank, bytes, (3+bytes/20e6)*noise())
		}
		for _, method := range []string{"safetensors-pin", "safetensors"} {
			fmt.Fprintf(&loads, "NVIDIA H100,disk_to_host,%s,cold,llama-3.1-8b,%d,%d,%.0f,448,%.4f,1,,,1,5\n", method,
				rank, rank, bytes, (40+bytes/2e6)*noise())
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"kernels.csv": kernels.String(), "loads.csv": loads.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The planted coefficients come back from the files of the kit; rows without CUDA graphs, of other variants, with
// spare slots, and below their spread do not count.
func TestKitRecovers(t *testing.T) {
	start, err := profile.Load(t.Context(), "analytic:llama-3.1-8b,h100")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ReadKit(t.Context(), kitFolder(t, "vllm"))
	if err != nil {
		t.Fatal(err)
	}
	fit, err := k.Fit("vllm", start)
	if err != nil {
		t.Fatal(err)
	}
	l, a := &fit.Profile.Latency.LoRA, &fit.Profile.Adapters
	testutil.Near(t, "launch_ms", l.LaunchMs, 0.9, 0.03)
	testutil.Near(t, "rank_us", l.RankUs, 6, 0.2)
	testutil.Near(t, "token_rank_ns", l.TokenRankNs, 30, 1)
	testutil.Near(t, "host_to_gpu ms", a.HostToGPU.LatencyMs, 3, 0.5)
	testutil.Near(t, "host_to_gpu GB/s", a.HostToGPU.GBPerS, 20, 1)
	testutil.Near(t, "disk_to_host ms", a.DiskToHost.LatencyMs, 40, 6)
	testutil.Near(t, "disk_to_host GB/s", a.DiskToHost.GBPerS, 2, 0.1)
	for _, e := range fit.Params {
		if !(e.RelStd > 0 && e.RelStd < 0.2) {
			t.Errorf("%s: standard error %v", e.Name, e.RelStd)
		}
	}
	if fit.Errors.MedianAbsError > 0.05 || len(fit.Profile.Validation) != 2 || !fit.Profile.Uncalibrated ||
		l.Backend != profile.BackendRoofline ||
		!strings.Contains(strings.Join(fit.Notes, " "), "1 timings are less than") {
		t.Errorf("errors %+v, validation %+v, notes %q", fit.Errors, fit.Profile.Validation, fit.Notes)
	}
	if k, err = ReadKit(t.Context(), kitFolder(t, "sglang-csgmv")); err != nil {
		t.Fatal(err)
	}
	if fit, err = k.Fit("sglang-csgmv", start); err != nil {
		t.Fatal(err)
	}
	l = &fit.Profile.Latency.LoRA
	testutil.Near(t, "csgmv_us", l.CSGMVUs, 12, 0.4)
	if l.Backend != profile.BackendCSGMV || l.PrefillFactor == 0 {
		t.Errorf("%+v", l)
	}
}

func TestKitFaults(t *testing.T) {
	start, err := profile.Load(t.Context(), "analytic:qwen3-14b,h100")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ReadKit(t.Context(), kitFolder(t, "vllm"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Fit("vllm", start)
	testutil.ExpectError(t, err, `0 timings of vllm for model "qwen3-14b" of the start`)
	testutil.ExpectError(t, err, "the file has the models llama-3.1-8b")
	_, err = k.Fit("vlm", start)
	testutil.ExpectError(t, err, "did you mean")
	adapters, err := profile.Embedded("llama-3.1-8b-h100-64gb-vllm-0.8.5")
	if err != nil {
		t.Fatal(err)
	}
	_, err = k.Fit("vllm", adapters)
	testutil.ExpectError(t, err, "has law adapters, expected roofline or phases")
	_, err = ReadKit(t.Context(), t.TempDir())
	testutil.ExpectError(t, err, "kernels.csv")
	for text, want := range map[string]string{
		kitHead: "no rows",
		kitHead + "g,vllm,1,m,32,train,graph,1,1,equal,8,1,,1,1,1,1,1,1,1,1,1,1,1,1\n":  `expected prefill or decode`,
		kitHead + "g,vllm,1,m,32,decode,graph,0,1,equal,8,1,,1,1,1,1,1,1,1,1,1,1,1,1\n": "tokens",
	} {
		_, err := readKitKernels(strings.NewReader(text), "k.csv")
		testutil.ExpectError(t, err, want)
	}
}

// The readers of the kit's files return errors, and rows that a fit can use.
func FuzzReadKit(f *testing.F) {
	f.Add(kitHead+"g,vllm,1,m,32,decode,graph,1,1,equal,8,1,,1,1,1,1,1,1,1,1,1,1,1,1\n",
		loadsHead+"g,host_to_gpu,vllm,pinned,m,8,8,100,4,1,1,1,1,1,5\n")
	f.Add(kitHead+"g,vllm,1,m,32,decode,graph,1,1,equal,8,1,,nan,nan,nan,nan,nan,nan,nan,1,nan,1,1,1\n", loadsHead)
	f.Fuzz(func(t *testing.T, kernels, loads string) {
		ks, err := readKitKernels(strings.NewReader(kernels), "kernels.csv")
		for _, k := range ks {
			if err == nil && (k.Tokens < 1 || k.Adapters < 1 || k.Rank < 1 || k.Slots < 1 || math.IsNaN(k.Ms) ||
				!k.Noise && math.IsInf(k.Ms, 0)) {
				t.Errorf("%+v", k)
			}
		}
		ls, err := readKitLoads(strings.NewReader(loads), "loads.csv")
		for _, l := range ls {
			if err == nil && (!(l.Bytes > 0) || !(l.Ms > 0) || l.Rank < 1) {
				t.Errorf("%+v", l)
			}
		}
	})
}
