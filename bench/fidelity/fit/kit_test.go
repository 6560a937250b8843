package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
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

// planted are the planted coefficients of kernels at rank 16, us of all layers, in the order of KernelTimes: those of
// rank 64 are four times that.
var planted = [5]float64{3000, 400, 150, 20, 30}

// kitFolder writes a folder of the kit: kernels with the planted coefficients, and loads of 3 ms + bytes / 20 GB/s and
// 40 ms + bytes / 2 GB/s. Times have 1 % noise.
func kitFolder(t *testing.T, engine string) string {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return math.Exp(0.01 * rng.NormFloat64()) }
	var kernels, loads strings.Builder
	kernels.WriteString(kitHead)
	row := func(k KitKernel, mode, variant string, ms float64) {
		phase, split, us := "decode", "equal", ms/32*1000
		if k.Prefill {
			phase = "prefill"
		}
		if k.Zipf {
			split = "zipf"
		}
		fmt.Fprintf(&kernels, "NVIDIA H100,%s,0.33.0,llama-3.1-8b,32,%s,%s,%d,%d,%s,%d,%d,%s,100,%.3f,%.3f,%.3f,%.5f,"+
			"3.2,%.4f,1000,0.5,4,10,0.1\n", engine, phase, mode, k.Tokens, k.Adapters, split, k.Rank, k.Slots, variant,
			100+us, us, us, ms, us/100)
	}
	backend := kitEngines[slices.Index(KitEngines(), engine)].backend
	for _, rank := range []int{16, 64} {
		for _, tokens := range []int{1, 8, 33, 64, 100, 128, 200, 300, 512, 1024, 2048, 8000} {
			for _, adapters := range []int{1, 4, 16, 64} {
				for _, slots := range []int{adapters, 80} {
					k := KitKernel{Tokens: tokens, Adapters: adapters, Rank: rank, Slots: slots, Prefill: tokens > 1000,
						Zipf: slots == 80 && tokens < 1000}
					if adapters > tokens || slots == 80 && k.Prefill {
						continue
					}
					_, amounts := profile.KernelTerms(backend, profile.KernelStep{Tokens: k.tokens(),
						Prompts: k.Prefill, Slots: int64(slots)})
					us := 0.0
					for j, x := range planted {
						us += x * amounts[j] * float64(rank) / 16
					}
					row(k, "graph", "", us/1000*noise())
					row(k, "eager", "", 50)
				}
			}
		}
	}
	small := KitKernel{Tokens: 8, Adapters: 4, Rank: 16, Slots: 4}
	row(small, "graph", "specialize", 900)
	row(small, "graph", "", 0.0001) // below its spread
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

// The planted coefficients come back from the files of the kit; rows without CUDA graphs, of other variants, and below
// their spread do not count.
func TestKitRecovers(t *testing.T) {
	start, err := profile.Load(t.Context(), "analytic:llama-3.1-8b,h100")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range kitEngines {
		k, err := ReadKit(t.Context(), kitFolder(t, e.name))
		if err != nil {
			t.Fatal(err)
		}
		fit, err := k.Fit(e.name, start)
		if err != nil {
			t.Fatal(err)
		}
		l, a := &fit.Profile.Latency.LoRA, &fit.Profile.Adapters
		for i := range l.KernelTimes.BySteps {
			s := &l.KernelTimes.BySteps[i]
			for _, rank := range []int{16, 64} {
				for j, us := range s.At(rank) {
					want := planted[j] * float64(rank) / 16
					if last := i == len(l.KernelTimes.BySteps)-1; last && j == 4 && e.name != "vllm" {
						want = 0 // steps with prompts have no grid of their own
					}
					name := fmt.Sprintf("%s, %s, rank %d, term %d", e.name, s.Steps, rank, j)
					testutil.Near(t, name, us, want, max(0.2*want, 200*map[int]float64{0: 1, 1: 0.1, 2: 0.1}[j]))
				}
			}
		}
		testutil.Near(t, "host_to_gpu ms", a.HostToGPU.LatencyMs, 3, 0.5)
		testutil.Near(t, "host_to_gpu GB/s", a.HostToGPU.GBPerS, 20, 1)
		testutil.Near(t, "disk_to_host ms", a.DiskToHost.LatencyMs, 40, 6)
		testutil.Near(t, "disk_to_host GB/s", a.DiskToHost.GBPerS, 2, 0.1)
		for _, e := range fit.Params {
			if !(e.RelStd > 0 && e.RelStd < 0.2) {
				t.Errorf("%s: standard error %v", e.Name, e.RelStd)
			}
		}
		if fit.Errors.MedianAbsError > 0.02 || len(fit.Profile.Validation) != 2 || !fit.Profile.Uncalibrated ||
			l.Backend != e.backend || !strings.Contains(strings.Join(fit.Notes, " "), "1 timings are less than") {
			t.Errorf("errors %+v, validation %+v, notes %q", fit.Errors, fit.Profile.Validation, fit.Notes)
		}
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
