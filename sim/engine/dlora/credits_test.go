package dlora

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/sim/tick"
)

// newTestCredits is for three rows, four seats and dLoRA's times of a 7B model:
// 15 ms merged, 27 ms Unmerged, 20 ms for a change.
func newTestCredits() *Credits {
	return New(3, 4, 10000, 15*tick.Millisecond, 27*tick.Millisecond, 20*tick.Millisecond)
}

// The thresholds and credits that the artifact's Scheduler begins with.
func TestCreditsBegin(t *testing.T) {
	c := newTestCredits()
	if c.enough != 30000*creditUnit || c.still != 25000*creditUnit || c.have[2] != 20000*creditUnit {
		t.Errorf("thresholds of %d and %d, %d credits", c.enough/creditUnit, c.still/creditUnit, c.have[2]/creditUnit)
	}
	if c.right != 1 || c.left != 15.0/27 {
		t.Errorf("thresholds of %v and %v, expected 15/27 and 1", c.left, c.right)
	}
	if got := float64(c.payMerged) / creditUnit; c.pay != creditUnit/4 || math.Abs(got-27.0/15/4) > 1e-5 {
		t.Errorf("prices of %v and %v, expected 1/4 and 27/60", float64(c.pay)/creditUnit, got)
	}
}

// Merging takes right times the requests that are owed the iteration, staying
// merged left times (two thresholds, _credit_schedule).
func TestCreditsHysteresis(t *testing.T) {
	c := newTestCredits()
	for _, s := range []struct {
		queue []int32
		want  int32
	}{
		{[]int32{0, 0, 0, 1}, Unmerged}, // 3 of 4: less than all
		{[]int32{1, 0, 0, 0, 0}, 0},     // 4 behind one more: as many as the four owed
		{[]int32{0, 0, 0, 1}, 0},        // 3 of 4 >= 15/27
		{[]int32{0, 1, 1, 0, 0}, 0},     // 3 of all against four
		{[]int32{0, 1, 1, 0}, Unmerged}, // 2 of 4 < 15/27
	} {
		if got := c.Iterate(s.queue); got != s.want {
			t.Fatalf("%v: row %d, expected %d", s.queue, got, s.want)
		}
	}
	c = newTestCredits()
	c.right, c.left = 0.5, 0.5
	for range 2 { // of two with as many, the first; half of all is enough to begin, and to stay
		if got := c.Iterate([]int32{1, 0, 1, 0}); got != 0 {
			t.Fatalf("row %d, expected 0", got)
		}
		c.right = 1
	}
	c = newTestCredits()
	for row := range int32(2) { // from one to the other
		if got := c.Iterate([]int32{row, row, row}); got != row {
			t.Fatalf("row %d alone, and row %d is merged", row, got)
		}
	}
}

// _adjust_credit: a merged adapter pays for those it keeps from running, half
// the price where the batches differ in size, and the sum of credits stays.
func TestCreditsAreTransferred(t *testing.T) {
	for _, s := range []struct {
		queue []int32
		moved []int64 // in halves of the price
	}{
		{[]int32{0, 0, 0, 1}, []int64{-1, 1, 0}},    // a batch of 3 in place of 4
		{[]int32{0, 1, 2, 0, 0}, []int64{-2, 1, 1}}, // 3 in place of 4, two kept back
		// 4 in place of 4: the last of those owed, who is not the one kept back
		{[]int32{1, 0, 0, 2, 0, 0}, []int64{-2, 0, 2}},
		{[]int32{0, 1, 0, 0, 0, 0}, []int64{-1, 1, 0}}, // all 5 count while merged, so that sizes differ
	} {
		c := newTestCredits()
		c.Row = 0
		if c.Iterate(s.queue) != 0 {
			t.Fatalf("%v: not merged any more", s.queue)
		}
		want := make([]int64, 3)
		for row, k := range s.moved {
			want[row] = k * (c.payMerged / 2)
		}
		if !slices.Equal(c.moved, want) {
			t.Errorf("%v: moved %v, expected %v", s.queue, c.moved, want)
		}
		if sum := c.have[0] + c.have[1] + c.have[2]; sum != 3*20000*creditUnit {
			t.Errorf("%v: %d credits in all", s.queue, sum)
		}
	}
}

// An adapter that was paid enough runs first, unmerged, until it has paid half
// of it back; one without credits is not merged.
func TestCreditsRunFirst(t *testing.T) {
	queue := []int32{0, 0, 0, 0, 1}
	c := newTestCredits()
	if c.Iterate(queue) != 0 {
		t.Fatal("adapter 0 is not merged")
	}
	c.have[1] = c.enough - 1
	if c.Iterate(queue) != 0 {
		t.Error("adapter 1 runs first a credit too early")
	}
	c.have[1] = c.enough
	if c.Iterate(queue) != Unmerged || !slices.Equal(c.paid, []int32{1}) {
		t.Error("adapter 1 does not run first")
	}
	if want := []int64{c.pay, -c.pay, 0}; !slices.Equal(c.moved, want) {
		t.Errorf("moved %v, expected %v", c.moved, want)
	}
	c.have[1] = c.still
	if c.Iterate(queue) != Unmerged {
		t.Error("adapter 1 stops too early")
	}
	c.have[1] = c.still - 1
	if c.Iterate(queue) != 0 {
		t.Error("adapter 1 goes on too long")
	}
	c.have[0] = -1
	if c.Iterate(queue) != Unmerged {
		t.Error("adapter 0 is merged without credits")
	}
	c.have[1] = c.still // it has stopped, so that it would have to reach the other threshold again
	if c.Iterate(queue); len(c.paid) > 0 {
		t.Error("adapter 1 goes on where it had stopped")
	}
}

// _adjust_merge_threshold: by steps towards each other where the mode that ends
// gave more than the other would have, apart by a factor where it gave less.
func TestCreditsAdjustThresholds(t *testing.T) {
	for _, s := range []struct {
		name                             string
		row                              int32
		iters, merged, unmerged, virtual int64
		left, right                      float64
	}{
		{"merged was better", 0, 10, 100, 100, 0, 0.5, 0.95},       // 100/0.17 against 100/0.27
		{"merged was worse", 0, 10, 50, 100, 0, 0.5, 1.1},          // 50/0.17 against 100/0.27
		{"unmerged was better", Unmerged, 10, 40, 100, 0, 0.55, 1}, // 40/0.15 against 100/0.29
		{"unmerged was worse", Unmerged, 10, 60, 100, 0, 0.5 / 1.1, 1},
		{"but for its changes", Unmerged, 10, 60, 100, 2, 0.55, 1}, // 60/0.19
		{"no iteration", 0, 0, 50, 100, 0, 0.5, 1},
	} {
		c := newTestCredits()
		c.left, c.Row, c.iters, c.merged, c.unmerged, c.virtual = 0.5, s.row, s.iters, s.merged, s.unmerged, s.virtual
		c.adjust()
		if math.Abs(c.left-s.left) > 1e-12 || math.Abs(c.right-s.right) > 1e-12 {
			t.Errorf("%s: thresholds %v and %v, expected %v and %v", s.name, c.left, c.right, s.left, s.right)
		}
		if s.iters > 0 && (c.merged != 0 || c.unmerged != 0 || c.virtual != 0) {
			t.Errorf("%s: the counts go on", s.name)
		}
	}
	c := newTestCredits() // they do not cross
	c.left, c.Row, c.iters, c.merged, c.unmerged = 0.96, 0, 10, 100, 100
	if c.adjust(); c.right != 1 {
		t.Errorf("thresholds %v and %v have crossed", c.left, c.right)
	}
	c.left, c.Row, c.iters, c.unmerged = 0.96, Unmerged, 10, 100
	if c.adjust(); c.left != 0.96 {
		t.Errorf("thresholds %v and %v have crossed", c.left, c.right)
	}
}

// A run of iterations booked at once is what they are one by one.
func TestCreditsRepeat(t *testing.T) {
	queue := []int32{0, 0, 0, 1}
	a, b := newTestCredits(), newTestCredits()
	a.Row, b.Row = 0, 0
	a.have[1], b.have[1] = a.enough-100*a.payMerged/2, a.enough-100*a.payMerged/2
	a.Iterate(queue)
	if k := a.Quiet(); k != 100 {
		t.Fatalf("%d quiet iterations, expected 100", k)
	}
	a.Repeat(99)
	for range 100 {
		if b.Iterate(queue) != 0 {
			t.Fatal("the mode has changed")
		}
	}
	if !slices.Equal(a.have, b.have) || a.iters != b.iters || a.merged != b.merged || a.unmerged != b.unmerged {
		t.Errorf("%+v differs from %+v", a, b)
	}
	if a.Iterate(queue) != Unmerged {
		t.Error("the mode does not change after its quiet iterations")
	}
}

// The quiet iterations of a merged adapter that pays end when it has no credits left.
func TestCreditsRunOut(t *testing.T) {
	queue := []int32{0, 0, 0, 1}
	c := newTestCredits()
	c.Row = 0
	c.have[0] = 10 * (c.payMerged / 2)
	c.Iterate(queue)
	k := c.Quiet()
	if k != 11 { // it may be merged without credits, not with less
		t.Fatalf("%d quiet iterations, expected 11", k)
	}
	for i := range k - 1 {
		if c.Iterate(queue) != 0 {
			t.Fatalf("not merged any more in iteration %d", i+2)
		}
	}
	if c.Iterate(queue) != Unmerged {
		t.Error("merged in debt")
	}
}

// Iterations in which a paid adapter runs first repeat only where no credits move: who runs first depends on them.
func TestCreditsRepeatWhereNoneMove(t *testing.T) {
	for _, s := range []struct {
		queue []int32
		quiet bool
	}{{[]int32{1, 1, 1}, true}, {[]int32{0, 0, 0, 0, 1}, false}} {
		c := newTestCredits()
		c.have[1] = c.enough
		c.Iterate(s.queue)
		if got := c.Quiet() > 1; got != s.quiet || !slices.Equal(c.paid, []int32{1}) {
			t.Errorf("%v: paid %v, several quiet iterations %v; expected [1], %v", s.queue, c.paid, got, s.quiet)
		}
	}
}

// Quiet iterations end before the first one that may choose differently, no earlier: an adapter that stands at a
// threshold has passed it where it gains credits, and falls below it with the next iteration where it pays.
func TestCreditsQuietAtThresholds(t *testing.T) {
	queue := []int32{0, 0, 0, 1} // 0 is merged and pays 1
	for _, s := range []struct {
		name   string
		change func(c *Credits, price int64)
		want   int64
	}{
		{"gains, stands at still", func(c *Credits, d int64) {
			c.still, c.have[1] = c.enough-50*d, c.enough-50*d
		}, 50},
		{"gains, stands at 0", func(c *Credits, d int64) { c.have[0], c.have[1] = 7*d, 0 }, 8},
		{"pays, stands above still", func(c *Credits, d int64) { c.have[0] = c.still + 10*d }, 11},
		{"pays, stands at 0", func(c *Credits, d int64) { c.have[0] = 0 }, 1},
		{"pays, has less than one iteration costs", func(c *Credits, d int64) { c.have[0] = d - 1 }, 1},
		{"pays, has what one iteration costs", func(c *Credits, d int64) { c.have[0] = d }, 2},
	} {
		c := newTestCredits()
		c.Row = 0
		s.change(c, c.payMerged/2)
		got := c.Iterate(queue)
		if k := c.Quiet(); got != 0 || k != s.want {
			t.Errorf("%s: row %d, %d quiet iterations, expected row 0 and %d", s.name, got, k, s.want)
		}
	}
}

// Adapters that were paid enough run in the order of their credits; one that finds no seat left is not among them, so
// that it needs as many credits again later.
func TestCreditsSeats(t *testing.T) {
	for _, s := range []struct {
		queue []int32
		paid  []int32
	}{
		{[]int32{1, 1, 1, 1, 0}, []int32{1}}, {[]int32{1, 1, 1, 0, 0}, []int32{1, 0}},
		{[]int32{1, 1, 1, 1, 1, 0}, []int32{1}},
	} {
		c := newTestCredits()
		c.have[1], c.have[0] = c.enough+1, c.enough
		if got := c.Iterate(s.queue); got != Unmerged || !slices.Equal(c.paid, s.paid) {
			t.Errorf("%v: row %d, %v run first, expected %v", s.queue, got, c.paid, s.paid)
		}
	}
	c := newTestCredits() // who has no requests runs nobody first
	c.have[1] = c.enough
	if got := c.Iterate([]int32{0, 0, 0}); got != 0 {
		t.Errorf("row %d, expected 0 to be merged", got)
	}
}

// Thresholds that a step would make equal stay as they are.
func TestCreditsThresholdsStayApart(t *testing.T) {
	c := newTestCredits()
	c.left, c.Row, c.iters, c.merged, c.unmerged = 0.5, Unmerged, 10, 40, 100 // unmerged was better
	c.right = c.left + aimdAdd
	if c.adjust(); c.left != 0.5 {
		t.Errorf("unmerged: threshold %v, expected 0.5", c.left)
	}
	c = newTestCredits()
	c.Row, c.iters, c.merged, c.unmerged = 0, 10, 100, 100 // merged was better
	c.left = c.right - aimdAdd
	if c.adjust(); c.right != 1 {
		t.Errorf("merged: threshold %v, expected 1", c.right)
	}
}

// An adapter without credits may be merged, one in debt may not; it stays merged until it is in debt.
func TestCreditsNone(t *testing.T) {
	for have, want := range map[int64]int32{0: 0, -1: Unmerged} {
		for _, row := range []int32{Unmerged, 0} {
			c := newTestCredits()
			c.Row, c.have[0] = row, have
			if got := c.Iterate([]int32{0, 0, 0, 0}); got != want {
				t.Errorf("%d credits in mode %d: mode %d is next, expected %d", have, row, got, want)
			}
		}
	}
}

// Unmerged execution counts the changes that merging would have taken: one each time another adapter has most requests.
func TestCreditsVirtualChanges(t *testing.T) {
	c := newTestCredits()
	for k, s := range []struct {
		queue []int32
		want  int64
	}{{[]int32{0, 0, 0, 1}, 1}, {[]int32{0, 0, 0, 1}, 1}, {[]int32{0, 1, 1, 1}, 2}, {[]int32{0, 0, 0, 1}, 3}} {
		if got := c.Iterate(s.queue); got != Unmerged || int64(c.virtual) != s.want {
			t.Errorf("iteration %d: row %d, %d changes, expected %d unmerged", k, got, c.virtual, s.want)
		}
	}
}

// A mode that gave as much as the other would have leaves the thresholds as they are.
func TestCreditsEqualModes(t *testing.T) {
	for _, row := range []int32{0, Unmerged} {
		c := New(3, 4, 10000, 15*tick.Millisecond, 15*tick.Millisecond, 0)
		c.left, c.Row, c.iters, c.merged, c.unmerged = 0.5, row, 10, 70, 70
		if c.adjust(); c.left != 0.5 || c.right != 1 {
			t.Errorf("row %d: thresholds %v and %v, expected 0.5 and 1", row, c.left, c.right)
		}
	}
}

// TestCredits has queues of random adapters served: the invariants hold after every iteration, whoever is merged has
// requests, and a run of iterations that repeat is what they are one by one.
func TestCredits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newTestCredits(), newTestCredits()
		for range rapid.IntRange(1, 30).Draw(t, "changes of the queue") {
			queue := rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 8).Draw(t, "queue")
			row := a.Iterate(queue)
			k := min(a.Quiet(), rapid.Int64Range(1, 2000).Draw(t, "iterations"))
			a.Repeat(k - 1)
			for i := range k {
				if got := b.Iterate(queue); got != row || row != Unmerged && !slices.Contains(queue, row) {
					t.Fatalf("iteration %d of %d merges row %d, expected %d of %v", i, k, got, row, queue)
				}
			}
			if !slices.Equal(a.have, b.have) || a.iters != b.iters || a.left != b.left || a.right != b.right {
				t.Fatalf("%+v differs from %+v", a, b)
			}
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
	c := newTestCredits()
	if c.have[0]++; c.Check() == nil {
		t.Error("no error where credits come from nowhere")
	}
	c = newTestCredits()
	if c.left = c.right; c.Check() != nil {
		t.Error("an error where thresholds are equal")
	}
	if c.left = c.right + 0.1; c.Check() == nil {
		t.Error("no error where thresholds have crossed")
	}
}
