package sim

import (
	"testing"

	"lorasim/router"
	"lorasim/sim/tick"
)

// For 2 s 3 requests wait beside 1 that runs, on another worker 2 run; then for 6 s
// one runs: 6 of 6 + 2 + 4 + 6.
func TestWaitingShare(t *testing.T) {
	var w Waiting
	at := tick.FromSeconds
	w.Watch(at(1), at(3), &router.View{Workers: []router.Worker{{Queued: 3, Running: 1}, {Running: 2}}})
	w.Watch(at(3), at(9), &router.View{Workers: []router.Worker{{Running: 1}, {}}})
	if got := w.Share(); got != 6.0/18 {
		t.Errorf("%v, expected 1/3", got)
	}
	if got := new(Waiting).Share(); got != 0 {
		t.Errorf("without a request %v", got)
	}
}
