package planroute

import (
	"testing"

	"lorasim/router"
)

func TestOutputLeft(t *testing.T) {
	for _, c := range []struct {
		a    router.InFlight
		want float64
	}{
		{router.InFlight{Expected: 100, MaxNew: 500}, 100},
		{router.InFlight{Expected: 100, MaxNew: 500, Generated: 30}, 70},
		{router.InFlight{Expected: 100, MaxNew: 500, Generated: 90}, 25},
		{router.InFlight{Expected: 100, MaxNew: 500, Generated: 300}, 25},
		{router.InFlight{Expected: 100, MaxNew: 500, Generated: 490}, 10},
		{router.InFlight{Expected: 100, MaxNew: 500, Generated: 500}, 1},
		{router.InFlight{MaxNew: 500}, router.UnknownOutput},
		{router.InFlight{MaxNew: 50}, 50},
	} {
		if got := left(&c.a); got != c.want {
			t.Errorf("%+v: %v tokens left, want %v", c.a, got, c.want)
		}
	}
}
