package result

import (
	"math"
)

// completedSetName names the fingerprint of the requests that a run completed.
const completedSetName = "completed_set"

// A Completion identifies the requests that a run completed. Unknown numbers are NaN.
type Completion struct {
	Requests, Completed float64 // numbers of requests; Requests includes unsent ones
	set                 float64 // fingerprint; see Endings.CompletedSet
}

// CompletionOf returns the completion of a run whose numbers value returns by name.
func CompletionOf(value func(name string) float64) Completion {
	all := value("requests")
	if unsent := value("unsent"); unsent > 0 {
		all += unsent
	}
	return Completion{all, value("completed"), value(completedSetName)}
}

// Known reports whether the fingerprint of the completed requests is known.
func (c Completion) Known() bool { return c.set > 0 }

// SameSet reports whether the completed requests of both runs have the same ids. It
// returns true if either fingerprint is unknown.
func (c Completion) SameSet(o Completion) bool { return !c.Known() || !o.Known() || c.set == o.set }

// Whole reports whether every request completed.
func (c Completion) Whole() bool { return c.Requests == c.Completed }

// Left returns the share of requests that did not complete; NaN if unknown.
func (c Completion) Left() float64 {
	if c.Requests == 0 {
		return 0
	}
	return (c.Requests - c.Completed) / c.Requests
}

// Same reports whether both runs completed the same requests: all of them, or sets with
// the same fingerprint. It returns true if that is unknown. Latencies of runs that
// completed different requests cannot be compared.
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
