package sglang

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/sim/engine"
	"lorasim/sim/engine/dlora"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// modes implements merged execution. An adapter is merged into the model's weights, so that its requests run
// at the speed of the base model and no others can run.
//
// Backend dlora changes between merged and unmerged execution; see [dlora.Credits]. In unmerged execution all
// adapters run together, and every step takes longer. Backend merged never runs unmerged. Each decode step
// gives an adapter one credit for each of its requests that the step passes over. Once an adapter has limit
// credits, the engine changes to the adapter with the most credits.
//
// Requests that are passed over after their prompt are parked: they keep their memory and their seat in the
// batch. Modes change only between steps.
type modes struct {
	s       *Scheduler
	row     int32             // merged into the weights; unmerged: -1
	credit  []int64           // by index of the adapter
	passed  []int64           // by index: requests that the steps now pass over
	since   int64             // decode steps when passed was counted
	fresh   bool              // no step has begun since the mode changed
	decided bool              // backend dlora: nor since the credits last decided
	only    bool              // backend merged
	credits *dlora.Credits    // backend dlora
	limit   int64             // credits that end a merged mode
	parked  []*engine.Request // wait for their mode, in the order they came
}

const unmerged = dlora.Unmerged

func newModes(s *Scheduler) *modes {
	costs := s.e.Costs
	n := len(s.e.Books.Adapters) + 1
	l := &costs.Profile().Latency.LoRA
	m := &modes{s: s, row: unmerged, credit: make([]int64, n), passed: make([]int64, n),
		since: s.e.Batch.Steps, // after an outage the engine has taken steps, but this process has not
		only:  l.Backend == profile.BackendMerged, limit: l.SwitchCredit}
	if !m.only {
		seats := int64(s.profile.MaxRunningRequests)
		m.credits = dlora.New(n, int(seats), l.CreditScale, costs.Step(&profile.StepWork{Batch: seats}),
			costs.Step(&profile.StepWork{Batch: seats, LoRAs: seats}), costs.Switch)
	}
	return m
}

// pending returns the number of requests of an adapter in the engine.
func (m *modes) pending(row int32) int64 {
	e := m.s.e
	v := &e.Books
	n := v.Load()
	if int(row) < v.NumAdapters() {
		st := v.Adapter(row)
		n = int(st.Running + st.Queued)
	} else {
		for _, st := range v.InFlight() {
			n -= int(st.Running + st.Queued)
		}
	}
	if e.FrontEnd.Len() > 0 {
		n -= e.FrontEnd.Of(e.Rows.Of(row))
	}
	return int64(n)
}

// choose changes the mode before a step if it is due. It returns the time of the change.
func (m *modes) choose() (takes tick.Ticks) {
	if m.credits != nil {
		return m.chooseByCredits()
	}
	steps := m.s.e.Batch.Steps
	for row := range m.credit {
		m.credit[row] += (steps - m.since) * m.passed[row]
	}
	if to := m.nextMode(); to != m.row {
		takes = m.change(to)
	}
	m.countPassedOver()
	return takes
}

// chooseByCredits is choose for backend dlora. A step is an iteration.
func (m *modes) chooseByCredits() (takes tick.Ticks) {
	e := m.s.e
	m.credits.Repeat(max(e.Batch.Steps-m.since-1, 0))
	m.since = e.Batch.Steps
	all := m.s.Running() + e.Queue.Len()
	if all == 0 || m.row != unmerged && m.pending(m.row) == 0 {
		m.decided = false // nothing came of it
	}
	if m.decided || m.s.chunkedReq != nil || all == 0 {
		return 0
	}
	m.decided = true
	m.credits.Row = m.row
	if to := m.credits.Iterate(m.arrivalOrder()); to != m.row {
		return m.change(to)
	}
	return 0
}

// arrivalOrder returns the adapters of all requests on the engine, in the order of their arrival.
func (m *modes) arrivalOrder() (rows []int32) {
	all := slices.AppendSeq(slices.Concat(m.s.e.Batch.Requests(), m.parked), m.s.e.Queue.All())
	slices.SortFunc(all, func(a, b *engine.Request) int { return cmp.Compare(a.Seq(), b.Seq()) })
	for _, r := range all {
		rows = append(rows, r.Adapter)
	}
	return rows
}

// countPassedOver counts the requests that steps pass over from now on.
func (m *modes) countPassedOver() {
	m.since = m.s.e.Batch.Steps
	for row := range m.passed {
		m.passed[row] = 0
		if m.row != unmerged && int32(row) != m.row {
			m.passed[row] = m.pending(int32(row))
		}
	}
}

// nextMode returns the mode for the next step under backend merged. The present one stays until it has no
// requests, or another adapter has limit credits.
func (m *modes) nextMode() int32 {
	v := &m.s.e.Books
	switch {
	case m.s.chunkedReq != nil || v.Running+v.Queued == m.s.e.FrontEnd.Len():
		return m.row
	case m.row == unmerged || m.pending(m.row) == 0:
		return m.mostCredits()
	case m.fresh:
		return m.row
	}
	for row, c := range m.credit {
		if c >= m.limit && m.pending(int32(row)) > 0 {
			return m.mostCredits()
		}
	}
	return m.row
}

// mostCredits returns the adapter with the most credits, and among equals the one with the most requests.
func (m *modes) mostCredits() int32 {
	best, most, credit := unmerged, int64(0), int64(-1)
	for row, c := range m.credit {
		n := m.pending(int32(row))
		if n > 0 && (c > credit || c == credit && n > most) {
			best, most, credit = int32(row), n, c
		}
	}
	return best
}

// change changes the mode. It parks running requests that the new mode does not run, and resumes parked ones
// that it runs. It returns the time of the change: 0 if the weights stay as they are.
func (m *modes) change(to int32) tick.Ticks {
	e := m.s.e
	base := int32(len(e.Books.Adapters))
	plain := (m.row == unmerged || m.row == base) && (to == unmerged || to == base)
	m.row, m.fresh, e.Merged = to, true, to != unmerged
	if to == unmerged {
		clear(m.credit)
	} else {
		m.credit[to] = 0
	}
	e.Gate.RequestLeft()
	for k := 0; k < e.Batch.Len(); k++ {
		if r := e.Batch.At(k); to != unmerged && r.Adapter != to {
			m.park(r)
			k = -1 // the heap has changed
		}
	}
	m.parked = slices.DeleteFunc(m.parked, func(r *engine.Request) bool {
		runs := to == unmerged || r.Adapter == to
		if runs {
			e.ResumeDecoding(r)
		}
		return runs
	})
	if plain {
		return 0
	}
	return e.Costs.Switch
}

// park removes a request from the batch. The request keeps its memory.
func (m *modes) park(r *engine.Request) {
	m.s.e.StopDecoding(r)
	at, _ := slices.BinarySearchFunc(m.parked, r.Seq(), func(o *engine.Request, seq int64) int {
		return cmp.Compare(o.Seq(), seq)
	})
	m.parked = slices.Insert(m.parked, at, r)
}

// retract returns the latest parked request to the queue, to free memory.
func (m *modes) retract() {
	r := m.parked[len(m.parked)-1]
	m.parked = m.parked[:len(m.parked)-1]
	m.s.e.Free(r)
	m.s.e.Preempt(r, false)
}

// resume changes to a mode that runs parked requests, when the present one has no request to run. It returns
// the time of the change.
func (m *modes) resume() tick.Ticks {
	to := unmerged
	if m.only {
		to = m.parked[0].Adapter
	}
	takes := m.change(to)
	m.countPassedOver()
	return takes
}

// next is nextWaiting in a merged mode.
func (m *modes) next() *engine.Request {
	l, a := &m.s.e.LoRA, m.s.e.Rows.Of(m.row)
	r := a.Head()
	if r == nil || !l.CanRun(&a.Adapter) {
		return nil
	}
	if l.MustLoad(&a.Adapter) {
		l.StartLoad(&a.Adapter)
		return nil
	}
	return r
}

// stepLimit returns the number of decode steps until the mode may change: until an adapter has limit credits,
// at least 1, and 1 directly after a change.
func (m *modes) stepLimit() int64 {
	if m.fresh {
		return 1
	}
	if m.credits != nil {
		return m.credits.Quiet()
	}
	least := int64(math.MaxInt64)
	for row, n := range m.passed {
		if n > 0 {
			least = min(least, (m.limit-m.credit[row]+n-1)/n)
		}
	}
	return max(least, 1)
}

// check checks that exactly the requests that the mode does not run are parked, in the order of their
// arrival.
func (m *modes) check() error {
	for k, r := range m.parked {
		if r.State() != engine.Filling || m.row == unmerged || r.Adapter == m.row ||
			k > 0 && m.parked[k-1].Seq() > r.Seq() {
			return fmt.Errorf("sglang: request %d of adapter %d is parked in mode %d", r.ID, r.Adapter, m.row)
		}
	}
	for k := range m.s.e.Batch.Len() {
		if r := m.s.e.Batch.At(k); m.row != unmerged && r.Adapter != m.row {
			return fmt.Errorf("sglang: request %d of adapter %d decodes in mode %d", r.ID, r.Adapter, m.row)
		}
	}
	if m.credits != nil {
		return m.credits.Check()
	}
	return nil
}
