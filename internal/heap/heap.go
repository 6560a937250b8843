// Package heap implements a binary min-heap by (key, tie). Entries can record their index, so that they can be moved
// and removed.
package heap

// An Entry is a value in a heap.
type Entry[T any] struct {
	Key, Tie int64
	Value    T
	Place    *int32 // if not nil, holds the entry's index in the heap, -1 after its removal
}

// A Heap is a binary min-heap. The first entry is the least.
type Heap[T any] []Entry[T]

func (e *Entry[T]) before(o *Entry[T]) bool {
	return e.Key < o.Key || e.Key == o.Key && e.Tie < o.Tie
}

// Push adds an entry to the heap.
func (h *Heap[T]) Push(e Entry[T]) {
	*h = append(*h, e)
	h.Fix(len(*h) - 1)
}

// Remove removes the entry at index k and returns its value.
func (h *Heap[T]) Remove(k int) T {
	a := *h
	out, last := a[k], len(a)-1
	a[k] = a[last]
	a[last] = Entry[T]{}
	*h = a[:last]
	if k < last {
		h.Fix(k)
	}
	if out.Place != nil {
		*out.Place = -1
	}
	return out.Value
}

// Fix restores the order after a change of the key of the entry at index k.
func (h *Heap[T]) Fix(k int) {
	a := *h
	e := a[k]
	put := func(k int, e *Entry[T]) {
		a[k] = *e
		if e.Place != nil {
			*e.Place = int32(k)
		}
	}
	for k > 0 && e.before(&a[(k-1)/2]) {
		put(k, &a[(k-1)/2])
		k = (k - 1) / 2
	}
	for c := 2*k + 1; c < len(a); c = 2*k + 1 {
		if c+1 < len(a) && a[c+1].before(&a[c]) {
			c++
		}
		if !a[c].before(&e) {
			break
		}
		put(k, &a[c])
		k = c
	}
	put(k, &e)
}
