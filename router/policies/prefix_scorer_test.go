package policies

import (
	"testing"

	"lorasim/router/routertest"
	"lorasim/trace"
)

// The scores by hand: 2 x queue + 2 x (1 - KV) + 3 x share.
func TestPrefixScorer(t *testing.T) {
	v := routertest.View(routertest.Env(3, 4))
	v.Workers[0].Queued, v.Workers[1].Queued, v.Workers[2].Queued = 0, 3, 6
	v.Workers[0].KVUsed = 5000 // of 10000
	x := &trace.Text{ID: 1}
	for _, c := range []struct {
		name string
		kept kept
		want int
	}{
		{"no match", kept{0, 0, 0}, 0},                      // 2+1 = 3, 1+2 = 3: the first
		{"a block", kept{0, 64, 0}, 1},                      // 3, 3.3, 2
		{"less than a block", kept{0, 63, 0}, 0},            // 3, 3
		{"a long match behind a queue", kept{0, 0, 256}, 2}, // 3, 3, 2 + 1.2
		{"both", kept{0, 128, 256}, 1},                      // 3, 3.6, 3.2
	} {
		v.Prefixes = c.kept
		got := sends(t, "prefix-scorer:index=reported,ties=first", v, 1, []*trace.Text{x}, 640)
		routertest.Equal(t, got, []int{c.want}, c.name)
	}
	v.Prefixes = nil // its own decisions: 3 x 10/10 where the first went
	routertest.Equal(t, sends(t, "prefix-scorer:ties=first,queue=1", v, 1, []*trace.Text{x, x}, 640, 640), []int{1, 1},
		"sent")
	v.Workers[0].Adapters[1].Running = 1
	routertest.Equal(t, sends(t, "prefix-scorer:ties=first,lora=1", v, 1, []*trace.Text{x}, 640), []int{0},
		"the adapter")
}
