package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// simulator is a program that simulates requests.
type simulator interface {
	name() string
	prepare(ctx context.Context, folder string) error // an error: the simulator is not to be had
	format() string                                   // the extension of the files with requests
	write(path string, work []request) error
	command(ctx context.Context, trace string) *exec.Cmd
	read(output []byte) (result, error)
}

// result is what a simulator says of a run.
type result struct {
	done                 int
	prompt, output       int // tokens
	duration, ttft, tpot float64
}

// The limits of a worker, the same for all simulators. A step takes stepMS, whatever is in it.
const (
	workers     = 2
	kvBlocks    = 16384
	blockTokens = 16
	maxRunning  = 256
	maxBatch    = 8192 // tokens of a step
	stepMS      = 20
)

// lorasim is lorasim sim.
type lorasim struct{ program, profile string }

const lorasimName = "`lorasim sim`"

func newLorasim(program string) *lorasim { return &lorasim{program: program} }

func (l *lorasim) name() string { return lorasimName }

// prepare writes the profile of a worker.
func (l *lorasim) prepare(_ context.Context, folder string) error {
	l.profile = filepath.Join(folder, "profile.yaml")
	return os.WriteFile(l.profile, fmt.Appendf(nil, `name: fixed-steps
latency: {law: adapters, adapters: {base_ms: %d}}
memory: {kv_tokens: %d, kv_bytes_per_token: 131072}
engine:
  scheduler: vllm
  max_running_requests: %d
  max_num_batched_tokens: %d
  context_length: 131072
  page_size: %d
`, stepMS, kvBlocks*blockTokens, maxRunning, maxBatch, blockTokens), 0o600)
}

func (l *lorasim) format() string { return ".csv" }

func (l *lorasim) write(path string, work []request) error {
	return writeLines(path, func(w *bufio.Writer) {
		fmt.Fprintln(w, "id,arrival_s,adapter,prompt_tokens,output_tokens")
		for i, r := range work {
			fmt.Fprintf(w, "%d,%d.%03d,-1,%d,%d\n", i, r.at/1000, r.at%1000, r.prompt, r.output)
		}
	})
}

func (l *lorasim) command(ctx context.Context, trace string) *exec.Cmd {
	return exec.CommandContext(ctx, l.program, "sim", "--workload", trace, "--num-workers", fmt.Sprint(workers),
		"--policy", "round-robin", "--profile", l.profile, "--json")
}

func (l *lorasim) read(output []byte) (result, error) {
	var r struct {
		Done     int     `json:"completed"`
		Prompt   int     `json:"total_input_tokens"`
		Output   int     `json:"total_output_tokens"`
		Duration float64 `json:"duration"`
		TTFT     float64 `json:"mean_ttft_ms"`
		TPOT     float64 `json:"mean_tpot_ms"`
	}
	err := json.Unmarshal(output, &r)
	return result{r.Done, r.Prompt, r.Output, r.Duration, r.TTFT, r.TPOT}, err
}

// dynamoVersion is the version of ai-dynamo and ai-dynamo-runtime.
const dynamoVersion = "1.6.1"

// dynamo is Dynamo's offline replay, which a Python script calls.
type dynamo struct{ base, venv, script string }

//go:embed replay.py
var replayScript []byte

func newDynamo(python, venv string) *dynamo { return &dynamo{base: python, venv: venv} }

func (d *dynamo) name() string { return "Dynamo " + dynamoVersion + ", offline replay" }

func (d *dynamo) python() string { return filepath.Join(d.venv, "bin", "python") }

// prepare installs Dynamo, unless it is there. The replay needs no other package of Dynamo's dependencies.
func (d *dynamo) prepare(ctx context.Context, folder string) error {
	d.script = filepath.Join(folder, "replay.py")
	if err := os.WriteFile(d.script, replayScript, 0o600); err != nil {
		return err
	}
	check := fmt.Sprintf("from importlib.metadata import version; import dynamo.replay; assert version('ai-dynamo') == %q",
		dynamoVersion)
	if exec.CommandContext(ctx, d.python(), "-c", check).Run() == nil {
		return nil
	}
	for _, args := range [][]string{
		{d.base, "-m", "venv", d.venv},
		{d.python(), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
			"ai-dynamo==" + dynamoVersion, "ai-dynamo-runtime==" + dynamoVersion, "typing-extensions"},
		{d.python(), "-c", check},
	} {
		if text, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

// traceBlock is the length in tokens of the prompts' blocks that the trace names. No two requests share one.
const traceBlock = 512

func (d *dynamo) format() string { return ".jsonl" }

func (d *dynamo) write(path string, work []request) error {
	return writeLines(path, func(w *bufio.Writer) {
		id := 0
		for _, r := range work {
			fmt.Fprintf(w, `{"timestamp": %d, "input_length": %d, "output_length": %d, "hash_ids": [`, r.at, r.prompt,
				r.output)
			for k := range (r.prompt + traceBlock - 1) / traceBlock {
				if k > 0 {
					fmt.Fprint(w, ", ")
				}
				fmt.Fprint(w, id)
				id++
			}
			fmt.Fprintln(w, "]}")
		}
	})
}

func (d *dynamo) command(ctx context.Context, trace string) *exec.Cmd {
	engine, err := json.Marshal(map[string]any{"backend": "vllm", "num_gpu_blocks": kvBlocks, "block_size": blockTokens,
		"max_num_seqs": maxRunning, "max_num_batched_tokens": maxBatch, "enable_prefix_caching": false,
		"timing_model": map[string]any{"type": "fixed", "prefill_ms": 0, "decode_ms": stepMS}})
	if err != nil {
		panic(err) // these values are always valid
	}
	return exec.CommandContext(ctx, d.python(), d.script, trace, fmt.Sprint(workers), fmt.Sprint(traceBlock),
		string(engine))
}

func (d *dynamo) read(output []byte) (result, error) {
	var r struct {
		Done     int     `json:"completed_requests"`
		Prompt   int     `json:"total_input_tokens"`
		Output   int     `json:"total_output_tokens"`
		Duration float64 `json:"duration_ms"`
		TTFT     float64 `json:"mean_ttft_ms"`
		TPOT     float64 `json:"mean_tpot_ms"`
	}
	err := json.Unmarshal(output, &r)
	return result{r.Done, r.Prompt, r.Output, r.Duration / 1000, r.TTFT, r.TPOT}, err
}
