package series

import (
	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/trace"
)

// Buckets is the number of time buckets of a series.
const Buckets = 512

// Recorder records a simulated run: give [Recorder.Watching] to the scenario.
type Recorder struct {
	clock    clock
	workers  []workerSums
	adapters []trace.Adapter
	place    *placer
	series   Series
	lat      *Latencies
	end      tick.Ticks
	begun    bool
}

var (
	_ sim.DoneObserver = (*Recorder)(nil)
	_ sim.Watcher      = (*Recorder)(nil)
	_ sim.PlanObserver = (*Recorder)(nil)
)

// workerSums are sums over the buckets: of requests x ticks, but for max and
// loads.
type workerSums struct{ queued, running, max, loads sums }

// NewRecorder returns a recorder for a run on the given number of workers.
func NewRecorder(workers int) *Recorder {
	r := &Recorder{clock: clock{width: firstWidth, n: Buckets}, lat: NewLatencies()}
	r.addWorkers(workers)
	return r
}

func (r *Recorder) addWorkers(n int) {
	for len(r.workers) < n {
		r.workers = append(r.workers, workerSums{fresh(Buckets), fresh(Buckets), fresh(Buckets), fresh(Buckets)})
	}
}

// Watching is the Watch function of scenario.RunOptions.
func (r *Recorder) Watching(adapters []trace.Adapter) any {
	r.adapters = adapters
	r.series.ByAdapter = make([]AdapterLoad, len(adapters)+1)
	return r
}

// Watch implements sim.Watcher.
func (r *Recorder) Watch(from, to tick.Ticks, v *router.View) {
	if !r.begun {
		r.begun = true
		r.place = newPlacer(v)
	}
	r.reach(to)
	for w := range v.Workers {
		s, q, run := &r.workers[w], float64(v.Workers[w].Queued), float64(v.Workers[w].Running)
		if q == 0 && run == 0 {
			continue
		}
		r.clock.each(from, to, func(i int, d tick.Ticks) {
			s.queued.add(i, q*float64(d))
			s.running.add(i, run*float64(d))
			s.max[i] = max(s.max[i], q)
		})
	}
	r.end = max(r.end, to)
}

// reach widens the buckets until they hold time t.
func (r *Recorder) reach(t tick.Ticks) {
	r.clock.reach(t, func() {
		for i := range r.workers {
			w := &r.workers[i]
			w.queued.double(plus)
			w.running.double(plus)
			w.max.double(larger)
			w.loads.double(plus)
		}
	})
}

// Tier implements sim.Watcher.
func (r *Recorder) Tier(at tick.Ticks, worker int, adapter int32, t router.Tier) {
	if !r.begun {
		return
	}
	r.reach(at)
	if t == router.GPU {
		r.workers[worker].loads.add(int(at/r.clock.width), 1)
	}
	r.place.tier(at, worker, adapter, t)
}

// Plan implements sim.PlanObserver.
func (r *Recorder) Plan(p *sim.PlanRecord) {
	r.series.thin()
	r.series.Plans = append(r.series.Plans, newPlan(p))
}

// Done implements sim.DoneObserver.
func (r *Recorder) Done(q *record.Request) {
	r.lat.Done(q)
	r.series.count(q)
	r.end = max(r.end, ticks(q.Finish))
}

// count enters a request into the sums of its adapter.
func (s *Series) count(q *record.Request) {
	i := int(q.Adapter)
	if i < 0 || i >= len(s.ByAdapter) {
		i = len(s.ByAdapter) - 1
	}
	a := &s.ByAdapter[i]
	a.Requests++
	if q.Status == record.OK {
		a.Completed++
		a.E2E += q.E2E()
		if t := q.TTFT(); t > 0 {
			a.TTFT += t
		}
	}
}

func ticks(s float64) tick.Ticks {
	if !(s > 0) {
		return 0
	}
	return tick.FromSeconds(min(s, tick.Max.Seconds()))
}

// Series returns what was recorded, once the run is over.
func (r *Recorder) Series() *Series {
	s := &r.series
	r.reach(r.end)
	s.Bucket, s.End = r.clock.width.Seconds(), r.end.Seconds()
	s.Adapters, s.Latencies = r.adapters, r.lat
	used := int((r.end + r.clock.width - 1) / r.clock.width)
	s.Workers = nil
	for i := range r.workers {
		s.Workers = append(s.Workers, r.workers[i].means(used, r.clock.width, r.end))
	}
	if r.place != nil {
		s.Placement = r.place.finish(r.end)
	}
	return s
}

// means divides the sums by the length of the buckets; the last one ends with
// the run.
func (w *workerSums) means(used int, width, end tick.Ticks) Worker {
	out := Worker{QueuedMax: w.max[:used:used], Loads: w.loads[:used:used]}
	for i := range used {
		length := float64(min(width, end-width*tick.Ticks(i)))
		out.Queued = append(out.Queued, w.queued[i]/length)
		out.Running = append(out.Running, w.running[i]/length)
	}
	return out
}
