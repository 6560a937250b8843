package capacity

import (
	"math"
	"slices"

	"lorasim/bench/stats"
)

const (
	// firstStep is the first step of the rate, as a share.
	firstStep = 0.13
	// closeRates is the largest ratio of two rates between which attainments are interpolated.
	closeRates = 1.08
	// steepMisses is the largest ratio of the misses at two rates between which attainments are interpolated.
	steepMisses = 6
	// mostBeyond is by how much an end of the interval may be beyond two rates with runs, in hundredths, if they are
	// closer than that. The mean may be beyond them by half of it.
	mostBeyond = 6
	// missesRise is by how much the logarithm of the misses rises, about, while the rate doubles.
	missesRise = 12
	// fewRuns is the number of runs that tell roughly where the headroom is.
	fewRuns = 2
)

// crossing looks for the rate factor at which the mean attainment of a candidate crosses the target. Each rate has the
// same seeds. Between two rates that are close, attainments are interpolated.
type crossing struct {
	s     *search
	t     *Tried
	size  size
	runs  map[int][]*run // by factor in hundredths
	begun int64          // requests simulated before
}

// newCrossing begins with the runs of the candidate's interval, at a factor of 1, unless they are too long to be made
// at several rates.
func (s *search) newCrossing(t *Tried, runs []*run) *crossing {
	x := &crossing{s: s, t: t, size: s.headroomSize(t), runs: map[int][]*run{}, begun: s.spent.Load()}
	if x.size == t.Size {
		x.runs[100] = runs
	}
	return x
}

// headroomSize is the size of the runs for the headroom.
func (s *search) headroomSize(t *Tried) size {
	z := t.Size
	if z.warm > 0 && s.opt.Hold == 0 {
		z.requests = min(z.requests, z.warm+headroomCounts*s.plan.least/2)
	}
	return z
}

// step is the first step from a factor of 1: to a little beyond where the misses would reach the target if their
// logarithm rose as in most clusters.
func (x *crossing) step() float64 {
	may, miss := 1-x.s.opt.target(), 1-x.t.Attainment.Mean
	if !x.known100() || miss < may/10 || miss > may {
		return firstStep
	}
	return math.Log(may/miss)/missesRise + (closeRates-1)/2
}

// known100 reports whether the candidate holds at a factor of 1 by the runs of its interval, which may be longer.
func (x *crossing) known100() bool { return x.t.Certain && x.t.Holds }

// grow simulates a rate until it has n runs, or is hopeless.
func (x *crossing) grow(f, n int) error {
	for _, n := range []int{min(fewRuns, n), n} {
		have := x.runs[f]
		if n <= len(have) || x.s.hopeless(have) {
			continue
		}
		more, err := x.s.runAll(n-len(have), func(i int) (*run, error) {
			return x.s.measureSome(x.t.Candidate, float64(f)/100, x.s.seed(forInterval, len(have)+i), x.size)
		})
		if err != nil {
			return err
		}
		if len(have)+len(more) < n {
			return x.s.mustStop()
		}
		x.runs[f] = append(slices.Clip(have), more...)
	}
	return nil
}

// miss is the mean share that misses the SLO, but at least a tenth of what may miss it.
func (x *crossing) miss(f int) float64 {
	may := 1 - x.s.opt.target()
	mean := 1 - x.t.Attainment.Mean // at a factor of 1
	if len(x.runs[f]) > 0 {
		values, _, _ := columns(samples(x.runs[f]))
		mean = 1 - stats.Mean(values).Mean
	}
	return max(mean, may/10, 1e-6)
}

// grows reports whether queues grow at a rate.
func (x *crossing) grows(f int) bool {
	_, _, growths := columns(samples(x.runs[f]))
	_, grows := x.s.rule().growth(growths, errorLevel)
	return grows || x.s.overloaded(x.runs[f])
}

// holds reports whether the mean meets the target.
func (x *crossing) holds(f int) bool {
	sum := 0.0
	for _, r := range x.runs[f] {
		sum += r.value
	}
	return !x.s.hopeless(x.runs[f]) && sum/float64(len(x.runs[f])) >= x.s.opt.target()-rounding && !x.grows(f)
}

// try simulates a rate, and reports whether it holds. At a factor of 1 the interval may tell.
func (x *crossing) try(f, n int) (bool, error) {
	if f == 100 && n <= fewRuns && x.known100() {
		return true, nil
	}
	if err := x.grow(f, n); err != nil {
		return false, err
	}
	return x.holds(f), nil
}

// close reports whether attainments between two rates can be interpolated.
func (x *crossing) close(lo, hi int) bool {
	return hi-lo <= 1 || float64(hi) <= closeRates*float64(lo) && x.miss(hi) <= steepMisses*x.miss(lo) && !x.grows(hi)
}

// bracket finds two rates, one that holds and one that fails, that are close. lo is 0 if none holds, hi is above
// mostHeadroom if none fails. The first rate to be tried is from.
func (x *crossing) bracket(from int, step float64) (lo, hi int, err error) {
	ok, err := x.try(from, fewRuns)
	last := from
	for lo, hi = from, from; err == nil && ok && lo == hi; step *= 2 {
		if last < lo {
			step = x.secant(last, lo, step)
		}
		last = lo
		if hi = max(int(math.Round(float64(lo)*(1+step))), lo+1); lo >= mostHeadroom {
			return lo, mostHeadroom + 1, nil
		}
		hi = min(hi, mostHeadroom)
		if ok, err = x.try(hi, fewRuns); ok {
			lo = hi
		}
	}
	for ; err == nil && !ok && lo == hi; step *= 2 {
		if lo = min(int(float64(hi)/(1+step)), hi-1); lo <= 0 {
			return 0, hi, nil
		}
		if ok, err = x.try(lo, fewRuns); !ok {
			hi = lo
		}
	}
	for err == nil && !x.close(lo, hi) {
		mid := min(max(int(math.Sqrt(float64(lo)*float64(hi))), lo+1), hi-1)
		if ok, err = x.try(mid, fewRuns); ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, hi, err
}

// secant is the step of the rate, as a share, from hi to a little beyond where the line through the logarithms of the
// misses at lo and hi reaches the target. It is at most most.
func (x *crossing) secant(lo, hi int, most float64) float64 {
	a, b, may := math.Log(x.miss(lo)), math.Log(x.miss(hi)), math.Log(max(1-x.s.opt.target(), 1e-6))
	if b <= a {
		return most
	}
	step := (may-b)/(b-a)*float64(hi-lo)/float64(hi) + (closeRates-1)/2
	return min(max(step, (closeRates-1)/1.5), most)
}

// at are samples of a rate from lo to hi, or close to them. The mean of their misses is that of a line through the
// logarithms of the mean misses at lo and hi.
func (x *crossing) at(f, lo, hi int) []sample {
	n := min(len(x.runs[lo]), len(x.runs[hi]))
	share := 0.0
	if a, b := x.miss(lo), x.miss(hi); f != lo && a != b {
		between := float64(f-lo) / float64(hi-lo)
		share = (a*math.Pow(b/a, between) - a) / (b - a)
	} else if f != lo {
		share = float64(f-lo) / float64(hi-lo)
	}
	list := make([]sample, n)
	for i := range list {
		a, b := x.runs[lo][i].sample, x.runs[hi][i].sample
		list[i] = sample{value: a.value + share*(b.value-a.value), growth: a.growth + share*(b.growth-a.growth)}
	}
	return list
}

// beyond is the largest factor at which a condition on samples of rates holds, up to some hundredths below or above the
// rates lo and hi; false: it is farther off.
func (x *crossing) beyond(lo, hi, direction, most int, ok func([]sample) bool) (int, bool) {
	if hi-lo <= 1 {
		return 0, false
	}
	for i := range most + 1 {
		f := lo - i
		if direction > 0 {
			f = hi + i
		}
		if holds := ok(x.at(f, lo, hi)); holds == (direction < 0) {
			return f - max(direction, 0), true
		}
	}
	return 0, false
}

// crosses is the largest factor at which the mean meets the target: between two rates, or a little beyond them. holdsLo
// and holdsHi state whether it does at the rates; false: it is farther off.
func (x *crossing) crosses(lo, hi int, holdsLo, holdsHi bool) (int, bool) {
	switch {
	case hi > mostHeadroom:
		return 0, false
	case holdsLo && !holdsHi:
		return x.edge(lo, hi, x.mean), true
	case holdsLo:
		return x.beyond(lo, hi, 1, max(hi-lo, mostBeyond)/2, x.mean)
	case !holdsHi && !x.s.hopeless(x.runs[lo]) && !x.s.hopeless(x.runs[hi]):
		return x.beyond(lo, hi, -1, max(hi-lo, mostBeyond)/2, x.mean)
	}
	return 0, false
}

// edge is the largest factor from lo on, below hi, at which a condition on the samples holds. It holds at lo, and not
// at hi.
func (x *crossing) edge(lo, hi int, ok func([]sample) bool) int {
	for f := hi - 1; f > lo; f-- {
		if ok(x.at(f, lo, hi)) {
			return f
		}
	}
	return lo
}

// mean, low and high report whether the mean, the lower and the upper end of its interval meet the target.
func (x *crossing) mean(list []sample) bool {
	sum := 0.0
	for _, s := range list {
		sum += s.value / float64(len(list))
	}
	return sum >= x.s.opt.target()-rounding
}

func (x *crossing) low(list []sample) bool {
	rule := x.s.rule()
	values, _, growths := columns(list)
	growing, _ := rule.growth(growths, errorLevel)
	return x.mean(list) && rule.lower(values, errorLevel) >= rule.target-rounding && !growing
}

func (x *crossing) high(list []sample) bool {
	rule := x.s.rule()
	values, _, growths := columns(list)
	_, grows := rule.growth(growths, errorLevel)
	return x.mean(list) || rule.upper(values, errorLevel) >= rule.target-rounding && !grows
}

// walk looks from a rate in a direction for the first one at which the answer of a condition is not what it is at from,
// and returns the largest factor at which the condition holds.
func (x *crossing) walk(from, n int, step float64, direction float64, ok func([]sample) bool) (int, error) {
	for near := from; ; step *= 2 {
		far := x.known(near, direction)
		if far == 0 {
			far = int(math.Round(float64(near) * (1 + direction*step)))
		}
		if far == near {
			far += int(direction)
		}
		if far <= 0 || far > mostHeadroom {
			return max(min(far, mostHeadroom), 0), nil
		}
		if err := x.grow(far, n); err != nil {
			return 0, err
		}
		holds := ok(x.at(far, far, far)) && !x.s.hopeless(x.runs[far])
		if holds == (direction < 0) {
			lo, hi := min(near, far), max(near, far)
			for !x.close(lo, hi) {
				mid := min(max(int(math.Sqrt(float64(lo)*float64(hi))), lo+1), hi-1)
				if err := x.grow(mid, n); err != nil {
					return 0, err
				}
				if ok(x.at(mid, mid, mid)) && !x.s.hopeless(x.runs[mid]) {
					lo = mid
				} else {
					hi = mid
				}
			}
			return x.edge(lo, hi, ok), nil
		}
		near = far
	}
}

// known is the rate farthest from another one in a direction that has runs and is close enough for interpolation; 0:
// there is none.
func (x *crossing) known(near int, direction float64) (far int) {
	for f := range x.runs {
		lo, hi := min(near, f), max(near, f)
		if float64(f-near)*direction > 0 && float64(hi) <= closeRates*float64(lo) &&
			(far == 0 || float64(f-far)*direction > 0) {
			far = f
		}
	}
	return far
}

// end is the largest factor at which a condition holds that changes near the rates lo and hi: in a direction from them,
// if not between them.
func (x *crossing) end(lo, hi, n, direction int, ok func([]sample) bool) (int, error) {
	from := lo
	if direction > 0 {
		from = hi
	}
	if holds := !x.s.hopeless(x.runs[from]) && ok(x.at(from, from, from)); holds == (direction < 0) {
		return x.edge(lo, hi, ok), nil
	}
	if f, found := x.beyond(lo, hi, direction, max(hi-lo, mostBeyond), ok); found {
		return f, nil
	}
	if direction < 0 && x.known100() && 2*lo-hi <= 100 {
		return 100, nil // as the interval tells
	}
	return x.walk(from, n, closeRates-1.05, float64(direction), ok)
}

// headroom finds the headroom and its interval, with more and more seeds, until the interval is narrow or the budget
// for it is spent.
func (x *crossing) headroom() (h Headroom, err error) {
	s := x.s
	lo, hi, err := x.bracket(100, x.step())
	if err != nil || lo == 0 {
		return h, err
	}
	share := int(s.budget() * headroomShare / 100)
	least := min(max(share/4/int(max(x.size.requests, s.plan.stated, 1)), headroomSeeds/2), headroomSeeds)
	for n := min(least, s.opt.MaxSeeds); ; n = min(2*n, s.opt.MaxSeeds) {
		found, ok := 0, false
		for tries := 0; tries < 8; tries++ { // more seeds may show that the rate is not between the two
			a, err := x.try(lo, n)
			if err != nil {
				return h, err
			}
			b := false
			if hi <= mostHeadroom {
				if b, err = x.try(hi, n); err != nil {
					return h, err
				}
			}
			if found, ok = x.crosses(lo, hi, a, b); ok || hi > mostHeadroom && a {
				break
			}
			from := lo
			if a {
				from = hi
			}
			if lo, hi, err = x.bracket(from, closeRates-1.02); err != nil || lo == 0 {
				return h, err
			}
		}
		next := Headroom{Factor: float64(lo) / 100, Low: float64(lo) / 100, High: float64(lo) / 100, Seeds: n}
		if hi > mostHeadroom {
			return next, nil
		}
		factor := found
		if !ok {
			factor = x.edge(lo, hi, x.mean)
		}
		next.Factor = float64(factor) / 100
		low, high := factor, factor
		if n > 1 {
			if low, err = x.end(lo, hi, n, -1, x.low); err == nil {
				high, err = x.end(lo, hi, n, 1, x.high)
			}
			if err != nil {
				return h, err
			}
		}
		next.Low, next.High = float64(min(low, factor))/100, float64(max(high, factor))/100
		h = next
		spent := s.spent.Load() - x.begun
		if h.High-h.Low <= headroomWidth*max(h.Factor, 1) || n == s.opt.MaxSeeds || 2*spent > int64(share) {
			return h, nil
		}
	}
}
