package planroute

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// stepCost takes 1 s for each prefill step and 10 ms for each token.
type stepCost struct{ routertest.HandCost }

func (stepCost) Prefill(tokens int64) float64 { return 1 + float64(tokens)/100 }

// Prompts that come while a step is under way are computed together in the next one, and each of them costs the
// running requests only what it adds to that step.
func TestPromptsShareAStep(t *testing.T) {
	env := routertest.HandEnv(1, 1)
	env.Workers[0].Cost = stepCost{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w := &v.Workers[0]
	r := router.Request{Adapter: -1, Prompt: 100, Expected: 50}
	is := func(what string, wantFirst, wantPrefill float64) {
		t.Helper()
		n := p.backlogs[0].next(w, &env.Workers[0], v.Now)
		all, one := n.prompt(r.Prompt, env.Workers[0].Cost)
		routertest.Close(t, what+", until its prompt is computed", n.starts-v.Now+all, wantFirst)
		routertest.Close(t, what+", what it adds", one, wantPrefill)
	}
	is("alone", 2, 2)
	p.Route(r, v)
	v.Now, w.Running = 0.5, 1
	is("after a step that ends at 2 s", 1.5+2, 2)
	p.Route(r, v)
	v.Now, w.Queued, w.QueuedToks = 1, 1, 100
	is("with another one", 1+3, 1)
	p.Route(r, v)
	v.Now, w.Queued, w.QueuedToks = 1.5, 2, 200
	is("with two others", 0.5+4, 1)
	w.Queued, w.QueuedToks = 0, 0
	is("they were refused", 0.5+2, 2)
	v.Now = 3
	is("the step of two others is under way until 5 s", 2+2, 2)
	w.Running = 0
	is("nothing is left there", 2, 2)
}

// mixedCost also takes 1 s for each decode step, as for each prefill step.
type mixedCost struct{ stepCost }

func (mixedCost) DecodeStep(running, adapters int, kvTokens int64, rank int) float64 {
	return 1 + stepCost{}.DecodeStep(running, adapters, kvTokens, rank)
}

// Running requests wait for a whole prefill step, unless the step also decodes: then they wait for its prompts alone.
// A prompt that joins others adds the same either way. Its step takes longer by the decoding: 3.1 s for 4 requests.
func TestPromptsBesideDecoding(t *testing.T) {
	env := routertest.HandEnv(2, 1)
	for j := range env.Workers {
		env.Workers[j].Cost = mixedCost{}
	}
	env.Workers[1].Mixes = true
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	r := router.Request{Adapter: -1, Prompt: 100, Expected: 50}
	saved := func(what string, want float64) {
		t.Helper()
		p.begin(&r, v)
		apart, _ := p.price(r, 0, v)
		mixed, _ := p.price(r, 1, v)
		routertest.Close(t, what, apart-mixed, want)
	}
	saved("nothing runs", 0)
	v.Workers[0].Running, v.Workers[1].Running = 3, 3
	saved("3 requests run", 3*1-30*3.1)
	for j := range v.Workers {
		p.sent(r, j, v, r.Prompt)
		v.Workers[j].Queued, v.Workers[j].QueuedToks = 1, 100
	}
	v.Now = 1
	saved("3 requests run, and a prompt is computed", 3*1-30*(3.1+3.1))
	for j := range v.Workers {
		p.sent(r, j, v, r.Prompt)
		v.Workers[j].Queued, v.Workers[j].QueuedToks = 2, 200
	}
	saved("another prompt waits for the next step", -30*(3.1+3.1))
}

// A request that comes while a decode step is under way is computed in the next one, or, if that is formed already, in
// the one after it.
func TestStepsFormedAhead(t *testing.T) {
	for _, c := range []struct {
		ahead                   bool
		first, joins, under, at float64 // s: when steps of prompts begin
	}{
		{false, 4 - 1.5, 4 - 1.5, 4 - 1.5 + 2, 4.5},
		{true, 4 - 1.5 + 4, 4 - 1.5 + 4, 4 - 1.5 + 4 + 2, 3},
	} {
		env := routertest.HandEnv(1, 1)
		env.Workers[0].Cost, env.Workers[0].Ahead = mixedCost{}, c.ahead
		p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
		v := routertest.View(env)
		w, l := &v.Workers[0], &p.backlogs[0]
		w.Running, l.ends, l.pace = 3, -1.5, 4 // a decode step of 4 s began
		send := func(id int64) float64 {
			p.sent(router.Request{ID: id, Adapter: -1, Prompt: 100, Expected: 50}, 0, v, 100)
			w.Queued, w.QueuedToks = w.Queued+1, w.QueuedToks+100
			return l.last.starts
		}
		routertest.Close(t, "the first prompt", send(1), c.first)
		v.Now = 1
		routertest.Close(t, "one that comes in the same step", send(2), c.joins)
		routertest.Close(t, "when both will have been computed", l.ends, c.joins+3)
		v.Now, w.Queued, w.QueuedToks = c.at, 0, 0
		if !c.ahead {
			routertest.Close(t, "one that comes when they are computed", send(3), c.joins+3)
			continue
		}
		routertest.Close(t, "one that comes when their step is formed", send(3), c.joins+3)
		v.Now = 6
		routertest.Close(t, "another one", send(4), c.joins+3)
	}
}

// First tokens tell when a step has ended, also the one before the last.
func TestFirstTokensEndSteps(t *testing.T) {
	env := routertest.HandEnv(1, 1)
	env.Workers[0].Cost = stepCost{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w, l := &v.Workers[0], &p.backlogs[0]
	for id := int64(1); id < 3; id++ {
		p.sent(router.Request{ID: id, Adapter: -1, Prompt: 100, Expected: 50}, 0, v, 100)
		v.Now, w.Running = 0.5, 1
	}
	routertest.Close(t, "two steps of 2 s", l.ends, 4)
	tell := func(id int64, now, want float64) {
		t.Helper()
		p.Note(router.Event{Kind: router.FirstToken, ID: id, Now: now, Adapter: -1})
		routertest.Close(t, "when the prompts will have been computed", l.ends, want)
	}
	tell(1, 3, 5)
	routertest.Close(t, "the second step begins", l.last.starts, 3)
	tell(0, 3.5, 5)
	tell(2, 6, 6)
}

// A prompt delays those that are computed in the same step, as far as the step takes its tokens. Those that wait for a
// slot are in a later step.
func TestPromptsDelayTheirStep(t *testing.T) {
	env := routertest.HandEnv(1, 3)
	env.Workers[0].Cost = stepCost{}
	p := routertest.New(t, "period_mig:spill=0", env).Policy.(*planAndRoute)
	v := routertest.View(env)
	w, l, r := &v.Workers[0], &p.backlogs[0], router.Request{Adapter: -1, Prompt: 100, Expected: 50}
	w.Running, l.ends = 1, 10
	for n := range 3 {
		p.begin(&r, v)
		total, first := p.price(r, 0, v)
		p.backlogs[0].last.prompts = 0
		alone, _ := p.price(r, 0, v)
		p.backlogs[0].last.prompts = n
		routertest.Close(t, "what it costs the others of its step", total-alone, float64(30*n))
		routertest.Close(t, "its first token", first, float64(10+1+n+1))
		p.sent(r, 0, v, r.Prompt)
		w.Queued, w.QueuedToks = w.Queued+1, w.QueuedToks+100
	}
	n := l.last
	routertest.Close(t, "half of it fits", n.delay(100, 1, 350), 1.5)
	routertest.Close(t, "nothing of it fits", n.delay(100, 1, 300), 0)
	env.Workers[0].StepTokens = 300
	routertest.Close(t, "the step after a full one", l.next(w, &env.Workers[0], 0).starts, 10+1+3)

	w.Adapters[0].Running, w.Adapters[1].Running, w.ActiveLoras, w.SlotsUsed, w.Running = 1, 1, 2, 2, 2
	p.sent(router.Request{Adapter: 2, Prompt: 100, Expected: 50}, 0, v, 100)
	if l.last != n {
		t.Errorf("the step is %+v with a prompt that waits for a slot, expected %+v", l.last, n)
	}
}
