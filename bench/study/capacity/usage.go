package capacity

import (
	"lorasim/bench/result/waits"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// usage is a counter that also observes what requests wait for after the warm-up.
type usage struct {
	counter
	waits  *waits.Observer
	warmed bool // the warm-up is over
}

func newUsage(o *Options, ps []*profile.Profile, src *scaled) *usage {
	return &usage{counter: counter{opt: o, src: src}, waits: waits.New(o.SLO, ps, src.Adapters())}
}

// hooks are what the usage observes by.
func (u *usage) hooks() sim.Hooks { return sim.Hooks{Done: u.Done, Watch: u.watch, Tier: u.waits.Tier} }

// Done is a hook of sim.Hooks.
func (u *usage) Done(r *record.Request) {
	u.counter.Done(r)
	if r.ID >= u.src.size.warm {
		u.waits.Done(r)
	}
}

// watch is a hook of sim.Hooks.
func (u *usage) watch(from, to tick.Ticks, v *router.View) {
	if !u.warmed && u.src.read >= u.src.size.warm {
		u.warmed = true
		u.waits.EndWarmup()
	}
	u.waits.Watch(from, to, v)
}
