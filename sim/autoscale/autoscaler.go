// Package autoscale decides how many workers a cluster is to have: by Kubernetes' rule, from the requests in
// flight, a forecast, or the arrivals to come.
package autoscale

import (
	"math"
	"slices"
)

// Scaler decides how many workers there are to be.
type Scaler interface {
	// Want is asked at every look. The cluster cuts what is out of its limits.
	Want(l Look) int
}

// Look is what a scaler sees.
type Look struct {
	Now      float64 // s
	Workers  int     // on or starting
	InFlight int     // requests on those that are on, or waiting for one that is
	// Since the last look:
	Arrived  int64   // requests
	Ended    int64   // that ended well
	Response float64 // their mean time from sending to end, s
}

// Autoscaler changes the number of workers as Kubernetes' HorizontalPodAutoscaler
// does by default (pkg/controller/podautoscaler/horizontal.go and
// replica_calculator.go): to the workers that are needed, rounded up, unless that is
// within a tolerance of those there are; at most to the double, or 4 more, within
// 15 s; and to fewer only if no look of the latest Stabilize seconds asked for more.
type Autoscaler struct {
	Need      Need
	Tolerance float64
	Stabilize float64 // s
	latest    []wish
}

// growth is the time in which a cluster doubles at most, or gains 4, s.
const growth = 15

type wish struct {
	at     float64
	n, had int
}

// Need is how many workers a cluster needs; NaN: not known.
type Need interface {
	Need(l Look) float64
}

// Want implements Scaler.
func (a *Autoscaler) Want(l Look) int {
	need := a.Need.Need(l)
	if a.latest == nil {
		a.latest = []wish{{0, l.Workers, l.Workers}}
	}
	n := l.Workers
	if ratio := need / float64(n); ratio < 1-a.Tolerance || ratio > 1+a.Tolerance { // neither where it is not known
		n = int(math.Ceil(min(need, math.MaxInt32)))
	}
	past := func(w wish) bool { return w.at <= l.Now-max(a.Stabilize, growth) }
	a.latest = append(slices.DeleteFunc(a.latest, past), wish{l.Now, n, l.Workers})
	most, from := n, l.Workers
	for _, w := range slices.Backward(a.latest) {
		if w.at > l.Now-a.Stabilize {
			most = max(most, w.n)
		}
		if w.at > l.Now-growth {
			from = w.had
		}
	}
	switch {
	case n > l.Workers:
		return max(min(n, max(2*from, from+4)), l.Workers)
	case most < l.Workers:
		return most
	}
	return l.Workers
}

// Reactive needs one worker for each Target requests in flight.
type Reactive struct{ Target float64 }

// Need implements Need.
func (r Reactive) Need(l Look) float64 { return float64(l.InFlight) / r.Target }
