package builtin

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// A policy without the fact Plans must have no planner.
func TestFactsFitThePolicies(t *testing.T) {
	env := router.Env{Workers: router.Alike(3, router.Spec{Cost: routertest.Cost{}, MaxRunning: 8, Slots: 2,
		HostSlots: 4, Memory: 1e9, KVBytes: 1,
		AdapterBytes: []float64{1, 1}}),
		Adapters: trace.Names(2, []int{8}), Moving: router.MoveQueued}
	for _, d := range router.List() {
		spec := d.Name
		switch spec {
		case "explicit":
			spec += ":map=0@0,1@1+2"
		case "script":
			continue // it has none: a program may read any input
		}
		rt, err := router.New(spec, env)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		f := router.FactsOf(spec)
		if rt.Plans() && !f.Plans {
			t.Errorf("%s plans, and its facts deny it", d.Name)
		}
		if (rt.ReadsKV || rt.ReadsPrefixes || rt.Prefetch) && !f.Signals {
			t.Errorf("%s looks at signals, and its facts deny it", d.Name)
		}
		if d.Facts == nil {
			t.Errorf("%s: no facts", d.Name)
		}
	}
}

func TestFactsOf(t *testing.T) {
	all := router.Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	for spec, want := range map[string]router.Facts{
		"static":                       {},
		"p2c":                          {Signals: true},
		"plan-and-route":               {Plans: true, Interval: true, Signals: true},
		"plan-and-route:interval=3":    {Plans: true, Signals: true},
		"dlora_period_mig":             all,
		"dlora_period_mig:threshold=1": {Plans: true, Interval: true, Signals: true},
		"dispatch_mig":                 all,
		"nonsense":                     all,
	} {
		if got := router.FactsOf(spec); got != want {
			t.Errorf("%s: %+v, expected %+v", spec, got, want)
		}
	}
}
