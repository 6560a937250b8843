package sim

import "lorasim/internal/tick"

// timers is an indexed binary heap of at most one time per slot. Equal times
// come out in the order of their slots.
type timers struct {
	heap []int32 // slots, a heap by (at, slot)
	pos  []int32 // slot -> index in heap, -1: not set
	at   []tick.Ticks
}

func (h *timers) init(slots int) {
	h.heap = make([]int32, 0, slots)
	h.pos = make([]int32, slots)
	h.at = make([]tick.Ticks, slots)
	for i := range h.pos {
		h.pos[i] = -1
	}
}

// top is the earliest time, tick.Never if none is set.
func (h *timers) top() tick.Ticks {
	if len(h.heap) == 0 {
		return tick.Never
	}
	return h.at[h.heap[0]]
}

// set arms a slot, or moves it if it is armed.
func (h *timers) set(slot int, t tick.Ticks) {
	h.at[slot] = t
	i := int(h.pos[slot])
	if i < 0 {
		i = len(h.heap)
		h.heap = append(h.heap, int32(slot))
		h.pos[slot] = int32(i)
	}
	h.down(h.up(i))
}

// pop disarms and returns the slot with the earliest time.
func (h *timers) pop() int {
	slot := int(h.heap[0])
	h.clear(slot)
	return slot
}

// clear disarms a slot that is armed.
func (h *timers) clear(slot int) {
	i, last := int(h.pos[slot]), len(h.heap)-1
	h.pos[slot] = -1
	moved := h.heap[last]
	h.heap = h.heap[:last]
	if i < last {
		h.heap[i] = moved
		h.pos[moved] = int32(i)
		h.down(h.up(i))
	}
}

func (h *timers) less(a, b int32) bool {
	return h.at[a] < h.at[b] || h.at[a] == h.at[b] && a < b
}

func (h *timers) up(i int) int {
	s := h.heap[i]
	for i > 0 {
		p := (i - 1) / 2
		if !h.less(s, h.heap[p]) {
			break
		}
		h.heap[i] = h.heap[p]
		h.pos[h.heap[i]] = int32(i)
		i = p
	}
	h.heap[i] = s
	h.pos[s] = int32(i)
	return i
}

func (h *timers) down(i int) {
	s, n := h.heap[i], len(h.heap)
	for {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h.less(h.heap[c+1], h.heap[c]) {
			c++
		}
		if !h.less(h.heap[c], s) {
			break
		}
		h.heap[i] = h.heap[c]
		h.pos[h.heap[i]] = int32(i)
		i = c
	}
	h.heap[i] = s
	h.pos[s] = int32(i)
}

// times is a binary min-heap of times.
type times []tick.Ticks

func (h *times) push(t tick.Ticks) {
	a := append(*h, t)
	i := len(a) - 1
	for i > 0 && a[(i-1)/2] > t {
		a[i] = a[(i-1)/2]
		i = (i - 1) / 2
	}
	a[i] = t
	*h = a
}

func (h *times) pop() tick.Ticks {
	a := *h
	top, last := a[0], a[len(a)-1]
	a = a[:len(a)-1]
	i := 0
	for {
		c := 2*i + 1
		if c >= len(a) {
			break
		}
		if c+1 < len(a) && a[c+1] < a[c] {
			c++
		}
		if a[c] >= last {
			break
		}
		a[i] = a[c]
		i = c
	}
	if len(a) > 0 {
		a[i] = last
	}
	*h = a
	return top
}
