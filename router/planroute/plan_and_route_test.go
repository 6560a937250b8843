package planroute

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// Until anything has ended a request is taken to run for 5 s, and a second until the
// first token to be worth 30.
func TestPriceByHand(t *testing.T) {
	p := routertest.New(t, "period_mig:spill=0", routertest.HandEnv(1, 4)).Policy.(*planAndRoute)
	r := router.Request{Adapter: 2, Prompt: 100, Expected: 50, MaxNew: 400}
	onGPU := []router.AdapterState{{Running: 2}, {}, {Tier: router.GPU}}
	for _, c := range []struct {
		name      string
		k         int32
		prefilled float64
		w         router.Worker
		first     float64
		want      float64
	}{
		// first token: prefill 1, and 2 until the decode step ends that is under way: each takes 3, since 100 ago;
		// decoding: 50 steps of 3.7, 1 s for two others, and 1.1 s more per step for them
		{"at hand", 2, -100, router.Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1,
			Adapters:    onGPU},
			1 + 2, 185 + 2 + 110},
		{"prompts before it", 2, 5, router.Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1, Adapters: onGPU},
			5 + 1, 185 + 2 + 110},
		// one has been waiting for longer than its prompt takes: half of 5 s over two
		{"one is stuck", 1, -100, router.Worker{Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 3, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []router.AdapterState{{Running: 2}, {Tier: router.GPU, Queued: 1}, {}}}, 1 + 2 + 1.25,
			185 + 2 + 110},
		// a load of 8, as long again for the adapter that makes way
		{"a load", 2, -100, router.Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 3,
			SlotsUsed:   2,
			ActiveLoras: 1,
			Adapters:    []router.AdapterState{{Running: 2}, {Tier: router.GPU}, {Tier: router.Host}}}, 1 + 2 + 8,
			185 + 2*9 + 110},
		{"a load that evicts", 2, -100, router.Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4,
			Slots:     2,
			SlotsUsed: 2, ActiveLoras: 1,
			Adapters: []router.AdapterState{{Running: 2}, {Tier: router.GPU}, {Tier: router.Host}}}, 1 + 2 + 8,
			30*8 + 2*8 + 185 + 2*9 + 110},
		// both slots in use, each for an execution of 5 s: half of that until one is free
		{"a wait for a slot", 2, -100, router.Worker{Running: 2, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			SlotsUsed: 2, ActiveLoras: 2,
			Adapters: []router.AdapterState{{Running: 1}, {Running: 1}, {Tier: router.GPU}}},
			1 + 2 + 5./2, 185 + 2 + 110},
		// of another adapter, too, and two requests of the first one, for 1/2 + 1 executions: two slots are needed
		{"a second one to wait for a slot", 2, -100, router.Worker{Running: 3, Queued: 1, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 1,
			Adapters: []router.AdapterState{{Running: 2}, {Running: 1}, {Tier: router.GPU},
				{Queued: 1, Tier: router.GPU}}},
			1 + 2 + 5*2/(1/1.5+1), 50*4.7 + 3 + 50*3*1.1},
		// of the two that hold or will take the slots one is about to run
		{"slots that are about to be taken", 2, -100, router.Worker{Running: 1, Queued: 1, KVUsed: 600,
			KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []router.AdapterState{{Running: 1}, {Queued: 1, Tier: router.GPU}, {Tier: router.GPU}}},
			1 + 2 + 5./2 + 5./2, 50*2.7 + 1 + 50*1.1},
		// one that waits is as likely first as last of the two
		{"behind one of its own", 2, -100, router.Worker{Running: 2, Queued: 2, KVUsed: 600, KVCapacity: 2000,
			MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 2,
			Adapters: []router.AdapterState{{Running: 1}, {Running: 1}, {Tier: router.GPU, Queued: 1},
				{Queued: 1, Tier: router.GPU}}},
			1 + 2 + 1.5*5/2, 185 + 2 + 110},
		// those without a slot let others pass
		{"others wait for a slot", 0, -100, router.Worker{Running: 2, Queued: 3, QueuedToks: 300, KVUsed: 600,
			KVCapacity: 2000, MaxRunning: 4, Slots: 2, SlotsUsed: 2, ActiveLoras: 2, WaitingLoras: 1,
			Adapters: []router.AdapterState{{Tier: router.GPU, Running: 1}, {Tier: router.GPU, Running: 1},
				{Tier: router.Host, Queued: 3}}},
			1 + 2, 185 + 2 + 110},
		{"another brings the adapter", 2, -100, router.Worker{Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 600,
			KVCapacity: 2000, MaxRunning: 4, Slots: 3, ActiveLoras: 1, WaitingLoras: 1,
			Adapters: []router.AdapterState{{Running: 2}, {}, {Tier: router.Host, Queued: 1}}}, 1 + 2 + 1.25,
			185 + 2 + 110},
		// one too many for the batch: 5/4
		{"full", 2, -100, router.Worker{Running: 4, KVUsed: 600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1,
			Adapters:    onGPU},
			1 + 2 + 1.25, 50*4.7 + 4},
		// 1600 + 100 + 400 for what it may generate: 100 more than there are, and those
		// that run have 800 each: one has to end
		{"no memory", 2, -100, router.Worker{Running: 2, KVUsed: 1600, KVCapacity: 2000, MaxRunning: 4, Slots: 2,
			ActiveLoras: 1, Adapters: onGPU},
			1 + 2 + 2.5, 50*4.7 + 2 + 110},
		{"just enough memory", 2, -100, router.Worker{Running: 2, KVUsed: 1500, KVCapacity: 2000, MaxRunning: 4,
			Slots:       2,
			ActiveLoras: 1, Adapters: onGPU},
			1 + 2, 50*4.6 + 2 + 110},
		// it may generate more than there is room for: it runs when nothing else does
		{"a small KV cache", 2, -100, router.Worker{KVCapacity: 300, MaxRunning: 4, Slots: 2, Adapters: onGPU}, 1, 55},
		{"a small KV cache in use", 2, -100, router.Worker{Running: 1, KVUsed: 100, KVCapacity: 300, MaxRunning: 4,
			Slots: 2, ActiveLoras: 1, Adapters: onGPU},
			1 + 2 + 5, 50*2.2 + 1 + 55},
		// an old report: the tokens of its requests, by count
		{"an old report", 2, -100, router.Worker{Running: 2, KVUsed: 0, Tokens: 600, Age: 1, KVCapacity: 2000,
			MaxRunning: 4,
			Slots:      2, ActiveLoras: 1, Adapters: onGPU},
			1 + 2, 185 + 2 + 110},
		{"the base model on an idle worker of unknown KV cache", -1, -100,
			router.Worker{MaxRunning: 4, Adapters: make([]router.AdapterState, 3)}, 1, 55},
	} {
		r.Adapter = c.k
		p.backlogs[0].prefilled, p.backlogs[0].ends, p.backlogs[0].pace = c.prefilled, c.prefilled, 3
		total, first := p.price(r, 0, &router.View{Workers: []router.Worker{c.w}})
		routertest.Close(t, c.name+", first token", first, c.first)
		routertest.Close(t, c.name, total, 30*c.first+c.want)
	}
	// requests take 10 s and their first tokens 2 s: 0.7 of that is what seconds weigh
	p.Note(router.Event{Kind: router.Finished, Exec: 10})
	p.first.Add(2)
	total, first := p.price(router.Request{Adapter: -1, Prompt: 100, Expected: 50}, 0,
		&router.View{Workers: []router.Worker{{Running: 4, KVUsed: 600, MaxRunning: 4,
			Adapters: make([]router.AdapterState, 3)}}})
	routertest.Close(t, "wait behind requests of 10 s", first, 1+2+2.5)
	routertest.Close(t, "what seconds weigh", total, 3.5*first+50*4.7+4)
}

// What is on its way from a store comes one after the other, beside the steps.
func TestPeriodicFetches(t *testing.T) {
	env := routertest.HandEnv(1, 3)
	env.Workers[0].Cost = twoTiers{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	for k := range v.Workers[0].Adapters {
		v.Workers[0].Adapters[k].Tier = router.Disk
	}
	_, first := p.price(router.Request{Adapter: 0, Prompt: 100}, 0, v)
	routertest.Close(t, "the first", first, 20+1+1)
	p.Route(router.Request{Adapter: 0, Prompt: 100}, v)
	v.Now = 5
	_, first = p.price(router.Request{Adapter: 1, Prompt: 100}, 0, v)
	routertest.Close(t, "one after it", first, 15+20+1+1)
	v.Workers[0].Adapters[0].Queued = 1
	_, first = p.price(router.Request{Adapter: 0, Prompt: 100}, 0, v)
	routertest.Close(t, "one that is on its way", first, 15+1)
}

// A worker that fetches within its steps stops the requests that run, for the fetch as for the load.
func TestFetchesInSteps(t *testing.T) {
	env := routertest.HandEnv(1, 3)
	env.Workers[0].Cost, env.Workers[0].FetchesInSteps = twoTiers{}, true
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w := &v.Workers[0]
	w.Running = 2
	r := router.Request{Adapter: 0, Prompt: 100, Expected: 50}
	price := func(tier router.Tier) (total, first float64) {
		w.Adapters[0].Tier = tier
		v.Index = router.NewIndex(1, 3)
		v.Index.Set(0, 0, w.Adapters[0])
		total, first = p.price(r, 0, v)
		p.bounds.begin(p, &r, v)
		if low := p.bounds.price(p, &r, 0, v, math.Inf(1)); low > total {
			t.Errorf("from tier %d: the bound %v is above the price %v", tier, low, total)
		}
		return total, first
	}
	host, hostFirst := price(router.Host)
	for _, tier := range []router.Tier{router.Disk, router.Remote} {
		total, first := price(tier)
		routertest.Close(t, "the first token", first, hostFirst+20)
		routertest.Close(t, "the price", total, host+30*20+2*20)
	}
	p.workers[0].LoadsOverlap = true
	p.bounds = newPriceBounds(p.workers)
	total, first := price(router.Remote)
	routertest.Close(t, "the first token if loads overlap", first, hostFirst+20)
	routertest.Close(t, "the price if loads overlap", total, host+30*20)
	p.workers[0].LoadsOverlap = false
	p.Route(r, v)
	routertest.Close(t, "when its prompt will have been computed", p.backlogs[0].prefilled, 21+1)
}

// countingCost takes 10 s longer for each adapter in the batch.
type countingCost struct{ routertest.HandCost }

func (c countingCost) DecodeStep(running, adapters int, kvTokens int64, maxRank int) float64 {
	return c.HandCost.DecodeStep(running, adapters, kvTokens, maxRank) + 10*float64(adapters)
}

// An adapter that the batch has not yet makes all its steps longer. A request of another one keeps it in the batch.
func TestAdaptersOfTheBatch(t *testing.T) {
	env := routertest.HandEnv(1, 4)
	env.Workers[0].Cost = countingCost{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	for _, c := range []struct {
		name                 string
		k                    int32
		queued               int32 // requests of adapter 2
		longer, longerBefore float64
		keeps                float64 // share of the request's time that its adapter stays longer
	}{
		{"one that runs", 0, 0, 10, 10, 1. / 3},
		{"another one", 1, 0, 20, 10, 0},
		{"one that waits there", 2, 1, 20, 20, 1. / 2},
		{"the base model", -1, 0, 10, 10, 0},
	} {
		v := routertest.View(env)
		w := &v.Workers[0]
		w.Slots, w.Running, w.ActiveLoras, w.Queued = 4, 2, 1, int(c.queued)
		for k := range w.Adapters {
			w.Adapters[k].Tier = router.GPU
		}
		w.Adapters[0].Running, w.Adapters[2].Queued = 2, c.queued
		r := router.Request{Adapter: c.k, Prompt: 100, Expected: 50}
		total, first := p.price(r, 0, v)
		routertest.Close(t, c.name+", first token", first, 1)
		want := 50*(3.1+c.longer) + 2 + 100*(1.1+c.longer-c.longerBefore+10*c.keeps)
		routertest.Close(t, c.name, total, 30*first+want)
		p.bounds.begin(p, &r, v)
		if low := p.bounds.price(p, &r, 0, v, math.Inf(1)); low > total {
			t.Errorf("%s: the bound %v is above the price %v", c.name, low, total)
		}
	}
}

// twoTiers loads in 1 s from host memory, in 21 s from elsewhere.
type twoTiers struct{ routertest.HandCost }

func (twoTiers) AdapterLoad(_ int, from router.Tier) float64 {
	if from < router.Host {
		return 21
	}
	return 1
}

// Requests that wait although the prompts before them are computed show how much
// memory the engine really needs; that none wait with more takes it back.
func TestPeriodicLearnsRoom(t *testing.T) {
	p := routertest.New(t, "period_mig", routertest.HandEnv(1, 3)).Policy.(*planAndRoute)
	v := &router.View{Now: 50, Workers: []router.Worker{{Up: true, Running: 2, Queued: 1, QueuedToks: 100, KVUsed: 1000,
		KVCapacity: 2000, MaxRunning: 4, Slots: 3,
		ActiveLoras: 1, Adapters: []router.AdapterState{{Running: 2}, {Tier: router.GPU}, {Tier: router.GPU}}}}}
	w, l := &v.Workers[0], &p.backlogs[0]
	r := router.Request{Adapter: 2, Prompt: 10, MaxNew: 400, Expected: 50}
	l.prefilled = 49.96
	p.sent(r, 0, v, r.Prompt)
	routertest.Close(t, "it may be a step", l.room(w), 2000)
	l.prefilled = 49.9
	p.sent(r, 0, v, r.Prompt)
	routertest.Close(t, "one waits with 1500", l.room(w), 1950)
	w.Running, l.prefilled = 4, 40
	p.sent(r, 0, v, r.Prompt)
	routertest.Close(t, "the batch is full", l.room(w), 1950)
	w.Running, w.Queued, w.QueuedToks, w.KVUsed = 2, 0, 0, 1560
	p.sent(r, 0, v, r.Prompt)
	routertest.Close(t, "none waits with 1960", l.room(w), 1960)
}

// A worker without the adapter must be better by the spill, a share of an execution.
func TestPeriodicSpill(t *testing.T) {
	env := routertest.HandEnv(3, 3)
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
		{"period_mig:spill=1000", []int{-1, -1, -1}, router.None},
	} {
		v := routertest.View(env)
		routertest.SetRunning(v, c.running...)
		for j := range v.Workers {
			v.Workers[j].Adapters[1].Tier = router.GPU
		}
		if got := routertest.New(t, c.spec, env).Policy.Route(router.Request{Adapter: 1, Prompt: 100, Expected: 10},
			v).Worker; got != c.want {
			t.Errorf("%s with %v running: worker %d, expected %d", c.spec, c.running, got, c.want)
		}
	}
}
