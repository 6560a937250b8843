package series

import (
	"math"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/trace"
)

// FromRecords returns what records tell of a run over time. A request counts as
// queued from when it was sent to its first token, and as running from there to
// its end, on the worker that it ended on; without a first token (clients that
// did not stream) it counts as running all the while. Where adapters lay is not
// in records.
func FromRecords(rs []record.Request, adapters []trace.Adapter) *Series {
	r := NewRecorder(0)
	r.adapters = adapters
	r.series.ByAdapter = make([]AdapterLoad, len(adapters)+1)
	var points []point
	for i := range rs {
		q := &rs[i]
		r.lat.Done(q)
		r.series.count(q)
		r.end = max(r.end, ticks(q.Finish))
		if q.WorkerLast < 0 || q.WorkerLast >= maxWorkers || !(q.Finish >= q.Sent) {
			continue
		}
		r.addWorkers(int(q.WorkerLast) + 1)
		points = append(points, life(q)...)
	}
	r.reach(r.end)
	for _, p := range points {
		w := &r.workers[p.worker]
		s := w.running
		if p.queued {
			s = w.queued
		}
		r.clock.each(p.from, p.to, func(i int, d tick.Ticks) { s.add(i, float64(d)) })
	}
	s := r.Series()
	for i := range s.Workers {
		s.Workers[i].QueuedMax, s.Workers[i].Loads = nil, nil
	}
	return s
}

// maxWorkers guards against nonsense in record files.
const maxWorkers = 1 << 12

// point is a request in one state.
type point struct {
	worker   int32
	queued   bool
	from, to tick.Ticks
}

func life(q *record.Request) []point {
	sent, finish := ticks(q.Sent), ticks(q.Finish)
	first := ticks(q.FirstToken)
	if math.IsNaN(q.FirstToken) || first >= finish || first < sent {
		return []point{{q.WorkerLast, false, sent, finish}}
	}
	return []point{{q.WorkerLast, true, sent, first}, {q.WorkerLast, false, first, finish}}
}
