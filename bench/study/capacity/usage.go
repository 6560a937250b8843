package capacity

import (
	"lorasim/bench/result/waits"
	"lorasim/sim/profile"
	"lorasim/sim/record"
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

// watcher returns the events that the usage needs.
func (u *usage) watcher() record.Watcher {
	w := u.waits.Watcher()
	w.Note = u.note
	return w
}

// note passes an event on, except the ends of requests of the warm-up.
func (u *usage) note(e *record.Event) {
	switch e.Kind {
	case record.EventEnded:
		if u.Done(e.Request); e.ID < u.src.size.warm {
			return
		}
	case record.EventState:
		if !u.warmed && u.src.read >= u.src.size.warm {
			u.warmed = true
			u.waits.EndWarmup()
		}
	}
	u.waits.Note(e)
}
