package sim

import (
	"math"
	"testing"
)

// After a retraction in step 10: one request had 3 tokens when it joined in step
// 4, another 5 when it joined in step 10; they have 9 + 5 of 160 tokens, and 20
// more each are provided for (of 161, as sglang divides).
func TestReestimate(t *testing.T) {
	w := &worker{steps: 10}
	for _, r := range []struct{ generated, joined, maxNew int }{{3, 4, 100}, {5, 10, 60}} {
		w.batch.push(entry[*request]{value: &request{generated: int32(r.generated), joinStep: int64(r.joined), maxNew: int32(r.maxNew)}})
	}
	w.reestimate()
	if want := 54.0 / 161; math.Abs(w.ratioFrom-want) > 1e-12 || w.ratioSince != 11 {
		t.Errorf("ratio %v from step %d, expected %v from step 11", w.ratioFrom, w.ratioSince, want)
	}
	w.batch[0].value.maxNew, w.batch[1].value.maxNew = 10, 10
	if w.reestimate(); w.ratioFrom != 1 {
		t.Errorf("ratio %v, expected no more than 1", w.ratioFrom)
	}
}
