package scenario

// units of the settings that are quantities, by the last part of the key; "" for
// plain counts and shares.
var units = map[string]string{
	"seed": "", "num_prompts": "requests", "window": "s", "num_adapters": "adapters", "request_rate": "req/s", "drift": "s",
	"burstiness": "shape", "ramp_up_start_rps": "req/s", "ramp_up_end_rps": "req/s", "lora_zipf_alpha": "",
	"random_input_len": "tokens", "random_output_len": "tokens", "random_range_ratio": "share of the longest",
	"trace_interval_minutes": "min", "trace_total_rate": "req/s", "trace_cv": "std / mean", "trace_map_stride": "functions",
	"rate_scale": "×", "cv_scale": "×", "time_scale": "×",
	"num_workers": "workers", "max_num_batched_tokens": "tokens", "max_running_requests": "requests",
	"max_loras_per_batch": "adapters", "max_loaded_loras": "adapters", "max_lora_rank": "rank",
	"chunked_prefill_size": "tokens", "max_prefill_tokens": "tokens", "context_length": "tokens", "kv_tokens": "tokens",
	"page_size": "tokens", "starvation_s": "s", "lora_drain_wait_threshold": "s", "load_failure_rate": "probability",
	"view_staleness": "s", "migration_interval": "s", "migration_req_threshold": "requests",
	"max_concurrency": "requests", "max_in_flight_fail": "requests",
}

// Unit is the unit of a setting; "" where it has none.
func (f Field) Unit() string { return units[f.Leaf()] }

// Label is the last part of a setting's key with its unit, for axes and heads of
// tables: "migration_interval (s)".
func Label(key string) string {
	f, err := Find(key)
	if err != nil || f.Unit() == "" {
		return key
	}
	return f.Leaf() + " (" + f.Unit() + ")"
}
