package policies

import (
	"testing"

	"lorasim/router/routertest"
	"lorasim/trace"
)

// The costs by hand, in tokens: waiting + 1600 - match, + KV + waiting.
func TestKVRouter(t *testing.T) {
	v := routertest.View(routertest.Env(3, 4))
	v.Workers[0].KVUsed, v.Workers[1].KVUsed, v.Workers[2].QueuedToks = 900, 1000, 480
	x := &trace.Text{ID: 1}
	for _, c := range []struct {
		name, options string
		kept          kept
		want          int
	}{
		{"no match", "", kept{0, 0, 0}, 0},                          // 2500, 2600, 2560
		{"a match", "", kept{0, 112, 0}, 1},                         // 2500, 2488, 2560
		{"in whole blocks", "", kept{0, 111, 0}, 0},                 // 2500, 2504
		{"behind others", "", kept{0, 0, 64}, 2},                    // 2500, 2600, 2496
		{"credit", ",credit=0.5", kept{0, 192, 0}, 0},               // 2500, 2504
		{"scale", ",scale=2", kept{0, 48, 0}, 0},                    // 900 + 3200, 1000 + 3104
		{"scale, more", ",scale=2", kept{0, 64, 0}, 1},              // 4100, 4072
		{"never below nothing", ",credit=9", kept{300, 1000, 0}, 0}, // 900, 1000, 2560
	} {
		v.Prefixes = c.kept
		got := sends(t, "kv-router:ties=first"+c.options, v, 0, []*trace.Text{x}, 1600)
		routertest.Equal(t, got, []int{c.want}, c.name)
	}
	v.Prefixes = nil
	routertest.Equal(t, sends(t, "kv-router:ties=first", v, 0, []*trace.Text{x, x}, 1600, 1600), []int{0, 0}, "sent")
}
