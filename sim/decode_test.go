package sim

import (
	"math"
	"testing"
)

// After a retraction in step 10: one request had 3 tokens when it joined in step
// 4, another 5 when it joined in step 10; they have 9 + 5 of 160 tokens, and 20
// more each are provided for (of 161, as sglang divides).
func TestReestimate(t *testing.T) {
	w := &worker{s: &sim{reqs: make([]request, 2)}, steps: 10}
	w.batch = append(w.batch, 0, 1)
	for i, r := range []struct{ generated, joined, maxNew int }{{3, 4, 100}, {5, 10, 60}} {
		q := &w.s.reqs[i]
		q.generated, q.joinStep, q.maxNew = int32(r.generated), int64(r.joined), int32(r.maxNew)
	}
	w.reestimate()
	if want := 54.0 / 161; math.Abs(w.ratioFrom-want) > 1e-12 || w.ratioSince != 11 {
		t.Errorf("ratio %v from step %d, expected %v from step 11", w.ratioFrom, w.ratioSince, want)
	}
	w.s.reqs[0].maxNew, w.s.reqs[1].maxNew = 10, 10
	if w.reestimate(); w.ratioFrom != 1 {
		t.Errorf("ratio %v, expected no more than 1", w.ratioFrom)
	}
}
