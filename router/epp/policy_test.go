package epp

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/trace"
)

// picker makes a policy from the text of a configuration.
func newPicker(t *testing.T, env router.Env, options, text string) *policy {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	rt, err := router.New("epp:file="+file+options, env)
	if err != nil {
		t.Fatal(err)
	}
	return rt.Policy.(*policy)
}

// TestEndpointPickerReadsLate: load is that of the last look, as old as refresh.
func TestEndpointPickerReadsLate(t *testing.T) {
	env := testEnv(2, 1)
	p := newPicker(t, env, ",refresh=1s", "plugins:\n- type: queue-scorer\n")
	v := testView(env)
	v.Workers[0].Queued = 5
	if w := p.Route(router.Request{ID: 1}, v).Worker; w != 1 {
		t.Fatalf("sent to worker %d, expected 1, which has no queue", w)
	}
	v.Workers[0].Queued, v.Workers[1].Queued, v.Now = 0, 5, 0.9
	if w := p.Route(router.Request{ID: 2}, v).Worker; w != 1 {
		t.Errorf("sent to worker %d after 0.9 s, expected 1: the last look is younger than 1 s", w)
	}
	if v.Now = 1; p.Route(router.Request{ID: 3}, v).Worker != 0 {
		t.Error("sent to worker 1 after 1 s, expected 0")
	}
}

// TestEndpointPickerAdapters: a worker states max_lora once it has had an adapter, and lists those in flight alone.
func TestEndpointPickerAdapters(t *testing.T) {
	env := testEnv(2, 8)
	p := newPicker(t, env, "", "plugins:\n- type: lora-affinity-scorer\n")
	v := testView(env)
	v.Workers[0].Adapters[3].Tier = router.GPU // idle: the metric does not list it
	p.poll(v)
	if r := p.reports; r[0].MaxLora != 0 || len(r[0].RunningAdapters) > 0 {
		t.Errorf("an idle worker states %+v", r[0])
	}
	v.Workers[1].Count(5, 1, 0)
	v.Now, v.Workers[1].Slots = 1, 3 // the adapter is listed twice, and counts twice
	if w := p.Route(router.Request{ID: 1, Adapter: 2}, v).Worker; w != 1 {
		t.Errorf("sent to worker %d, expected 1: the other one states no max_lora and scores 0", w)
	}
	if r := p.reports[1]; r.MaxLora != 3 || len(r.RunningAdapters) != 1 || r.RunningAdapters[0] != "lora5" {
		t.Errorf("worker 1 states %+v", r)
	}
	sg := newPicker(t, env, ",metrics=sglang", "plugins:\n- type: lora-affinity-scorer\n")
	if sg.Route(router.Request{Adapter: 5}, v).Worker == router.None || sg.reports[1].MaxLora != 0 {
		t.Error("metrics=sglang states adapters")
	}
}

// TestEndpointPickerSet: set changes weights and thresholds of the file, and adds scorers.
func TestEndpointPickerSet(t *testing.T) {
	env := testEnv(2, 1)
	const text = "plugins:\n- type: queue-scorer\n- type: running-requests-size-scorer\n"
	v := testView(env)
	v.Workers[0].Queued, v.Workers[1].Running = 3, 3
	for set, want := range map[string]int{
		",set=queue-scorer:2":                                          1,
		",set=queue-scorer:0":                                          0,
		",set=queue-scorer:2/running-requests-size-scorer:3":           0,
		",set=queue-scorer:2/kv-cache-utilization-scorer:1,refresh=1s": 1,
	} {
		if w := newPicker(t, env, set, text).Route(router.Request{ID: 1}, v).Worker; w != want {
			t.Errorf("%s: sent to worker %d, expected %d", set, w, want)
		}
	}
	for spec, want := range map[string]string{
		"epp:set=queue":          `set: "queue": expected PLUGIN:WEIGHT`,
		"epp:set=queue-scorer:x": "set: queue-scorer:x: expected a finite number",
		"epp:set=queue-scorr:1":  `unknown number "queue-scorr", did you mean "queue-scorer"`,
	} {
		if _, err := router.New(spec, env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, expected %q", spec, err, want)
		}
	}
}

// TestEndpointPickerFlight: requests count from Route until they leave.
func TestEndpointPickerFlight(t *testing.T) {
	env := testEnv(1, 1)
	p := newPicker(t, env, "", "plugins:\n- type: inflight-load-producer\n"+
		"- {type: concurrency-detector, parameters: {maxConcurrency: 2}}\n")
	v := testView(env)
	for id := range int64(2) {
		if p.Route(router.Request{ID: id, Prompt: 10}, v).Worker != 0 {
			t.Fatalf("request %d refused", id)
		}
	}
	if d := p.Route(router.Request{ID: 2, Prompt: 10}, v); d.Worker != router.None || d.Refusal == nil ||
		d.Refusal.Status != 429 {
		t.Errorf("third request: %+v; expected a refusal with 429", d)
	}
	for _, kind := range []router.EventKind{router.FirstToken, router.Left, router.Left} {
		if err := p.Note(router.Event{Kind: kind, ID: 0}); err != nil {
			t.Fatal(err)
		}
	}
	if d := p.Route(router.Request{ID: 3, Prompt: 10}, v); d.Worker != 0 || d.Refusal != nil {
		t.Errorf("after one has left: %+v", d)
	}
	if n := p.s.Flight().Open(); n != 2 {
		t.Errorf("%d in flight, expected 2", n)
	}
}

func TestEndpointPickerRefuses(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"plugins:\n- type: precise-prefix-cache-producer\napiVersion: llm-d.ai/v1alpha1\n": "precise-prefix-cache-producer",
		"plugins:\n- type: nobody-scorer\n":                                                "not registered",
	} {
		file := filepath.Join(dir, "c.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := router.New("epp:file="+file, testEnv(1, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, expected %q", text, err, want)
		}
	}
	if err := router.CheckSpec("epp:refresh=soon"); err == nil || !strings.Contains(err.Error(), "refresh=soon") {
		t.Errorf("refresh=soon: %v", err)
	}
}

// TestEndpointPickerSucceeds: a router for more workers keeps what is in flight and what was sent where.
func TestEndpointPickerSucceeds(t *testing.T) {
	const text = "plugins:\n- type: prefix-cache-scorer\n- type: active-request-scorer\napiVersion: llm-d.ai/v1alpha1\n"
	env := testEnv(2, 1)
	old := newPicker(t, env, "", text)
	v := testView(env)
	r := router.Request{ID: 1, Prompt: 640, Known: 640, Text: &trace.Text{ID: 9}}
	first := old.Route(r, v).Worker
	next := newPicker(t, testEnv(3, 1), "", text)
	now := &router.Router{Policy: next}
	now.Succeed(&router.Router{Policy: old}, router.NewHistory(1), testView(testEnv(3, 1)), 2)
	if n := next.s.Flight().Requests(first); n != 1 {
		t.Errorf("%d requests in flight on worker %d, expected 1", n, first)
	}
	r.ID = 2
	next.Route(r, testView(testEnv(3, 1)))
	if m := next.s.Matches()[first]; m.Blocks != 10 {
		t.Errorf("worker %d matches %+v, expected 10 blocks", first, m)
	}
}

func testEnv(workers, adapters int) router.Env {
	return router.Env{Workers: router.Alike(workers, router.Spec{MaxRunning: 8, Slots: 2}),
		Adapters: trace.Names(adapters, []int{8, 16, 32, 64}), Seed: 1}
}

func testView(env router.Env) *router.View {
	v := &router.View{Adapters: env.Adapters}
	for _, s := range env.Workers {
		v.Workers = append(v.Workers, router.Worker{Up: true, MaxRunning: s.MaxRunning, Slots: s.Slots,
			KVCapacity: 10000, Adapters: make([]router.AdapterState, len(env.Adapters))})
	}
	return v
}
