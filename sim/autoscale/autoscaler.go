// Package autoscale decides how many workers a cluster has. [Autoscaler] follows the rule of Kubernetes'
// HorizontalPodAutoscaler. Its [Need] is the demand: [Reactive] uses the requests in flight, [Forecast] a forecast, and
// [Known] the future arrivals.
//
//	scaler := &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 16}, Tolerance: 0.1, Stabilize: 300}
package autoscale

import (
	"math"
	"slices"
)

// Scaler decides the number of workers of a cluster.
type Scaler interface {
	// Want returns the number of workers at every look. The cluster clamps it to its limits.
	Want(l Look) int
}

// Look is the state of a cluster at a scaling decision. Arrived, Ended and Response count since the last look.
type Look struct {
	Now      float64 // simulated time, s
	Workers  int     // workers that are on or starting
	InFlight int     // requests on workers that are on, or waiting for such a worker
	// Since the last look:
	Arrived  int64   // requests that arrived
	Ended    int64   // requests that ended successfully
	Response float64 // mean time of the ended requests from sending to end, s
}

// Autoscaler changes the number of workers by the default rule of Kubernetes' HorizontalPodAutoscaler
// (pkg/controller/podautoscaler/horizontal.go and replica_calculator.go). The target is the need, rounded up. The
// number stays if need / workers is within 1 +- Tolerance. Within 15 s it grows at most to twice the number or by 4
// workers, whichever is more. It falls only to the largest target of the last Stabilize seconds.
type Autoscaler struct {
	Need      Need    // needed workers
	Tolerance float64 // relative deviation without effect
	Stabilize float64 // delay of scaling down, s
	latest    []wish
}

// growth is the time in which a cluster doubles at most, or gains 4, s.
const growth = 15

type wish struct {
	at     float64
	n, had int
}

// Need computes how many workers a cluster needs. The result may be fractional; NaN means unknown.
type Need interface {
	// Need returns the number of workers for the cluster's state at a look. It is called once per look.
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

// Reactive needs one worker per Target requests in flight.
type Reactive struct{ Target float64 }

// Need implements Need.
func (r Reactive) Need(l Look) float64 { return float64(l.InFlight) / r.Target }
