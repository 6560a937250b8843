package result

import (
	"math"
)

// completedSetName names the fingerprint of the requests that a run completed.
const completedSetName = "completed_set"

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
	return Completion{all, value("completed"), value(completedSetName)}
}

// Known says whether there is a fingerprint of the completed requests.
func (c Completion) Known() bool { return c.set > 0 }

// SameSet says that the completed requests of both runs have the same ids, as far
// as is known.
func (c Completion) SameSet(o Completion) bool { return !c.Known() || !o.Known() || c.set == o.set }

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
