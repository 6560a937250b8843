package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A gen generates cases from one random generator, so that a seed determines all.
type gen struct {
	r   *rand.Rand
	n   int
	seq int
}

func (g *gen) chance(p float64) bool { return g.r.Float64() < p }
func (g *gen) between(a, b int) int  { return a + g.r.IntN(b-a+1) }

var adapters = []string{"sql-lora", "tweet-summary-0", "tweet-summary-1", "chat", "code", "law-v2"}

const base = "meta-llama/Llama-3.1-8B-Instruct"

var words = strings.Fields(`the serving of many adapters on few accelerators needs a router that knows where weights are
 and how long queues have grown while prompts share what they begin with über naïve <tags> & "quotes" 日本語 é`)

func (g *gen) text(n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(words[g.r.IntN(len(words))])
		b.WriteByte(' ')
	}
	return b.String()
}

// view is the properties of n random endpoints.
type view struct {
	maxLora          int
	vllm             bool // running and waiting adapters have the same names, as in vLLM V1's metrics
	blocks           bool // block size and number of blocks are reported
	extreme, latency bool
}

func (g *gen) endpoints(n int, v view) []Endpoint {
	out := make([]Endpoint, n)
	for i := range out {
		e := Endpoint{Name: fmt.Sprintf("pod-%d", i), Address: fmt.Sprintf("10.0.0.%d:8000", i+1)}
		e.Queue = g.r.IntN(4) * g.r.IntN(8)
		e.Running = g.r.IntN(5) * g.r.IntN(12)
		e.KV = float64(g.r.IntN(1001)) / 1000
		if g.chance(0.3) && i > 0 { // ties
			e.Queue, e.Running, e.KV = out[i-1].Queue, out[i-1].Running, out[i-1].KV
		}
		if v.maxLora > 0 {
			e.MaxActive = v.maxLora
			if g.chance(0.1) {
				e.MaxActive = 0 // no request with an adapter yet: vLLM does not report it
			} else {
				p := g.r.Perm(len(adapters))
				for _, k := range p[:g.r.IntN(v.maxLora+1)%len(adapters)] {
					e.Active = append(e.Active, adapters[k])
				}
				if v.vllm {
					e.Waiting = append([]string(nil), e.Active...)
				} else {
					for _, k := range g.r.Perm(len(adapters))[:g.r.IntN(3)] {
						e.Waiting = append(e.Waiting, adapters[k])
					}
				}
			}
		}
		if v.blocks {
			e.BlockSize = 2 + 2*g.r.IntN(2)
			e.NumBlocks = g.between(4, 24)
		}
		if v.extreme {
			switch g.r.IntN(5) {
			case 0:
				e.KV = 1.25 // a KV usage above 1
			case 1:
				e.KV = -0.5
			case 2:
				e.Stale = true
			case 3:
				e.Queue = 1000
			}
		}
		if v.latency && !g.chance(0.1) {
			e.Latency = &Latency{
				TTFTHeadroom: float64(g.between(-400, 400)), TPOTHeadroom: float64(g.between(-40, 40)),
				TTFT: float64(g.between(10, 8000)), TPOT: float64(g.between(5, 80)), Dispatched: g.r.IntN(3),
			}
		}
		out[i] = e
	}
	return out
}

func (g *gen) model() string {
	if g.chance(0.2) {
		return base
	}
	return adapters[g.r.IntN(len(adapters))]
}

func (g *gen) request(prompt any, model string, extra map[string]any) Request {
	g.seq++
	b := map[string]any{"model": model, "prompt": prompt, "max_tokens": 16}
	for k, v := range extra {
		b[k] = v
	}
	return g.raw("/v1/completions", b)
}

func (g *gen) raw(path string, b any) Request {
	j, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return Request{ID: fmt.Sprintf("r%d", g.seq), Path: path, Body: j}
}

// talk is a growing conversation, in one of the forms that the parser accepts.
type talk struct {
	model, salt string
	form        int
	turns       []string
}

func (g *gen) talk(form int) *talk {
	t := &talk{model: g.model(), form: form, turns: []string{g.text(g.between(20, 160))}}
	if g.chance(0.2) {
		t.salt = fmt.Sprint("tenant-", g.r.IntN(2))
	}
	return t
}

func (t *talk) request(g *gen) Request {
	g.seq++
	b := map[string]any{"model": t.model}
	if t.salt != "" {
		b["cache_salt"] = t.salt
	}
	switch t.form {
	case 0:
		b["prompt"] = strings.Join(t.turns, "")
		return g.raw("/v1/completions", b)
	case 1:
		b["prompt"] = t.turns
		return g.raw("/v1/completions", b)
	case 2, 3:
		var m []any
		for i, s := range t.turns {
			role := []string{"user", "assistant"}[i%2]
			if t.form == 3 {
				m = append(m, map[string]any{"role": role, "content": []any{map[string]any{"type": "text", "text": s}}})
			} else {
				m = append(m, map[string]any{"role": role, "content": s})
			}
		}
		b["messages"] = m
		return g.raw("/v1/chat/completions", b)
	default:
		b["input"] = strings.Join(t.turns, "")
		b["instructions"] = "be brief"
		return g.raw("/v1/responses", b)
	}
}

func (g *gen) newCase(config string) *Case {
	g.n++
	return &Case{
		ID:     fmt.Sprintf("%s-%d", strings.TrimSuffix(config, ".yaml"), g.n),
		Config: config, Seed: 1 + g.r.Uint64N(1<<32),
	}
}

// single returns a case of one or a few requests, each with a random view.
func (g *gen) single(config string, v view, steps int) *Case {
	c := g.newCase(config)
	n := g.between(1, 6)
	if g.chance(0.9) && n == 1 {
		n = 3
	}
	for range steps {
		c.Steps = append(c.Steps, Step{
			Endpoints: g.endpoints(n, v), Request: g.request(g.text(g.between(0, 120)), g.model(), nil),
		})
	}
	return c
}

// sequence returns a case of several conversations with recurring prefixes.
func (g *gen) sequence(config string, v view, steps int) *Case {
	c := g.newCase(config)
	n := g.between(2, 4)
	eps := g.endpoints(n, v)
	var talks []*talk
	var open []string
	for i := range steps {
		var t *talk
		if len(talks) == 0 || g.chance(0.3) {
			t = g.talk(g.r.IntN(5))
			if len(talks) > 0 && g.chance(0.4) { // same beginning, for another model or with another salt
				o := talks[g.r.IntN(len(talks))]
				t.form, t.turns = o.form, append([]string(nil), o.turns...)
			}
			talks = append(talks, t)
		} else {
			t = talks[g.r.IntN(len(talks))]
			if g.chance(0.7) {
				t.turns = append(t.turns, g.text(g.between(5, 90)))
			}
		}
		s := Step{Request: t.request(g)}
		if i == 0 || g.chance(0.3) {
			for k := range eps { // the load changes, the servers' properties do not
				f := g.endpoints(1, view{})[0]
				eps[k].Queue, eps[k].Running, eps[k].KV = f.Queue, f.Running, f.KV
			}
			s.Endpoints = append([]Endpoint(nil), eps...)
		}
		for len(open) > 0 && g.chance(0.4) {
			k := g.r.IntN(len(open))
			s.Finished = append(s.Finished, open[k])
			open = append(open[:k], open[k+1:]...)
		}
		open = append(open, s.Request.ID)
		c.Steps = append(c.Steps, s)
	}
	return c
}

func record(read func(string) ([]byte, error), out string, seed uint64) error {
	g := &gen{r: rand.New(rand.NewPCG(seed, 0))}
	files := map[string][]*Case{}
	add := func(file string, c *Case) { files[file] = append(files[file], c) }
	for range 60 {
		add("lora", g.single("lora.yaml", view{maxLora: g.between(1, 5), vllm: g.chance(0.5)}, 1))
		add("lora", g.single("lora-weights.yaml", view{maxLora: g.between(1, 5), vllm: g.chance(0.5)}, 1))
	}
	for range 30 {
		add("load", g.single("load.yaml", view{}, 1))
		add("load", g.single("weighted-random.yaml", view{maxLora: 2}, 1))
		add("load", g.single("clamp.yaml", view{extreme: true}, 1))
		add("load", g.single("top3.yaml", view{}, 1))
		add("latency", g.single("latency.yaml", view{latency: true}, 1))
		add("latency", g.single("latency-composite.yaml", view{extreme: g.chance(0.2)}, 1))
	}
	for range 40 {
		add("prefix", g.sequence("chart-default.yaml", view{}, 8))
		add("prefix", g.sequence("prefix-small.yaml", view{}, 10))
		add("prefix", g.sequence("prefix-autotune.yaml", view{blocks: true}, 12))
		add("inflight", g.sequence([]string{"inflight.yaml", "inflight-tokens.yaml"}[g.r.IntN(2)], view{}, 12))
	}
	for range 30 {
		c := g.single("saturation.yaml", view{extreme: true}, 3)
		c.Objectives = map[string]int{"batch": -1, "chat": 10}
		for i := range c.Steps {
			objective := []string{"batch", "chat", "unknown"}[g.r.IntN(3)]
			c.Steps[i].Request.Headers = map[string]string{"x-gateway-inference-objective": objective}
		}
		add("saturation", c)
	}
	// Other forms of requests.
	for range 10 {
		c := g.single("lora.yaml", view{maxLora: 3}, 1)
		c.Rewrites = map[string]string{"sql-lora": "sql-lora-v3", "chat": "code"}
		add("requests", c)
		c = g.single("lora.yaml", view{maxLora: 3}, 1)
		c.Steps[0].Request.Headers = map[string]string{"x-gateway-model-name-rewrite": "code"}
		add("requests", c)
		c = g.single("lora.yaml", view{maxLora: 3}, 1)
		c.Steps[0].Request.Subset = &[]string{"10.0.0.1:8000", "10.0.0.3:9999", "10.0.0.77"}
		add("requests", c)
	}
	odd := []struct {
		path string
		body any
	}{
		{"/v1/completions", map[string]any{"model": "chat", "prompt": []int{1, 2, 3, 4}}},
		{"/v1/completions", map[string]any{"model": "chat", "prompt": ""}},
		{"/v1/completions", map[string]any{"prompt": "no model"}},
		{"/v1/completions", map[string]any{"model": 7, "prompt": "x"}},
		{"/v1/chat/completions", map[string]any{"model": "chat", "messages": []any{}}},
		{"/v1/chat/completions", map[string]any{"model": "chat",
			"messages": []any{map[string]any{"role": "user", "content": nil}}}},
		{"/v1/embeddings", map[string]any{"model": "chat", "input": []string{"a", "b"}}},
		{"/generate", map[string]any{"text": "sglang's own", "sampling_params": map[string]any{}}},
		{"/generate",
			map[string]any{"model": "chat", "prompt": "as completions, whatever the path", "lora_path": "code"}},
		{"/v1/responses", map[string]any{"model": "chat"}},
		{"/v1/completions?x=1", map[string]any{"model": "chat", "prompt": "query"}},
		{"/v1/completions", []any{"not an object"}},
	}
	for _, o := range odd {
		c := g.single("lora.yaml", view{maxLora: 3}, 1)
		g.seq++
		c.Steps[0].Request = g.raw(o.path, o.body)
		add("requests", c)
	}
	empty := g.single("lora.yaml", view{}, 1)
	empty.Steps[0].Endpoints = []Endpoint{}
	add("requests", empty)
	c := g.single("lora.yaml", view{maxLora: 3}, 1)
	c.Steps[0].Request.Subset = &[]string{}
	add("requests", c)

	// Block sizes that servers report and a config does not set; prompts longer than the longest
	// match.
	for range 10 {
		add("prefix-more", g.sequence("prefix-small.yaml", view{blocks: true}, 10))
	}
	for range 3 {
		c := g.newCase("chart-default.yaml")
		long, model := g.text(15900), g.model()
		eps := g.endpoints(3, view{})
		for _, more := range []int{0, 300, 900, 2500} { // 256 blocks of 64 bytes end at 16384
			for k := range eps {
				eps[k].Queue, eps[k].KV = 0, 0.1
			}
			request := g.request(long+g.text(more), model, nil)
			c.Steps = append(c.Steps, Step{Endpoints: slices.Clone(eps), Request: request})
		}
		add("prefix-more", c)
	}

	total := 0
	for _, name := range slices.Sorted(maps.Keys(files)) {
		cs := files[name]
		f, err := os.Create(filepath.Join(out, name+".jsonl"))
		if err != nil {
			return err
		}
		w := bufio.NewWriter(f)
		steps := 0
		for _, c := range cs {
			if err := RunCase(read, c); err != nil {
				return fmt.Errorf("%s: %w", c.ID, err)
			}
			if err := json.NewEncoder(w).Encode(c); err != nil {
				return err
			}
			steps += len(c.Steps)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		f.Close()
		total += len(cs)
		fmt.Printf("%-12s %4d cases %5d requests\n", name, len(cs), steps)
	}
	fmt.Printf("%-12s %4d cases\n", "all", total)
	return recordLoads(out)
}

// recordLoads writes the loader's answers to configs that are invalid or minimal.
func recordLoads(out string) error {
	const head = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n"
	prof := func(refs ...string) string {
		s := "schedulingProfiles:\n- name: default\n  plugins:\n"
		for _, r := range refs {
			s += "  - pluginRef: " + r + "\n"
		}
		return s
	}
	cases := [][2]string{
		{"empty", ""},
		{"no profiles", head + "plugins:\n- type: queue-scorer\n- type: lora-affinity-scorer\n"},
		{"no plugins", head + "plugins: []\nschedulingProfiles: []\n"},
		{"names",
			head + "plugins:\n- name: a\n  type: queue-scorer\n- name: b\n  type: queue-scorer\n" + prof("a", "b")},
		{"twice in one profile", head + "plugins:\n- type: queue-scorer\n" + prof("queue-scorer", "queue-scorer")},
		{"duplicate name", head + "plugins:\n- type: queue-scorer\n- type: queue-scorer\n" + prof("queue-scorer")},
		{"unknown type", head + "plugins:\n- type: queue-scorrer\n" + prof("queue-scorrer")},
		{"missing type", head + "plugins:\n- name: x\n" + prof("x")},
		{"unknown ref", head + "plugins:\n- type: queue-scorer\n" + prof("kv-cache-utilization-scorer")},
		{"ref without a name",
			head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n" +
				"  - weight: 2\n"},
		{"profile without a name", head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- plugins:\n" +
			"  - pluginRef: queue-scorer\n"},
		{"unknown field", head + "plugin:\n- type: queue-scorer\n" + prof("queue-scorer")},
		{"unknown field in a profile",
			head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n" +
				"  - pluginRef: queue-scorer\n    wieght: 2\n"},
		{"unknown parameter",
			head + "plugins:\n- type: max-score-picker\n  parameters:\n    maxEndpoints: 2\n" +
				prof("max-score-picker")},
		{"weight as text",
			head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n" +
				"  - pluginRef: queue-scorer\n    weight: high\n"},
		{"weight of a picker",
			head + "plugins:\n- type: max-score-picker\nschedulingProfiles:\n- name: default\n  plugins:\n" +
				"  - pluginRef: max-score-picker\n    weight: 3\n"},
		{"weight negative",
			head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: default\n  plugins:\n" +
				"  - pluginRef: queue-scorer\n    weight: -1\n"},
		{"two pickers in a profile",
			head + "plugins:\n- type: max-score-picker\n- type: random-picker\n" +
				prof("max-score-picker", "random-picker")},
		{"two profiles without a handler",
			head + "plugins:\n- type: queue-scorer\nschedulingProfiles:\n- name: a\n  plugins:\n" +
				"  - pluginRef: queue-scorer\n- name: b\n  plugins:\n  - pluginRef: queue-scorer\n"},
		{"two profiles, single handler",
			head + "plugins:\n- type: queue-scorer\n- type: single-profile-handler\nschedulingProfiles:\n" +
				"- name: a\n  plugins:\n  - pluginRef: queue-scorer\n- name: b\n  plugins:\n" +
				"  - pluginRef: queue-scorer\n"},
		{"duplicate profile",
			head + "plugins:\n- type: queue-scorer\n- type: single-profile-handler\nschedulingProfiles:\n" +
				"- name: a\n  plugins: []\n- name: a\n  plugins: []\n"},
		{"handler in a profile",
			head + "plugins:\n- type: queue-scorer\n- type: single-profile-handler\n" +
				prof("queue-scorer", "single-profile-handler")},
		{"deprecated blockSize",
			head + "plugins:\n- type: prefix-cache-scorer\n  parameters:\n    autoTune: false\n" +
				"    blockSize: 64\n    blockSizeTokens: 0\n" + prof("prefix-cache-scorer")},
		{"blockSize beside the default",
			head + "plugins:\n- type: prefix-cache-scorer\n  parameters:\n    blockSize: 64\n" +
				prof("prefix-cache-scorer")},
		{"no block size, no autoTune",
			head + "plugins:\n- type: prefix-cache-scorer\n  parameters:\n    autoTune: false\n" +
				"    blockSizeTokens: 0\n" + prof("prefix-cache-scorer")},
		{"hashBlockSize (before v1.2)",
			head + "plugins:\n- type: prefix-cache-scorer\n  parameters:\n    hashBlockSize: 64\n" +
				prof("prefix-cache-scorer")},
		{"unknown gate",
			head + "featureGates:\n- flowcontrol\nplugins:\n- type: queue-scorer\n" + prof("queue-scorer")},
		{"flow control",
			head + "featureGates:\n- flowControl\nplugins:\n- type: queue-scorer\n" + prof("queue-scorer")},
		{"saturation detector inline (v1.1)",
			head + "plugins:\n- type: queue-scorer\nsaturationDetector:\n  queueDepthThreshold: 5\n" +
				prof("queue-scorer")},
		{"saturation detector unknown",
			head + "plugins:\n- type: queue-scorer\nsaturationDetector:\n  pluginRef: nope\n" + prof("queue-scorer")},
		{"detector threshold 0",
			head + "plugins:\n- type: utilization-detector\n  parameters:\n    queueDepthThreshold: 0\n" +
				prof("utilization-detector")},
		{"token-load-scorer beside its producer",
			head + "plugins:\n- type: inflight-load-producer\n- type: token-load-scorer\n" + prof("token-load-scorer")},
		{"wrong kind", "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfigs\nplugins:\n" +
			"- type: queue-scorer\n"},
		{"llm-d's apiVersion",
			"apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n" +
				prof("queue-scorer")},
		{"no apiVersion", "plugins:\n- type: queue-scorer\n" + prof("queue-scorer")},
		{"JSON", `{"apiVersion":"inference.networking.x-k8s.io/v1alpha1","kind":"EndpointPickerConfig",` +
			`"plugins":[{"type":"queue-scorer"}],` +
			`"schedulingProfiles":[{"name":"default","plugins":[{"pluginRef":"queue-scorer","weight":2}]}]}`},
	}
	f, err := os.Create(filepath.Join(out, "load-errors.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	bad := 0
	for _, c := range cases {
		o := struct {
			Name      string `json:"name"`
			YAML      string `json:"yaml"`
			OK        bool   `json:"ok"`
			Error     string `json:"error,omitempty"`
			Effective string `json:"effective,omitempty"`
		}{Name: c[0], YAML: c[1]}
		e, err := newEngine([]byte(c[1]), 0, false, false)
		if err != nil {
			o.Error = err.Error()
			bad++
		} else {
			o.OK, o.Effective = true, e.Effective
			e.Close()
		}
		if err := json.NewEncoder(f).Encode(o); err != nil {
			return err
		}
	}
	fmt.Printf("%-12s %4d configs, %d refused\n", "load-errors", len(cases), bad)
	return nil
}
