package hour

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"lorasim/bench/scenario"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/requestlog"
)

// hidden is a fleet that the package must find out: a profile with other costs than any embedded one, noise, and a
// workload with a burst and an adapter that becomes hot.
type hidden struct {
	seed    uint64
	policy  string
	workers int
	slots   int
	seconds float64
	rate    float64
	base    string // profile
	// slow is the factor on the times of worker 1 in a sixth of the hour; 0: 1. It needs a static policy, with which
	// workers do not depend on one another.
	slow  float64
	names []string // of the adapters; nil: a0, a1, ...
}

func (f hidden) name(adapter int32) string {
	if f.names != nil {
		return f.names[adapter]
	}
	return "a" + strconv.Itoa(int(adapter))
}

func (f hidden) profile(t testing.TB) *profile.Profile {
	t.Helper()
	p, err := profile.Embedded(f.base)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(f.seed, 1))
	off := func(x *float64, by float64) { *x *= math.Exp(by * (2*rng.Float64() - 1)) }
	l := &p.Latency
	for _, x := range []*float64{&l.Decode.BaseMs, &l.Decode.PerRequestMs, &l.Decode.PerKVTokenUs, &l.Prefill.BaseMs,
		&l.Prefill.PerTokenUs, &l.LoRA.CSGMVUs, &l.RequestOverheadMs, &p.Adapters.HostToGPU.LatencyMs,
		&p.Adapters.HostToGPU.GBPerS, &l.Adapters.BaseMs, &l.Adapters.PerRequestMs, &l.Adapters.PerTokenUs} {
		off(x, 0.5)
	}
	p.GPU, p.Engine.MaxLorasPerBatch = "", f.slots
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	return p
}

// kv is the size of the KV cache of a worker, which engines state.
func (f hidden) kv(t testing.TB) int64 {
	t.Helper()
	n, err := f.profile(t).KVTokens()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// outcome is what the log says, with the noise.
func (f hidden) outcome(t testing.TB) Outcome {
	t.Helper()
	return outcome(hourOf(t, f.log(t)).Requests)
}

// workload draws the requests: twice as many in a burst, and five times as many of an adapter that becomes hot.
func (f hidden) workload(t testing.TB) *trace.Workload {
	t.Helper()
	w := f.draw(t, f.seed, "flash:"+fmtFloat(f.seconds*0.65)+","+fmtFloat(f.seconds*0.15)+",5,2")
	for _, r := range f.draw(t, f.seed+1000, "").Requests {
		if at := r.Arrival / f.seconds; at > 0.3 && at < 0.38 {
			w.Requests = append(w.Requests, r)
		}
	}
	slices.SortStableFunc(w.Requests, func(a, b trace.Request) int { return cmp.Compare(a.Arrival, b.Arrival) })
	for i := range w.Requests {
		w.Requests[i].ID = int64(i)
	}
	return w
}

func (f hidden) draw(t testing.TB, seed uint64, pattern string) *trace.Workload {
	t.Helper()
	sc := scenario.Default()
	set(t, &sc, "num_adapters", "36")
	set(t, &sc, "request_rate", fmtFloat(f.rate))
	set(t, &sc, "pattern", pattern)
	set(t, &sc, "num_prompts", fmtFloat(math.Round(3*f.rate*f.seconds)))
	sc.Seed = seed
	in, err := sc.OpenWorkload(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.Collect(in)
	if err != nil {
		t.Fatal(err)
	}
	w.Requests = slices.DeleteFunc(w.Requests, func(r trace.Request) bool { return r.Arrival > f.seconds })
	return w
}

// run simulates the fleet.
func (f hidden) run(t testing.TB) []record.Request {
	t.Helper()
	sc := scenario.Default()
	set(t, &sc, "policy", f.policy)
	sc.Seed = f.seed
	fl := fleet{sc, f.profile(t), f.workers}
	w := f.workload(t)
	list, err := fl.run(t.Context(), w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if f.slow > 0 {
		slow := *fl.profile
		l := &slow.Latency
		for _, x := range []*float64{&l.Decode.BaseMs, &l.Decode.PerRequestMs, &l.Decode.PerKVTokenUs,
			&l.Prefill.BaseMs, &l.Prefill.PerTokenUs} {
			*x *= f.slow
		}
		fl.profile = &slow
		throttled, err := fl.run(t.Context(), w, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range throttled {
			if at := r.Arrival / f.seconds; r.WorkerLast == 1 && at > 0.5 && at < 0.5+1./6 {
				list[i] = r
			}
		}
	}
	return list
}

// log writes the requests as the gateway does, with noise of a network on the times.
func (f hidden) log(t testing.TB) []byte {
	t.Helper()
	list := f.run(t)
	rng := rand.New(rand.NewPCG(f.seed, 2))
	var b bytes.Buffer
	h := slog.NewJSONHandler(&b, nil)
	begin := time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
	slices.SortFunc(list, func(a, b record.Request) int { return int(math.Copysign(1, a.Finish-b.Finish)) })
	for _, r := range list {
		noise := func() float64 { return 0.002 * math.Exp(rng.NormFloat64()) }
		first := r.TTFT() + noise()
		end := max(first, r.E2E()+noise())
		rec := slog.NewRecord(begin.Add(time.Duration(1e9*(r.Sent+end))), slog.LevelInfo, "request", 0)
		rec.Add("client", "127.0.0.1:5", "method", "POST", "path", "/v1/completions", "status", 200, "bytes", 17,
			"duration_s", end, "adapter", f.name(r.Adapter), "worker", r.WorkerLast,
			"url", "http://gpu"+fmtFloat(float64(r.WorkerLast))+":8000", "tries", 1, "prompt_tokens", r.Prompt,
			"max_tokens", r.Requested, "output_tokens", r.Output, "events", r.Output, "first_byte_s", first)
		if err := h.Handle(context.Background(), rec); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func set(t testing.TB, sc *scenario.Scenario, key, value string) {
	t.Helper()
	if err := sc.Set(key, value); err != nil {
		t.Fatal(err)
	}
}

func fmtFloat(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// hourOf reads a log.
func hourOf(t testing.TB, log []byte) *Hour {
	t.Helper()
	path := t.TempDir() + "/access.log"
	write(t, path, log)
	list, err := requestlog.ReadAccessLog(t.Context(), trace.Files{}, path)
	if err != nil {
		t.Fatal(err)
	}
	h, err := FromAccessLog(list, time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return h
}
