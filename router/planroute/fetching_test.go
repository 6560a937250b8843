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
		l.prefilled, l.stepEnd, l.full = c.now-10, c.now-10, 0
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
