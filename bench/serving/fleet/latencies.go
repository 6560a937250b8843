package fleet

import (
	"math"
	"runtime"
	"slices"

	"lorasim/bench/stats"
	"lorasim/router"
)

// A Latency has percentiles of a latency as measured, and as the twin predicts them for the same requests, s. The
// prediction is nil if the fleet has no twin.
type Latency struct {
	Measured  Percentiles  `json:"measured"`
	Predicted *Percentiles `json:"predicted,omitempty"`
}

// Percentiles are the median, the 90th and the 99th percentile, s.
type Percentiles struct {
	P50 float64 `json:"p50_s"`
	P90 float64 `json:"p90_s"`
	P99 float64 `json:"p99_s"`
}

// WorkerLatency has the latencies of the latest requests that a worker served.
type WorkerLatency struct {
	Worker   int      `json:"worker"`
	Requests int      `json:"requests"`
	Since    float64  `json:"since_s"` // age of the oldest request that counts, s of wall time
	TTFT     *Latency `json:"ttft,omitempty"`
	TPOT     *Latency `json:"tpot,omitempty"` // requests with two output tokens or more
	E2E      *Latency `json:"e2e,omitempty"`
	// Ratio is the median of the requests' times from the first to the last token, each divided by the predicted time.
	// 0: unknown.
	Ratio float64 `json:"ratio,omitempty"`
	// Slower is the factor by which the policy auto corrects the step times of the profile; the prediction includes
	// it. 0: no correction.
	Slower float64 `json:"slower,omitempty"`
}

// Latencies returns the latencies of each worker's requests, of the latest 2048 requests of the fleet. The prediction
// is that of a simulation in which each worker gets the same requests at the same times. It takes about 10 ms of one
// core without the lock; calls must not overlap.
func (f *Fleet) Latencies() ([]WorkerLatency, error) {
	f.mu.Lock()
	past, now := f.history.Snapshot(f.fresh()), f.view.Now
	twin, slower := f.router.Twin, f.stats.Races.Slower
	workers := len(f.workers)
	present := make([]bool, workers)
	for w, k := range f.workers {
		present[w] = !k.gone
	}
	f.mu.Unlock()
	if len(slower) != workers {
		slower = nil
	}
	var list []router.Replayed
	var err error
	if twin != nil {
		list, err = past.Replay(twin, slower, runtime.Gosched)
	} else {
		list = past.Ended()
	}
	samples := make([]sample, workers)
	for i := range list {
		if r := &list[i]; int(r.Worker) < workers && present[r.Worker] {
			samples[r.Worker].add(r)
		}
	}
	out := []WorkerLatency{} // not nil: a page reads it
	for w := range samples {
		if !present[w] {
			continue
		}
		l := samples[w].latency(w, now)
		l.Since /= f.cfg.Speed
		if slower != nil {
			l.Slower = slower[w]
		}
		out = append(out, l)
	}
	return out, err
}

// sample collects the latencies of requests of one worker.
type sample struct {
	n               int
	first           float64 // time of the first request on the fleet's clock, s
	ttft, tpot, e2e pair
	ratios          []float64
}

// pair has measured and predicted values of the same requests; those without a prediction lack the second.
type pair struct{ measured, predicted []float64 }

func (p *pair) add(measured, predicted float64) {
	p.measured = append(p.measured, measured)
	if !math.IsNaN(predicted) {
		p.predicted = append(p.predicted, predicted)
	}
}

func (s *sample) add(r *router.Replayed) {
	if s.n == 0 {
		s.first = r.Sent
	}
	s.n++
	s.e2e.add(r.E2E, r.PredictedE2E)
	s.ttft.add(r.TTFT, r.PredictedTTFT)
	decode, predicted := r.E2E-r.TTFT, r.PredictedE2E-r.PredictedTTFT
	if gaps := float64(r.Output - 1); gaps >= 1 && decode > 0 { // 0: the whole reply came at once
		s.tpot.add(decode/gaps, predicted/gaps)
		if predicted > 0 {
			s.ratios = append(s.ratios, decode/predicted)
		}
	}
}

func (s *sample) latency(worker int, now float64) WorkerLatency {
	l := WorkerLatency{Worker: worker, Requests: s.n}
	if s.n > 0 {
		l.Since = now - s.first
		l.TTFT, l.TPOT, l.E2E = s.ttft.latency(), s.tpot.latency(), s.e2e.latency()
	}
	if len(s.ratios) > 0 {
		slices.Sort(s.ratios)
		l.Ratio = stats.Quantile(s.ratios, 0.5)
	}
	return l
}

// latency returns the percentiles, or nil without values.
func (p *pair) latency() *Latency {
	if len(p.measured) == 0 {
		return nil
	}
	l := &Latency{Measured: percentiles(p.measured)}
	if len(p.predicted) > 0 {
		predicted := percentiles(p.predicted)
		l.Predicted = &predicted
	}
	return l
}

// percentiles sorts values, of which there is at least one.
func percentiles(values []float64) Percentiles {
	slices.Sort(values)
	return Percentiles{stats.Quantile(values, 0.5), stats.Quantile(values, 0.9), stats.Quantile(values, 0.99)}
}
