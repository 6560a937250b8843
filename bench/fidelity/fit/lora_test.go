package fit

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// loraTruth is a profile of law roofline whose LoRA kernels take twice the measured times.
func loraTruth() *profile.Profile {
	p := rooflineTruth()
	p.Engine.MaxRunningRequests, p.Engine.MaxLorasPerBatch = 256, 4
	kernels, err := profile.NewAnalytic("llama-3.1-8b", "h100").Profile()
	if err != nil {
		panic(err) // both are known
	}
	p.Latency.LoRA = kernels.Latency.LoRA
	p.Latency.LoRA.KernelTimes.Factor = 2
	return p
}

// loraRun simulates 300 requests on one worker at a rate. The first request has adapter 0, and each next request the
// following one of the given number; 0: the base model alone.
func loraRun(t *testing.T, p *profile.Profile, rate float64, adapters int) []record.Request {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(adapters)))
	w := trace.Workload{Adapters: trace.Names(adapters, []int{16})}
	at := 0.0
	for i := range 300 {
		at += rng.ExpFloat64() / rate
		q := trace.Request{ID: int64(i), Arrival: at, Adapter: trace.BaseModel,
			Prompt: int32(100 + 600*rng.Float64()), Output: int32(20 + 200*rng.Float64())}
		if adapters > 0 {
			q.Adapter = int32(i % adapters)
		}
		w.Requests = append(w.Requests, q)
	}
	return simulated(t, p, w)
}

// simulated returns the records of a workload on one worker, by id.
func simulated(t *testing.T, p *profile.Profile, w trace.Workload) []record.Request {
	t.Helper()
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	rs := make([]record.Request, len(w.Requests))
	if _, err := sim.Run(t.Context(), sim.Config{Source: w.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: router.Always(0)}, Home: router.Disk,
		Observer: record.Ends(func(r *record.Request) { rs[r.ID] = *r })}); err != nil {
		t.Fatal(err)
	}
	return rs
}

// loraStart is a start as far off as computed profiles are.
func loraStart() *profile.Profile {
	p := loraTruth()
	p.Latency.Decode.BaseMs, p.Latency.Prefill.PerTokenUs = 11.6, 45
	p.Latency.LoRA.KernelTimes.Factor = 1
	return p
}

// estimate returns the estimate of a coefficient; nil: it was not offered.
func (f *Result) estimate(name string) *Estimate {
	i := slices.IndexFunc(f.Params, func(e Estimate) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Params[i]
}

// The default fit offers the coefficients of the LoRA backend, and finds them in runs that differ in adapters and
// rates.
func TestLoRACostsAreFound(t *testing.T) {
	p := loraTruth()
	runs := [][]record.Request{loraRun(t, p, 4, 0), loraRun(t, p, 4, 1), loraRun(t, p, 4, 4), loraRun(t, p, 9, 4)}
	fit, err := Records(t.Context(), runs, RecordsOptions{Options: Options{Start: loraStart()}, Holdout: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range fit.Params {
		t.Logf("%-28s %.4g (%.4g), %.1f %%", e.Name, e.Value, e.Start, 100*e.RelStd)
	}
	t.Logf("loss %.3f, before %.3f, %d", fit.Loss, fit.StartLoss, fit.Evaluations)
	for name, want := range map[string]float64{"lora.kernel_factor": 2} {
		e := fit.estimate(name)
		if e == nil || e.Held {
			t.Fatalf("%s is not fitted", name)
		}
		if off := math.Abs(math.Log(e.Value / want)); off > 0.25 || off > 4*e.RelStd || e.RelStd > 0.3 {
			t.Errorf("%s is %.4g, expected %g; standard error %.0f %%", name, e.Value, want, 100*e.RelStd)
		}
	}
	if len(fit.Notes) == 0 || !strings.HasPrefix(fit.Notes[0], "LoRA: fitted lora.kernel_factor ") {
		t.Errorf("notes: %q", fit.Notes)
	}
}

// Runs of the base model alone offer no coefficient of LoRA. A run of the base model and one of a single adapter show
// what an adapter costs.
func TestLoRACostsAreHeld(t *testing.T) {
	p := loraTruth()
	base := loraRun(t, p, 4, 0)
	fit, err := Records(t.Context(), [][]record.Request{base}, RecordsOptions{Options: Options{Start: loraStart()}})
	if err != nil {
		t.Fatal(err)
	}
	if fit.estimate("lora.kernel_factor") != nil ||
		!reflect.DeepEqual(fit.Profile.Latency.LoRA, loraStart().Latency.LoRA) ||
		!strings.Contains(strings.Join(fit.Notes, "\n"), "no request has an adapter") {
		t.Errorf("the base model alone: %+v, notes %q", fit.Profile.Latency.LoRA, fit.Notes)
	}
	fit, err = Records(t.Context(), [][]record.Request{base, loraRun(t, p, 4, 1)},
		RecordsOptions{Options: Options{Start: loraStart()}})
	if err != nil {
		t.Fatal(err)
	}
	factor := fit.estimate("lora.kernel_factor")
	if factor == nil || factor.Held || math.Abs(factor.Value-2) > 3*factor.RelStd*factor.Value || factor.RelStd > 0.2 {
		t.Errorf("factor %+v, expected 2", factor)
	}
}

// burst is a workload that fills a KV cache: many requests at once.
func burst() (w trace.Workload) {
	rng := rand.New(rand.NewPCG(5, 6))
	for i := range 260 {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: float64(i) / 40, Adapter: trace.BaseModel,
			Prompt: int32(300 + 200*rng.Float64()), Output: int32(150 + 100*rng.Float64())})
	}
	return w
}

// A full KV cache shows in the records, and a limit of running requests is not taken for one.
func TestMemoryOfRecords(t *testing.T) {
	p := loraTruth()
	p.Uncalibrated, p.Memory = true, profile.Memory{PoolGiB: 100, KVBytesPerToken: 1 << 19}
	p.Latency.LoRA.Backend = profile.BackendNone
	full := *p
	full.Memory.KVTokens = 30_000
	for name, c := range map[string]struct {
		of     profile.Profile
		stated bool
		note   string
		low    int64
		high   int64
	}{
		"full":     {full, false, "tokens, estimated from run 1", 28_500, 31_500},
		"stated":   {full, true, "", 204_000, 205_000},
		"not full": {*p, false, "its size is not stated and the runs do not fill it; 204800 tokens", 204_000, 205_000},
		"seats": {func() profile.Profile { q := *p; q.Engine.MaxRunningRequests = 60; return q }(), false,
			"its size is not stated", 204_000, 205_000},
	} {
		rs := simulated(t, &c.of, burst())
		fit, err := Records(t.Context(), [][]record.Request{rs}, RecordsOptions{
			Options: Options{Start: p, Evaluations: 60}, MemoryStated: c.stated})
		if err != nil {
			t.Fatal(err)
		}
		kv, err := fit.Profile.KVTokens()
		notes := strings.Join(fit.Notes, "\n")
		t.Logf("%s: %d KV tokens, %s", name, kv, notes)
		if err != nil || kv < c.low || kv > c.high || !strings.Contains(notes, c.note) ||
			c.stated && strings.Contains(notes, "KV cache") {
			t.Errorf("%s: %d KV tokens (%v), expected %d to %d; notes %q", name, kv, err, c.low, c.high, notes)
		}
	}
}

// The first request of an adapter shows whether the worker held it at the start: the replay waits for a load from
// disk only where the record shows one.
func TestReplayBeginsWithTheAdaptersOfTheRecords(t *testing.T) {
	p := loraTruth()
	load := p.Compile().Load(16, router.Disk).Seconds()
	for _, cold := range []bool{false, true} {
		rs := loraRun(t, p, 2, 1)
		for i := range rs {
			rs[i].ColdLoad = 0 // as in records of real engines, which state no loads
		}
		if cold {
			rs[0].FirstToken += 2 * load
			rs[0].Finish += 2 * load
		}
		run, err := measured.NewRecording("run", rs, 0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run.Simulate(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		want := 0.0
		if cold {
			want = load
		}
		testutil.Near(t, "load of the first request", got[0].ColdLoad, want, 0.001)
	}
}
