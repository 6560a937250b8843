package result

import (
	"lorasim/sim/record"
	"lorasim/sim/tick"
)

// perSecond counts tokens and requests in each second of a run, for the two peaks of the
// block. It takes 16 bytes per second of the run.
type perSecond struct {
	tokens []int64 // output tokens by second
	change []int64 // requests that begin in the second, minus requests that ended in the second before
}

func second(at tick.Ticks) int { return int(max(at, 0) / tick.Second) }

// at returns a pointer to the count of a second.
func at(counts *[]int64, sec int) *int64 {
	if n := sec + 1 - len(*counts); n > 0 {
		*counts = append(*counts, make([]int64, n)...)
	}
	return &(*counts)[sec]
}

func (p *perSecond) addTokens(time tick.Ticks, n int64) { *at(&p.tokens, second(time)) += n }

// addSteps counts the tokens of a run of decode steps.
func (p *perSecond) addSteps(s record.Steps) {
	last := second(s.End(s.Count))
	done := int64(0)
	for sec := second(s.End(1)); sec < last; sec++ {
		n := s.Until(tick.Ticks(sec+1)*tick.Second) - 1 // ended before the next second begins
		*at(&p.tokens, sec) += (n - done) * s.Batch
		done = n
	}
	*at(&p.tokens, last) += (s.Count - done) * s.Batch
}

// addRequest counts a request in flight from sent to finish, in its first and its last
// second too.
func (p *perSecond) addRequest(sent, finish tick.Ticks) {
	*at(&p.change, second(finish)+1)--
	*at(&p.change, second(sent))++
}

// peakTokens returns the largest number of tokens in one second.
func (p *perSecond) peakTokens() (peak int64) {
	for _, n := range p.tokens {
		peak = max(peak, n)
	}
	return peak
}

// peakRequests returns the largest number of requests in flight in one second.
func (p *perSecond) peakRequests() (peak int64) {
	now := int64(0)
	for _, c := range p.change {
		now += c
		peak = max(peak, now)
	}
	return peak
}
