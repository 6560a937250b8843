package validate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/bench/importer"
	"lorasim/bench/result"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/lengths"
)

// The metrics of a block beyond those of a table; times in ms.
const (
	MeanTTFT   Metric = "mean_ttft"
	MedianTTFT Metric = "median_ttft"
	P99TTFT    Metric = "p99_ttft"
	MeanITL    Metric = "mean_itl"
	MedianITL  Metric = "median_itl"
	P95ITL     Metric = "p95_itl"
	P99ITL     Metric = "p99_itl"
	MaxITL     Metric = "max_itl"
)

// BlockMetrics lists the metrics that are compared for a block.
var BlockMetrics = []Metric{Duration, MeanE2E, MedianE2E, MeanTTFT, MedianTTFT, P99TTFT, MeanITL, MedianITL, P95ITL, P99ITL, MaxITL}

var ofResult = map[Metric]result.Metric{
	Duration: result.Duration, MeanE2E: result.MeanE2E, MedianE2E: result.MedianE2E,
	MeanTTFT: result.MeanTTFT, MedianTTFT: result.MedianTTFT, P99TTFT: result.P99TTFT,
	MeanITL: result.MeanITL, MedianITL: result.MedianITL, P95ITL: result.P95ITL, P99ITL: result.P99ITL, MaxITL: result.MaxITL,
}

// Block is a closed-loop run of a serving benchmark on one server: so many
// requests of random lengths, at most Concurrency at a time.
type Block struct {
	File          string
	Line          int
	Model, Server string // as the log names them; "": not said
	Requests      int
	Concurrency   int
	Input, Output int     // longest, tokens
	Ratio         float64 // shortest as a share of the longest
	Seed          uint64
	Measured      Values
	// Skipped says why the block cannot be simulated.
	Skipped string
}

// Name tells blocks of one folder apart.
func (b *Block) Name() string {
	return strings.Join(slices.DeleteFunc([]string{b.Server, fmt.Sprintf("%dx%d", b.Requests, b.Concurrency)}, func(s string) bool { return s == "" }), " ")
}

// ReadLogs reads the blocks of every *.log and *.jsonl file of a folder, or of
// one file.
func ReadLogs(path string) ([]Block, error) {
	files := []string{path}
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if st.IsDir() {
		if files, err = logFiles(path); err != nil {
			return nil, err
		}
	}
	runs, _, err := importer.Files(files)
	if err != nil {
		return nil, err
	}
	blocks := make([]Block, len(runs))
	for i, r := range runs {
		blocks[i] = newBlock(r)
	}
	return blocks, nil
}

func logFiles(dir string) ([]string, error) {
	entries, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".log" || ext == ".jsonl") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no .log or .jsonl file", dir)
	}
	return files, nil
}

// maxLength bounds the lengths of a block, tokens.
const maxLength = 1 << 24

func newBlock(r *importer.Imported) Block {
	b := Block{File: filepath.Base(r.File), Line: r.Line, Server: r.Server, Concurrency: r.MaxConcurrency, Measured: Values{}}
	b.Model, _ = r.Config["model"].(string)
	if done, ok := r.Metrics.Get(result.Completed); ok {
		b.Requests = int(done)
	}
	for m, id := range ofResult {
		if v, ok := r.Metrics.Get(id); ok && v > 0 {
			b.Measured[m] = v
		}
	}
	if r.Seed != nil {
		b.Seed = uint64(*r.Seed)
	}
	if r.RandomInputLen != nil && r.RandomOutputLen != nil {
		b.Input, b.Output = *r.RandomInputLen, *r.RandomOutputLen
	}
	if r.RandomRangeRatio != nil {
		b.Ratio = *r.RandomRangeRatio
	}
	switch {
	case b.Concurrency == 0 || !math.IsInf(float64(r.RequestRate), 1):
		b.Skipped = "no closed loop: needs a request rate of inf and a limit on the concurrency"
	case r.DatasetName != "random" || b.Input < 1 || b.Output < 1 || b.Input > maxLength || b.Output > maxLength:
		b.Skipped = "the lengths are not known: needs dataset random with its input and output length"
	case b.Requests < 1 || b.Requests > maxCount:
		b.Skipped = "the number of successful requests is not known"
	}
	return b
}

// ProfileOf finds the embedded profile of a block: that of its model and, where
// there are several, of its server's attention backend.
func ProfileOf(b *Block) (*profile.Profile, error) {
	model := strings.ToLower(filepath.Base(strings.TrimRight(b.Model, "/")))
	var found []*profile.Profile
	for _, name := range profile.Names() {
		p, err := profile.Load(name)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(p.Model, " ")
		if !p.Uncalibrated && model != "" && strings.HasPrefix(model, strings.ToLower(first)) {
			found = append(found, p)
		}
	}
	for _, p := range found {
		if b.Server != "" && strings.HasSuffix(p.Name, "-"+b.Server) || len(found) == 1 {
			return p, nil
		}
	}
	return nil, skip("no embedded profile of this model and server; give one")
}

// SimulateBlock predicts a block.
func SimulateBlock(ctx context.Context, b *Block, p *profile.Profile) (Values, error) {
	sampler, err := lengths.NewRandom(int32(b.Input), int32(b.Output), b.Ratio)
	if err != nil {
		return nil, err
	}
	src := lengths.Fill(allAtOnce{n: int64(b.Requests)}.source(), sampler, b.Seed)
	costs := p.Compile()
	rt, err := router.New("round-robin", router.Env{Workers: router.Alike(1, router.Spec{MaxRunning: p.Engine.MaxRunningRequests, Slots: p.Engine.MaxLorasPerBatch})})
	if err != nil {
		return nil, err
	}
	c := result.NewCollector(result.Options{Workers: 1})
	if _, err := sim.Run(ctx, sim.Config{
		Source: src, Workers: []*profile.Costs{costs}, Router: rt, Observer: c, MaxConcurrency: b.Concurrency, Home: router.Disk,
	}); err != nil {
		return nil, err
	}
	res := c.Result(result.Meta{Source: result.Sim}, nil)
	if done, _ := res.Metrics.Get(result.Completed); int(done) != b.Requests {
		return nil, fmt.Errorf("%d of %d simulated requests succeeded: the profile's context_length or KV cache is too small", int(done), b.Requests)
	}
	vs := Values{}
	for m, id := range ofResult {
		if v, ok := res.Metrics.Get(id); ok {
			vs[m] = v
		}
	}
	return vs, nil
}

// allAtOnce describes n requests of the base model at time 0.
type allAtOnce struct{ n int64 }

func (a allAtOnce) source() trace.Source {
	w := trace.Workload{Requests: make([]trace.Request, a.n)}
	for i := range w.Requests {
		w.Requests[i] = trace.Request{ID: int64(i), Adapter: trace.BaseModel, Prompt: 1, Output: 1}
	}
	return w.Source()
}

// CompareBlocks predicts blocks and reports on them. p is the profile for all
// of them; nil: the embedded one of each (see ProfileOf).
func CompareBlocks(ctx context.Context, blocks []Block, p *profile.Profile) (*Report, error) {
	r := &Report{Schema: Schema, Use: "all", Seeds: 1, Profile: "the embedded profiles"}
	if p != nil {
		r.Profile = p.Name
	}
	for i := range blocks {
		b := &blocks[i]
		row := Row{Line: b.Line, Group: b.File, ID: b.Name(), Policy: b.Name(), Measured: b.Measured, Skipped: b.Skipped}
		if row.Skipped == "" {
			if err := row.predict(ctx, b, p); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", b.File, b.Line, err)
			}
		}
		r.Runs = append(r.Runs, row)
	}
	r.summarize()
	r.Servers = serverRatios(blocks, r.Runs)
	return r, nil
}

func (row *Row) predict(ctx context.Context, b *Block, p *profile.Profile) error {
	if p == nil {
		var no skip
		var err error
		if p, err = ProfileOf(b); errors.As(err, &no) {
			row.Skipped = no.Error()
			return nil
		} else if err != nil {
			return err
		}
	}
	vs, err := SimulateBlock(ctx, b, p)
	if err != nil {
		return err
	}
	row.Profile, row.Predicted, row.Error = p.Name, vs, Values{}
	for m := range vs {
		if e, ok := Relative(b.Measured, vs, m); ok {
			row.Error[m] = e
		}
	}
	return nil
}

// ServerRatio compares the mean E2E latency of one server with that of another
// for the same requests.
type ServerRatio struct {
	File        string  `json:"file"`
	Servers     string  `json:"servers"` // "A/B"
	Requests    int     `json:"num_prompts"`
	Concurrency int     `json:"max_concurrency"`
	Measured    float64 `json:"measured"`
	Predicted   float64 `json:"predicted"`
	Error       float64 `json:"error"`
}

// serverRatios compares each block with the later ones of its file that differ
// in the server alone.
func serverRatios(blocks []Block, rows []Row) []ServerRatio {
	var out []ServerRatio
	for i := range blocks {
		for k := i + 1; k < len(blocks); k++ {
			a, b := &blocks[i], &blocks[k]
			same := a.File == b.File && a.Requests == b.Requests && a.Concurrency == b.Concurrency &&
				a.Input == b.Input && a.Output == b.Output && a.Server != "" && b.Server != "" && a.Server != b.Server
			if !same || rows[i].Predicted == nil || rows[k].Predicted == nil || a.Measured[MeanE2E] == 0 || b.Measured[MeanE2E] == 0 {
				continue
			}
			s := ServerRatio{File: a.File, Servers: a.Server + "/" + b.Server, Requests: a.Requests, Concurrency: a.Concurrency,
				Measured:  a.Measured[MeanE2E] / b.Measured[MeanE2E],
				Predicted: rows[i].Predicted[MeanE2E] / rows[k].Predicted[MeanE2E]}
			s.Error = s.Predicted/s.Measured - 1
			out = append(out, s)
		}
	}
	return out
}
