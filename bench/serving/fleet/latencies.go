package fleet

import (
	"slices"

	"lorasim/bench/stats"
	"lorasim/router"
)

// Percentiles are the median, the 90th and the 99th percentile, s.
type Percentiles struct {
	P50 float64 `json:"p50_s"`
	P90 float64 `json:"p90_s"`
	P99 float64 `json:"p99_s"`
}

// WorkerLatency has the latencies of the latest requests that a worker served.
type WorkerLatency struct {
	Worker   int          `json:"worker"`
	Requests int          `json:"requests"`
	Since    float64      `json:"since_s"` // age of the oldest request that counts, s of wall time
	TTFT     *Percentiles `json:"ttft,omitempty"`
	TPOT     *Percentiles `json:"tpot,omitempty"` // requests with two output tokens or more
	E2E      *Percentiles `json:"e2e,omitempty"`
}

// Latencies returns the latencies of each worker's requests, of the latest 2048 requests of the fleet.
func (f *Fleet) Latencies() []WorkerLatency {
	f.mu.Lock()
	ended, now := f.history.Ended(), f.view.Now
	samples := make([]sample, len(f.workers))
	for w, k := range f.workers {
		samples[w].present = !k.gone
	}
	f.mu.Unlock()
	for i := range ended {
		if r := &ended[i]; int(r.Worker) < len(samples) && samples[r.Worker].present {
			samples[r.Worker].add(r)
		}
	}
	out := []WorkerLatency{} // not nil: a page reads it
	for w := range samples {
		if s := &samples[w]; s.present {
			l := s.latency(w, now)
			l.Since /= f.cfg.Speed
			out = append(out, l)
		}
	}
	return out
}

// sample collects the latencies of requests of one worker.
type sample struct {
	present         bool // the worker is a member
	n               int
	first           float64 // time of the first request on the fleet's clock, s
	ttft, tpot, e2e []float64
}

func (s *sample) add(r *router.Ended) {
	if s.n == 0 {
		s.first = r.Sent
	}
	s.n++
	s.e2e, s.ttft = append(s.e2e, r.E2E), append(s.ttft, r.TTFT)
	decode := r.E2E - r.TTFT
	if gaps := float64(r.Output - 1); gaps >= 1 && decode > 0 { // 0: the whole reply came at once
		s.tpot = append(s.tpot, decode/gaps)
	}
}

func (s *sample) latency(worker int, now float64) WorkerLatency {
	l := WorkerLatency{Worker: worker, Requests: s.n}
	if s.n > 0 {
		l.Since = now - s.first
		l.TTFT, l.TPOT, l.E2E = percentiles(s.ttft), percentiles(s.tpot), percentiles(s.e2e)
	}
	return l
}

// percentiles sorts the values. It returns nil without values.
func percentiles(values []float64) *Percentiles {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	return &Percentiles{stats.Quantile(values, 0.5), stats.Quantile(values, 0.9), stats.Quantile(values, 0.99)}
}
