// Package dlora chooses between merged and unmerged execution of adapters as dLoRA does; see [Credits]. It
// does not depend on an engine: adapters are rows 0, 1, ...
//
// Invariants ([Credits.Check]): credits are only transferred, so their sum is constant; the threshold that
// keeps an adapter merged is not above the one that merges it.
package dlora

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/sim/tick"
)

// Credits chooses between merged and unmerged execution for each iteration, as dLoRA does (B. Wu et al.,
// OSDI'24, Algorithm 1; Scheduler._credit_schedule, _adjust_credit and _adjust_merge_threshold in
// vllm/core/scheduler.py of its artifact).
//
// The entitled requests of an iteration are those that would run first come, first served. An adapter stays
// merged while it has at least left times as many requests as there are entitled ones. Another adapter is
// merged once it has right times as many. A merged adapter pays credits to the adapters whose entitled
// requests do not run. Without credits an adapter may not be merged. An adapter that has received enough
// credits runs first, unmerged.
//
// The two thresholds are adjusted when the mode changes, by the requests that the mode served and those that
// the other mode would have served. They approach each other in steps, and separate by a factor.
//
// Credits are whole numbers of creditUnit parts, so that a run of iterations can be booked at once.
type Credits struct {
	seats       int     // maximum number of requests of an iteration
	alone       float64 // time of a merged iteration, s
	together    float64 // time of an unmerged iteration, s
	change      float64 // time of a change between them, s
	have        []int64 // credits by row
	enough      int64   // credits with which an adapter runs first
	still       int64   // credits down to which it continues to run first
	pay         int64   // price of an entitled request, if an adapter runs first for its credits
	payMerged   int64   // price of an entitled request for a merged adapter
	left, right float64

	Row      int32   // row of the merged adapter, or Unmerged
	paid     []int32 // rows that ran first for their credits in the latest iteration
	most     int32   // row with the most requests in the latest unmerged iteration, -1: none
	iters    int64   // iterations since the mode changed
	merged   int64   // requests that merged execution served in these iterations, or would have served
	unmerged int64   // requests that unmerged execution served, or would have served
	virtual  int64   // changes of the merged adapter that merged execution would have made

	// Effects of the latest iteration, for Repeat.
	moved              []int64 // credits by row
	countedM, countedU int64
	repeats            bool // the next iteration does the same, unless credits pass a threshold
}

// Unmerged is the value of a row for unmerged execution.
const Unmerged int32 = -1

const (
	creditUnit = 1 << 20
	aimdAdd    = 0.05
	aimdMul    = 1.1
)

// New returns credits for the given number of adapter rows on an engine with the given number of seats. Each
// row begins with (rows-1)*scale credits, and runs first with rows*scale credits. alone, together and change
// are the times of a merged iteration, of an unmerged one and of a change between them.
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

// Iterate chooses the mode of the next iteration and returns the row to merge, or [Unmerged]. queue holds the
// rows of all requests in the order of their arrival.
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
		// the order among them depends on the credits
		c.repeats = !slices.ContainsFunc(c.moved, func(d int64) bool { return d != 0 })
		c.enter(Unmerged)
	} else {
		c.runMost(fcfs, n)
	}
	c.apply(1)
	return c.Row
}

// runPaid returns the rows of the iteration's requests if an adapter has the credits to run first; else nil.
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

// runMost keeps the merged adapter, merges the one with the most requests, or runs all adapters unmerged, by
// the thresholds.
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

// count adds the requests that k iterations served, or would have served in the other mode.
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

// settleUp transfers credits from the rows of requests that run without being entitled to the rows of
// entitled requests that do not run.
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
	var late []int32 // rows of requests that run without being entitled; they pay the last entitled ones
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

// adjust moves the threshold that ends or keeps the present mode, by the requests that the two modes have
// served, or would have served, since it began.
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

// apply transfers the credits of k iterations.
func (c *Credits) apply(k int64) {
	for row, d := range c.moved {
		c.have[row] += k * d
	}
}

// Quiet returns the number of iterations like the latest, including itself, until one may choose differently.
func (c *Credits) Quiet() int64 {
	if !c.repeats {
		return 1
	}
	k := int64(math.MaxInt64)
	for row, d := range c.moved {
		before := c.have[row] - d // credits at the latest decision
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

// Repeat books k more iterations like the latest.
func (c *Credits) Repeat(k int64) {
	c.iters += k
	c.count(k)
	c.apply(k)
}
