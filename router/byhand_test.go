package router

import (
	"context"
	"math"
	"slices"
	"testing"

	"lorasim/ilp"
	"lorasim/trace"
)

// The decisions of the planners, worked out by hand on workers whose costs are
// easy to add up.

// handCost: a decode step takes 1 s for each request and 1 ms for each KV token,
// a prefill 10 ms for each token, an adapter 1 s for each rank, a byte 1 s.
type handCost struct{}

func (handCost) DecodeStep(running, _ int, kvTokens int64, _ int) float64 {
	return float64(running) + float64(kvTokens)/1000
}
func (handCost) Prefill(tokens int64) float64         { return float64(tokens) / 100 }
func (handCost) AdapterLoad(rank int, _ Tier) float64 { return float64(rank) }
func (handCost) Copy(bytes float64) float64           { return bytes }

func handEnv(workers, adapters int) Env {
	return Env{Workers: Alike(workers, Spec{MaxRunning: 4, Slots: 2, Cost: handCost{}, KVBytes: 3, PageSize: 16}),
		Adapters: trace.Names(adapters, []int{8})}
}

func close2(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-9*math.Max(1, math.Abs(want)) {
		t.Errorf("%s is %v, expected %v", what, got, want)
	}
}

// Until anything has ended a request is taken to run for 5 s, and a second until the
// first token to be worth 30.
func TestPriceByHand(t *testing.T) {
	p := mustNew(t, "period_mig:spill=0", handEnv(1, 3)).Policy.(*planAndRoute)
	r := Request{Adapter: 2, Prompt: 100, Expected: 50, MaxNew: 400}
	onGPU := []AdapterState{{Running: 2}, {}, {Tier: GPU}}
	for _, c := range []struct {
		name      string
		k         int32
		prefilled float64
		w         Worker
		first     float64
		want      float64
	}{
		// first token: prefill 1, a step of 3.7; decoding: 50 steps of 3.7, 1 s for two
		// others, and 1.1 s more per step for them
		{"at hand", 2, -100, Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2, ActiveLoras: 1,
			Adapters: onGPU},
			1 + 3.7, 185 + 2 + 110},
		{"prompts before it", 2, 5, Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1, Adapters: onGPU},
			5 + 1 + 3.7, 185 + 2 + 110},
		// one has been waiting for longer than its prompt takes: half of 5 s over two
		{"one is stuck", 1, -100, Worker{Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 3, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []AdapterState{{Running: 2}, {Tier: GPU, Queued: 1}, {}}}, 1 + 3.7 + 1.25, 185 + 2 + 110},
		// a load of 8, as long again for the adapter that makes way
		{"a load", 2, -100, Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 3, SlotsUsed: 2,
			ActiveLoras: 1,
			Adapters:    []AdapterState{{Running: 2}, {Tier: GPU}, {Tier: Host}}}, 1 + 3.7 + 8, 185 + 2*9 + 110},
		{"a load that evicts", 2, -100, Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			SlotsUsed: 2, ActiveLoras: 1,
			Adapters: []AdapterState{{Running: 2}, {Tier: GPU}, {Tier: Host}}}, 1 + 3.7 + 8,
			30*8 + 2*8 + 185 + 2*9 + 110},
		// both slots in use, each for a busy period of e - 1 executions of 5 s: half of that until one is free
		{"a wait for a slot", 2, -100, Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			SlotsUsed: 2, ActiveLoras: 2,
			Adapters: []AdapterState{{Running: 1}, {Running: 1}, {Tier: GPU}}},
			1 + 3.7 + 5*(math.E-1)/2, 185 + 2 + 110},
		// of another adapter, too, and two requests of the first one: slots become free at these rates, two are needed
		{"a second one to wait for a slot", 2, -100, Worker{Running: 3, Queued: 1, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 1,
			Adapters: []AdapterState{{Running: 2}, {Running: 1}, {Tier: GPU}, {Queued: 1, Tier: GPU}}},
			1 + 4.7 + 5*2/(2/(math.E*math.E-1)+1/(math.E-1)), 50*4.7 + 3 + 50*3*1.1},
		// of the two that hold or will take the slots one is about to run
		{"slots that are about to be taken", 2, -100, Worker{Running: 1, Queued: 1, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []AdapterState{{Running: 1}, {Queued: 1, Tier: GPU}, {Tier: GPU}}},
			1 + 2.7 + 5./2 + 5*(math.E-1)/2, 50*2.7 + 1 + 50*1.1},
		// one that waits is as likely first as last of the two
		{"behind one of its own", 2, -100, Worker{Running: 2, Queued: 2, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 2,
			Adapters: []AdapterState{{Running: 1}, {Running: 1}, {Tier: GPU, Queued: 1}, {Queued: 1, Tier: GPU}}},
			1 + 3.7 + 1.5*5*(math.E-1)/2, 185 + 2 + 110},
		// those without a slot let others pass
		{"others wait for a slot", 0, -100, Worker{Running: 2, Queued: 3, QueuedToks: 300, KVUsed: 600,
			KVCapacity: 2000, MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 1,
			Adapters: []AdapterState{{Tier: GPU, Running: 1}, {Tier: GPU, Running: 1}, {Tier: Host, Queued: 3}}},
			1 + 3.7, 185 + 2 + 110},
		{"another brings the adapter", 2, -100, Worker{Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 600,
			KVCapacity: 2000, MaxRunning: 4, Slots: 3, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []AdapterState{{Running: 2}, {}, {Tier: Host, Queued: 1}}}, 1 + 3.7 + 1.25, 185 + 2 + 110},
		// one too many for the batch: 5/4
		{"full", 2, -100, Worker{Running: 4, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2, ActiveLoras: 1,
			Adapters: onGPU},
			1 + 4.7 + 1.25, 50*4.7 + 4},
		// 1600 + 100 + 400 for what it may generate: 100 more than there are, and those
		// that run have 800 each: one has to end
		{"no memory", 2, -100, Worker{Running: 2, KVUsed: 1600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1, Adapters: onGPU},
			1 + 4.7 + 2.5, 50*4.7 + 2 + 110},
		{"just enough memory", 2, -100, Worker{Running: 2, KVUsed: 1500, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1, Adapters: onGPU},
			1 + 4.6, 50*4.6 + 2 + 110},
		// an old report: three quarters of the tokens of its requests
		{"an old report", 2, -100, Worker{Running: 2, KVUsed: 0, Tokens: 800, Age: 1, KVCapacity: 2000, MaxRunning: 4,
			Slots: 2, ActiveLoras: 1, Adapters: onGPU},
			1 + 3.7, 185 + 2 + 110},
		{"the base model on an idle worker of unknown KV cache", -1, -100,
			Worker{MaxRunning: 4, Adapters: make([]AdapterState, 3)}, 1, 55},
	} {
		r.Adapter = c.k
		p.backlogs[0].prefilled = c.prefilled
		total, first := p.price(r, 0, &View{Workers: []Worker{c.w}})
		close2(t, c.name+", first token", first, c.first)
		close2(t, c.name, total, 30*c.first+c.want)
	}
	// requests take 10 s and their first tokens 2 s: 0.7 of that is what seconds weigh
	p.Note(Event{Kind: Finished, Exec: 10})
	p.first.add(2)
	total, first := p.price(Request{Adapter: -1, Prompt: 100, Expected: 50}, 0,
		&View{Workers: []Worker{{Running: 4, KVUsed: 600, MaxRunning: 4, Adapters: make([]AdapterState, 3)}}})
	close2(t, "wait behind requests of 10 s", first, 1+4.7+2.5)
	close2(t, "what seconds weigh", total, 3.5*first+50*4.7+4)
}

// What is on its way from a store comes one after the other, beside the steps.
func TestPeriodicFetches(t *testing.T) {
	env := handEnv(1, 3)
	env.Workers[0].Cost = twoTiers{}
	p := mustNew(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := testView(env)
	for k := range v.Workers[0].Adapters {
		v.Workers[0].Adapters[k].Tier = Disk
	}
	_, first := p.price(Request{Adapter: 0, Prompt: 100}, 0, v)
	close2(t, "the first", first, 20+1+1)
	p.Route(Request{Adapter: 0, Prompt: 100}, v)
	v.Now = 5
	_, first = p.price(Request{Adapter: 1, Prompt: 100}, 0, v)
	close2(t, "one after it", first, 15+20+1+1)
	v.Workers[0].Adapters[0].Queued = 1
	_, first = p.price(Request{Adapter: 0, Prompt: 100}, 0, v)
	close2(t, "one that is on its way", first, 15+1)
}

// A worker that fetches within its steps stops the requests that run, for the fetch as for the load.
func TestFetchesInSteps(t *testing.T) {
	env := handEnv(1, 3)
	env.Workers[0].Cost, env.Workers[0].FetchesInSteps = twoTiers{}, true
	p := mustNew(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := testView(env)
	w := &v.Workers[0]
	w.Running = 2
	r := Request{Adapter: 0, Prompt: 100, Expected: 50}
	price := func(tier Tier) (total, first float64) {
		w.Adapters[0].Tier = tier
		v.Index = NewIndex(1, 3)
		v.Index.Set(0, 0, w.Adapters[0])
		total, first = p.price(r, 0, v)
		p.bounds.begin(r, v)
		if low := p.bounds.price(p, r, 0, v); low > total {
			t.Errorf("from tier %d: the bound %v is above the price %v", tier, low, total)
		}
		return total, first
	}
	host, hostFirst := price(Host)
	for _, tier := range []Tier{Disk, Remote} {
		total, first := price(tier)
		close2(t, "the first token", first, hostFirst+20)
		close2(t, "the price", total, host+30*20+2*20)
	}
	p.Route(r, v)
	close2(t, "when its prompt will have been computed", p.backlogs[0].prefilled, 21+1)
}

// countingCost takes 10 s longer for each adapter in the batch.
type countingCost struct{ handCost }

func (c countingCost) DecodeStep(running, adapters int, kvTokens int64, maxRank int) float64 {
	return c.handCost.DecodeStep(running, adapters, kvTokens, maxRank) + 10*float64(adapters)
}

// An adapter that the batch has not yet makes all its steps longer.
func TestAdaptersOfTheBatch(t *testing.T) {
	env := handEnv(1, 4)
	env.Workers[0].Cost = countingCost{}
	p := mustNew(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	for _, c := range []struct {
		name                 string
		k                    int32
		queued               int32 // requests of adapter 2
		longer, longerBefore float64
	}{
		{"one that runs", 0, 0, 10, 10},
		{"another one", 1, 0, 20, 10},
		{"one that waits there", 2, 1, 20, 20},
		{"the base model", -1, 0, 10, 10},
	} {
		v := testView(env)
		w := &v.Workers[0]
		w.Slots, w.Running, w.ActiveLoras, w.Queued = 4, 2, 1, int(c.queued)
		for k := range w.Adapters {
			w.Adapters[k].Tier = GPU
		}
		w.Adapters[0].Running, w.Adapters[2].Queued = 2, c.queued
		r := Request{Adapter: c.k, Prompt: 100, Expected: 50}
		total, first := p.price(r, 0, v)
		close2(t, c.name+", first token", first, 1+3.1+c.longer)
		want := 50*(3.1+c.longer) + 2 + 100*(1.1+c.longer-c.longerBefore)
		close2(t, c.name, total, 30*first+want)
		p.bounds.begin(r, v)
		if low := p.bounds.price(p, r, 0, v); low > total {
			t.Errorf("%s: the bound %v is above the price %v", c.name, low, total)
		}
	}
}

// twoTiers loads in 1 s from host memory, in 21 s from elsewhere.
type twoTiers struct{ handCost }

func (twoTiers) AdapterLoad(_ int, from Tier) float64 {
	if from < Host {
		return 21
	}
	return 1
}

// Requests that wait although the prompts before them are computed show how much
// memory the engine really needs; that none wait with more takes it back.
func TestPeriodicLearnsRoom(t *testing.T) {
	p := mustNew(t, "period_mig", handEnv(1, 3)).Policy.(*planAndRoute)
	v := &View{Now: 50, Workers: []Worker{{Up: true, Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 1000,
		KVCapacity: 2000, MaxRunning: 4, Slots: 3,
		ActiveLoras: 1, Adapters: []AdapterState{{Running: 2}, {Tier: GPU}, {Tier: GPU}}}}}
	w, l := &v.Workers[0], &p.backlogs[0]
	r := Request{Adapter: 2, Prompt: 10, MaxNew: 400, Expected: 50}
	l.prefilled = 49.96
	p.sent(r, 0, v, r.Prompt)
	close2(t, "it may be a step", l.room(w), 2000)
	l.prefilled = 49.9
	p.sent(r, 0, v, r.Prompt)
	close2(t, "one waits with 1500", l.room(w), 1950)
	w.Running, l.prefilled = 4, 40
	p.sent(r, 0, v, r.Prompt)
	close2(t, "the batch is full", l.room(w), 1950)
	w.Running, w.Queued, w.QueuedToks, w.KVUsed = 2, 0, 0, 1560
	p.sent(r, 0, v, r.Prompt)
	close2(t, "none waits with 1960", l.room(w), 1960)
}

// A worker without the adapter must be better by the spill, a share of an execution.
func TestPeriodicSpill(t *testing.T) {
	env := handEnv(3, 3)
	for _, c := range []struct {
		spec    string
		running []int
		want    int
	}{
		// on the GPU everywhere: one request more costs a step, 30 s, and half as much beside
		{"period_mig:spill=0", []int{0, 0, 0}, 0},
		{"period_mig:spill=1", []int{0, 0, 0}, 1},
		{"period_mig:spill=1", []int{0, 1, 0}, 0},
		{"period_mig:spill=1000", []int{0, 1, 0}, 1},
		{"period_mig:spill=1000", []int{0, -1, 0}, 0},
		{"period_mig:spill=1000", []int{-1, -1, -1}, None},
	} {
		v := testView(env)
		setRunning(v, c.running...)
		for j := range v.Workers {
			v.Workers[j].Adapters[1].Tier = GPU
		}
		if got := mustNew(t, c.spec, env).Policy.Route(Request{Adapter: 1, Prompt: 100, Expected: 10},
			v).Worker; got != c.want {
			t.Errorf("%s with %v running: worker %d, expected %d", c.spec, c.running, got, c.want)
		}
	}
}

func TestSpeedsByHand(t *testing.T) {
	env := handEnv(3, 1)
	env.Workers[1].Cost = twice{}
	p := mustNew(t, "period_mig", env).Policy.(*planAndRoute)
	s := &PlannerInput{View: testView(env)}
	for j := range s.Workers {
		s.Workers[j].KVCapacity = 1000
	}
	s.Workers[0].Running, s.Workers[0].KVUsed = 2, 600
	s.Workers[2].Up, s.Workers[2].Running, s.Workers[2].KVUsed = false, 9, 9000
	// 300 tokens of context, but room for 250: a full batch of 4 takes 5 s
	speeds, unit := p.speeds(s)
	close2(t, "step", unit.step, 1.25)
	close2(t, "typical request", unit.request(guessPrompt, guessOutput), 2+250)
	for j, want := range []float64{1, 0.5, 1} {
		close2(t, "speed", speeds[j], want)
	}
	s.Workers[0].KVUsed = 400 // 200 tokens of context: 800 in a full batch
	_, unit = p.speeds(s)
	close2(t, "step", unit.step, 1.2)

	a := InFlight{Prompt: 300, Generated: 40, Expected: 100, MaxNew: 500}
	close2(t, "a waiting request", p.remaining(&a, unit), 3.4+60*1.2)
	close2(t, "moving it", p.moveCost(&a, unit), 0)
	a.Running = true
	close2(t, "a running request", p.remaining(&a, unit), 60*1.2)
	p.env.Moving = MoveRecompute
	close2(t, "computing its prompt again", p.moveCost(&a, unit), 3.4)
	p.env.Moving = MoveCopy
	close2(t, "copying its KV cache", p.moveCost(&a, unit), 340*3)
	for _, c := range []struct {
		moving                 Moving
		waiting, running, base bool
	}{{"", false, false, false}, {MoveNone, false, false, false}, {MoveQueued, true, false, false},
		{MoveRecompute, true, true, false}, {MoveCopy, true, true, false}} {
		p.env.Moving = c.moving
		if p.movable(&InFlight{}) != c.waiting || p.movable(&InFlight{Running: true}) != c.running ||
			p.movable(&InFlight{Adapter: -1}) != c.base || p.movable(&InFlight{Adapter: -1, Running: true}) != c.base {
			t.Errorf("moving %q: wrong requests may move", c.moving)
		}
	}
}

// twice takes twice as long as handCost.
type twice struct{ handCost }

func (twice) DecodeStep(running, adapters int, kvTokens int64, rank int) float64 {
	return 2 * handCost{}.DecodeStep(running, adapters, kvTokens, rank)
}
func (twice) Prefill(tokens int64) float64 { return 2 * handCost{}.Prefill(tokens) }

func TestForecast(t *testing.T) {
	p := mustNew(t, "rank-group", handEnv(2, 2)).Policy.(*rankGroup)
	rates := func(now float64, requests int, want float64) {
		t.Helper()
		for range requests {
			p.note(Request{Adapter: 1, Prompt: 10})
			p.note(Request{Adapter: -1, Prompt: 10})
		}
		p.forecast(now)
		close2(t, "rate of adapter 1", p.demand[1].rate, want)
		close2(t, "rate of adapter 0", p.demand[0].rate, 0)
	}
	rates(10, 40, 4)
	rates(10, 10, 4) // no time has passed: they count for the next
	rates(15, 0, 3)  // 10 in 5 s
	rates(25, 0, 1.5)
}

// A mean of up to 50 numbers; then each one weighs a fiftieth.
func TestMean(t *testing.T) {
	var m mean
	close2(t, "nothing", m.or(7), 7)
	for i := range 50 {
		m.add(float64(i))
	}
	close2(t, "mean of 0 to 49", m.or(7), 24.5)
	m.add(74.5)
	close2(t, "one more", m.value, 25.5)
}

func TestLeastLoadedHolder(t *testing.T) {
	env := handEnv(4, 4)
	p := mustNew(t, "rank-group", env).Policy.(*rankGroup)
	p.setPlacement([][]int32{{0}, {0, 1}, {1}, {0}})
	for _, c := range []struct {
		k       int32
		running []int
		want    int
	}{
		{0, []int{3, 2, 0, 2}, 1}, {0, []int{1, 2, 0, 1}, 0}, {0, []int{-1, -1, 5, 3}, 3}, {0, []int{-1, -1, 5, -1}, 2},
		{3, []int{2, 1, 1, 3}, 1}, {-1, []int{2, 1, 0, 3}, 2}, {1, []int{-1, -1, -1, -1}, None},
	} {
		v := testView(env)
		setRunning(v, c.running...)
		if got := p.leastLoadedHolder(Request{Adapter: c.k}, v); got != c.want {
			t.Errorf("adapter %d with %v running: worker %d, expected %d", c.k, c.running, got, c.want)
		}
	}
	if got := p.where[0]; !slices.Equal(got, []int32{0, 1, 3}) {
		t.Errorf("adapter 0 is on %v", got)
	}
}

// Free KV tokens for each request: of 1000, worker 0 has (1000-700-100)/(3+1) =
// 50, worker 1 (1000-200)/2 = 400.
func TestLlumnixByHand(t *testing.T) {
	env := handEnv(3, 1)
	p := mustNew(t, "llumnix:pause=10", env).Policy.(*llumnix)
	s := &PlannerInput{View: testView(env)}
	for j, w := range []Worker{{Running: 3, Queued: 1, KVUsed: 700, QueuedToks: 100}, {Running: 2, KVUsed: 200}, {}} {
		w.Up, w.KVCapacity, w.Adapters = j < 2, 1000, s.Workers[j].Adapters
		s.Workers[j] = w
	}
	close2(t, "freeness of worker 0", freeness(&s.Workers[0], 0, 0), 50)
	close2(t, "freeness of worker 1", freeness(&s.Workers[1], 0, 0), 400)
	close2(t, "freeness of an idle worker", freeness(&s.Workers[2], 0, 0), 1000)
	close2(t, "freeness with one more of 200 tokens", freeness(&s.Workers[1], 1, 200), 200)
	s.Requests = []InFlight{
		{ID: 1, Running: true, KV: 300}, {ID: 3, Running: true, KV: 200}, {ID: 2, Running: true, KV: 200},
		{ID: 4, KV: 10}, {ID: 5, Worker: 1, Running: true, KV: 100},
	}
	moved := func(want int64) {
		t.Helper()
		plan := p.Begin(s).Now()
		switch {
		case want == 0 && plan != nil:
			t.Errorf("plan %+v, expected none", plan)
		case want > 0 && (plan == nil || !slices.Equal(plan.Move, []Move{{want, 0, 1}})):
			t.Errorf("plan %+v, expected request %d to go from worker 0 to 1", plan, want)
		}
	}
	s.Now = 100
	moved(2) // of equals the first; request 4 does not run, 5 is elsewhere
	moved(3)
	moved(0) // with request 1 both would have 500/3
	s.Now = 109.9
	moved(0)
	s.Now = 110
	moved(2)
	if got := p.Route(Request{}, s.View).Worker; got != 1 {
		t.Errorf("a new request goes to worker %d, expected 1", got)
	}
}

// Six slots; demand 5, 3, 0 and 1 of 9: 3.33, 2, 0 and 0.67 of them.
func TestResizeByHand(t *testing.T) {
	p := mustNew(t, "min-cost-flow:cooldown=10", handEnv(3, 4)).Policy.(*minCost)
	for k, rate := range []float64{5, 3, 0, 1} {
		p.demand[k].rate = rate
	}
	resize := func(now float64, up int, slots float64, want ...int) {
		t.Helper()
		p.resize(now, up, slots)
		if !slices.Equal(p.replicas, want) {
			t.Errorf("replicas at %v are %v, expected %v", now, p.replicas, want)
		}
	}
	resize(1, 3, 6, 3, 2, 1, 1)
	p.demand[0].rate, p.demand[3].rate = 1, 5
	resize(10.9, 3, 6, 3, 2, 1, 3) // what changed at 1 stays for 10 s
	resize(11, 3, 6, 1, 2, 1, 3)   // 0.67, 2, 0, 3.33
	resize(30, 2, 6, 1, 2, 1, 2)   // two workers are up
	p.demand[1].rate, p.demand[0].rate = 0, 2
	resize(50, 3, 4, 1, 1, 1, 3) // 1.14, 0, 0, 2.86
	for k := range p.demand {
		p.demand[k].rate = 0
	}
	resize(90, 1, 6, 1, 1, 1, 3) // nothing is known: as it was
}

// dLoRA's greedy placement by hand. Workers of 10 bytes; the throughput of an
// adapter is the memory left beside it over its share of the requests.
func TestDLoRABottleneck(t *testing.T) {
	env := handEnv(2, 3)
	for j := range env.Workers {
		env.Workers[j].Memory, env.Workers[j].AdapterBytes = 10, []float64{1, 2, 5}
	}
	d := newDLoRA(env, false)
	place := func(held ...[]int32) { d.setPlacement(held) }
	d.arrived, d.total = []float64{2, 1, 1}, 4
	place([]int32{0, 1}, []int32{2})
	// adapter 0: (10-3)/0.5 = 14, 1: 7/0.25 = 28, 2: 5/0.25 = 20
	close2(t, "least throughput", d.bottleneck(), 14)
	place([]int32{0}, []int32{1, 2})
	close2(t, "least throughput", d.bottleneck(), 12) // 3/0.25, before 9/0.5
	env.Workers[1].Memory = 0                         // not stated: all workers alike
	close2(t, "least throughput", d.bottleneck(), 4)
	env.Workers[1].Memory = 10

	if k := d.shortest(3); k != 0 { // a third of the replicas for half of the requests
		t.Errorf("adapter %d is short of replicas, expected 0", k)
	}
	d.arrived = []float64{1, 1, 2}
	if k := d.shortest(3); k != 2 {
		t.Errorf("adapter %d is short of replicas, expected 2", k)
	}
	// Adapter 2 beside 0 would leave that 4 of 9 bytes, but itself get 4 more: 0
	// has 4/0.25 = 16 then, and before the worst was 2 with 3/0.5 = 6.
	if !d.addReplica(2, d.room) || !slices.Equal(d.held[0], []int32{0, 2}) {
		t.Errorf("placement %v, expected adapter 2 beside 0", d.held)
	}
	// Adapter 1 beside 0 takes from what is the worst already.
	place([]int32{0}, []int32{1, 2})
	d.arrived, d.total = []float64{18, 1, 1}, 20
	if d.addReplica(1, d.room) || !slices.Equal(d.held[0], []int32{0}) || !slices.Equal(d.where[1], []int32{1}) {
		t.Errorf("placement %v, expected none that hurts adapter 0", d.held)
	}
	place([]int32{0}, []int32{1})
	if k := d.shortest(2); k != 2 {
		t.Errorf("adapter %d is to be placed first, expected 2, which has no place", k)
	}
	// the emptiest worker first, of equals the first; no more than its room
	place([]int32{0}, nil)
	d.arrived, d.total = []float64{1, 1, 1}, 3
	if !d.addReplica(1, func(int) int { return 1 }) || !slices.Equal(d.held[1], []int32{1}) {
		t.Errorf("placement %v, expected adapter 1 on worker 1", d.held)
	}
	if d.addReplica(2, func(int) int { return 1 }) {
		t.Errorf("placement %v, but there was no room", d.held)
	}
}

// Requests of four tokens or so each are alike by powers of two.
func TestGroupingByHand(t *testing.T) {
	for n, want := range map[int64]uint8{0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 7: 3, 8: 4, 1 << 40: 41} {
		if got := log2(n); got != want {
			t.Errorf("bucket of %d is %d, expected %d", n, got, want)
		}
	}
	for _, c := range []struct {
		a    InFlight
		want float64
	}{
		{InFlight{Prompt: 16}, 1}, {InFlight{Prompt: 17}, 2}, {InFlight{Prompt: 10, Generated: 7}, 2},
		{InFlight{Prompt: 10, Generated: 6, KV: 16}, 1},
		{InFlight{Prompt: 10, KV: 33}, 3},
	} {
		if got := pagesOf(16, &c.a); got != c.want {
			t.Errorf("%+v takes %v pages, expected %v", c.a, got, c.want)
		}
	}
	load, unload := difference([][]int32{{0, 1}, {2}}, [][]int32{{1, 2}, {2}})
	if !slices.Equal(load, []Placement{{0, 2}}) || !slices.Equal(unload, []Placement{{0, 0}}) {
		t.Errorf("load %v, unload %v", load, unload)
	}
}

// Requests go only to where the adapter is in host memory or on the GPU.
func TestAtHand(t *testing.T) {
	s := &PlannerInput{View: testView(handEnv(2, 4)), Requests: []InFlight{{ID: 5, Adapter: 0}, {ID: 6, Adapter: 1},
		{ID: 7, Adapter: 2}}}
	s.Workers[1].Adapters[0].Tier, s.Workers[1].Adapters[1].Tier, s.Workers[1].Adapters[2].Tier = Disk, Host, GPU
	got := atHand(s, []Move{{5, 0, 1}, {6, 0, 1}, {7, 0, 1}})
	if !slices.Equal(got, []Move{{6, 0, 1}, {7, 0, 1}}) {
		t.Errorf("moves %v, expected those of requests 6 and 7", got)
	}
}

// dispatch_mig's idle adapter has no request there and another replica.
func TestIdleReplica(t *testing.T) {
	d := newDLoRA(handEnv(2, 4), false)
	d.setPlacement([][]int32{{0, 1, 2, 3}, {1, 2, 3}})
	p := &dispatchMig{dlora: d}
	w := &Worker{Adapters: []AdapterState{{}, {Running: 1}, {Queued: 1}, {}}}
	if k := p.idle(0, w); k != 3 { // 0 is here alone, 1 and 2 are in use
		t.Errorf("adapter %d is idle, expected 3", k)
	}
	w.Adapters[3].Queued = 1
	if k := p.idle(0, w); k != -1 {
		t.Errorf("adapter %d is idle, expected none", k)
	}
}

// dLoRA takes 5 s for an execution until it has seen one.
func TestExecTime(t *testing.T) {
	p := mustNew(t, "dlora_period_mig", handEnv(2, 2)).Policy.(*dloraPeriodMig)
	p.Note(Event{Kind: Finished, Adapter: 1, Exec: 2})
	p.Note(Event{Kind: Finished, Adapter: 1, Exec: 4})
	p.Note(Event{Kind: Finished, Adapter: -1, Exec: 100})
	for k, want := range map[int32]float64{-1: 5, 0: 5, 1: 3} {
		close2(t, "execution time", p.execTime(k), want)
	}
}

// A solver that tells no work is charged for the usual one.
func TestSolveTime(t *testing.T) {
	env := handEnv(2, 2)
	p := &ilp.Problem{Adapters: 1, Workers: []ilp.Worker{{Slots: 1}, {Slots: 1}},
		Groups: []ilp.Group{{Count: 4, Work: 2}}}
	for _, c := range []struct{ work, charged int64 }{{0, ilp.DefaultWork(p)}, {1000, 1000}, {1 << 40, 0}} {
		env.Solver = working(c.work)
		_, plan, err := solve(&env, p, 10)
		if err != nil {
			t.Fatal(err)
		}
		want := 100e-6 + 25e-9*float64(c.charged)
		if c.charged == 0 || want > 2 { // a fifth of the interval at most
			want = 2
		}
		close2(t, "time for solving", plan.SolveTime, want)
	}
}

// working is a solver that leaves everything where it is and claims to have worked.
type working int64

func (working) Name() string { return "working" }

func (w working) Solve(_ context.Context, p *ilp.Problem, _ ilp.Budget) (*ilp.Solution, error) {
	return &ilp.Solution{Flows: ilp.StayFlows(p), Work: int64(w)}, nil
}

// Of equals Llumnix takes the first worker for a new request, and moves the
// smallest request whatever its place in the list.
func TestLlumnixTies(t *testing.T) {
	env := handEnv(2, 1)
	p := mustNew(t, "llumnix", env).Policy.(*llumnix)
	if got := p.Route(Request{}, testView(env)).Worker; got != 0 {
		t.Errorf("worker %d, expected 0", got)
	}
	s := &PlannerInput{View: testView(env), Requests: []InFlight{{ID: 9, Running: true, KV: 10},
		{ID: 3, Running: true, KV: 20}, {ID: 4, Running: true, KV: 10}}}
	if a := p.smallest(s, 0); a.ID != 4 {
		t.Errorf("request %d is the smallest, expected 4", a.ID)
	}
}
