package check

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"lorasim/bench/fidelity/measured"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// LogsReport is the errors of the predicted blocks of logs.
type LogsReport struct {
	runErrors
	Servers []ServerRatio             `json:"server_ratio,omitempty"`
	Runs    []measured.PredictedBlock `json:"runs"`
}

// Logs predicts blocks and reports on them. given is the profile for all blocks; nil: each block's embedded profile.
func Logs(ctx context.Context, blocks []measured.Block, given *profile.Profile) (*LogsReport, error) {
	rows, err := measured.PredictBlocks(ctx, blocks, given)
	if err != nil {
		return nil, err
	}
	r := &LogsReport{runErrors: newRunErrors(rows, func(b *measured.PredictedBlock) (*measured.Setup, bool) {
		return &b.Setup, false
	}), Servers: serverRatios(blocks, rows), Runs: rows}
	if r.Seeds, r.Profile = 1, "the embedded profiles"; given != nil {
		r.Profile = given.Name
	}
	return r, nil
}

// Intervals implements [Report]. The lengths of a block's requests are known, but one block says nothing about others:
// there are no intervals.
func (r *LogsReport) Intervals() *IntervalReport { return intervals(r.Runs) }

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (r *LogsReport) Validation(what string) []profile.Validation {
	return r.Summary.Validation(measured.BlockMetrics, what)
}

// Plot implements [Report]: mean E2E latency, TTFT and ITL, with a colour for each block.
func (r *LogsReport) Plot(w io.Writer) error {
	return plot(w, r.Runs, []measured.Metric{measured.MeanE2E, measured.MeanTTFT, measured.MeanITL},
		func(b *measured.PredictedBlock) string { return b.ID })
}

// WriteText prints a table for each block, and the ratios of the servers.
func (r *LogsReport) WriteText(w io.Writer) error {
	var rows [][]string
	for i := range r.Runs {
		rows = append(rows, blockTable(&r.Runs[i])...)
	}
	if len(r.Servers) > 0 {
		rows = append(rows, nil, []string{"Ratio of the mean E2E latencies"}, []string{
			"SERVERS", "PROMPTS", "CONCURRENCY", "MEASURED", "PREDICTED", "ERROR",
		})
	}
	for _, s := range r.Servers {
		rows = append(rows, []string{
			s.Servers, strconv.Itoa(s.Requests), strconv.Itoa(s.Concurrency), fixed(s.Measured, 4),
			fixed(s.Predicted, 4), percent(s.Error),
		})
	}
	return format.Table(w, rows)
}

// blockTable returns the table of a block, a metric on each line.
func blockTable(r *measured.PredictedBlock) [][]string {
	title := fmt.Sprintf("%s:%d %s", r.Group, r.Line, r.ID)
	if r.Skipped != "" {
		return [][]string{nil, {title}, {"skipped: " + r.Skipped}}
	}
	rows := [][]string{nil, {title + ", profile " + r.Profile}, {"METRIC", "MEASURED", "PREDICTED", "ERROR"}}
	for _, m := range measured.BlockMetrics {
		if _, ok := r.Error[m]; ok {
			rows = append(rows, append([]string{m.Label()}, comparisonCells(&r.Comparison, m)...))
		}
	}
	return rows
}

// ServerRatio is the ratio of the mean E2E latencies of two servers for the same requests.
type ServerRatio struct {
	File        string  `json:"file"`
	Servers     string  `json:"servers"` // "A/B", for A over B
	Requests    int     `json:"num_prompts"`
	Concurrency int     `json:"max_concurrency"`
	Measured    float64 `json:"measured"`
	Predicted   float64 `json:"predicted"`
	Error       float64 `json:"error"`
}

// serverRatios compares each block with later blocks of its file that differ only in the server.
func serverRatios(blocks []measured.Block, rows []measured.PredictedBlock) []ServerRatio {
	var out []ServerRatio
	for i := range blocks {
		for k := i + 1; k < len(blocks); k++ {
			a, b := &blocks[i], &blocks[k]
			same := a.File == b.File && a.Requests == b.Requests && a.Concurrency == b.Concurrency &&
				a.Input == b.Input && a.Output == b.Output && a.Server != "" && b.Server != "" && a.Server != b.Server
			if !same || rows[i].Predicted == nil || rows[k].Predicted == nil || a.Measured[measured.MeanE2E] == 0 ||
				b.Measured[measured.MeanE2E] == 0 {
				continue
			}
			s := ServerRatio{File: a.File, Servers: a.Server + "/" + b.Server, Requests: a.Requests,
				Concurrency: a.Concurrency,
				Measured:    a.Measured[measured.MeanE2E] / b.Measured[measured.MeanE2E],
				Predicted:   rows[i].Predicted[measured.MeanE2E] / rows[k].Predicted[measured.MeanE2E]}
			s.Error = s.Predicted/s.Measured - 1
			out = append(out, s)
		}
	}
	return out
}
