package admission

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/router/planroute"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// plainCosts: a decode step takes 10 ms, a prompt token 1 ms, a load 100 ms.
type plainCosts struct{}

func (plainCosts) DecodeStep(int, int, int64, int) float64 { return 0.01 }
func (plainCosts) Prefill(tokens int64) float64            { return 0.001 * float64(tokens) }
func (plainCosts) AdapterLoad(int, router.Tier) float64    { return 0.1 }
func (plainCosts) Copy(float64) float64                    { return 0 }

func firstTokens(env router.Env) Predictor { return planroute.NewTTFT(env) }

func admissionOf(t interface{ Fatal(...any) }, shed Shedding, rate RateLimit) *admission {
	a, err := newAdmission(shed, rate, router.Env{Workers: router.Alike(2, router.Spec{Cost: plainCosts{}}),
		Adapters: trace.Names(2, []int{8})}, firstTokens)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// view is two workers, of which the first has the given state.
func viewOf(now float64, w router.Worker, second bool) *router.View {
	w.Up, w.Adapters = true, []router.AdapterState{{Tier: router.GPU, Running: int32(w.ActiveLoras)},
		{Tier: router.Host}}
	other := w
	other.Up = second
	other.Running, other.Queued, other.Tokens, other.QueuedToks = 0, 0, 0, 0
	return &router.View{Now: now, Workers: []router.Worker{w, other}, Adapters: trace.Names(2, []int{8})}
}

func TestAdmissionWorked(t *testing.T) {
	r := router.Request{Adapter: 0, Prompt: 100, Expected: 50}
	full := router.Worker{MaxRunning: 4, Running: 4, Queued: 3, QueuedToks: 200}
	// with nothing known of how long requests run it is 5 s: of 4 one ends every 1.25 s
	for name, c := range map[string]struct {
		shed   string
		now    float64
		w      router.Worker
		second bool
		r      router.Request
		want   string
		after  float64
	}{
		"nothing to do": {"ttft:99", 0, router.Worker{}, false, r, "predicted TTFT", 0.001},
		"in time":       {"ttft:100", 0, router.Worker{}, false, r, "", 0},
		"its adapter loads": {"ttft:199", 0, router.Worker{}, false, router.Request{Adapter: 1, Prompt: 100},
			"predicted TTFT",
			0.001},
		"base model": {"ttft:100", 0, router.Worker{}, false, router.Request{Adapter: -1, Prompt: 100}, "", 0},
		"a step is under way": {"ttft:109", 0, router.Worker{Running: 1, MaxRunning: 4}, false, r, "predicted TTFT",
			0.001},
		// the prompts of 3 are being computed; a seat: 1.25 x (1 + 1.28), its prompt and a step
		"a seat":          {"ttft:2959", 0, full, false, r, "predicted TTFT", 0.001},
		"a seat, in time": {"ttft:2961", 0, full, false, r, "", 0},
		// they wait before it: 4 seats, 1.25 x (4 + 2 x 1.28)
		"seats":             {"ttft:8309", 10, full, false, r, "predicted TTFT", 0.001},
		"seats, in time":    {"ttft:8311", 10, full, false, r, "", 0},
		"the other is free": {"ttft:100", 10, full, true, r, "", 0},
		// 1000 + 100 + 400 of 1000 tokens: half of what runs has to end, 5 x (0.5 + sqrt(0.5) x 1.28)
		"memory": {"ttft:7134", 0, router.Worker{Running: 1, MaxRunning: 9, KVUsed: 1000, KVCapacity: 1000}, false,
			router.Request{Adapter: 0, Prompt: 100, Expected: 50, MaxNew: 400}, "predicted TTFT", 0.0014834},
		// the other one keeps the only slot for an execution, 5 s
		"an adapter too many": {"ttft:1000", 0, router.Worker{Slots: 1, SlotsUsed: 1, ActiveLoras: 1, Running: 1,
			MaxRunning: 9}, false,
			router.Request{Adapter: 1, Prompt: 100}, "predicted TTFT", 5 + 0.21 - 1},
		"queue":           {"queue:3", 0, full, false, r, "queues of all", 1},
		"queue, shorter":  {"queue:4", 0, full, false, r, "", 0},
		"queue, other":    {"queue:3", 0, full, true, r, "", 0},
		"both, the queue": {"ttft:9999+queue:3", 0, full, false, r, "queues of all", 1},
	} {
		shed, err := ParseShedding(c.shed)
		if err != nil {
			t.Fatal(err)
		}
		reason, after := admissionOf(t, shed, RateLimit{}).Refuse(c.r, viewOf(c.now, c.w, c.second))
		if c.want == "" && reason != "" || !strings.Contains(reason, c.want) || math.Abs(after-c.after) > 1e-6 {
			t.Errorf("%s: %q, again after %v, expected %q, %v", name, reason, after, c.want, c.after)
		}
	}
	down := viewOf(0, full, false)
	down.Workers[0].Up = false
	if reason, _ := admissionOf(t, Shedding{Queue: 1}, RateLimit{}).Refuse(r, down); reason != "" {
		t.Errorf("no worker is usable: %q", reason)
	}
}

// What counts is the worker that the policy would pick.
func TestAdmissionAsksThePolicy(t *testing.T) {
	env := router.Env{Workers: router.Alike(2, router.Spec{Cost: plainCosts{}}), Adapters: trace.Names(2, []int{8})}
	v := viewOf(10, router.Worker{MaxRunning: 4, Running: 4, Queued: 3, QueuedToks: 200}, true)
	for spec, refused := range map[string][2]bool{ // by adapter
		"static": {true, false}, "explicit:map=0@1,1@0": {false, true}, "least-loaded": {}, "affinity-spill": {},
		"plan-and-route": {}, "round-robin": {true, true}, "random": {},
	} {
		rt := routertest.New(t, spec, env)
		if err := Add(rt, Shedding{TTFT: 1}, RateLimit{}, env, firstTokens); err != nil {
			t.Fatal(err)
		}
		if !rt.ReadsKV {
			t.Errorf("%s: admission has no KV tokens to look at", spec)
		}
		for k := range int32(2) {
			if reason, _ := rt.Refuse(router.Request{Adapter: k, Prompt: 100}, v); (reason != "") != refused[k] {
				t.Errorf("%s, adapter %d: refused for %q, expected %v", spec, k, reason, refused[k])
			}
		}
	}
}

// Against the generic cell rate algorithm (ITU-T I.371), which knows no bucket, in
// whole microseconds: each adapter has a time at which its next request is due, and
// one may come (burst - 1)/rate before it. What is refused may come at the time told.
func TestRateLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rate, burst := rapid.SampledFrom([]int64{1, 2, 10}).Draw(t, "rate"),
			rapid.SampledFrom([]float64{1, 1.5, 3, 20}).Draw(t, "burst")
		limit, err := ParseRateLimit(fmt.Sprintf("%d,burst=%v", rate, burst))
		if err != nil {
			t.Fatal(err)
		}
		a := admissionOf(t, Shedding{}, limit)
		every := 1_000_000 / rate
		early := int64((burst - 1) * float64(every))
		now, due := int64(0), map[int32]int64{}
		for range rapid.IntRange(1, 200).Draw(t, "n") {
			now += rapid.SampledFrom([]int64{0, 1, 10_000, 100_000, 300_000, 500_000, 4_000_000}).Draw(t, "gap")
			r := router.Request{Adapter: int32(rapid.IntRange(-1, 1).Draw(t, "adapter"))}
			reason, after := a.Refuse(r, viewOf(float64(now)/1e6, router.Worker{}, true))
			wait := max(due[r.Adapter]-early-now, 0)
			if (reason != "") != (wait > 0) || math.Abs(1e6*after-float64(wait)) > 0.01 {
				t.Fatalf("at %d us adapter %d: %q, again in %v s, expected %d us", now, r.Adapter, reason, after, wait)
			}
			if wait == 0 {
				due[r.Adapter] = max(due[r.Adapter], now) + every
			}
		}
	})
}

// A request that is shed does not count against its adapter's rate.
func TestShedIsNotSpent(t *testing.T) {
	a := admissionOf(t, Shedding{Queue: 1}, RateLimit{Rate: 1, Burst: 1})
	long := viewOf(0, router.Worker{Queued: 1}, false)
	for range 3 {
		if reason, _ := a.Refuse(router.Request{}, long); !strings.Contains(reason, "queues") {
			t.Fatalf("refused for %q", reason)
		}
	}
	if reason, _ := a.Refuse(router.Request{}, viewOf(0, router.Worker{}, false)); reason != "" {
		t.Errorf("refused for %q", reason)
	}
}

func TestParse(t *testing.T) {
	for _, f := range append(ShedForms(), RateForms()...) {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"ttft": "shed ttft: ms is missing", "ttft:0": `ms: "0" is not a number >= 0.001`, "ttft:-1": `"-1" is not`,
		"ttft:x": `"x" is not`, "ttft:inf": `"inf" is not`, "queue:0": `shed queue: n: "0" is not a whole number >= 1`,
		"queue:1.5": `"1.5" is not`, "wait:5": `unknown shed "wait" (known: ttft, queue)`,
		"ttft:5,queue:3": `"queue:3" has no option left`,
	} {
		_, err := ParseShedding(text)
		testutil.ExpectError(t, err, want)
	}
	for text, name := range map[string]string{"queue:1+queue:2": "queue", "ttft:5+queue:3+ttft:9": "ttft"} {
		if _, err := ParseShedding(text); err == nil || err.Error() != name+" is given twice" {
			t.Errorf("shed %s: %v", text, err)
		}
	}
	for text, want := range map[string]string{
		"0": `rate: "0" is not a number > 0`, "-1": `"-1" is not`, "x": `"x" is not`, "inf": `"inf" is not`,
		"nan": `"nan" is not`, "1,2": `"2" has no option left`, "1,burst=0.5": `burst: "0.5" is not a number >= 1`,
		"1,burst=": `burst: "" is not`, "1,burst=inf": `burst: "inf" is not`,
	} {
		_, err := ParseRateLimit(text)
		testutil.ExpectError(t, err, want)
	}
	for text, want := range map[string]RateLimit{"3": {3, 3}, "0.5": {0.5, 1}, "0.5,burst=4": {0.5, 4}} {
		if got, err := ParseRateLimit(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v, expected %+v", text, got, err, want)
		}
	}
	if got, err := ParseShedding("queue:7+ttft:250"); got != (Shedding{TTFT: 0.25, Queue: 7}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	noCosts := router.Env{Workers: router.Alike(1, router.Spec{})}
	if _, err := newAdmission(Shedding{TTFT: 0.005}, RateLimit{}, noCosts, firstTokens); err == nil ||
		!strings.Contains(err.Error(), "cost model") {
		t.Errorf("without step times: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"ttft:500", "queue:20+ttft:1", "2,burst=20", "0.5"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := ParseShedding(text); (err == nil) != (s.TTFT > 0 || s.Queue > 0) {
			t.Errorf("shed %q: %+v, %v", text, s, err)
		}
		if l, err := ParseRateLimit(text); (err == nil) != (l.Rate > 0 && l.Burst >= 1) {
			t.Errorf("rate limit %q: %+v, %v", text, l, err)
		}
	})
}
