package epp

// lru is a set of numbers that drops the least recently added one when it is full.
type lru struct {
	capacity int
	at       map[uint64]int32
	nodes    []lruNode // nodes[0] is the ring's head: next is the newest, prev the oldest
}

type lruNode struct {
	key        uint64
	prev, next int32
}

// newLRU returns an empty set of at most capacity numbers; 0 or less: it keeps none.
func newLRU(capacity int) *lru {
	return &lru{capacity: capacity, at: map[uint64]int32{}, nodes: make([]lruNode, 1)}
}

func (l *lru) has(key uint64) bool {
	_, ok := l.at[key]
	return ok
}

// add makes a number the newest. It says which one was dropped for it, if any was.
func (l *lru) add(key uint64) (dropped uint64, full bool) {
	if l.capacity <= 0 {
		return 0, false
	}
	i, ok := l.at[key]
	switch {
	case ok:
		l.unlink(i)
	case len(l.at) < l.capacity:
		i = int32(len(l.nodes))
		l.nodes = append(l.nodes, lruNode{})
	default:
		i = l.nodes[0].prev
		dropped, full = l.nodes[i].key, true
		delete(l.at, dropped)
		l.unlink(i)
	}
	newest := l.nodes[0].next
	l.nodes[i] = lruNode{key: key, next: newest}
	l.nodes[newest].prev = i
	l.nodes[0].next = i
	l.at[key] = i
	return dropped, full
}

func (l *lru) unlink(i int32) {
	n := l.nodes[i]
	l.nodes[n.prev].next, l.nodes[n.next].prev = n.next, n.prev
}

// rank is the position of a number from the oldest, 0, on; -1: it is not there.
func (l *lru) rank(key uint64) int {
	if !l.has(key) {
		return -1
	}
	n := 0
	for i := l.nodes[0].prev; l.nodes[i].key != key; i = l.nodes[i].prev {
		n++
	}
	return n
}
