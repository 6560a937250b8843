package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const pullRequestsAbout = "Figures in the descriptions of pull requests that state their commands. The profiles are computed from data\n" +
	"sheets: nothing was fitted to these servers. A pull request states no ranks, so ranks of 8 to 64 are taken.\n" +
	"The target is that of computed profiles, a factor of 1.5 up or down.\n\n" +
	"- [vLLM 11267](https://github.com/vllm-project/vllm/pull/11267), December 2024: offline throughput of Llama-2-7B on one A100, 1000 ShareGPT prompts at once. Its rates give 246 prompt and 235 output tokens in the mean; the spread of the lengths is assumed.\n" +
	"- [sglang 17913](https://github.com/sgl-project/sglang/pull/17913), January 2026, before its change: Llama-3.1-8B on one A100, 3 slots for 6 adapters. The backend is sglang's default, csgmv, with kernel times of an H100; with `--engine-args lora_backend=triton` the mean E2E is 12.8 s (+6 %).\n" +
	"- [sglang 13349](https://github.com/sgl-project/sglang/pull/13349), November 2025: Llama-3.1-8B on two H100, 8 slots. At that time a request without a slot stopped the queue (`--engine-args head_of_line=block`).\n" +
	"- [sglang 27181](https://github.com/sgl-project/sglang/pull/27181), June 2026: Qwen3-32B, one slot for 4 adapters, one request at a time, the mean lengths of its run. It names no GPU. An A100 is taken, because at most 26 tokens/s were seen.\n" +
	"- [sglang 14190](https://github.com/sgl-project/sglang/pull/14190) and [15512](https://github.com/sgl-project/sglang/pull/15512) state commands. The project does not hold their figures, so no row has them."

// factor is the largest accepted ratio between a computed and a published figure, in both
// directions.
const factor = 1.5

// A published run is a simulation and a pull request's figures of the real run.
type published struct {
	command string // arguments of lorasim sim, without --json
	figures []publishedFigure
}

// A publishedFigure is one figure; field is its name in the result of lorasim sim.
type publishedFigure struct {
	claim, field, unit string
	measured           float64
}

const (
	offline = "lorasim sim --profile analytic:llama-2-7b,a100-80gb --num-workers 1 --policy static --scheduler vllm " +
		"--engine-args max_running_requests=256 --request-rate inf --num-prompts 1000 --num-adapters 1 --lora-ranks 8 " +
		"--lengths lognormal:prompt_mean=246,prompt_sigma=1,prompt_cap=1024,output_mean=235,output_sigma=1,output_cap=1024"
	switching = "lorasim sim --profile analytic:llama-3.1-8b,h100,tp=2 --num-workers 1 --policy static " +
		"--popularity uniform --engine-args max_loras_per_batch=8 --request-rate 4 --num-prompts 100 --lengths random " +
		"--random-input-len 4096 --random-output-len 2048 --engine-args head_of_line=block"
)

var pullRequestRuns = []published{
	{offline + " --engine-args lora_backend=none", []publishedFigure{
		{"vLLM 11267, no LoRA, throughput", "total_throughput", " tokens/s", 5509.93},
		{"vLLM 11267, no LoRA, output", "output_throughput", " tokens/s", 2693.62}}},
	{offline, []publishedFigure{
		{"vLLM 11267, one adapter of rank 8, throughput", "total_throughput", " tokens/s", 3656.98},
		{"vLLM 11267, one adapter of rank 8, output", "output_throughput", " tokens/s", 1787.78}}},
	{"lorasim sim --profile analytic:llama-3.1-8b,a100-80gb --num-workers 1 --policy static --num-adapters 6 " +
		"--popularity uniform --engine-args max_loras_per_batch=3 --request-rate 4 --num-prompts 200 --lengths random " +
		"--random-input-len 512 --random-output-len 512", []publishedFigure{
		{"sglang 17913, mean E2E", "mean_e2e_latency_ms", " ms", 12060.28},
		{"sglang 17913, median E2E", "median_e2e_latency_ms", " ms", 7051.01},
		{"sglang 17913, P90 E2E", "p90_e2e_latency_ms", " ms", 32927.73}}},
	{switching + " --num-adapters 8", []publishedFigure{
		{"sglang 13349, 8 adapters, median TTFT", "median_ttft_ms", " ms", 39.65}}},
	{switching + " --num-adapters 16", []publishedFigure{
		{"sglang 13349, 16 adapters, median TTFT", "median_ttft_ms", " ms", 6278}}},
	{"lorasim sim --profile analytic:qwen3-32b,a100-80gb,tp=1,bits=16 --num-workers 1 --policy static --num-adapters 4 " +
		"--popularity uniform --lora-ranks 64 --engine-args max_lora_rank=64 --engine-args max_loras_per_batch=1 --request-rate inf --max-concurrency 1 " +
		"--num-prompts 200 --lengths constant:858,112", []publishedFigure{
		{"sglang 27181, mean E2E", "mean_e2e_latency_ms", " ms", 4590.87},
		{"sglang 27181, duration", "duration", " s", 918.31}}},
}

func pullRequestCommands() (list []string) {
	for _, p := range pullRequestRuns {
		list = append(list, p.command+" --json")
	}
	return list
}

// pullRequests adds the figures of pull requests.
func pullRequests(ctx context.Context, r *runner, s *section) error {
	for i, p := range pullRequestRuns {
		got := map[string]any{}
		if err := r.decode(ctx, fmt.Sprintf("%s-%s", s.name, letter(i)), s.commands[i], &got); err != nil {
			return err
		}
		for _, f := range p.figures {
			predicted, ok := got[f.field].(float64)
			if !ok {
				return fmt.Errorf("%s: the result has no figure %s", s.commands[i], f.field)
			}
			row := one(f.claim, f.unit, comparison{f.measured, predicted}, 0)
			row.target, row.command = withinFactor(predicted/f.measured), letter(i)
			s.rows = append(s.rows, row)
		}
	}
	return nil
}

// withinFactor returns whether a ratio is within the factor of computed profiles.
func withinFactor(ratio float64) string {
	if ratio <= factor && ratio >= 1/factor {
		return fmt.Sprintf("factor %g: met", factor)
	}
	return fmt.Sprintf("factor %g: %s", factor, missed)
}

// stepRow is a line of the test's log: model, GPU, bits, step, published ms, computed ms, ratio, source.
var stepRow = regexp.MustCompile(`\| ([^|]+) \| ([^|]+) \| (\d+) \| ([^|]+) \| ([\d.e+]+) \| ([\d.e+]+) \| [\d.]+ \| (.+) \|`)

// publishedSteps adds the published times of steps.
func publishedSteps(ctx context.Context, r *runner, s *section) error {
	out, err := r.run(ctx, s.name, s.commands[0])
	if err != nil {
		return err
	}
	for _, m := range stepRow.FindAllStringSubmatch(string(out), -1) {
		measured, err1 := strconv.ParseFloat(m[5], 64)
		predicted, err2 := strconv.ParseFloat(m[6], 64)
		if err1 != nil || err2 != nil {
			return fmt.Errorf("%q: expected two times", m[0])
		}
		claim := fmt.Sprintf("%s on %s, %s bits, %s", m[1], m[2], m[3], m[4])
		row := one(claim, " ms", comparison{measured, predicted}, 0)
		row.target = withinFactor(predicted / measured)
		s.rows = append(s.rows, row)
	}
	if len(s.rows) == 0 {
		return fmt.Errorf("%s: no row in its output", s.commands[0])
	}
	return nil
}

// dloraFigure adds the points of figure 11a at the rates of the scenario.
func dloraFigure(ctx context.Context, r *runner, s *section) error {
	if _, err := r.run(ctx, "", s.commands[0]); err != nil {
		return err
	}
	predicted, err := cells(filepath.Join(r.scratch, "f11a", "table.jsonl"), "ttft_per_output_token_s")
	if err != nil {
		return err
	}
	paper, err := figurePoints(filepath.Join(r.data, "measured", "dlora_paper_figures.csv"), "11a")
	if err != nil {
		return err
	}
	for _, p := range paper {
		// "dLoRA (period_mig)"; lorasim's policy period_mig is another policy
		_, policy, _ := strings.Cut(strings.TrimSuffix(p.series, ")"), "(")
		if policy == "period_mig" {
			policy = "dlora_period_mig"
		}
		x, ok := predicted[cell{policy, p.x}]
		if !ok {
			continue
		}
		row := one(fmt.Sprintf("`%s`, %g requests/s", policy, p.x), " s", comparison{p.y, x}, 0)
		row.target = withinFactor(x / p.y)
		s.rows = append(s.rows, row)
	}
	if len(s.rows) == 0 {
		return fmt.Errorf("no point of the figure is at a rate of the scenario")
	}
	return nil
}

// A cell is a row of a sweep's table.
type cell struct {
	policy string
	rate   float64 // requests/s
}

// cells reads the means of a metric from the table of a sweep.
func cells(file, metric string) (map[cell]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	out := map[cell]float64{}
	for line := range strings.Lines(string(text)) {
		var row struct {
			Rate   float64 `json:"request_rate"`
			Policy string
			Metric string
			Mean   float64
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if row.Metric == metric {
			out[cell{row.Policy, row.Rate}] = row.Mean
		}
	}
	return out, nil
}

// A point is one value of a figure.
type point struct {
	series string
	x, y   float64
}

// figurePoints reads the points of a figure from the table of values read from plots.
func figurePoints(file, figure string) (points []point, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	head := rows[0]
	at := func(name string) int { return slices.Index(head, name) }
	for _, name := range []string{"figure", "series", "x", "y"} {
		if at(name) < 0 {
			return nil, fmt.Errorf("%s: no column %s", file, name)
		}
	}
	for i, row := range rows[1:] {
		if row[at("figure")] != figure {
			continue
		}
		x, err1 := strconv.ParseFloat(row[at("x")], 64)
		y, err2 := strconv.ParseFloat(row[at("y")], 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("%s:%d: x %q, y %q: expected numbers", file, i+2, row[at("x")], row[at("y")])
		}
		points = append(points, point{row[at("series")], x, y})
	}
	return points, nil
}
