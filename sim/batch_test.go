package sim

import (
	"math"
	"slices"
	"testing"

	"lorasim/internal/heap"
	"lorasim/sim/kvcache"
)

// After a retraction in step 10: one request had 3 tokens when it joined in step
// 4, another 5 when it joined in step 10; they have 9 + 5 of 160 tokens, and 20
// more each are provided for (of 161, as sglang divides).
func TestReestimate(t *testing.T) {
	w := &worker{steps: 10}
	for _, r := range []struct{ generated, joined, maxNew int }{{3, 4, 100}, {5, 10, 60}} {
		w.batch.Push(heap.Entry[*request]{Value: &request{Sequence: kvcache.Sequence{Joined: int64(r.joined)}, generated: int32(r.generated), maxNew: int32(r.maxNew)}})
	}
	w.reestimate()
	if want := 54.0 / 161; math.Abs(w.ratioFrom-want) > 1e-12 || w.ratioSince != 11 {
		t.Errorf("ratio %v from step %d, expected %v from step 11", w.ratioFrom, w.ratioSince, want)
	}
	// of 160 tokens 9 + 5 are there: 91 and 55 are left, each clipped
	w.large = 1
	for clip, want := range map[int]int64{95: 91 + 55, 80: 80 + 55, 50: 50 + 50} {
		if w.eng.ClipNewTokens = clip; w.reserved() != want {
			t.Errorf("%d tokens are reserved, each at most %d, expected %d", w.reserved(), clip, want)
		}
	}
	a, b := &adapterRow{left: 7}, &adapterRow{}
	for i, row := range []*adapterRow{a, b} {
		w.batch[i].Value.row, w.batch[i].Value.Adapter = row, int32(i)
	}
	w.batch.Push(heap.Entry[*request]{Value: &request{row: b, Sequence: kvcache.Sequence{Adapter: 1, Joined: 10}, generated: 1, maxNew: 20}})
	if running := w.longestLeft(); !slices.Equal(running, []int32{0, 1}) || a.left != 91 || b.left != 55 {
		t.Errorf("of the adapters %v requests have %d and %d tokens left, expected 91 and 55", running, a.left, b.left)
	}
	w.batch[0].Value.maxNew, w.batch[1].Value.maxNew = 10, 10
	if w.reestimate(); w.ratioFrom != 1 {
		t.Errorf("ratio %v, expected no more than 1", w.ratioFrom)
	}
}
