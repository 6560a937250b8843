package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// truth is the profile that the records of these tests come from.
func truth() *profile.Profile {
	p := profile.Default()
	p.Name = "truth"
	p.Latency.Decode = profile.Decode{BaseMs: 18, PerRequestMs: 0.4, PerKVTokenUs: 0.7}
	p.Latency.Prefill = profile.Prefill{BaseMs: 12, PerTokenUs: 90, FirstWaveFactor: 1}
	p.Latency.RequestOverheadMs = 15
	p.Memory.KVTokens = 40_000
	p.Engine.MaxRunningRequests = 24
	return &p
}

// recordsOf simulates n requests, three a second, on two workers. noise is the
// standard deviation of the logarithm of every measured time.
func recordsOf(t testing.TB, p *profile.Profile, n int, noise float64, tokenTimes bool) []record.Request {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 8))
	w := trace.Workload{Adapters: trace.Names(4, []int{16})}
	at := 0.0
	for i := range n {
		at += rng.ExpFloat64() / 3
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: at, Adapter: int32(i % 4),
			Prompt: int32(20 + 1500*math.Pow(rng.Float64(), 3)), Output: int32(1 + 300*math.Pow(rng.Float64(), 2))})
	}
	rt, err := router.New("round-robin", router.Env{
		Workers: router.Alike(2, router.Spec{MaxRunning: 24, Slots: 8}), Adapters: w.Adapters,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := p.Compile()
	var rs []record.Request
	keep := record.Ends(func(r *record.Request) { rs = append(rs, *r) })
	if _, err := sim.Run(context.Background(),
		sim.Config{Source: w.Source(), Workers: []*profile.Costs{c, c}, Router: rt, Observer: keep, Home: router.Disk,
			TokenTimes: tokenTimes}); err != nil {
		t.Fatal(err)
	}
	for i := range rs {
		r := &rs[i]
		ttft := r.TTFT() * math.Exp(noise*rng.NormFloat64())
		decode := (r.Finish - r.FirstToken) * math.Exp(noise*rng.NormFloat64())
		r.FirstToken = r.Sent + ttft
		r.Finish = r.FirstToken + decode
	}
	return rs
}

// away returns a profile to start from whose coefficients are off by 20 to 40 %.
func away() *profile.Profile {
	p := truth()
	p.Latency.Decode = profile.Decode{BaseMs: 14, PerRequestMs: 0.55, PerKVTokenUs: 0.95}
	p.Latency.Prefill = profile.Prefill{BaseMs: 16, PerTokenUs: 115, FirstWaveFactor: 1}
	p.Latency.RequestOverheadMs = 10
	return p
}

var recovered = []string{
	"decode.base_ms", "decode.per_request_ms", "decode.per_kv_token_us", "prefill.base_ms", "prefill.per_token_us",
	"request_overhead_ms",
}

// The coefficients come back from records of the simulator itself, to within
// three standard errors, and from exact times also to within 5 %.
func TestRecordsRecoverTheTruth(t *testing.T) {
	for _, c := range []struct {
		name           string
		noise          float64
		n              int
		off, e2e, ttft float64 // largest error of a coefficient, median ones of the held-out requests
		mostUncertain  float64
	}{
		{"exact", 0, 400, 0.05, 0.01, 0.05, 0.1},
		{"5 % noise", 0.05, 1200, 0.3, 0.08, 0.12, 0.2},
	} {
		t.Run(c.name, func(t *testing.T) {
			rs := recordsOf(t, truth(), c.n, c.noise, false)
			fit, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
				Options: Options{Start: away(), Fit: recovered}, Holdout: 0.25})
			if err != nil {
				t.Fatal(err)
			}
			cs, err := choose(recovered, "")
			if err != nil {
				t.Fatal(err)
			}
			want := truth()
			for i, k := range cs {
				e := fit.Params[i]
				off := math.Abs(math.Log(*k.of(fit.Profile) / *k.of(want)))
				t.Logf("%-24s %8.4f of %8.4f, off by %.1f %%, standard error %.1f %%",
					k.name, *k.of(fit.Profile), *k.of(want), 100*off, 100*e.RelStd)
				if e.Held || off > 3*e.RelStd || off > c.off {
					t.Errorf("%s is %g, expected %g: off by %.1f %%, standard error %.1f %% (held: %v)",
						k.name, *k.of(fit.Profile), *k.of(want), 100*off, 100*e.RelStd, e.Held)
				}
				if e.RelStd > c.mostUncertain {
					t.Errorf("%s is uncertain by %.0f %%: the test says little", k.name, 100*e.RelStd)
				}
			}
			for i, limit := range []float64{c.e2e, c.ttft} {
				if v := fit.Profile.Validation[i]; v.MedianAbsError > limit {
					t.Errorf("%s: median error %.1f %% on held-out requests, expected below %.1f %%",
						v.Metric, 100*v.MedianAbsError, 100*limit)
				}
			}
		})
	}
}

// With the time of every token the shares of the steps are exact, and so are
// the coefficients.
func TestRecordsWithTokenTimes(t *testing.T) {
	rs := recordsOf(t, truth(), 400, 0, false)
	plain, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
		Options: Options{Start: away(), Fit: recovered},
	})
	if err != nil {
		t.Fatal(err)
	}
	rs = recordsOf(t, truth(), 400, 0, true)
	exact, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
		Options: Options{Start: away(), Fit: recovered},
	})
	if err != nil {
		t.Fatal(err)
	}
	off := func(p *profile.Profile) float64 {
		return math.Abs(math.Log(p.Latency.Decode.PerRequestMs / truth().Latency.Decode.PerRequestMs))
	}
	t.Logf("per_request_ms off by %.2f %% without, %.2f %% with token times",
		100*off(plain.Profile), 100*off(exact.Profile))
	if off(exact.Profile) > 0.02 {
		t.Errorf("per_request_ms is off by %.1f %% with token times", 100*off(exact.Profile))
	}
}

// Requests that never run together and have one length cannot tell the terms
// apart; the fit has to say so and leave the profile's values.
func TestRecordsSayWhatTheyCannotDetermine(t *testing.T) {
	start := away()
	var rs []record.Request
	for i := range 30 {
		at := float64(i) * 100
		rs = append(rs, record.Request{ID: int64(i), Adapter: trace.BaseModel, Arrival: at, Sent: at,
			FirstToken: at + 0.1, Finish: at + 0.1 + 99*0.02, Prompt: 500, Output: 100, Requested: 100})
	}
	fit, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{Options: Options{Start: start}})
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, e := range fit.Params {
		if e.Held {
			held++
			if !(e.RelStd >= undetermined) {
				t.Errorf("%s is held with a standard error of %v", e.Name, e.RelStd)
			}
		}
	}
	// one number for the first token and one for the decode steps: at most one
	// coefficient each
	if free := len(fit.Params) - held; free != 2 {
		t.Errorf("%d coefficients are said to be determined, expected 2", free)
	}
	if fit.Profile.Latency.Decode.PerKVTokenUs != start.Latency.Decode.PerKVTokenUs {
		t.Error("a held coefficient was changed")
	}
	if fit.Loss > 0.5 {
		t.Errorf("the two determined coefficients leave a loss of %.2f", fit.Loss)
	}
}

func TestRecordsFaults(t *testing.T) {
	ok := record.Request{Prompt: 5, Output: 5, Finish: 1, FirstToken: 0.5}
	many := func(change func(*record.Request)) []record.Request {
		rs := make([]record.Request, 12)
		for i := range rs {
			rs[i] = ok
			rs[i].ID = int64(i)
		}
		change(&rs[3])
		return rs
	}
	for name, c := range map[string]struct {
		rs   []record.Request
		o    RecordsOptions
		want string
	}{
		"few":     {[]record.Request{ok}, RecordsOptions{}, "at least 10"},
		"holdout": {many(func(*record.Request) {}), RecordsOptions{Holdout: 1}, "holdout"},
		"unknown": {
			many(func(*record.Request) {}), RecordsOptions{Options: Options{Fit: []string{"decode.bas_ms"}}},
			"did you mean",
		},
		"too long": {many(func(r *record.Request) { r.Prompt = 9000 }), RecordsOptions{}, "fail in the simulation"},
	} {
		c.o.Start = truth()
		if _, err := Records(context.Background(), [][]record.Request{c.rs}, c.o); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, expected an error with %q", name, err, c.want)
		}
	}
}

// A computed profile's terms for LoRA and experts stay what they are, and what was
// measured of a step is told from them: the steps' base comes back, and the prompt token
// nearly so, since the prefill steps between two tokens are known by their mean alone.
func TestRecordsOfComputedTerms(t *testing.T) {
	computed := func() *profile.Profile {
		p := truth()
		kernels, err := profile.Load(t.Context(), "analytic:llama-3.1-8b,h100")
		if err != nil {
			t.Fatal(err)
		}
		p.Latency.LoRA = kernels.Latency.LoRA
		p.Latency.Experts = profile.Experts{Count: 64, TopK: 4, ReadMs: 10}
		return p
	}
	rs := recordsOf(t, computed(), 400, 0, false)
	start := computed()
	start.Latency.Decode.BaseMs, start.Latency.Prefill.PerTokenUs = 13, 130
	fit, err := Records(context.Background(), [][]record.Request{rs}, RecordsOptions{
		Options: Options{Start: start, Fit: []string{"decode.base_ms", "prefill.per_token_us"}}, Holdout: 0.25})
	if err != nil {
		t.Fatal(err)
	}
	got, want := fit.Profile.Latency, computed().Latency
	if math.Abs(got.Decode.BaseMs/want.Decode.BaseMs-1) > 0.05 ||
		math.Abs(got.Prefill.PerTokenUs/want.Prefill.PerTokenUs-1) > 0.1 {
		t.Errorf("base %.3g ms and prompt token %.3g us, expected %.3g and %.3g",
			got.Decode.BaseMs, got.Prefill.PerTokenUs, want.Decode.BaseMs, want.Prefill.PerTokenUs)
	}
	if !reflect.DeepEqual(got.LoRA, want.LoRA) || got.Experts != want.Experts {
		t.Errorf("the fit changed the computed terms: %+v, %+v", got.LoRA, got.Experts)
	}
}
