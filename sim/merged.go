package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/tick"
	"lorasim/sim/engine/dlora"
	"lorasim/sim/profile"
)

// Merged execution: an adapter is added into the model's weights, so that its
// requests run at the speed of the base model, and no others can. Backend dlora
// changes between this and unmerged execution, where all adapters run together
// and every step pays for it, see [dlora.Credits]. Backend merged never runs
// dlora.Unmerged: each decode step gives an adapter one credit for each of its
// requests that it passes over, and once an adapter has enough of them the
// worker changes to the one that has most.
//
// Requests that are passed over after their prompt keep their memory and their
// seat in the batch: they are parked. Modes change between steps only.
type execution struct {
	row     int32          // merged into the weights; dlora.Unmerged: -1
	credit  []int64        // by row of the adapter table
	passed  []int64        // by row: its requests that the steps now pass over
	since   int64          // worker's decode steps when passed was counted
	fresh   bool           // no step has begun since the mode changed
	decided bool           // nor since credits were last asked
	only    bool           // backend merged
	dlora   *dlora.Credits // backend dlora
	limit   int64          // credits that end a merged mode
	parked  []*request     // wait for their mode, in the order they came
}

func (w *worker) initExecution() {
	w.eng.LoraDrainWait = 0 // credits take the drainer's place
	n := len(w.s.adapters) + 1
	l := &w.costs.Profile().Latency.LoRA
	w.exec = &execution{row: dlora.Unmerged, credit: make([]int64, n), passed: make([]int64, n), since: w.steps,
		only: l.Backend == profile.BackendMerged, limit: l.SwitchCredit}
	if !w.exec.only {
		seats := int64(w.eng.MaxRunningRequests)
		w.exec.dlora = dlora.New(n, int(seats), l.CreditScale, w.costs.Step(&profile.StepWork{Batch: seats}),
			w.costs.Step(&profile.StepWork{Batch: seats, LoRAs: seats}), w.costs.Switch)
	}
}

// pending is the number of requests of a row in the engine.
func (w *worker) pending(row int32) int64 {
	n := w.v.Load()
	if w.isLoRA(row) {
		n = int(w.v.Adapters[row].Running + w.v.Adapters[row].Queued)
	} else {
		for _, st := range w.v.Adapters {
			n -= int(st.Running + st.Queued)
		}
	}
	for _, r := range w.door.queue {
		if r.Adapter == row {
			n--
		}
	}
	return int64(n)
}

// chooseMode changes the mode before a step if it is time to, and returns how
// long that takes.
func (w *worker) chooseMode() (takes tick.Ticks) {
	e := w.exec
	if e.dlora != nil {
		return w.chooseByCredits()
	}
	for row := range e.credit {
		e.credit[row] += (w.steps - e.since) * e.passed[row]
	}
	if to := w.nextMode(); to != e.row {
		takes = w.setMode(to)
	}
	w.countPassed()
	return takes
}

// chooseByCredits is chooseMode under backend dlora. A step is an iteration.
func (w *worker) chooseByCredits() (takes tick.Ticks) {
	e := w.exec
	e.dlora.Repeat(max(w.steps-e.since-1, 0))
	e.since = w.steps
	all := w.seats() + w.queue.n
	if all == 0 || e.row != dlora.Unmerged && w.pending(e.row) == 0 {
		e.decided = false // nothing came of it
	}
	if e.decided || w.chunked != nil || all == 0 {
		return 0
	}
	e.decided = true
	e.dlora.Row = e.row
	if to := e.dlora.Iterate(w.inOrder()); to != e.row {
		return w.setMode(to)
	}
	return 0
}

// inOrder gives the rows of all requests on the worker in the order in which
// they came to it.
func (w *worker) inOrder() (rows []int32) {
	all := slices.Concat(w.running(), w.exec.parked, w.queue.all())
	slices.SortFunc(all, func(a, b *request) int { return cmp.Compare(a.seq, b.seq) })
	for _, r := range all {
		rows = append(rows, r.Adapter)
	}
	return rows
}

// countPassed notes which requests the steps from now on pass over.
func (w *worker) countPassed() {
	e := w.exec
	e.since = w.steps
	for row := range e.passed {
		e.passed[row] = 0
		if e.row != dlora.Unmerged && int32(row) != e.row {
			e.passed[row] = w.pending(int32(row))
		}
	}
}

// nextMode is the mode for the next step under backend merged: the present one
// until it has no requests or another adapter has credits enough.
func (w *worker) nextMode() int32 {
	e := w.exec
	switch {
	case w.chunked != nil || w.v.Running+w.v.Queued == len(w.door.queue):
		return e.row
	case e.row == dlora.Unmerged || w.pending(e.row) == 0:
		return w.mostCredits()
	case e.fresh:
		return e.row
	}
	for row, c := range e.credit {
		if c >= e.limit && w.pending(int32(row)) > 0 {
			return w.mostCredits()
		}
	}
	return e.row
}

// mostCredits is the row with most credits, of equals the one with most
// requests.
func (w *worker) mostCredits() int32 {
	e := w.exec
	best, most, credit := dlora.Unmerged, int64(0), int64(-1)
	for row, c := range e.credit {
		n := w.pending(int32(row))
		if n > 0 && (c > credit || c == credit && n > most) {
			best, most, credit = int32(row), n, c
		}
	}
	return best
}

// setMode changes the mode: requests that it does not run are parked, those
// parked that it runs go on. It returns how long the change takes: nothing
// where the weights stay as they are.
func (w *worker) setMode(to int32) tick.Ticks {
	e := w.exec
	base := int32(len(w.s.adapters))
	plain := (e.row == dlora.Unmerged || e.row == base) && (to == dlora.Unmerged || to == base)
	e.row, e.fresh = to, true
	if to == dlora.Unmerged {
		clear(e.credit)
	} else {
		e.credit[to] = 0
	}
	w.reopen()
	for k := 0; k < len(w.batch); k++ {
		if r := w.batch[k].Value; to != dlora.Unmerged && r.Adapter != to {
			w.park(r)
			k = -1 // the heap has changed
		}
	}
	e.parked = slices.DeleteFunc(e.parked, func(r *request) bool {
		runs := to == dlora.Unmerged || r.Adapter == to
		if runs {
			w.rejoin(r)
		}
		return runs
	})
	if plain {
		return 0
	}
	return w.costs.Switch
}

// park takes a request out of the batch with its memory.
func (w *worker) park(r *request) {
	w.unbatch(r)
	r.state = filling // neither waiting nor running: it stays
	at, _ := slices.BinarySearchFunc(w.exec.parked, r.seq, func(o *request, seq int64) int { return cmp.Compare(o.seq, seq) })
	w.exec.parked = slices.Insert(w.exec.parked, at, r)
}

// dropParked returns the latest of the parked requests to the queue, so that
// others find memory.
func (w *worker) dropParked() {
	e := w.exec
	r := e.parked[len(e.parked)-1]
	e.parked = e.parked[:len(e.parked)-1]
	w.free(r)
	w.putBack(r, false)
}

// resume changes to a mode that runs parked requests, when the present one
// finds nothing that it could run. It returns how long that takes.
func (w *worker) resume() tick.Ticks {
	to := dlora.Unmerged
	if w.exec.only {
		to = w.exec.parked[0].Adapter
	}
	takes := w.setMode(to)
	w.countPassed()
	return takes
}

// stepsInMode is the number of decode steps, at least 1, until the mode may
// change: an adapter has the credits that end it, or it has just begun.
func (w *worker) stepsInMode() int64 {
	e := w.exec
	if e.fresh {
		return 1
	}
	if e.dlora != nil {
		return e.dlora.Quiet()
	}
	least := int64(math.MaxInt64)
	for row, n := range e.passed {
		if n > 0 {
			least = min(least, (e.limit-e.credit[row]+n-1)/n)
		}
	}
	return max(least, 1)
}
