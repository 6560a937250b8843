package capacity

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/parallel"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
	"lorasim/trace/settings"
)

// rounding is by how much a mean of shares may be off.
const rounding = 1e-9

// search simulates candidates.
type search struct {
	ctx    context.Context
	base   *scenario.Scenario
	opt    Options
	plan   plan
	judged map[Candidate]*Tried
	// stopped: the budget was spent before a candidate was accepted.
	stopped bool
	begun   time.Duration // processor time used at the start, see Options.CPU
	guesses []guess
	// shortSuffice: longer runs do not need far fewer workers than the guess, so short runs tell what is far from
	// holding. They do not if adapters are still loaded for the first time.
	shortSuffice bool
	spent        atomic.Int64 // requests simulated
	runs         atomic.Int64
	ended        atomic.Int64 // of them, those that were not given up

	mu        sync.Mutex
	first     map[Candidate]bool // whether they hold, by the first seed
	panels    map[Candidate]panel
	workloads map[drawn]func() (*load, error)
	order     []drawn // of workloads, the oldest first
}

func newSearch(ctx context.Context, base *scenario.Scenario, o Options) *search {
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	base, part := busiest(base)
	variants := []scenario.Scenario{*base}
	for _, p := range o.Profiles {
		if v, err := (Candidate{Profile: p}).apply(base); err == nil { // a run of it tells the error
			variants = append(variants, v)
		}
	}
	own := *base
	if err := own.CommonRanks(ctx, variants...); err == nil {
		base = &own
	}
	p := newPlan(base)
	p.busiest = part
	if p.spread {
		o.MaxSeeds = min(o.MaxSeeds, resamples)
	}
	var begun time.Duration
	if o.CPU > 0 {
		begun = o.Used()
	}
	return &search{ctx: ctx, base: base, opt: o, plan: p, begun: begun, judged: map[Candidate]*Tried{},
		first: map[Candidate]bool{}, panels: map[Candidate]panel{}, workloads: map[drawn]func() (*load, error){}}
}

// simulate runs a candidate under factor times the load: the same requests,
// closer together. observe makes the observer.
func (s *search) simulate(
	ctx context.Context, c Candidate, factor float64, seed uint64, z size,
	observe func(sc *scenario.Scenario, src *scaled) record.Watcher,
) (*result.Result, error) {
	if err := s.mustStop(); err != nil {
		return nil, err
	}
	sc, err := c.apply(s.base)
	if err != nil {
		return nil, err
	}
	sc.Seed, sc.Client.Warmup = seed, scenario.Client{}.Warmup // the search has a warm-up of its own
	if z.requests > 0 {
		sc.Workload.NumPrompts = settings.Some(z.requests)
	}
	in, src, err := s.open(&sc, z)
	if err != nil {
		return nil, err
	}
	src.factor = factor
	sc.Workload.Window /= factor
	res, err := sc.Simulate(ctx, scenario.RunOptions{
		Input: in, Watch: func([]trace.Adapter) record.Watcher { return observe(&sc, src) },
	})
	if err == nil {
		s.ended.Add(1)
	}
	s.runs.Add(1)
	s.progress(src)
	return res, err
}

// progress enters the requests of a run that were read since the last call.
func (s *search) progress(src *scaled) {
	s.spent.Add(src.read - src.entered)
	if src.entered = src.read; s.opt.Progress != nil {
		s.opt.Progress(s.runs.Load(), s.spent.Load())
	}
}

// holds reports whether a candidate meets the SLO with one seed.
func (s *search) holds(c Candidate, factor float64, seed uint64, z size) (bool, error) {
	return s.meets(c, factor, seed, z, 1-s.opt.asked())
}

// meets reports whether at most a share of what is counted misses the SLO with one seed. The run stops as soon as more
// has missed it.
func (s *search) meets(c Candidate, factor float64, seed uint64, z size, may float64) (bool, error) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	m := &misses{left: may + rounding, stop: stop}
	var count *counter
	_, err := s.simulate(ctx, c, factor, seed, z, func(_ *scenario.Scenario, src *scaled) record.Watcher {
		count = &counter{opt: &s.opt, src: src, misses: m}
		src.flooded = func() bool {
			return !s.plan.closed && 4*src.done < src.read && src.done > 0 && 2*count.met < src.done
		}
		return record.WatchEnds(count.Done)
	})
	switch {
	case s.ctx.Err() != nil:
		return false, s.ctx.Err()
	case m.left < 0 || errors.Is(err, errFlooded):
		return false, nil
	case err != nil:
		return false, err
	}
	return count.share(&s.opt) >= 1-may-rounding, nil
}

const (
	// farMisses is the share of requests that miss the SLO in a short run of a candidate that is far from holding, as a
	// multiple of the share that may miss.
	farMisses = 5
	// leastFar is the least such share.
	leastFar = 0.05
)

// far reports whether a candidate that nothing is known about is far from holding, by one short run.
func (s *search) far(c Candidate) (bool, error) {
	s.mu.Lock()
	_, seen := s.first[c]
	s.mu.Unlock()
	may := max(farMisses*(1-s.opt.asked()), leastFar)
	if !s.shortSuffice || seen || s.judged[c] != nil || s.opt.PerAdapter > 0 || may >= 0.5 {
		return false, nil
	}
	ok, err := s.meets(c, 1, s.seed(forGuess, 0), half(guessRequests), may)
	if s.cannotBe(c, err) {
		return false, nil
	}
	return !ok, err
}

// known reports whether a candidate holds: by the seeds of its decision if there is one, else by the first seed.
func (s *search) known(c Candidate) (bool, error) {
	if t := s.judged[c]; t != nil {
		return t.Holds, nil
	}
	s.mu.Lock()
	ok, seen := s.first[c]
	s.mu.Unlock()
	if seen {
		return ok, nil
	}
	ok, err := s.holds(c, 1, s.base.Seed, s.plan.size())
	if s.cannotBe(c, err) {
		err = nil
	}
	if err == nil {
		s.mu.Lock()
		s.first[c] = ok
		s.mu.Unlock()
	}
	return ok, err
}

// cannotBe reports whether a candidate is too few workers to be simulated, as where
// the last of them has an outage or a place in a table of a policy. With the most
// workers an error is one.
func (s *search) cannotBe(c Candidate, err error) bool {
	return err != nil && s.mustStop() == nil && c.total() < s.opt.MaxWorkers
}

// run is the outcome of a whole run.
type run struct {
	attainment, rejected float64
	backlog              float64 // share of the requests that wait when the last one arrives
	overloaded           bool    // by the test of the run itself
	worst                result.Worst
	last                 float64      // time of the last arrival, s
	causes               waits.Causes // where they were watched
	sample
}

// hopelessMisses ends a run of a rate that is far too high, as a multiple of the share that may miss the SLO: two of
// these runs are hopeless.
const hopelessMisses = 25

// measureSome simulates a candidate at a rate, until it is clear that far too many requests miss the SLO.
func (s *search) measureSome(c Candidate, factor float64, seed uint64, z size) (*run, error) {
	limit := hopelessMisses * (1 - s.opt.target())
	if limit <= 0 || limit >= 1 || s.plan.fixed != "" || s.opt.PerAdapter > 0 {
		return s.measure(c, factor, seed, z, false)
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	m := &misses{left: limit, stop: stop}
	r, err := s.measureUntil(ctx, c, factor, seed, z, false, m)
	if m.left < 0 && s.ctx.Err() == nil {
		return &run{attainment: 1 - limit, sample: sample{value: 1 - limit}}, nil
	}
	return r, err
}

// measure simulates a candidate to the end. watched runs, which take longer, say
// what requests wait for.
func (s *search) measure(c Candidate, factor float64, seed uint64, z size, watched bool) (*run, error) {
	return s.measureUntil(s.ctx, c, factor, seed, z, watched, nil)
}

func (s *search) measureUntil(
	ctx context.Context, c Candidate, factor float64, seed uint64, z size, watched bool, m *misses,
) (*run, error) {
	var count *counter
	var u *usage
	var fault error
	res, err := s.simulate(ctx, c, factor, seed, z, func(sc *scenario.Scenario, src *scaled) record.Watcher {
		if count = (&counter{opt: &s.opt, src: src, misses: m}); !watched {
			return record.WatchEnds(count.Done)
		}
		var ps []*profile.Profile
		ps, fault = sc.Profiles(s.ctx)
		u = newUsage(&s.opt, ps, src)
		count = &u.counter
		return u.watcher()
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	share := count.share(&s.opt)
	r := &run{attainment: share, rejected: float64(count.rejected) / float64(max(count.total, 1)),
		worst:      worstOf(count.adapters, count.src.Adapters()),
		backlog:    float64(count.waiting) / float64(max(count.src.read, 1)),
		overloaded: res.Steady != nil && res.Steady.State == steady.Overloaded}
	r.last = count.src.last
	r.sample = sample{value: share, growth: count.src.growth()}
	if s.opt.Hold > 0 {
		r.value = 0
		if share >= s.opt.asked()-rounding {
			r.value = 1
		}
	}
	if watched {
		r.causes = u.waits.Causes(res)
	}
	return r, nil
}

// seed is seed i of a stream. Where seeds only break ties, and where there is only
// one, the base seed comes first, so that sim repeats the run.
func (s *search) seed(stream, i int) uint64 {
	if s.plan.single || s.opt.MaxSeeds == 1 {
		return s.base.Seed + uint64(i)
	}
	return stats.Seed(s.base.Seed, stream, i)
}

// measureAll simulates a candidate with seeds from..to-1 of a stream. The first few of them are watched, where watched
// is more than from. If the search must stop, the list has only the runs that ended before.
func (s *search) measureAll(c Candidate, factor float64, stream, from, to int, z size, watched int) ([]*run, error) {
	return s.runAll(to-from, func(i int) (*run, error) {
		return s.measure(c, factor, s.seed(stream, from+i), z, from+i < watched)
	})
}

// runAll makes n runs on all processors. If the search must stop, the list has only the runs that ended before.
func (s *search) runAll(n int, measure func(i int) (*run, error)) ([]*run, error) {
	runs := make([]*run, n)
	err := parallel.Do(s.ctx, n, func(i int) (err error) {
		runs[i], err = measure(i)
		return err
	}, nil)
	if s.mustStop() != nil {
		return slices.DeleteFunc(runs, func(r *run) bool { return r == nil }), nil
	}
	return runs, err
}
