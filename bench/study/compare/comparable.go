package compare

import (
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/sim/record"
)

// apartIn says which runs' values of a metric cannot be compared with the others':
// those of other requests; those of other completed requests, as far as the metric
// depends on that; and those that were measured in another way.
func (t *Table) apartIn(metric string) []bool {
	apart, ref := t.measuredApart(metric), t.reference()
	for i, r := range t.Runs {
		apart[i] = apart[i] || t.differs[i] != "" || !result.MetricOf(metric).AllRequests && !r.sameRequests(ref)
	}
	return apart
}

// measuredApart says which runs' values of a metric were measured in another way than
// the others': those that the client defines in another way, token times of clients
// that did not stream, and token throughputs that count tokens that were only asked for.
func (t *Table) measuredApart(metric string) []bool {
	apart, ref := make([]bool, len(t.Runs)), t.reference()
	tokens := metric == "output_throughput" || metric == "total_throughput"
	times := slices.ContainsFunc([]string{"ttft", "tpot", "itl"}, func(f string) bool {
		return strings.Contains(metric, f)
	})
	counted := slices.ContainsFunc(t.Runs, func(r *Run) bool { return !r.Asked })
	defined := ref.Definitions.Of(metric)
	streamed := slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.Streamed == record.Streamed })
	for i, r := range t.Runs {
		apart[i] = defined.Differs(r.Definitions.Of(metric)) ||
			tokens && r.Asked && counted || times && r.Streamed == record.NotStreamed && streamed
	}
	return apart
}

// reference is the run whose completed requests the others are held against: of
// those that had the same requests the first that completed most of them.
func (t *Table) reference() *Run {
	ref := t.same
	for i, r := range t.Runs {
		if t.differs[i] == "" && (r.left() < ref.left() || r.left() == ref.left() && slices.Index(t.Runs, ref) > i) {
			ref = r
		}
	}
	return ref
}

func (r *Run) whole() bool {
	return !slices.ContainsFunc(r.completed, func(c result.Completion) bool { return !c.Whole() })
}

// left is the mean share of requests that did not complete; infinite where it is
// not known.
func (r *Run) left() float64 {
	sum := 0.0
	for _, c := range r.completed {
		sum += c.Left()
	}
	if math.IsNaN(sum) || len(r.completed) == 0 {
		return math.Inf(1)
	}
	return sum / float64(len(r.completed))
}

// sameRequests reports whether both runs completed the same requests, seed by seed.
func (r *Run) sameRequests(o *Run) bool {
	if r == o || r.whole() && o.whole() {
		return true
	}
	return (len(r.Seeds) <= 1 || slices.Equal(r.Seeds, o.Seeds)) &&
		slices.EqualFunc(r.completed, o.completed, result.Completion.Same)
}
