package series

import (
	"math"
	"slices"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// maxBuckets is the largest number of time buckets of a series.
const maxBuckets = 512

// firstWidth is the initial width of a bucket.
const firstWidth = tick.Second / 64

// A Recorder records a run as a Series, from the events of the run. Pass [Recorder.Watching] as
// the Watch field of scenario.RunOptions, or of live.Options.
type Recorder struct {
	width   tick.Ticks // of a bucket; doubled when the run outgrows the buckets
	workers []workerSums
	starts  map[int]bool // workers that are starting
	shrinks bool         // some worker was off
	place   *placer      // nil before the run began
	series  Series
	end     tick.Ticks

	changes int // number of plans that changed something
	every   int // interval at which such plans are kept; 0: all plans are kept
}

// workerSums holds sums by bucket: queued and running in requests x ticks, max in requests,
// loads as a count, off in ticks.
type workerSums struct{ queued, running, max, loads, off []float64 }

// NewRecorder returns a recorder for a run on the given number of workers.
func NewRecorder(workers int) *Recorder {
	r := &Recorder{width: firstWidth, series: Series{Latencies: NewLatencies()}}
	r.addWorkers(workers)
	return r
}

func (r *Recorder) addWorkers(n int) {
	for len(r.workers) < n {
		sums := func() []float64 { return make([]float64, maxBuckets) }
		r.workers = append(r.workers, workerSums{sums(), sums(), sums(), sums(), sums()})
	}
}

// Watching begins a recording and returns the events that it needs. It has the type of the Watch
// field of scenario.RunOptions.
func (r *Recorder) Watching(adapters []trace.Adapter) record.Watcher {
	r.series.Adapters = adapters
	r.series.Requests = make([]int64, len(adapters)+1)
	return record.Watcher{Kinds: record.EventState | record.EventEnded | record.EventTier | record.EventPlan |
		record.EventPower, Note: r.note}
}

// note adds an event to the series.
func (r *Recorder) note(e *record.Event) {
	switch e.Kind {
	case record.EventState:
		r.state(e.From, e.Until, e.View)
	case record.EventEnded:
		r.done(e.Request)
	case record.EventTier:
		r.tier(e.At, int(e.Worker), e.Adapter, e.Tier)
	case record.EventPlan:
		r.plan(e.Plan)
	case record.EventPower:
		if r.starts == nil {
			r.starts = map[int]bool{}
		}
		r.starts[int(e.Worker)] = e.Power == record.Starting
	}
}

// state adds the queues and running requests of the workers between two instants.
func (r *Recorder) state(from, to tick.Ticks, v *router.View) {
	if r.place == nil {
		r.place = newPlacer(v)
	}
	r.reach(to)
	for w := range v.Workers {
		if v := &v.Workers[w]; !v.Up && v.Draining && !r.starts[w] {
			r.shrinks = true
			r.each(from, to, func(i int, d float64) { r.workers[w].off[i] += d })
		}
		s, q, run := &r.workers[w], float64(v.Workers[w].Queued), float64(v.Workers[w].Running)
		if q == 0 && run == 0 {
			continue
		}
		r.each(from, to, func(i int, d float64) {
			s.queued[i] += q * d
			s.running[i] += run * d
			s.max[i] = max(s.max[i], q)
		})
	}
	r.end = max(r.end, to)
}

// reach doubles the width of the buckets until they hold time t. Each two become one.
func (r *Recorder) reach(t tick.Ticks) {
	for t > r.width*maxBuckets {
		r.width *= 2
		for _, w := range r.workers {
			for i := range maxBuckets / 2 {
				w.max[i] = max(w.max[2*i], w.max[2*i+1])
				for _, s := range [][]float64{w.queued, w.running, w.loads, w.off} {
					s[i] = s[2*i] + s[2*i+1]
				}
			}
			for _, s := range [][]float64{w.queued, w.running, w.max, w.loads, w.off} {
				clear(s[maxBuckets/2:])
			}
		}
	}
}

// each calls f for every bucket that overlaps from..to, with the length of the overlap in
// ticks.
func (r *Recorder) each(from, to tick.Ticks, f func(bucket int, d float64)) {
	for from < to {
		i := from / r.width
		end := min(to, (i+1)*r.width)
		f(int(i), float64(end-from))
		from = end
	}
}

// tier counts adapter loads and records the placement.
func (r *Recorder) tier(at tick.Ticks, worker int, adapter int32, t router.Tier) {
	if r.place == nil {
		return
	}
	r.reach(at)
	if t == router.GPU {
		r.workers[worker].loads[min(at/r.width, maxBuckets-1)]++
	}
	r.place.tier(at, worker, adapter, t)
}

// plan records a plan. Beyond a limit it drops plans that change nothing, and keeps only every
// n-th of the others.
func (r *Recorder) plan(p *record.Plan) {
	s, plan := &r.series, newPlan(p, r.series.Adapters)
	if len(s.Plans) == maxPlans {
		r.thin()
	}
	if !plan.Empty() {
		r.changes++
	}
	if r.every > 0 && (plan.Empty() || (r.changes-1)%r.every != 0) {
		s.PlansLeft++
		return
	}
	s.Plans = append(s.Plans, plan)
}

// thin makes room for plans. It drops those that changed nothing and, if that is not
// enough, every second one of the others.
func (r *Recorder) thin() {
	s, before := &r.series, len(r.series.Plans)
	s.Plans, r.every = slices.DeleteFunc(s.Plans, func(p Plan) bool { return p.Empty() }), max(r.every, 1)
	if n := len(s.Plans); n > maxPlans/2 {
		for i := 0; i < n; i += 2 {
			s.Plans[i/2] = s.Plans[i]
		}
		s.Plans, r.every = s.Plans[:(n+1)/2], 2*r.every
	}
	s.PlansLeft += before - len(s.Plans)
}

// done records the end of a request.
func (r *Recorder) done(q *record.Request) {
	s := &r.series
	s.Latencies.Done(q)
	r.end = max(r.end, record.Ticks(q.Finish))
	i := int(q.Adapter)
	if i < 0 || i >= len(s.Requests) {
		i = len(s.Requests) - 1
	}
	s.Requests[i]++
}

// Series returns the recorded series. Call it after the run.
func (r *Recorder) Series() *Series {
	s := &r.series
	r.reach(r.end)
	s.Bucket, s.End = r.width.Seconds(), r.end.Seconds()
	used := int((r.end + r.width - 1) / r.width)
	s.Workers = nil
	for i := range r.workers {
		w := &r.workers[i]
		out := Worker{
			Queued: make([]float64, used), Running: make([]float64, used), QueuedMax: w.max[:used:used],
			Loads: w.loads[:used:used],
		}
		if r.shrinks {
			out.On = make([]float64, used)
		}
		for i := range used { // the last one ends with the run
			length := float64(min(r.width, r.end-r.width*tick.Ticks(i)))
			out.Queued[i], out.Running[i] = w.queued[i]/length, w.running[i]/length
			if r.shrinks {
				out.On[i] = 1 - w.off[i]/length
			}
		}
		s.Workers = append(s.Workers, out)
	}
	if r.place != nil {
		s.Placement = r.place.finish(r.end)
	}
	return s
}

// maxWorkers is the limit of worker numbers, against wrong record files.
const maxWorkers = 1 << 12

// FromRecords returns the series of a run from its records. A request counts as queued from
// the time it was sent to its first token, and as running from there to its end, on the
// worker where it ended. Without a first token, as from clients that do not stream, it
// counts as running all the time. The series has no placement, plans, adapter loads or
// QueuedMax, since records do not contain them.
func FromRecords(rs []record.Request, adapters []trace.Adapter) *Series {
	r := NewRecorder(0)
	r.Watching(adapters)
	ran := func(q *record.Request) bool {
		return q.WorkerLast >= 0 && q.WorkerLast < maxWorkers && q.Finish >= q.Sent
	}
	for i := range rs {
		r.done(&rs[i])
		if ran(&rs[i]) {
			r.addWorkers(int(rs[i].WorkerLast) + 1)
		}
	}
	r.reach(r.end)
	for i := range rs {
		q := &rs[i]
		if !ran(q) {
			continue
		}
		w := &r.workers[q.WorkerLast]
		sent, first, finish := record.Ticks(q.Sent), record.Ticks(q.FirstToken), record.Ticks(q.Finish)
		if math.IsNaN(q.FirstToken) || first >= finish || first < sent {
			first = sent
		}
		r.each(sent, first, func(i int, d float64) { w.queued[i] += d })
		r.each(first, finish, func(i int, d float64) { w.running[i] += d })
	}
	s := r.Series()
	for i := range s.Workers {
		s.Workers[i].QueuedMax, s.Workers[i].Loads = nil, nil
	}
	return s
}
