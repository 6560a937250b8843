// Package capacity finds the fewest workers, or the cheapest mix of workers,
// slots, host places, policies and profiles, that serve a workload within an SLO.
//
//	answer, err := capacity.Find(ctx, &sc, capacity.Options{SLO: slo, Attain: 0.99, MaxWorkers: 64})
//	err = answer.WriteText(os.Stdout)
//
// All candidates see the same requests: a seed's workload is drawn once. More
// workers serve more, so that their number is found by doubling and bisection,
// with the first seed, where a run stops as soon as too many requests have missed
// the SLO. That need not be true of every policy and every draw: the number found
// and the one below are then simulated with further seeds, until the interval of
// the mean attainment lies on one side of what is asked for, and the search goes
// on where the first holds no more, or the second does.
package capacity

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/sweep"
	"lorasim/bench/validate"
)

// Options says what is asked for, and of what the cluster may be.
type Options struct {
	SLO    result.SLO
	Attain float64 // share of all requests that must meet it
	// PerAdapter, where above 0, is the share of the adapters of each of which the
	// share Attain of the requests must meet the SLO, instead of all requests.
	PerAdapter float64
	MaxWorkers int
	MaxSeeds   int // draws of the workload at most, for a candidate
	// What else may vary; empty: as the scenario says.
	Slots, HostPlaces  []int
	Policies, Profiles []string
	Cost               map[string]float64 // of a worker, by profile; one that is missing: 1
	Mix                bool               // clusters of two of the profiles, too
	// Progress, where set, is told how many runs were simulated.
	Progress func(runs int64)
}

// Verdict says how near to its limit a cluster is.
type Verdict string

// The verdicts.
const (
	Stable     Verdict = "stable"
	Near       Verdict = "near"
	Overloaded Verdict = "overloaded"
)

const (
	// nearBelow is the headroom below which a cluster is near saturation.
	nearBelow = 1.1
	// backlogged: with more than this share of the requests waiting when the last
	// one arrives, they come faster than they are served, whatever the SLO allows.
	backlogged = 0.05
)

// Tried is a candidate that was simulated with enough seeds to judge it.
type Tried struct {
	Candidate
	Attainment sweep.Estimate // over the seeds
	Certain    bool           // its interval excludes what is asked for
	Holds      bool
	Causes     Causes
	Backlog    float64 // share of the requests that wait when the last one arrives
	Rejected   float64 // share of the requests
	// Worst is the adapter with the smallest share of its requests within the SLO,
	// of all seeds.
	Worst result.Worst
	seeds []uint64
}

// Kind is the fewest workers of one kind that hold, by the first seed; of two
// profiles the cheapest mix, where it is cheaper than either alone.
type Kind struct {
	Candidate // Workers is 0: not even the most hold, or no mix is cheaper
	Cost      float64
	Err       string // why it was not tried
}

// Answer is what was found.
type Answer struct {
	Options
	Found       Tried  // the answer; where nothing holds, the best that was reached
	NextCheaper *Tried // fails; nil: the answer is one worker, or nothing holds
	Kinds       []Kind // where there are several
	Headroom    float64
	Limit       Causes // what makes it fail just beyond the headroom
	Verdict     Verdict
}

// Find searches for the cheapest candidate that holds.
func Find(ctx context.Context, base *scenario.Scenario, o Options) (*Answer, error) {
	s := newSearch(ctx, base, o)
	kinds, err := s.kinds()
	if err != nil {
		return nil, err
	}
	a := &Answer{Options: o, Kinds: kinds}
	found, err := s.cheapest(a.Kinds)
	if err != nil {
		return nil, err
	}
	if found == nil {
		if found, err = s.best(a.Kinds); err == nil {
			found, err = s.descend(found)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, c := range found.below() {
		t := s.judged[c]
		if oneLess := c.total() == found.total()-1; !found.Holds || !oneLess || t.Attainment.N == 0 {
			continue
		}
		if a.NextCheaper == nil || t.Attainment.Mean > a.NextCheaper.Attainment.Mean {
			a.NextCheaper = t
		}
	}
	a.Found = *found
	if a.Headroom, a.Limit, err = s.headroom(found); err != nil {
		return nil, err
	}
	switch {
	case !found.Holds || found.Backlog > backlogged:
		a.Verdict = Overloaded
	case a.Headroom < nearBelow:
		a.Verdict = Near
	default:
		a.Verdict = Stable
	}
	return a, nil
}

// kinds finds the fewest workers of each kind that hold with the first seed, and
// the mixes that are cheaper.
func (s *search) kinds() ([]Kind, error) {
	kinds, err := s.alone()
	if err != nil || !s.opt.Mix {
		return kinds, err
	}
	mixes := s.opt.mixes()
	err = validate.Parallel(s.ctx, len(mixes), func(i int) error {
		return s.mixed(&mixes[i], kinds)
	}, nil)
	return append(kinds, mixes...), err
}

// alone finds the fewest workers of one profile each.
func (s *search) alone() ([]Kind, error) {
	all := s.opt.all()
	kinds := make([]Kind, len(all))
	errs := make([]error, len(all))
	err := validate.Parallel(s.ctx, len(all), func(i int) error {
		w, err := s.fewest(all[i])
		if kinds[i].Candidate = all[i]; err != nil {
			errs[i], kinds[i].Err = err, err.Error()
		} else if w <= s.opt.MaxWorkers {
			kinds[i].Workers = w
			kinds[i].Cost = s.opt.cost(kinds[i].Candidate)
		}
		return s.ctx.Err()
	}, nil)
	if err == nil && !slices.Contains(errs, nil) {
		err = errs[0]
	}
	return kinds, err
}

// fewest is the smallest number of workers that hold with the first seed; one
// more than the most where none does.
func (s *search) fewest(c Candidate) (int, error) {
	return bisect(0, 1, s.opt.MaxWorkers, func(w int) (bool, error) { return s.known(c.with(w)) })
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

// cheapest is the cheapest candidate that holds, and whose next cheaper fail;
// nil: none holds. It begins with what the first seed says.
func (s *search) cheapest(kinds []Kind) (*Tried, error) {
	next := slices.Clone(kinds)
	for {
		for i := range next {
			if next[i].With != "" { // as far as is known by now
				if err := s.mixed(&next[i], next); err != nil {
					return nil, err
				}
			}
		}
		open := slices.DeleteFunc(slices.Clone(next), func(k Kind) bool { return k.Workers == 0 || k.Workers > s.opt.MaxWorkers })
		if len(open) == 0 {
			return nil, nil
		}
		c := slices.MinFunc(open, func(a, b Kind) int {
			return cmp.Compare(s.opt.cost(a.Candidate), s.opt.cost(b.Candidate))
		}).Candidate
		t, err := s.judge(c)
		if err != nil {
			return nil, err
		}
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
				if ok, err := s.known(c); err != nil {
					return nil, err
				} else if !ok {
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

// best is what comes nearest where nothing holds: of the kinds with the most
// workers, the one that serves most within the SLO with the first seed.
func (s *search) best(kinds []Kind) (*Tried, error) {
	var of []Candidate
	for _, k := range kinds {
		if k.Err == "" && k.With == "" {
			of = append(of, k.Candidate.with(s.opt.MaxWorkers))
		}
	}
	runs := make([]*run, len(of))
	err := validate.Parallel(s.ctx, len(of), func(i int) (err error) {
		runs[i], err = s.measure(of[i], 1, s.base.Seed)
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

// minSeeds is the number of draws with which the interval is first looked at.
const minSeeds = 3

// judge simulates a candidate with as many seeds as it takes to tell whether it
// holds. One that cannot be has none.
func (s *search) judge(c Candidate) (*Tried, error) {
	if t := s.judged[c]; t != nil {
		return t, nil
	}
	t := &Tried{Candidate: c}
	var values []float64
	for n := min(minSeeds, s.opt.MaxSeeds); ; n = min(n+n/2+1, s.opt.MaxSeeds) {
		from := len(values)
		runs := make([]*run, n-from)
		err := validate.Parallel(s.ctx, len(runs), func(i int) (err error) {
			runs[i], err = s.measure(c, 1, s.base.Seed+uint64(from+i))
			return err
		}, nil)
		if s.cannotBe(c, err) {
			break
		}
		if err != nil {
			return nil, err
		}
		for i, r := range runs {
			values, t.seeds = append(values, r.attainment), append(t.seeds, s.base.Seed+uint64(from+i))
			t.Causes.add(&r.causes)
			t.Backlog += r.backlog
			t.Rejected += r.rejected
			if r.worst.Share < t.Worst.Share || t.Worst.Requests == 0 {
				t.Worst = r.worst
			}
		}
		t.Attainment = sweep.Mean(values)
		e := &t.Attainment
		t.Certain = e.Low >= s.opt.asked()-rounding || e.High < s.opt.asked()-rounding
		if t.Certain || n == s.opt.MaxSeeds {
			break
		}
	}
	n := float64(max(len(values), 1))
	t.Holds = t.Attainment.Mean >= s.opt.asked()-rounding
	t.Backlog /= n
	t.Rejected /= n
	s.judged[c] = t
	return t, nil
}

// mostHeadroom is the largest rate factor that is tried, in hundredths.
const mostHeadroom = 6400

// headroom is the largest rate factor, in hundredths, at which a candidate holds
// with the seeds that judged it, and what makes it fail beyond.
func (s *search) headroom(t *Tried) (float64, Causes, error) {
	lo, most := 100, mostHeadroom
	if !t.Holds {
		lo, most = 0, 99
	}
	fails, err := bisect(lo, lo+13, most, func(f int) (bool, error) {
		ok, err := s.holds(t.Candidate, float64(f)/100, t.seeds)
		return !ok, err
	})
	if err != nil || !t.Holds || fails > most {
		return float64(fails-1) / 100, t.Causes, err
	}
	r, err := s.measure(t.Candidate, float64(fails)/100, s.base.Seed)
	if err != nil {
		return 0, Causes{}, err
	}
	return float64(fails-1) / 100, r.causes, nil
}

var errNoRequests = errors.New("the workload has no requests")
