package measured

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"lorasim/internal/parallel"
	"lorasim/internal/table"
	"lorasim/sim/profile"
)

// Point is a measured closed-loop point of one server, as in the tables of NVIDIA's AIConfigurator
// (systems/silicon_sample.csv): Concurrency requests in flight, all of the same lengths or nearly so.
type Point struct {
	Line        int    `json:"line"`
	ID          string `json:"id"`
	Engine      string `json:"engine"` // one of [profile.Engines], or another name
	Version     string `json:"version,omitempty"`
	Model       string `json:"model"` // as in the table
	GPU         string `json:"gpu"`   // as in the table
	GPUs        int    `json:"gpus"`
	Bits        int    `json:"bits"`
	Input       int    `json:"input"`  // tokens of a prompt, the largest if they differ
	Output      int    `json:"output"` // tokens of a reply, the largest if they differ
	Concurrency int    `json:"concurrency"`
	// Experts says that the model has experts. No constant was fitted to its points.
	Experts bool `json:"experts,omitempty"`

	ratio   float64 // shortest length over the longest
	unknown string  // reason why no profile can have the point's settings
	seen    Values
}

// Group returns the name of the points with the same model, bits, GPU and engine.
func (p *Point) Group() string {
	return fmt.Sprintf("%s %d bit, %s, %s", p.Model, p.Bits, strings.TrimSuffix(p.GPU, "_sxm"), p.Engine)
}

// shortest is the shortest length over the longest of the runs of InferenceMAX.
const shortest = 0.8

var (
	// inferenceMAX is the source of a run of InferenceMAX, whose lengths vary.
	inferenceMAX     = regexp.MustCompile(`source_file=\d{4}-\d\d-\d\d\.csv`)
	pointConcurrency = regexp.MustCompile(`silicon_concurrency=(\d+)`)
)

// unknownJob is part of the source of a run whose client is not described.
const unknownJob = "gtl_job_id="

// ReadPoints reads a table of points. An error has the name, the line and the column.
func ReadPoints(in io.Reader, name string) (points []Point, err error) {
	required := []string{"id", "silicon_data_source", "backend", "backend_version", "model_path", "system", "precision",
		"isl", "osl", "gemm_quant_mode", "batch_size", "tp_size", "pp_size", "attention_dp_size", "silicon_ttft_ms",
		"silicon_tpot_ms"}
	err = table.ReadCSV(in, name, required, func(t *table.CSVRow) { points = append(points, readPoint(t)) })
	return points, err
}

func readPoint(t *table.CSVRow) Point {
	const largest, most = 1 << 24, 100_000 // tokens, requests in flight
	source := t.Text("silicon_data_source")
	p := Point{Line: t.Line, ID: t.Text("id"), Engine: t.Text("backend"), Version: t.Text("backend_version"),
		Model: t.Text("model_path"), GPU: t.Text("system"), GPUs: t.Count("tp_size", 1, 4096),
		Input: t.Count("isl", 1, largest), Output: t.Count("osl", 1, largest), ratio: 1,
		Concurrency: t.Count("batch_size", 1, most),
		seen:        Values{TPOT: t.Positive("silicon_tpot_ms"), TTFTMean: t.Positive("silicon_ttft_ms")}}
	p.Model = p.Model[strings.LastIndexByte(p.Model, '/')+1:]
	if m := pointConcurrency.FindStringSubmatch(source); m != nil {
		n, err := strconv.Atoi(m[1])
		if err != nil || n < 1 || n > most {
			t.Fail("silicon_data_source", "silicon_concurrency=%s, expected 1 to %d", m[1], most)
		}
		if n != p.Concurrency {
			p.unknown = "several servers share the requests (batch_size differs from silicon_concurrency)"
		}
		p.Concurrency = n
	}
	if inferenceMAX.MatchString(source) {
		p.ratio = shortest
	}
	switch mode := strings.ToLower(t.Text("gemm_quant_mode")); {
	case mode == "" || strings.HasPrefix(mode, "bf16") || strings.HasPrefix(mode, "float16"):
		p.Bits = 16
	case strings.HasPrefix(mode, "fp8") || strings.HasPrefix(mode, "int8"):
		p.Bits = 8
	case strings.HasPrefix(mode, "nvfp4") || strings.HasPrefix(mode, "int4"):
		p.Bits = 4
	default:
		t.Fail("gemm_quant_mode", "%q, expected bf16, fp8, fp8_block, int8_wo, nvfp4 or int4_wo", mode)
	}
	pipeline, attention := count(t, "pp_size"), count(t, "attention_dp_size")
	switch {
	case strings.Contains(source, unknownJob):
		p.unknown = "the number of requests in flight is unknown (gtl_job_id)"
	case pipeline > 1:
		p.unknown = "pipeline parallelism"
	case attention > 1:
		p.unknown = "data-parallel attention"
	}
	return p
}

// count reads a number of GPUs that may be left out, or 0.
func count(t *table.CSVRow, column string) int {
	if !t.Has(column) {
		return 0
	}
	return t.Count(column, 0, 4096)
}

// PredictedPoint is a point with its prediction.
type PredictedPoint struct {
	Point
	Profile string `json:"profile,omitempty"`
	Comparison
	Skipped string `json:"skipped,omitempty"` // reason why the point was not predicted
}

// PredictPoints predicts each point with the computed profile of its model, GPU, bits and engine, on all processors.
// progress, if not nil, is called with the number of finished points and of all points.
func PredictPoints(ctx context.Context, points []Point, progress func(done, total int64)) ([]PredictedPoint, error) {
	rows := make([]PredictedPoint, len(points))
	err := parallel.Do(ctx, len(points), func(i int) error {
		row := PredictedPoint{Point: points[i], Comparison: Comparison{Measured: points[i].seen}}
		p, why := row.Point.profile()
		if row.Skipped = why; why == "" {
			values, err := points[i].predict(ctx, p)
			if err != nil {
				return fmt.Errorf("%s: %w", points[i].ID, err)
			}
			row.Profile = p.Name
			row.Predict(values)
		}
		rows[i] = row
		return nil
	}, progress)
	return rows, err
}

// profile returns the computed profile of a point, or the reason why there is none, or why the point does not count.
func (p *Point) profile() (*profile.Profile, string) {
	if p.unknown != "" {
		return nil, p.unknown
	}
	a, err := profile.FindAnalytic(p.Model, strings.TrimSuffix(p.GPU, "_sxm"))
	if err != nil {
		return nil, err.Error()
	}
	a.TP, a.Bits, a.Engine, a.MemoryShare = p.GPUs, p.Bits, p.Engine, 0.9
	p.Experts = a.HasExperts()
	if p.Experts && p.GPUs > gpusOfServer {
		return nil, fmt.Sprintf("experts on more than %d GPUs", gpusOfServer)
	}
	out, err := a.Profile()
	if err != nil {
		return nil, err.Error()
	}
	p.serve(out)
	if err := out.Check(); err != nil {
		return nil, err.Error()
	}
	out.Latency.LoRA.Backend = profile.BackendNone
	kv, err := out.KVTokens()
	switch {
	case err != nil:
		return nil, err.Error()
	case int64(p.Concurrency)*int64(p.Input+p.Output) > kv:
		return nil, "more requests in flight than the KV cache holds, as estimated"
	case p.tooFast(out):
		return nil, "faster than the GPU: more operations than its matrix products reach"
	}
	return out, ""
}

// gpusOfServer is the number of GPUs of a server. Beyond it, tables of exchanges between GPUs end.
const gpusOfServer = 8

// serve sets the engine's limits. vLLM schedules asynchronously by default from version 0.14 on; a run without a
// version is older.
func (p *Point) serve(out *profile.Profile) {
	e := &out.Engine
	e.ContextLength = max(e.ContextLength, p.Input+p.Output)
	e.MaxRunningRequests = max(e.MaxRunningRequests, p.Concurrency)
	if e.Scheduler == profile.SchedulerSGLang {
		e.OverlapSchedule = true
		return
	}
	e.MaxNumBatchedTokens, e.PageSize = max(8192, e.MaxRunningRequests), 16
	var minor int
	n, _ := fmt.Sscanf(p.Version, "0.%d", &minor)
	e.AsyncScheduling = p.Engine != profile.SchedulerVLLM || n == 1 && minor >= 14
}

// tooFast reports whether the measured times mean more operations than the products of matrices reach on the GPU.
func (p *Point) tooFast(out *profile.Profile) bool {
	mean := (1 + p.ratio) / 2
	cycle := p.seen[TTFTMean] + p.seen[TPOT]*(float64(p.Output)*mean-1) // ms
	tokens := float64(p.Concurrency) * float64(p.Input+p.Output) * mean
	return tokens*out.LeastPerTokenUs()/1000 > cycle
}

// rounds is the number of requests of a simulated point over those in flight.
const rounds = 6

// predict simulates a point.
func (p *Point) predict(ctx context.Context, out *profile.Profile) (Values, error) {
	b := Block{Requests: rounds * p.Concurrency, Concurrency: p.Concurrency, Input: p.Input, Output: p.Output,
		Ratio: p.ratio, Seed: 1}
	return predictBlock(ctx, &b, out, []Metric{TPOT, TTFTMean})
}
