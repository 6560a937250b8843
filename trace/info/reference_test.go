package info

import (
	"math"

	"gonum.org/v1/gonum/stat"

	"lorasim/trace"
)

// Slow computations of what Summarize reports, straight from the definitions.

// numpyQuantile is numpy's default percentile of sorted numbers.
func numpyQuantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	lo := int(at)
	hi := min(lo+1, len(sorted)-1)
	return sorted[lo] + (at-float64(lo))*(sorted[hi]-sorted[lo])
}

func slowCV(w *trace.Workload, adapter int32) float64 {
	var at, gaps []float64
	for _, r := range w.Requests {
		if adapter < 0 || r.Adapter == adapter {
			at = append(at, r.Arrival)
		}
	}
	for i := 1; i < len(at); i++ {
		gaps = append(gaps, at[i]-at[i-1])
	}
	if len(gaps) < 2 {
		return math.NaN()
	}
	mean, std := stat.PopMeanStdDev(gaps, nil)
	return std / mean
}

func slowDispersion(w *trace.Workload, window float64) float64 {
	last := w.Requests[len(w.Requests)-1].Arrival
	var counts []float64
	for i := 0; float64(i+1)*window <= last; i++ {
		n := 0.0
		for _, r := range w.Requests {
			if r.Arrival >= float64(i)*window && r.Arrival < float64(i+1)*window {
				n++
			}
		}
		counts = append(counts, n)
	}
	if len(counts) < 2 {
		return math.NaN()
	}
	mean, variance := stat.PopMeanVariance(counts, nil)
	return variance / mean
}

func slowLocality(w *trace.Workload) float64 {
	hits := 0.0
	for i, r := range w.Requests {
		recent := map[int32]bool{}
		for j := i - 1; j >= 0 && len(recent) < localityWindow; j-- {
			recent[w.Requests[j].Adapter] = true
		}
		if recent[r.Adapter] {
			hits++
		}
	}
	return hits / float64(len(w.Requests)-1)
}

// slowGini is the mean absolute difference over twice the mean.
func slowGini(w *trace.Workload) float64 {
	counts := make([]float64, len(w.Adapters))
	for _, r := range w.Requests {
		counts[r.Adapter]++
	}
	sum := 0.0
	for _, a := range counts {
		for _, b := range counts {
			sum += math.Abs(a - b)
		}
	}
	k := float64(len(counts))
	return sum / (k * k) / (2 * float64(len(w.Requests)) / k)
}
