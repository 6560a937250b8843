package sim

import (
	"context"
	"math"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Worked by hand: a request occupies the front end for 1 ms, the first one of an
// adapter for 300 ms more; a step takes 8 ms and 0.1 ms for each of 10 prompt
// tokens, a load into a slot 4 ms. Request 1 stands behind request 0 and is the
// second of its adapter; request 2 brings a new one.
func TestFrontEndWorked(t *testing.T) {
	p := vllmProfile()
	p.Latency.FrontEnd = profile.FrontEnd{PerRequestMs: 1, FirstUseMs: 300}
	reqs := []trace.Request{
		{ID: 0, Adapter: 0, Prompt: 10, Output: 1},
		{ID: 1, Adapter: 0, Arrival: 0.010, Prompt: 10, Output: 1},
		{ID: 2, Adapter: 1, Arrival: 0.020, Prompt: 10, Output: 1},
		{ID: 3, Adapter: trace.BaseModel, Arrival: 0.700, Prompt: 10, Output: 1},
	}
	got, _ := runVLLM(t, p, reqs, 2)
	for id, want := range map[int64]float64{
		0: 0.301 + 0.004 + 0.009,
		1: 0.314 + 0.009, // in the queue since 302 ms, while request 0 was prefilled
		2: 0.602 + 0.001 + 0.004 + 0.009,
		3: 0.701 + 0.009, // the base model is no adapter
	} {
		if r := got.recs[id]; math.Abs(r.FirstToken-want) > 1e-9 {
			t.Errorf("request %d: first token at %v, expected %v", id, r.FirstToken, want)
		}
	}
}

// A worker that fails loses the requests in its front end, and does not know its
// adapters when it is back.
func TestFrontEndFails(t *testing.T) {
	p := vllmProfile()
	p.Latency.FrontEnd = profile.FrontEnd{FirstUseMs: 300}
	w := trace.Workload{Adapters: trace.Names(1, []int{8}), Requests: []trace.Request{
		{ID: 0, Prompt: 10, Output: 1},
		{ID: 1, Arrival: 0.250, Prompt: 10, Output: 1},
	}}
	got := newLedger()
	s, err := newSim(Config{Source: w.Source(), Workers: []*profile.Costs{p.Compile()},
		Router:   &router.Router{Policy: byID{n: 1}},
		Observer: got, Home: router.Disk, NoFailover: true, Outages: []Outage{{Worker: 0, From: 0.1, To: 0.2}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.run(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := got.recs[0]; r.Status != record.Failed || r.Finish != 0.1 {
		t.Errorf("request 0: %v at %v, expected failed at 0.1", r.Status, r.Finish)
	}
	if r := got.recs[1]; math.Abs(r.FirstToken-0.563) > 1e-9 {
		t.Errorf("request 1: first token at %v, expected 0.563", r.FirstToken)
	}
	if v := &s.view.Workers[0]; v.Queued != 0 || v.QueuedToks != 0 || v.Adapters[0].Queued != 0 {
		t.Errorf("routers still see requests waiting: %+v", *v)
	}
}
