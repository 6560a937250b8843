package info

import (
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"lorasim/trace"
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

// HitRate is the hit rate of a cache with Slots adapters: the share of the requests with an adapter that find it
// among the Slots adapters used last. Shuffled is the hit rate of the same requests in random order, as if each were
// drawn independently. If it is far lower, adapters are used in sessions. Shuffled is measured on the first 2^20
// such requests.
type HitRate struct {
	Slots    int    `json:"slots"`
	Hits     Number `json:"hit_rate"`
	Shuffled Number `json:"shuffled_hit_rate"`
}

// lruSizes is the number of cache sizes of Summary.LRU: 1, 2, 4, ... 512.
const lruSizes = 10

// maxShuffled bounds the references that are kept to be shuffled.
const maxShuffled = 1 << 20

// lru counts the hits of caches of 1, 2, 4, ... slots at once: the content of a smaller cache is the head of the
// larger one's list (Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2),
// 1970). A reference costs a step per size, whatever the number of adapters.
type lru struct {
	next, prev []int32         // ring of the adapters, the one used last first
	level      []int8          // of an adapter: the smallest cache that holds it; lruSizes: none
	last       [lruSizes]int32 // the adapter at the end of each cache
	head       int32
	refs       int64
	hits       [lruSizes]int64 // by level
}

// newLRU returns caches full of items that are never referenced, with indices after those of the adapters. Adapters
// are out of the ring until they are used.
func newLRU(adapters int) *lru {
	const most = 1 << (lruSizes - 1)
	n := adapters + most
	l := &lru{next: make([]int32, n), prev: make([]int32, n), level: slices.Repeat([]int8{lruSizes}, n),
		head: int32(adapters)}
	for a := range int32(adapters) {
		l.next[a], l.prev[a] = a, a
	}
	for i := range int32(most) {
		item := l.head + i
		l.next[item], l.prev[item] = l.head+(i+1)%most, l.head+(i+most-1)%most
		l.level[item] = int8(bits.Len32(uint32(i)))
	}
	for k := range l.last {
		l.last[k] = l.head + 1<<k - 1
	}
	return l
}

// add refers to adapter a.
func (l *lru) add(a int32) {
	l.refs++
	from := l.level[a]
	if from < lruSizes {
		l.hits[from]++
	}
	if a == l.head {
		return
	}
	if from < lruSizes && l.last[from] == a {
		l.last[from] = l.prev[a]
	}
	l.next[l.prev[a]], l.prev[l.next[a]] = l.next[a], l.prev[a]
	tail := l.prev[l.head]
	l.prev[a], l.next[a] = tail, l.head
	l.next[tail], l.prev[l.head] = a, a
	l.head = a
	for k := range from { // the end of every cache that did not hold a falls out of it
		out := l.last[k]
		l.level[out], l.last[k] = k+1, l.prev[out]
	}
	l.level[a] = 0
}

// locality leaves out the first request, which has none before it.
func (l *lru) locality() Number {
	if l.refs < 2 {
		return undefined
	}
	hits := int64(0)
	for k := 0; 1<<k <= localityWindow; k++ {
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

// Reuse describes how much of the prompts repeats earlier prompts and replies of the same adapter. It counts the
// tokens that an unlimited prefix cache finds if requests come one after the other, at most all but the last token
// of a prompt. Where ids of blocks identify prompts, only whole blocks count.
type Reuse struct {
	Tokens int64  `json:"tokens"`
	Share  Number `json:"share"` // of the prompt tokens
	// Conversations is the number of sequences of prompts that continue each other, where the workload
	// identifies them. Turns is the number of turns of each.
	Conversations int64  `json:"conversations,omitempty"`
	Turns         Number `json:"turns,omitempty"`
}

// reuse gathers a Reuse.
type reuse struct {
	seen  map[textOf]int32         // tokens known of a text, those before it included
	talks map[*trace.Text]struct{} // texts that prompts were of
	turns int64                    // requests of them
	by    []struct{ found, prompt int64 }

	conversations int64
}

type textOf struct {
	text    *trace.Text
	adapter int32
}

// add counts the known tokens of a request's prompt, for the usage at an index, and learns prompt and reply.
func (u *reuse) add(r *trace.Request, usage int) {
	of := &u.by[usage]
	of.prompt += int64(r.Prompt)
	if r.Text == nil {
		return
	}
	if u.seen == nil {
		u.seen, u.talks = map[textOf]int32{}, map[*trace.Text]struct{}{}
	}
	for t, most := r.Text, r.Prompt-1; t != nil; t = t.Parent {
		if n := whole(t, min(u.seen[textOf{t, r.Adapter}], most)); n > t.Start {
			of.found += int64(n)
			break
		}
		most = min(most, t.Start)
	}
	u.learn(r.Text, r.Adapter, r.Prompt)
	if r.Reply != nil {
		u.learn(r.Reply, r.Adapter, r.Prompt+r.Output-1) // the last token is never computed on
	}
	if r.Text.Block == 0 {
		u.turn(r.Text)
	}
}

// whole returns n rounded down to whole blocks.
func whole(t *trace.Text, n int32) int32 {
	if t.Block > 0 {
		return n / t.Block * t.Block
	}
	return n
}

// learn notes the first n tokens of a text.
func (u *reuse) learn(t *trace.Text, adapter, n int32) {
	for ; t != nil; t = t.Parent {
		k, known := textOf{t, adapter}, whole(t, t.Known(n))
		if u.seen[k] >= known {
			return
		}
		u.seen[k] = known
		n = min(n, t.Start)
	}
}

// turn counts a request of a conversation: what branches off belongs to it.
func (u *reuse) turn(t *trace.Text) {
	u.turns++
	known := false
	for up := t; up != nil && !known; up = up.Parent {
		_, known = u.talks[up]
	}
	if !known {
		u.conversations++
	}
	u.talks[t] = struct{}{}
}

// of is the Reuse of the usages from one index to another; nil where the workload
// does not tell what prompts have in common.
func (u *reuse) of(from, to int) *Reuse {
	if u.seen == nil {
		return nil
	}
	var found, prompt int64
	for _, x := range u.by[from:to] {
		found, prompt = found+x.found, prompt+x.prompt
	}
	return &Reuse{Tokens: found, Share: Number(float64(found) / float64(prompt))}
}
