package cli

// Advice about flags of the engines and of their clients that have no counterpart of the same meaning.
const (
	hintMemory  = "the profile sets the memory; --engine-args kv_tokens sets the size of the KV cache"
	hintLengths = "--lengths sets the token counts (random with --random-input-len and --random-output-len, sharegpt, " +
		"table:FILE), --workload takes a file of requests"
	hintWarmup = "a live run sends one request first; --no-warmup leaves it out, --warmup leaves the warm-up out of " +
		"the figures"
	hintResult  = "--output-file appends the result to a file, --json prints all of it"
	hintWorkers = "--worker-urls HOST:PORT names the workers"
)

// engineHints returns the advice by the engines' name of a flag.
func engineHints() map[string]string {
	return map[string]string{
		// vllm/engine/arg_utils.py
		"enable-lora":             "LoRA is always enabled; --num-adapters sets the number of adapters",
		"num-gpu-blocks-override": "--engine-args kv_tokens sets the size of the KV cache in tokens, --engine-args page_size those of a block",
		"enable-chunked-prefill": "prompts are always split; --engine-args max_num_batched_tokens (vLLM) or " +
			"--engine-args chunked_prefill_size (sglang) sets the limit",
		// sglang/srt/server_args.py
		"mem-fraction-static":        hintMemory,
		"enable-priority-scheduling": "give --engine-args schedule_policy=priority",
		"lora-paths":                 "--num-adapters or --lora-names sets the adapters; for live workers --lora NAME=PATH",
		"dp":                         "every replica is a worker, see --num-workers",
		"dp-size":                    "every replica is a worker, see --num-workers",
		// vllm/benchmarks/serve.py, sglang/benchmark/serving.py
		"host": hintWorkers, "port": hintWorkers,
		"dataset-name": hintLengths, "dataset-path": hintLengths, "input-len": hintLengths, "output-len": hintLengths,
		"warmup-requests": hintWarmup, "num-warmups": hintWarmup,
		"save-result": hintResult, "result-filename": hintResult, "result-dir": hintResult,
		"percentile-metrics": hintResult, "metric-percentiles": hintResult, "save-detailed": hintResult,
		"ignore-eos":   "replies ignore EOS unless --disable-ignore-eos is given",
		"disable-tqdm": "progress is shown only on a terminal",
	}
}
