package sweep

import (
	"fmt"
	"math"
	"strings"
)

// completedSet names the fingerprint of the requests that a run completed; it is
// no number to show.
const completedSet = "completed_set"

// Hidden says that a value is no number to show.
func Hidden(name string) bool { return name == completedSet }

// Completion says which requests a run completed; NaN where it is not known.
type Completion struct {
	Requests, Completed float64
	set                 float64
}

// CompletionOf takes a run's completion from its values.
func CompletionOf(value func(name string) float64) Completion {
	all := value("requests")
	if unsent := value("unsent"); unsent > 0 {
		all += unsent
	}
	return Completion{all, value("completed"), value(completedSet)}
}

// Whole says that every request completed.
func (c Completion) Whole() bool { return c.Requests == c.Completed }

// Left is the share of requests that did not complete; NaN: not known.
func (c Completion) Left() float64 {
	if c.Requests == 0 {
		return 0
	}
	return (c.Requests - c.Completed) / c.Requests
}

// Same says that both runs completed the same requests, as far as is known: all
// of them, or those with the same fingerprint. Where they do not, their
// latencies are of different requests and cannot be compared.
func (c Completion) Same(o Completion) bool {
	switch {
	case c.Whole() && o.Whole(), math.IsNaN(c.Completed) || math.IsNaN(o.Completed):
		return true
	case c.Completed != o.Completed:
		return false
	case c.set > 0 && o.set > 0:
		return c.set == o.set
	}
	return true
}

// CountsAll says that a metric is about all requests of a run, so that it can be
// compared whichever of them completed.
func CountsAll(metric string) bool {
	switch metric {
	case "requests", "completed", "failed", "rejected", "aborted", "unfinished", "unsent":
		return true
	}
	return metric == "goodput.share" || strings.HasPrefix(metric, "goodput.good_")
}

// percentLeft words a share of requests that did not complete; one that is not 0
// never looks like it.
func percentLeft(share float64) string {
	switch {
	case math.IsNaN(share):
		return "-"
	case share > 0 && share < 0.001:
		return "<0.1 %"
	}
	return fmt.Sprintf("%.1f %%", 100*share)
}

// differing finds, seed by seed, the runs that left requests undone where not all
// runs of that seed completed the same ones.
func differing(results []*CellResult, seeds int) []bool {
	out := make([]bool, len(results))
	for s := range seeds {
		var first *Completion
		same := true
		for i := s; i < len(results); i += seeds {
			if results[i] == nil {
				continue
			}
			c := CompletionOf(results[i].Value)
			if first == nil {
				first = &c
			}
			same = same && c.Same(*first)
		}
		for i := s; i < len(results) && !same; i += seeds {
			out[i] = results[i] != nil && !CompletionOf(results[i].Value).Whole()
		}
	}
	return out
}

// samePairs says that in each pair of runs both completed the same requests.
func samePairs(as, bs []*CellResult) bool {
	for i := range as {
		if as[i] != nil && bs[i] != nil && !CompletionOf(as[i].Value).Same(CompletionOf(bs[i].Value)) {
			return false
		}
	}
	return true
}
