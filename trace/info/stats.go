package info

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// moments holds mean and variance of a stream of numbers (Welford,
// "Note on a method for calculating corrected sums of squares and products",
// Technometrics 4(3), 1962).
type moments struct {
	n       int64
	mean    float64
	squares float64 // sum of squared deviations from the mean
}

func (m *moments) add(x float64) {
	m.n++
	d := x - m.mean
	m.mean += d / float64(m.n)
	m.squares += d * (x - m.mean)
}

// cv is the coefficient of variation; NaN for less than two numbers.
func (m *moments) cv() Number {
	if m.n < 2 {
		return undefined
	}
	return Number(math.Sqrt(m.squares/float64(m.n)) / m.mean)
}

// dispersion counts arrivals per window. Only whole windows enter the sums.
type dispersion struct {
	window  float64 // s
	current int64   // window of the last arrival
	count   int64   // arrivals in it so far
	sum     float64 // over the windows before
	squares float64
}

func (d *dispersion) add(t float64) {
	if w := int64(t / d.window); w != d.current {
		n := float64(d.count)
		d.sum += n
		d.squares += n * n
		d.current, d.count = w, 0
	}
	d.count++
}

// index is variance over mean; NaN for less than two windows or no arrivals.
func (d *dispersion) index() Number {
	n := float64(d.current)
	if n < 2 || d.sum == 0 {
		return undefined
	}
	mean := d.sum / n
	return Number((d.squares/n - mean*mean) / mean)
}

// histogram counts token numbers: most of them in a list, rare large ones in a map.
type histogram struct {
	dense [1 << 16]int64
	rare  map[int32]int64
	n     int64
	total int64
	max   int64
}

func newHistogram() *histogram { return &histogram{rare: map[int32]int64{}} }

func (h *histogram) add(v int32) {
	h.n++
	h.total += int64(v)
	h.max = max(h.max, int64(v))
	if int(v) < len(h.dense) {
		h.dense[v]++
	} else {
		h.rare[v]++
	}
}

// all yields the numbers in ascending order, and how often each occurs.
func (h *histogram) all(yield func(value, count int64) bool) {
	for v, n := range h.dense {
		if n > 0 && !yield(int64(v), n) {
			return
		}
	}
	for _, v := range slices.Sorted(maps.Keys(h.rare)) {
		if !yield(int64(v), h.rare[v]) {
			return
		}
	}
}

// quantile interpolates linearly between order statistics.
func (h *histogram) quantile(q float64) Number {
	if h.n == 0 {
		return undefined
	}
	at := q * float64(h.n-1)
	lower := int64(at)
	lo, hi, seen := int64(-1), h.max, int64(0)
	for value, count := range h.all {
		seen += count
		if lo < 0 && seen > lower {
			lo = value
		}
		if seen > lower+1 {
			hi = value
			break
		}
	}
	return Number(float64(lo) + (at-float64(lower))*float64(hi-lo))
}

func (h *histogram) tokens() Tokens {
	return Tokens{
		Total: h.total,
		Mean:  Number(float64(h.total) / float64(h.n)),
		P50:   h.quantile(0.5),
		P90:   h.quantile(0.9),
		P95:   h.quantile(0.95),
		P99:   h.quantile(0.99),
		Max:   h.max,
	}
}

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

// locality leaves out the first request, which has none before it.
func (l *lru) locality() Number {
	if l.refs < 2 {
		return undefined
	}
	hits := int64(0)
	for k := 0; 1<<k <= LocalityWindow; k++ {
		hits += l.hits[k]
	}
	return Number(float64(hits) / float64(l.refs-1))
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

// lruCurve is the hit rate over the number of slots, up to the first size that
// holds all adapters in use.
func (c *collector) lruCurve(used int) []HitRate {
	curve := []HitRate{}
	if c.lru.refs == 0 {
		return curve
	}
	rng := rand.New(rand.NewPCG(1, 0x6c7275)) // any order will do, always the same
	rng.Shuffle(len(c.refs), func(i, j int) { c.refs[i], c.refs[j] = c.refs[j], c.refs[i] })
	shuffled := newLRU(len(c.adapters))
	for _, a := range c.refs {
		shuffled.add(a)
	}
	own, other := c.lru.rates(), shuffled.rates()
	for k := range lruSizes {
		curve = append(curve, HitRate{Slots: 1 << k, Hits: own[k], Shuffled: other[k]})
		if 1<<k >= used {
			break
		}
	}
	return curve
}

// maxTime is the latest arrival that a timeline takes, in s.
const maxTime = 1e15

// timeline counts arrivals per row and time bin. Bins start at 1 ms and widen
// by 2 and 5 in turn (1, 2, 10, 20, 100, ... ms) when time outgrows them, so
// that memory does not depend on the length of the workload.
type timeline struct {
	width int64 // ms
	bins  int   // most bins of a row
	used  int   // bins up to the last arrival
	rows  [][]int64
	twice bool // widened by 2 last
}

func newTimeline(rows, bins int) *timeline {
	return &timeline{width: 1, bins: bins, rows: make([][]int64, rows)}
}

// add counts an arrival at time t, in s.
func (tl *timeline) add(row int, t float64) {
	ms := int64(t * 1000)
	for ; ms/tl.width >= int64(tl.bins); tl.twice = !tl.twice {
		if tl.twice {
			tl.widen(5)
		} else {
			tl.widen(2)
		}
	}
	bin := int(ms / tl.width)
	tl.used = max(tl.used, bin+1)
	if tl.rows[row] == nil {
		tl.rows[row] = make([]int64, tl.bins)
	}
	tl.rows[row][bin]++
}

// widen adds up each factor bins.
func (tl *timeline) widen(factor int) {
	for _, row := range tl.rows {
		for i, n := range row {
			row[i] = 0
			row[i/factor] += n
		}
	}
	tl.width *= int64(factor)
	tl.used = (tl.used + factor - 1) / factor
}

// row returns the counts of a row up to the last arrival of any row.
func (tl *timeline) row(i int) []int64 {
	if tl.rows[i] == nil {
		return make([]int64, tl.used)
	}
	return tl.rows[i][:tl.used]
}

// round widens the bins to 1, 2 or 5 times a power of ten so that at most n are
// used. Nothing can be added afterwards.
func (tl *timeline) round(n int) {
	for nice := int64(1); ; nice *= 10 {
		for _, w := range [...]int64{nice, 2 * nice, 5 * nice} {
			factor := int(w / tl.width)
			if w%tl.width == 0 && (tl.used+factor-1)/factor <= n {
				tl.widen(factor)
				return
			}
		}
	}
}

// seconds is the width of a bin.
func (tl *timeline) seconds() float64 { return float64(tl.width) / 1000 }
