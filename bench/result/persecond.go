package result

import (
	"sort"

	"lorasim/internal/record"
	"lorasim/internal/tick"
)

// perSecond counts what happens in each second of a run, for the two peaks of
// the block. It takes 16 bytes for each second of the run.
type perSecond struct {
	origin tick.Ticks // second 0 begins here
	tokens []int64    // output tokens by second
	change []int64    // requests that begin in the second, less those that ended in the one before
}

func (p *perSecond) second(at tick.Ticks) int {
	return int(max(at-p.origin, 0) / tick.Second)
}

// widen returns s with at least n elements.
func widen(s []int64, n int) []int64 {
	if n > len(s) {
		s = append(s, make([]int64, n-len(s))...)
	}
	return s
}

// addTokens counts n tokens at the given time.
func (p *perSecond) addTokens(at tick.Ticks, n int64) {
	p.addTokensIn(p.second(at), n)
}

func (p *perSecond) addTokensIn(second int, n int64) {
	if second >= len(p.tokens) {
		p.tokens = widen(p.tokens, second+1)
	}
	p.tokens[second] += n
}

// addSteps counts the tokens of a run of decode steps.
func (p *perSecond) addSteps(s record.Steps) {
	last := p.second(s.End(s.Count))
	done := int64(0)
	for sec := p.second(s.End(1)); sec < last; sec++ {
		next := p.origin + tick.Ticks(sec+1)*tick.Second
		// ended before the next second begins
		n := int64(sort.Search(int(s.Count), func(i int) bool { return s.End(int64(i)+1) >= next }))
		p.addTokensIn(sec, (n-done)*s.Batch)
		done = n
	}
	p.addTokensIn(last, (s.Count-done)*s.Batch)
}

// addRequest counts a request that is in flight from sent to finish; it touches
// both its first and its last second.
func (p *perSecond) addRequest(sent, finish tick.Ticks) {
	first, last := p.second(sent), p.second(finish)
	if last+2 > len(p.change) {
		p.change = widen(p.change, last+2)
	}
	p.change[first]++
	p.change[last+1]--
}

// peakTokens returns the most tokens in one second.
func (p *perSecond) peakTokens() int64 {
	var peak int64
	for _, n := range p.tokens {
		peak = max(peak, n)
	}
	return peak
}

// peakRequests returns the most requests that touch one second.
func (p *perSecond) peakRequests() int64 {
	var now, peak int64
	for _, c := range p.change {
		now += c
		peak = max(peak, now)
	}
	return peak
}
