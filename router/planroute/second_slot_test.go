package planroute

import (
	"fmt"
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/router/routertest"
)

// A request goes to another worker than the one that serves its adapter at once if slots are plenty, and stays where
// its adapter has a slot if they are scarce: a second slot would be one that other adapters wait for.
func TestSecondSlot(t *testing.T) {
	for _, c := range []struct {
		name                   string
		adapters, slots        int
		replica                string
		elsewhere, full, moves bool
	}{
		{"slots are scarce", 16, 4, "2", true, false, false},
		{"no price", 16, 4, "0", true, false, true},
		{"more slots than adapters", 16, 64, "2", true, false, true},
		{"not in use elsewhere", 16, 4, "2", false, false, true},
		{"in use where the batch is full", 16, 4, "2", true, true, true},
	} {
		env := routertest.Env(2, c.adapters)
		for j := range env.Workers {
			env.Workers[j].Slots = c.slots
		}
		p := routertest.New(t, "route-only:spill=0,replica="+c.replica, env).Policy.(*planAndRoute)
		v := routertest.View(env)
		busy, free := &v.Workers[0], &v.Workers[1]
		for j := range v.Workers {
			w := &v.Workers[j]
			w.Slots, w.Adapters[5].Tier = c.slots, router.GPU
		}
		for k := range 3 { // both workers have three adapters in use, the first one more requests in all
			busy.Count(int32(k), 1, 0)
			free.Count(int32(k), 1, 0)
		}
		busy.Running, free.Running = 4, 3
		if c.elsewhere {
			busy.Count(5, 2, 0)
			busy.Running += 2
		}
		if c.full {
			busy.MaxRunning = busy.Running
		}
		r := router.Request{ID: 1, Adapter: 5, Prompt: 100, MaxNew: 500, Expected: 200}
		if got := p.Route(r, v).Worker == 1; got != c.moves {
			t.Errorf("%s: takes a second slot is %v", c.name, got)
		}
	}
}

// Requests that wait for a slot take no place in a batch: the adapters in the slots do not need second ones.
func TestSlotsOfABatchWithRoom(t *testing.T) {
	env := routertest.HandEnv(2, 4)
	p := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w := &v.Workers[0]
	w.Running, w.SlotsUsed, w.MaxRunning = 2, w.Slots, 3
	w.Count(0, 1, 0)
	w.Count(1, 1, 0)
	r := router.Request{Adapter: 0, Prompt: 100, Expected: 50}
	for _, c := range []struct {
		what     string
		adapter  int32 // of the request that waits
		workers  int
		hasPrice bool
	}{{"another adapter waits for a slot", 2, 1, true}, {"a request waits for the last place", 1, 0, false}} {
		w.Queued, w.QueuedToks = 1, 100
		w.Count(c.adapter, 0, 1)
		p.begin(&r, v)
		if got := p.pool.inUse; got != c.workers {
			t.Errorf("%s: in use with room on %d workers, expected %d", c.what, got, c.workers)
		}
		if got := p.pool.secondSlot(v.Workers[1].Adapter(0)) > 0; got != c.hasPrice {
			t.Errorf("%s: a second slot has a price is %v", c.what, got)
		}
		w.Count(c.adapter, 0, -1)
	}
}

// An adapter with requests on both workers gives back the slot where it has fewer. Where no slot is free, its own
// slots have no price.
func TestSlotIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		name string
		more int // adapters in use on each worker
		want float64
	}{{"slots are free", 2, 0.5 - 1./7}, {"no slot is free", 3, 0}} {
		env := routertest.Env(2, 16)
		p := routertest.New(t, "route-only:spill=0", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		for j := range v.Workers {
			w := &v.Workers[j]
			w.Slots = 4
			for k := range c.more {
				w.Count(int32(5*j+k), 1, 0)
			}
			w.Running = 3
		}
		v.Workers[0].Count(15, 6, 0)
		v.Workers[1].Count(15, 1, 0)
		r := router.Request{ID: 1, Adapter: 15, Prompt: 100, MaxNew: 500, Expected: 200}
		p.begin(&r, v)
		more := p.pool.secondSlot(v.Workers[1].Adapter(15)) - p.pool.secondSlot(v.Workers[0].Adapter(15))
		routertest.Close(t, c.name, more, c.want*p.pool.price)
	}
}

// Erlang's formula, and the equations of the Markov chain that counts the slots in use: with b blocked per unit of
// time, a slot more in use costs d(n) later, where offered*d(n) = b + n*d(n-1).
func TestBlockedBySlot(t *testing.T) {
	for _, c := range []struct {
		offered float64
		slots   int
	}{{0.5, 1}, {3, 4}, {4, 4}, {6, 8}, {8, 8}, {20, 8}, {50, 64}, {5, 64}, {300, 256}} {
		top, sum := 1.0, 1.0
		for n := 1; n <= c.slots; n++ {
			top *= c.offered / float64(n)
			sum += top
		}
		b, d := c.offered*top/sum, 0.0
		for taken := range c.slots {
			d = (b + float64(taken)*d) / c.offered
			routertest.Close(t, fmt.Sprintf("%g offered, %d of %d taken", c.offered, taken, c.slots),
				blockedBySlot(c.offered, taken, c.slots), d)
		}
		routertest.Close(t, "all taken", blockedBySlot(c.offered, c.slots, c.slots), 1)
	}
	if got := blockedBySlot(0, 0, 256); got != 0 {
		t.Errorf("nothing offered: %g", got)
	}
	if got := blockedBySlot(1, 0, 256); math.IsNaN(got) {
		t.Error("little offered: not a number")
	}
}

// The price does not grow with the adapters that wait, so a request that would wait behind many goes where fewer wait.
func TestSecondSlotWhereManyWait(t *testing.T) {
	for _, wait := range []int{0, 3, 12} {
		env := routertest.Env(2, 32)
		p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		for j := range v.Workers {
			w := &v.Workers[j]
			w.Count(int32(j), 1, 0)
			w.Count(int32(j+2), 1, 0)
			w.Running = 2
		}
		w := &v.Workers[0]
		for k := range wait {
			w.Count(int32(10+k), 0, 1)
		}
		w.Queued = wait
		r := router.Request{ID: 1, Adapter: 0, Prompt: 100, MaxNew: 500, Expected: 200}
		p.begin(&r, v)
		routertest.Close(t, fmt.Sprintf("%d wait", wait), p.pool.price, p.pool.cost)
	}
}

// Every adapter of 6 could have one of 8 slots. While adapters without requests come back often, a second slot has the
// full price as soon as it is one that they need, and Erlang's before.
func TestSecondSlotThatAdaptersWillNeed(t *testing.T) {
	for _, c := range []struct {
		name    string
		seconds int     // slots that adapter 0 has beyond its first
		fresh   float64 // share of requests that find no other one of their adapter in flight
		full    bool
	}{
		{"the others need this slot", 2, 0.1, true},
		{"one slot is left for each", 1, 0.1, false},
		{"the others hardly come back", 2, 0, false},
	} {
		env := routertest.Env(4, 6)
		p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		p.gap, p.pool.fresh = average.Mean{Value: 0.001, N: 1}, average.Mean{Value: c.fresh, N: 1}
		p.Note(router.Event{Kind: router.Sent, Adapter: 0})
		for j := range 1 + c.seconds {
			v.Workers[j].Count(0, 1, 0)
			v.Workers[j].Running = 1
		}
		r := router.Request{ID: 1, Adapter: 0, Prompt: 100, MaxNew: 500, Expected: 200}
		p.begin(&r, v)
		want := p.pool.cost * blockedBySlot(6, 1+c.seconds, 8)
		if c.full {
			want = p.pool.cost
		}
		routertest.Close(t, c.name, p.pool.price, want)
		p.Note(router.Event{Kind: router.Left, Adapter: 0})
		if p.pool.active != 0 {
			t.Errorf("%s: %d adapters have requests, expected none", c.name, p.pool.active)
		}
	}
}

// A preview and moves of waiting requests leave the usage as it is; a route notes it.
func TestSlotUsage(t *testing.T) {
	env := routertest.Env(2, 16)
	for j := range env.Workers {
		env.Workers[j].Slots = 4
	}
	p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	for j := range v.Workers {
		v.Workers[j].Slots = 4
	}
	v.Workers[0].Count(3, 1, 0)
	before := p.pool.usage
	if before.Value != 1 {
		t.Errorf("usage of 16 adapters in 8 slots is %g before the first request", before.Value)
	}
	p.Preview(router.Request{ID: 1, Adapter: 3, Prompt: 100}, v)
	if p.pool.usage != before {
		t.Error("a preview changed the usage")
	}
	p.Route(router.Request{ID: 1, Adapter: 3, Prompt: 100, MaxNew: 100, Expected: 50}, v)
	routertest.Close(t, "usage after a request", p.pool.usage.Value, 1-(1-1.0/8)/300)
}

// An adapter with running and with waiting requests on a worker takes one slot there.
func TestSlotsTaken(t *testing.T) {
	env := routertest.Env(2, 16)
	p := routertest.New(t, "route-only", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	v.Workers[0].Count(3, 8, 20)
	v.Workers[0].Count(4, 1, 0)
	v.Workers[1].Count(3, 0, 1)
	if _, taken := p.slots(v); taken != 3 {
		t.Errorf("%d slots are taken, expected 3", taken)
	}
}

// An adapter with slots on two workers pays for staying where another adapter waits for a slot.
func TestKeepsASlotThatOthersWaitFor(t *testing.T) {
	env := routertest.HandEnv(2, 4)
	p := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w := &v.Workers[0] // adapters 0 and 1 run, and adapter 2 waits
	w.Running, w.Queued, w.QueuedToks, w.SlotsUsed = 2, 1, 100, 2
	w.Count(0, 1, 0)
	w.Count(1, 1, 0)
	w.Count(2, 0, 1)
	r := router.Request{Adapter: 0, Prompt: 100, Expected: 50}
	costs := func(what string, want float64) {
		t.Helper()
		p.begin(&r, v)
		c := p.crowdOf(0, w, v.Now)
		routertest.Close(t, what, p.keepsSlot(0, w.Adapter(0), &c, guessExec), want)
	}
	costs("its only slot", 0)
	other := &v.Workers[1]
	other.Running = 1
	other.Count(0, 1, 0)
	// Beside one request, it keeps the slot for half an execution longer. One of two slots is the next to become free.
	const want = guessExec / 2.0 / 2
	costs("two slots", want)
	with, _ := p.price(r, 0, v)
	p.pool.inUse = 1
	without, _ := p.price(r, 0, v)
	routertest.Close(t, "as a part of the price", with-without, mostFirstWeight*want)
	other.Running = other.MaxRunning
	costs("the other batch is full", 0)
	other.Running, w.Queued, w.QueuedToks = 1, 0, 0
	w.Count(2, 0, -1)
	costs("nobody waits", 0)
}
