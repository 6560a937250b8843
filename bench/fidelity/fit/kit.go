package fit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"

	"lorasim/bench/fidelity/check"
	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/sim/profile"
)

// Kit holds the results of the GPU kit: times of LoRA kernels over a whole step, and of adapter loads.
type Kit struct {
	Kernels []KitKernel
	Loads   []KitLoad
}

// KitKernel is a row of kernels.csv.
type KitKernel struct {
	GPU, Engine, Version, Model string
	Prefill, Graph              bool
	Variant                     string
	Tokens, Adapters            int // of the step; distinct adapters
	Rank, Slots                 int
	Ms                          float64 // LoRA of all layers
	Ratio                       float64 // LoRA over the linear layers
	Noise                       bool    // the time is less than its spread
}

// KitLoad is a row of loads.csv.
type KitLoad struct {
	Stage, Method, Source, Model string
	Rank, SlotRank               int
	Bytes, Ms                    float64
}

// ReadKit reads the folder that the GPU kit has written: kernels.csv, and loads.csv if it is there.
func ReadKit(ctx context.Context, folder string) (k Kit, err error) {
	if k.Kernels, err = textfile.Read(ctx, filepath.Join(folder, "kernels.csv"), readKitKernels); err != nil {
		return k, err
	}
	k.Loads, err = textfile.Read(ctx, filepath.Join(folder, "loads.csv"), readKitLoads)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return k, err
}

// readKitKernels reads kernels.csv of the GPU kit. It leaves out rows without a time. name is the name of the file in
// errors.
func readKitKernels(in io.Reader, name string) (ks []KitKernel, err error) {
	columns := []string{"gpu", "engine", "version", "model", "phase", "mode", "variant", "tokens", "adapters", "rank",
		"slots", "lora_us", "lora_ms_step", "ratio", "spread_us"}
	err = table.ReadCSV(in, name, columns, func(r *table.CSVRow) {
		one := func(column, yes, no string) bool {
			is := r.Text(column)
			if is != yes && is != no {
				r.Fail(column, "is %q, expected %s or %s", is, yes, no)
			}
			return is == yes
		}
		k := KitKernel{GPU: r.Text("gpu"), Engine: r.Text("engine"), Version: r.Text("version"), Model: r.Text("model"),
			Prefill: one("phase", "prefill", "decode"), Graph: one("mode", "graph", "eager"),
			Variant: r.Text("variant"),
			Tokens:  r.Count("tokens", 1, 1e9), Adapters: r.Count("adapters", 1, 1e6), Rank: r.Count("rank", 1, 1e6),
			Slots: r.Count("slots", 1, 1e6)}
		number := func(column string) float64 {
			if strings.EqualFold(r.Text(column), "nan") {
				return math.NaN()
			}
			return r.Number(column)
		}
		k.Ms, k.Ratio = number("lora_ms_step"), number("ratio")
		k.Noise = !(number("lora_us") > max(number("spread_us"), 0)) || !(k.Ms > 0)
		if !math.IsNaN(k.Ms) {
			ks = append(ks, k)
		}
	})
	return ks, err
}

// readKitLoads reads loads.csv of the GPU kit.
func readKitLoads(in io.Reader, name string) (ls []KitLoad, err error) {
	columns := []string{"stage", "method", "source", "model", "rank", "slot_rank", "bytes", "wall_ms"}
	err = table.ReadCSV(in, name, columns, func(r *table.CSVRow) {
		ls = append(ls, KitLoad{Stage: r.Text("stage"), Method: r.Text("method"), Source: r.Text("source"),
			Model: r.Text("model"), Rank: r.Count("rank", 1, 1e6), SlotRank: r.Count("slot_rank", 1, 1e6),
			Bytes: r.Positive("bytes"), Ms: r.Positive("wall_ms")})
	})
	return ls, err
}

// kitEngines are the kernels of the kit, with the ways in which their engine loads adapters by default.
var kitEngines = []struct {
	name         string
	host, disk   string // methods of loads.csv
	hostSource   string
	backend, law string // further backend of the profile, beside roofline, and its coefficient
}{
	{"vllm", "vllm", "safetensors-pin", "pinned", "", ""},
	{"sglang-csgmv", "sglang-pin-each", "safetensors", "pageable", profile.BackendCSGMV, "lora.csgmv_us"},
	{"sglang-triton", "sglang-pin-each", "safetensors", "pageable", profile.BackendTriton, "lora.triton_us"},
}

// KitEngines lists the engines whose kernels the GPU kit measures.
func KitEngines() (names []string) {
	for _, e := range kitEngines {
		names = append(names, e.name)
	}
	return names
}

// leastKit is the least number of rows for a fit.
const leastKit = 6

// Fit fits the costs of LoRA of a profile to the results of the GPU kit: the kernels of an engine for the profile's
// model, with CUDA graphs and as many slots as adapters, and the loads of adapters. Backend roofline gets launch,
// rank and token_rank from decode steps and prefills by least squares of relative errors; the backend of an sglang
// engine gets its coefficient from decode steps and prefill_factor from prefills. The errors are on held-out rows,
// a fifth at a time. The step times of the base model stay those of the start.
func (k *Kit) Fit(engine string, start *profile.Profile) (*Result, error) {
	i := slices.Index(KitEngines(), engine)
	if i < 0 {
		return nil, suggest.Unknown("engine", engine, KitEngines())
	}
	if start.Latency.Law == profile.LawAdapters {
		return nil, fmt.Errorf("profile %s has law %s, expected %s or %s, as in analytic:MODEL,GPU", start.Name,
			profile.LawAdapters, profile.LawRoofline, profile.LawPhases)
	}
	e := kitEngines[i]
	model, _, _ := strings.Cut(start.Model, " ")
	noise, models := 0, map[string]bool{}
	var rows []KitKernel
	for _, r := range k.Kernels {
		models[r.Model] = models[r.Model] || r.Engine == engine
		switch {
		case r.Engine != engine || !strings.EqualFold(r.Model, model) || !r.Graph || r.Variant != "",
			r.Slots != r.Adapters:
		case r.Noise:
			noise++
		default:
			rows = append(rows, r)
		}
	}
	if len(rows) < leastKit {
		return nil, fmt.Errorf("%d timings of %s for model %q of the start, with CUDA graphs and as many slots as "+
			"adapters, expected at least %d; %d more are less than their spread; the file has the models %s", len(rows),
			engine, model, leastKit, noise, strings.Join(sortedTrue(models), ", "))
	}
	f := &Result{Profile: copyOf(start)}
	f.Profile.Latency.LoRA.Backend = profile.BackendRoofline
	if err := f.kitRoofline(rows, start); err != nil {
		return nil, err
	}
	if e.backend != "" {
		if err := f.kitBackend(rows, e.backend, e.law); err != nil {
			return nil, err
		}
	}
	if noise > 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("%d timings are less than their spread and are left out.", noise))
	}
	a := &f.Profile.Adapters
	f.kitStage("host_to_gpu", &a.HostToGPU, k.loads("host_to_gpu", e.host, e.hostSource, model))
	cold := k.loads("disk_to_host", e.disk, "cold", model)
	if len(cold) == 0 {
		cold = k.loads("disk_to_host", e.disk, "warm", model)
	}
	f.kitStage("disk_to_host", &a.DiskToHost, cold)
	f, err := f.describe(start, "%d timings of LoRA kernels of %s %s on %s", len(rows), engine, rows[0].Version,
		rows[0].GPU)
	if p := f.Profile; err == nil { // the steps of the base model are as before
		p.Uncalibrated, p.Hardware, p.EngineVersion = start.Uncalibrated, start.Hardware, start.EngineVersion
	}
	return f, err
}

// copyOf returns a copy of a profile without what belongs to its old coefficients.
func copyOf(p *profile.Profile) *profile.Profile { return model{profile: p}.clone().profile }

// sortedTrue returns the keys that are true.
func sortedTrue(set map[string]bool) (keys []string) {
	for key, is := range set {
		if is {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// kitEquations returns the equations of backend roofline.
func kitEquations(rows []KitKernel) (eqs []equation) {
	for _, r := range rows {
		rank := float64(r.Rank)
		eqs = append(eqs, equation{ms: r.Ms,
			amounts: []float64{1, float64(r.Adapters) * rank / 1000, float64(r.Tokens) * rank / 1e6}})
	}
	return eqs
}

// kitRoofline fits backend roofline to rows.
func (f *Result) kitRoofline(rows []KitKernel, start *profile.Profile) error {
	x, errs, err := nonNegative(kitEquations(rows))
	if err != nil {
		return err
	}
	std := kitErrors(kitEquations(rows), x)
	off := map[measured.Metric][]float64{}
	const decode, prefill measured.Metric = "LoRA of a decode step", "LoRA of a prefill"
	err = folded(rows, 5, func(in, left []KitKernel) error {
		x, _, err := nonNegative(kitEquations(in))
		for i, e := range kitEquations(left) {
			if err != nil {
				break
			}
			sum := 0.0
			for j, a := range e.amounts {
				sum += a * x[j]
			}
			metric := decode
			if left[i].Prefill {
				metric = prefill
			}
			off[metric] = append(off[metric], sum/e.ms-1)
		}
		return err
	})
	if err != nil {
		return err
	}
	f.Errors = errs
	l, was := &f.Profile.Latency.LoRA, &start.Latency.LoRA
	l.LaunchMs, l.RankUs, l.TokenRankNs = profile.Round4(x[0]), profile.Round4(x[1]), profile.Round4(x[2])
	f.known("lora.launch_ms", was.LaunchMs, x[0], std[0])
	f.known("lora.rank_us", was.RankUs, x[1], std[1])
	f.known("lora.token_rank_ns", was.TokenRankNs, x[2], std[2])
	f.Profile.Validation = check.Summary(stats.SummarizeErrorsBy(off)).Validation([]measured.Metric{decode, prefill},
		"kernel timings, five folds")
	return nil
}

// known adds a coefficient with its relative standard error.
func (f *Result) known(name string, start, value, relStd float64) {
	f.Params = append(f.Params, Estimate{Param: Param{Name: name, Start: start}, Value: value, RelStd: relStd})
}

// kitErrors returns the relative standard errors of coefficients that were fitted by relative errors; +Inf for those
// that are 0.
func kitErrors(eqs []equation, x []float64) []float64 {
	a, off := mat.NewDense(len(eqs), len(x), nil), 0.0
	for i, e := range eqs {
		sum := -1.0
		for j, amount := range e.amounts {
			a.Set(i, j, amount*x[j]/e.ms) // the coefficient's part of the time: its error is then relative
			sum += amount * x[j] / e.ms
		}
		off += sum * sum
	}
	var parts []int
	for j, v := range x {
		if v > 0 {
			parts = append(parts, j)
		}
	}
	std := slices.Repeat([]float64{math.Inf(1)}, len(x))
	kept := mat.NewDense(len(eqs), len(parts), nil)
	for k, j := range parts {
		kept.SetCol(k, mat.Col(nil, j, a))
	}
	var normal, inverse mat.Dense
	normal.Mul(kept.T(), kept)
	if err := inverse.Inverse(&normal); err != nil {
		return std
	}
	for k, j := range parts {
		std[j] = math.Sqrt(off / float64(max(len(eqs)-len(parts), 1)) * inverse.At(k, k))
	}
	return std
}

// kitBackend fits the backend of an sglang engine to rows, and makes it that of the profile.
func (f *Result) kitBackend(rows []KitKernel, backend, coefficient string) error {
	var eqs []equation
	var ratios []float64
	for _, r := range rows {
		amount := float64(r.Rank) / 1000
		if backend == profile.BackendTriton {
			amount *= float64(r.Tokens)
		}
		switch {
		case !r.Prefill:
			eqs = append(eqs, equation{ms: r.Ms, amounts: []float64{amount}})
		case r.Ratio > 0:
			ratios = append(ratios, r.Ratio)
		}
	}
	if len(eqs) < leastKit {
		return fmt.Errorf("%d decode steps, expected at least %d", len(eqs), leastKit)
	}
	x, errs, err := nonNegative(eqs)
	if err != nil {
		return err
	}
	l := &f.Profile.Latency.LoRA
	to := &l.CSGMVUs
	if backend == profile.BackendTriton {
		to = &l.TritonUs
	}
	f.known(coefficient, *to, x[0], kitErrors(eqs, x)[0])
	*to = profile.Round4(x[0])
	if len(ratios) > 0 {
		slices.Sort(ratios)
		f.known("lora.prefill_factor", l.PrefillFactor, stats.Quantile(ratios, 0.5), math.NaN())
		l.PrefillFactor = profile.Round4(stats.Quantile(ratios, 0.5))
	}
	f.Notes = append(f.Notes, fmt.Sprintf("Backend %s: median error %.0f %%, P90 %.0f %%; backend roofline: %.0f %%, %.0f %%.",
		backend, 100*errs.MedianAbsError, 100*errs.P90AbsError, 100*f.Errors.MedianAbsError, 100*f.Errors.P90AbsError))
	if errs.MedianAbsError <= f.Errors.MedianAbsError {
		l.Backend = backend
		return nil
	}
	l.Backend, l.PrefillFactor = profile.BackendRoofline, 0 // its terms hold for prefills, too
	return nil
}

// loads returns the loads of an engine's way into slots of the adapters' own rank.
func (k *Kit) loads(stage, method, source, model string) (ls []KitLoad) {
	for _, l := range k.Loads {
		if l.Stage == stage && l.Method == method && l.Source == source && strings.EqualFold(l.Model, model) &&
			l.Rank == l.SlotRank {
			ls = append(ls, l)
		}
	}
	return ls
}

// kitStage fits a stage of a load to loads of at least two sizes: ms = latency + bytes / rate.
func (f *Result) kitStage(name string, to *profile.Stage, ls []KitLoad) {
	sizes := map[float64]bool{}
	var eqs []equation
	for _, l := range ls {
		sizes[l.Bytes] = true
		eqs = append(eqs, equation{ms: l.Ms, amounts: []float64{1, l.Bytes / 1e6}})
	}
	if len(sizes) < 2 {
		f.Notes = append(f.Notes, fmt.Sprintf("adapters.%s stays: %d sizes of adapters were measured, expected 2.",
			name, len(sizes)))
		return
	}
	x, _, err := nonNegative(eqs)
	if err != nil || x[1] <= 0 {
		f.Notes = append(f.Notes, fmt.Sprintf("adapters.%s stays: its times do not grow with the size.", name))
		return
	}
	std := kitErrors(eqs, x)
	f.known("load."+name+"_ms", to.LatencyMs, x[0], std[0])
	f.known("load."+name+"_gb_per_s", to.GBPerS, 1/x[1], std[1])
	*to = profile.Stage{LatencyMs: profile.Round4(x[0]), GBPerS: profile.Round4(1 / x[1])}
}
