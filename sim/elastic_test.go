package sim

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/sim/autoscale"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// at is a request of the base model, which plainProfile (worked_test.go) serves alone
// in 10 ms + 11 ms for each token after the first.
func at(ms float64, output int32) trace.Request {
	return trace.Request{Arrival: ms / 1000, Adapter: trace.BaseModel, Prompt: 50, Output: output}
}

// elastically runs requests on workers of plainProfile that join and leave, and
// writes down what becomes of these.
func elastically(t *testing.T, workers int, cfg Config, reqs ...trace.Request) (*ledger, *Stats, string) {
	t.Helper()
	for i := range reqs {
		reqs[i].ID = int64(i)
	}
	l, log := newLedger(), &powerLog{}
	p := plainProfile()
	p.Memory.KVBytesPerToken, p.Adapters.Network = 1_000_000, profile.Stage{LatencyMs: 1, GBPerS: 10} // 0.1 ms a token
	cfg.Source = (&trace.Workload{Adapters: trace.Names(2, nil), Requests: reqs}).Source()
	cfg.Workers = slices.Repeat([]*profile.Costs{p.Compile()}, workers)
	cfg.Observer, cfg.Home = l, router.Disk
	cfg.Watchers = []record.Watcher{{Kinds: record.EventState | record.EventPower, Note: log.note}}
	if cfg.Router == nil {
		cfg.Router = &router.Router{Policy: byUsable{}}
	}
	st, err := Run(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if log.until > st.End {
		t.Errorf("the run went on until %v s, its last request ended at %v", log.until.Seconds(), st.End.Seconds())
	}
	return l, st, strings.Join(log.lines, " ")
}

// powerLog writes down what workers become, as in "100:1+" (starts), "1!" (is on),
// "1-" (drains), "1." (is off); times in ms.
type powerLog struct {
	lines []string
	until tick.Ticks // end of what was watched
}

func (p *powerLog) note(e *record.Event) {
	if e.Kind == record.EventState {
		p.until = e.Until
		return
	}
	p.lines = append(p.lines, fmt.Sprintf("%.0f:%d%s", e.At.Milliseconds(), e.Worker,
		[]string{"!", "-", ".", "+"}[e.Power]))
}

// Worked out by hand.
func TestWorkersJoinAndLeave(t *testing.T) {
	// Request 1 comes while the start of worker 1 is under way, request 3 when it is
	// on. Worker 1 is to leave at 200 ms, when it has served 8 of the 20 tokens of
	// request 3 (160-170, then 11 ms a token: until 379 ms).
	e := &Elastic{Initial: 1, Min: 1, ColdStart: 0.05, Times: []Resize{{0.1, 2}, {0.2, 1}, {1e6, 2}}}
	l, st, log := elastically(t, 2, Config{Elastic: e}, at(0, 1), at(120, 1), at(155, 1), at(160, 20), at(250, 1),
		at(400, 1))
	if want := "100:1+ 150:1! 200:1- 379:1."; log != want {
		t.Errorf("%s, expected %s", log, want)
	}
	var served []int32
	for id := range int64(6) {
		served = append(served, l.recs[id].WorkerLast)
	}
	if want := []int32{0, 0, 0, 1, 0, 0}; !slices.Equal(served, want) {
		t.Errorf("served on %v, expected %v", served, want)
	}
	// the end is 400 + 10 + 2 ms
	if a, b := st.Workers[0].On, st.Workers[1].On; a != tick.FromMilliseconds(412) || b != tick.FromMilliseconds(279) {
		t.Errorf("on for %v and %v ms, expected 412 and 279", a.Milliseconds(), b.Milliseconds())
	}
	want := ElasticStats{Mean: 691.0 / 412, Least: 1, Most: 2, Started: 1, Left: 1}
	got := *st.Elastic
	if math.Abs(got.Mean-want.Mean) > 1e-9 {
		t.Errorf("%v workers in the mean, expected %v", got.Mean, want.Mean)
	}
	if got.Mean = want.Mean; got != want {
		t.Errorf("%+v, expected %+v", got, want)
	}
}

// One that fails while it drains has nothing more to finish; one that is off does
// not come back with the end of its outage.
func TestOutageOfAWorkerThatLeaves(t *testing.T) {
	e := &Elastic{Initial: 2, Min: 1, Times: []Resize{{0.2, 1}}}
	l, _, log := elastically(t, 2, Config{Elastic: e, Outages: []Outage{{Worker: 1, From: 0.3, To: 0.35}}}, at(0, 1),
		at(160, 20), at(400, 1), at(410, 1))
	if want := "200:1- 300:1."; log != want {
		t.Errorf("%s, expected %s", log, want)
	}
	for id, r := range l.recs {
		if r.WorkerLast != 0 || r.Status != record.OK {
			t.Errorf("request %d: %+v, expected it to end on worker 0", id, r)
		}
	}
}

func TestStartsAreCalledOffAndDrainingIsTakenBack(t *testing.T) {
	for want, times := range map[string][]Resize{
		// the younger of two starts first
		"10:1+ 20:2+ 30:2. 60:1!": {{0.01, 2}, {0.02, 3}, {0.03, 2}},
		"10:1+ 30:1. 40:1+ 90:1!": {{0.01, 2}, {0.03, 1}, {0.04, 2}}, // the first start does not count
		// worker 1 has request 1 until 379 ms
		"100:1+ 150:1! 200:1- 300:1!":                      {{0.1, 2}, {0.2, 1}, {0.3, 2}},
		"100:1+ 150:1! 200:1- 379:1. 380:1+ 430:1!":        {{0.1, 2}, {0.2, 1}, {0.38, 2}},
		"100:1+ 150:1! 200:1- 300:1! 310:2+ 360:2!":        {{0.1, 2}, {0.2, 1}, {0.3, 2}, {0.31, 3}},
		"100:1+ 100:2+ 150:1! 150:2! 200:2- 200:2.":        {{0.1, 3}, {0.2, 2}}, // has nothing to finish
		"100:1+ 150:1! 200:1- 210:1! 210:2+ 260:2!":        {{0.1, 2}, {0.2, 1}, {0.21, 3}},
		"100:1+ 140:2+ 150:1! 190:2! 200:2- 200:2.":        {{0.1, 2}, {0.14, 3}, {0.2, 2}},
		"100:1+ 100:2+ 150:1! 150:2! 500:2- 500:2.":        {{0.1, 3}, {0.5, 2}},
		"100:1+ 150:1! 379:1- 379:1.":                      {{0.1, 2}, {0.379, 1}}, // at the end of its last step
		"100:1+ 150:1! 200:1- 379:1. 379:1+ 429:1!":        {{0.1, 2}, {0.2, 1}, {0.379, 2}},
		"100:1+ 100:2+ 150:1! 150:2! 170:2- 170:2. 180:1-": {{0.1, 3}, {0.17, 2}, {0.18, 1}},
	} {
		// request 1 goes to worker 1 once there are two, and to 1 of three
		reqs := []trace.Request{at(0, 1), at(160, 20), at(600, 1)}
		e := &Elastic{Initial: 1, Min: 1, ColdStart: 0.05, Times: times}
		_, _, log := elastically(t, 3, Config{Elastic: e}, reqs...)
		if strings.HasSuffix(want, "180:1-") {
			want += " 379:1."
		}
		if log != want {
			t.Errorf("%v: %s, expected %s", times, log, want)
		}
	}
}

// Where there may be no worker, requests wait for one, which the next look starts
// whatever the scaler says; those that wait count as in flight. Limits of the router count
// when a request comes, and not again.
func TestNoWorkers(t *testing.T) {
	e := &Elastic{ColdStart: 0.05, Every: 0.1, Scaler: &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 2}}}
	rt := &router.Router{Policy: byUsable{}}
	limit := admission.RateLimit{Rate: 1, Burst: 1}
	err := admission.Add(rt, admission.Shedding{}, limit, router.Env{Adapters: trace.Names(2, nil)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	adapters := func(reqs ...trace.Request) []trace.Request {
		for i := 1; i < len(reqs); i++ {
			reqs[i].Adapter = int32(i - 1)
		}
		return reqs
	}
	// 3 wait at 100 ms, for two workers; request 1 loads its adapter and ends on worker 1 at 284 ms
	l, st, log := elastically(t, 3, Config{Elastic: e, Router: rt}, append(adapters(at(30, 1), at(40, 1), at(50, 1)),
		at(60, 1), at(1480, 1))...)
	if want := "100:0+ 100:1+ 150:0! 150:1! 200:1- 284:1. 300:0- 300:0. 1500:0+ 1550:0!"; log != want {
		t.Errorf("%s, expected %s", log, want)
	}
	if r := l.recs[0]; math.Abs(1000*r.Finish-162) > 1e-6 || r.WorkerFirst != 0 {
		t.Errorf("%+v, expected to be served from 150 ms on", r)
	}
	if r := l.recs[3]; r.Status != record.Rejected || r.Finish != 0.06 || l.recs[1].Status != record.OK ||
		l.recs[2].Status != record.OK {
		t.Errorf("%+v, expected the second of the base model alone to be over its rate", r)
	}
	if st.Elastic.Least != 0 || st.Elastic.Most != 2 {
		t.Errorf("%+v", st.Elastic)
	}

	// The scaler wants none; worker 0 comes nevertheless.
	l, _, _ = elastically(t, 1, Config{Elastic: &Elastic{Every: 0.1,
		Scaler: &autoscale.Autoscaler{Need: autoscale.Reactive{Target: math.Inf(1)}}}}, at(30, 1))
	if r := l.recs[0]; math.Abs(1000*r.Finish-112) > 1e-6 {
		t.Errorf("%+v, expected to be served from 100 ms on", r)
	}

	// At given times: request 0 waits for worker 0, request 1 comes to nothing, as
	// that start is called off, and request 2 is told at once.
	l, _, log = elastically(t, 1, Config{Elastic: &Elastic{ColdStart: 0.05,
		Times: []Resize{{0.1, 1}, {0.2, 0}, {0.3, 1}, {0.32, 0}}}}, at(30, 1), at(250, 1), at(400, 1))
	if want := "100:0+ 150:0! 200:0- 200:0. 300:0+ 320:0."; log != want {
		t.Errorf("%s, expected %s", log, want)
	}
	for id, want := range []float64{162, 320, 400} {
		if r := l.recs[int64(id)]; math.Abs(1000*r.Finish-want) > 1e-6 || (r.Status == record.OK) != (id == 0) {
			t.Errorf("%+v, expected an end at %v ms", r, want)
		}
	}
}

// A worker that comes, or comes back, has no adapters: the first request of one
// fetches it from disk (50 + 66.667 + 7 ms). One that was taken back has them.
func TestWorkersComeWithoutAdapters(t *testing.T) {
	use := func(ms float64) trace.Request {
		return trace.Request{Arrival: ms / 1000, Adapter: 0, Prompt: 50, Output: 1}
	}
	const disk = 50 + 100/1.5 + 7
	for name, c := range map[string]struct {
		initial int
		times   []Resize
		cold    []float64 // of the requests to worker 1
	}{
		"there at the start": {2, []Resize{{5, 2}}, []float64{7, 0}},
		"joined":             {1, []Resize{{0.01, 2}}, []float64{disk, 0}},
		"came back":          {2, []Resize{{0.5, 1}, {0.6, 2}}, []float64{7, disk}},
	} {
		e := &Elastic{Initial: c.initial, Min: 1, Times: c.times}
		// with two workers odd ids go to worker 1
		l, _, log := elastically(t, 2, Config{Elastic: e}, at(0, 1), use(100), at(800, 1), use(1000))
		for i, cold := range c.cold {
			if r := l.recs[int64(2*i+1)]; r.WorkerLast != 1 || math.Abs(r.ColdLoad*1000-cold) > 1e-6 {
				t.Errorf("%s: request %d waited %v ms for its adapter on worker %d, expected %v on worker 1 (%s)", name,
					r.ID, r.ColdLoad*1000, r.WorkerLast, cold, log)
			}
		}
	}
}

// A worker that comes back is another process: its first prompts take longer.
func TestWorkersComeAnew(t *testing.T) {
	p := plainProfile()
	p.Latency.Prefill.FirstWaveFactor = 2
	l := newLedger()
	reqs := []trace.Request{at(0, 1), at(10, 2), at(200, 1), at(210, 1)}
	for i := range reqs {
		reqs[i].ID = int64(i)
	}
	run := func(times ...Resize) {
		if _, err := Run(context.Background(), Config{Source: (&trace.Workload{Requests: reqs}).Source(),
			Workers: slices.Repeat([]*profile.Costs{p.Compile()}, 2),
			Router:  &router.Router{Policy: byUsable{}}, Observer: l, Elastic: &Elastic{Initial: 2, Min: 1,
				Times: times}}); err != nil {
			t.Fatal(err)
		}
	}
	for first, times := range map[float64][]Resize{12: {{0.1, 2}}, 22: {{0.1, 1}, {0.15, 2}}} {
		run(times...)
		if r := l.recs[3]; r.WorkerLast != 1 || math.Abs(1000*r.TTFT()-first) > 1e-6 {
			t.Errorf("%v: TTFT %v ms on worker %d, expected %v on worker 1", times, 1000*r.TTFT(), r.WorkerLast, first)
		}
	}
}

// A worker does not leave before the KV cache is copied of a request that moves
// away, and one that drains gets no request that was on its way there: that one is
// prefilled again where it came from. In ms: the request prefills 0-10 and, moved at
// 25, leaves at 32; its copy takes until 38.2 (TestMovesOfARunningRequest).
func TestMovesFromAndToWorkersThatLeave(t *testing.T) {
	for _, c := range []struct {
		from, to   int32
		retire     float64
		log        string
		finish     float64
		workerLast int32
	}{
		{1, 0, 0.035, "35:1- 38:1.", 38.2 + 22 + 2, 0},
		{0, 1, 0.035, "35:1- 230:1.", 38.2 + 10.3 + 11 + 2, 0}, // worker 1 is busy with request 1
		{0, 1, 0.04, "", 0, 1},                                 // it is there by then
	} {
		sc := &script{at: 0.025, plan: &router.Plan{Move: []router.Move{{ID: 0, From: c.from, To: c.to}}}}
		reqs := []trace.Request{at(0, 5)}
		sc.byID = byID{n: 1}
		if c.to == 1 {
			reqs = append(reqs, trace.Request{Arrival: 0, Adapter: trace.BaseModel, Prompt: 50, Output: 21})
		}
		first := map[int64]int{0: int(c.from), 1: 1}
		e := &Elastic{Initial: 2, Min: 1, Times: []Resize{{c.retire, 1}}}
		l, _, log := elastically(t, 2, Config{Elastic: e, MoveMode: router.MoveCopy,
			Router: &router.Router{Policy: firstThenUsable{worker: first}, Planner: sc,
				Placement: [][]int32{{0, 1}, {}}}}, reqs...)
		r := l.recs[0]
		if log != c.log && c.finish > 0 || r.WorkerLast != c.workerLast || c.finish > 0 &&
			math.Abs(1000*r.Finish-c.finish) > 1e-6 {
			t.Errorf("%+v: %s, %+v", c, log, r)
		}
	}
}

// firstThenUsable sends a request to its worker, and where that is not usable to the
// first that is.
type firstThenUsable struct {
	router.Base
	worker map[int64]int
}

func (f firstThenUsable) Route(r router.Request, v *router.View) router.Decision {
	return router.To(f.pick(r, v))
}

func (f firstThenUsable) pick(r router.Request, v *router.View) int {
	if w := f.worker[r.ID]; v.Workers[w].Usable() {
		return w
	}
	return firstUp{}.pick(r, v)
}

// A cluster whose limits leave no choice is the cluster that does not change.
func TestElasticWithoutChoice(t *testing.T) {
	wl := func() trace.Source {
		return &poisson{adapters: trace.Names(8, nil), rng: rand.New(rand.NewPCG(1, 2)), n: 2000, rate: 20}
	}
	run := func(e *Elastic) (*ledger, *Stats) {
		l := newLedger()
		st, err := Run(context.Background(), Config{Source: wl(),
			Workers: slices.Repeat([]*profile.Costs{speedProfile()}, 3),
			Router:  &router.Router{Policy: byUsable{}}, Observer: l, Home: router.Disk, Elastic: e})
		if err != nil {
			t.Fatal(err)
		}
		return l, st
	}
	a, _ := run(nil)
	b, st := run(&Elastic{Initial: 3, Min: 3, ColdStart: 5, Every: 1,
		Scaler: &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 1}}})
	if x, y := fmt.Sprint(a.recs), fmt.Sprint(b.recs); x != y {
		t.Error("the runs differ")
	}
	if e := st.Elastic; math.Abs(e.Mean-3) > 1e-9 || e.Least != 3 || e.Most != 3 || e.Started+e.Left != 0 ||
		len(a.recs) != 2000 {
		t.Errorf("%+v, %d requests", e, len(a.recs))
	}
}

func TestBadElastic(t *testing.T) {
	s := &autoscale.Autoscaler{Need: autoscale.Reactive{Target: 1}}
	for want, e := range map[string]*Elastic{
		"-1 workers at first":           {Initial: -1, Min: -1, Scaler: s, Every: 1},
		"4 workers at first":            {Initial: 4, Min: 1, Scaler: s, Every: 1},
		"1 workers at first":            {Initial: 1, Min: 2, Scaler: s, Every: 1},
		"a cold start takes NaN":        {Initial: 1, Min: 1, ColdStart: math.NaN(), Scaler: s, Every: 1},
		"0 s between scaling decisions": {Initial: 1, Min: 1, Scaler: s},
		"a scaler or times":             {Initial: 1, Min: 1},
		"4 workers from 1 s on":         {Initial: 1, Min: 1, Times: []Resize{{1, 4}}},
		"1 workers from 1 s on":         {Initial: 2, Min: 2, Times: []Resize{{1, 1}}},
		"2 workers from -1 s on":        {Initial: 2, Min: 2, Times: []Resize{{-1, 2}}},
	} {
		c := speedProfile()
		_, err := Run(context.Background(), Config{Source: (&trace.Workload{}).Source(),
			Workers: []*profile.Costs{c, c, c},
			Router:  &router.Router{Policy: byUsable{}}, Observer: newLedger(), Elastic: e})
		testutil.ExpectError(t, err, want)
	}
}
