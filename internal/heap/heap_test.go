package heap

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHeap holds a heap against a sorted list, and every entry's place against its index.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type item struct {
			key, tie int64
			place    int32
		}
		var h Heap[*item]
		var list []*item
		order := func(a, b *item) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.tie, b.tie)) }
		small := rapid.Int64Range(0, 9)
		for i := range rapid.IntRange(0, 60).Draw(t, "operations") {
			switch op := rapid.IntRange(0, 3).Draw(t, "operation"); {
			case op < 2 || len(h) == 0:
				x := &item{key: small.Draw(t, "key"), tie: int64(i)}
				list = append(list, x)
				h.Push(Entry[*item]{x.key, x.tie, x, &x.place})
			case op == 2:
				k := rapid.IntRange(0, len(h)-1).Draw(t, "index")
				x := h.Remove(k)
				if x.place != -1 {
					t.Fatalf("the removed entry has place %d, expected -1", x.place)
				}
				list = slices.DeleteFunc(list, func(o *item) bool { return o == x })
			default:
				k := rapid.IntRange(0, len(h)-1).Draw(t, "index")
				x := h[k].Value
				x.key = small.Draw(t, "key")
				h[k].Key = x.key
				h.Fix(k)
			}
			for k, e := range h {
				if int(e.Value.place) != k {
					t.Fatalf("the entry at %d has place %d", k, e.Value.place)
				}
			}
			if len(list) != len(h) || len(h) > 0 && h[0].Value != slices.MinFunc(list, order) {
				t.Fatalf("the heap's first of %d entries is not the least of %d", len(h), len(list))
			}
		}
	})
}
