package policies

import (
	"testing"

	"lorasim/router/routertest"
	"lorasim/trace"
)

func TestPrefixHash(t *testing.T) {
	v := routertest.View(routertest.Env(8, 4))
	system := &trace.Text{ID: 7}
	var alike, apart []*trace.Text
	for i := range int64(40) {
		alike = append(alike, &trace.Text{ID: i, Parent: system, Start: 256})
		apart = append(apart, &trace.Text{ID: i, Parent: system, Start: 255})
	}
	tokens := make([]int32, 40)
	for i := range tokens {
		tokens[i] = 400
	}
	routertest.SetRunning(v, 9, 9, 9, 9, 9, 9, 9, 9) // one more is within the bound
	same := sends(t, "prefix-hash", v, 0, alike, tokens...)
	for _, w := range same {
		if w != same[0] {
			t.Fatalf("prompts with the same first 256 tokens go to %v", same)
		}
	}
	used := map[int]bool{}
	for _, w := range sends(t, "prefix-hash", v, 0, apart, tokens...) {
		used[w] = true
	}
	if len(used) < 6 {
		t.Errorf("40 different prompts use %d of 8 workers", len(used))
	}
	// 12 + 1 > 1.25 x 76/8: the least loaded of those below
	v.Workers[same[0]].Running = 12
	v.Workers[(same[0]+3)%8].Running = 8
	routertest.Equal(t, sends(t, "prefix-hash", v, 0, alike[:1], 400), []int{(same[0] + 3) % 8}, "a full worker")
	routertest.SetRunning(v, 0, 0, 0, 0, 0, 0, 0, 0) // 1 > 1.25/8 everywhere
	routertest.Equal(t, sends(t, "prefix-hash", v, 0, alike[:1], 400), same[:1], "all full")
}
