package series

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
	"lorasim/trace/settings"
)

func simulate(t *testing.T, sc scenario.Scenario) (*Series, []record.Request) {
	t.Helper()
	rec := NewRecorder(workers(sc))
	res, err := sc.Simulate(t.Context(), scenario.RunOptions{Watch: rec.Watching, KeepRecords: true})
	if err != nil {
		t.Fatal(err)
	}
	return rec.Series(), res.Records
}

func workers(sc scenario.Scenario) int {
	n, err := sc.Workers()
	if err != nil {
		panic(err)
	}
	return n
}

func total(s *Series, values func(Worker) []float64) float64 {
	sum := 0.0
	for _, w := range s.Workers {
		for i, v := range values(w) {
			sum += v * min(s.Bucket, s.End-float64(i)*s.Bucket)
		}
	}
	return sum
}

// Little's law without its limit: summed over time, requests in the system are
// the sum of their stays, to the microsecond.
func TestTimeInSystem(t *testing.T) {
	for _, policy := range []string{"affinity-spill", "plan-and-route", "llumnix"} {
		sc := scenario.Default()
		sc.Workload.NumPrompts, sc.Workload.RequestRate = settings.Some[int64](1500), 14
		testutil.Set(t, &sc, "policy", policy)
		sc.Cluster.Engine.MaxLoadedLoras = 12
		s, rs := simulate(t, sc)
		n := len(s.Workers[0].Queued)
		if len(s.Workers) != workers(sc) || n > maxBuckets || n < maxBuckets/2 {
			t.Fatalf("%s: %d workers, %d buckets", policy, len(s.Workers), n)
		}
		stays, last := 0.0, 0.0
		for i := range rs {
			last = max(last, rs[i].Finish)
			if rs[i].Status == record.OK {
				stays += rs[i].E2E()
			}
		}
		if math.Abs(s.End-last) > 1e-6 {
			t.Errorf("%s: ends at %v, the last request at %v", policy, s.End, last)
		}
		in := total(s, func(w Worker) []float64 { return w.Queued }) +
			total(s, func(w Worker) []float64 { return w.Running })
		// The client sees a reply some ms after it left the worker, and requests
		// on the way between workers are on none: within 3 %.
		if in > stays*1.0001 || in < 0.97*stays {
			t.Errorf("%s: %.2f request seconds on the workers, %.2f by the records", policy, in, stays)
		}
	}
}

// Where adapters lie: never more in slots than there are. More than fit into host
// memory only where requests need every one of them. For every request its
// adapter is in a slot of its worker at its last decode step; before, a prefill
// step may take the slot for a while.
func TestPlacement(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts, sc.Workload.RequestRate = settings.Some[int64](800), 12
	testutil.Set(t, &sc, "policy", "affinity-spill")
	sc.Cluster.Engine.MaxLoadedLoras, sc.Cluster.Engine.MaxLorasPerBatch = 10, 4
	s, rs := simulate(t, sc)
	n := len(s.Adapters)
	if s.Placement == nil || len(s.Placement.GPU) != n*len(s.Workers) || s.Placement.Resolution != 0 {
		t.Fatal("no placement")
	}
	// The client sees an end some ms after the worker: 12 in this profile.
	const overhead, blink = 0.012, 0.001
	over := 0
	for w := range s.Workers {
		for at := 0.1; at < s.End; at += 0.977 {
			if k := count(s.Placement.GPU[w*n:(w+1)*n], at); k > 4 {
				t.Errorf("worker %d at %v: %d adapters in 4 slots", w, at, k)
			}
			if count(s.Placement.Host[w*n:(w+1)*n], at) <= 10 {
				continue
			}
			over++
			for a, stays := range s.Placement.Host[w*n : (w+1)*n] {
				if there(stays, at) && !slices.ContainsFunc(rs, func(r record.Request) bool {
					return int(r.Adapter) == a && int(r.WorkerLast) == w && r.Sent <= at && at < r.Finish
				}) {
					t.Errorf("worker %d at %v: adapter %d is one of more than 10 in memory, and nobody's", w, at, a)
				}
			}
		}
		if k := count(s.Placement.Host[w*n:(w+1)*n], s.End-blink); k > 10 {
			t.Errorf("worker %d ends with %d adapters in memory for 10", w, k)
		}
		loads, came := 0.0, 0.0
		for _, n := range s.Workers[w].Loads {
			loads += n
		}
		for _, stays := range s.Placement.GPU[w*n : (w+1)*n] {
			came += float64(len(stays))
			if len(stays) > 0 && stays[0][0] == 0 {
				came-- // was there from the beginning
			}
		}
		if loads != came || loads == 0 {
			t.Errorf("worker %d: %v loads, adapters came to a slot %v times", w, loads, came)
		}
	}
	if over == 0 {
		t.Error("requests never need more adapters than fit into memory")
	}
	checked := 0
	for i := range rs {
		r := &rs[i]
		if r.Status != record.OK || r.Adapter < 0 || r.Output < 2 {
			continue
		}
		checked++
		if last := r.Finish - overhead - blink; !there(s.Placement.GPU[int(r.WorkerLast)*n+int(r.Adapter)], last) {
			t.Fatalf("request %d runs at %v without its adapter %d on worker %d", r.ID, last, r.Adapter, r.WorkerLast)
		}
	}
	if checked < 700 {
		t.Error(checked)
	}
}

func there(stays Stays, at float64) bool {
	for _, st := range stays {
		if st[0] <= at && at < st[1] {
			return true
		}
	}
	return false
}

func count(all []Stays, at float64) int {
	k := 0
	for _, st := range all {
		if there(st, at) {
			k++
		}
	}
	return k
}

// Records tell the same load as the simulator, as far as they go.
func TestFromRecords(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](1000)
	exact, rs := simulate(t, sc)
	s := FromRecords(rs, exact.Adapters)
	if s.Bucket != exact.Bucket || s.End != exact.End || len(s.Workers) != len(exact.Workers) {
		t.Fatalf("%v %v %d", s.Bucket, s.End, len(s.Workers))
	}
	// The client sees a reply some ms after it left the worker: little over all.
	for w := range s.Workers {
		sum, off := 0.0, 0.0
		for i := range s.Workers[w].Running {
			a := exact.Workers[w].Running[i] + exact.Workers[w].Queued[i]
			sum += a
			off += math.Abs(s.Workers[w].Running[i] + s.Workers[w].Queued[i] - a)
		}
		if off > 0.03*sum {
			t.Errorf("worker %d: the records are off by %v of %v requests", w, off, sum)
		}
	}
	for a := range s.Requests {
		if s.Requests[a] != exact.Requests[a] {
			t.Errorf("adapter %d: %d and %d", a, s.Requests[a], exact.Requests[a])
		}
	}
	if got := FromRecords(nil, nil); len(got.Workers) != 0 || got.End != 0 {
		t.Errorf("%+v", got)
	}
}

// Worked by hand, 3 adapters: what records say of waiting and running, and what is
// left out.
func TestFromRecordsByHand(t *testing.T) {
	nan := math.NaN()
	s := FromRecords([]record.Request{
		{Adapter: 0, WorkerLast: 1, FirstToken: 1, Finish: 3},
		{Adapter: 1, WorkerLast: 1, FirstToken: nan, Finish: 2},
		{Adapter: 1, WorkerLast: 1, FirstToken: 9, Finish: 2},
		{Adapter: 1, WorkerLast: 1, FirstToken: 1, Finish: 1, Status: record.Failed},
		{Adapter: -1, WorkerLast: 1, Sent: 1, FirstToken: 0.5, Finish: 2},
		{Adapter: 4, WorkerLast: 0, FirstToken: nan, Finish: 0.5},
		{Adapter: -1, WorkerLast: -1, FirstToken: 1, Finish: 2},
		{Adapter: 2, WorkerLast: 1, Sent: 3, FirstToken: 3, Finish: 2},
		{Adapter: 2, WorkerLast: maxWorkers, FirstToken: 1, Finish: 2},
	}, trace.Names(3, nil))
	queued, running := total(s, func(w Worker) []float64 { return w.Queued }),
		total(s, func(w Worker) []float64 { return w.Running })
	if len(s.Workers) != 2 || s.End != 3 || math.Abs(queued-1) > 1e-9 || math.Abs(running-(2+2+2+1+1+0.5)) > 1e-9 {
		t.Errorf("%d workers until %v: %v s queued, %v s running", len(s.Workers), s.End, queued, running)
	}
	want := []int64{1, 3, 2, 3}
	if !slices.Equal(s.Requests, want) {
		t.Errorf("by adapter %v, expected %v", s.Requests, want)
	}
}

// Buckets become wider once they are full.
func TestBucketsWiden(t *testing.T) {
	for end, want := range map[tick.Ticks]struct {
		width   float64
		buckets int
	}{8 * tick.Second: {1.0 / 64, 512}, 8*tick.Second + 1: {1.0 / 32, 257}, 1: {1.0 / 64, 1}} {
		r := NewRecorder(1)
		r.state(0, end, &router.View{Workers: make([]router.Worker, 1)})
		if s := r.Series(); s.Bucket != want.width || len(s.Workers[0].Queued) != want.buckets {
			t.Errorf("%v s: %d buckets of %v s, expected %+v", end.Seconds(), len(s.Workers[0].Queued), s.Bucket, want)
		}
	}
}

// Whatever happens, the buckets hold all the time there was, however often they
// were joined.
func TestBucketsKeepTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRecorder(1)
		v := router.View{Workers: make([]router.Worker, 1)}
		now, queued, top := tick.Ticks(0), 0.0, 0.0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := tick.Ticks(rapid.Int64Range(1, int64(20*tick.Second)).Draw(t, "length"))
			v.Workers[0].Queued = rapid.IntRange(0, 9).Draw(t, "queued")
			r.state(now, now+d, &v)
			now += d
			queued += float64(v.Workers[0].Queued) * d.Seconds()
			top = max(top, float64(v.Workers[0].Queued))
		}
		s := r.Series()
		if got := total(s, func(w Worker) []float64 { return w.Queued }); math.Abs(got-queued) > 1e-6*(1+queued) {
			t.Fatalf("%v request seconds, expected %v", got, queued)
		}
		most := 0.0
		for _, m := range s.Workers[0].QueuedMax {
			most = max(most, m)
		}
		if most != top || s.Bucket*float64(len(s.Workers[0].Queued)) < s.End || len(s.Workers[0].Queued) > maxBuckets {
			t.Fatalf("most %v of %v; %d buckets of %v for %v", most, top, len(s.Workers[0].Queued), s.Bucket, s.End)
		}
	})
}

// Time on is that of the workers' own counts, but for the end of the run, which their
// clients see later.
func TestTimeOn(t *testing.T) {
	sc := scenario.Default()
	sc.Workload.NumPrompts, sc.Workload.RequestRate = settings.Some[int64](1000), 5
	testutil.Set(t, &sc, "policy", "least-loaded")
	run := func(elastic string) (*Series, []result.WorkerStats) {
		testutil.Set(t, &sc, "elastic", elastic)
		r := NewRecorder(4)
		res, err := sc.Simulate(t.Context(), scenario.RunOptions{Watch: r.Watching})
		if err != nil {
			t.Fatal(err)
		}
		return r.Series(), res.Extra.Workers
	}
	s, stats := run("min=1,max=4,rule=schedule,times=20=3+50=4+70=1+120=2,cold_start=10")
	for i := range s.Workers {
		on := 0.0
		for k, share := range s.Workers[i].On {
			on += share * min(s.Bucket, s.End-s.Bucket*float64(k))
		}
		if math.Abs(on-stats[i].On) > 0.1 || on == 0 {
			t.Errorf("worker %d was on for %v s, its own count is %v", i, on, stats[i].On)
		}
	}
	if s, _ := run(""); s.Workers[0].On != nil {
		t.Error("workers that are there all the time have no such series")
	}
}

// Stays are bounded: with too many of them those close together become one, and
// none is lost.
func TestStaysAreBounded(t *testing.T) {
	v := router.View{
		Workers: []router.Worker{{Adapters: make([]router.AdapterState, 2)}}, Adapters: make([]trace.Adapter, 2),
	}
	p := newPlacer(&v)
	p.limit = 1000
	for i := range tick.Ticks(20_000) {
		at := i * tick.Second
		p.tier(at, 0, 0, router.GPU)
		p.tier(at+tick.Second/4, 0, 0, router.Host)
		p.tier(at+tick.Second/2, 0, 0, router.Disk)
		if p.stays > 1000 || i == 499 && (p.stays != 1000 || p.grain != 0) {
			t.Fatalf("%d stays are held, to %v s", p.stays, p.grain.Seconds())
		}
	}
	got := p.finish(20_000 * tick.Second)
	if got.Resolution == 0 || len(got.GPU[0]) == 0 || len(got.GPU[1]) != 0 {
		t.Fatalf("%v %d", got.Resolution, len(got.GPU[0]))
	}
	if last := got.GPU[0][len(got.GPU[0])-1]; got.GPU[0][0][0] != 0 || last[1] != 19999.25 {
		t.Errorf("from %v to %v", got.GPU[0][0][0], last[1])
	}
	for i, st := range got.GPU[0] {
		if st[1] <= st[0] || i > 0 && st[0] <= got.GPU[0][i-1][1] {
			t.Fatalf("stay %d: %v", i, st)
		}
	}
}

// With one stay for each adapter on each worker there is room for as many again.
func TestStaysOfEach(t *testing.T) {
	p := newPlacer(&router.View{
		Workers: []router.Worker{{Adapters: make([]router.AdapterState, 2)}}, Adapters: make([]trace.Adapter, 2),
	})
	p.limit = 3
	for _, at := range []tick.Ticks{0, 10 * tick.Second} {
		for a := range int32(2) {
			p.tier(at, 0, a, router.GPU)
			p.tier(at+tick.Second, 0, a, router.Disk)
		}
	}
	p.tier(15*tick.Second, 0, 0, router.GPU) // and stays
	p.tier(20*tick.Second, 0, 1, router.GPU) // after the end
	got := p.finish(20 * tick.Second)
	want := []Stays{{{0, 1}, {10, 11}, {15, 20}}, {{0, 1}, {10, 11}}}
	if got.Resolution != 0.125 || !reflect.DeepEqual(got.GPU, want) || !reflect.DeepEqual(got.Host, want) {
		t.Errorf("%+v, expected %v", got, want)
	}
}

func TestJoin(t *testing.T) {
	for _, c := range []struct {
		from  int
		grain tick.Ticks
		want  [][2]tick.Ticks
	}{
		{0, 0, [][2]tick.Ticks{{0, 1}, {2, 4}, {6, 7}}}, {0, 1, [][2]tick.Ticks{{0, 4}, {6, 7}}},
		{0, 2, [][2]tick.Ticks{{0, 7}}},
		{1, 1, [][2]tick.Ticks{{0, 1}, {2, 4}, {6, 7}}}, {1, 2, [][2]tick.Ticks{{0, 1}, {2, 7}}},
	} {
		if got := join([][2]tick.Ticks{{0, 1}, {2, 3}, {3, 4}, {6, 7}}, c.from, c.grain); !slices.Equal(got, c.want) {
			t.Errorf("from %d, gaps of %d: %v, expected %v", c.from, c.grain, got, c.want)
		}
	}
}

// Plans that changed nothing go first, then every second one.
func TestPlansAreBounded(t *testing.T) {
	for _, c := range []struct {
		plans, every, kept int
		second             string
	}{
		{maxPlans, 1, maxPlans, "1"}, {maxPlans + 1, 1, maxPlans/2 + 1, "2"}, {maxPlans + 1, 2, maxPlans/2 + 1, "2"},
		{maxPlans + 1, 4, maxPlans/4 + 1, "4"}, {5001, 1, 0, ""}, {5001, 2, 0, ""},
	} {
		r := NewRecorder(1)
		for i := range c.plans {
			plan := &router.Plan{Reason: fmt.Sprint(i)}
			if i%c.every == 0 {
				plan.Load = []router.Placement{{Worker: 0, Adapter: int32(i)}}
			}
			r.plan(&record.Plan{Made: float64(i), Applied: float64(i), Plan: plan})
		}
		p := r.series.Plans
		if n := len(p); n > maxPlans || n+r.series.PlansLeft != c.plans || p[0].Reason != "0" ||
			c.kept > 0 && (n != c.kept || p[1].Reason != c.second) {
			t.Errorf("%+v: %d plans, %d left out, %s and %s first", c, n, r.series.PlansLeft, p[0].Reason, p[1].Reason)
		}
		for i := range p[2:] {
			if a, b := p[i+1].Made-p[i].Made, p[i+2].Made-p[i+1].Made; a != b {
				t.Fatalf("%+v: plans %v and then %v s apart, expected all alike", c, a, b)
			}
		}
	}
}

// A plan's adapters have names where they are known; one that was dropped moved
// nothing; gain and gap are there where the planner told them.
func TestNewPlan(t *testing.T) {
	plan := router.Plan{
		Load:   []router.Placement{{Worker: 2, Adapter: 1}, {Worker: 0, Adapter: 2}},
		Unload: []router.Placement{{Worker: 1, Adapter: 0}},
	}
	p := newPlan(&record.Plan{Plan: &plan}, trace.Names(2, nil))
	if !slices.Equal(p.Loads, []string{"lora1@2", "2@0"}) || !slices.Equal(p.Unloads, []string{"lora0@1"}) ||
		p.Gain != nil || p.Gap != nil || p.Empty() {
		t.Errorf("%+v", p)
	}
	plan.Stay, plan.Objective, plan.Bound = 10, 8, 6
	p = newPlan(&record.Plan{Plan: &plan, Dropped: "stale"}, nil)
	if !p.Empty() || p.Gain == nil || *p.Gain != 2 || p.Gap == nil || *p.Gap != 0.25 {
		t.Errorf("%+v", p)
	}
	for _, some := range []Plan{{Loads: []string{"x"}}, {Unloads: []string{"x"}}, {Moves: 1}} {
		if some.Empty() {
			t.Errorf("%+v is empty", some)
		}
	}
}

func TestQuantiles(t *testing.T) {
	l := NewLatencies()
	for i := 1; i <= 1000; i++ {
		l.Done(&record.Request{Sent: 1, FirstToken: 1 + float64(i)/200, Finish: 1 + float64(i)/100, Output: 11})
	}
	l.Done(&record.Request{Sent: 1, Finish: 900, Status: record.Failed})
	l.Done(&record.Request{Sent: 1, FirstToken: math.NaN(), Finish: 2, Output: 1})
	for i, q := range QuantilesOf(l.E2E) {
		if want := 10000 * float64(i) / Quantiles; math.Abs(q-want) > 0.005*want+21 {
			t.Errorf("quantile %d is %v ms, expected %v", i, q, want)
		}
	}
	for i, q := range QuantilesOf(l.TPOT) { // half of E2E, in 10 gaps
		if want := 500 * float64(i) / Quantiles; math.Abs(q-want) > 0.005*want+1.1 {
			t.Errorf("quantile %d of TPOT is %v ms, expected %v", i, q, want)
		}
	}
	if q := QuantilesOf(l.TTFT); l.TTFT.Count() != 1000 || l.TPOT.Count() != 1000 || math.Abs(q[0]-5) > 0.03 ||
		math.Abs(q[Quantiles]-5000) > 30 {
		t.Error(l.TTFT.Count(), l.TPOT.Count(), q[0], q[Quantiles])
	}
	l.Done(&record.Request{Sent: 1, FirstToken: 1, Finish: 2, Output: 1})
	l.Done(&record.Request{Sent: 1, FirstToken: 0.5, Finish: 2, Output: 1})
	if l.TTFT.Count() != 1001 || l.E2E.Count() != 1003 {
		t.Errorf("%d and %d: a TTFT of 0 counts, one below does not", l.TTFT.Count(), l.E2E.Count())
	}
	if QuantilesOf(NewLatencies().E2E) != nil {
		t.Error("quantiles of nothing")
	}
}

func BenchmarkRecorder(b *testing.B) {
	sc := scenario.Default()
	sc.Workload.NumPrompts = settings.Some[int64](5000)
	for _, watch := range []bool{false, true} {
		b.Run(fmt.Sprint(watch), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				o := scenario.RunOptions{}
				if watch {
					o.Watch = NewRecorder(workers(sc)).Watching
				}
				if _, err := sc.Simulate(b.Context(), o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
