package result

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// smallRun is a run small enough to work out by hand: three requests succeed,
// one is rejected, one fails.
func smallRun(o Options) *Collector {
	c := NewCollector(o)
	nan := math.NaN()
	for _, r := range []record.Request{
		{ID: 0, Adapter: 0, Arrival: 0, Sent: 0, FirstToken: 0.5, Finish: 2.5, Prompt: 100, Output: 5, WorkerLast: 0,
			ColdLoad: 0.25},
		{ID: 1, Adapter: 1, Arrival: 0.5, Sent: 1, FirstToken: 1.25, Finish: 3, Prompt: 50, Output: 1, WorkerLast: 1,
			Migrations: 2},
		{ID: 2, Adapter: 0, Arrival: 1, Sent: 1, FirstToken: nan, Finish: 1.5, Prompt: 10, Output: 0, WorkerLast: 0},
		{ID: 3, Adapter: -1, Arrival: 2, Sent: 2, FirstToken: nan, Finish: 2, Prompt: 7, WorkerLast: -1,
			Status: record.Rejected, Error: "queue full"},
		{ID: 4, Adapter: 1, Arrival: 2, Sent: 2, FirstToken: 3, Finish: 4, Prompt: 7, Output: 2, WorkerLast: 0,
			Status: record.Failed, Error: "reset\nby peer"},
	} {
		c.Done(&r)
	}
	c.Tokens(tick.FromSeconds(0.5), 1)
	c.Gap(tick.FromSeconds(0.5), 1)
	c.Steps(record.Steps{Start: tick.FromSeconds(0.5), First: tick.FromSeconds(0.5), Count: 4, Batch: 1})
	c.Tokens(tick.FromSeconds(1.25), 1)
	return c
}

func workerCounters(busy float64) []WorkerCounters {
	return []WorkerCounters{
		{Busy: busy, Counters: record.Counters{ColdLoads: 3, Evictions: 1, LoadTime: 0.5}},
		{Counters: record.Counters{ColdLoads: 1, Preemptions: 2}},
	}
}

func TestSmallRunByHand(t *testing.T) {
	c := smallRun(Options{
		Workers: 3, Adapters: []trace.Adapter{{Name: "a"}, {Name: "b"}},
		SLO: SLO{TTFT: 400, E2E: 2200}, Noisy: []int32{0},
	})
	r := c.Result(Meta{}, &RunCounters{
		Workers:    workerCounters(2),
		Migrations: []MigrationCount{{"adapter", 1}, {"request", 2}}, MigrationTime: 0.125,
		SolverRuns: 4, SolverTime: 0.01,
	})
	for m, want := range map[ID]float64{
		Duration: 4, Completed: 3, TotalInputTokens: 160, TotalOutputTokens: 6, TotalOutputTokensRetokenized: 6,
		RequestThroughput: 0.75, InputThroughput: 40, OutputThroughput: 1.5, TotalThroughput: 41.5,
		Concurrency: 1.25, // (2.5 + 2 + 0.5) / 4
		MeanE2E:     5000.0 / 3, MedianE2E: 2000, P99E2E: 2490,
		MeanTTFT: 250, MedianTTFT: 250, P90TTFT: 450,
		MeanTPOT: 500, StdTPOT: 0, P99TPOT: 500,
		MeanITL: 500, MaxITL: 500,
		MaxOutputTokensPerS:   3, // 1.0, 1.25, 1.5 s
		MaxConcurrentRequests: 3, // in second 1
	} {
		if got, ok := r.Metrics.Get(m); !ok || !near(got, want, 1e-9) {
			t.Errorf("%v = %v, want %v", m, got, want)
		}
	}
	e := r.Extra
	// Normalised: a (2.5/5 + 0.5/1)/2 = 0.5 s, b 2/1 = 2 s. Tokens: 115 and 51, base model 0.
	fairness := &Fairness{
		Adapters: 3, NormalizedLatency: 2.5 * 2.5 / (2 * (0.25 + 4)), Tokens: 166 * 166 / (3 * (115.0*115 + 51*51)),
	}
	if d := cmp.Diff(fairness, e.Fairness, approx); d != "" {
		t.Errorf("fairness (-want +got):\n%s", d)
	}
	// Requests by worker: 3, 1, 0.
	balance := &Balance{Mean: 4.0 / 3, Std: math.Sqrt(14.0 / 9), CV: math.Sqrt(14.0/9) / (4.0 / 3), Max: 3}
	if d := cmp.Diff(balance, e.Balance, approx); d != "" {
		t.Errorf("balance (-want +got):\n%s", d)
	}
	// Request 1 alone is in time: 0 took too long, 2 has no first token.
	if d := cmp.Diff(
		&Goodput{SLO: "ttft:400 e2e:2200", Good: 1, PerS: 0.25, Share: 0.2, TTFT: 1.0 / 3, TPOT: 1, E2E: 2.0 / 3,
			Attain: 0.99, AdapterGoodput: AdapterGoodput{Fairness: 1.0 / 3, Worst: &Worst{0, "a", 2, 0}},
			Others: &Others{
				Share: 1.0 / 3, TTFT: 250,
				AdapterGoodput: AdapterGoodput{Fairness: 0.5, Worst: &Worst{-1, "base model", 1, 0}},
			}}, e.Goodput, approx); d != "" {
		t.Errorf("goodput (-want +got):\n%s", d)
	}
	want := []AdapterStats{
		{Index: 0, Name: "a", Requests: 2, Completed: 2, Share: 0.4, Tokens: 115, MeanE2E: 1500, P99E2E: 2480,
			MeanTTFT: 250, NormalizedLatency: 500},
		{Index: 1, Name: "b", Good: 1, Requests: 2, Completed: 1, Share: 0.4, Tokens: 51, MeanE2E: 2000, P99E2E: 2000,
			MeanTTFT: 250, NormalizedLatency: 2000},
		{Index: -1, Name: "base model", Requests: 1, Share: 0.2},
	}
	if d := cmp.Diff(want, e.Adapters, approx); d != "" {
		t.Errorf("adapters (-want +got):\n%s", d)
	}
	workers := []WorkerStats{
		{Requests: 3, Share: 0.75, Tokens: 115, WorkerCounters: workerCounters(0.5)[0]},
		{Requests: 1, Share: 0.25, Tokens: 51, WorkerCounters: workerCounters(0.5)[1]},
		{},
	}
	if d := cmp.Diff(workers, e.Workers, approx); d != "" {
		t.Errorf("workers (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Reason{{"failed", "reset", 1}, {"rejected", "queue full", 1}}, e.Reasons); d != "" {
		t.Errorf("reasons (-want +got):\n%s", d)
	}
	if e.ColdLoads != 4 || e.Evictions != 1 || e.Preemptions != 2 || e.TextlessReplies != 1 || e.ColdStarts != 1 ||
		e.ColdStartWait != 0.25 || e.Migrated != 1 || e.Failed != 1 || e.Rejected != 1 || e.Aborted != 0 ||
		e.Requests != 5 {
		t.Errorf("totals: %+v", e)
	}
	// Request 1 waited 0.5 s in the client.
	if got, want := e.ScheduledE2E.Mean, 5500.0/3; !near(got, want, 1e-9) {
		t.Errorf("mean E2E from the scheduled arrival = %v, want %v", got, want)
	}
	if got, want := e.ScheduledTTFT.Max, 750.0; !near(got, want, 1e-9) {
		t.Errorf("max TTFT from the scheduled arrival = %v, want %v", got, want)
	}
}

var approx = cmp.Comparer(func(a, b float64) bool { return a == b || near(a, b, 1e-9) })

func TestNonStreaming(t *testing.T) {
	r := smallRun(Options{NonStreaming: true}).Result(Meta{}, nil)
	for m, want := range map[ID]float64{
		MeanTTFT: 5000.0 / 3, MeanTPOT: 0, MeanITL: 0, MaxITL: 0,
		MaxOutputTokensPerS: 5, // the reply of request 0 comes at once
	} {
		if got, _ := r.Metrics.Get(m); !near(got, want, 1e-9) {
			t.Errorf("%v = %v, want %v", m, got, want)
		}
	}
	if r.Extra.TextlessReplies != 0 {
		t.Errorf("%d replies without text", r.Extra.TextlessReplies)
	}
}

// A run in which nothing succeeded still prints, with zeros.
func TestAllFailed(t *testing.T) {
	c := NewCollector(Options{SLO: SLO{TTFT: 1}})
	c.Done(&record.Request{Sent: 1, FirstToken: math.NaN(), Finish: math.NaN(), Status: record.Failed, WorkerLast: -1})
	r := c.Result(Meta{Backend: "sglang", RequestRate: Unlimited()}, nil)
	var b bytes.Buffer
	for _, l := range Layouts() {
		if err := r.WriteBlock(&b, l); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.WriteExtra(&b); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "NaN") ||
		!strings.Contains(b.String(), "Mean E2E Latency (ms):                   0.00      \n") {
		t.Errorf("printed:\n%s", b.String())
	}
}

// Folding changes percentiles within their tolerance and nothing else.
func TestSampleLimit(t *testing.T) {
	feed := func(limit int) *Result {
		c := NewCollector(Options{SampleLimit: limit})
		for i := range 5000 {
			at := float64(i) / 10
			wait := math.Mod(float64(i)*0.618034, 1) * math.Mod(float64(i)*0.41421, 1)
			c.Done(&record.Request{
				ID: int64(i), Adapter: int32(i % 7), Arrival: at, Sent: at, FirstToken: at + wait,
				Finish: at + 3*wait, Prompt: 10, Output: 1 + int32(i%50), WorkerLast: int32(i % 2),
			})
		}
		return c.Result(Meta{}, nil)
	}
	exact, folded := feed(0), feed(1000)
	for m := range NumMetrics {
		a, okA := exact.Metrics.Get(m)
		b, okB := folded.Metrics.Get(m)
		tolerance := 0.0
		for _, f := range families {
			if s := Stat(m - f.first); s == Median || s >= P90 && s <= P99 {
				tolerance = 0.0005
			}
		}
		if okA != okB || !near(a, b, tolerance) {
			t.Errorf("%v: exact %v, folded %v", m, a, b)
		}
	}
	if d := cmp.Diff([]string{"e2e_latency", "ttft", "tpot"}, folded.Approximate); d != "" || exact.Approximate != nil {
		t.Errorf("approximate: exact %v, folded %v", exact.Approximate, folded.Approximate)
	}
	for i, a := range exact.Extra.Adapters {
		b := folded.Extra.Adapters[i]
		if !near(b.P99E2E, a.P99E2E, 0.032) {
			t.Errorf("P99 of adapter %d: exact %v, folded %v", a.Index, a.P99E2E, b.P99E2E)
		}
		b.P99E2E = a.P99E2E
		if a != b {
			t.Errorf("adapter %d: exact %+v, folded %+v", a.Index, a, b)
		}
	}
}

func TestKeepRecords(t *testing.T) {
	c := NewCollector(Options{KeepRecords: true})
	r := record.Request{ID: 1, Finish: 1, Gaps: []float64{0.5}}
	c.Done(&r)
	r.ID, r.Gaps[0] = 2, 7 // the driver reuses its record
	got := c.Result(Meta{}, nil).Records
	if d := cmp.Diff([]record.Request{{ID: 1, Finish: 1, Gaps: []float64{0.5}}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReasonsAreBounded(t *testing.T) {
	c := NewCollector(Options{})
	for i := range 1000 {
		c.Done(&record.Request{Status: record.Failed, Error: strings.Repeat("x", i), WorkerLast: -1})
	}
	rs := c.Result(Meta{}, nil).Extra.Reasons
	var total int64
	for _, r := range rs {
		total += r.Count
	}
	if len(rs) != maxReasons+1 || total != 1000 || rs[0].Reason != otherReasons {
		t.Errorf("%d reasons for %d requests, first %+v", len(rs), total, rs[0])
	}
}

// benchmarkDone ends requests as a plausible run does.
func benchmarkDone(b *testing.B, o Options) {
	rs := make([]record.Request, 1024)
	for i := range rs {
		u := math.Mod(float64(i)*0.618034, 1)
		rs[i] = record.Request{
			Adapter: int32(i % 100), FirstToken: 0.1 + u, Finish: 2 + 5*u, Prompt: 300, Output: int32(i%400) + 1,
			WorkerLast: int32(i % 8),
		}
	}
	c := NewCollector(o)
	var r record.Request
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r = rs[i%len(rs)]
		at := float64(i) / 1000
		r.Arrival, r.Sent, r.FirstToken, r.Finish = at, at, at+r.FirstToken, at+r.Finish
		c.Done(&r)
	}
}

func BenchmarkDone(b *testing.B) {
	o := Options{Workers: 8, Adapters: trace.Names(100, nil), SLO: SLO{TTFT: 500}}
	benchmarkDone(b, o)
}

func BenchmarkDoneFolded(b *testing.B) {
	o := Options{Workers: 8, Adapters: trace.Names(100, nil), SampleLimit: 1}
	benchmarkDone(b, o)
}

func benchmarkSteps(b *testing.B, count int64) {
	c := NewCollector(Options{})
	s := record.Steps{First: 20 * tick.Millisecond, Incr: tick.Microsecond, Count: count, Batch: 16}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Start = tick.Ticks(i) * tick.Millisecond
		s.First = 20*tick.Millisecond + tick.Ticks(i%1024)*10*tick.Microsecond
		c.Steps(s)
	}
}

func BenchmarkSteps5(b *testing.B)   { benchmarkSteps(b, 5) }
func BenchmarkSteps200(b *testing.B) { benchmarkSteps(b, 200) }

func BenchmarkGap(b *testing.B) {
	c := NewCollector(Options{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Gap(20*tick.Millisecond+tick.Ticks(i%1024)*tick.Microsecond, 3)
	}
}

func BenchmarkResultOfAMillion(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		c := NewCollector(Options{})
		for i := range 1 << 20 {
			at := float64(i) / 1000
			u := math.Mod(float64(i)*0.618034, 1)
			c.Done(&record.Request{
				Sent: at, Arrival: at, FirstToken: at + u, Finish: at + 3*u, Output: 100, WorkerLast: 0,
			})
		}
		b.StartTimer()
		c.Result(Meta{}, nil)
	}
}
