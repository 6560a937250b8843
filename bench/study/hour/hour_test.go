package hour

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/bench/scenario"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace/requestlog"
)

// settings returns the scenario of a fleet with 4 adapter slots.
func settings(t testing.TB) *scenario.Scenario {
	t.Helper()
	sc := scenario.Default()
	set(t, &sc, "max_loras_per_batch", "4")
	set(t, &sc, "scheduler", "sglang")
	return &sc
}

func explain(t testing.TB, f hidden) *Answer {
	t.Helper()
	o := Options{MaxError: 0.1, Draws: 4, KVTokens: f.kv(t)}
	a, err := Explain(t.Context(), hourOf(t, f.log(t)), settings(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// common is a fleet whose hour has a queue for slots in a burst.
var common = hidden{seed: 3, policy: "static", workers: 3, slots: 4, seconds: 900, rate: 3,
	base: "llama-2-7b-rtx-4090-sglang-0.5"}

// The package sees the log of a fleet with a profile that it does not know, and noise. What it says of three changes is
// compared with running them. lab/badhour has the same for ten hours.
func TestExplain(t *testing.T) {
	a := explain(t, common)
	if len(a.Refused) > 0 || a.Policy != "static" || a.Guessed < 0.99 || a.Slots != 4 {
		t.Fatalf("refused %q, policy %s (%v), %d slots", a.Refused, a.Policy, a.Guessed, a.Slots)
	}
	for _, r := range a.Proof.Rows[:deciding] {
		if recorded, routed := r.Errors(); math.Abs(recorded) > 0.1 || math.Abs(routed) > 0.1 {
			t.Errorf("%+v", r)
		}
	}
	for text, change := range map[string]func(*hidden){
		"policy least-loaded instead of static": func(f *hidden) { f.policy = "least-loaded" },
		"1 worker more":                         func(f *hidden) { f.workers++ },
		"12 adapter slots instead of 4":         func(f *hidden) { f.slots = 12 },
	} {
		f := common
		change(&f)
		want := f.outcome(t)
		i := slices.IndexFunc(a.Changes, func(c Change) bool { return c.Text == text })
		if i < 0 {
			t.Fatalf("no change %q in %+v", text, a.Changes)
		}
		c := &a.Changes[i]
		if got := c.Hour; math.Abs(got.TTFT/want.TTFT-1) > 0.15 || math.Abs(got.E2E/want.E2E-1) > 0.15 {
			t.Errorf("%s: %+v, really %+v", text, got, want)
		}
		if !(c.TTFT.Low < c.TTFT.Mean && c.TTFT.Mean < c.TTFT.High) {
			t.Errorf("%s: interval %+v", text, c.TTFT)
		}
	}
	var text, page bytes.Buffer
	if err := a.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Proof    reproduced", "static: 100.0 %", "8 adapter slots instead of 4",
		"Each fleet"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in:\n%s", want, text.String())
		}
	}
	if err := a.WriteHTML(&page); err != nil || !strings.Contains(page.String(), "TTFT by minute") {
		t.Errorf("page of %d bytes, %v", page.Len(), err)
	}
	var object struct {
		Schema  string
		Proof   Proof
		Changes []Change
		Refused []string
	}
	data, err := json.Marshal(a)
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil || object.Schema != "lorasim.hour/1" || len(object.Proof.Minutes) != 15 ||
		len(object.Changes) != len(a.Changes) || object.Refused == nil {
		t.Errorf("%s, %v", data[:min(len(data), 300)], err)
	}
}

// An hour in which a worker is throttled is refused, also if the means are right. So is one with another policy.
func TestRefused(t *testing.T) {
	f := common
	f.slow = 2
	a := explain(t, f)
	if !slices.ContainsFunc(a.Refused, func(s string) bool {
		return strings.Contains(s, "worker http://gpu1:8000: time per output token was")
	}) || a.Changes != nil {
		t.Errorf("refused: %q, %d changes", a.Refused, len(a.Changes))
	}
	h := hourOf(t, common.log(t))
	sc := settings(t)
	set(t, sc, "policy", "least-loaded")
	a, err := Explain(t.Context(), h, sc, Options{MaxError: 0.1, Draws: 4, Policy: true, KVTokens: common.kv(t)})
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Refused) == 0 || !strings.Contains(a.Refused[0], "--policy") {
		t.Errorf("refused: %q", a.Refused)
	}
	h.Asked += len(h.Requests)
	h.Left = []Left{{Reason: "status 503", Requests: len(h.Requests)}}
	if a, err = Explain(t.Context(), h, settings(t),
		Options{MaxError: 0.1, Draws: 4, KVTokens: common.kv(t)}); err != nil {
		t.Fatal(err)
	}
	if len(a.Refused) != 1 || !strings.Contains(a.Refused[0], "status 503") {
		t.Errorf("refused: %q", a.Refused)
	}
}

// TestWrongProfile: the refusal names the profile if the fit could not even explain the first half, and only then.
func TestWrongProfile(t *testing.T) {
	h := hourOf(t, common.log(t))
	for _, c := range []struct {
		profile *profile.Profile
		missed  float64
		want    bool
	}{{&profile.Profile{Name: "small"}, 2, true}, {&profile.Profile{Name: "small"}, 0.1, false}, {nil, 2, false}} {
		s, err := newStudy(h, settings(t), Options{MaxError: 0.1, Profile: c.profile})
		if err != nil {
			t.Fatal(err)
		}
		a := &Answer{missed: c.missed, Proof: Proof{Rows: []Row{{"mean TTFT", 1, 2, 2}}}}
		s.judge(a, [][]record.Request{h.Requests, h.Requests})
		if got := strings.Contains(strings.Join(a.Refused, "\n"), "profile small may not be"); got != c.want ||
			!strings.Contains(a.Refused[0], "mean TTFT of the second half is +100 % off") {
			t.Errorf("%+v: refused: %q", c, a.Refused)
		}
	}
}

// TestIdleWorker: a worker of the fleet that served no request has its line in the proof, and the policy uses it.
func TestIdleWorker(t *testing.T) {
	f := common
	f.seconds = 300
	sc := settings(t)
	set(t, sc, "num_workers", "4")
	a, err := Explain(t.Context(), hourOf(t, f.log(t)), sc, Options{MaxError: 0.1, Draws: 2, KVTokens: f.kv(t)})
	if err != nil {
		t.Fatal(err)
	}
	loads := a.Proof.Loads
	if len(loads) != 4 || loads[3].Worker != "worker 3, without requests" || loads[3].Requests != 0 ||
		loads[3].Routed == 0 || loads[2].Requests == 0 {
		t.Errorf("%+v", loads)
	}
}

func TestFromAccessLog(t *testing.T) {
	begin := time.Date(2026, 3, 1, 14, 0, 0, 0, time.UTC)
	var list []requestlog.Access
	for i := range 20 {
		list = append(list, requestlog.Access{End: begin.Add(time.Duration(30-i) * time.Second), Duration: 2,
			FirstByte: 0.5, Adapter: fmt.Sprintf("a%d", i%12), Worker: i % 2, URL: fmt.Sprintf("http://gpu%d", i%2),
			Status: 200, Tries: 1, Prompt: 10, Output: 5, Events: 5})
	}
	list[0].Status, list[1].BrokenOff, list[2].Adapter, list[3].Events = 503, true, "base", 1
	h, err := FromAccessLog(list, time.Time{}, begin.Add(28*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	// Arrivals are 2 s before the ends, so the requests at 28 s are those of i = 0.
	broken := Left{Reason: "broken off", Requests: 1}
	if h.Asked != 19 || len(h.Requests) != 18 || len(h.Left) != 1 || h.Left[0] != broken {
		t.Errorf("%d asked, %d requests, left out %v", h.Asked, len(h.Requests), h.Left)
	}
	if len(h.Adapters) != 12 || h.Adapters[2].Name != "a2" || h.Adapters[10].Name != "a10" {
		t.Errorf("adapters %v", h.Adapters)
	}
	if !slices.Equal(h.Workers, []string{"http://gpu0", "http://gpu1"}) || h.Begin != begin.Add(9*time.Second) {
		t.Errorf("workers %v, begin %v", h.Workers, h.Begin)
	}
	for i, r := range h.Requests {
		if r.ID != int64(i) || r.Arrival != float64(i) || math.Abs(r.E2E()-2) > 1e-9 {
			t.Errorf("request %d: %+v", i, r)
		}
	}
	whole := h.Requests[16] // one event with 5 tokens is no stream
	if whole.FirstToken != whole.Finish || h.Requests[0].TTFT() != 0.5 {
		t.Errorf("%+v, %+v", whole, h.Requests[0])
	}
	if _, err := FromAccessLog(list, begin.Add(time.Hour), time.Time{}); err == nil {
		t.Error("no error without a request")
	}
	if _, err := Explain(t.Context(), h, settings(t), Options{}); err == nil || !strings.Contains(err.Error(),
		"at least 200 in each half (left out: broken off: 1)") {
		t.Errorf("few requests: %v", err)
	}
}

// A gateway numbers the adapters by their names, as texts or as people do; with both, static is recognized. Adapters
// that move between workers show no static policy.
func TestGuessPolicy(t *testing.T) {
	names := make([]string, 36)
	for i := range names {
		names[i] = fmt.Sprint("lora", i)
	}
	alphabet := slices.Sorted(slices.Values(names))
	for _, c := range []struct {
		policy string
		names  []string
		want   string
	}{{"static", names, "static"}, {"static", alphabet, "static"}, {"static-block", alphabet, "static-block"},
		{"least-loaded", names, "plan-and-route"}} {
		f := common
		f.policy, f.names, f.seconds = c.policy, c.names, 300
		s, err := newStudy(hourOf(t, f.log(t)), settings(t), Options{})
		if err != nil {
			t.Fatal(err)
		}
		a := &Answer{}
		if s.guessPolicy(a); a.Policy != c.want || s.base.sc.Routing.Policy.String() != c.want {
			t.Errorf("%s: %s, %v", c.policy, a.Policy, a.Guessed)
		}
		if c.want != c.policy {
			continue
		}
		for i, name := range c.names {
			if s.Adapters[i].Name != name {
				t.Errorf("%s: adapter %d is %s, expected %s", c.policy, i, s.Adapters[i].Name, name)
			}
		}
	}
}

func TestNatural(t *testing.T) {
	names := []string{"b", "a10", "a", "a2", "a02", "a1b", "a1", ""}
	slices.SortFunc(names, natural)
	if want := []string{"", "a", "a1", "a1b", "a02", "a2", "a10", "b"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}
