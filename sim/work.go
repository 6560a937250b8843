package sim

import (
	"slices"

	"lorasim/internal/tick"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// stepTime is the length of a step that computes the prompts of k, those of the
// chunks in w.filling, and the next tokens of the batch if it decodes too.
func (w *worker) stepTime(k *profile.StepWork, decodes bool) tick.Ticks {
	k.Waiting = int64(w.queue.n)
	if decodes {
		k.Batch, k.KV = int64(len(w.batch)), w.ctx
	}
	if w.exec != nil && w.exec.row != unmerged {
		k.LoRATokens = 0
		return w.costs.Step(k)
	}
	c := &w.ranks
	if decodes {
		k.LoRAs, k.MaxRank, k.SumRank, k.Adapters, k.Squares = c.loras, c.max(), c.sum, c.distinct, c.squares
	}
	if k.Tokens > 0 && w.costs.CountsAdapters() {
		c.nextStep()
		for _, f := range w.filling {
			if row := w.s.reqs[f.req].adapter; (!decodes || c.rows[row].n == 0) && c.meet(row) {
				k.Adapters++
			}
		}
	}
	return w.costs.Step(k)
}

// queueChanged ends the run of decode steps after the step under way if the
// steps after that take another time, the waiting requests being others.
func (w *worker) queueChanged() {
	if w.phase == decode && w.costs.ScansQueue() {
		w.shorten()
	}
}

// rankCount counts the requests of a batch by their adapter and its rank, and by
// rank alone all those on the worker.
type rankCount struct {
	ranks []int // distinct ranks, ascending; ranks[0] is 0 for the base model
	rows  []rankRow
	batch classes
	all   classes
	step  int64 // number of the step that nextStep began

	loras    int64 // requests of the batch with an adapter
	sum      int64 // of their ranks
	distinct int64 // adapters with requests in the batch
	squares  int64 // sum of the squares of their numbers
}

// rankRow is an adapter, by row of the adapter table.
type rankRow struct {
	n     int32 // requests of the batch
	class int32 // index into ranks
	rank  int32 // ranks[class]
	step  int64 // the latest in which it was met
}

// classes counts requests by index into rankCount.ranks.
type classes struct {
	n   []int32
	top int32 // largest class with requests
}

func (c *classes) add(class, d int32) {
	c.n[class] += d
	if d > 0 {
		c.top = max(c.top, class)
		return
	}
	for c.top > 0 && c.n[c.top] == 0 {
		c.top--
	}
}

// insert makes room for a new class.
func (c *classes) insert(class int32) {
	c.n = slices.Insert(c.n, int(class), 0)
	if c.top >= class {
		c.top++
	}
}

func (c *rankCount) init(costs *profile.Costs, adapters []trace.Adapter) {
	c.ranks = []int{0}
	for _, a := range adapters {
		if r := costs.Rank(a.Rank); !slices.Contains(c.ranks, r) {
			c.ranks = append(c.ranks, r)
		}
	}
	slices.Sort(c.ranks)
	c.rows = make([]rankRow, len(adapters)+1)
	for i, a := range adapters {
		rank := costs.Rank(a.Rank)
		c.rows[i].class, c.rows[i].rank = int32(slices.Index(c.ranks, rank)), int32(rank)
	}
	c.batch.n = make([]int32, len(c.ranks))
	c.all.n = make([]int32, len(c.ranks))
}

// set changes the rank of a row that no request uses.
func (c *rankCount) set(row int32, rank int) {
	k, found := slices.BinarySearch(c.ranks, rank)
	class := int32(k)
	if !found {
		c.ranks = slices.Insert(c.ranks, k, rank)
		c.batch.insert(class)
		c.all.insert(class)
		for i := range c.rows {
			if c.rows[i].class >= class {
				c.rows[i].class++
			}
		}
	}
	c.rows[row].class, c.rows[row].rank = class, int32(rank)
}

// add counts d more requests of a row in the batch, 1 or -1.
func (c *rankCount) add(row, d int32) {
	r := &c.rows[row]
	r.n += d
	if r.class > 0 {
		c.loras += int64(d)
		c.sum += int64(d) * int64(r.rank)
		c.squares += int64(d) * (2*int64(r.n) - int64(d))
		if r.n == 0 || d > 0 && r.n == 1 {
			c.distinct += int64(d)
		}
	}
	c.batch.add(r.class, d)
}

// addToWorker counts d more requests of a row on the worker, 1 or -1.
func (c *rankCount) addToWorker(row, d int32) { c.all.add(c.rows[row].class, d) }

// max is the largest rank in the batch, 0 if there is none.
func (c *rankCount) max() int { return c.ranks[c.batch.top] }

// maxOfAll is the largest rank on the worker, 0 if there is none.
func (c *rankCount) maxOfAll() int { return c.ranks[c.all.top] }

// nextStep forgets the adapters that meet has seen.
func (c *rankCount) nextStep() { c.step++ }

// meet says whether a row is an adapter that the step has not met yet.
func (c *rankCount) meet(row int32) bool {
	r := &c.rows[row]
	if r.class == 0 || r.step == c.step {
		return false
	}
	r.step = c.step
	return true
}
