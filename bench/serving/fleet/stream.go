package fleet

import (
	"sync"
	"time"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// A tableMutex is the lock of a table. While somebody watches the fleet, it reports the state of the workers up to each
// time at which it is taken, and then what has changed when it is given back.
type tableMutex struct {
	sync.Mutex
	stream *stream // nil: nobody watches. Guarded by the mutex itself
}

// Lock takes the lock.
func (m *tableMutex) Lock() {
	m.Mutex.Lock()
	if m.stream != nil {
		m.stream.pass()
	}
}

// Unlock gives the lock back.
func (m *tableMutex) Unlock() {
	if m.stream != nil {
		m.stream.compare()
	}
	m.Mutex.Unlock()
}

// A stream reports the events of a fleet. It finds changes of workers and of the tiers of adapters by comparing the
// router's view with the view when the lock was last given back. Its methods are called with the table's mu held.
type stream struct {
	record.Stream
	table *table
	start float64    // time 0 of the run on the fleet's clock
	now   tick.Ticks // time of the run when the lock was taken
	seen  []seenWorker
}

// seenWorker is the state of a worker that was reported.
type seenWorker struct {
	tiers []router.Tier // by adapter
	power record.Power
	down  bool
}

// Watch passes the events of the fleet to watchers until stop is called. Times count from start, a time of the fleet's
// clock. Watchers are called one at a time, and must not call the fleet. One run at a time can watch.
func (f *Fleet) Watch(start float64, watchers ...record.Watcher) (stop func()) {
	defer f.lock()()
	s := &stream{table: f.table, start: start}
	for _, w := range watchers {
		s.Add(w)
	}
	for _, k := range f.workers {
		w := seenWorker{power: powerOf(k), down: isDown(k)}
		for _, a := range k.view.Adapters {
			w.tiers = append(w.tiers, a.Tier)
		}
		s.seen = append(s.seen, w)
	}
	f.mu.stream = s
	return func() {
		defer f.lock()()
		f.mu.stream = nil
	}
}

// Ended reports the record of a request to the watchers.
func (f *Fleet) Ended(r *record.Request) {
	defer f.lock()()
	f.emit(record.Event{Kind: record.EventEnded, Worker: r.WorkerLast, ID: r.ID, Adapter: r.Adapter, Request: r})
}

// emit passes an event to the watchers. Called with mu held.
func (t *table) emit(e record.Event) {
	if s := t.mu.stream; s != nil {
		seen := e // so that an event that nobody sees is not allocated
		seen.At = s.now
		s.Emit(&seen)
	}
}

// emitLoad reports a load that has ended. Called with mu held.
func (t *table) emitLoad(k *worker, a int32, took time.Duration) {
	if s := t.mu.stream; s != nil {
		from := max(s.now-tick.FromSeconds(took.Seconds()*t.cfg.Speed), 0)
		t.emit(record.Event{Kind: record.EventLoad, Worker: int32(k.index), Adapter: a, From: from, Until: s.now})
	}
}

// emitPlan reports a plan that was applied or dropped. Called with mu held.
func (t *table) emitPlan(p *record.Plan) {
	if s := t.mu.stream; s != nil {
		p.Made, p.Applied = max(p.Made-s.start, 0), s.now.Seconds()
		t.emit(record.Event{Kind: record.EventPlan, Worker: -1, Plan: p})
	}
}

// pass reports that time has passed since the lock was last taken.
func (s *stream) pass() {
	from := s.now
	s.now = max(from, tick.FromSeconds(max(s.table.cfg.Now()-s.start, 0)))
	if s.now > from && s.Wants(record.EventState) {
		s.Emit(&record.Event{Kind: record.EventState, At: from, Worker: -1, From: from, Until: s.now,
			View: &s.table.view})
	}
}

// compare reports what has changed since it was last called.
func (s *stream) compare() {
	if !s.Wants(record.EventTier | record.EventPower | record.EventOutage) {
		return
	}
	for i, k := range s.table.workers {
		if i == len(s.seen) {
			s.seen = append(s.seen, seenWorker{power: record.Off})
		}
		was := &s.seen[i]
		if p := powerOf(k); p != was.power {
			was.power = p
			s.table.emit(record.Event{Kind: record.EventPower, Worker: int32(i), Power: p})
		}
		if down := isDown(k); down != was.down {
			was.down = down
			s.table.emit(record.Event{Kind: record.EventOutage, Worker: int32(i), Down: down})
		}
		for a := range k.view.Adapters {
			tier := k.view.Adapters[a].Tier
			if a == len(was.tiers) {
				was.tiers = append(was.tiers, router.Disk)
			}
			if was.tiers[a] != tier {
				was.tiers[a] = tier
				s.table.emit(record.Event{Kind: record.EventTier, Worker: int32(i), Adapter: int32(a), Tier: tier})
			}
		}
	}
}

func powerOf(k *worker) record.Power {
	switch {
	case k.gone:
		return record.Off
	case k.view.Draining:
		return record.Draining
	}
	return record.On
}

func isDown(k *worker) bool { return !k.view.Up && !k.gone }
