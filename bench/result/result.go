// Package result is the one schema of simulated, live and imported runs: a
// [Result] holds what a run was, its metrics, and what lies beyond the reference
// benchmark (`python -m sglang.bench_serving`) in an [Extra]. Every printer and
// file format reads only it.
//
// A driver feeds a [Collector], which keeps a bounded amount of memory however
// long the run:
//
//	c := result.NewCollector(result.Options{Workers: 2, Adapters: w.Adapters})
//	... the run calls c.Tokens, c.Steps, c.Gap and c.Done ...
//	r := c.Result(result.Meta{Source: result.Sim, Backend: "sglang", RequestRate: 4}, nil)
//	r.WriteBlock(os.Stdout, result.SGLang)
//	r.WriteExtra(os.Stdout)
//	r.AppendJSONL("out.jsonl", false)
//
// Per-request files are in the package records below this one.
package result

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Schema names the version of the result's JSON form.
const Schema = "lorasim.result/1"

// Source says where a result comes from.
type Source string

// The sources of results.
const (
	Sim  Source = "sim"  // simulated
	Live Source = "live" // measured by the live client
	Log  Source = "log"  // read from a log or a results file
)

// Meta says what a run was.
type Meta struct {
	Source      Source
	Backend     string // as in "sglang"
	DatasetName string
	RequestRate Rate
	// MaxConcurrency limits the requests in flight; 0: no limit.
	MaxConcurrency int

	// The arguments below are nil where the run has none.
	RandomInputLen   *int
	RandomOutputLen  *int
	RandomRangeRatio *float64
	Seed             *int64

	// Streamed says whether the client read replies as they came.
	Streamed record.Streaming
	Policy   string // that routed the requests; "": not known
	// Scenario says what ran.
	Scenario Scenario

	// Config is the run's configuration in free form: values as encoding/json
	// knows them, and int64.
	Config map[string]any
}

// Result is one run.
type Result struct {
	Meta
	Metrics Metrics
	// Approximate names the latency families (as in "itl") whose percentiles
	// come from a histogram and may be off by up to 0.05 %.
	Approximate []string
	Extra       *Extra // nil: only the reference's metrics are known
	// Steady says whether the run reached a steady state; nil: unknown.
	Steady *steady.Assessment
	// Ended says how the requests ended where Extra is nil; see Endings.
	Ended   *Endings
	Goodput *Goodput         // of the records of an imported run, see CountGood
	Details *Details         // per-request arrays read from a JSONL line; nil: none
	Records []record.Request // where the collector was told to keep them
	Texts   map[int64]string // of the replies by request id, where they were kept
	// Adapters are those of the records of an imported run, by their index.
	Adapters []trace.Adapter
}

// Rate is a request rate in requests/s. The zero value means that the rate is
// not known.
type Rate float64

// TraceRate says that a trace's own timestamps govern the rate.
const TraceRate Rate = -1

// Unlimited returns the rate at which all requests come at once.
func Unlimited() Rate { return Rate(math.Inf(1)) }

// String prints the rate as Python prints its float: "2.0", "inf"; "trace" for
// TraceRate, "" where it is not known.
func (r Rate) String() string {
	switch r {
	case 0:
		return ""
	case TraceRate:
		return "trace"
	}
	return pyFloat(float64(r))
}

// ParseRate is the inverse of Rate.String.
func ParseRate(s string) (Rate, error) {
	if s == "trace" {
		return TraceRate, nil
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) {
		return 0, fmt.Errorf("request rate %q: expected a number above 0, inf or trace", s)
	}
	return Rate(v), nil
}

// MarshalJSON writes a finite rate as a number, another as a string.
func (r Rate) MarshalJSON() ([]byte, error) {
	switch {
	case r == 0:
		return []byte("null"), nil
	case r < 0 || math.IsInf(float64(r), 1):
		return json.Marshal(r.String())
	}
	return []byte(r.String()), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Rate) UnmarshalJSON(text []byte) (err error) {
	if s := string(text); s != "null" {
		*r, err = ParseRate(strings.Trim(s, `" `))
	}
	return err
}

// pyFloat prints v as Python's repr does: the shortest digits that give v back,
// at least one decimal, an exponent only below 1e-4 and from 1e16.
func pyFloat(v float64) string {
	switch {
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	case math.IsNaN(v):
		return "nan"
	}
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

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
		Duration:               {"duration", "Benchmark duration (s)", "s", false},
		Completed:              {"completed", "Successful requests", "", true},
		TotalInputTokens:       {"total_input_tokens", "Total input tokens", "tokens", true},
		TotalInputTextTokens:   {"total_input_text_tokens", "Total input text tokens", "tokens", true},
		TotalInputVisionTokens: {"total_input_vision_tokens", "Total input vision tokens", "tokens", true},
		TotalOutputTokens:      {"total_output_tokens", "Total generated tokens", "tokens", true},
		TotalOutputTokensRetokenized: {
			"total_output_tokens_retokenized", "Total generated tokens (retokenized)", "tokens", true,
		},
		RequestThroughput:     {"request_throughput", "Request throughput (req/s)", "req/s", false},
		InputThroughput:       {"input_throughput", "Input token throughput (tok/s)", "tok/s", false},
		OutputThroughput:      {"output_throughput", "Output token throughput (tok/s)", "tok/s", false},
		TotalThroughput:       {"total_throughput", "Total token throughput (tok/s)", "tok/s", false},
		MaxITL:                {"max_itl_ms", "Max ITL (ms)", "ms", false},
		Concurrency:           {"concurrency", "Concurrency", "", false},
		AcceptLength:          {"accept_length", "Accept length", "tokens", false},
		MaxOutputTokensPerS:   {"max_output_tokens_per_s", "Peak output token throughput (tok/s)", "tok/s", false},
		MaxConcurrentRequests: {"max_concurrent_requests", "Peak concurrent requests", "", true},
	}
	for _, f := range families {
		for s := Mean; s < numStats; s++ {
			ds[f.first+Metric(s)] = Descriptor{
				Key: strings.ToLower(statNames[s]) + "_" + f.key + "_ms", Label: statNames[s] + " " + f.label + " (ms)",
				Unit: "ms",
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
