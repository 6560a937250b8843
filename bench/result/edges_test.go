package result

import (
	"math"
	"strings"
	"testing"

	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// collected is the result of the given requests.
func collected(o Options, rs ...record.Request) (*Collector, *Result) {
	c := NewCollector(o)
	for i := range rs {
		c.Done(&rs[i])
		c.AddGaps(&rs[i])
	}
	return c, c.Result(Meta{}, nil)
}

func value(t *testing.T, r *Result, m ID) float64 {
	t.Helper()
	v, ok := r.Metrics.Get(m)
	if !ok {
		t.Errorf("no %v", m)
	}
	return v
}

// The time per output token is rounded to the nearest tick; a reply of one token
// has none.
func TestTPOTIsRounded(t *testing.T) {
	for _, c := range []struct {
		ticks  tick.Ticks // from the first token to the end
		output int32
		want   tick.Ticks
	}{{4, 3, 2}, {5, 3, 3}, {6, 3, 3}, {4, 4, 1}, {5, 4, 2}, {7, 2, 7}, {7, 1, 0}} {
		_, r := collected(Options{}, record.Request{
			FirstToken: tick.Ticks(100).Seconds(), Finish: tick.Ticks(100 + c.ticks).Seconds(), Output: c.output,
		})
		if got, want := value(t, r, MeanTPOT), 1000*c.want.Seconds(); !near(got, want, 1e-9) {
			t.Errorf("%d ticks, %d tokens: %v ms, expected %v", c.ticks, c.output, got, want)
		}
	}
}

// The normalized queueing delay is the mean of TTFT over output tokens, at least
// one of them.
func TestTTFTPerToken(t *testing.T) {
	r := smallRun(Options{}).Result(Meta{}, nil)
	if want := (0.5/5 + 0.25/1 + 0) / 3; !near(r.Extra.TTFTPerToken, want, 1e-12) {
		t.Errorf("%v, expected %v", r.Extra.TTFTPerToken, want)
	}
}

// Gaps count for requests that succeeded, streamed, and began to reply.
func TestGapsThatCount(t *testing.T) {
	q := func(s record.Status, first float64) record.Request {
		return record.Request{FirstToken: first, Finish: 2, Output: 3, Gaps: []float64{0.25, 0.5}, Status: s}
	}
	for _, c := range []struct {
		name         string
		nonStreaming bool
		q            record.Request
		want         float64
	}{
		{"streamed", false, q(record.OK, 1), 500}, {"not streamed", true, q(record.OK, 1), 0},
		{"failed", false, q(record.Failed, 1), 0}, {"no token", false, q(record.OK, math.NaN()), 0},
	} {
		_, r := collected(Options{NonStreaming: c.nonStreaming}, c.q)
		if got := value(t, r, MaxITL); got != c.want {
			t.Errorf("%s: longest gap %v ms, expected %v", c.name, got, c.want)
		}
	}
}

// A request that was sent before it was due did not wait in the client.
func TestSentEarly(t *testing.T) {
	_, r := collected(Options{}, record.Request{Arrival: 2, Sent: 1, FirstToken: 1.5, Finish: 3, Output: 2})
	if e := r.Extra; !near(e.ScheduledE2E.Mean, 2000, 1e-9) || !near(e.ScheduledTTFT.Mean, 500, 1e-9) {
		t.Errorf("%+v, %+v", e.ScheduledE2E, e.ScheduledTTFT)
	}
	for s, want := range map[float64]tick.Ticks{-1: 0, 0: 0, math.NaN(): 0, 1: tick.Second} {
		if got := record.Ticks(s); got != want {
			t.Errorf("%v s are %d ticks", s, got)
		}
	}
}

// Plans are told of where any were made or did something.
func TestPlansAreTold(t *testing.T) {
	for _, c := range []struct {
		counters RunCounters
		told     bool
	}{{RunCounters{}, false}, {RunCounters{SolverRuns: 1, Plans: &record.PlanCounters{}}, true},
		{RunCounters{Plans: &record.PlanCounters{Dropped: 1}}, true},
		{RunCounters{Plans: &record.PlanCounters{}}, false}} {
		r := NewCollector(Options{}).Result(Meta{}, &c.counters)
		if (r.Extra.Plans != nil) != c.told {
			t.Errorf("%+v: %+v", c.counters, r.Extra.Plans)
		}
	}
	var b strings.Builder
	r := NewCollector(Options{}).Result(Meta{}, &RunCounters{SolverRuns: 2, Plans: &record.PlanCounters{Applied: 1}})
	if err := r.WriteExtra(&b); err != nil || !strings.Contains(b.String(), "Plans applied / dropped:") {
		t.Errorf("%v in\n%s", err, b.String())
	}
	for _, row := range []string{"copied", "Optimality gap", "recomputed"} { // nothing of it: no row
		if strings.Contains(b.String(), row) {
			t.Errorf("%q in\n%s", row, b.String())
		}
	}
}

// The loads that failed are those of the workers and those of no known worker.
func TestFailedLoads(t *testing.T) {
	r := NewCollector(Options{}).Result(Meta{}, &RunCounters{FailedLoads: 3, Workers: []WorkerCounters{
		{Counters: record.Counters{FailedLoads: 1}}, {Counters: record.Counters{FailedLoads: 5}}}})
	if got := ValueOf(Values(r), "failed_loads"); got != 9 {
		t.Errorf("%v failed loads, expected 9", got)
	}
}

func TestBalance(t *testing.T) {
	if b := balance(nil); b != nil {
		t.Errorf("%+v", b)
	}
	if b := balance([]WorkerStats{{Requests: 0}, {Requests: 0}}); b.CV != 0 || b.Max != 0 {
		t.Errorf("%+v", b)
	}
}

// Every request of a run that went well has its place in the details.
func TestDetailsOfSuccesses(t *testing.T) {
	_, r := collected(Options{KeepRecords: true}, record.Request{
		FirstToken: 1, Finish: 2, Output: 2, Gaps: []float64{1},
	})
	if d, err := r.details(); err != nil || len(d.TTFTs) != 1 || d.TTFTs[0] != 1 {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestMetricNames(t *testing.T) {
	for m, want := range map[ID]string{
		-1: "metric(-1)", 0: byID[0].Name, NumMetrics - 1: byID[NumMetrics-1].Name, NumMetrics: "metric(",
	} {
		if got := m.String(); !strings.HasPrefix(got, want) {
			t.Errorf("%d: %s", int(m), got)
		}
		if m >= 0 && m < NumMetrics {
			if again, ok := IDOf(m.String()); !ok || again != m {
				t.Errorf("%s is %v", m, again)
			}
		}
	}
}

// What prefix caches save is counted of successful requests, over all, by adapter
// and by worker; without caches there is nothing to count.
func TestReuse(t *testing.T) {
	rs := []record.Request{
		{Adapter: 0, Prompt: 10, Cached: 4, WorkerLast: 0, Finish: 1},
		{Adapter: 0, Prompt: 30, Cached: 6, WorkerLast: 1, Finish: 1},
		{Adapter: 1, Prompt: 60, Cached: 40, WorkerLast: 1, Finish: 1},
		{Adapter: 1, Prompt: 60, Cached: 60, WorkerLast: 1, Status: record.Failed},
	}
	_, r := collected(Options{PrefixCache: true}, rs...)
	e := r.Extra
	for what, c := range map[string]struct {
		got    *Reuse
		cached int64
		rate   float64
	}{
		"all": {e.Reuse, 50, 0.5}, "adapter 0": {e.Adapters[0].Reuse, 10, 0.25},
		"adapter 1": {e.Adapters[1].Reuse, 40, 40.0 / 60},
		"worker 0":  {e.Workers[0].Reuse, 4, 0.4}, "worker 1": {e.Workers[1].Reuse, 46, 46.0 / 90},
	} {
		if c.got == nil || c.got.Cached != c.cached || !near(c.got.HitRate, c.rate, 1e-12) {
			t.Errorf("%s: %+v, expected %+v", what, c.got, c)
		}
	}
	if _, r = collected(Options{}, rs...); r.Extra.Reuse != nil || r.Extra.Workers[0].Reuse != nil {
		t.Errorf("without caches: %+v", r.Extra.Reuse)
	}
}

// A limit that is just reached is met; a reply that was not streamed has its first
// token with its last.
func TestMet(t *testing.T) {
	streamed := record.Request{Sent: 1, FirstToken: 1.5, Finish: 3.5, Output: 5}
	whole := record.Request{Sent: 1, FirstToken: math.NaN(), Finish: 3.5, Output: 5, Streamed: record.NotStreamed}
	textless, failed := whole, streamed
	textless.Streamed, failed.Status = record.Streamed, record.Failed
	for _, c := range []struct {
		what string
		q    record.Request
		slo  string
		met  bool
	}{
		{"at the limits", streamed, "ttft:500 tpot:500 e2e:2500", true}, {"TTFT", streamed, "ttft:499", false},
		{"TPOT", streamed, "tpot:499", false},
		{"E2E", streamed, "e2e:2499", false}, {"failed", failed, "e2e:2500", false},
		{"not streamed", whole, "ttft:2500", true}, {"not streamed", whole, "ttft:2499", false},
		{"no text", textless, "ttft:9999", false}, {"no text", textless, "e2e:2500", true},
	} {
		slo, err := ParseSLO(c.slo)
		if err != nil {
			t.Fatal(err)
		}
		if got := slo.Met(&c.q); got != c.met {
			t.Errorf("%s, %s: %v", c.what, c.slo, got)
		}
	}
}

// Records of an imported run are held to an SLO; a run that has no records, or was
// told all by itself, is left alone.
func TestCountGood(t *testing.T) {
	imported := Result{
		Records: []record.Request{{FirstToken: 1, Finish: 2, Output: 2}, {FirstToken: 2, Finish: 3, Output: 2}},
	}
	imported.Metrics.Set(Duration, 4)
	told := imported
	told.Extra = &Extra{}
	for what, c := range map[string]struct {
		r    Result
		good bool
	}{"records": {imported, true}, "own numbers": {told, false}, "no records": {Result{}, false}} {
		c.r.CountGood(SLO{TTFT: 1500})
		if g := c.r.Goodput; (g != nil) != c.good || g != nil && (g.Good != 1 || g.Share != 0.5 || g.PerS != 0.25) {
			t.Errorf("%s: %+v", what, g)
		}
	}
}

// Rows that would say nothing are left out: the worst of one adapter, and hours of
// workers that have one GPU each.
func TestRowsOfExtra(t *testing.T) {
	for want, c := range map[string]struct {
		elastic  Elastic
		adapters int
		lost     float64
	}{
		"GPU-hours":                           {Elastic{GPUHours: 2, WorkerHours: 2}, 1, 0},
		"Worker-hours":                        {Elastic{GPUHours: 2, WorkerHours: 1}, 1, 0},
		"Worst adapter":                       {Elastic{}, 2, 0},
		"migrations (s):            1.00":     {Elastic{}, 1, 1},
		"migrations (s):            0.500000": {Elastic{}, 1, 0.5},
	} {
		c1 := NewCollector(Options{SLO: SLO{TTFT: 1500}, Adapters: trace.Names(c.adapters, nil)})
		for a := range c.adapters {
			c1.Done(&record.Request{Adapter: int32(a), FirstToken: 1, Finish: 2, Output: 2})
		}
		r := c1.Result(Meta{}, &RunCounters{MigrationTime: c.lost})
		r.Extra.Elastic = &c.elastic
		var b strings.Builder
		if err := r.WriteExtra(&b); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s%v", want, b.String(), err)
		}
		if c.elastic.GPUHours == c.elastic.WorkerHours && strings.Contains(b.String(), "Worker-hours") ||
			c.adapters == 1 && strings.Contains(b.String(), "Worst adapter") {
			t.Errorf("rows that say nothing in\n%s", b.String())
		}
	}
}

// A progression of no terms is nothing.
func TestEmptyRuns(t *testing.T) {
	var m moments
	m.addRun(5, 1, 0, 3)
	h := NewHistogram(7)
	h.AddRun(5, 1, 0, 3)
	h.AddRun(5, 1, -1, 3)
	if m.n != 0 || m.max != 0 || h.Count() != 0 {
		t.Errorf("%+v, %d", m, h.Count())
	}
}

// Nearly a number of JavaScript is no number.
func TestNoInfinity(t *testing.T) {
	for _, text := range []string{`{"request_rate": Infinite}`, `{"request_rate": NoN}`, `{"completed": Ixxxxxxx}`} {
		if err := parseJSONL(strings.NewReader(text), "f", func(int, *Result) error { return nil }); err == nil ||
			!strings.HasPrefix(err.Error(), "f:1: ") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Adapters keep their samples as long as the run does, and no longer.
func TestAdaptersFold(t *testing.T) {
	c := NewCollector(Options{SampleLimit: 2})
	for i := range 4 {
		folded := c.adapter(0).e2e.hist != nil
		if want := i > 2; folded != want {
			t.Errorf("after %d requests: folded %v", i, folded)
		}
		c.Done(&record.Request{FirstToken: 1, Finish: 2, Output: 2})
	}
}
