// Package dlora chooses between merged and unmerged execution as dLoRA does. It is arithmetic alone and
// knows no engine: adapters are rows 0, 1, ...
//
// Invariants ([Credits.Check]): credits only change hands, so that their sum stays; the threshold that keeps an adapter
// merged is not above the one that merges it.
package dlora

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/sim/tick"
)

// Credits is dLoRA's choice between merged and unmerged execution (B. Wu et al.,
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
type Credits struct {
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

	Row      int32   // merged, or Unmerged
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

// Unmerged is the row of unmerged execution.
const Unmerged int32 = -1

const (
	creditUnit = 1 << 20
	aimdAdd    = 0.05
	aimdMul    = 1.1
)

// New returns the credits of rows adapters on an engine of the given number of seats; alone, together and change are
// the times of a merged iteration, of an unmerged one and of a change between them.
func New(rows, seats int, scale int64, alone, together, change tick.Ticks) *Credits {
	speed := float64(alone) / float64(together)
	c := &Credits{
		seats: seats, alone: alone.Seconds(), together: together.Seconds(), change: change.Seconds(),
		have: make([]int64, rows), moved: make([]int64, rows),
		enough: int64(rows) * scale * creditUnit, pay: creditUnit / int64(seats),
		payMerged: 2 * int64(math.Round(creditUnit/2/(speed*float64(seats)))),
		left:      speed, right: 1, Row: Unmerged, most: -1,
	}
	c.still = c.enough - scale*creditUnit/2
	for row := range c.have {
		c.have[row] = int64(rows-1) * scale * creditUnit
	}
	return c
}

// Check returns an error if an invariant does not hold.
func (c *Credits) Check() error {
	sum, want := int64(0), int64(len(c.have)-1)*c.enough
	for _, h := range c.have {
		sum += h
	}
	if sum != want || !(c.left <= c.right) {
		return fmt.Errorf("dlora: %d parts of credits in all, expected %d; thresholds %v and %v", sum, want, c.left,
			c.right)
	}
	return nil
}

// Iterate chooses the mode of the next iteration, for requests of the given
// rows in the order in which they came. It returns the row to merge.
func (c *Credits) Iterate(queue []int32) int32 {
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
		c.enter(Unmerged)
	} else {
		c.runMost(fcfs, n)
	}
	c.apply(1)
	return c.Row
}

// runPaid returns the iteration's requests if some adapter has credits to run
// first, by rows; nil if none has.
func (c *Credits) runPaid(fcfs []int32, n []int) (scheduled []int32) {
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
func (c *Credits) runMost(fcfs []int32, n []int) {
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
	case c.Row >= 0 && c.have[c.Row] >= 0 && float64(n[c.Row]) >= c.left*float64(len(fcfs)):
		to, batch = c.Row, n[c.Row]
		c.countedM = int64(min(batch, c.seats))
	case most < 0 || float64(n[most]) < c.right*float64(len(fcfs)):
		if c.most != most {
			c.virtual++
			c.most = most
		}
		c.count(1)
		c.enter(Unmerged)
		return
	}
	c.enter(to)
	c.count(1)
	c.settleUp(fcfs, slices.Repeat([]int32{to}, batch), c.payMerged)
}

// count notes the requests that k iterations served, or would have.
func (c *Credits) count(k int64) {
	c.merged += k * c.countedM
	c.unmerged += k * c.countedU
}

// enter counts an iteration with a row merged, or unmerged.
func (c *Credits) enter(row int32) {
	if row != c.Row {
		c.adjust()
		c.Row, c.iters, c.repeats = row, 0, false
	}
	c.iters++
}

// settleUp has the rows of the requests that run in place of those that are
// owed it pay for that.
func (c *Credits) settleUp(fcfs, scheduled []int32, price int64) {
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
func (c *Credits) adjust() {
	if c.iters == 0 {
		return
	}
	tMerged, tUnmerged := c.alone*float64(c.iters), c.together*float64(c.iters)
	if c.Row != Unmerged {
		tMerged += c.change
	} else {
		tUnmerged += c.change
		tMerged += float64(c.change * float64(c.virtual))
	}
	mergedRate, unmergedRate := float64(c.merged)/tMerged, float64(c.unmerged)/tUnmerged
	switch {
	case c.Row >= 0 && mergedRate > unmergedRate && c.right-aimdAdd > c.left:
		c.right -= aimdAdd
	case c.Row >= 0 && mergedRate < unmergedRate:
		c.right *= aimdMul
	case c.Row < 0 && unmergedRate > mergedRate && c.left+aimdAdd < c.right:
		c.left += aimdAdd
	case c.Row < 0 && unmergedRate < mergedRate:
		c.left /= aimdMul
	}
	c.merged, c.unmerged, c.virtual, c.most = 0, 0, 0, -1
}

// apply books the credits of k iterations.
func (c *Credits) apply(k int64) {
	for row, d := range c.moved {
		c.have[row] += k * d
	}
}

// Quiet is the number of iterations like the latest, itself included, until one
// may choose differently.
func (c *Credits) Quiet() int64 {
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
func (c *Credits) Repeat(k int64) {
	c.iters += k
	c.count(k)
	c.apply(k)
}
