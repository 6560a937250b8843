package sim

import (
	"cmp"
	"errors"
	"fmt"

	"lorasim/sim/autoscale"
	"lorasim/sim/event"
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// Elastic describes a cluster whose workers join and leave. Config.Workers lists all possible workers; the first
// Initial ones are on at the start.
//
// A worker that joins takes requests after ColdStart, and starts without adapters. A worker that leaves takes no new
// requests, ends the requests that it has, and is then off. Scaling up takes draining workers back at once; scaling
// down cancels starts. While no worker is on, requests wait for one, unless none can start any more.
type Elastic struct {
	Initial, Min int              // workers at the start, minimum of workers
	ColdStart    float64          // time from a worker's start until it takes requests, s
	Every        float64          // interval between scaling decisions, s
	Scaler       autoscale.Scaler // decides the number of workers; nil: Times does
	Times        []Resize         // scheduled numbers of workers, instead of a Scaler
}

// Resize sets the number of workers from a time on.
type Resize struct {
	At      float64 // s
	Workers int
}

// ElasticStats counts how a cluster grew and shrank.
type ElasticStats struct {
	Mean                                float64 // mean number of workers that used a GPU
	Least, Most                         int     // minimum and maximum number of such workers
	Started, CalledOff, Left, TakenBack int64   // starts, cancelled starts, drains, cancelled drains
}

// elastic is the state of a cluster that grows and shrinks.
type elastic struct {
	count       int // workers that are on or starting
	paid        int // workers that are on, starting or draining
	least, most int // of paid, until since
	since       tick.Ticks
	stats       ElasticStats

	on    int        // workers that are on
	sizes int        // scheduled changes to come
	held  []*request // requests that wait for a worker that is on

	arrived  int64      // requests until the latest look
	ended    int64      // requests that ended since then
	response tick.Ticks // sum of their response times
}

// note counts a request that ended, for the scaler.
func (e *elastic) note(ended *record.Event) {
	if r := ended.Request; r.Status == record.OK {
		e.ended++
		e.response += tick.FromSeconds(r.Finish) - tick.FromSeconds(r.Sent)
	}
}

func (s *sim) initElastic() error {
	e := s.cfg.Elastic
	if e == nil {
		return nil
	}
	n := len(s.workers)
	seconds := func(x float64) bool { return x >= 0 && x < tick.Max.Seconds() }
	switch {
	case e.Min < 0 || e.Min > e.Initial || e.Initial > n:
		return fmt.Errorf("sim: %d workers at first, expected at least the minimum %d (0 or more) and at most %d",
			e.Initial, e.Min, n)
	case !seconds(e.ColdStart):
		return fmt.Errorf("sim: a cold start takes %v s, expected >= 0", e.ColdStart)
	case (e.Scaler == nil) == (e.Times == nil):
		return errors.New("sim: an elastic cluster needs a scaler or times")
	case e.Scaler != nil && (!seconds(e.Every) || tick.FromSeconds(e.Every) == 0):
		return fmt.Errorf("sim: %v s between scaling decisions, expected > 0", e.Every)
	}
	for i := range s.workers {
		if i >= e.Initial {
			s.workers[i].power, s.workers[i].bare = record.Off, true
		}
	}
	s.elastic = elastic{count: e.Initial, on: e.Initial, paid: e.Initial, least: n + 1, sizes: len(e.Times)}
	for _, r := range e.Times {
		if !seconds(r.At) || r.Workers < e.Min || r.Workers > n {
			return fmt.Errorf("sim: %d workers from %v s on, expected %d to %d from >= 0 s on", r.Workers, r.At, e.Min,
				n)
		}
		s.loop.Background(tick.FromSeconds(r.At), event.Scale, func() {
			s.elastic.sizes--
			if s.scaleTo(r.Workers); s.elastic.count == 0 {
				s.release() // it may have been the last change
			}
		})
	}
	if e.Scaler != nil {
		s.events.Add(record.Watcher{Kinds: record.EventEnded, Note: s.elastic.note})
		s.loop.Background(tick.FromSeconds(e.Every), event.Scale, s.look)
	}
	return nil
}

// look calls the scaler.
func (s *sim) look() {
	cfg, e := s.cfg.Elastic, &s.elastic
	sent := s.requests
	if s.headT != tick.Never {
		sent-- // read, but not sent
	}
	l := autoscale.Look{Now: s.loop.Now().Seconds(), Workers: e.count,
		Arrived: sent - e.arrived, Ended: e.ended, InFlight: len(e.held)}
	if e.ended > 0 {
		l.Response = e.response.Seconds() / float64(e.ended)
	}
	for i := range s.workers {
		if w := &s.workers[i]; w.power == record.On {
			l.InFlight += w.v.Load()
		}
	}
	e.arrived, e.ended, e.response = sent, 0, 0
	s.scaleTo(max(cfg.Scaler.Want(l), min(len(e.held), 1)))
	if s.unfinished() {
		s.loop.Background(s.loop.Now()+tick.FromSeconds(cfg.Every), event.Scale, s.look)
	}
}

// scaleTo sets the number of workers that are on or starting, clamped to the limits. As in a Kubernetes ReplicaSet,
// workers leave in this order: starting ones, failed ones, then the youngest. Draining workers come back in the
// opposite order, before any other starts. Of the workers that are off, the one with the lowest number starts.
func (s *sim) scaleTo(n int) {
	if !s.unfinished() {
		return // the run is over, but for what goes on by itself
	}
	n = min(max(n, s.cfg.Elastic.Min), len(s.workers))
	for s.elastic.count < n {
		if w := s.first(record.Draining); w != nil {
			s.elastic.stats.TakenBack++
			w.setPower(record.On)
		} else {
			s.first(record.Off).startUp()
		}
	}
	for s.elastic.count > n {
		if w := s.last(record.Starting); w != nil {
			s.elastic.stats.CalledOff++
			w.setPower(record.Off)
		} else {
			s.last(record.On).drain()
		}
	}
}

// holds keeps a request for later while no worker is on.
func (s *sim) holds(r *request) bool {
	e := &s.elastic
	if s.cfg.Elastic == nil || e.on > 0 {
		return false
	}
	if e.count == 0 && e.sizes == 0 && s.cfg.Elastic.Scaler == nil { // no worker will ever be on
		return false
	}
	r.Depart()
	s.placed(r, record.EventHeld, -1, 0)
	e.held = append(e.held, r)
	return true
}

// release dispatches the held requests, once a worker is on or no worker can start any more.
func (s *sim) release() {
	held := s.elastic.held
	s.elastic.held = nil
	for _, r := range held {
		if !s.holds(r) {
			s.dispatch(r)
		}
	}
}

// first and last return the worker in a state that comes back or leaves first; nil: none.
func (s *sim) first(p record.Power) *worker { return s.extreme(p, -1) }
func (s *sim) last(p record.Power) *worker  { return s.extreme(p, 1) }

func (s *sim) extreme(p record.Power, sign int) (best *worker) {
	for i := range s.workers {
		w := &s.workers[i]
		if w.power != p {
			continue
		}
		if best == nil || sign*cmp.Or(cmp.Compare(min(w.outages, 1), min(best.outages, 1)),
			cmp.Compare(w.startedAt, best.startedAt), cmp.Compare(w.id, best.id)) > 0 {
			best = w
		}
	}
	return best
}

// startUp begins a worker's cold start.
func (w *worker) startUp() {
	s := w.s
	w.incarnation++
	w.startedAt = s.loop.Now()
	s.elastic.stats.Started++
	w.setPower(record.Starting)
	this := w.incarnation
	s.loop.Background(s.loop.Now()+tick.FromSeconds(s.cfg.Elastic.ColdStart), event.Up, func() {
		if w.power == record.Starting && w.incarnation == this { // else it was called off
			w.setPower(record.On)
		}
	})
}

// drain makes a worker leave after it has finished its requests.
func (w *worker) drain() {
	w.s.elastic.stats.Left++
	w.setPower(record.Draining)
	w.offWhenEmpty()
}

// setPower changes the state of a worker. A worker that goes off loses everything in its memory.
func (w *worker) setPower(p record.Power) {
	s, was := w.s, w.power
	w.power = p
	now := s.loop.Now()
	if !s.unfinished() {
		now = min(now, s.end) // what goes on by itself after the run does not count
	}
	s.elastic.change(now, counts(p)-counts(was), paid(p)-paid(was))
	s.elastic.on += is(p, record.On) - is(was, record.On)
	if p == record.Off {
		w.onTime += s.loop.Now() - w.startedAt
		w.startedAt, w.bare = 0, true
		w.reset(true)
	}
	w.publish()
	if s.events.Wants(record.EventPower) {
		s.emit(record.Event{Kind: record.EventPower, Worker: int32(w.id), Power: p})
	}
	if p == record.On && len(s.elastic.held) > 0 {
		s.loop.At(s.loop.Now(), event.Release, s.release) // when all have come that come now
	}
}

func is(p, q record.Power) int {
	if p == q {
		return 1
	}
	return 0
}

func counts(p record.Power) int { return is(p, record.On) + is(p, record.Starting) }
func paid(p record.Power) int   { return 1 - is(p, record.Off) }

// change counts workers that have joined or left. States without duration do not count.
func (e *elastic) change(now tick.Ticks, count, paid int) {
	if now > e.since {
		e.least, e.most, e.since = min(e.least, e.paid), max(e.most, e.paid), now
	}
	e.count += count
	e.paid += paid
}

// timeOn returns the time during which a worker used a GPU, at the end of a run.
func (w *worker) timeOn(end tick.Ticks) tick.Ticks {
	if w.power == record.Off {
		return w.onTime
	}
	return w.onTime + max(end-w.startedAt, 0)
}

// elasticStats returns the counts at the end of a run; nil if the cluster is not elastic.
func (s *sim) elasticStats(workers []WorkerStats, end tick.Ticks) *ElasticStats {
	if s.cfg.Elastic == nil {
		return nil
	}
	e := s.elastic
	e.change(end, 0, 0)
	if e.least > e.most { // no time has passed
		e.least, e.most = e.paid, e.paid
	}
	e.stats.Least, e.stats.Most = e.least, e.most
	for _, w := range workers {
		e.stats.Mean += float64(w.On) / float64(max(end, 1))
	}
	return &e.stats
}
