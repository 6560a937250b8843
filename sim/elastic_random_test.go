package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/router"
	"lorasim/router/admission"
	"lorasim/sim/autoscale"
	"lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"

	"pgregory.net/rapid"
)

// whim is a scaler without sense.
type whim struct {
	rng *rand.Rand
	n   int
}

func (w whim) Want(l autoscale.Look) int {
	if w.rng.IntN(3) == 0 {
		return l.Workers
	}
	return w.rng.IntN(w.n+4) - 1
}

// guard holds what routers and workers do against the log of joins and leaves.
type guard struct {
	router.Policy
	t     *rapid.T
	s     *sim
	state []record.Power
	spans [][2]tick.Ticks // of time on, by change
	owner []int           // of the spans
	open  []int           // the span of each worker, -1: off
	had   []int           // requests of each worker that drains
	moves map[[2]record.Power]int64
	shed  int // the limit on queues; 0: none
}

func (g *guard) Route(r router.Request, v *router.View) router.Decision {
	d := g.Policy.Route(r, v)
	w := d.Worker
	if w != router.None && g.state[w] != record.On {
		g.t.Fatalf("request %d goes to worker %d, which is in state %d", r.ID, w, g.state[w])
	}
	if n := g.shortest(); g.shed > 0 && n >= g.shed && n < math.MaxInt && g.isNew(r.ID) {
		g.t.Fatalf("request %d is not shed where %d wait on every worker, limit %d", r.ID, n, g.shed)
	}
	return d
}

// note holds the events of the run against what was before.
func (g *guard) note(e *record.Event) {
	switch e.Kind {
	case record.EventState:
		g.watch(e.View)
	case record.EventPower:
		g.power(e.At, int(e.Worker), e.Power)
	case record.EventEnded:
		g.ended(e.Request)
	}
}

func (g *guard) power(at tick.Ticks, worker int, p record.Power) {
	allowed := map[record.Power][]record.Power{record.On: {record.Draining}, record.Draining: {record.On, record.Off},
		record.Off: {record.Starting}, record.Starting: {record.On, record.Off}}
	if !slices.Contains(allowed[g.state[worker]], p) {
		g.t.Fatalf("worker %d: from state %d to %d", worker, g.state[worker], p)
	}
	g.moves[[2]record.Power{g.state[worker], p}]++
	g.state[worker] = p
	if p == record.Draining {
		g.had[worker] = g.s.workers[worker].requests
	}
	switch {
	case p == record.Starting:
		g.open[worker] = len(g.spans)
		g.spans, g.owner = append(g.spans, [2]tick.Ticks{at, -1}), append(g.owner, worker)
	case p == record.Off:
		g.spans[g.open[worker]][1] = at
		g.open[worker] = -1
	}
	n := 0
	for _, p := range g.state {
		if p == record.On || p == record.Starting {
			n++
		}
	}
	if n < g.s.cfg.Elastic.Min || n > len(g.state) {
		g.t.Fatalf("%d workers at %v s, expected %d to %d", n, at.Seconds(), g.s.cfg.Elastic.Min, len(g.state))
	}
}

// watch: who is off has nothing, and says so; who drains gets no more.
func (g *guard) watch(v *router.View) {
	for i := range v.Workers {
		w, p := &v.Workers[i], g.state[i]
		if (p == record.Off || p == record.Starting) && (w.Up || w.Load() != 0 || w.KVUsed != 0 || w.SlotsUsed > 0) ||
			w.Draining != (p != record.On) {
			g.t.Fatalf("worker %d in state %d: %+v", i, p, w)
		}
		if n := g.s.workers[i].requests; p == record.Draining {
			if n > g.had[i] {
				g.t.Fatalf("worker %d drains, and has %d requests after %d", i, n, g.had[i])
			}
			g.had[i] = n
		}
	}
}

// Whatever the policy, the limits and the scaler, every request ends once, nothing
// goes to a worker that is not on, who leaves has finished, and the time that
// workers cost is that between their starts and their ends.
func TestElasticLosesNothing(t *testing.T) {
	for _, d := range router.List() {
		t.Run(d.Name, func(t *testing.T) {
			spec := d.Name
			if spec == "script" { // has no default
				spec = "script:file=../scenarios/policies/least-loaded.star"
			}
			rapid.Check(t, func(t *rapid.T) { checkElastic(t, spec) })
		})
	}
}

// scalers draws what decides on the size of a cluster, and the source to give it.
func genScaler(t *rapid.T, e *Elastic, n int, src trace.Source) trace.Source {
	e.Every = rapid.SampledFrom([]float64{0.003, 0.05, 0.7, 2}).Draw(t, "every")
	if rapid.Bool().Draw(t, "whim") {
		e.Scaler = whim{rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)), n}
		return src
	}
	var need autoscale.Need = autoscale.Reactive{Target: rapid.SampledFrom([]float64{0.5, 1, 4}).Draw(t, "target")}
	c := autoscale.Capacity{Target: 2, PerWorker: rapid.SampledFrom([]float64{0, 3}).Draw(t, "capacity")}
	switch rapid.IntRange(0, 3).Draw(t, "need") {
	case 0:
		need = &autoscale.Forecast{Capacity: c, Holt: autoscale.Holt{Alpha: 0.5, Beta: 0.2, Gamma: 0.3, Period: 3},
			Every: e.Every, ColdStart: e.ColdStart}
	case 1:
		ahead := &autoscale.Ahead{Source: src, Every: tick.FromSeconds(e.Every)}
		need, src = &autoscale.Known{Capacity: c, Arrivals: ahead, Every: e.Every, ColdStart: e.ColdStart}, ahead
	}
	e.Scaler = &autoscale.Autoscaler{Need: need, Tolerance: rapid.SampledFrom([]float64{0, 0.1, 0.6}).Draw(t,
		"tolerance"),
		Stabilize: rapid.SampledFrom([]float64{0, 0.2, 5}).Draw(t, "stabilize")}
	return src
}

// onlooker writes down what a scaler sees and says, and how the workers were then.
type onlooker struct {
	autoscale.Scaler
	g     *guard
	looks []autoscale.Look
	asked []int
	state [][]record.Power
}

func (o *onlooker) Want(l autoscale.Look) int {
	n := o.Scaler.Want(l)
	o.looks, o.asked, o.state = append(o.looks, l), append(o.asked, n), append(o.state, slices.Clone(o.g.state))
	return n
}

// check recomputes every look from the records of the requests, and what
// Kubernetes' rule says by the numbers of workers that were needed. Where requests
// change workers the records do not say who had them.
func (o *onlooker) check(l *ledger, overhead tick.Ticks, settled bool) {
	t, before, arrived := o.g.t, tick.Ticks(-1), int64(0)
	for i, k := range o.looks {
		now := tick.FromSeconds(k.Now)
		if want := tick.FromSeconds(o.g.s.cfg.Elastic.Every) * tick.Ticks(i+1); now != want {
			t.Fatalf("look %d at %v s, expected %v", i, k.Now, want.Seconds())
		}
		want := autoscale.Look{Now: k.Now, InFlight: k.InFlight}
		for _, p := range o.state[i] {
			if p == record.On || p == record.Starting {
				want.Workers++
			}
		}
		none := !slices.Contains(o.state[i], record.On)
		late, there, sum := 0, 0, tick.Ticks(0) // late: what happened at this instant, before the look or after it
		arrived += k.Arrived
		for _, r := range l.recs {
			sent, end := tick.FromSeconds(r.Sent), tick.FromSeconds(r.Finish)-overhead
			if sent < now {
				want.Arrived++
			} else if sent == now {
				late++
			}
			if r.Status == record.OK && before < end && end <= now {
				want.Ended++
				sum += end + overhead - sent
			}
			at := record.Draining
			if r.WorkerLast >= 0 {
				at = o.state[i][r.WorkerLast]
			}
			switch {
			case sent > now || now > end && (r.WorkerLast >= 0 || now > end+overhead):
			case at == record.On, none && at != record.Draining: // or it waits for one to be on
				if there++; sent == now || end == now {
					late++
				}
			case none: // it may wait, too, for this one to be taken back, or to be rejected
				there++
				late++
			}
		}
		if arrived < want.Arrived || arrived > want.Arrived+int64(late) {
			t.Fatalf("look %d: %d requests have come, the records say %d and %d", i, arrived, want.Arrived, late)
		}
		if settled && (k.InFlight > there || k.InFlight < there-late) {
			t.Fatalf("look %d: %d requests in flight, the records say %d, %d of them maybe later", i, k.InFlight, there,
				late)
		}
		want.Arrived = k.Arrived
		if want.Ended > 0 {
			want.Response = sum.Seconds() / float64(want.Ended)
		}
		if math.Abs(k.Response-want.Response) < 1e-9 {
			want.Response = k.Response
		}
		if k != want {
			t.Fatalf("look %d: %+v, the records say %+v", i, k, want)
		}
		before = now
	}
	a, ok := o.Scaler.(*autoscale.Autoscaler)
	if !ok {
		return
	}
	if r, ok := a.Need.(autoscale.Reactive); ok {
		var need []float64
		for _, k := range o.looks {
			need = append(need, float64(k.InFlight)/r.Target)
		}
		lo, hi := o.g.s.cfg.Elastic.Min, len(o.g.state)
		for i, want := range kubernetes(a, o.looks, need) {
			if want = min(max(want, lo), hi); min(max(o.asked[i], lo), hi) != want || i+1 < len(need) &&
				o.looks[i+1].Workers != want {
				t.Fatalf("look %d of %+v: %d workers, Kubernetes' rule says %d", i, o.looks, o.asked[i], want)
			}
		}
	}
}

// kubernetes is how many workers there are to be after each look, by kubernetes.io,
// "Horizontal Pod Autoscaling": ceil(current x ratio) unless the ratio is within the
// tolerance; the windows and policies are those of "Default behavior".
func kubernetes(a *autoscale.Autoscaler, looks []autoscale.Look, need []float64) (all []int) {
	desired := make([]int, len(need))
	for i, k := range looks {
		ratio := need[i] / float64(k.Workers)
		if desired[i] = k.Workers; ratio < 1-a.Tolerance || ratio > 1+a.Tolerance { // as Tolerances.isWithin rounds
			desired[i] = int(math.Ceil(need[i]))
		}
		want := desired[i]
		keep := func(at float64, n int) {
			if at > k.Now-a.Stabilize { // as much of what there is as was once needed
				want = max(want, min(n, k.Workers))
			}
		}
		keep(0, looks[0].Workers)
		from := k.Workers
		for j := i; j >= 0; j-- {
			keep(looks[j].Now, desired[j])
			if looks[j].Now > k.Now-15 {
				from = looks[j].Workers
			}
		}
		all = append(all, min(want, max(2*from, from+4, k.Workers))) // 100 % or 4 pods in 15 s
	}
	return all
}

// wants is a need that is given.
type wants []float64

func (w *wants) Need(autoscale.Look) float64 {
	n := (*w)[0]
	*w = (*w)[1:]
	return n
}

// Against Kubernetes' rule as it is published, whatever is needed.
func TestAutoscalerIsKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &autoscale.Autoscaler{Tolerance: rapid.SampledFrom([]float64{0, 0.1, 0.5}).Draw(t, "tolerance"),
			Stabilize: rapid.SampledFrom([]float64{0, 7, 60, 300}).Draw(t, "stabilize")}
		every, n := rapid.SampledFrom([]float64{1, 5, 7, 15, 40}).Draw(t, "every"),
			rapid.IntRange(1, 40).Draw(t, "workers")
		need := rapid.SliceOfN(rapid.Float64Range(0, 200), 1, 40).Draw(t, "need")
		given := wants(need)
		a.Need = &given
		var looks []autoscale.Look
		for i := range need {
			looks = append(looks, autoscale.Look{Now: every * float64(i+1), Workers: n})
			got := a.Want(looks[i])
			if want := kubernetes(a, looks, need[:i+1])[i]; got != want {
				t.Fatalf("look %d of %+v, needs %v: %d workers, Kubernetes' rule says %d", i, looks, need, got, want)
			}
			n = max(got, 1)
		}
	})
}

func checkElastic(t *rapid.T, policy string) {
	p := genProfile(t)
	p.Memory.KVBytesPerToken = 100_000
	wl, costs := genWorkload(t), p.Compile()
	if p.Engine.PrefixCache {
		genTexts(t, wl)
	}
	n := rapid.IntRange(2, 5).Draw(t, "workers")
	mode := rapid.SampledFrom(router.Movings()).Draw(t, "mode")
	if policy == "explicit" {
		policy += ":map=0@1,rest@all"
	}
	env := router.Env{Adapters: wl.Adapters, Seed: 1, Moving: mode,
		Interval: rapid.SampledFrom([]float64{0.01, 0.3}).Draw(t, "interval"),
		Workers: router.Alike(n, router.Spec{Cost: profile.Model{Costs: costs}, MaxRunning: p.Engine.MaxRunningRequests,
			Slots:     p.Engine.MaxLorasPerBatch,
			HostSlots: p.Engine.HostLoras(), KVBytes: 100_000, PageSize: p.Engine.PageSize,
			AdapterBytes: make([]float64, len(wl.Adapters)), Memory: 1e9})}
	rt, err := router.New(policy, env)
	if err != nil {
		t.Fatal(err)
	}
	e, src := genElastic(t, n), wl.Source()
	g := &guard{Policy: rt.Policy, t: t, state: make([]record.Power, n), open: make([]int, n), had: make([]int, n),
		moves: map[[2]record.Power]int64{}}
	look := &onlooker{g: g}
	if rapid.Bool().Draw(t, "scaler") {
		e.Times = nil
		src = genScaler(t, e, n, src)
		look.Scaler, e.Scaler = e.Scaler, look
	}
	for i := range n {
		if g.open[i] = -1; i >= e.Initial {
			g.state[i] = record.Off
			continue
		}
		g.open[i], g.spans, g.owner = len(g.spans), append(g.spans, [2]tick.Ticks{0, -1}), append(g.owner, i)
	}
	rt.Policy = g
	if g.shed = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "shed"); g.shed > 0 {
		if err = admission.Add(rt, admission.Shedding{Queue: g.shed}, admission.RateLimit{}, env, nil); err != nil {
			t.Fatal(err)
		}
	}
	l := newLedger()
	cfg := Config{Source: src, Workers: slices.Repeat([]*profile.Costs{costs}, n), Router: rt, Observer: l,
		Watchers:   []record.Watcher{{Kinds: record.EventState | record.EventPower | record.EventEnded, Note: g.note}},
		TokenTimes: true,
		MoveMode:   mode, Home: router.Disk, Elastic: e,
		Staleness:      rapid.SampledFrom([]float64{0, 0, 0.1, 10}).Draw(t, "staleness"),
		LoadFailures:   rapid.SampledFrom([]float64{0, 0, 0.3}).Draw(t, "load_failures"),
		MaxConcurrency: rapid.SampledFrom([]int{0, 0, 1, 6}).Draw(t, "concurrency"),
		FailAbove:      rapid.SampledFrom([]int{0, 0, 0, 10}).Draw(t, "fail_above"),
		NoFailover:     rapid.Bool().Draw(t, "no_failover"),
		WarmUp:         rapid.Bool().Draw(t, "warm_up"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "outages") {
		from := rapid.SampledFrom([]float64{0, 0.05, 0.2, 1}).Draw(t, "from")
		cfg.Outages = append(cfg.Outages, Outage{rapid.IntRange(0, n-1).Draw(t, "down"), from,
			from + rapid.SampledFrom([]float64{0.01, 0.5}).Draw(t, "for")})
	}
	s := checked(t, cfg)
	g.s = s
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // a run that does not end is a fault
	defer cancel()
	if err := s.run(ctx); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, s)
	if len(l.twice) > 0 || len(l.recs) != len(wl.Requests) {
		t.Fatalf("requests %v ended twice, %d of %d once", l.twice, len(l.recs), len(wl.Requests))
	}
	st := s.stats()
	checkInvariants(t, wl, l, st, p)
	g.check(st)
	g.checkServed(l, costs.Overhead)
	settled := cfg.LoadFailures == 0 && len(cfg.Outages) == 0
	for _, r := range l.recs {
		settled = settled && r.Migrations == 0
	}
	look.check(l, costs.Overhead, settled)
}

// Done: load is shed where every worker that takes requests has so many waiting,
// and only there.
func (g *guard) ended(r *record.Request) {
	if strings.HasPrefix(r.Error, "shed") && g.s.stale == nil && g.shortest() < g.shed {
		g.t.Fatalf("request %d is shed where %d wait, limit %d", r.ID, g.shortest(), g.shed)
	}
}

// isNew says whether a request was nowhere yet, and did not wait for a worker; false where the router sees what was.
func (g *guard) isNew(id int64) bool {
	return g.s.stale == nil && slices.ContainsFunc(g.s.reqs, func(r *request) bool {
		return r.ID == id && r.workerFirst < 0 && r.State() != engine.Transit
	})
}

// shortest is the length of the shortest queue.
func (g *guard) shortest() int {
	n := math.MaxInt
	for i := range g.s.view.Workers {
		if w := &g.s.view.Workers[i]; w.Usable() {
			n = min(n, w.Queued)
		}
	}
	return n
}

// checkServed: a worker serves only while it costs GPU time, and is not down.
func (g *guard) checkServed(l *ledger, overhead tick.Ticks) {
	for _, r := range l.recs {
		if r.Status != record.OK {
			continue
		}
		end, there := tick.FromSeconds(r.Finish)-overhead, false
		for i, x := range g.spans {
			there = there || g.owner[i] == int(r.WorkerLast) && x[0] < end && end <= x[1]
		}
		for _, o := range g.s.cfg.Outages {
			there = there && (o.Worker != int(r.WorkerLast) || end <= tick.FromSeconds(o.From) ||
				end > tick.FromSeconds(o.To))
		}
		if !there {
			g.t.Fatalf("request %d ended at %v s on worker %d, which was not on: %v of %v", r.ID, end.Seconds(),
				r.WorkerLast, g.spans, g.owner)
		}
	}
}

// check holds a run's counts against the spans.
func (g *guard) check(st *Stats) {
	on := make([]tick.Ticks, len(g.state))
	times := []tick.Ticks{0, st.End}
	for i, x := range g.spans {
		if x[1] < 0 {
			x[1] = st.End
		}
		g.spans[i] = x
		on[g.owner[i]] += x[1] - x[0]
		times = append(times, x[0], x[1])
	}
	var sum tick.Ticks
	for i, w := range st.Workers {
		if sum += on[i]; w.On != on[i] {
			g.t.Fatalf("worker %d was on for %v s, its log says %v", i, w.On.Seconds(), on[i].Seconds())
		}
	}
	slices.Sort(times)
	least, most := math.MaxInt, 0
	changes, n := map[tick.Ticks]int{}, 0
	for _, x := range g.spans {
		changes[x[0]]++
		changes[x[1]]--
	}
	for i := range times[1:] {
		n += changes[times[i]]
		delete(changes, times[i]) // once for all that is at this time
		if from, to := times[i], times[i+1]; from < to {
			least, most = min(least, n), max(most, n)
		}
	}
	if i := slices.Index(g.state, record.Draining); i >= 0 {
		g.t.Fatalf("worker %d drains when all is done", i)
	}
	e := st.Elastic
	moves := func(from, to record.Power) int64 { return g.moves[[2]record.Power{from, to}] }
	if a, b := [4]int64{e.Started, e.CalledOff, e.Left, e.TakenBack}, [4]int64{moves(record.Off, record.Starting),
		moves(record.Starting, record.Off), moves(record.On, record.Draining),
		moves(record.Draining, record.On)}; a != b {
		g.t.Fatalf("%+v, the log has %v", e, b)
	}
	if st.End > 0 && (e.Least != least || e.Most != most || math.Abs(e.Mean-float64(sum)/float64(st.End)) > 1e-9) {
		g.t.Fatalf("%+v, expected %d to %d workers, mean %v", e, least, most, float64(sum)/float64(st.End))
	}
}
