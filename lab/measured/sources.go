package main

import "context"

// A source is a set of measured runs, and the way to predict them.
type source struct {
	name, title, about string
	needs              []string // files and folders of the data
	slow               bool     // takes more than a CPU minute
	commands           []string // commands on the page, lettered a, b, ...
	make               func(context.Context, *runner, *section) error
}

// sources are all measured runs of the project, in the order of the page.
var sources = []source{
	{
		name: "sglang-runs", title: "sglang, two workers with four adapters",
		about: "Llama-2-7B fp16 with four adapters on two RTX 4090, sglang 0.5 (csgmv kernels). The requests replay the\n" +
			"Azure functions trace of 2021 at 2 to 64 requests/s. Nothing was fitted to the 35 runs.",
		needs: []string{"measured/lora_runs.csv", "measured/seed_workload.json"},
		commands: []string{"lorasim profile check runs DATA/measured/lora_runs.csv " +
			"--histograms DATA/measured/seed_workload.json --use validation --json"},
		make: sglangRuns,
	},
	{
		name: "deepseek-logs", title: "sglang, DeepSeek-V3 in a closed loop",
		about: "DeepSeek-V3 on eight GPUs (taken to be H200), sglang with two attention backends, 1000 prompt and 1000\n" +
			"output tokens, from serving-benchmark logs. The profiles were fitted at concurrency 32. Only the rows at\n" +
			"concurrency 16 are predictions; the others show the fit.",
		needs:    []string{"logs"},
		commands: []string{"lorasim profile check logs DATA/logs --json"},
		make:     deepseekLogs,
	},
	{
		name: "vllm-hours", title: "vLLM, 525 hours with 8 to 384 adapters",
		about: "Llama-3.1-8B and Qwen2.5-7B on one 64 GB H100, vLLM 0.8.5 (GPULLMAdapterOptimization, arXiv 2508.08343).\n" +
			"Each run is one hour. Nothing was fitted to the 525 runs. The peer is the authors' own simulator, over the\n" +
			"294 runs that it was given.",
		needs: []string{"vllm_lora/runs.csv", "vllm_lora/kv_capacity.csv", "vllm_lora/load_times.csv"}, slow: true,
		commands: []string{"lorasim profile check vllm-runs DATA/vllm_lora/runs.csv --use validation --json"},
		make:     vllmHours,
	},
	{
		name: "vllm-h100", title: "vLLM 0.23, Qwen3-14B on one H100, request by request",
		about: "Qwen3-14B bf16 on one 80 GB H100, vLLM 0.23, at most 256 requests in flight (inference-sim/residency-vllm).\n" +
			"The profiles are calibrated from two runs at low rates, from four runs with loaded ones, and computed from\n" +
			"data sheets. The rows are the runs that were not fitted. The peer is BLIS (inference-sim, f90a1e3a) with its\n" +
			"trained-physics model as published; it was never fitted to this server, so it is compared with the\n" +
			"computed profile. `OUT` is a folder for the fitted profiles.",
		needs: []string{h100 + "/rate2-vanilla.csv.gz", h100 + "/w7-rate18.csv.gz"}, commands: h100Commands,
		make: vllmH100,
	},
	{
		name: "slora-runs", title: "S-LoRA's published runs",
		about: "llama-7b with 0 to 200 adapters on an A10G, S-LoRA of 2023, means of its authors' published runs. Nothing\n" +
			"was fitted to the rows of use validation, of last come, first served, and of early abort.",
		needs: []string{"slora_runs/runs.csv"},
		commands: []string{
			"go run -C lab ./sloraruns check DATA/slora_runs/runs.csv --use validation --json",
			"go run -C lab ./sloraruns check DATA/slora_runs/runs.csv --system slora-lifo --json",
			"go run -C lab ./sloraruns check DATA/slora_runs/runs.csv --system slora-abort --json",
		},
		make: sloraRuns,
	},
	{
		name: "cpu-engines", title: "Real engines on a processor",
		about: "sglang 0.5.23 and vLLM 0.32 serve a tiny Llama with 16 adapters on one core (4 slots). Each profile is fitted\n" +
			"to two other runs. [live.md](live.md#predicting-a-server-from-two-runs) says how, and has\n" +
			"the run on busy cores. The rows are those of its table on idle cores. The command needs 14 GB and 20 minutes,\n" +
			"so this page copies the rows and does not run it.",
		commands: []string{"lab/real-engines --cases predict"},
		make:     cpuEngines,
	},
	{
		name: "vllm-steps", title: "vLLM's scheduler, step by step",
		about:    "Every step of vLLM 0.32's own scheduler, stepped without a model.",
		needs:    []string{"vllm_steps"},
		commands: []string{"lorasim profile check vllm-steps DATA/vllm_steps --json"},
		make:     cases("steps", "step"),
	},
	{
		name: "sglang-batches", title: "sglang's scheduler, batch by batch",
		about:    "Every batch of a running sglang 0.5.23 (its CPU build) without overlap scheduling.",
		needs:    []string{"sglang_batches"},
		commands: []string{"lorasim profile check sglang-batches DATA/sglang_batches --json"},
		make:     cases("batches", "batch"),
	},
	{
		name: "epp-cases", title: "Endpoint pickers' decisions",
		about: "Recorded decisions of two endpoint pickers of Kubernetes gateways: the Gateway API inference extension\n" +
			"(a) and llm-d (b).",
		needs: []string{"epp_cases", "epp_cases/llmd"},
		commands: []string{"lorasim profile check epp-cases DATA/epp_cases --json",
			"lorasim profile check epp-cases DATA/epp_cases/llmd --json"},
		make: cases("requests and checks", "case"),
	},
	{
		name: "pull-requests", title: "Figures that pull requests publish", about: pullRequestsAbout,
		commands: pullRequestCommands(), make: pullRequests,
	},
	{
		name: "published-steps", title: "Published times of single steps",
		about: "Times of a decode or prefill step that benchmarks publish, without adapters, against profiles computed\n" +
			"from data sheets. [computed-profiles.md](computed-profiles.md#against-published-figures) names the\n" +
			"sources. The constants of the computed profiles were chosen with these figures in view.",
		commands: []string{"go test ./sim/profile -count=1 -run PublishedFigures -v"}, make: publishedSteps,
	},
	{
		name: "dlora-figure-11a", title: "dLoRA's figure 11a",
		about: "Queueing delay per output token over the request rate, Llama-2-7B with 32 adapters on eight A800, dLoRA.\n" +
			"The measured values were read from the plot. The prediction is TTFT per output token on workers calibrated\n" +
			"on sglang with LoRA kernels of 2025. [migration.md](migration.md#dloras-figure-11a) has the\n" +
			"reasons of the differences. Overloaded rows measure the length of the run.",
		needs:    []string{"measured/dlora_paper_figures.csv"},
		commands: []string{"lorasim sweep scenarios/dlora-figure-11a.yaml -o OUT/f11a --metrics ttft_per_output_token_s"},
		make:     dloraFigure,
	},
}

func names() (list []string) {
	for _, s := range sources {
		list = append(list, s.name)
	}
	return list
}
