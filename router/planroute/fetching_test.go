package planroute

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// slowStore is a worker that brings an adapter from the store in 100 s.
type slowStore struct{ routertest.HandCost }

func (slowStore) AdapterLoad(_ int, from router.Tier) float64 {
	if from < router.Host {
		return 101
	}
	return 1
}

// A request that waits until its adapter is in host memory lets others pass, and does not show that the KV cache is
// full; nor does one whose prompt is computed after that. A request that waits beyond that time does.
func TestWaitForFetch(t *testing.T) {
	env := routertest.HandEnv(1, 3)
	env.Workers[0].Cost = slowStore{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	w := router.Worker{Up: true, Running: 1, MaxRunning: 4, Slots: 3, SlotsUsed: 1, KVUsed: 300, KVCapacity: 2000,
		Adapters: make([]router.AdapterState, 3)}
	w.Adapters[0].Tier = router.GPU
	w.Count(0, 1, 0)
	v := &router.View{Now: 1000, Workers: []router.Worker{w}, Adapters: env.Adapters}
	request := func(k int32) router.Request {
		return router.Request{Adapter: k, Prompt: 100, MaxNew: 50, Expected: 50}
	}
	before, _ := p.price(request(0), 0, v)
	p.Route(request(1), v) // fetched until 1100, loaded and computed until 1102
	p.exec.Add(guessExec)
	v.Workers[0].Count(1, 0, 1)
	v.Workers[0].Queued, v.Workers[0].QueuedToks = 1, 100
	l := &p.backlogs[0]
	for _, c := range []struct {
		now  float64
		tier router.Tier
		full bool
	}{{1050, router.Disk, false}, {1101, router.GPU, false}, {1200, router.GPU, true}} {
		v.Now, v.Workers[0].Adapters[1].Tier = c.now, c.tier
		l.prefilled, l.last.closes, l.full = c.now-10, c.now-10, 0
		if c.tier < router.Host {
			if after, _ := p.price(request(0), 0, v); after > before {
				t.Errorf("at %v s a request costs %v, before the other one waited %v", c.now, after, before)
			}
		}
		fetched, brought := l.fetched, l.brought
		p.sent(request(0), 0, v, 100)
		l.fetched, l.brought = fetched, brought
		if got := l.full > 0; got != c.full {
			t.Errorf("at %v s the KV cache is taken for full is %v", c.now, got)
		}
	}
}

// A request whose adapter is on its way waits for that fetch alone. A fetch delays later ones by its share of
// the loader's time.
func TestLoader(t *testing.T) {
	env := routertest.HandEnv(1, 4)
	env.Workers[0].Cost = slowStore{}
	p := routertest.New(t, "route-only:spill=0", env).Policy.(*planAndRoute)
	w := router.Worker{Up: true, MaxRunning: 4, Slots: 3, Adapters: make([]router.AdapterState, 4)}
	v := &router.View{Now: 1000, Workers: []router.Worker{w}, Adapters: env.Adapters}
	wait := func(k int32) adapterWait { return p.adapterWait(k, v.Workers[0].Adapter(k), 0, v) }
	if a := wait(1); a.fetch != 100 || a.delays != 0 {
		t.Errorf("an idle loader: %+v, expected a fetch of 100 s without delays", a)
	}
	for k := range int32(2) {
		p.Route(router.Request{Adapter: k, Prompt: 100, MaxNew: 50, Expected: 50}, v)
		v.Workers[0].Count(k, 0, 1)
		v.Workers[0].Queued++
	}
	v.Now += 60
	for k, want := range []float64{40, 140, 240} {
		routertest.Close(t, "until an adapter comes", wait(int32(k)).fetch, want)
	}
	routertest.Close(t, "delays of others", wait(2).delays, mostLoad/(1-mostLoad)*(140+100./2))
	routertest.Close(t, "delays of a request that joins", wait(1).delays, 0)
	// M/G/1: a fetch of x s behind b s of work adds v(b+x) - v(b), where v(w) = rate*w*w / (2*(1-rate*x))
	const rate, x, b = 0.004, 100.0, 140.0
	value := func(w float64) float64 { return rate * w * w / (2 * (1 - rate*x)) }
	p.backlogs[0].loader = recentLoad{seconds: rate * x * loaderMemory, at: v.Now}
	routertest.Close(t, "the value of a queue M/G/1", wait(2).delays, value(b+x)-value(b))
}
