package edit

import (
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/shareddata"
	"lorasim/router/epp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden are changed configurations in all styles that people write: comments, brackets, JSON, no profile, no end of
// the last line.
var golden = []struct{ name, text, changes string }{
	{"comments.yaml", `# Ours, since May.
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig

plugins:
- type: queue-scorer           # waiting requests
- type: prefix-cache-scorer
  # raised for the long system prompts
  name: "prefix"
- type: prefix-cache-affinity-filter
  parameters:
    affinityThreshold: 0.80    # share of the prompt
    maxTTFTPenaltyMs: 0
- type: utilization-filter
  parameters:
    conditions:
    - metric: waiting-queue
      maxValue: 8
    - {metric: kv-cache-utilization, maxValue: 0.9}

schedulingProfiles:
- name: default
  plugins:
  # filters first
  - pluginRef: prefix-cache-affinity-filter
  - pluginRef: utilization-filter
  - weight: 2                  # as upstream
    pluginRef: queue-scorer
  - pluginRef: prefix          # no weight: 1

# The end.
`, "queue-scorer:0/prefix:3/lora-affinity-scorer:4/prefix-cache-affinity-filter.affinityThreshold:0.65/" +
		"prefix-cache-affinity-filter.explorationProbability:0.05/utilization-filter.conditions.0.maxValue:16/" +
		"utilization-filter.conditions.1.maxValue:0.75/prefix.matchLengthWeight:0.5"},
	{"brackets.yaml", `plugins:
- {type: queue-scorer}
- { type: token-load-scorer, name: tokens, parameters: {} }
- {type: concurrency-detector, parameters: { maxConcurrency: 7 }}
schedulingProfiles: [{name: a, plugins: [{pluginRef: queue-scorer}, {pluginRef: tokens, weight: 2 },
  {pluginRef: concurrency-detector}]}]
`, "queue-scorer:3/tokens:1/tokens.queueThresholdTokens:65536/concurrency-detector.maxConcurrency:64/" +
		"lora-affinity-scorer:2"},
	{"document.json", `{
  "plugins": [
    {"type": "queue-scorer"},
    {"type": "load-aware-scorer", "parameters": {"threshold": 10}}
  ],
  "apiVersion": "llm-d.ai/v1alpha1"
}
`, "load-aware-scorer.threshold:64/queue-scorer:2/lora-affinity-scorer:4"},
	{"noprofile.yaml", "plugins:\n- type: queue-scorer\n- type: single-profile-handler\n- type: max-score-picker",
		"queue-scorer:3/lora-affinity-scorer:4"},
	{"empty.yaml", "# nothing\n", "prefix-cache-scorer:8/lora-affinity-scorer:2/" +
		"prefix-cache-scorer.maxPrefixBlocksToMatch:2048"},
	{"null.yaml", "apiVersion: llm-d.ai/v1\nplugins:\n- type: load-aware-scorer\n  parameters:\n  name: x\n",
		"x.threshold:12"},
	{"crlf.yaml", "plugins:\r\n- type: queue-scorer\r\nschedulingProfiles:\r\n- name: a\r\n  plugins:\r\n" +
		"  - pluginRef: queue-scorer\r\n", "queue-scorer:2/lora-affinity-scorer:1"},
}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		out, err := Apply([]byte(g.text), g.name, "", changes(t, g.changes))
		if err != nil {
			t.Errorf("%s: %v", g.name, err)
			continue
		}
		out = Comment(out, "Changed by a test.")
		path := filepath.Join("testdata", g.name)
		if *update {
			if err := os.WriteFile(path, out, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(out) != string(want) {
			t.Errorf("%s (-update writes it anew):\n got %s\nwant %s", g.name, out, want)
		}
	}
}

func changes(tb testing.TB, text string) []epp.Change {
	tb.Helper()
	out, err := epp.ParseChanges(text)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// TestKeepsLines: nothing but the lines of the numbers changes.
func TestKeepsLines(t *testing.T) {
	g := golden[0]
	out, err := Apply([]byte(g.text), g.name, "", changes(t, "queue-scorer:5/lora-affinity-scorer:4"))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(g.text, "weight: 2 ", "weight: 5 ", 1)
	want = strings.Replace(want, "\nschedulingProfiles", "- type: lora-affinity-scorer\n\nschedulingProfiles", 1)
	want = strings.Replace(want, "no weight: 1\n",
		"no weight: 1\n  - pluginRef: lora-affinity-scorer\n    weight: 4\n", 1)
	if string(out) != want {
		t.Errorf("got %s\nwant %s", out, want)
	}
}

func TestRefuses(t *testing.T) {
	aliased := "plugins:\n- {type: load-aware-scorer, name: a, parameters: &p {threshold: 5}}\n" +
		"- {type: load-aware-scorer, name: b, parameters: *p}\napiVersion: llm-d.ai/v1alpha1\n"
	for _, test := range []struct{ text, changes, want string }{
		{aliased, "a.threshold:7", errPlace.Error()},
		{aliased, "b.threshold:7", errPlace.Error()},
		{"plugins:\n- type: precise-prefix-cache-scorer\napiVersion: llm-d.ai/v1alpha1\n", "a:1", "not supported"},
		{"plugins: [", "a:1", "c.yaml:1"},
		{"plugins:\n- type: queue-scorer\n", "queue:1", "c.yaml: set: unknown number"},
	} {
		_, err := Apply([]byte(test.text), "c.yaml", "", changes(t, test.changes))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q %s: error %v, expected %q", test.text, test.changes, err, test.want)
		}
	}
}

// TestAnyChange: every configuration that a search can make of those that operators run, and of the golden ones, can be
// written in place.
func TestAnyChange(t *testing.T) {
	texts := map[string]string{}
	for _, g := range golden {
		texts[g.name] = g.text
	}
	paths, _ := filepath.Glob(filepath.Join(shareddata.Dir(), "epp_configs", "*.yaml")) // absent: the golden ones do
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := epp.Parse(data, path, ""); err == nil && !c.Disaggregated() {
			texts[filepath.Base(path)] = string(data)
		}
	}
	var names []string
	for name := range texts {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := texts[rapid.SampledFrom(names).Draw(t, "config")]
		c, err := epp.Parse([]byte(text), "c.yaml", "")
		if err != nil {
			t.Fatal(err)
		}
		var list []epp.Change
		for _, n := range c.Numbers("lora-affinity-scorer", "running-requests-size-scorer") {
			if !rapid.Bool().Draw(t, "change "+n.Name()) {
				continue
			}
			v := rapid.Float64Range(n.Low, n.High).Draw(t, n.Name())
			if n.Whole {
				v = math.Round(v)
			}
			list = append(list, epp.Change{Name: n.Name(), Value: v})
		}
		if _, err := Apply([]byte(text), "c.yaml", "", list); err != nil { // Apply compares with what With makes
			t.Fatalf("%s: %v", epp.FormatChanges(list), err)
		}
	})
}

// FuzzApply: any text is refused or changed; the result is one that Apply has checked.
func FuzzApply(f *testing.F) {
	for _, g := range golden {
		f.Add(g.text, 3.0)
	}
	f.Fuzz(func(t *testing.T, text string, value float64) {
		c, err := epp.Parse([]byte(text), "c.yaml", "")
		if err != nil || c.Disaggregated() {
			return
		}
		numbers := c.Numbers("lora-affinity-scorer")
		if len(numbers) == 0 {
			return
		}
		ch := []epp.Change{{Name: numbers[0].Name(), Value: value}, {Name: numbers[len(numbers)-1].Name(), Value: 1}}
		want, err := c.With(ch)
		if err != nil {
			return
		}
		out, err := Apply([]byte(text), "c.yaml", "", ch)
		if err != nil {
			if !errors.Is(err, errPlace) {
				t.Fatal(err)
			}
			return
		}
		if got, err := epp.Parse(out, "c.yaml", ""); err != nil || !got.Same(want) {
			t.Fatalf("%s: %v", out, err)
		}
	})
}
