package info

import "math/rand/v2"

// HitRate is what a cache of adapters would hold of the workload: the part of
// the requests with an adapter that find it among the Slots adapters used last.
// Shuffled is the same for the same requests in random order, as if each were
// drawn on its own; where it is far lower, adapters are used in sessions. It is
// measured on the first 2^20 such requests.
type HitRate struct {
	Slots    int    `json:"slots"`
	Hits     Number `json:"hit_rate"`
	Shuffled Number `json:"shuffled_hit_rate"`
}

// lruSizes is the number of cache sizes of Summary.LRU: 1, 2, 4, ... 512.
const lruSizes = 10

// maxShuffled bounds the references that are kept to be shuffled.
const maxShuffled = 1 << 20

// lru counts the hits of caches of 1, 2, 4, ... slots at once, since what the
// smaller one holds is a head of the larger one's list (Mattson et al.,
// "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
// 1970). A reference costs a step per size, whatever the number of adapters.
type lru struct {
	next, prev []int32 // neighbours of each adapter in the list, -1: none
	level      []int8  // smallest cache that holds it, lruSizes: none, -1: not in the list
	head, tail int32
	last       [lruSizes]int32 // the adapter at the end of each cache, -1: the cache is not full
	length     int
	refs       int64
	hits       [lruSizes]int64 // by level
}

func newLRU(adapters int) *lru {
	l := &lru{next: make([]int32, adapters), prev: make([]int32, adapters), level: make([]int8, adapters), head: -1, tail: -1}
	for i := range l.level {
		l.level[i] = -1
	}
	for k := range l.last {
		l.last[k] = -1
	}
	return l
}

// add refers to adapter a.
func (l *lru) add(a int32) {
	l.refs++
	from := l.level[a]
	if from >= 0 && int(from) < lruSizes {
		l.hits[from]++
	}
	if a == l.head {
		return
	}
	if from >= 0 {
		if int(from) < lruSizes && l.last[from] == a {
			l.last[from] = l.prev[a]
		}
		l.unlink(a)
	} else {
		from = lruSizes
		l.length++
	}
	l.pushFront(a)
	// the end of every cache that did not hold a falls out of it
	for k := range int(from) {
		if l.last[k] < 0 {
			if l.length == 1<<k { // it is full now
				l.last[k] = l.tail
			}
			continue
		}
		out := l.last[k]
		l.level[out] = int8(k + 1)
		l.last[k] = l.prev[out]
	}
	l.level[a] = 0
}

func (l *lru) unlink(a int32) {
	p, n := l.prev[a], l.next[a]
	l.next[p] = n // a is not the head
	if n >= 0 {
		l.prev[n] = p
	} else {
		l.tail = p
	}
}

func (l *lru) pushFront(a int32) {
	l.prev[a], l.next[a] = -1, l.head
	if l.head >= 0 {
		l.prev[l.head] = a
	} else {
		l.tail = a
	}
	l.head = a
}

// rates are the hit rates by size.
func (l *lru) rates() [lruSizes]Number {
	var rates [lruSizes]Number
	sum := int64(0)
	for k, n := range l.hits {
		sum += n
		rates[k] = Number(float64(sum) / float64(l.refs))
	}
	return rates
}

// reuse is the adapters' reuse: the caches, and the references to shuffle.
type reuse struct {
	lru  *lru
	refs []int32
}

func (r *reuse) add(a int32) {
	r.lru.add(a)
	if len(r.refs) < maxShuffled {
		r.refs = append(r.refs, a)
	}
}

// curve is the hit rate over the number of slots, up to the first size that
// holds all adapters in use.
func (r *reuse) curve(adapters, used int) []HitRate {
	curve := []HitRate{}
	if r.lru.refs == 0 {
		return curve
	}
	rng := rand.New(rand.NewPCG(1, 0x6c7275)) // any order will do, always the same
	rng.Shuffle(len(r.refs), func(i, j int) { r.refs[i], r.refs[j] = r.refs[j], r.refs[i] })
	shuffled := newLRU(adapters)
	for _, a := range r.refs {
		shuffled.add(a)
	}
	own, other := r.lru.rates(), shuffled.rates()
	for k := range lruSizes {
		curve = append(curve, HitRate{Slots: 1 << k, Hits: own[k], Shuffled: other[k]})
		if 1<<k >= used {
			break
		}
	}
	return curve
}
