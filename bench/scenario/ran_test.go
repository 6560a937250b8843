package scenario

import (
	"testing"

	"lorasim/bench/result"
)

func TestTell(t *testing.T) {
	sc := Default()
	for key, value := range map[string]string{"policy": "plan-and-route:interval=5,margin=0.05", "num_prompts": "30",
		"profile":    "llama-2-7b-rtx-4090-sglang-0.5*2,analytic:llama-3.1-8b,h100*1",
		"lora_ranks": "8,16", "num_adapters": "5", "arrivals": "gamma:2", "seed": "4", "window": "1"} {
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	res, err := sc.Simulate(t.Context(), RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := &res.Scenario
	if r.Policy != "plan-and-route" || len(r.PolicyOptions) != 1 || r.PolicyOptions["interval"] != "5" ||
		r.Moving != "recompute" || r.Workers != 3 {
		t.Errorf("%+v", r)
	}
	if p := r.Profiles; len(p) != 2 || p[0].Workers != 2 || p[0].Name != "llama-2-7b-rtx-4090-sglang-0.5" ||
		p[1].Kind != "computed" || p[1].AdapterSlots != 8 || p[1].Engine != "sglang" {
		t.Errorf("%+v", p)
	}
	if r.Adapters != 5 || len(r.Ranks) != 2 || r.Ranks[0] != (result.RankCount{Rank: 8, Adapters: 3}) || *r.Seed != 4 {
		t.Errorf("%+v", r)
	}
	if w := r.Workload; w.Source != "generated" || w.Requests != res.Extra.Requests+res.Extra.Unsent ||
		w.Requests == 0 || w.Rate != 10 || w.Lengths != "auto" {
		t.Errorf("%+v", w)
	}
	if len(r.Settings) != 2 || r.Settings[0] != (result.SettingUsed{Key: "workload.window", Value: "1"}) ||
		r.Settings[1].Value != "gamma:2" {
		t.Errorf("%+v", r.Settings)
	}
	sc.Routing.InferenceArchitecture = "sglang"
	if res, err = sc.Simulate(t.Context(), RunOptions{}); err != nil || res.Scenario.Policy != "static" ||
		res.Scenario.Moving != "" || res.Scenario.PolicyOptions != nil {
		t.Errorf("%+v, %v", res.Scenario, err)
	}
}
