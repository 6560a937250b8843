package steady

import (
	"cmp"
	"math"
	"slices"
)

// busyShare is the least share of its largest length at which a queue counts as busy.
const busyShare = 0.1

// sustainable returns the largest arrival rate that the workers sustain, from the rate at
// which they finish requests while others wait; 0 if unknown.
//
// A worker's rate, divided by its share of the requests, is the arrival rate at which the
// worker is at its capacity. With policies that send requests to workers with room, this
// rate is the same for all workers. With other policies the smallest rate is the limit.
func (r *Recorder) sustainable() float64 {
	decoding := r.decoding()
	total := r.served(decoding)
	if total == nil {
		return 0
	}
	var list []served
	var waiting float64
	for i := 1; i < len(r.workers); i++ {
		if s := servedOf(r.workers[i].slots, r.workers[i].width, decoding, func(s *workerSlot) (in, begun, out int64) {
			return s.sent, s.begun, s.finished
		}); s != nil {
			s.share = float64(s.in) / float64(r.requests)
			list = append(list, *s)
			waiting += s.queue
		}
	}
	if waiting < total.queue/2 { // most requests wait before they reach a worker
		return total.rate
	}
	return limit(list)
}

// served describes the requests that a worker, or a cluster, finished while requests waited.
type served struct {
	rate  float64 // requests/s
	queue float64 // largest length of the queue
	out   float64 // requests finished at that rate
	in    int64   // requests that arrived
	share float64 // share of all requests
}

// limit returns the arrival rate at which the first worker is at its capacity. It is the
// common rate of all workers whose queues grew, unless some have a significantly lower
// rate.
func limit(list []served) float64 {
	longest := 0.0
	for _, s := range list {
		longest = max(longest, s.queue)
	}
	list = slices.DeleteFunc(list, func(s served) bool { return s.queue < busyShare*longest || s.share == 0 })
	slices.SortFunc(list, func(a, b served) int { return cmp.Compare(a.rate/a.share, b.rate/b.share) })
	pooled := func(list []served) float64 {
		var rate, share float64
		for _, s := range list {
			rate, share = rate+s.rate, share+s.share
		}
		return rate / share
	}
	if len(list) == 0 {
		return 0
	}
	for k := 1; k < len(list); k++ {
		low, high := pooled(list[:k]), pooled(list[k:])
		var lowOut, highOut float64
		for i, s := range list {
			if i < k {
				lowOut += s.out
			} else {
				highOut += s.out
			}
		}
		// the numbers of finished requests vary like Poisson counts, or less
		noise := math.Sqrt(low*low/lowOut + high*high/highOut)
		if gap := high - low; gap > 4*noise && gap > 0.1*low {
			return limit(slices.Clone(list[:k]))
		}
	}
	return pooled(list)
}

// served describes the requests that all workers finished; see servedOf.
func (r *Recorder) served(decoding float64) *served {
	arrived := func(s *slot) (in, begun, out int64) { return s.arrived, s.begun, s.finished }
	if r.closed() {
		arrived = func(s *slot) (in, begun, out int64) { return s.sent, s.begun, s.finished }
	}
	return servedOf(r.slots.slots, r.slots.width, decoding, arrived)
}

// decoding returns the mean time from a request's first token to its last, s.
func (r *Recorder) decoding() float64 {
	var all slot
	for i := range r.slots.slots {
		all.add(&r.slots.slots[i])
	}
	if all.done == 0 {
		return 0
	}
	return (all.e2e - all.ttft) / float64(all.done)
}

// servedOf counts the requests that finished between the first and the last time at which
// the queue was busy; see busyShare. The first of them began earlier. So it leaves out the
// time that a request takes, at most half of the whole. It returns nil if the queue
// was always shorter than minGrowth.
func servedOf[S any](slots []S, width, decoding float64, of func(*S) (in, begun, out int64)) *served {
	queues := make([]int64, len(slots))
	var queue, longest, all int64
	for i := range slots {
		in, begun, _ := of(&slots[i])
		queue += in - begun
		all += in
		queues[i] = queue
		longest = max(longest, queue)
	}
	if longest < minGrowth {
		return nil
	}
	busy := func(q int64) bool { return float64(q) >= busyShare*float64(longest) }
	first := slices.IndexFunc(queues, busy)
	last := len(queues) - 1
	for !busy(queues[last]) {
		last--
	}
	first += min(int(math.Ceil(decoding/width)), (last-first)/2)
	if last <= first {
		return nil
	}
	s := &served{queue: float64(longest), in: all}
	for i := first + 1; i <= last; i++ {
		_, _, out := of(&slots[i])
		s.out += float64(out)
	}
	s.rate = s.out / (float64(last-first) * width)
	return s
}
