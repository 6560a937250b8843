package scrape

import (
	"slices"
	"testing"

	"lorasim/router/epp"
)

// TestUpdate: what a scrape does not state keeps its value.
func TestUpdate(t *testing.T) {
	e := epp.Endpoint{KV: 0.25, BlockSize: 16, NumBlocks: 10}
	f, err := Parse("# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 3.9\n" +
		"# TYPE vllm:lora_requests_info gauge\n" +
		`vllm:lora_requests_info{max_lora="2",running_lora_adapters="a, b",waiting_lora_adapters="b,b"} 2` + "\n" +
		`vllm:lora_requests_info{max_lora="2",running_lora_adapters="old",waiting_lora_adapters=""} 1` + "\n")
	if err != nil {
		t.Fatal(err)
	}
	updated, err := Update(&e, f, VLLM)
	if !updated || err == nil {
		t.Errorf("updated %v, error %v; expected an update, and an error for the metrics that are missing", updated,
			err)
	}
	if e.Waiting != 3 || e.KV != 0.25 || e.BlockSize != 16 || e.NumBlocks != 10 || e.MaxLora != 2 ||
		!slices.Equal(e.RunningAdapters, []string{"a", "b"}) || !slices.Equal(e.WaitingAdapters, []string{"b"}) {
		t.Errorf("read %+v", e)
	}
}

func TestTRTLLM(t *testing.T) {
	f, err := Parse("# TYPE trtllm_num_requests_waiting gauge\ntrtllm_num_requests_waiting 2\n" +
		"# TYPE trtllm_num_requests_running gauge\ntrtllm_num_requests_running 1\n" +
		"# TYPE trtllm_kv_cache_utilization gauge\ntrtllm_kv_cache_utilization 0.5\n" +
		"# TYPE trtllm_kv_cache_tokens_per_block gauge\ntrtllm_kv_cache_tokens_per_block 32\n" +
		"# TYPE trtllm_kv_cache_max_blocks gauge\ntrtllm_kv_cache_max_blocks 700\n")
	if err != nil {
		t.Fatal(err)
	}
	var e epp.Endpoint
	updated, err := Update(&e, f, TRTLLM)
	want := epp.Endpoint{Waiting: 2, Running: 1, KV: 0.5, BlockSize: 32, NumBlocks: 700}
	if !updated || err != nil || e.Waiting != want.Waiting || e.Running != want.Running || e.KV != want.KV ||
		e.BlockSize != want.BlockSize || e.NumBlocks != want.NumBlocks {
		t.Errorf("read %+v, %v", e, err)
	}
}
