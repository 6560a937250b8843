package sim

import (
	"errors"
	"fmt"
	"slices"

	"lorasim/router/push"
	"lorasim/sim/event"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// Push makes a trainer publish new versions of adapters during the run.
type Push struct {
	push.Options
	Interval     float64 // s between two versions of an adapter
	MaxStaleness int     // most versions that a request may be behind at admission; < 0: no limit
	Adapters     []int32 // adapters with new versions
}

// pushing is the state of pushes in a run. An engine has a row for each version of an adapter that a worker can hold at
// a time: the adapter's own index, and others after those of all adapters. Routers see the current one.
type pushing struct {
	*push.Rollout
	s        *sim
	schedule push.Schedule
	rows     [][]int32 // by adapter
	of       []int32   // adapter of each row
	retiring [][]int32 // by worker: rows of old versions with requests
	cutOver  int64     // requests that continued with another version
}

// initPush adds rows for the versions. It is called before the workers are made.
func (s *sim) initPush() error {
	p := s.cfg.Push
	if p == nil {
		return nil
	}
	n := len(s.adapters)
	switch every := tick.FromSeconds(max(p.Interval, 0)); {
	case every <= 0 || p.Interval >= tick.Max.Seconds():
		return fmt.Errorf("sim: %v s between two versions of an adapter, expected > 0", p.Interval)
	case slices.ContainsFunc(p.Adapters, func(a int32) bool { return a < 0 || int(a) >= n }):
		return fmt.Errorf("sim: new versions of adapters %v, expected 0 to %d", p.Adapters, n-1)
	}
	for _, c := range s.cfg.Workers {
		if err := c.Profile().TakesVersions(); err != nil {
			return fmt.Errorf("sim: new versions of adapters: %w", err)
		}
	}
	if len(p.Adapters) == 0 {
		return errors.New("sim: new versions, but of no adapter")
	}
	x := &pushing{Rollout: push.NewRollout(p.Options, p.MaxStaleness), s: s,
		schedule: push.Schedule{Interval: p.Interval, Adapters: p.Adapters},
		rows:     make([][]int32, n), retiring: make([][]int32, len(s.workers))}
	s.adapters = slices.Clone(s.adapters)
	for a := range int32(n) {
		x.rows[a], x.of = []int32{a}, append(x.of, a)
	}
	for _, a := range p.Adapters {
		x.Add(a, len(s.workers))
		for range p.Versions - 1 {
			x.rows[a], x.of = append(x.rows[a], int32(len(s.adapters))), append(x.of, a)
			s.adapters = append(s.adapters, s.adapters[a])
		}
	}
	s.push = x
	x.plan()
	return nil
}

// plan schedules the next publication.
func (x *pushing) plan() {
	a, at := x.schedule.Next()
	if at >= tick.Max.Seconds() {
		return
	}
	x.s.loop.Background(tick.FromSeconds(at), event.Plan, func() {
		if !x.s.unfinished() {
			return
		}
		x.Publish(a, x.now())
		x.advance()
		x.plan()
	})
}

func (x *pushing) now() float64 { return x.s.loop.Now().Seconds() }

// advance begins the loads that can begin now.
func (x *pushing) advance() {
	for l, ok := x.Next(x, x.now()); ok; l, ok = x.Next(x, x.now()) {
		w, row := &x.s.workers[l.Worker], x.free(l.Worker, l.Adapter)
		w.engine.KV.RenewAdapter(row)
		if x.Options().Loads == push.Demand {
			x.turn(w, l, row)
			continue
		}
		a := &w.engine.Rows.Of(row).Adapter
		a.Keep()
		a.Push(true)
		w.engine.LoRA.StartFetch(a)
		x.await(w, l, row)
	}
	for i := range x.s.workers {
		x.release(&x.s.workers[i])
	}
}

// await waits for the end of the load of a version.
func (x *pushing) await(w *worker, l push.Load, row int32) {
	a, reset := &w.engine.Rows.Of(row).Adapter, w.resets
	x.s.loop.At(a.LoadedAt(), event.Release, func() {
		if w.resets != reset { // the load was lost with the worker's memory
			return
		}
		switch m := &w.engine.LoRA; {
		case m.Loaded(a):
			a.Push(false)
			m.Use(a, m.Clock())
			x.turn(w, l, row)
		case m.Gone(a):
			x.Ended(l, x.now(), false)
		default:
			x.await(w, l, row)
			return
		}
		x.advance()
	})
}

// turn makes a version, which is in a row, the one for new requests on a worker.
func (x *pushing) turn(w *worker, l push.Load, row int32) {
	x.Ended(l, x.now(), true)
	old := w.engine.Books.Current(l.Adapter)
	if x.Options().Requests == push.CutOver {
		x.cutOver += int64(w.engine.Rows.Of(old).Users())
		w.engine.KV.RenewAdapter(old)
		x.retire(w, row) // the weights replace those of the old version in its place
	} else {
		before := w.v.Adapter(l.Adapter).Tier
		w.engine.Books.Switch(row)
		if t := w.v.Adapter(l.Adapter).Tier; t != before && x.s.events.Wants(record.EventTier) {
			x.s.emit(record.Event{Kind: record.EventTier, Worker: l.Worker, Adapter: l.Adapter, Tier: t})
		}
		x.retire(w, old)
	}
	x.release(w)
}

// retire unloads a row as soon as it has no requests.
func (x *pushing) retire(w *worker, row int32) {
	x.retiring[w.id] = append(x.retiring[w.id], row)
	x.unload(w)
}

// unload unloads the old versions of a worker that have no requests. It reports whether it unloaded one.
func (x *pushing) unload(w *worker) (any bool) {
	x.retiring[w.id] = slices.DeleteFunc(x.retiring[w.id], func(row int32) bool {
		if w.engine.FrontEnd.Busy(row) {
			return false
		}
		a := &w.engine.Rows.Of(row).Adapter
		w.engine.LoRA.Unload(a)
		gone := w.engine.LoRA.Gone(a)
		if !gone { // it is still being loaded
			x.s.loop.At(max(a.LoadedAt(), x.s.loop.Now()), event.Release, func() { x.left(w) })
		}
		any = any || gone
		return gone
	})
	return any
}

// release admits the requests that waited for a version that a worker serves now.
func (x *pushing) release(w *worker) {
	for _, er := range slices.Clone(w.engine.FrontEnd.Held()) {
		if r := x.s.request(er); x.Admits(int32(w.id), x.s.adapterOf(r), r.needs) {
			w.engine.FrontEnd.Unhold(er)
			x.admit(w, r)
		}
	}
}

// send adds a request to a worker's engine, or keeps it back until the worker serves a version that is new enough.
func (x *pushing) send(w *worker, r *request) {
	a, id := x.s.adapterOf(r), int32(w.id)
	if !x.Pushed(a) {
		w.engine.Add(&r.Request)
		return
	}
	x.Refresh(x, id, a)
	r.needs, r.newest = x.Needs(a), x.Newest(a)
	r.Adapter = w.engine.Books.Current(a)
	if r.heldAt = x.s.loop.Now(); !x.Admits(id, a, r.needs) {
		w.engine.FrontEnd.Hold(&r.Request)
		return
	}
	x.admit(w, r)
}

// admit adds a request to a worker's engine.
func (x *pushing) admit(w *worker, r *request) {
	a := x.s.adapterOf(r)
	r.version = x.Version(int32(w.id), a)
	r.waited += x.s.loop.Now() - r.heldAt
	r.age = x.Age(a, r.version, x.now())
	r.Adapter = w.engine.Books.Current(a)
	w.engine.Add(&r.Request)
}

// left notes that a request has left a worker.
func (x *pushing) left(w *worker) {
	if len(x.retiring[w.id]) > 0 && x.unload(w) {
		x.advance()
	}
}

// restarted notes that a worker has lost its memory.
func (x *pushing) restarted(w *worker) {
	w.resets++
	x.retiring[w.id] = nil
	x.Restarted(int32(w.id))
}

// record completes the record of a request.
func (x *pushing) record(r *request, rec *record.Request) {
	if x.Pushed(rec.Adapter) && r.version > 0 {
		rec.Version, rec.Behind, rec.VersionAge = r.version, max(r.newest-r.version, 0), r.age
	}
	rec.VersionWait = r.waited.Seconds()
}

// Holds implements push.Cluster.
func (x *pushing) Holds(worker, a int32) bool {
	w := &x.s.workers[worker]
	return !w.engine.LoRA.Gone(&w.adapter(a).Adapter)
}

// Forget implements push.Cluster.
func (x *pushing) Forget(worker, a int32) {
	e := x.s.workers[worker].engine
	e.KV.RenewAdapter(e.Books.Current(a))
}

// Room implements push.Cluster.
func (x *pushing) Room(worker, a int32) bool { return x.free(worker, a) >= 0 }

// free returns a row of an adapter that has neither weights nor requests on a worker; -1: none.
func (x *pushing) free(worker, a int32) int32 {
	e := x.s.workers[worker].engine
	for _, row := range x.rows[a] {
		if row != e.Books.Current(a) && e.LoRA.Gone(&e.Rows.Of(row).Adapter) && !e.FrontEnd.Busy(row) {
			return row
		}
	}
	return -1
}

// Load implements push.Cluster.
func (x *pushing) Load(worker int32) int { return x.s.workers[worker].v.Load() }

// adapter returns the adapter of a row; trace.BaseModel: the base model.
func (x *pushing) adapter(row int32) int32 {
	if int(row) == len(x.of) {
		return trace.BaseModel
	}
	return x.of[row]
}

// versions returns the adapter of each row for engine.Config; nil: no pushes.
func (x *pushing) versions() []int32 {
	if x == nil {
		return nil
	}
	return x.of
}

// PushStats counts the pushes of a run.
type PushStats struct {
	push.Stats
	CutOver int64 // requests that continued with another version than they began with
}

func (x *pushing) counts() *PushStats {
	if x == nil {
		return nil
	}
	return &PushStats{x.Stats(), x.cutOver}
}
