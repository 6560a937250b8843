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

	"lorasim/internal/record"
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
	// Scenario is the scenario's name, or the settings in which it differs from
	// the defaults; "": not known.
	Scenario string

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
