package result

import (
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// perSecond counts tokens and requests in each second of a run, for the two peaks of the
// block. It takes 16 bytes per second of the run, and nothing for hours without requests.
type perSecond struct {
	tokens counts // output tokens by second
	change counts // requests that begin in the second, minus requests that ended in the second before
}

func second(at tick.Ticks) int { return int(max(at, 0) / tick.Second) }

// counts are counts by second, in blocks; nil: all of a block are 0.
type counts [][]int64

const blockSeconds = 1 << 10

// at returns a pointer to the count of a second.
func (c *counts) at(sec int) *int64 {
	if b := sec / blockSeconds; b < len(*c) && (*c)[b] != nil {
		return &(*c)[b][sec%blockSeconds]
	}
	return c.grow(sec)
}

func (c *counts) grow(sec int) *int64 {
	b := sec / blockSeconds
	if n := b + 1 - len(*c); n > 0 {
		*c = append(*c, make([][]int64, n)...)
	}
	(*c)[b] = make([]int64, blockSeconds)
	return &(*c)[b][sec%blockSeconds]
}

func (p *perSecond) addTokens(time tick.Ticks, n int64) { *p.tokens.at(second(time)) += n }

// addSteps counts the tokens of a run of decode steps.
func (p *perSecond) addSteps(s record.Steps) {
	last := second(s.End(s.Count))
	done := int64(0)
	for sec := second(s.End(1)); sec < last; sec++ {
		n := s.Until(tick.Ticks(sec+1)*tick.Second) - 1 // ended before the next second begins
		*p.tokens.at(sec) += (n - done) * s.Batch
		done = n
	}
	*p.tokens.at(last) += (s.Count - done) * s.Batch
}

// addRequest counts a request in flight from sent to finish, in its first and its last
// second too.
func (p *perSecond) addRequest(sent, finish tick.Ticks) {
	*p.change.at(second(finish) + 1)--
	*p.change.at(second(sent))++
}

// peakTokens returns the largest number of tokens in one second.
func (p *perSecond) peakTokens() (peak int64) {
	for _, block := range p.tokens {
		for _, n := range block {
			peak = max(peak, n)
		}
	}
	return peak
}

// peakRequests returns the largest number of requests in flight in one second.
func (p *perSecond) peakRequests() (peak int64) {
	now := int64(0)
	for _, block := range p.change {
		for _, c := range block {
			now += c
			peak = max(peak, now)
		}
	}
	return peak
}
