package result

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/internal/format"
)

func ran() *Result {
	seed := uint64(7)
	return &Result{Meta: Meta{Source: Sim, Policy: "plan-and-route:interval=5", Scenario: Scenario{
		Summary: "num_workers=3", Policy: "plan-and-route", PolicyOptions: map[string]string{
			"margin": "0.1", "interval": "5",
		}, Moving: "recompute", Workers: 3,
		Profiles: []RanProfile{{
			Name: "a", Kind: "measured", Hardware: "RTX 4090", Workers: 2, Engine: "sglang", AdapterSlots: 8,
		},
			{Name: "b", Kind: "computed", Workers: 1, Engine: "vLLM 0.8.5", AdapterSlots: 1, Routing: true}},
		Adapters: 32, Ranks: []RankCount{{8, 16}, {64, 16}},
		Workload: &RanWorkload{Source: "generated", Requests: 2000, Rate: 10, Lengths: "auto"}, Seed: &seed,
		Settings: []SettingUsed{
			{"workload.arrivals", "gamma:6"},
			{"workload.conversations", "chat:" + strings.Repeat("turns=3,", 14) + "think=1"}, {"workload.drift", "30"},
		},
	}}}
}

func TestWhatRan(t *testing.T) {
	const want = `Policy    plan-and-route (interval=5, margin=0.1)
Workers   2 of 3, engine sglang, 8 adapter slots
Profile   a, measured (RTX 4090)
Workers   1 of 3, engine vLLM 0.8.5, 1 adapter slot
Profile   b, computed, used only by the policy
Adapters  32, ranks 8, 64 (16 each)
Workload  generated, 2000 requests at 10/s, lengths auto
Seed      7
Settings  arrivals=gamma:6
          conversations=chat:turns=3,turns=3,turns=3,turns=3,turns=3,turns=3,turns=3,turns=3,
          turns=3,turns=3,turns=3,turns=3,turns=3,turns=3,think=1 drift=30
`
	var b bytes.Buffer
	if err := ran().WriteScenario(&b); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("%s", b.String())
	}
	for line := range strings.Lines(b.String()) {
		if utf8.RuneCountInString(strings.TrimSpace(line)) > format.Width {
			t.Errorf("wider than %d columns: %s", format.Width, line)
		}
	}
	b.Reset()
	old := &Result{Meta: Meta{Policy: "static", Scenario: Scenario{Summary: "night"}}}
	if err := old.WriteScenario(&b); err != nil || b.Len() > 0 {
		t.Errorf("of a result that does not say what ran: %q, %v", b.String(), err)
	}
}

func TestWhatRanInWords(t *testing.T) {
	for want, s := range map[string]Scenario{
		"32, ranks 8, 64 (16 each)": {Adapters: 32, Ranks: []RankCount{{8, 16}, {64, 16}}},
		"3, ranks 8 (2), 64 (1)":    {Adapters: 3, Ranks: []RankCount{{8, 2}, {64, 1}}},
		"4, rank 8":                 {Adapters: 4, Ranks: []RankCount{{8, 4}}},
		"4, ranks unknown":          {Adapters: 4, Ranks: []RankCount{{0, 4}}},
		"9, 9 ranks from 1 to 9": {
			Adapters: 9, Ranks: []RankCount{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}, {8, 1}, {9, 1}},
		},
		"0": {},
	} {
		if got := s.adaptersText(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	for want, w := range map[string]RanWorkload{
		"generated, 1 request, all at once, lengths random": {
			Source: "generated", Requests: 1, Rate: Unlimited(), Lengths: "random",
		},
		"saved workload w.csv, 5 requests at its own times, lengths of the source": {
			Source: "saved workload", File: "/a/b/w.csv", Requests: 5, Rate: TraceRate, Lengths: "of the source",
		},
		"trace burstgpt, 5 requests at 0.25/s, lengths unknown": {Source: "trace burstgpt", Requests: 5, Rate: 0.25},
	} {
		if got := w.text(); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}

// JSON has the facts, a line of the serving benchmarks the summary; both are read,
// and what older versions wrote.
func TestScenarioInJSON(t *testing.T) {
	var b bytes.Buffer
	if err := ran().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Scenario struct {
			Summary, Policy string
			Options         map[string]string `json:"policy_options"`
			Profiles        []struct {
				Kind  string
				Slots int `json:"adapter_slots"`
			}
			Ranks []struct{ Rank, Adapters int }
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	s := got.Scenario
	if s.Summary != "num_workers=3" || s.Policy != "plan-and-route" || s.Options["margin"] != "0.1" ||
		s.Profiles[1].Kind != "computed" || s.Profiles[0].Slots != 8 || s.Ranks[1].Adapters != 16 {
		t.Errorf("%+v", s)
	}
	b.Reset()
	if err := ran().WriteJSONL(&b, false); err != nil || !strings.Contains(b.String(), `"scenario": "num_workers=3"`) {
		t.Errorf("%s, %v", b.String(), err)
	}
	for text, want := range map[string]string{`"night"`: "night", `{"summary":"day"}`: "day", `null`: ""} {
		if r, err := ParseJSON([]byte(`{"scenario":` + text + `}`)); err != nil || r.Scenario.Summary != want {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
	if _, err := ParseJSON([]byte(`{"schema":"lorasim.result/1","scenario":[1]}`)); err == nil ||
		!strings.Contains(err.Error(), "field scenario: is neither a text nor an object") {
		t.Error(err)
	}
}
