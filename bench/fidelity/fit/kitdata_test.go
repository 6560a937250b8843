package fit

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"lorasim/bench/stats"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
)

// kitOf reads the results of the GPU kit that are part of the repository.
func kitOf(t *testing.T, card string) Kit {
	t.Helper()
	k, err := ReadKit(t.Context(), "testdata/kit/"+card)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// layerTimes fits the times of one layer to the rows of an engine.
func layerTimes(t *testing.T, k Kit, engine, backend string) (profile.KernelTimes, []kernelRow) {
	t.Helper()
	kernels, _ := k.kernels(engine)
	rows := kernelRows(kernels, backend, "", 1)
	times, err := fitKernelTimes(rows, backend)
	if err != nil {
		t.Fatal(err)
	}
	return times, rows
}

// sim/profile/lorakernels.yaml is the fit to the kernels of both models on the H100. -update writes it.
func TestMeasuredKernels(t *testing.T) {
	k := kitOf(t, "h100")
	var b strings.Builder
	b.WriteString(`# Times of LoRA kernels in a layer of Llama-3.1-8B, us, by backend, kind of steps and rank; see KernelTimes. Fitted to
# bench/fidelity/fit/testdata/kit/h100 (vLLM 0.33.0 and sglang 0.5.23 on an H100): Llama-3.1-8B and Qwen3-14B together.
# go test ./bench/fidelity/fit -run TestMeasuredKernels -update writes this file.
`)
	for _, e := range kitEngines {
		times, _ := layerTimes(t, k, e.name, e.backend)
		text, err := yaml.MarshalWithOptions([]profile.KernelTimes{times}, yaml.Indent(2))
		if err != nil {
			t.Fatal(err)
		}
		b.Write(text)
	}
	testutil.Golden(t, "../../../sim/profile/lorakernels.yaml", b.String())
}

// Kernels fitted on one card or model predict those of another, and held-out rows. go test -v prints the errors.
func TestKernelsPredict(t *testing.T) {
	h100, h200 := kitOf(t, "h100"), kitOf(t, "h200")
	const llama, qwen = "llama-3.1-8b", "qwen3-14b"
	for _, e := range kitEngines {
		_, all := layerTimes(t, h100, e.name, e.backend)
		_, other := layerTimes(t, h200, e.name, e.backend)
		of := func(model string) (rows []kernelRow) {
			for _, r := range all {
				if r.Model == model {
					rows = append(rows, r)
				}
			}
			return rows
		}
		off := map[string][]float64{}
		compare := func(name string, in, left []kernelRow) {
			times, err := fitKernelTimes(in, e.backend)
			if err != nil {
				t.Fatal(err)
			}
			kernelErrors(&times, left, func(r *kernelRow, x float64) {
				key := name + ", " + map[bool]string{false: "decode", true: "prefill"}[r.Prefill]
				off[key] = append(off[key], x)
			})
		}
		if err := folded(all, 5, func(in, left []kernelRow) error {
			compare("five folds", in, left)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		compare("H100 to H200", all, other)
		compare("Llama to Qwen", of(llama), of(qwen))
		compare("Qwen to Llama", of(qwen), of(llama))
		names := make([]string, 0, len(off))
		for name := range off {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			s := stats.SummarizeErrors(off[name])
			t.Logf("%-14s %-23s %4d rows: median %4.1f %%, P90 %4.1f %%", e.name, name, len(off[name]),
				100*s.MedianAbsError, 100*s.P90AbsError)
			if limit := 0.06; !(s.MedianAbsError < limit) || !(s.P90AbsError < 0.15) || math.IsNaN(s.P90AbsError) {
				t.Errorf("%s, %s: median error %.3f, P90 %.3f", e.name, name, s.MedianAbsError, s.P90AbsError)
			}
		}
	}
}
