package main

import (
	"math"
	"testing"

	"lorasim/sim/record"
)

// served lets requests come at a rate and begins one at a time: each takes service s until its first token and decoding
// s more to its end, beside the others.
func served(rate, service, decoding float64, requests int) *ends {
	var e ends
	free := 0.0
	for i := range requests {
		sent := float64(i) / rate
		free = max(free, sent) + service
		e.add(&record.Request{Sent: sent, FirstToken: free, Finish: free + decoding})
	}
	return &e
}

// The sustained rate is that of service while requests arrive, at most the offered one. A request in progress counts
// by its share.
func TestSustainedRate(t *testing.T) {
	for _, c := range []struct {
		what                    string
		rate, service, decoding float64
		want                    float64
	}{
		{"overloaded", 3, 0.5, 0, 2},
		{"keeps up", 1, 0.5, 0, 1},
		{"decodes for a tenth of the run", 3, 0.5, 100, 2 - 0.5*0.1*2},
	} {
		got := served(c.rate, c.service, c.decoding, int(1000*c.rate)).rate()
		if math.Abs(got-c.want) > 0.01*c.want {
			t.Errorf("%s: %g requests/s, expected %g", c.what, got, c.want)
		}
	}
	if got := (&ends{}).rate(); got != 0 {
		t.Errorf("without requests: %g requests/s", got)
	}
	failed := served(1, 0.5, 0, 100)
	failed.add(&record.Request{Sent: 99, FirstToken: math.NaN(), Finish: 200})
	if got := failed.rate(); math.Abs(got-1) > 0.02 {
		t.Errorf("with a request that fails later: %g requests/s, expected 1", got)
	}
}

// Beyond overload, a scenario gets a rate that simple policies do not sustain, and a run that is long beside the time
// that its requests decode.
func TestSaturate(t *testing.T) {
	for _, c := range []struct{ rate, want float64 }{{50, 115}, {120, 120}, {200, 130}} {
		sc, err := ParseCommand("--num-prompts 100 --lengths constant:50,500 --max-new-tokens exact")
		if err != nil {
			t.Fatal(err)
		}
		sc.Workload.RequestRate = c.rate
		if err := saturate(t.Context(), sc, 100); err != nil {
			t.Fatal(err)
		}
		if got := sc.Workload.RequestRate; math.Abs(got/c.want-1) > 0.1 {
			t.Errorf("%g requests/s become %g, expected about %g", c.rate, got, c.want)
		}
		// A request decodes for several seconds
		if got := float64(sc.Workload.NumPrompts.Value); got <= 100*longer || got > 100*mostLonger {
			t.Errorf("100 requests become %g, expected more than %d and at most %d", got, 100*longer, 100*mostLonger)
		}
	}
}
