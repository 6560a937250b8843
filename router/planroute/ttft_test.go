package planroute

import (
	"math"
	"testing"

	"lorasim/router"
)

// How long requests run counts those that still do: after 2 s with 10 requests of
// which one has ended that is not the second that this one took.
func TestRunningTime(t *testing.T) {
	var n running
	n.look(0, &router.Worker{Running: 10})
	n.ended++
	n.look(2, &router.Worker{Running: 9})
	if got, want := n.mean(5), 25/(math.Exp(-2./60)+1); math.Abs(got-want) > 1e-9 {
		t.Errorf("%v s, expected %v", got, want)
	}
}
