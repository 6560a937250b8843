package fit

import (
	"cmp"
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
	Tokens, Adapters            int  // of the step; distinct adapters
	Zipf                        bool // tokens of adapters are proportional to 1/k, else equal
	Rank, Slots                 int
	Ms                          float64 // LoRA of all layers
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
	columns := []string{"gpu", "engine", "version", "model", "phase", "mode", "variant", "tokens", "adapters",
		"split", "rank", "slots", "lora_us", "lora_ms_step", "spread_us"}
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
			Variant: r.Text("variant"), Zipf: one("split", "zipf", "equal"),
			Tokens: r.Count("tokens", 1, 1e9), Adapters: r.Count("adapters", 1, 1e6), Rank: r.Count("rank", 1, 1e6),
			Slots: r.Count("slots", 1, 1e6)}
		number := func(column string) float64 {
			if strings.EqualFold(r.Text(column), "nan") {
				return math.NaN()
			}
			return r.Number(column)
		}
		if k.Adapters > k.Tokens || k.Adapters > k.Slots {
			r.Fail("adapters", "is %d, expected at most tokens (%d) and slots (%d)", k.Adapters, k.Tokens, k.Slots)
		}
		k.Ms = number("lora_ms_step")
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
	name, backend string
	host, disk    string // methods of loads.csv
	hostSource    string
}{
	{"vllm", profile.BackendPunica, "vllm", "safetensors-pin", "pinned"},
	{"sglang-csgmv", profile.BackendCSGMV, "sglang-pin-each", "safetensors", "pageable"},
	{"sglang-triton", profile.BackendTriton, "sglang-pin-each", "safetensors", "pageable"},
}

// KitEngines lists the engines whose kernels the GPU kit measures.
func KitEngines() (names []string) {
	for _, e := range kitEngines {
		names = append(names, e.name)
	}
	return names
}

// leastKit is the least number of rows for a fit, and leastKernels that for the coefficients of one rank.
const leastKit, leastKernels = 6, 3

// Fit fits the costs of LoRA of a profile to the results of the GPU kit: the kernels of an engine with CUDA graphs
// ([profile.KernelTimes]), and the loads of adapters. Kernels of all models count, in proportion to their sizes, if the
// model of the profile is one of [profile.Architectures]; else only those of this model. The errors are on held-out
// rows of the profile's model, a fifth at a time. The step times of the base model stay those of the start.
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
	kernels, noise := k.kernels(engine)
	rows := kernelRows(kernels, e.backend, start.Model, start.GPUs())
	own := 0
	for _, r := range rows {
		if strings.EqualFold(r.Model, model) {
			own++
		}
	}
	if own < leastKit {
		models := map[string]bool{}
		for _, r := range kernels {
			models[r.Model] = true
		}
		return nil, fmt.Errorf("%d timings of %s for model %q of the start, with CUDA graphs, expected at least %d; %d "+
			"are less than their spread; the file has the models %s", own, engine, model, leastKit, noise,
			strings.Join(sortedTrue(models), ", "))
	}
	f := &Result{Profile: copyOf(start)}
	if err := f.kitKernels(rows, e.backend, model); err != nil {
		return nil, err
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

// kernels returns the timings of an engine's kernels with CUDA graphs, and the number of timings that are less than
// their spread.
func (k *Kit) kernels(engine string) (rows []KitKernel, noise int) {
	for _, r := range k.Kernels {
		switch {
		case r.Engine != engine || !r.Graph || r.Variant != "":
		case r.Noise:
			noise++
		default:
			rows = append(rows, r)
		}
	}
	return rows, noise
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

// tokens returns the tokens of each adapter of a row, as the kit divides them: one for each, and the rest evenly, or in
// proportion to 1, 1/2, 1/3 and so on. What rounding down leaves goes to the largest remainders.
func (r *KitKernel) tokens() []int64 {
	shares, sum := make([]float64, r.Adapters), 0.0
	for i := range shares {
		if shares[i] = 1; r.Zipf {
			shares[i] = 1 / float64(i+1)
		}
		sum += shares[i]
	}
	tokens, order, left := make([]int64, r.Adapters), make([]int, r.Adapters), r.Tokens
	for i := range shares {
		shares[i] *= float64(r.Tokens-r.Adapters) / sum
		tokens[i], order[i] = 1+int64(shares[i]), i
		left -= int(tokens[i])
	}
	remainder := func(i int) float64 { return shares[i] - math.Floor(shares[i]) }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(remainder(b), remainder(a)) })
	for _, i := range order[:max(left, 0)] {
		tokens[i]++
	}
	return tokens
}

// perTokenTerm is the index of the coefficient of a token in [profile.KernelSteps.Add].
const perTokenTerm = 3

// kernelRow is a row of kernels.csv with the terms of its time.
type kernelRow struct {
	*KitKernel
	steps   string // kind of step
	amounts [5]float64
}

// kernelRows returns rows with the terms of a backend, of which the coefficients are those of a model on each of a
// number of GPUs. It leaves out rows of other models if the model is unknown. model "": coefficients of one layer of
// sim/profile/lorakernels.yaml.
func kernelRows(rows []KitKernel, backend, model string, gpus int) (out []kernelRow) {
	for i := range rows {
		r := kernelRow{KitKernel: &rows[i]}
		r.steps, r.amounts = profile.KernelTerms(backend, profile.KernelStep{Tokens: r.tokens(), Prompts: r.Prefill,
			Slots: int64(r.Slots)})
		to, known := profile.KernelWeights(backend, r.steps, model, gpus)
		if model == "" {
			to, known = [...]float64{1, 1, 1, 1, 1}, true
		}
		of, measured := profile.KernelWeights(backend, r.steps, r.Model, 1)
		name, _, _ := strings.Cut(model, " ")
		switch {
		case known && measured:
			for j := range to {
				r.amounts[j] *= of[j] / to[j]
			}
		case !strings.EqualFold(r.Model, name):
			continue
		}
		out = append(out, r)
	}
	return out
}

// fitKernelTimes fits the coefficients of each kind of steps and rank by least squares of relative errors. Prompts fill
// their tiles, so that steps with prompts do not tell tiles from tokens: they have the cost of a token of the kind of
// steps before, at the same rank.
func fitKernelTimes(rows []kernelRow, backend string) (profile.KernelTimes, error) {
	k := profile.KernelTimes{Of: backend}
	kinds := profile.KernelKinds(backend)
	_, byKind := stats.GroupBy(rows, func(r *kernelRow) string { return r.steps })
	for i, kind := range kinds {
		steps := profile.KernelSteps{Steps: kind}
		ranks, byRank := stats.GroupBy(byKind[kind], func(r *kernelRow) int { return r.Rank })
		slices.Sort(ranks)
		for _, rank := range ranks {
			perToken := math.NaN() // to be fitted
			if i == len(kinds)-1 {
				perToken = k.BySteps[i-1].At(rank)[perTokenTerm]
			}
			us, err := fitKernelRank(byRank[rank], perToken)
			if err != nil {
				return k, fmt.Errorf("steps %s, rank %d: %w", kind, rank, err)
			}
			steps.Add(rank, us)
		}
		if len(ranks) == 0 {
			return k, fmt.Errorf("no timings of steps %s", kind)
		}
		k.BySteps = append(k.BySteps, steps)
	}
	return k, nil
}

// fitKernelRank fits the coefficients of a kind of steps at one rank, us. perToken NaN: that of a token, too.
func fitKernelRank(rows []kernelRow, perToken float64) (us [5]float64, err error) {
	if len(rows) < leastKernels {
		return us, fmt.Errorf("%d timings, expected at least %d", len(rows), leastKernels)
	}
	var eqs []equation
	for _, r := range rows {
		e := equation{ms: r.Ms, amounts: r.amounts[:]}
		if !math.IsNaN(perToken) {
			e.known, r.amounts[perTokenTerm] = perToken/1000*r.amounts[perTokenTerm], 0
		}
		eqs = append(eqs, e)
	}
	x, _, err := nonNegative(eqs)
	if err != nil {
		return us, err
	}
	for j := range us {
		us[j] = profile.Round4(1000 * x[j])
	}
	if !math.IsNaN(perToken) {
		us[perTokenTerm] = perToken
	}
	return us, nil
}

// kernelErrors reports the relative errors of times.
func kernelErrors(k *profile.KernelTimes, rows []kernelRow, add func(r *kernelRow, off float64)) {
	kinds := profile.KernelKinds(k.Of)
	for i := range rows {
		r, ms := &rows[i], 0.0
		for j, us := range k.BySteps[slices.Index(kinds, r.steps)].At(r.Rank) {
			ms += us / 1000 * r.amounts[j]
		}
		add(r, ms/r.Ms-1)
	}
}

// Metrics of a fit to the kit.
const loraDecode, loraPrefill measured.Metric = "LoRA of a decode step", "LoRA of a prefill"

func (r *KitKernel) metric() measured.Metric {
	if r.Prefill {
		return loraPrefill
	}
	return loraDecode
}

// kitKernels fits the kernels of a backend, and makes it the backend of the profile. The errors are on rows of a model.
func (f *Result) kitKernels(rows []kernelRow, backend, model string) error {
	times, err := fitKernelTimes(rows, backend)
	if err != nil {
		return err
	}
	var fitted []float64
	own := func(of *profile.KernelTimes, rows []kernelRow, add func(r *kernelRow, off float64)) {
		kernelErrors(of, rows, func(r *kernelRow, off float64) {
			if strings.EqualFold(r.Model, model) {
				add(r, off)
			}
		})
	}
	own(&times, rows, func(_ *kernelRow, off float64) { fitted = append(fitted, off) })
	f.Errors = stats.SummarizeErrors(fitted)
	unseen := map[measured.Metric][]float64{}
	err = folded(rows, 5, func(in, left []kernelRow) error {
		k, err := fitKernelTimes(in, backend)
		if err != nil {
			return err
		}
		own(&k, left, func(r *kernelRow, off float64) { unseen[r.metric()] = append(unseen[r.metric()], off) })
		return nil
	})
	if err != nil {
		return err
	}
	f.Profile.Validation = check.Summary(stats.SummarizeErrorsBy(unseen)).Validation(
		[]measured.Metric{loraDecode, loraPrefill}, "kernel timings, five folds")
	l := &f.Profile.Latency.LoRA
	if l.Backend != backend {
		l.Kernels = "" // of the other backend
	}
	*l = profile.LoRA{Backend: backend, Kernels: l.Kernels, KernelTimes: times, SwitchMs: l.SwitchMs,
		UnmergedMs: l.UnmergedMs, SwitchCredit: l.SwitchCredit, CreditScale: l.CreditScale}
	return nil
}

// known adds a coefficient with its relative standard error.
func (f *Result) known(name string, start, value, relStd float64) {
	f.Params = append(f.Params, Estimate{Param: Param{Name: name, Start: start}, Value: value, RelStd: relStd})
}

// kitErrors returns the relative standard errors of coefficients that were fitted by relative errors: +Inf for those
// that are 0, and NaN if there are no more equations than coefficients.
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
	if len(eqs) <= len(parts) {
		return slices.Repeat([]float64{math.NaN()}, len(x))
	}
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
		std[j] = math.Sqrt(off / float64(len(eqs)-len(parts)) * inverse.At(k, k))
	}
	return std
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
