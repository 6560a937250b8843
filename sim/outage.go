package sim

import (
	"fmt"
	"slices"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/sim/event"
)

// Outage is a time during which a worker is down. It loses its requests and
// all it has in memory.
type Outage struct {
	Worker   int
	From, To float64 // s; To 0: for good
}

func (s *sim) scheduleOutages() error {
	for _, o := range s.cfg.Outages {
		if o.Worker < 0 || o.Worker >= len(s.workers) {
			return fmt.Errorf("sim: outage of worker %d, expected 0 to %d", o.Worker, len(s.workers)-1)
		}
		if !(o.From >= 0) || o.To != 0 && !(o.To > o.From) || max(o.From, o.To) >= tick.Max.Seconds() {
			return fmt.Errorf("sim: outage of worker %d from %v to %v s, expected 0 <= from < to", o.Worker, o.From, o.To)
		}
		w := &s.workers[o.Worker]
		s.loop.At(tick.FromSeconds(o.From), event.Down, w.fail)
		if o.To > 0 {
			s.loop.At(tick.FromSeconds(o.To), event.Up, w.recover)
		}
	}
	return nil
}

// fail takes the worker down. Its requests go to others with the tokens that
// their clients have seen, or fail, as the configuration says.
func (w *worker) fail() {
	was := w.v.Up
	if w.outages++; !was { // down already, or off
		return
	}
	s := w.s
	orphans := w.reset()
	w.failedAt = s.loop.Now()
	w.leaveWhenEmpty()
	for _, r := range orphans {
		r.moving, r.state, r.carried, r.copied, r.Computed = notMoving, waiting, 0, 0, 0
		r.Forget()
		if s.cfg.NoFailover {
			s.finish(r, record.Failed, "its worker failed", s.loop.Now())
		} else {
			s.route(r)
		}
	}
}

// recover ends an outage. The worker has the adapters that it started with, unless
// another outage lasts.
func (w *worker) recover() {
	w.outages--
	w.show()
	if w.v.Up && w.queue.n > 0 { // sent by a router that knew of no failure
		w.wake()
	}
}

// reset makes the worker as it was at its start, but for its counts and for what
// its outages and its power say. It returns the requests that it had.
func (w *worker) reset() (orphans []*request) {
	s := w.s
	w.interrupted()
	s.loop.Stop(&w.timer)
	s.loop.Stop(&w.adapters.timer)
	orphans = w.orphans()
	old, adapters := *w, w.v.Adapters
	w.open = 0
	if err := w.init(s, w.id, w.costs); err != nil {
		panic(err) // the same call succeeded before
	}
	w.stats, w.steps, w.ready, w.ratioSince = old.stats, old.steps, old.ready, old.steps
	for a, st := range w.v.Adapters {
		if st.Tier != adapters[a].Tier {
			s.tierChanged(w.id, int32(a), st.Tier)
		}
	}
	return orphans
}

const noFailover = "its worker failed and no other took it"

// orphans lists the worker's requests in the order in which they came to it
// and notes how far they are.
func (w *worker) orphans() []*request {
	rs := slices.Concat(w.queue.all(), w.partial, w.door.queue)
	for _, c := range w.filling {
		if c.req != w.chunked && !w.vllm {
			rs = append(rs, c.req)
		}
	}
	if w.chunked != nil {
		rs = append(rs, w.chunked)
	}
	if w.exec != nil {
		rs = append(rs, w.exec.parked...)
	}
	for len(w.batch) > 0 { // those that would be done first come first
		rs = append(rs, w.batch[0].Value)
		w.unbatch(w.batch[0].Value)
	}
	return rs
}
