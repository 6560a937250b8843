package sim

import (
	"fmt"

	"lorasim/router"
	"lorasim/sim/event"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Outage is a period in which a worker is down. At its start the worker loses its requests and everything in its
// memory.
type Outage struct {
	Worker   int
	From, To float64 // s; To 0: until the end of the run
}

func (s *sim) scheduleOutages() error {
	for _, o := range s.cfg.Outages {
		if o.Worker < 0 || o.Worker >= len(s.workers) {
			return fmt.Errorf("sim: outage of worker %d, expected 0 to %d", o.Worker, len(s.workers)-1)
		}
		if !(o.From >= 0) || o.To != 0 && !(o.To > o.From) || max(o.From, o.To) >= tick.Max.Seconds() {
			return fmt.Errorf("sim: outage of worker %d from %v to %v s, expected 0 <= from < to", o.Worker, o.From,
				o.To)
		}
		w := &s.workers[o.Worker]
		s.loop.At(tick.FromSeconds(o.From), event.Down, w.fail)
		if o.To > 0 {
			s.loop.At(tick.FromSeconds(o.To), event.Up, w.recover)
		}
	}
	return nil
}

// fail takes the worker down. Its requests go to other workers, with the tokens that their clients have seen. With
// Config.NoFailover they fail.
func (w *worker) fail() {
	was := w.v.Up
	if w.outages++; w.outages == 1 {
		w.outageChanged(true)
	}
	if !was { // down already, or off
		return
	}
	s := w.s
	orphans := w.reset(false)
	w.failedAt = s.loop.Now()
	w.offWhenEmpty()
	for _, er := range orphans {
		r := s.request(er)
		r.copied = 0
		s.noteRequest(router.Left, r, int32(w.id))
		if s.cfg.NoFailover {
			s.finish(r, record.Failed, "its worker failed", s.loop.Now())
		} else {
			s.route(r)
		}
	}
}

// recover ends an outage. Unless another outage lasts or its power is off, the worker is up again, with the adapters of
// its start.
func (w *worker) recover() {
	if w.outages--; w.outages == 0 {
		w.outageChanged(false)
	}
	if w.publish(); w.v.Up {
		w.engine.CapacityFreed() // requests sent by a router that knew of no failure
	}
}

const noFailover = "its worker failed and no other took it"
