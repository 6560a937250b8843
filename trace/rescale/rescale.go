// Package rescale changes the arrival times of a workload and nothing else. It answers questions such as: what if
// the same requests arrived twice as fast, or in larger bursts?
//
//	src, err := rescale.Times(src, rescale.Options{Rate: 2, CV: 1.5})
//
// Requests keep their order, adapters, token counts and prompts.
package rescale

import (
	"errors"
	"fmt"
	"io"
	"math"

	"lorasim/trace"
)

// Options are the factors of Times; 0 and 1 change nothing.
type Options struct {
	// Rate multiplies the arrival rate: the same requests arrive in 1/Rate of the time. It also divides the
	// pauses between the turns of a conversation.
	Rate float64
	// CV multiplies the coefficient of variation of the gaps between requests within each block of [Block]
	// requests. The first and last request of a block keep their times. So the mean rate, its changes over
	// longer times, and the length of the workload stay the same.
	CV float64
}

// Times returns a source of the requests of src with other arrival times. Memory does not grow with the workload.
func Times(src trace.Source, o Options) trace.Source {
	if factor := 1 / or1(o.Rate); factor != 1 {
		src = &stretched{src, factor}
	}
	if cv := or1(o.CV); cv != 1 {
		src = &bursty{Source: src, factor: cv}
	}
	return src
}

func or1(x float64) float64 {
	if x == 0 {
		return 1
	}
	return x
}

type stretched struct {
	trace.Source
	factor float64
}

func (s *stretched) Next() (trace.Request, error) {
	r, err := s.Source.Next()
	r.Arrival *= s.factor
	return r, err
}

// Block is the number of requests within which gaps are changed. A larger block would flatten or exaggerate rates
// that change over the day; a smaller one could not hold large bursts.
const Block = 1024

// bursty changes the gaps between requests block by block.
type bursty struct {
	trace.Source
	factor float64

	ahead []trace.Request // read, not yet changed; up to two blocks
	ready int             // number of leading requests in ahead that have their new time
	ended bool
	last  float64 // arrival before the first of ahead, s
	begun bool
	gaps  []float64
}

func (b *bursty) Len() int64 {
	n := b.Source.Len()
	if n < 0 {
		return n
	}
	return n + int64(len(b.ahead))
}

func (b *bursty) Next() (trace.Request, error) {
	if b.ready == 0 {
		if err := b.block(); err != nil {
			return trace.Request{}, err
		}
	}
	r := b.ahead[0]
	b.ahead = b.ahead[1:]
	b.ready--
	return r, nil
}

// block changes the times of the requests of one block. The last block has up to twice as many requests, so that no
// block is small.
func (b *bursty) block() error {
	b.ahead = append(make([]trace.Request, 0, 2*Block), b.ahead...)
	for len(b.ahead) < 2*Block && !b.ended {
		r, err := b.Source.Next()
		if b.ended = errors.Is(err, io.EOF); b.ended {
			break
		}
		if err != nil {
			return err
		}
		b.ahead = append(b.ahead, r)
	}
	if len(b.ahead) == 0 {
		return io.EOF
	}
	n := len(b.ahead)
	if !b.ended {
		n = Block
	}
	return b.change(b.ahead[:n])
}

// change changes the gaps before the requests of a block; the last request keeps
// its time, and so does the first of the workload.
func (b *bursty) change(block []trace.Request) error {
	b.ready = len(block)
	if !b.begun {
		b.begun, b.last = true, block[0].Arrival
		block = block[1:]
	}
	if len(block) == 0 {
		return nil
	}
	b.gaps = b.gaps[:0]
	at, end := b.last, block[len(block)-1].Arrival
	for i := range block {
		b.gaps = append(b.gaps, block[i].Arrival-at)
		at = block[i].Arrival
	}
	if err := scaleCV(b.gaps, b.factor); err != nil {
		return fmt.Errorf("the %d requests from %.6g to %.6g s: %w", len(block), b.last, end, err)
	}
	at = b.last
	for i := range block {
		at = min(at+b.gaps[i], end) // rounding must not change the order
		block[i].Arrival = at
	}
	block[len(block)-1].Arrival, b.last = end, end
	return nil
}

// scaleCV multiplies the coefficient of variation of gaps, all >= 0, by a factor
// and keeps their sum and their order by size. Below 1 gaps move towards their
// mean in proportion; above 1 they are raised to a power, as exponential gaps
// become Weibull gaps: proportional moves would make some negative.
func scaleCV(gaps []float64, factor float64) error {
	mean, cv, largest := moments(gaps)
	if cv == 0 {
		return nil
	}
	if factor <= 1 {
		for i, g := range gaps {
			gaps[i] = mean + factor*(g-mean)
		}
		return nil
	}
	ties := 0
	logs := make([]float64, len(gaps)) // of gap / largest, <= 0
	for i, g := range gaps {
		if logs[i] = math.Log(g / largest); logs[i] == 0 {
			ties++
		}
	}
	most := math.Sqrt(float64(len(gaps))/float64(ties) - 1)
	if target := factor * cv; target > 0.999*most {
		return fmt.Errorf("their gaps have a coefficient of variation of %.3g and can reach at most %.3g, less than %g times that value", cv, most, factor)
	}
	powers := make([]float64, len(gaps))
	raise := func(power float64) float64 {
		for i, l := range logs {
			powers[i] = math.Exp(power * l)
		}
		_, reached, _ := moments(powers)
		return reached
	}
	low, high := 1.0, 2.0
	for raise(high) < factor*cv && high < 1e9 {
		low, high = high, 2*high
	}
	for range 40 {
		if mid := (low + high) / 2; raise(mid) < factor*cv {
			low = mid
		} else {
			high = mid
		}
	}
	raise(high)
	reached, _, _ := moments(powers)
	for i, p := range powers {
		gaps[i] = p * mean / reached
	}
	return nil
}

// moments are the mean, the coefficient of variation and the largest of some gaps.
func moments(gaps []float64) (mean, cv, largest float64) {
	for _, g := range gaps {
		mean += g / float64(len(gaps))
		largest = max(largest, g)
	}
	if mean == 0 {
		return 0, 0, largest
	}
	sum := 0.0
	for _, g := range gaps {
		sum += (g/mean - 1) * (g/mean - 1)
	}
	if cv = math.Sqrt(sum / float64(len(gaps))); cv < 1e-9 {
		cv = 0 // rounding of equal gaps
	}
	return mean, cv, largest
}
