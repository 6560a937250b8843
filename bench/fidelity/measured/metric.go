package measured

import (
	"strconv"
	"strings"

	"lorasim/bench/result"
)

// Metric is the name of a compared figure of a run. Reports and the validation of a profile have these names.
type Metric string

// The metrics of tables and logs of runs.
const (
	Duration   Metric = "duration" // from the first arrival to the last token, s
	MeanE2E    Metric = "mean_e2e"
	MedianE2E  Metric = "median_e2e"
	P99E2E     Metric = "p99_e2e"
	MeanTTFT   Metric = "mean_ttft"
	MedianTTFT Metric = "median_ttft"
	P99TTFT    Metric = "p99_ttft"
	MeanITL    Metric = "mean_itl"
	MedianITL  Metric = "median_itl"
	P95ITL     Metric = "p95_itl"
	P99ITL     Metric = "p99_itl"
	MaxITL     Metric = "max_itl"
)

// The metrics of recorded requests and of hours of vLLM. TPOT is a request's mean gap between tokens.
const (
	TTFTMean   Metric = "ttft_mean"
	TTFTMedian Metric = "ttft_median"
	TTFTP90    Metric = "ttft_p90"
	TTFTP99    Metric = "ttft_p99"
	TPOTMean   Metric = "tpot_mean"
	TPOTP99    Metric = "tpot_p99"
	E2EMean    Metric = "e2e_mean"
	E2EP90     Metric = "e2e_p90"
	E2EP99     Metric = "e2e_p99"

	Throughput Metric = "throughput" // prompt + output tokens/s of completed requests
	TPOT       Metric = "tpot"       // mean over requests of their mean gap between tokens
	ITL        Metric = "itl"        // mean over all gaps
	Running    Metric = "running"    // mean number of running requests
)

// The metrics of each kind of runs, in printing order.
var (
	RunMetrics   = []Metric{Duration, MeanE2E, MedianE2E, P99E2E}
	BlockMetrics = []Metric{
		Duration, MeanE2E, MedianE2E, MeanTTFT, MedianTTFT, P99TTFT, MeanITL, MedianITL, P95ITL, P99ITL, MaxITL,
	}
	RecordingMetrics = []Metric{
		Duration, TTFTMean, TTFTMedian, TTFTP90, TTFTP99, TPOTMean, TPOTP99, E2EMean, E2EP90, E2EP99,
	}
	HourMetrics = []Metric{Throughput, TPOT, ITL, TTFTMean, TTFTMedian, Running}
)

// inResult are the metrics of results (bench/result) under their names there.
var inResult = map[Metric]result.ID{
	Duration: result.Duration, MeanE2E: result.MeanE2E, MedianE2E: result.MedianE2E, P99E2E: result.P99E2E,
	MeanTTFT: result.MeanTTFT, MedianTTFT: result.MedianTTFT, P99TTFT: result.P99TTFT,
	MeanITL: result.MeanITL, MedianITL: result.MedianITL, P95ITL: result.P95ITL, P99ITL: result.P99ITL,
	MaxITL: result.MaxITL,

	TTFTMean: result.MeanTTFT, TTFTMedian: result.MedianTTFT, TTFTP99: result.P99TTFT, TPOTMean: result.MeanTPOT,
	E2EMean: result.MeanE2E, E2EP99: result.P99E2E,

	Throughput: result.TotalThroughput, TPOT: result.MeanTPOT, ITL: result.MeanITL,
}

// InResult returns the metric of results that a metric is. Prediction intervals have these metrics alone.
func (m Metric) InResult() (id result.ID, ok bool) {
	id, ok = inResult[m]
	return id, ok
}

// Unit returns the metric's unit.
func (m Metric) Unit() string {
	switch m {
	case Duration:
		return "s"
	case Throughput:
		return "tokens/s"
	case Running:
		return "requests"
	}
	return "ms"
}

// Label returns the metric's name with its unit, as a heading.
func (m Metric) Label() string {
	return strings.ToUpper(strings.ReplaceAll(string(m), "_", " ")) + " " + m.Unit()
}

// Format returns a value of the metric with about four digits.
func (m Metric) Format(v float64) string {
	decimals := 0
	switch {
	case m == Duration:
		decimals = 1
	case v < 1000:
		decimals = 2
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// Values holds the values of metrics. An unknown metric is absent.
type Values map[Metric]float64
