package epp

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/shareddata"
)

func TestParseChanges(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "",
		"queue-scorer:3":                "queue-scorer:3",
		" queue-scorer : 3.50 /a.b:1e6": "queue-scorer:3.5/a.b:1000000",
		"a:-1/b.c.0.d:0":                "a:-1/b.c.0.d:0",
	} {
		got, err := ParseChanges(text)
		if err != nil || FormatChanges(got) != want {
			t.Errorf("%q: %q, %v; expected %q", text, FormatChanges(got), err, want)
		}
	}
	for text, want := range map[string]string{
		"queue-scorer": `"queue-scorer": expected PLUGIN:WEIGHT or PLUGIN.PARAMETER:NUMBER`,
		":3":           "expected PLUGIN:WEIGHT",
		"a:b":          "a:b: expected a finite number",
		"a:NaN":        "expected a finite number",
		"a:inf":        "expected a finite number",
		"a:1/a:2":      "a is set twice",
		"a:1/":         `"": expected PLUGIN`,
	} {
		if _, err := ParseChanges(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, expected %q", text, err, want)
		}
	}
}

// tunedBaseline has a filter with thresholds and its producers, as llm-d's baseline of 2026.
const tunedBaseline = `
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-load-scorer
- type: inflight-load-producer
- type: approx-prefix-cache-producer
  parameters: {maxPrefixTokensToMatch: 40960}
- type: prefix-cache-affinity-filter
  parameters: {affinityThreshold: 0.80, maxTokensInFlightPenalty: 286720, maxTTFTPenaltyMs: 0}
- type: utilization-filter
  name: full
  parameters: {conditions: [{metric: waiting-queue, maxValue: 8}, {metric: kv-cache-utilization, maxValue: 0.9}]}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-affinity-filter
  - pluginRef: full
  - pluginRef: token-load-scorer
`

func TestNumbers(t *testing.T) {
	for _, test := range []struct {
		name, text string
		add        []string
		want       string
	}{
		{"KServe", kserveLora, []string{"lora-affinity-scorer"}, "lora-affinity-scorer=4 queue-scorer=2 " +
			"kv-cache-utilization-scorer=2 prefix-cache-scorer=3 no-hit-lru-scorer=2 " +
			"prefix-cache-scorer.matchLengthWeight=0 prefix-cache-scorer.matchLengthScaleTokens=8192 " +
			"no-hit-lru-scorer.lruSize=1024"},
		{"empty", "", []string{"lora-affinity-scorer", "no-hit-lru-scorer"},
			"queue-scorer=2 kv-cache-utilization-scorer=2 prefix-cache-scorer=3 lora-affinity-scorer=0+ prefix-cache-scorer.maxPrefixBlocksToMatch=256"},
		{"baseline", tunedBaseline, nil, "token-load-scorer=1 token-load-scorer.queueThresholdTokens=4194304 " +
			"approx-prefix-cache-producer.maxPrefixTokensToMatch=40960 " +
			"prefix-cache-affinity-filter.affinityThreshold=0.8 prefix-cache-affinity-filter.explorationProbability=0 " +
			"prefix-cache-affinity-filter.maxTTFTPenaltyMs=0 " +
			"prefix-cache-affinity-filter.maxTokensInFlightPenalty=286720 " +
			"full.conditions.0.maxValue=8 full.conditions.1.maxValue=0.9"},
		{"detector outside the profile", "plugins:\n- type: queue-scorer\n- type: utilization-detector\n" +
			"schedulingProfiles:\n- {name: a, plugins: [{pluginRef: queue-scorer}]}\n", nil, "queue-scorer=1"},
		{"detector as a filter", "plugins:\n- type: utilization-detector\n", nil,
			"utilization-detector.queueDepthThreshold=5 utilization-detector.kvCacheUtilThreshold=0.8"},
		{"scorer twice", "plugins:\n- type: queue-scorer\nschedulingProfiles:\n" +
			"- {name: a, plugins: [{pluginRef: queue-scorer, weight: -1}, {pluginRef: queue-scorer}]}\n", nil,
			"queue-scorer=-1"},
		{"GIE's scorer beside its producer",
			"plugins:\n- type: prefix-cache-scorer\n- type: approx-prefix-cache-producer\n", nil,
			"prefix-cache-scorer=1 approx-prefix-cache-producer.maxPrefixBlocksToMatch=256"},
		{"name that no change can have", "plugins:\n- {type: queue-scorer, name: 'a:b'}\n", nil, ""},
	} {
		var parts []string
		for _, n := range mustParse(t, test.text, "").Numbers(test.add...) {
			text := n.Name() + "=" + FormatNumber(n.Value)
			if n.Missing {
				text += "+"
			}
			if parts = append(parts, text); n.Value < n.Low || n.Value > n.High || n.Low >= n.High {
				t.Errorf("%s: %s is outside of %g to %g", test.name, text, n.Low, n.High)
			}
		}
		if got := strings.Join(parts, " "); got != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestWith(t *testing.T) {
	c := mustParse(t, kserveLora, "")
	changes := []Change{{"queue-scorer", 0}, {"active-request-scorer", 5}, {"no-hit-lru-scorer.lruSize", 7}}
	got, err := c.With(changes)
	if err != nil {
		t.Fatal(err)
	}
	names, weights := got.Weights()
	if k := slices.Index(names, "queue-scorer"); weights[k] != 0 {
		t.Errorf("weights %v of %v", weights, names)
	}
	if k := slices.Index(names, "active-request-scorer"); k < 0 || weights[k] != 5 {
		t.Errorf("weights %v of %v: expected the new scorer with 5", weights, names)
	}
	for _, n := range got.Numbers() {
		if n.Name() == "no-hit-lru-scorer.lruSize" && n.Value != 7 {
			t.Errorf("lruSize %g, expected 7", n.Value)
		}
	}
	if _, weights := c.Weights(); weights[1] != 2 {
		t.Errorf("the configuration itself has changed: %v", weights)
	}
	full, err := mustParse(t, tunedBaseline, "").With([]Change{{"full.conditions.1.maxValue", 0.5}})
	if err != nil {
		t.Fatal(err)
	}
	if n := full.Numbers(); n[len(n)-1].Value != 0.5 || n[len(n)-2].Value != 8 {
		t.Errorf("conditions %v", n[len(n)-2:])
	}
}

func TestWithRefuses(t *testing.T) {
	for _, test := range []struct {
		text string
		ch   Change
		want string
	}{
		{kserveLora, Change{"queue-scorr", 1}, `unknown number "queue-scorr", did you mean "queue-scorer"`},
		{kserveLora, Change{"max-score-picker", 1}, "unknown number"},
		{kserveLora, Change{"prefix-cache-scorer.blockSize", 1}, "unknown number"},
		{kserveLora, Change{"no-hit-lru-scorer.lruSize", 1.5}, "expected a whole number"},
		{tunedBaseline, Change{"prefix-cache-affinity-filter.affinityThreshold", 1.5}, "must be at most 1"},
		{"plugins:\n- type: concurrency-detector\n", Change{"concurrency-detector.maxConcurrency", 0},
			"strictly positive"},
		{"plugins:\n- type: inflight-load-producer\n- type: queue-scorer\n", Change{"token-load-scorer", 1},
			"token-load-scorer beside inflight-load-producer"},
	} {
		_, err := mustParse(t, test.text, "").With([]Change{test.ch})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: error %v, expected %q", test.ch, err, test.want)
		}
	}
}

// TestWithinBounds: the loader takes every configuration that a search can make, and reads back what was set.
func TestWithinBounds(t *testing.T) {
	configs := []*Config{mustParse(t, "", GIE), mustParse(t, "", LLMD), mustParse(t, kserveLora, ""),
		mustParse(t, tunedBaseline, "")}
	paths, _ := filepath.Glob(filepath.Join(shareddata.Dir(), "epp_configs", "*.yaml")) // without them those above do
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := Parse(data, path, ""); err == nil && !c.Disaggregated() {
			configs = append(configs, c)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(configs).Draw(t, "config")
		numbers := c.Numbers("lora-affinity-scorer", "running-requests-size-scorer", "active-request-scorer")
		var changes []Change
		for _, n := range numbers {
			if rapid.Bool().Draw(t, "change "+n.Name()) {
				v := rapid.Float64Range(n.Low, n.High).Draw(t, n.Name())
				if n.Whole {
					v = math.Round(v)
				}
				changes = append(changes, Change{n.Name(), v})
			}
		}
		again, err := ParseChanges(FormatChanges(changes))
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.With(again)
		if err != nil {
			t.Fatal(err)
		}
		now := got.Numbers()
		for _, ch := range changes {
			if !slices.ContainsFunc(now, func(n Number) bool { return n.Name() == ch.Name && n.Value == ch.Value }) {
				t.Fatalf("%s is not %g in %v", ch.Name, ch.Value, now)
			}
		}
		NewScheduler(got, Options{})
	})
}
