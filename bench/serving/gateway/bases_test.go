package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
)

// Workers of two base models behind one gateway: a request for a base model, or an adapter of it, never reaches a
// worker of the other one, also when the only worker of its base model is down.
func TestTwoBaseModels(t *testing.T) {
	for _, policy := range []string{"least-loaded", "static", "hash", "affinity", "cache-aware", "round-robin", "p2c"} {
		t.Run(policy, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				a := newModelWorker(t, httpapi.VLLM, "base", emulate.Adapter{Name: "a", Path: "a-r8"},
					emulate.Adapter{Name: "b", Path: "b-r8"})
				b := newModelWorker(t, httpapi.SGLang, "other", emulate.Adapter{Name: "x", Path: "x-r8"},
					emulate.Adapter{Name: "y", Path: "y-r8"})
				srv := newGateway(t, policy, nil, a, b)
				post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": [1], "max_tokens": 1}`)
				count := func(body string, n, status int) (atA, atB int64, text string) {
					seenA, seenB := a.seen.Load(), b.seen.Load()
					for range n {
						got := 0
						if got, text = post(t, srv.URL+"/v1/completions", body); got != status {
							t.Errorf("%s: %d %s, expected %d", body, got, text, status)
						}
					}
					return a.seen.Load() - seenA, b.seen.Load() - seenB, text
				}
				for _, c := range []struct {
					model string
					atA   int64
				}{{"base", 9}, {"a", 9}, {"base:b", 9}, {"other", 0}, {"x", 0}, {"other:y", 0}} {
					body := fmt.Sprintf(`{"model": %q, "prompt": [1, 2], "max_tokens": 2}`, c.model)
					if atA, atB, _ := count(body, 9, 200); atA != c.atA || atB != 9-c.atA {
						t.Errorf("model %s: %d and %d requests, expected %d and %d", c.model, atA, atB, c.atA, 9-c.atA)
					}
				}
				for _, c := range []struct{ body, say string }{
					{`{"prompt": [1], "max_tokens": 2}`,
						"several base models: name one of them, or an adapter: base, other"},
					{`{"model": "default", "prompt": [1], "max_tokens": 2}`, "several base models"},
				} {
					if atA, atB, text := count(c.body, 1, 400); atA+atB > 0 || !strings.Contains(text, c.say) {
						t.Errorf("%s: %d and %d, %s", c.body, atA, atB, text)
					}
				}
				if atA, atB, _ := count(`{"model": "base:x", "prompt": [1]}`, 1, 404); atA+atB > 0 {
					t.Errorf("an adapter of the other base model: %d and %d", atA, atB)
				}
				for _, body := range []string{`{"worker": 0, "adapter": "x"}`, `{"worker": 1, "adapter": "a"}`} {
					if status, text := post(t, srv.URL+"/admin/load", body); status != 400 ||
						!strings.Contains(text, "belongs to base model") {
						t.Errorf("load %s: %d %s", body, status, text)
					}
				}
				_, text := get(t, srv.URL+"/v1/models")
				var models struct{ Data []modelFields }
				if err := json.Unmarshal([]byte(text), &models); err != nil {
					t.Fatal(err)
				}
				parents := map[string]string{}
				for _, m := range models.Data {
					parents[m.ID] = m.Parent
					if m.Created <= 0 || m.Root == "" || m.Object != "model" || m.OwnedBy != "lorasim" ||
						(m.Parent == "") != (m.MaxModelLen > 0) {
						t.Errorf("%s: %+v", text, m)
					}
				}
				if parents["x"] != "other" || parents["a"] != "base" {
					t.Errorf("%s: the parents are %v", text, parents)
				}
				b.down.Store(true)
				time.Sleep(time.Second)
				for _, model := range []string{"other", "x"} {
					body := fmt.Sprintf(`{"model": %q, "prompt": [1, 2], "max_tokens": 2}`, model)
					if atA, _, _ := count(body, 3, 503); atA > 0 {
						t.Errorf("model %s: %d requests went to the other base model", model, atA)
					}
				}
			})
		})
	}
}

// With a policy that plans, too, workers of several base models serve side by side, as in a rolling update: a plan
// brings no adapter to a worker of another base model.
func TestPlansOfTwoBaseModels(t *testing.T) {
	inMemory(t, func(t *memory) {
		a := newTestWorker(t, httpapi.SGLang)
		b := newModelWorker(t, httpapi.SGLang, "other", emulate.Adapter{Name: "x", Path: "x-r8"})
		srv := newGateway(t, "plan-and-route", nil, a)
		if status, _, text := change(t, "POST", srv.URL, fmt.Sprintf(`{"url": %q}`, b.srv.URL)); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		seenA, seenB := a.seen.Load(), b.seen.Load()
		const n = 40
		for range n {
			for _, model := range []string{"base", "a", "other", "x"} {
				body := fmt.Sprintf(`{"model": %q, "prompt": [1], "max_tokens": 2}`, model)
				if status, text := post(t, srv.URL+"/v1/completions", body); status != 200 {
					t.Errorf("%s: %d %s", model, status, text)
				}
			}
			time.Sleep(time.Second) // plans are made meanwhile
		}
		if atA, atB := a.seen.Load()-seenA, b.seen.Load()-seenB; atA != 2*n || atB != 2*n {
			t.Errorf("%d and %d requests, expected %d each", atA, atB, 2*n)
		}
		var state struct{ Workers []fleet.WorkerState }
		_, text := get(t, srv.URL+"/admin/workers")
		if err := json.Unmarshal([]byte(text), &state); err != nil || len(state.Workers) != 2 {
			t.Fatalf("%v: %s", err, text)
		}
		if slices.Contains(state.Workers[0].Adapters, "x") || slices.Contains(state.Workers[1].Adapters, "a") {
			t.Errorf("the workers hold %v and %v", state.Workers[0].Adapters, state.Workers[1].Adapters)
		}
	})
}

// modelFields are the fields of an entry of /v1/models, of which OpenAI's clients require the first four.
type modelFields struct {
	ID          string
	Object      string
	Created     int64
	OwnedBy     string `json:"owned_by"`
	Root        string
	Parent      string
	MaxModelLen int `json:"max_model_len"`
}

// update replaces the process of a worker by a vLLM one with another base model.
func (w *testWorker) update(t *memory, model string) {
	t.Helper()
	w.srv.Kill()
	next, err := emulate.New(emulate.Config{ModelName: model, Costs: fastProfile().Compile(), API: httpapi.VLLM,
		Speed: speed})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	w.srv = t.net.Serve(strings.TrimPrefix(w.srv.URL, "http://"), http.HandlerFunc(
		func(rw http.ResponseWriter, r *http.Request) { next.ServeHTTP(rw, r) }))
}

// Workers are updated to another base model one after the other. Its former name, and the adapters of the former base
// model, are refused afterwards, until an operator loads an adapter. With an alias, both are served at any time.
func TestRollingUpdate(t *testing.T) {
	for _, policy := range []string{"least-loaded", "plan-and-route"} {
		for _, alias := range []bool{false, true} {
			inMemory(t, func(t *memory) {
				ws := []*testWorker{newModelWorker(t, httpapi.VLLM, "old"), newModelWorker(t, httpapi.VLLM, "old")}
				srv, _ := startGateway(t, policy, func(c *fleet.Config) {
					if alias {
						c.Aliases = map[string]string{"old": "new"}
					}
				}, nil, ws...)
				ask := func(model string, want int) {
					t.Helper()
					status, text := post(t, srv.URL+"/v1/completions",
						fmt.Sprintf(`{"model": %q, "prompt": [1], "max_tokens": 2}`, model))
					if status != want || want == 200 && !strings.Contains(text, fmt.Sprintf(`"model":%q`, model)) {
						t.Errorf("%s, alias %t: %s: %d %s, expected %d", policy, alias, model, status, text, want)
					}
				}
				every := func(old, fresh, adapter int) {
					t.Helper()
					for range 6 {
						ask("old", old)
						ask("new", fresh)
						ask("a", adapter)
					}
				}
				every(200, 404, 200)
				ws[0].update(t, "new")
				time.Sleep(time.Second)
				every(200, 200, 200)
				ws[1].update(t, "new")
				time.Sleep(time.Second)
				if alias {
					every(200, 200, 200)
					ask("old:b", 200)
					return
				}
				every(404, 200, 404)
				_, text := post(t, srv.URL+"/v1/completions", `{"model": "a", "prompt": [1]}`)
				if !strings.Contains(text, "adapter a belongs to base model old, and the workers serve new") {
					t.Errorf("an adapter of the former base model: %s", text)
				}
				if status, text := post(t, srv.URL+"/admin/load", `{"worker": 1, "adapter": "a"}`); status != 200 {
					t.Errorf("load: %d %s", status, text)
				}
				every(404, 200, 200)
				ask("b", 404)
			})
		}
	}
}
