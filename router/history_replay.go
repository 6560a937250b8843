package router

import (
	"math"
	"math/rand/v2"
	"slices"
)

// A Snapshot is the latest requests of a [History] and the state of the workers at one time. It does not change when
// requests go on.
type Snapshot struct {
	past  *window
	state State
}

// A Replayed is a request that has ended, with its latencies as measured and as a twin predicts them. Times in s.
type Replayed struct {
	Worker, Adapter, Output int32
	Sent                    float64 // time of routing, on the clock of the view
	TTFT, E2E               float64
	PredictedTTFT           float64 // NaN: the twin could not serve the request
	PredictedE2E            float64 // likewise
}

// Snapshot returns the latest requests, and the adapters and the state of the workers in v.
func (h *History) Snapshot(v *View) *Snapshot {
	st := placementState(v, func(w *Worker) bool { return w.Up })
	st.Used = st.Host
	return &Snapshot{h.window.snapshot(0), st}
}

// Ended returns the requests that have ended, without predictions, in the order of their routing.
func (s *Snapshot) Ended() []Replayed {
	var list []Replayed
	for n := s.past.oldest(); n < s.past.n; n++ {
		if q := s.past.at(n); q.output > 0 && q.worker >= 0 {
			list = append(list, q.replayed(math.NaN(), math.NaN()))
		}
	}
	return list
}

// replayed returns a request that has ended, with predictions.
func (s *seen) replayed(ttft, e2e float64) Replayed {
	return Replayed{s.worker, s.adapter, s.output, s.at, s.ttft, s.e2e, ttft, e2e}
}

// Replay has a twin serve the latest requests again, each on the worker that served it, and returns those that have
// ended, in the order of their routing. The argument slower has factors of the twin's step times by worker; nil: 1.
// Replay calls yield often; nil: never. The first quarter of the requests is left out, because their simulation
// begins with idle workers.
func (s *Snapshot) Replay(t Twin, slower []float64, yield func()) ([]Replayed, error) {
	f := &Future{State: s.state, Slower: slower, Yield: yield}
	r := newReplay(s.past, f, rand.New(rand.NewPCG(0, uint64(s.past.n))), len(s.past.ring))
	if !slices.ContainsFunc(r.seen, func(q *seen) bool { return q.output > 0 }) {
		return nil, nil
	}
	o, err := t.Simulate(&Router{Policy: r}, r.future)
	if err != nil {
		return nil, err
	}
	var list []Replayed
	for i := len(r.seen) / 4; i < len(r.seen); i++ {
		if q := r.seen[i]; q.output > 0 {
			list = append(list, q.replayed(float64(o.TTFT[i]), float64(o.E2E[i])))
		}
	}
	return list, nil
}
