package capacity

import (
	"cmp"
	"slices"

	"lorasim/internal/parallel"
)

// find decides which candidate is the answer: the cheapest that holds, or the best
// where none does.
func (s *search) find() (*Tried, []Kind, error) {
	kinds, err := s.settle()
	if err != nil {
		return nil, nil, err
	}
	found, err := s.cheapest(kinds)
	if err == nil && found == nil {
		if found, err = s.best(kinds); err == nil {
			found, err = s.descend(found)
		}
	}
	return found, kinds, err
}

// nextCheaper is what was decided about the candidates with one worker less than
// the answer: of two the one that reached more.
func (s *search) nextCheaper(found *Tried) (next *Tried) {
	if !found.Holds {
		return nil
	}
	for _, c := range found.below() {
		t := s.judged[c]
		if c.total() == found.total()-1 && t.Attainment.N > 0 &&
			(next == nil || t.Attainment.Mean > next.Attainment.Mean) {
			next = t
		}
	}
	return next
}

// settle finds the kinds' numbers of workers by the first seed, with runs that are
// long enough: while the attainment of the candidates just below them still rises
// within a run, as where adapters are loaded for the first time, runs get longer.
func (s *search) settle() ([]Kind, error) {
	for {
		kinds, err := s.kinds()
		if err != nil || s.plan.fixed != "" || s.opt.MaxSeeds < 2 {
			return kinds, err
		}
		rising, err := s.rising(kinds)
		if err != nil || !rising || 2*s.plan.least*firstSeeds > s.budget()/8 {
			return kinds, err
		}
		s.plan.least *= 2
		clear(s.first)
		s.dropAll()
	}
}

// rising reports whether the attainment of the cheapest candidate that fails with the
// first seed rises within a run.
func (s *search) rising(kinds []Kind) (bool, error) {
	c, least := Candidate{}, -1.0
	for _, k := range kinds {
		workers := k.Workers
		if k.With != "" || k.Err != "" || workers == 1 || k.Bound {
			continue
		}
		if workers == 0 {
			workers = s.opt.MaxWorkers + 1
		}
		if cost := s.opt.cost(k.with(workers)); least < 0 || cost < least {
			c, least = k.with(workers-1), cost
		}
	}
	if least < 0 {
		return false, nil
	}
	n := min(quickSeeds, s.opt.MaxSeeds)
	runs, err := s.tracks(c, n).runs(s.ctx, s.plan.size())
	if s.cannotBe(c, err) {
		return false, nil
	}
	if err != nil || len(runs) < n {
		return false, err
	}
	gain := 0.0
	trends := make([]float64, n)
	for i, r := range runs {
		trends[i] = r.trend
		gain += r.trend / float64(n)
	}
	_, better := trend(trends)
	return better && gain > (1-s.opt.asked())/10, nil
}

// kinds finds the fewest workers of each kind that hold with the first seed, and
// the mixes that are cheaper.
func (s *search) kinds() ([]Kind, error) {
	kinds, err := s.alone()
	if err != nil || !s.opt.Mix {
		return kinds, err
	}
	mixes := s.opt.mixes()
	err = parallel.Do(s.ctx, len(mixes), func(i int) error {
		return s.mixed(&mixes[i], kinds)
	}, nil)
	return append(kinds, mixes...), err
}

// alone finds the fewest workers of one profile each. With guesses it begins with the cheapest guess. Of the other
// kinds it then tries only the largest cluster that is cheaper: if that fails, the kind cannot be the answer.
func (s *search) alone() ([]Kind, error) {
	all := s.opt.all()
	kinds := make([]Kind, len(all))
	errs := make([]error, len(all))
	for i := range all {
		kinds[i].Candidate = all[i]
	}
	enter := func(i, w int, err error) {
		if errs[i] = err; err != nil {
			kinds[i].Err = err.Error()
		} else if w <= s.opt.MaxWorkers {
			kinds[i].Workers = w
			kinds[i].Cost = s.opt.cost(kinds[i].Candidate)
		}
	}
	first := -1
	if g := s.guessed(); g != nil {
		first = slices.Index(all, g.with(0))
		w, err := s.fewest(all[first])
		if w == g.Workers+1 { // short runs say that one less may do: it is decided first
			w = g.Workers
		}
		enter(first, w, err)
		s.shortSuffice = err == nil && w >= g.Workers-1
	}
	err := parallel.Do(s.ctx, len(all), func(i int) error {
		if i == first {
			return nil
		}
		if first >= 0 && kinds[first].Workers > 0 {
			w := 0
			for ; w < s.opt.MaxWorkers; w++ {
				cost := s.opt.cost(all[i].with(w + 1))
				if best := kinds[first].Cost; cost > best || cost == best && i > first {
					break
				}
			}
			ok, err := false, error(nil)
			if w > 0 {
				var far bool
				if far, err = s.far(all[i].with(w)); err == nil && !far {
					ok, err = s.known(all[i].with(w))
				}
			}
			if err != nil || !ok {
				kinds[i].Bound = true
				enter(i, w+1, err)
				return s.ctx.Err()
			}
		}
		w, err := s.fewest(all[i])
		enter(i, w, err)
		return s.ctx.Err()
	}, nil)
	if err == nil && !slices.Contains(errs, nil) {
		err = errs[0]
	}
	return kinds, err
}

// fewest is the smallest number of workers that hold with the first seed; one
// more than the most where none does. It begins with the guess, and with one less.
func (s *search) fewest(c Candidate) (int, error) {
	holds := func(w int) (bool, error) { return s.known(c.with(w)) }
	for _, g := range s.guesses {
		if g.with(0) == c {
			err := parallel.Do(s.ctx, min(g.Workers, 2), func(i int) error {
				_, err := holds(g.Workers - i)
				return err
			}, nil)
			if err != nil {
				return 0, err
			}
			return gallop(g.Workers, s.opt.MaxWorkers, holds)
		}
	}
	return bisect(0, 1, s.opt.MaxWorkers, holds)
}

// gallop finds the smallest number in 1..most that holds, most+1 where none does. It begins with from, and goes down or
// up in steps that double.
func gallop(from, most int, holds func(int) (bool, error)) (int, error) {
	ok, err := holds(from)
	if err != nil || !ok {
		fewest, err2 := bisect(from, from+1, most, holds)
		return fewest, cmp.Or(err, err2)
	}
	lo, hi := from-1, from
	for step := 1; lo > 0; lo = max(hi-step, 0) {
		if ok, err := holds(lo); err != nil {
			return 0, err
		} else if !ok {
			break
		}
		hi, step = lo, 2*step
	}
	return bisect(lo, lo+max((hi-lo)/2, 1), hi-1, holds)
}

// bisect finds the smallest number in lo+1..most that holds, most+1 where none
// does; lo does not, and the first to be tried is try. It doubles the distance to
// lo until one holds.
func bisect(lo, try, most int, holds func(int) (bool, error)) (int, error) {
	hi, found := most+1, false
	for step := max(try-lo, 1); lo+1 < hi; {
		mid := min(lo+step, hi-1)
		if found {
			mid = lo + (hi-lo)/2
		}
		ok, err := holds(mid)
		switch {
		case err != nil:
			return 0, err
		case ok:
			hi, found = mid, true
		default:
			lo, step = mid, 2*step
		}
	}
	return hi, nil
}

// cheapest returns the cheapest candidate that holds, such that the next cheaper ones fail; nil: none holds. It begins
// with the result of the first seed. If the budget runs out before a candidate is accepted, it returns the last one
// tried.
func (s *search) cheapest(kinds []Kind) (*Tried, error) {
	next := slices.Clone(kinds)
	var tried *Tried
	for {
		for i := range next {
			if next[i].With != "" { // as far as is known by now
				if err := s.mixed(&next[i], next); err != nil {
					return nil, err
				}
			}
		}
		open := slices.DeleteFunc(slices.Clone(next), func(k Kind) bool {
			return k.Workers == 0 || k.Workers > s.opt.MaxWorkers
		})
		if len(open) == 0 {
			return nil, nil
		}
		k := slices.MinFunc(open, func(a, b Kind) int {
			return cmp.Compare(s.opt.cost(a.Candidate), s.opt.cost(b.Candidate))
		})
		c := k.Candidate
		if k.Bound {
			ok, err := s.known(c)
			if err != nil {
				return nil, err
			}
			i := slices.IndexFunc(next, func(k Kind) bool { return k.Candidate == c })
			if next[i].Bound = !ok; !ok {
				next[i].Workers++
				continue
			}
		}
		t, err := s.judge(c)
		if err != nil {
			return nil, err
		}
		if t.Attainment.N == 0 && t.Decision == Undecided {
			s.stopped = true
			return cmp.Or(tried, t), nil
		}
		tried = t
		if !t.Holds {
			for i := range next { // of a mix that is known by now
				if next[i].Candidate == c && c.With == "" {
					next[i].Workers++
				}
			}
			continue
		}
		return s.descend(t)
	}
}

// descend goes on to less, as long as that holds: to one worker less, or, where
// that fails, to the few fewer of which the first seed says that they hold, as with
// policies that more workers may hurt.
func (s *search) descend(t *Tried) (*Tried, error) {
	for {
		var less *Tried
		for _, c := range t.below() {
			if !t.Holds || c.total() < t.total()-1 {
				far, err := s.far(c)
				ok := false
				if err == nil && !far {
					ok, err = s.known(c)
				}
				if err != nil {
					return nil, err
				}
				if !ok {
					continue
				}
			}
			below, err := s.judge(c)
			if err != nil {
				return nil, err
			}
			if below.Holds && (less == nil || s.opt.cost(c) < s.opt.cost(less.Candidate)) {
				less = below
			}
		}
		if less == nil {
			return t, nil
		}
		t = less
	}
}

// best returns the best candidate if none holds: among the kinds with the most workers, the one with the highest
// attainment with the first seed.
func (s *search) best(kinds []Kind) (*Tried, error) {
	var of []Candidate
	for _, k := range kinds {
		if k.Err == "" && k.With == "" {
			of = append(of, k.Candidate.with(s.opt.MaxWorkers))
		}
	}
	runs := make([]*run, len(of))
	err := parallel.Do(s.ctx, len(of), func(i int) (err error) {
		runs[i], err = s.measure(of[i], 1, s.base.Seed, s.plan.size(), false)
		return err
	}, nil)
	if err != nil {
		return nil, err
	}
	top := 0
	for i, r := range runs {
		if r.attainment > runs[top].attainment {
			top = i
		}
	}
	return s.judge(of[top])
}

// mostHeadroom is the largest rate factor that is tried, in hundredths.
const mostHeadroom = 6400
