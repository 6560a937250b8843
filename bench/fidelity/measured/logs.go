package measured

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/result/importer"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
	"lorasim/trace/lengths"
)

// Block is a closed-loop run of a serving benchmark on one server: Requests requests of random
// lengths, at most Concurrency in flight.
type Block struct {
	File          string
	Line          int
	Model, Server string // names in the log; "": unknown
	Requests      int
	Concurrency   int     // limit of requests in flight
	Input, Output int     // largest lengths, tokens
	Ratio         float64 // shortest length as a share of the longest
	Seed          uint64
	Measured      Values
	// Skipped is the reason why the block cannot be simulated; "": none.
	Skipped string
}

// Name returns a name that is unique among the blocks of a folder.
func (b *Block) Name() string {
	return strings.TrimPrefix(fmt.Sprintf("%s %dx%d", b.Server, b.Requests, b.Concurrency), " ")
}

// ReadLogs reads the blocks of every *.log and *.jsonl file of a folder, or of one file.
func ReadLogs(ctx context.Context, path string) ([]Block, error) {
	files := []string{path}
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if st.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".log" || ext == ".jsonl") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("%s: no .log or .jsonl file", path)
		}
	}
	runs, _, err := importer.Files(ctx, trace.Files{}, files)
	if err != nil {
		return nil, err
	}
	blocks := make([]Block, len(runs))
	for i, r := range runs {
		blocks[i] = newBlock(r)
	}
	return blocks, nil
}

func newBlock(r *importer.Imported) Block {
	b := Block{
		File: filepath.Base(r.File), Line: r.Line, Server: r.Server, Concurrency: r.MaxConcurrency, Measured: Values{},
	}
	b.Model, _ = r.Config["model"].(string)
	if done, ok := r.Metrics.Get(result.Completed); ok {
		b.Requests = int(done)
	}
	for _, m := range BlockMetrics {
		if v, ok := r.Metrics.Get(inResult[m]); ok && v > 0 {
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
	const maxLength = 1 << 24 // tokens
	switch {
	case b.Concurrency == 0 || !math.IsInf(float64(r.RequestRate), 1):
		b.Skipped = "no closed loop: needs a request rate of inf and a limit on the concurrency"
	case r.DatasetName != "random" || b.Input < 1 || b.Output < 1 || b.Input > maxLength || b.Output > maxLength:
		b.Skipped = "the lengths are unknown: needs dataset random with its input and output length"
	case b.Requests < 1 || b.Requests > maxCount:
		b.Skipped = "the number of successful requests is unknown"
	}
	return b
}

// profileOf returns the embedded profile of a block's model and, if the model has several, of its
// server's attention backend. It returns nil if there is none.
func profileOf(b *Block) (*profile.Profile, error) {
	model := strings.ToLower(filepath.Base(strings.TrimRight(b.Model, "/")))
	var found []*profile.Profile
	for _, name := range profile.Names() {
		p, err := profile.Embedded(name)
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
	return nil, nil
}

// PredictBlock predicts the metrics of a block.
func PredictBlock(ctx context.Context, b *Block, p *profile.Profile) (Values, error) {
	return predictBlock(ctx, b, p, BlockMetrics)
}

func predictBlock(ctx context.Context, b *Block, p *profile.Profile, metrics []Metric) (Values, error) {
	sampler, err := lengths.NewRandom(int32(b.Input), int32(b.Output), b.Ratio)
	if err != nil {
		return nil, err
	}
	w := trace.Workload{Requests: make([]trace.Request, b.Requests)} // all at time 0
	for i := range w.Requests {
		w.Requests[i] = trace.Request{ID: int64(i), Adapter: trace.BaseModel, Prompt: 1, Output: 1}
	}
	c := result.NewCollector(result.Options{Workers: 1})
	if _, err := sim.Run(ctx, sim.Config{
		Source: lengths.Fill(w.Source(), sampler, b.Seed), Workers: []*profile.Costs{p.Compile()}, Observer: c,
		Router: &router.Router{Policy: router.Always(0)}, MaxConcurrency: b.Concurrency,
		Home: router.Disk,
	}); err != nil {
		return nil, err
	}
	res := c.Result(result.Meta{Source: result.Sim}, nil)
	if done, _ := res.Metrics.Get(result.Completed); int(done) != b.Requests {
		return nil, fmt.Errorf(
			"%d of %d simulated requests succeeded: the profile's context_length or KV cache is too small", int(done),
			b.Requests)
	}
	vs := Values{}
	for _, m := range metrics {
		if v, ok := res.Metrics.Get(inResult[m]); ok {
			vs[m] = v
		}
	}
	return vs, nil
}

// PredictedBlock is a block with its prediction.
type PredictedBlock struct {
	Setup
	Profile string `json:"profile,omitempty"`
	Comparison
	Skipped string `json:"skipped,omitempty"` // reason why the block was not predicted
}

// PredictBlocks predicts blocks. given is the profile for all blocks; nil: each block's embedded profile.
func PredictBlocks(ctx context.Context, blocks []Block, given *profile.Profile) ([]PredictedBlock, error) {
	var rows []PredictedBlock
	for i := range blocks {
		b := &blocks[i]
		row := PredictedBlock{Setup: Setup{Line: b.Line, Group: b.File, ID: b.Name(), Policy: b.Name()},
			Comparison: Comparison{Measured: b.Measured}, Skipped: b.Skipped}
		p := given
		var err error
		if p == nil {
			if p, err = profileOf(b); err != nil {
				return nil, err
			}
		}
		switch {
		case row.Skipped != "":
		case p == nil:
			row.Skipped = "no embedded profile of this model and server; give one with --profile"
		default:
			vs, err := PredictBlock(ctx, b, p)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", b.File, b.Line, err)
			}
			row.Profile = p.Name
			row.Predict(vs)
		}
		rows = append(rows, row)
	}
	return rows, nil
}
