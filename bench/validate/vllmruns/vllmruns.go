// Package vllmruns holds the simulator against measured hours of vLLM with many
// LoRA adapters: a table with a row for each run, and beside it what the server
// printed of its KV cache and of adapter loads.
//
//	runs, err := vllmruns.Read("vllm_lora/runs.csv")
//	tables, err := vllmruns.ReadTables("vllm_lora")
//	rows, err := vllmruns.Simulate(ctx, runs, tables, vllmruns.Options{})
//	vllmruns.NewReport(rows).WriteText(os.Stdout)
//
// A run is an hour of one worker: a Poisson process per adapter, lengths drawn
// from a pool of ShareGPT prompts, and an end at which what is unfinished is
// cancelled. All figures count completed requests only.
package vllmruns

import "lorasim/bench/validate"

// Metric is one measured figure of a run.
type Metric string

// The metrics. TPOT is the mean over requests of their mean gap between tokens,
// ITL the mean over all gaps, Running the mean number of running requests.
const (
	Throughput Metric = "throughput" // prompt + output tokens/s of completed requests
	TPOT       Metric = "tpot"       // ms
	ITL        Metric = "itl"        // ms
	TTFTMean   Metric = "ttft_mean"  // ms
	TTFTMedian Metric = "ttft_median"
	Running    Metric = "running"
)

// Metrics lists the metrics in the order in which they are printed.
var Metrics = []Metric{Throughput, TPOT, ITL, TTFTMean, TTFTMedian, Running}

// Values holds metrics; one that is not known is absent.
type Values map[Metric]float64

// Uses of a run.
const (
	Calibration = "calibration" // may be fitted
	Validation  = "validation"  // only compared
	Held        = "held"        // of a table kept aside
)

// starvedBelow: a run that completed less than this share of its arrivals was
// starved.
const starvedBelow = 0.9

// errorOf returns the relative error of a prediction and whether there is one.
func errorOf(measured, predicted Values, m Metric) (float64, bool) {
	a, okA := measured[m]
	b, okB := predicted[m]
	if !okA || !okB || a == 0 {
		return 0, false
	}
	return (b - a) / a, true
}

// Row is one run with its prediction.
type Row struct {
	Line     int    `json:"line"`
	Use      string `json:"use"`
	Run      string `json:"run"`
	Model    string `json:"model"`
	Group    string `json:"group,omitempty"`
	Slots    int    `json:"max_loras"`
	MaxRank  int    `json:"max_lora_rank"`
	Adapters int    `json:"adapters"`
	// Arrivals is the number of requests that came: as recorded, or else as the
	// generator makes them.
	Arrivals int64 `json:"arrivals"`

	Measured  Values `json:"measured"`
	Predicted Values `json:"predicted,omitempty"`
	Error     Values `json:"error,omitempty"` // relative

	// LoadsPerStep is how many adapters a predicted step brings to their slots.
	LoadsPerStep float64 `json:"-"`

	StarvedMeasured  bool `json:"starved_measured"`
	StarvedPredicted bool `json:"starved_predicted"`
	// Skipped says why the run was not predicted.
	Skipped string `json:"skipped,omitempty"`
}

// Starved says how often the prediction tells correctly whether a run was
// starved.
type Starved struct {
	Runs      int     `json:"runs"`
	Agreement float64 `json:"agreement"`
}

// Summary is over all runs with a prediction.
type Summary struct {
	metrics map[Metric]validate.Summary
	Starved Starved
}
