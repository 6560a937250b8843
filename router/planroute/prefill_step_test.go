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
		n := p.backlogs[0].next(w, v.Now)
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
// A prompt that joins others adds the same either way.
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
	saved("3 requests run", 3*1)
	for j := range v.Workers {
		p.sent(r, j, v, r.Prompt)
		v.Workers[j].Queued, v.Workers[j].QueuedToks = 1, 100
	}
	saved("3 requests run, and a prompt is computed", 3*1)
	for j := range v.Workers {
		p.sent(r, j, v, r.Prompt)
		v.Workers[j].Queued, v.Workers[j].QueuedToks = 2, 200
	}
	saved("another prompt waits for the next step", 0)
}
