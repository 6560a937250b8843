package result

import (
	"fmt"
	"strings"

	"lorasim/internal/format"
)

// Metric names one number of a result. The latency metrics of a family lie in
// the order of its statistics, so that MeanTTFT+Metric(P99) is P99TTFT.
type Metric int

// The metrics, in the order of the reference benchmark's JSONL line.
const (
	Duration Metric = iota
	Completed
	TotalInputTokens
	TotalInputTextTokens
	TotalInputVisionTokens
	TotalOutputTokens
	TotalOutputTokensRetokenized
	RequestThroughput
	InputThroughput
	OutputThroughput
	TotalThroughput
	MeanE2E
	MedianE2E
	StdE2E
	P90E2E
	P95E2E
	P99E2E
	MeanTTFT
	MedianTTFT
	StdTTFT
	P90TTFT
	P95TTFT
	P99TTFT
	MeanTPOT
	MedianTPOT
	StdTPOT
	P90TPOT
	P95TPOT
	P99TPOT
	MeanITL
	MedianITL
	StdITL
	P90ITL
	P95ITL
	P99ITL
	MaxITL
	Concurrency
	AcceptLength
	MaxOutputTokensPerS
	MaxConcurrentRequests
	NumMetrics
)

// Descriptor says what a metric is.
type Descriptor struct {
	Key   string // name in JSON and JSONL
	Label string // name in the block, unit included
	Unit  string // "" for plain counts
	Int   bool   // a whole number; otherwise two decimals are printed
}

// families are the latencies, which have the same statistics.
var families = [...]struct {
	first Metric // its mean
	key   string // as in "mean_ttft_ms"
	label string // as in "Mean TTFT (ms)"
	title string // of its section in the block
}{
	{MeanE2E, "e2e_latency", "E2E Latency", "End-to-End Latency"},
	{MeanTTFT, "ttft", "TTFT", "Time to First Token"},
	{MeanTPOT, "tpot", "TPOT", "Time per Output Token (excl. 1st token)"},
	{MeanITL, "itl", "ITL", "Inter-Token Latency"},
}

// Stat is one statistic of a latency family.
type Stat int

// The statistics of a family, in order.
const (
	Mean Stat = iota
	Median
	Std
	P90
	P95
	P99
	numStats
)

var statNames = [numStats]string{"Mean", "Median", "Std", "P90", "P95", "P99"}

var descriptors, byKey = describe()

// describe returns the descriptors of all metrics and their index by key.
func describe() (ds [NumMetrics]Descriptor, index map[string]Metric) {
	ds = [NumMetrics]Descriptor{
		Duration:                     {"duration", "Benchmark duration (s)", "s", false},
		Completed:                    {"completed", "Successful requests", "", true},
		TotalInputTokens:             {"total_input_tokens", "Total input tokens", "tokens", true},
		TotalInputTextTokens:         {"total_input_text_tokens", "Total input text tokens", "tokens", true},
		TotalInputVisionTokens:       {"total_input_vision_tokens", "Total input vision tokens", "tokens", true},
		TotalOutputTokens:            {"total_output_tokens", "Total generated tokens", "tokens", true},
		TotalOutputTokensRetokenized: {"total_output_tokens_retokenized", "Total generated tokens (retokenized)", "tokens", true},
		RequestThroughput:            {"request_throughput", "Request throughput (req/s)", "req/s", false},
		InputThroughput:              {"input_throughput", "Input token throughput (tok/s)", "tok/s", false},
		OutputThroughput:             {"output_throughput", "Output token throughput (tok/s)", "tok/s", false},
		TotalThroughput:              {"total_throughput", "Total token throughput (tok/s)", "tok/s", false},
		MaxITL:                       {"max_itl_ms", "Max ITL (ms)", "ms", false},
		Concurrency:                  {"concurrency", "Concurrency", "", false},
		AcceptLength:                 {"accept_length", "Accept length", "tokens", false},
		MaxOutputTokensPerS:          {"max_output_tokens_per_s", "Peak output token throughput (tok/s)", "tok/s", false},
		MaxConcurrentRequests:        {"max_concurrent_requests", "Peak concurrent requests", "", true},
	}
	for _, f := range families {
		for s := Mean; s < numStats; s++ {
			ds[f.first+Metric(s)] = Descriptor{
				Key: strings.ToLower(statNames[s]) + "_" + f.key + "_ms", Label: statNames[s] + " " + f.label + " (ms)", Unit: "ms",
			}
		}
	}
	index = make(map[string]Metric, NumMetrics)
	for m, d := range ds {
		index[d.Key] = Metric(m)
	}
	return ds, index
}

// Descriptor returns the names and the unit of m.
func (m Metric) Descriptor() Descriptor { return descriptors[m] }

func (m Metric) String() string {
	if m < 0 || m >= NumMetrics {
		return fmt.Sprintf("metric(%d)", int(m))
	}
	return descriptors[m].Key
}

// MetricByKey finds a metric by its JSONL name.
func MetricByKey(key string) (Metric, bool) {
	m, ok := byKey[key]
	return m, ok
}

// Metrics is a set of values; a metric that was not measured is absent. The
// zero value is empty. Whole numbers are exact up to 2^53.
type Metrics struct {
	set    uint64
	values [NumMetrics]float64
}

// Set stores a value. A value that is no finite number leaves m absent: no file
// format could carry it.
func (ms *Metrics) Set(m Metric, v float64) {
	if format.IsFinite(v) {
		ms.set |= 1 << m
		ms.values[m] = v
	}
}

// Get returns the value of m and whether it is there.
func (ms *Metrics) Get(m Metric) (float64, bool) {
	return ms.values[m], ms.set&(1<<m) != 0
}

// Has says whether m is there.
func (ms *Metrics) Has(m Metric) bool { return ms.set&(1<<m) != 0 }

// Delete makes m absent.
func (ms *Metrics) Delete(m Metric) {
	ms.set &^= 1 << m
	ms.values[m] = 0
}
