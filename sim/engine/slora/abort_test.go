package slora

import "testing"

// The rate is that of the Python expression int(0.7 * (waiting - left) + 0.3 * rate). Looks at an empty queue bring it
// to a fixed point, at which it stays however many follow.
func TestAbortReqQueueRate(t *testing.T) {
	q := newAbortReqQueue()
	for i, k := range []struct{ waiting, want int }{{3, 2}, {3, 2}, {10, 7}, {0, 2}, {0, 0}} {
		if q.update(k.waiting); q.rate != k.want {
			t.Fatalf("look %d at %d waiting requests: rate %d, expected %d", i, k.waiting, q.rate, k.want)
		}
	}
	q.formed(5, 4)
	if q.size != 3 || q.left != 4 {
		t.Errorf("after a batch of 5 that leaves 4: size %d, left %d, expected 3 and 4", q.size, q.left)
	}
	q.missed(1)
	if q.rate != -2 {
		t.Errorf("after one look at an empty queue: rate %d, expected -2", q.rate)
	}
	few, many := *q, *q
	few.missed(20)
	many.missed(1 << 60)
	if few.rate != -3 || many.rate != few.rate {
		t.Errorf("rates %d and %d after 20 and 2^60 looks at an empty queue, expected -3", few.rate, many.rate)
	}
}
