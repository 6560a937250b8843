package epp

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/shareddata"
	"lorasim/trace"
)

const kserveLora = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: single-profile-handler
- type: queue-scorer
- type: kv-cache-utilization-scorer
- type: prefix-cache-scorer
- type: no-hit-lru-scorer
- type: max-score-picker
- type: lora-affinity-scorer
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: lora-affinity-scorer
    weight: 4
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: kv-cache-utilization-scorer
    weight: 2
  - pluginRef: prefix-cache-scorer
    weight: 3
  - pluginRef: no-hit-lru-scorer
    weight: 2
  - pluginRef: max-score-picker
`

func mustParse(tb testing.TB, text string, d Dialect) *Config {
	tb.Helper()
	c, err := Parse([]byte(text), "test.yaml", d)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// TestConfigs reads 27 configurations that operators run. Those with plugins that are not run are refused by name.
func TestConfigs(t *testing.T) {
	dir := shareddata.Path(t, "epp_configs")
	refused := map[string]string{
		"gie-v1.5.0-chart-latency-predictor.yaml":             "plugin predicted-latency-producer: not supported",
		"kserve-sample-precise-prefix.yaml":                   "plugin precise-prefix-cache-producer: not supported",
		"llmd-guide-pd-2025.yaml":                             `"prefill-header-handler" is not registered (dialect`,
		"llmd-guide-precise-prefix-2025.yaml":                 `"precise-prefix-cache-scorer" is not registered (diale`,
		"llmd-router-dp-epp-config.yaml":                      "plugin data-parallel-profile-handler: not supported",
		"llmd-router-epp-burst-prefix-cache-config.yaml":      "plugin token-producer: parameter vllm",
		"llmd-router-epp-precise-prefix-cache-config.yaml":    "plugin token-producer: parameter vllm",
		"llmd-router-perf-precise-prefix.yaml":                "plugin token-producer: parameter vllm",
		"llmd-router-probabilistic-admitter-epp-config.yaml":  `"probabilistic-admitter" is not registered (dialect`,
		"llmd-router-sim-epp-no-hit-lru.yaml":                 "plugin precise-prefix-cache-producer: not supported",
		"llmd-router-soft-reflective-ceiling-epp-config.yaml": "plugin soft-reflective-ceiling-policy: not supported",
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) != 27 {
		t.Fatalf("%d configurations, expected 27: %v", len(paths), err)
	}
	run, split := 0, 0
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Parse(data, path, "")
		want := refused[filepath.Base(path)]
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, expected %q", filepath.Base(path), err, want)
		case want != "":
		case err != nil:
			t.Error(err)
		case c.Disaggregated():
			split++
		default:
			run++
		}
	}
	if run != 11 || split != 5 {
		t.Errorf("%d run with one server for each request, %d with two; expected 11 and 5", run, split)
	}
}

func TestRefusals(t *testing.T) {
	const head = "plugins:\n- type: queue-scorer\n"
	for _, c := range []struct {
		text string
		d    Dialect
		want string
	}{
		{"plugins:\n- type: queue-scorrer\n", GIE, `plugins[0]: plugin type "queue-scorrer" is not registered`},
		{"plugin: []\n", GIE, `unknown field "plugin"`},
		{head + "schedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: x\n", GIE, `undefined plugin "x"`},
		{head + "schedulingProfiles:\n- name: a\n  plugins:\n  - pluginRef: queue-scorer\n    weight: high\n", GIE,
			"weight"},
		{"plugins:\n- type: max-score-picker\n  parameters: {maxEndpoints: 2}\n", LLMD, `unknown field "maxEndpoints"`},
		{"plugins:\n- type: precise-prefix-cache-producer\n", LLMD, "precise-prefix-cache-producer: not supported"},
		{"featureGates: [flowControl]\n" + head, GIE, "plugin flowControl: feature gate"},
		{"apiVersion: llm-d.ai/v1\n" + head, GIE, `apiVersion "llm-d.ai/v1": gie reads inference`},
		{head, "envoy", `dialect "envoy": expected gie or llm-d`},
		{"plugins:\n- type: utilization-detector\n  parameters: {metricsStalenessThreshold: soon}\n", GIE, "soon"},
	} {
		if _, err := Parse([]byte(c.text), "f.yaml", c.d); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, expected %q", c.text, err, c.want)
		}
	}
	var u *Unsupported
	_, err := Parse([]byte("plugins:\n- {name: x, type: latency-slo-admitter}\n"), "f.yaml", GIE)
	if !errors.As(err, &u) || u.Plugin != "x" {
		t.Errorf("%v, expected an Unsupported of plugin x", err)
	}
}

// endpoints are n idle servers.
func endpoints(n int) []Endpoint {
	eps := make([]Endpoint, n)
	for i := range eps {
		eps[i] = Endpoint{ID: i, Address: fmt.Sprintf("10.0.0.%d:8000", i+1), MaxLora: 4, BlockSize: 16,
			NumBlocks: 4000}
	}
	return eps
}

// TestPickers: ties and weights decide by chance, in proportion.
func TestPickers(t *testing.T) {
	for _, c := range []struct {
		picker string
		want   [3]float64 // share of each server; waiting 0, 0, 2
	}{
		{"max-score-picker", [3]float64{0.5, 0.5, 0}},
		{"random-picker", [3]float64{1. / 3, 1. / 3, 1. / 3}},
		{"weighted-random-picker", [3]float64{0.5, 0.5, 0}},
	} {
		s := NewScheduler(mustParse(t, "plugins:\n- type: queue-scorer\n- type: "+c.picker+"\n", GIE), Options{Seed: 7})
		eps := endpoints(3)
		eps[2].Waiting = 2
		var got [3]float64
		const n = 20000
		for id := range int64(n) {
			d, reason := s.Schedule(&Request{ID: id}, eps)
			if reason != nil {
				t.Fatal(reason)
			}
			got[d.primary()] += 1. / n
		}
		for i := range got {
			if math.Abs(got[i]-c.want[i]) > 0.02 {
				t.Errorf("%s: shares %v, expected %v", c.picker, got, c.want)
				break
			}
		}
	}
}

// TestSeed: the same seed gives the same picks.
func TestSeed(t *testing.T) {
	c, eps := mustParse(t, "plugins:\n- type: queue-scorer\n", GIE), endpoints(8)
	run := func(seed uint64) (picks []int) {
		s := NewScheduler(c, Options{Seed: seed})
		for id := range int64(200) {
			r := Request{ID: id, Model: "a", Prompts: []Content{Text("short")}}
			d, _ := s.Schedule(&r, eps)
			s.Commit(&r, d)
			picks = append(picks, d.primary())
		}
		return picks
	}
	if a, b := run(3), run(3); !slices.Equal(a, b) {
		t.Error("the same seed gave other picks")
	}
	if slices.Equal(run(3), run(4)) {
		t.Error("another seed gave the same 200 picks among equals")
	}
}

// TestFlight: what is in flight is given back, once, in any order.
func TestFlight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, open := newFlight(), map[int64][2]int64{}
		for id := range int64(rapid.IntRange(0, 50).Draw(t, "requests")) {
			server, tokens := rapid.IntRange(0, 3).Draw(t, "server"), rapid.Int64Range(0, 1000).Draw(t, "tokens")
			f.add(id, server, tokens)
			open[id] = [2]int64{int64(server), tokens}
			done := rapid.Int64Range(0, id).Draw(t, "done")
			if rapid.Bool().Draw(t, "first token") {
				f.firstToken(done)
				if o, ok := open[done]; ok {
					open[done] = [2]int64{o[0], 0}
				}
			} else {
				f.ended(done)
				delete(open, done)
			}
		}
		for server := range 4 {
			var requests, tokens int64
			for _, o := range open {
				if o[0] == int64(server) {
					requests, tokens = requests+1, tokens+o[1]
				}
			}
			if f.Requests(server) != requests || f.Tokens(server) != tokens {
				t.Fatalf("server %d has %d requests, %d tokens; expected %d, %d", server, f.Requests(server),
					f.Tokens(server), requests, tokens)
			}
		}
		if f.Open() != len(open) {
			t.Fatalf("%d in flight, expected %d", f.Open(), len(open))
		}
	})
}

// TestLRU holds the set against a list.
func TestLRU(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLRU(rapid.IntRange(1, 6).Draw(t, "capacity"))
		var list []uint64 // oldest first
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			k := rapid.Uint64Range(0, 9).Draw(t, "key")
			l.add(k)
			list = slices.DeleteFunc(list, func(x uint64) bool { return x == k })
			if list = append(list, k); len(list) > l.capacity {
				list = list[1:]
			}
			for k := range uint64(10) {
				if got := l.rank(k); got != slices.Index(list, k) {
					t.Fatalf("rank of %d is %d, expected %d of %v", k, got, slices.Index(list, k), list)
				}
			}
		}
	})
}

// TestSimulatedPrompts: simulated prompts match as far as their texts agree.
func TestSimulatedPrompts(t *testing.T) {
	s := NewScheduler(mustParse(t, kserveLora, ""), Options{})
	root := &trace.Text{ID: 1, Block: 640}
	a, b := &trace.Text{ID: 2, Parent: root, Start: 640}, &trace.Text{ID: 3, Parent: root, Start: 640}
	eps := endpoints(1)
	for i, c := range []struct {
		text    *trace.Text
		model   string
		matched int
	}{{a, "x", 0}, {a, "x", 16}, {b, "x", 10}, {b, "y", 0}} {
		r := Request{ID: int64(i), Model: c.model, Prompts: []Content{&simulated{c.text, 1024, 1024, int64(i)}}}
		d, reason := s.Schedule(&r, eps)
		if reason != nil {
			t.Fatal(reason)
		}
		if m := s.Matches()[0]; m != (Match{c.matched, 16, 64}) {
			t.Errorf("request %d matches %+v, expected %d of 16 blocks of 64", i, m, c.matched)
		}
		s.Commit(&r, d)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(kserveLora)
	f.Add("plugins:\n- type: utilization-filter\n  parameters: {conditions: [{metric: x, maxValue: 1}]}\n")
	f.Add(`{"schedulingProfiles":[{"name":"a","plugins":[{"pluginRef":"a","weight":-1e309}]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range []Dialect{"", GIE, LLMD} {
			c, err := Parse([]byte(text), "fuzz.yaml", d)
			if err != nil {
				continue
			}
			s := NewScheduler(c, Options{})
			r := Request{ID: 1, Model: "m", Prompts: []Content{Text(text)}}
			if d, reason := s.Schedule(&r, endpoints(3)); reason == nil {
				s.Commit(&r, d)
			}
			s.Ended(1)
			if s.flight != nil && s.flight.Open() != 0 {
				t.Errorf("%d requests in flight after the end", s.flight.Open())
			}
		}
	})
}

// llm-d's picker reads the model and the prompt of Anthropic's messages; GIE's takes them for completions.
func TestMessages(t *testing.T) {
	body := `{"model":"m","max_tokens":5,"system":"Be brief.","messages":[{"role":"user","content":"Hi"},` +
		`{"role":"assistant","content":[{"type":"text","text":"Yes?"}]}]}`
	b, reason := ParseBody(LLMD, "/v1/messages", []byte(body))
	prompt := "Be brief.userHiassistantYes?"
	if reason != nil || b.Model != "m" || len(b.Prompts) != 1 || b.Prompts[0].Len() != len(prompt) {
		t.Errorf("%+v, %v", b, reason)
	}
	for text, want := range map[string]string{
		`{"model":"m","messages":[]}`: "invalid messages request: must have at least one message",
		`{"messages":[{}]}`:           "model not found in request body",
	} {
		_, reason := ParseBody(LLMD, "/v1/messages", []byte(text))
		if reason == nil || !strings.Contains(reason.Error(), want) {
			t.Errorf("%s: %v, expected %s", text, reason, want)
		}
	}
	if _, reason := ParseBody(GIE, "/v1/messages", []byte(body)); reason == nil ||
		!strings.Contains(reason.Error(), "must have prompt field") {
		t.Errorf("GIE: %v", reason)
	}
}

func FuzzParseBody(f *testing.F) {
	f.Add("/v1/completions", `{"model":"m","prompt":["a","b"]}`)
	f.Add("/v1/chat/completions", `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"x"}]}]}`)
	f.Add("/v1/embeddings", `{"model":"m","input":[[1,2],[3]]}`)
	f.Add("/v1/responses", `{"model":"m","input":"x","tools":[]}`)
	f.Fuzz(func(t *testing.T, path, text string) {
		for _, d := range []Dialect{GIE, LLMD} {
			b, reason := ParseBody(d, path, []byte(text))
			if (b == nil) != (reason != nil) && reason == nil {
				t.Fatal("neither a body nor a reason")
			}
			if reason == nil && string(b.For(b.Model)) != text {
				t.Error("a body that is not rewritten changed")
			}
		}
	})
}

// BenchmarkSchedule is a decision with its commit and end, among 8 workers with 4 adapters each.
func BenchmarkSchedule(b *testing.B) {
	for name, prompt := range map[string]Content{
		"text=8KB":         Text(strings.Repeat("0123456789abcdef", 512)),
		"simulated=2048":   &simulated{&trace.Text{ID: 1}, 2048, 2048, 1},
		"unknown=2048":     &simulated{nil, 0, 2048, 1},
		"text=short":       Text("hello, world"),
		"simulated=100000": &simulated{&trace.Text{ID: 1}, 100000, 100000, 1},
	} {
		b.Run(name, func(b *testing.B) {
			s := NewScheduler(mustParse(b, kserveLora, ""), Options{Seed: 1})
			eps := endpoints(8)
			for i := range eps {
				eps[i].Waiting, eps[i].Running, eps[i].KV = i%3, 2*i, float64(i)/10
				eps[i].RunningAdapters = []string{"a", "b", "c", fmt.Sprint("adapter", i)}
			}
			r := Request{Model: "adapter3", Prompts: []Content{prompt}}
			b.ReportAllocs()
			for b.Loop() {
				r.ID++
				d, reason := s.Schedule(&r, eps)
				if reason != nil {
					b.Fatal(reason)
				}
				s.Commit(&r, d)
				s.Ended(r.ID)
			}
		})
	}
}
