package choose

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestArgmin(t *testing.T) {
	c := New(nil)
	if c.Worker != router.None {
		t.Errorf("nothing offered: %d", c.Worker)
	}
	c.Offer(4, 2)
	c.Offer(5, 2)
	c.Offer(2, 3)
	if c.Worker != 4 {
		t.Errorf("first of equals: got %d", c.Worker)
	}
	counts := make([]int, 4)
	rng := router.Env.Rand(router.Env{Seed: 3})
	for range 40000 {
		c := New(rng)
		c.Offer(0, 9)
		for w := range counts {
			c.Offer(w, 1)
		}
		counts[c.Worker]++
	}
	routertest.Uniform(t, counts)
}

// TestArgminLowest offers equals in both orders.
func TestArgminLowest(t *testing.T) {
	for _, order := range [][]int{{1, 4, 7}, {7, 4, 1}, {4, 1, 7}} {
		c := New(nil)
		c.OfferLowest(0, 3)
		for _, w := range order {
			c.OfferLowest(w, 2)
		}
		if c.Worker != 1 || c.Cost != 2 {
			t.Errorf("%v: got worker %d at %g, want 1 at 2", order, c.Worker, c.Cost)
		}
	}
}
