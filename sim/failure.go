package sim

import (
	"fmt"

	"lorasim/internal/record"
	"lorasim/internal/tick"
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
		s.events.push(tick.FromSeconds(o.From), eventDown, int32(o.Worker))
		if o.To > 0 {
			s.events.push(tick.FromSeconds(o.To), eventUp, int32(o.Worker))
		}
	}
	return nil
}

// fail takes the worker down. Its requests go to others with the tokens that
// their clients have seen, or fail, as the configuration says.
func (w *worker) fail() {
	if !w.v.Up {
		return
	}
	s := w.s
	if w.phase == decode {
		// the steps that are over count: their tokens are out
		if k := w.stepsDone(); k > 0 {
			w.run.Count = k
			w.advance()
		}
	}
	if w.phase != idle {
		w.stats.Busy += s.now - w.begun
		s.timers.clear(w.id)
	}
	if len(w.adapters.queue) > 0 {
		s.timers.clear(w.loadTimer())
	}
	w.v.Up = false
	w.failedAt = s.now
	orphans := w.orphans()
	w.reset()
	for _, i := range orphans {
		r := &s.reqs[i]
		r.moving, r.state, r.carried, r.copied, r.prefilled = notMoving, waiting, 0, 0, 0
		if s.cfg.NoFailover {
			s.finish(i, record.Failed, "its worker failed", s.now)
			continue
		}
		s.reroute(i)
	}
}

// orphans lists the worker's requests in the order in which they came to it
// and notes how far they are.
func (w *worker) orphans() []int32 {
	var ids []int32
	for i := w.queue.head; i >= 0; i = w.s.reqs[i].next {
		ids = append(ids, i)
	}
	ids = append(ids, w.partial...)
	for _, p := range w.door.queue {
		ids = append(ids, p.req)
	}
	for _, c := range w.filling {
		if c.req != w.chunked && !w.vllm {
			ids = append(ids, c.req)
		}
	}
	if w.chunked >= 0 {
		ids = append(ids, w.chunked)
	}
	if w.exec != nil {
		ids = append(ids, w.exec.parked...)
	}
	for len(w.batch) > 0 {
		i := w.batch[0]
		w.remove(0)
		w.forget(&w.s.reqs[i])
		r := &w.s.reqs[i]
		r.generated += int32(w.steps - r.joinStep)
		ids = append(ids, i)
	}
	return ids
}

// reset empties the worker, as a restart does.
func (w *worker) reset() {
	fresh := worker{}
	if err := fresh.init(w.s, w.id, w.costs); err != nil {
		panic(err) // the same call succeeded before
	}
	fresh.v.Up = false
	fresh.stats, fresh.steps, fresh.failedAt, fresh.ready = w.stats, w.steps, w.failedAt, w.ready
	fresh.ratioSince = w.steps
	*w = fresh
}

// recover brings the worker back, with the adapters it started with in host
// memory.
func (w *worker) recover() { w.v.Up = true }
