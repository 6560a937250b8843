package scenario

import (
	"slices"
	"strings"
	"testing"

	"lorasim/bench/result"
	"lorasim/internal/testutil"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

func TestDefaultRanks(t *testing.T) {
	for most, want := range map[int]string{1: "1", 7: "7", 8: "8", 15: "8", 16: "8,16", 63: "8,16,32", 64: "8,16,32,64",
		256: "8,16,32,64"} {
		if got := ranksUpTo(most); got != want {
			t.Errorf("up to %d: %s, expected %s", most, got, want)
		}
	}
}

// ranksIn runs a scenario and returns the different ranks of its adapters, sorted.
func ranksIn(t *testing.T, settings ...string) ([]int, error) {
	sc := Default()
	for _, s := range append([]string{"num_prompts=5"}, settings...) {
		key, value, _ := strings.Cut(s, "=")
		f, err := Find(key)
		if err == nil {
			err = f.Set(&sc, value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var ranks []int
	_, err := sc.Simulate(t.Context(), RunOptions{Watch: func(adapters []trace.Adapter) record.Watcher {
		for _, a := range adapters {
			ranks = append(ranks, a.Rank)
		}
		slices.Sort(ranks)
		ranks = slices.Compact(ranks)
		return record.Watcher{}
	}})
	return ranks, err
}

// The default workload runs with every embedded profile; what is stated is not
// changed.
func TestDefaultRanksFitTheProfile(t *testing.T) {
	for _, name := range profile.Names() {
		p, err := profile.Load(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		want := []int{8, 16, 32, 64}
		if p.Engine.MaxLoraRank == 16 {
			want = want[:2]
		}
		if got, err := ranksIn(t, "profile="+name); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: ranks %v (%v), expected %v", name, got, err, want)
		}
	}
	for _, c := range []struct {
		settings []string
		want     []int
	}{
		// of all workers the least
		{[]string{"profile=llama-2-7b-rtx-4090-sglang-0.5,llama-3.1-8b-h100-64gb-vllm-0.8.5"}, []int{8, 16}},
		{[]string{"max_lora_rank=4"}, []int{4}},
		{[]string{"lora_ranks=16", "profile=qwen2.5-7b-h100-64gb-vllm-0.8.5"}, []int{16}},
		{[]string{"compat=vllm-lora", "popularity=uniform", "max_lora_rank=32"}, []int{8, 16, 32}},
	} {
		if got, err := ranksIn(t, c.settings...); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: ranks %v (%v), expected %v", c.settings, got, err, c.want)
		}
	}
	if _, err := ranksIn(t, "lora_ranks=8,16,32,64", "profile=qwen2.5-7b-h100-64gb-vllm-0.8.5"); err == nil ||
		!strings.Contains(err.Error(), "--engine-args max_lora_rank=32") {
		t.Errorf("stated ranks above the limit: %v", err)
	}
}

func TestCommonRanks(t *testing.T) {
	small, large, broken := Default(), Default(), Default()
	testutil.Set(t, &small, "profile", "qwen2.5-7b-h100-64gb-vllm-0.8.5")
	testutil.Set(t, &broken, "profile", "no-such-profile")
	for _, c := range []struct {
		variants     []Scenario
		stated, want string
	}{
		{[]Scenario{large, small, broken}, "", "8,16"}, {[]Scenario{large, broken}, "", ""}, {nil, "", ""},
		{[]Scenario{small}, "32", "32"},
	} {
		sc := Default()
		testutil.Set(t, &sc, "lora_ranks", c.stated)
		if err := sc.CommonRanks(t.Context(), c.variants...); err != nil || sc.Workload.LoraRanks.String() != c.want {
			t.Errorf("ranks %q, expected %q", sc.Workload.LoraRanks, c.want)
		}
	}
	sc := Default()
	sc.Workload.File = "saved.csv" // states its own
	if err := sc.CommonRanks(t.Context(), small); err != nil || sc.Workload.LoraRanks.Given() {
		t.Errorf("ranks %q of a saved workload", sc.Workload.LoraRanks)
	}
}

// More than half of the requests: with half of them the figures still count.
func TestMisfit(t *testing.T) {
	run := func(requests int64, reasons ...result.Reason) error {
		return Misfit(&result.Result{Ended: &result.Endings{Requests: requests, Reasons: reasons}})
	}
	kv := result.Reason{Status: record.Rejected.String(), Reason: "needs more than the worker's 10 KV tokens", Count: 3}
	long := result.Reason{Status: record.Rejected.String(), Reason: "prompt over the context length 300, less 6 tokens",
		Count: 2}
	full := result.Reason{Status: record.Rejected.String(), Reason: "queue is full", Count: 9}
	if err := run(6, kv); err != nil {
		t.Errorf("half of the requests: %v", err)
	}
	for want, err := range map[string]error{
		"3 of 5 requests can never be served (most often: needs more than the worker's 10 KV tokens): give the workers more KV cache with --engine-args kv_tokens": run(5, kv),
		"5 of 9 requests can never be served (most often: needs more": run(9, kv, long),
		"allow longer requests with --engine-args context_length":     run(3, long),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, expected an error with %q", err, want)
		}
	}
	if err := run(9, full); err != nil {
		t.Errorf("a full queue: %v", err)
	}
}
