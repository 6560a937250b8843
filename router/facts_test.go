package router

import (
	"testing"

	"lorasim/trace"
)

// A policy without the fact Plans must have no planner.
func TestFactsFitThePolicies(t *testing.T) {
	env := Env{Workers: Alike(3, Spec{Cost: testCost{}, MaxRunning: 8, Slots: 2, HostSlots: 4, Memory: 1e9, KVBytes: 1,
		AdapterBytes: []float64{1, 1}}),
		Adapters: trace.Names(2, []int{8}), Moving: MoveQueued}
	for _, d := range List() {
		spec := d.Name
		if spec == "explicit" {
			spec += ":map=0@0,1@1+2"
		}
		rt, err := New(spec, env)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		f := FactsOf(spec)
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
	all := Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	for spec, want := range map[string]Facts{
		"static":                       {},
		"p2c":                          {Signals: true},
		"plan-and-route":               {Plans: true, Interval: true, Signals: true},
		"plan-and-route:interval=3":    {Plans: true, Signals: true},
		"dlora_period_mig":             all,
		"dlora_period_mig:threshold=1": {Plans: true, Interval: true, Signals: true},
		"dispatch_mig":                 all,
		"nonsense":                     all,
	} {
		if got := FactsOf(spec); got != want {
			t.Errorf("%s: %+v, expected %+v", spec, got, want)
		}
	}
}
