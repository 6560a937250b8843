package sim

import (
	"context"
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// TestWindow: a run with a window is the run without one, cut: requests that end
// within it are the same to the tick, those under way then are unfinished, later
// ones do not occur, and the tokens up to then are the same.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		costs := p.Compile()
		wl := genWorkload(t)
		run := func(window float64) (*ledger, *Stats) {
			l := newLedger()
			st, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{costs, costs},
				Router: &router.Router{Policy: byID{n: 2}}, Observer: l, Home: router.Disk, Window: window})
			if err != nil {
				t.Fatal(err)
			}
			return l, st
		}
		whole, _ := run(0)
		window := rapid.Float64Range(0.001, 3).Draw(t, "window")
		end := tick.FromSeconds(window)
		cut, st := run(window)
		if len(cut.twice) > 0 {
			t.Fatalf("requests %v ended twice", cut.twice)
		}
		sent := int64(0)
		for _, q := range wl.Requests {
			want := whole.recs[q.ID]
			got, ok := cut.recs[q.ID]
			if came := tick.FromSeconds(q.Arrival) <= end; ok != came {
				t.Fatalf("request %d arrives at %v s, window %v s: it has a record: %v", q.ID, q.Arrival, window, ok)
			} else if !came {
				continue
			}
			sent++
			if tick.FromSeconds(want.Finish) <= end {
				if !same(got, want) {
					t.Fatalf("request %d is %+v, without the window %+v", q.ID, got, want)
				}
			} else if got.Status != record.Unfinished || tick.FromSeconds(got.Finish) != end || got.Output != 0 ||
				want.Status == record.OK && math.IsNaN(got.FirstToken) == (want.FirstToken <= got.Finish) {
				t.Fatalf("request %d ends after the window of %v s: %+v", q.ID, window, got)
			}
		}
		if st.Requests != sent || int64(len(cut.recs)) != sent {
			t.Fatalf("%d requests and %d records, %d were sent", st.Requests, len(cut.recs), sent)
		}
		overhead := costs.Overhead
		for at, n := range whole.tokens {
			if at-overhead > end {
				n = 0
			}
			if cut.tokens[at] != n {
				t.Fatalf("%d tokens at %v s, expected %d (window %v s)", cut.tokens[at], at.Seconds(), n, window)
			}
		}
		for _, w := range st.Workers {
			if w.Busy > end {
				t.Fatalf("a worker was busy for %v s of %v s", w.Busy.Seconds(), window)
			}
		}
	})
}

// same compares records, whose unknown times are NaN.
func same(a, b record.Request) bool {
	if math.IsNaN(a.FirstToken) && math.IsNaN(b.FirstToken) {
		a.FirstToken, b.FirstToken = 0, 0
	}
	a.Gaps, b.Gaps = nil, nil
	return a.ID == b.ID && a.Status == b.Status && a.Finish == b.Finish && a.FirstToken == b.FirstToken &&
		a.Sent == b.Sent &&
		a.Output == b.Output && a.Error == b.Error && a.WorkerLast == b.WorkerLast
}

// TestFailAbove: a request fails where so many are in flight, and only there.
func TestFailAbove(t *testing.T) {
	p := testProfile()
	wl := &trace.Workload{Adapters: trace.Names(1, nil)}
	for i := range 5 {
		wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Prompt: 10, Output: 3})
	}
	wl.Requests = append(wl.Requests, trace.Request{ID: 5, Arrival: 100, Prompt: 10, Output: 3})
	l := newLedger()
	_, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: byID{n: 1}}, Observer: l, Home: router.Disk, FailAbove: 3})
	if err != nil {
		t.Fatal(err)
	}
	for id := range int64(6) {
		r := l.recs[id]
		want := record.OK
		if id == 3 || id == 4 {
			want = record.Failed
		}
		if r.Status != want {
			t.Errorf("request %d: %v, expected %v", id, r.Status, want)
		}
		if want == record.Failed && (r.Finish != r.Sent || r.Error != "the client has 3 requests in flight" ||
			r.WorkerFirst != -1) {
			t.Errorf("request %d: %+v", id, r)
		}
	}
}

// TestWindowClosedLoop: what the client has not sent by the end has no part in the run.
func TestWindowClosedLoop(t *testing.T) {
	p := testProfile()
	wl := &trace.Workload{Adapters: trace.Names(1, nil)}
	for i := range 50 {
		wl.Requests = append(wl.Requests, trace.Request{ID: int64(i), Prompt: 10, Output: 30})
	}
	l := newLedger()
	st, err := Run(context.Background(), Config{Source: wl.Source(), Workers: []*profile.Costs{p.Compile()},
		Router: &router.Router{Policy: byID{n: 1}}, Observer: l, Home: router.Disk, MaxConcurrency: 2, Window: 2})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(l.recs); n < 4 || n > 20 || int64(n) != st.Requests || l.recs[0].Status != record.OK ||
		l.recs[int64(n-1)].Status != record.Unfinished {
		t.Errorf("%d requests of %d took part", n, st.Requests)
	}
}

func TestBadWindow(t *testing.T) {
	for want, c := range map[string]Config{
		"window is -1 s, expected 0 (none)":                {Window: -1},
		"window is NaN s":                                  {Window: math.NaN()},
		"window is +Inf s":                                 {Window: math.Inf(1)},
		"limit of requests in flight is -1, expected >= 0": {FailAbove: -1},
	} {
		p := testProfile()
		c.Source, c.Workers = (&trace.Workload{}).Source(), []*profile.Costs{p.Compile()}
		c.Router, c.Home = &router.Router{Policy: byID{n: 1}}, router.Disk
		_, err := Run(context.Background(), c)
		testutil.ExpectError(t, err, want)
	}
}
