package sim

import (
	"cmp"
	"math"
	"slices"

	"lorasim/internal/tick"
	"lorasim/sim/profile"
)

// Merged execution: an adapter is added into the model's weights, so that its
// requests run at the speed of the base model, and no others can. Backend dlora
// changes between this and unmerged execution, where all adapters run together
// and every step pays for it, see [credits]. Backend merged never runs
// unmerged: each decode step gives an adapter one credit for each of its
// requests that it passes over, and once an adapter has enough of them the
// worker changes to the one that has most.
//
// Requests that are passed over after their prompt keep their memory and their
// seat in the batch: they are parked. Modes change between steps only.
type execution struct {
	row     int32      // merged into the weights; unmerged: -1
	credit  []int64    // by row of the adapter table
	passed  []int64    // by row: its requests that the steps now pass over
	since   int64      // worker's decode steps when passed was counted
	fresh   bool       // no step has begun since the mode changed
	decided bool       // nor since credits were last asked
	only    bool       // backend merged
	dlora   *credits   // backend dlora
	limit   int64      // credits that end a merged mode
	parked  []*request // wait for their mode, in the order they came
}

const unmerged int32 = -1

func (w *worker) initExecution() {
	w.eng.LoraDrainWait = 0 // credits take the drainer's place
	n := len(w.s.adapters) + 1
	l := &w.costs.Profile().Latency.LoRA
	w.exec = &execution{row: unmerged, credit: make([]int64, n), passed: make([]int64, n), since: w.steps,
		only: l.Backend == profile.BackendMerged, limit: l.SwitchCredit}
	if !w.exec.only {
		seats := int64(w.eng.MaxRunningRequests)
		w.exec.dlora = newCredits(n, int(seats), l.CreditScale, w.costs.Step(&profile.StepWork{Batch: seats}),
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
		if r.adapter == row {
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
	e.dlora.repeat(max(w.steps-e.since-1, 0))
	e.since = w.steps
	all := w.seats() + w.queue.n
	if all == 0 || e.row != unmerged && w.pending(e.row) == 0 {
		e.decided = false // nothing came of it
	}
	if e.decided || w.chunked != nil || all == 0 {
		return 0
	}
	e.decided = true
	e.dlora.row = e.row
	if to := e.dlora.iterate(w.inOrder()); to != e.row {
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
		rows = append(rows, r.adapter)
	}
	return rows
}

// countPassed notes which requests the steps from now on pass over.
func (w *worker) countPassed() {
	e := w.exec
	e.since = w.steps
	for row := range e.passed {
		e.passed[row] = 0
		if e.row != unmerged && int32(row) != e.row {
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
	case e.row == unmerged || w.pending(e.row) == 0:
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
	best, most, credit := unmerged, int64(0), int64(-1)
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
	plain := (e.row == unmerged || e.row == base) && (to == unmerged || to == base)
	e.row, e.fresh = to, true
	if to == unmerged {
		clear(e.credit)
	} else {
		e.credit[to] = 0
	}
	w.reopen()
	for k := 0; k < len(w.batch); k++ {
		if r := w.batch[k].value; to != unmerged && r.adapter != to {
			w.park(r)
			k = -1 // the heap has changed
		}
	}
	e.parked = slices.DeleteFunc(e.parked, func(r *request) bool {
		runs := to == unmerged || r.adapter == to
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
	to := unmerged
	if w.exec.only {
		to = w.exec.parked[0].adapter
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
		return e.dlora.quiet()
	}
	least := int64(math.MaxInt64)
	for row, n := range e.passed {
		if n > 0 {
			least = min(least, (e.limit-e.credit[row]+n-1)/n)
		}
	}
	return max(least, 1)
}

// credits is dLoRA's choice between merged and unmerged execution (B. Wu et al.,
// OSDI'24, Algorithm 1; Scheduler._credit_schedule, _adjust_credit and
// _adjust_merge_threshold in vllm/core/scheduler.py of its artifact). In every
// iteration the requests that would run first come first served are those that
// are owed it. An adapter is merged while it has at least left times as many
// requests as these, and another is merged once it has right times as many. A
// merged adapter pays, in credits, those whose requests it keeps from running;
// without credits it may not be merged, and one that was paid enough runs
// first, unmerged. The two thresholds are adjusted where the mode changes, by
// what it gave and what the other would have given: in steps towards each
// other, and apart by a factor.
//
// Credits are whole numbers of creditUnit parts, so that a run of iterations
// can be booked at once.
type credits struct {
	seats       int     // requests of an iteration
	alone       float64 // time of a merged iteration
	together    float64 // of an unmerged one
	change      float64 // of a change between them
	have        []int64 // credits by row
	enough      int64   // an adapter that has these runs first
	still       int64   // and goes on to as long as it has these
	pay         int64   // for a request kept from running by one that was paid
	payMerged   int64   // by the merged adapter
	left, right float64

	row      int32   // merged, or unmerged
	paid     []int32 // rows that ran first for their credits in the latest iteration
	most     int32   // row with the most requests in the latest unmerged iteration, -1: none
	iters    int64   // iterations since the mode changed
	merged   int64   // requests that merged execution served in these, or would have
	unmerged int64   // that unmerged execution served, or would have
	virtual  int64   // changes that merged execution would have made

	// What the latest iteration did, for repeat.
	moved              []int64 // credits by row
	countedM, countedU int64
	repeats            bool // the next one does the same, unless credits pass a threshold
}

const (
	creditUnit = 1 << 20
	aimdAdd    = 0.05
	aimdMul    = 1.1
)

func newCredits(rows, seats int, scale int64, alone, together, change tick.Ticks) *credits {
	speed := float64(alone) / float64(together)
	c := &credits{
		seats: seats, alone: alone.Seconds(), together: together.Seconds(), change: change.Seconds(),
		have: make([]int64, rows), moved: make([]int64, rows),
		enough: int64(rows) * scale * creditUnit, pay: creditUnit / int64(seats),
		payMerged: 2 * int64(math.Round(creditUnit/2/(speed*float64(seats)))),
		left:      speed, right: 1, row: unmerged, most: -1,
	}
	c.still = c.enough - scale*creditUnit/2
	for row := range c.have {
		c.have[row] = int64(rows-1) * scale * creditUnit
	}
	return c
}

// iterate chooses the mode of the next iteration, for requests of the given
// rows in the order in which they came. It returns the row to merge.
func (c *credits) iterate(queue []int32) int32 {
	clear(c.moved)
	fcfs := queue[:min(len(queue), c.seats)]
	n := make([]int, len(c.have))
	for _, row := range queue {
		n[row]++
	}
	c.countedM, c.countedU, c.repeats = 0, 0, true
	if scheduled := c.runPaid(fcfs, n); scheduled != nil {
		c.settleUp(fcfs, scheduled, c.pay)
		// who runs first among them depends on the credits
		c.repeats = !slices.ContainsFunc(c.moved, func(d int64) bool { return d != 0 })
		c.enter(unmerged)
	} else {
		c.runMost(fcfs, n)
	}
	c.apply(1)
	return c.row
}

// runPaid returns the iteration's requests if some adapter has credits to run
// first, by rows; nil if none has.
func (c *credits) runPaid(fcfs []int32, n []int) (scheduled []int32) {
	order := make([]int32, len(c.have))
	for row := range order {
		order[row] = int32(row)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(c.have[b], c.have[a]) })
	var paid []int32
	room := c.seats
	for _, row := range order {
		if c.have[row] < c.still || room == 0 {
			break
		}
		if c.have[row] >= c.enough || slices.Contains(c.paid, row) {
			paid = append(paid, row)
			k := min(room, n[row])
			room -= k
			scheduled = append(scheduled, slices.Repeat([]int32{row}, k)...)
		}
	}
	c.paid = paid
	if room == c.seats {
		return nil
	}
	taken := make([]int, len(c.have)) // of each row, the first of them
	for _, row := range scheduled {
		taken[row]++
	}
	for _, row := range fcfs {
		if taken[row] > 0 {
			taken[row]--
		} else if room > 0 {
			scheduled = append(scheduled, row)
			room--
		}
	}
	return scheduled
}

// runMost runs the merged adapter, merges the one with most requests, or runs
// all, whatever the thresholds say.
func (c *credits) runMost(fcfs []int32, n []int) {
	most := int32(-1)
	for row := range c.have {
		if c.have[row] >= 0 && (most < 0 || n[row] > n[most]) {
			most = int32(row)
		}
	}
	batch := 0
	if most >= 0 {
		batch = min(n[most], c.seats)
	}
	c.countedM, c.countedU = int64(batch), int64(len(fcfs))
	to := most
	switch {
	case c.row >= 0 && c.have[c.row] >= 0 && float64(n[c.row]) >= c.left*float64(len(fcfs)):
		to, batch = c.row, n[c.row]
		c.countedM = int64(min(batch, c.seats))
	case most < 0 || float64(n[most]) < c.right*float64(len(fcfs)):
		if c.most != most {
			c.virtual++
			c.most = most
		}
		c.count(1)
		c.enter(unmerged)
		return
	}
	c.enter(to)
	c.count(1)
	c.settleUp(fcfs, slices.Repeat([]int32{to}, batch), c.payMerged)
}

// count notes the requests that k iterations served, or would have.
func (c *credits) count(k int64) {
	c.merged += k * c.countedM
	c.unmerged += k * c.countedU
}

// enter counts an iteration with a row merged, or unmerged.
func (c *credits) enter(row int32) {
	if row != c.row {
		c.adjust()
		c.row, c.iters, c.repeats = row, 0, false
	}
	c.iters++
}

// settleUp has the rows of the requests that run in place of those that are
// owed it pay for that.
func (c *credits) settleUp(fcfs, scheduled []int32, price int64) {
	owed := make([]int, len(c.have))
	for _, row := range fcfs {
		owed[row]++
	}
	if len(fcfs) != len(scheduled) {
		for _, row := range scheduled {
			owed[row] = max(owed[row]-1, 0)
		}
		for row, k := range owed {
			c.moved[row] += int64(k) * (price / 2)
			c.moved[scheduled[0]] -= int64(k) * (price / 2)
		}
		return
	}
	var late []int32 // those not owed it, who pay the last of those who are
	for _, row := range scheduled {
		if owed[row] > 0 {
			owed[row]--
		} else {
			late = append(late, row)
		}
	}
	for k, row := range late {
		c.moved[row] -= price
		c.moved[fcfs[len(fcfs)-len(late)+k]] += price
	}
}

// adjust moves the threshold that ends the present mode or keeps it, by how
// many requests the two modes served, or would have, since it began.
func (c *credits) adjust() {
	if c.iters == 0 {
		return
	}
	tMerged, tUnmerged := c.alone*float64(c.iters), c.together*float64(c.iters)
	if c.row != unmerged {
		tMerged += c.change
	} else {
		tUnmerged += c.change
		tMerged += float64(c.change * float64(c.virtual))
	}
	merged, unmerged := float64(c.merged)/tMerged, float64(c.unmerged)/tUnmerged
	switch {
	case c.row >= 0 && merged > unmerged && c.right-aimdAdd > c.left:
		c.right -= aimdAdd
	case c.row >= 0 && merged < unmerged:
		c.right *= aimdMul
	case c.row < 0 && unmerged > merged && c.left+aimdAdd < c.right:
		c.left += aimdAdd
	case c.row < 0 && unmerged < merged:
		c.left /= aimdMul
	}
	c.merged, c.unmerged, c.virtual, c.most = 0, 0, 0, -1
}

// apply books the credits of k iterations.
func (c *credits) apply(k int64) {
	for row, d := range c.moved {
		c.have[row] += k * d
	}
}

// quiet is the number of iterations like the latest, itself included, until one
// may choose differently.
func (c *credits) quiet() int64 {
	if !c.repeats {
		return 1
	}
	k := int64(math.MaxInt64)
	for row, d := range c.moved {
		before := c.have[row] - d // what the latest decided on
		for _, limit := range []int64{c.enough, c.still, 0} {
			switch {
			case d > 0 && before < limit:
				k = min(k, (limit-before+d-1)/d)
			case d < 0 && before >= limit:
				k = min(k, (before-limit)/-d+1)
			}
		}
	}
	return k
}

// repeat books k more iterations like the latest.
func (c *credits) repeat(k int64) {
	c.iters += k
	c.count(k)
	c.apply(k)
}
