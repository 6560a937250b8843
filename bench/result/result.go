// Package result defines the common schema of simulated, live and imported runs. A
// [Result] holds the description of a run, the metrics of the reference benchmark
// (`python -m sglang.bench_serving`), and further metrics in an [Extra]. Every printer and
// file format reads only a Result.
//
// A driver passes its requests to a [Collector]:
//
//	c := result.NewCollector(result.Options{Workers: 2, Adapters: w.Adapters})
//	... the run calls c.Tokens, c.Steps, c.Gap and c.Done ...
//	r := c.Result(result.Meta{Source: result.Sim, Backend: "sglang", RequestRate: 4}, nil)
//	r.WriteBlock(os.Stdout, result.SGLang)
//	r.WriteExtra(os.Stdout)
//	r.AppendJSONL("out.jsonl", false)
//
// The memory of a Collector does not grow with the number of requests, unless it keeps
// their records or looks for the warm-up. Package records, in the directory below, reads
// and writes per-request files.
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

// schema is the name and version of the JSON form of a result.
const schema = "lorasim.result/1"

// A Source is the origin of a result.
type Source string

// The sources of results.
const (
	Sim  Source = "sim"  // simulated
	Live Source = "live" // measured by the live client
	Log  Source = "log"  // read from a log or a results file
)

// Meta describes a run.
type Meta struct {
	Source      Source
	Backend     string // such as "sglang"
	DatasetName string
	RequestRate Rate
	// MaxConcurrency is the limit of requests in flight; 0 means no limit.
	MaxConcurrency int

	// The arguments below are nil if the run has none.
	RandomInputLen   *int     // tokens
	RandomOutputLen  *int     // tokens
	RandomRangeRatio *float64 // smallest length as a share of the largest
	Seed             *int64

	Streamed record.Streaming // whether the client streamed replies
	Policy   string           // routing policy; "": unknown
	Scenario Scenario

	// Config is the run's configuration in free form. Its values have the types of
	// encoding/json, or int64.
	Config map[string]any
}

// A Result is the description and the metrics of one run.
type Result struct {
	Meta
	Metrics Metrics
	// Approximate lists the latency families, such as "itl", whose percentiles come from a
	// histogram. They may be off by up to 0.05 %.
	Approximate []string
	Extra       *Extra // nil: only the metrics of the reference benchmark are known
	// Steady is the assessment of whether the run reached a steady state; nil: unknown.
	Steady *steady.Assessment
	// Ended counts the requests by how they ended, if Extra is nil; see Endings.
	Ended   *Endings
	Goodput *Goodput         // of an imported run; see CountGood
	Details *Details         // per-request arrays of a JSONL line; nil: none
	Records []record.Request // set if Options.KeepRecords is true, or by importers
	Texts   map[int64]string // texts of the replies by request id, if they were kept
	// Defined are the definitions that a client's file follows; see Definitions.
	Defined Definitions
	// Adapters are the adapters of an imported run, by the index in its records.
	Adapters []trace.Adapter
}

// A Rate is a request rate in requests/s. The zero value is an unknown rate; positive
// infinity means that all requests come at once.
type Rate float64

// TraceRate means that requests are sent at the timestamps of a trace.
const TraceRate Rate = -1

// Unlimited returns the rate at which all requests come at once.
func Unlimited() Rate { return Rate(math.Inf(1)) }

// String returns the rate as Python prints a float, such as "2.0" or "inf". It returns
// "trace" for TraceRate, and "" for an unknown rate.
func (r Rate) String() string {
	switch r {
	case 0:
		return ""
	case TraceRate:
		return "trace"
	}
	return pyFloat(float64(r))
}

// ParseRate returns the rate of a text such as "2.0", "inf" or "trace". The rate must be
// above 0.
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

// MarshalJSON writes a finite rate as a number, an infinite rate and TraceRate as a
// string, and an unknown rate as null.
func (r Rate) MarshalJSON() ([]byte, error) {
	switch {
	case r == 0:
		return []byte("null"), nil
	case r < 0 || math.IsInf(float64(r), 1):
		return json.Marshal(r.String())
	}
	return []byte(r.String()), nil
}

// UnmarshalJSON reads the output of MarshalJSON.
func (r *Rate) UnmarshalJSON(text []byte) (err error) {
	if s := string(text); s != "null" {
		*r, err = ParseRate(strings.Trim(s, `" `))
	}
	return err
}

// pyFloat formats v like Python's repr: the shortest digits that give v back, at least one
// decimal, and an exponent only below 1e-4 and from 1e16 on.
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

// An ID identifies one of the reference benchmark's metrics, which Metrics holds. The
// metrics of a latency family have the order of Stat, so MeanTTFT+ID(P99) is P99TTFT.
type ID int

// The metrics, in the order of the reference benchmark's JSONL line. ID.Metric describes
// them.
const (
	Duration ID = iota
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
	NumMetrics // number of metrics
)

// families are the latencies. They all have the same statistics.
var families = [...]struct {
	first ID     // the mean
	key   string // the middle of keys such as "mean_ttft_ms"
	label string // the middle of labels such as "Mean TTFT (ms)"
	title string // section title in the block
	help  string // what it is
}{
	{MeanE2E, "e2e_latency", "E2E Latency", "End-to-End Latency", "the time from sending to the last token"},
	{MeanTTFT, "ttft", "TTFT", "Time to First Token", "the time from sending to the first token"},
	{MeanTPOT, "tpot", "TPOT", "Time per Output Token (excl. 1st token)",
		"(E2E - TTFT) / (output tokens - 1) of the requests with several output tokens"},
	{MeanITL, "itl", "ITL", "Inter-Token Latency", "the times between two tokens of a request"},
}

// A Stat is one statistic of a latency family.
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

var (
	statNames = [numStats]string{"Mean", "Median", "Std", "P90", "P95", "P99"}
	statHelp  = [numStats]string{"mean", "median", "population standard deviation", "90th percentile",
		"95th percentile", "99th percentile"}
)

// Metrics holds the values of metrics. A metric that was not measured is absent. The zero
// value is empty. Whole numbers are exact up to 2^53.
type Metrics struct {
	set    uint64
	values [NumMetrics]float64
}

// Set sets the value of m. It ignores values that are not finite, since no file format can
// represent them.
func (ms *Metrics) Set(m ID, v float64) {
	if format.IsFinite(v) {
		ms.set |= 1 << m
		ms.values[m] = v
	}
}

// Get returns the value of m, and whether m is present.
func (ms *Metrics) Get(m ID) (float64, bool) {
	return ms.values[m], ms.set&(1<<m) != 0
}

// Has reports whether m is present.
func (ms *Metrics) Has(m ID) bool { return ms.set&(1<<m) != 0 }

// Delete makes m absent.
func (ms *Metrics) Delete(m ID) {
	ms.set &^= 1 << m
	ms.values[m] = 0
}
