package steady

import (
	"math"

	"lorasim/sim/record"
)

// A Recorder counts the requests of a run over time, in bounded memory. A run of any length
// has a limited number of time slots. When it outgrows them, each two become one. Requests
// may come in any order.
//
// A Recorder is not safe for concurrent use.
type Recorder struct {
	// Period is the time after which the arrival rate repeats, s; 0: it does not.
	Period float64

	nonStreaming bool
	slots        series[slot, *slot]
	workers      []series[workerSlot, *workerSlot] // by index + 1; index 0 has requests that never reached a worker

	requests    int64
	lastArrival float64 // s, last scheduled arrival
	lastSent    float64 // s
	end         float64 // s, last finish
}

// slot counts what happened in a span of time.
type slot struct {
	arrived  int64 // requests scheduled
	sent     int64
	begun    int64 // requests that left the queue: with a first token, or by ending without one
	finished int64 // requests that ended, however they ended

	// Of the successful requests sent in the slot:
	done       int64
	ttft, e2e  float64 // s, summed
	ttftSquare float64 // s², summed
	e2eSquare  float64 // s², summed
	decoded    int64   // requests of at least two tokens
	tpot       float64 // s, summed over those
}

func (s *slot) add(o *slot) {
	s.arrived += o.arrived
	s.sent += o.sent
	s.begun += o.begun
	s.finished += o.finished
	s.done += o.done
	s.ttft += o.ttft
	s.e2e += o.e2e
	s.ttftSquare += o.ttftSquare
	s.e2eSquare += o.e2eSquare
	s.decoded += o.decoded
	s.tpot += o.tpot
}

// workerSlot counts what happened to the requests that ended on one worker.
type workerSlot struct{ sent, begun, finished int64 }

func (s *workerSlot) add(o *workerSlot) {
	s.sent += o.sent
	s.begun += o.begun
	s.finished += o.finished
}

// The largest numbers of slots of a run, and of each worker.
const (
	maxSlots       = 2048
	maxWorkerSlots = 128
)

// firstWidth is the initial width of a slot, s. It is a power of two, so every width divides
// all larger ones.
const firstWidth = 1.0 / 256

// NewRecorder returns a recorder for one run. nonStreaming says that the client waits for
// whole replies, so that TTFT is E2E.
func NewRecorder(nonStreaming bool) *Recorder {
	return &Recorder{nonStreaming: nonStreaming, slots: newSeries[slot, *slot](maxSlots)}
}

// Done adds a request that ended.
func (r *Recorder) Done(q *record.Request) {
	arrival, sent, finish := known(q.Arrival), known(q.Sent), known(q.Finish)
	if q.Arrival > q.Sent {
		arrival = sent
	}
	r.requests++
	r.lastArrival = max(r.lastArrival, arrival)
	r.lastSent = max(r.lastSent, sent)
	never := q.Status == record.Unfinished // cut off at the end of the run
	begun, waits := known(q.FirstToken), false
	if math.IsNaN(q.FirstToken) {
		begun, waits = finish, never
	}

	r.end = max(r.end, finish)
	last := max(arrival, sent, begun, finish)
	r.slots.fit(last)
	r.slots.at(arrival).arrived++
	s := r.slots.at(sent)
	s.sent++
	w := r.worker(q.WorkerLast, last)
	w.at(sent).sent++
	if !waits {
		r.slots.at(begun).begun++
		w.at(begun).begun++
	}
	if !never {
		r.slots.at(finish).finished++
		w.at(finish).finished++
	}
	if q.Status == record.OK {
		ttft, e2e := begun-sent, finish-sent
		if r.nonStreaming {
			ttft = e2e
		}
		s.done++
		s.ttft += ttft
		s.ttftSquare += ttft * ttft
		s.e2e += e2e
		s.e2eSquare += e2e * e2e
		if q.Output > 1 {
			s.decoded++
			s.tpot += (e2e - ttft) / float64(q.Output-1)
		}
	}
}

// known returns t, or 0 if t is unknown. It limits t to 1e15 s.
func known(t float64) float64 {
	if !(t > 0) {
		return 0
	}
	return min(t, 1e15)
}

// worker returns the series of a worker, with room for time last. Requests that never
// reached a worker share one series.
func (r *Recorder) worker(i int32, last float64) *series[workerSlot, *workerSlot] {
	for int(i)+1 >= len(r.workers) {
		r.workers = append(r.workers, newSeries[workerSlot](maxWorkerSlots))
	}
	w := &r.workers[i+1]
	w.fit(last)
	return w
}

// adder is a pointer to a slot type with a method that adds another slot.
type adder[S any] interface {
	*S
	add(*S)
}

// series is a limited number of slots of equal width, from time 0 on.
type series[S any, P adder[S]] struct {
	width   float64 // s
	inverse float64 // 1/width, exact: widths are powers of two
	most    int
	slots   []S
}

func newSeries[S any, P adder[S]](most int) series[S, P] {
	return series[S, P]{width: firstWidth, inverse: 1 / firstWidth, most: most}
}

// fit makes room for time t. It may move slots.
func (s *series[S, P]) fit(t float64) {
	if int(t*s.inverse) >= len(s.slots) {
		s.grow(t)
	}
}

func (s *series[S, P]) grow(t float64) {
	for int(t*s.inverse) >= s.most {
		s.halve()
	}
	n := int(t*s.inverse) + 1
	if n > cap(s.slots) {
		s.slots = append(make([]S, 0, min(2*n, s.most)), s.slots...)
	}
	s.slots = s.slots[:max(n, len(s.slots))] // the slots added are empty
}

// at returns the slot of time t, which must fit.
func (s *series[S, P]) at(t float64) *S { return &s.slots[int(t*s.inverse)] }

// halve merges each two slots into one.
func (s *series[S, P]) halve() {
	n := (len(s.slots) + 1) / 2
	for i := range n {
		if i > 0 {
			s.slots[i] = s.slots[2*i]
		}
		if 2*i+1 < len(s.slots) {
			P(&s.slots[i]).add(&s.slots[2*i+1])
		}
	}
	clear(s.slots[n:])
	s.slots = s.slots[:n]
	s.width *= 2
	s.inverse /= 2
}
