package tune

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router/epp"
)

const config = `
apiVersion: llm-d.ai/v1alpha1
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
- type: load-aware-scorer
- type: active-request-scorer
- type: prefix-cache-affinity-filter
- type: inflight-load-producer
  parameters: {addEstimatedOutputTokens: true}
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: prefix-cache-affinity-filter
  - {pluginRef: queue-scorer, weight: 2}
  - {pluginRef: prefix-cache-scorer, weight: 3}
  - {pluginRef: load-aware-scorer, weight: 0.5}
  - {pluginRef: active-request-scorer}
`

func parse(tb testing.TB, text string) *epp.Config {
	tb.Helper()
	c, err := epp.Parse([]byte(text), "test.yaml", "")
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func TestDesigns(t *testing.T) {
	s := NewSpace(parse(t, config), "lora-affinity-scorer")
	list := s.Designs(40, rand.New(rand.NewPCG(1, 2)))
	if len(list) != 40 || len(s.Changes(list[0])) != 0 {
		t.Fatalf("%d designs, the first changes %v; expected 40, and the configuration as it is", len(list),
			s.Changes(list[0]))
	}
	has := func(want string) bool {
		return slices.ContainsFunc(list, func(p Point) bool { return epp.FormatChanges(s.Changes(p)) == want })
	}
	for _, want := range []string{"queue-scorer:0", "prefix-cache-scorer:0", "load-aware-scorer:0",
		"lora-affinity-scorer:2", "lora-affinity-scorer:4"} {
		if !has(want) {
			t.Errorf("no design %s", want)
		}
	}
	again := s.Designs(40, rand.New(rand.NewPCG(1, 2)))
	if !slices.EqualFunc(list, again, slices.Equal[Point]) {
		t.Error("the same seed gives other designs")
	}
}

// TestSmallSpace: a space with few points gives those, without one in which no scorer counts.
func TestSmallSpace(t *testing.T) {
	s := NewSpace(parse(t, "plugins:\n- type: queue-scorer\n"))
	list := s.Designs(100, rand.New(rand.NewPCG(1, 2)))
	if len(list) != len(weights)-1 {
		t.Errorf("%d designs of one weight, expected %d", len(list), len(weights)-1)
	}
	none := NewSpace(parse(t, "plugins:\n- type: random-picker\n"))
	if list := none.Designs(10, rand.New(rand.NewPCG(1, 2))); len(list) != 1 || len(none.Neighbours(list[0])) != 0 {
		t.Errorf("%v: expected the configuration alone", list)
	}
}

func TestSteps(t *testing.T) {
	for _, test := range []struct {
		n    epp.Number
		x    float64
		want []float64
	}{
		{epp.Number{Value: 3, High: 16, Whole: true}, 3, []float64{0, 2, 4, 6, 3}},
		{epp.Number{Value: 3, High: 16, Whole: true}, 0, []float64{0, 0, 1, 0, 3}},
		{epp.Number{Value: 2.5, High: 16, Whole: true}, 16, []float64{0, 12, 16, 16, 2.5}},
		{epp.Number{Value: 20, High: 20, Whole: true}, 20, []float64{0, 20, 20}},
		{epp.Number{Key: "x", Value: 0.8, Low: 0.05, High: 1, Share: true}, 0.8, []float64{0.5, 0.7, 0.9, 1, 0.8}},
		{epp.Number{Key: "x", Value: 100, Low: 1, High: 300, Whole: true}, 100, []float64{25, 50, 200, 300, 100}},
		{epp.Number{Key: "x", Value: 0, Low: 0, High: 10_000, Whole: true}, 0, []float64{1, 100, 0}},
		{epp.Number{Key: "x", Value: 1, Low: 0, High: 16}, 1, []float64{0.25, 0.5, 2, 4, 0, 1}},
	} {
		if got := steps(test.n, test.x); !slices.Equal(got, test.want) {
			t.Errorf("%+v at %g: %v, expected %v", test.n, test.x, got, test.want)
		}
	}
}

// TestEveryPointLoads: whatever the search reaches from any configuration, the loader takes it, and the changes lead
// back to the point.
func TestEveryPointLoads(t *testing.T) {
	configs := []*epp.Config{parse(t, config), parse(t, ""), parse(t, `
plugins:
- type: latency-scorer
- type: token-load-scorer
- type: utilization-detector
- type: concurrency-detector
  parameters: {concurrencyMode: tokens}
- type: prefix-cache-scorer
  parameters: {autoTune: false}
`)}
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom(configs).Draw(t, "config")
		s := NewSpace(c, "lora-affinity-scorer", "running-requests-size-scorer", "token-load-scorer")
		seed := rapid.Uint64().Draw(t, "seed")
		list := s.Designs(24, rand.New(rand.NewPCG(seed, 0)))
		p := list[rapid.IntRange(0, len(list)-1).Draw(t, "design")]
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			near := s.Neighbours(p)
			p = near[rapid.IntRange(0, len(near)-1).Draw(t, "neighbour")]
		}
		for i, n := range s.Numbers {
			if p[i] < n.Low || p[i] > n.High {
				t.Fatalf("%s: %g is outside of %g to %g", n.Name(), p[i], n.Low, n.High)
			}
		}
		changed, err := c.With(s.Changes(p))
		if err != nil {
			t.Fatalf("%s: %v", epp.FormatChanges(s.Changes(p)), err)
		}
		values := map[string]float64{}
		for _, n := range NewSpace(changed).Numbers {
			values[n.Name()] = n.Value
		}
		for _, ch := range s.Changes(p) {
			if v, ok := values[ch.Name]; ok && v != ch.Value {
				t.Fatalf("%s is %g, expected %g", ch.Name, v, ch.Value)
			}
		}
		if n := len(s.Reverted(p)); n != len(s.Changes(p)) {
			t.Fatalf("%d points with a change less, expected %d", n, len(s.Changes(p)))
		}
	})
}
