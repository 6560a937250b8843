package router

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"lorasim/trace"
)

// latencies is a twin of which the mean latency of each policy is set. Latencies of requests go around their mean
// by a share, a block of requests at a time, otherwise for each policy.
type latencies struct {
	mean      map[string]float64 // by spec; 0: 1 s
	noise     float64
	simulated int
	seen      func(f *Future)
}

func (l *latencies) Simulate(rt *Router, f *Future) (*Outcome, error) {
	if l.seen != nil {
		l.seen(f)
	}
	n := f.Counted()
	l.simulated += n + len(f.State.InFlight)
	mean := l.mean[rt.Name]
	if mean == 0 {
		mean = 1
	}
	rng := rand.New(rand.NewPCG(uint64(len(rt.Name)), 1))
	o, block := &Outcome{Sent: n}, 0.0
	for i := range n {
		if i%(n/blocks) == 0 {
			block = 1 + l.noise*(2*rng.Float64()-1)
		}
		o.E2E = append(o.E2E, float32(mean*block))
		o.TTFT = append(o.TTFT, float32(mean*block/10))
	}
	return o, nil
}

// drive routes n requests, 20 a second, each of which takes a second, and carries out all plans. It returns the races
// and the workers of the requests.
func drive(t *testing.T, p *auto, n int) (races []*Race, workers []int) {
	t.Helper()
	env := testEnv(3, 4)
	v := testView(env)
	tick := 1
	for i := range int64(n) {
		at := float64(i) / 20
		for ; float64(tick)*autoTick <= at; tick++ {
			v.Now = float64(tick) * autoTick
			s := &PlannerInput{View: v}
			p.Select(v)
			if plan := p.Begin(s).Now(); plan != nil {
				if plan.Race != nil {
					races = append(races, plan.Race)
				}
				p.Applied(plan, nil)
			}
		}
		v.Now = at
		w := p.Route(Request{ID: i, Adapter: int32(i % 4), Prompt: int32(100 + i%7), MaxNew: 500, Expected: 100}, v)
		workers = append(workers, w)
		if i >= 20 {
			p.Finished(Finished{ID: i - 20, Adapter: int32((i - 20) % 4), Worker: int32(workers[i-20]),
				Output: int32(80 + i%5),
				Exec:   1, E2E: 1, TTFT: 0.1, Now: at})
		}
	}
	return races, workers
}

func newTestAuto(t *testing.T, spec string, twin Twin) *auto {
	t.Helper()
	env := testEnv(3, 4)
	env.Twin = twin
	return mustNew(t, spec, env).Policy.(*auto)
}

func TestAutoTiesKeepTheIncumbent(t *testing.T) {
	p := newTestAuto(t, "auto", &latencies{})
	races, _ := drive(t, p, 1000)
	if len(races) < 4 {
		t.Fatalf("%d races", len(races))
	}
	for _, r := range races {
		if r.Chosen != "plan-and-route" {
			t.Errorf("race at %v s: %s, though all are alike", r.At, r.Chosen)
		}
	}
}

func TestAutoChangesForAClearGain(t *testing.T) {
	p := newTestAuto(t, "auto", &latencies{mean: map[string]float64{"static": 0.7}, noise: 0.02})
	races, workers := drive(t, p, 400)
	const why = "change from plan-and-route to static"
	if r := races[0]; r.Chosen != "static" || r.Requests < firstEnded || r.Requests > 2*firstEnded ||
		!strings.Contains(r.reason(), why) {
		t.Fatalf("the first race, after %d requests, chose %s: %s", r.Requests, r.Chosen, r.reason())
	}
	if at := p.candidates[p.incumbent].spec; at != "static" {
		t.Errorf("the incumbent is %s", at)
	}
	for i, w := range workers[200:] {
		if want := (200 + i) % 4 % 3; w != want {
			t.Fatalf("request %d goes to worker %d, static sends it to %d", 200+i, w, want)
		}
	}
}

// A gain that may be an error of the twin must be seen in several races.
func TestAutoWantsASmallGainAgain(t *testing.T) {
	p := newTestAuto(t, "auto", &latencies{mean: map[string]float64{"static": 0.9}})
	races, _ := drive(t, p, 4000)
	at := slices.IndexFunc(races, func(r *Race) bool { return r.Chosen == "static" })
	if at < 2 || at > 8 {
		t.Errorf("race %d of %d changes to static, expected one of 2 to 8", at, len(races))
	}
	for k := 1; k <= at; k++ {
		if a, b := races[k-1].Candidates[2], races[k].Candidates[2]; a.Policy != "static" || b.Belief <= a.Belief {
			t.Errorf("race %d: the belief in %s falls from %v to %v", k, a.Policy, a.Belief, b.Belief)
		}
	}
}

// A gain of one race counts up to a bound, and beliefs follow the state of a Kalman filter.
func TestBelief(t *testing.T) {
	b := belief{priorMean, priorGain * priorGain}
	b.learn(5, 0)
	k := priorGain * priorGain / (priorGain*priorGain + twinError*twinError)
	if want := priorMean + k*(mostGain-priorMean); math.Abs(b.mean-want) > 1e-12 {
		t.Errorf("believed gain %v after a gain of 5, expected %v", b.mean, want)
	}
	if want := (1 - k) * priorGain * priorGain; math.Abs(b.variance-want) > 1e-12 {
		t.Errorf("variance %v, expected %v", b.variance, want)
	}
	for range 100 {
		b.forget(1)
	}
	if b.variance != priorGain*priorGain {
		t.Errorf("variance %v, expected at most that of the prior", b.variance)
	}
	for range 200 {
		b.forget(gainDrift)
		b.learn(0.1, 0)
	}
	if math.Abs(b.mean-0.1) > 1e-3 {
		t.Errorf("believed gain %v after many gains of 0.1", b.mean)
	}
}

// A gain that changes its sign from block to block is no reason to change.
func TestAutoIgnoresWhatMayBeChance(t *testing.T) {
	p := newTestAuto(t, "auto", &latencies{mean: map[string]float64{"static": 0.97}, noise: 0.5})
	races, _ := drive(t, p, 600)
	for _, r := range races {
		for _, c := range r.Candidates {
			if c.Policy == r.Chosen && r.Chosen != r.Incumbent && c.Belief <= 0 {
				t.Errorf("change to %s for %v, standard error %v", c.Policy, c.Gain, c.Error)
			}
			if c.Policy == "static" && c.Error == 0 {
				t.Error("no error of a noisy gain")
			}
		}
	}
}

func TestAutoMargin(t *testing.T) {
	for _, c := range []struct {
		margin, want string
	}{{"0.01", "static"}, {"0.6", "plan-and-route"}} {
		p := newTestAuto(t, "auto:margin="+c.margin, &latencies{mean: map[string]float64{"static": 0.8}})
		if drive(t, p, 300); p.candidates[p.incumbent].spec != c.want {
			t.Errorf("margin %s: %s, want %s", c.margin, p.candidates[p.incumbent].spec, c.want)
		}
	}
}

func TestAutoKeepsItsBudget(t *testing.T) {
	for _, budget := range []float64{0, 2, 20} {
		twin := &latencies{}
		p := newTestAuto(t, "auto:every=64", twin)
		p.budget = budget
		const n, largest = 3000, 10_000 // one race may go beyond what it was taken to cost
		races, _ := drive(t, p, n)
		if most := firstCredit + budget*n + largest; float64(twin.simulated) > most || len(races) == 0 {
			t.Errorf("budget %v: %d requests simulated, at most %v, in %d races", budget, twin.simulated, most,
				len(races))
		}
	}
}

func TestAutoMemoryIsBounded(t *testing.T) {
	p := newTestAuto(t, "auto:window=100,every=32", &latencies{seen: func(f *Future) {
		if len(f.Requests) > mostFuture || len(f.State.Kept) > 100 {
			t.Errorf("a future of %d requests, %d kept prompts", len(f.Requests), len(f.State.Kept))
		}
	}})
	drive(t, p, 5000)
	if len(p.window.byID) != 100 || len(p.window.ring) != 100 {
		t.Errorf("%d and %d requests remembered, want 100", len(p.window.byID), len(p.window.ring))
	}
}

func TestAutoIsDeterministic(t *testing.T) {
	run := func() string {
		twin := &latencies{mean: map[string]float64{"static": 0.9}, noise: 0.3}
		races, workers := drive(t, newTestAuto(t, "auto", twin), 700)
		text, err := json.Marshal(map[string]any{"races": races, "workers": workers})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if a, b := run(), run(); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

func TestAutoOptions(t *testing.T) {
	env := testEnv(3, 4)
	for spec, want := range map[string]string{
		"auto:candidates=static+nothing":    `unknown policy "nothing"`,
		"auto:candidates=static+any-worker": "changes what workers do",
		"auto:objective=goodput":            "one of max-ttft, max-tpot and max-e2e",
		"auto:profile-error=120%":           "a percentage from 0% to below 100%",
		"auto:candidates=auto":              "needs a twin",
	} {
		if _, err := New(spec, env); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", spec, err, want)
		}
	}
	env.Twin = nil
	if _, err := New("auto", env); err == nil {
		t.Error("no error without a twin")
	}
}

func TestObjective(t *testing.T) {
	f := &Future{Requests: make([]trace.Request, 200)}
	o := &Outcome{E2E: make([]float32, 200), TTFT: make([]float32, 200)}
	for i := range o.E2E {
		f.Requests[i].Output = 11
		o.E2E[i], o.TTFT[i] = 2, 1
	}
	o.TTFT[5], o.TTFT[6], o.TTFT[7] = 9, 8, 7 // the third largest of 200 is the 99th percentile
	o.E2E[9] = float32(math.NaN())            // counts as 4 s
	value := func(b objective) scores { return b.scores(o, f) }
	for _, c := range []struct {
		name string
		b    objective
		want float64
	}{
		{"e2e", objective{e2e: 1}, math.Log((199*2 + 4) / 200.0)},
		{"ttft", objective{ttft: 0.5}, 0.5 * math.Log((196*1+9+8+7.0+4)/200)},
		{"p99", objective{p99: 1}, math.Log(7)},
		{"deadline", objective{missed: 1, maxTTFT: 7.5}, 3.0 / 200},
		{"tpot", objective{missed: 1, maxTPOT: 0.05}, 197.0 / 200}, // but for those with a long TTFT
	} {
		if s := value(c.b); math.Abs(s.all-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.name, s.all, c.want)
		}
	}
	// without the first of ten blocks the longest TTFT is that of the request that failed
	s := value(objective{p99: 1})
	if want := math.Log(1); math.Abs(s.without[0]-want) > 1e-6 {
		t.Errorf("without the first block %v, want %v", s.without[0], want)
	}
	// the jackknife of a mean is its standard error: blocks of means 1 ... 10
	var a, b scores
	for i := range a.without {
		a.without[i] = (55 - float64(i+1)) / 9
	}
	a.all = 5.5
	if diff, se := a.minus(&b); math.Abs(diff-5.5) > 1e-9 || math.Abs(se-math.Sqrt(82.5/9/10)) > 1e-9 {
		t.Errorf("difference %v, standard error %v", diff, se)
	}
}

// Outputs that are drawn are those of requests that ended, longer than what the request has already.
func TestDrawnOutputs(t *testing.T) {
	w := newWindow(100)
	for i := range int64(60) {
		w.sent(&Request{ID: i, Adapter: int32(i % 2), Prompt: 10, MaxNew: 400}, 0, float64(i))
		switch {
		case i < 40:
			w.get(i).output = int32(100 + 100*(i%2)) // adapter 0: 100, adapter 1: 200
		case i < 50:
			w.get(i).generated = 150
		}
	}
	o := w.outputs(0, rand.New(rand.NewPCG(1, 2)))
	for _, c := range []struct {
		s         seen
		low, high int32
	}{
		{seen{adapter: 0, output: 7}, 7, 7},
		{seen{adapter: 0, maxNew: 400}, 100, 301}, // 301: beyond the 150 of those that have not ended none has
		{seen{adapter: 1, maxNew: 400}, 200, 200},
		{seen{adapter: 1, maxNew: 400, generated: 150}, 200, 200},
		{seen{adapter: 1, maxNew: 120}, 120, 120},
		{seen{adapter: 5, maxNew: 400}, 100, 301},
		{seen{adapter: 1, maxNew: 400, generated: 300}, 400, 400},
	} {
		for range 50 {
			if n := o.draw(&c.s); n < c.low || n > c.high {
				t.Errorf("%+v: %d tokens, want %d to %d", c.s, n, c.low, c.high)
			}
		}
	}
}

// An adapter that was asked for once stands for all that nobody asked for.
func TestExtensionHasNewAdapters(t *testing.T) {
	w := newWindow(100)
	for i := range int64(50) {
		k := int32(0)
		if i%5 == 0 {
			k = int32(1 + i/5) // 1 to 10, once each
		}
		w.sent(&Request{ID: i, Adapter: k, Prompt: 10}, 0, float64(i))
	}
	e := w.extension(0, 100, rand.New(rand.NewPCG(1, 2)))
	count := map[int32]int{}
	const n = 5000
	for range n {
		e.next()
		count[e.adapter]++
		if e.gap != 1 && e.gap < 0.9 {
			t.Fatalf("a gap of %v s, want about 1", e.gap)
		}
	}
	if share := float64(count[0]) / n; math.Abs(share-0.8) > 0.05 {
		t.Errorf("adapter 0 has %v of the requests, want 0.8", share)
	}
	if len(count) != 100 {
		t.Errorf("%d adapters, want all 100", len(count))
	}
}

// Other adapters are noticed, and chance is not, whether their shares are even or not.
func TestDriftOfAdapters(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, then func(rng *rand.Rand) int32
		changes      bool
	}{
		{"even", func(r *rand.Rand) int32 { return r.Int32N(8) }, nil, false},
		{"many", func(r *rand.Rand) int32 { return int32(r.ExpFloat64() * 50) }, nil, false},
		{"half of them", func(r *rand.Rand) int32 { return r.Int32N(8) },
			func(r *rand.Rand) int32 { return 2 * r.Int32N(4) }, true},
		{"others are popular", func(r *rand.Rand) int32 { return int32(r.ExpFloat64() * 5) },
			func(r *rand.Rand) int32 { return 50 - int32(min(r.ExpFloat64()*5, 50)) }, true},
	} {
		rng, noticed := rand.New(rand.NewPCG(5, 6)), 0
		var d drift
		for i := range 8000 {
			draw := c.before
			if i >= 4000 && c.then != nil {
				draw = c.then
			}
			if _, mix := d.arrived(&Request{Adapter: draw(rng), Prompt: 100}, float64(i)); mix {
				noticed++
				if i < 4000 || i > 6000 && noticed == 1 {
					t.Errorf("%s: a change noticed at request %d", c.name, i)
				}
			}
		}
		if (noticed > 0) != c.changes {
			t.Errorf("%s: %d changes noticed", c.name, noticed)
		}
	}
}

// A measured latency far from the prediction, of enough requests, has all candidates race again.
func TestSurprises(t *testing.T) {
	for _, c := range []struct {
		requests        int64
		predicted, came float64
		want            bool
	}{{100, 1, 1.4, false}, {100, 1, 1.6, true}, {100, 1.6, 1, true}, {10, 1, 5, false}, {100, 0, 5, false}} {
		m := Measured{Requests: c.requests, PredictedE2E: c.predicted, E2E: c.came}
		if got := m.surprises(); got != c.want {
			t.Errorf("%+v: surprises is %v", c, got)
		}
	}
	p := newTestAuto(t, "auto", &latencies{})
	p.candidates[1].skip, p.candidates[1].behind = 4, 9
	p.candidates[1].belief = belief{-0.2, 0.001}
	p.reconsider()
	if c := p.candidates[1]; c.skip != 0 || c.behind != 0 || c.belief != (belief{-0.2, priorGain * priorGain}) {
		t.Errorf("reconsidered: %+v", c)
	}
}

// A doubled rate and longer prompts are noticed, and chance is not.
func TestDrift(t *testing.T) {
	for _, c := range []struct {
		name               string
		rate, prompt, late float64
		changes            bool
	}{{"the same", 1, 1, 1, false}, {"rate", 3, 1, 1, true}, {"prompts", 1, 3, 1, true}} {
		rng := rand.New(rand.NewPCG(3, 4))
		var d drift
		now, noticed := 0.0, 0
		for i := range 6000 {
			rate, prompt := 1.0, 1.0
			if i >= 3000 {
				rate, prompt = c.rate, c.prompt
			}
			now += rng.ExpFloat64() / rate
			inRate, inMix := d.arrived(&Request{Prompt: int32(100 * prompt * (1 + rng.ExpFloat64()))}, now)
			if inRate || inMix {
				noticed++
				if inMix != (c.prompt > 1) {
					t.Errorf("%s: a change of the mix is %v", c.name, inMix)
				}
				if i < 3000 {
					t.Errorf("%s: a change noticed at request %d", c.name, i)
				}
			}
		}
		if (noticed > 0) != c.changes {
			t.Errorf("%s: %d changes noticed", c.name, noticed)
		}
	}
}
