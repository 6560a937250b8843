package router

import "testing"

func TestArgmin(t *testing.T) {
	c := newArgmin(nil)
	if c.worker != None {
		t.Errorf("nothing offered: %d", c.worker)
	}
	c.offer(4, 2)
	c.offer(5, 2)
	c.offer(2, 3)
	if c.worker != 4 {
		t.Errorf("first of equals: got %d", c.worker)
	}
	counts := make([]int, 4)
	rng := newRand(Env{Seed: 3})
	for range 40000 {
		c := newArgmin(rng)
		c.offer(0, 9)
		for w := range counts {
			c.offer(w, 1)
		}
		counts[c.worker]++
	}
	checkUniform(t, counts)
}

// TestArgminLowest offers equals in both orders.
func TestArgminLowest(t *testing.T) {
	for _, order := range [][]int{{1, 4, 7}, {7, 4, 1}, {4, 1, 7}} {
		c := newArgmin(nil)
		c.offerLowest(0, 3)
		for _, w := range order {
			c.offerLowest(w, 2)
		}
		if c.worker != 1 || c.cost != 2 {
			t.Errorf("%v: got worker %d at %g, want 1 at 2", order, c.worker, c.cost)
		}
	}
}
