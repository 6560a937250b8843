package capacity

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// rounding is by how much a mean of shares may be off.
const rounding = 1e-9

// search simulates candidates.
type search struct {
	ctx    context.Context
	base   *scenario.Scenario
	opt    Options
	judged map[Candidate]*Tried
	runs   atomic.Int64
	ended  atomic.Int64 // of them, those that were not given up

	mu        sync.Mutex
	first     map[Candidate]bool               // whether they hold, by the first seed
	workloads map[uint64]func() (*load, error) // by seed
}

// load is a workload, and how many requests each adapter has in it, the base
// model in front; nil where it is too large to be held in memory.
type load struct {
	*scenario.Collected
	requests []int64
}

func (s *search) collect(sc *scenario.Scenario) (*load, error) {
	c, err := sc.Collect(s.ctx)
	if c == nil || err != nil {
		return &load{}, err
	}
	l := &load{c, make([]int64, len(c.Workload.Adapters)+1)}
	for i := range c.Workload.Requests {
		l.requests[c.Workload.Requests[i].Adapter+1]++
	}
	return l, nil
}

func newSearch(ctx context.Context, base *scenario.Scenario, o Options) *search {
	variants := []scenario.Scenario{*base}
	for _, p := range o.Profiles {
		variants = append(variants, Candidate{Profile: p}.apply(base))
	}
	own := *base
	own.CommonRanks(variants...)
	base = &own
	return &search{ctx: ctx, base: base, opt: o, judged: map[Candidate]*Tried{}, first: map[Candidate]bool{},
		workloads: map[uint64]func() (*load, error){}}
}

// open is the workload of a seed for one more run, with its requests by adapter,
// where they are known.
func (s *search) open(sc *scenario.Scenario) (in *scenario.Input, src *scaled, err error) {
	s.mu.Lock()
	collected := s.workloads[sc.Seed]
	if collected == nil {
		collected = sync.OnceValues(func() (*load, error) { return s.collect(sc) })
		s.workloads[sc.Seed] = collected
	}
	s.mu.Unlock()
	l, err := collected()
	if err != nil {
		return nil, nil, err
	}
	if l.Collected != nil {
		in = l.Input()
	} else if in, err = sc.OpenWorkload(s.ctx, nil); err != nil {
		return nil, nil, err
	}
	src = &scaled{Source: in.Source, total: max(in.Len(), 0), requests: l.requests}
	if in.Source = src; src.total == 0 && l.Collected != nil {
		return nil, nil, errNoRequests
	}
	return in, src, nil
}

// simulate runs a candidate under factor times the load: the same requests,
// closer together. observe makes the observer.
func (s *search) simulate(ctx context.Context, c Candidate, factor float64, seed uint64, observe func(sc *scenario.Scenario, src *scaled) any) (*result.Result, error) {
	sc := c.apply(s.base)
	sc.Seed = seed
	in, src, err := s.open(&sc)
	if err != nil {
		return nil, err
	}
	src.factor = factor
	sc.Workload.Window /= factor
	res, err := sc.Simulate(ctx, scenario.RunOptions{Input: in, Watch: func([]trace.Adapter) any { return observe(&sc, src) }})
	if err == nil {
		s.ended.Add(1)
	}
	if total := s.runs.Add(1); s.opt.Progress != nil {
		s.opt.Progress(total)
	}
	return res, err
}

// scaled is a source whose requests come so many times as fast.
type scaled struct {
	trace.Source
	factor   float64
	ended    bool    // all requests were read
	total    int64   // requests; 0: not known
	requests []int64 // by adapter, the base model in front; nil: not known
}

func (s *scaled) Next() (trace.Request, error) {
	r, err := s.Source.Next()
	if s.ended = errors.Is(err, io.EOF); s.factor != 1 {
		r.Arrival /= s.factor
	}
	return r, err
}

// holds says whether a candidate meets the SLO in the mean over some seeds. It
// gives up as soon as too many requests have missed it.
func (s *search) holds(c Candidate, factor float64, seeds []uint64) (bool, error) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	misses := &misses{left: 1 - s.opt.asked() + rounding, stop: stop}
	counts := make([]counter, len(seeds))
	err := validate.Parallel(ctx, len(seeds), func(i int) error {
		_, err := s.simulate(ctx, c, factor, seeds[i], func(_ *scenario.Scenario, src *scaled) any {
			counts[i] = counter{opt: &s.opt, src: src, misses: misses, runs: float64(len(seeds))}
			return &counts[i]
		})
		return err
	}, nil)
	switch {
	case s.ctx.Err() != nil:
		return false, s.ctx.Err()
	case misses.left < 0:
		return false, nil
	case err != nil:
		return false, err
	}
	mean := 0.0
	for i := range counts {
		mean += counts[i].share() / float64(len(seeds))
	}
	return mean >= s.opt.asked()-rounding, nil
}

// known says whether a candidate holds: by the seeds that judged it, else by the
// first.
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
	ok, err := s.holds(c, 1, []uint64{s.base.Seed})
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

// cannotBe says whether a candidate is too few workers to be simulated, as where
// the last of them has an outage or a place in a table of a policy. With the most
// workers an error is one.
func (s *search) cannotBe(c Candidate, err error) bool {
	return err != nil && s.ctx.Err() == nil && c.total() < s.opt.MaxWorkers
}

// misses ends runs that cannot meet the SLO often enough any more.
type misses struct {
	mu   sync.Mutex
	left float64 // share of what is counted that may still miss it
	stop func()
}

func (m *misses) add(weight float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left -= weight; m.left < 0 {
		m.stop()
	}
}

// counter counts the requests that meet the SLO, and those of each adapter.
type counter struct {
	opt         *Options
	src         *scaled
	good, total int64
	adapters    []tally // the base model in front
	misses      *misses // nil: none are too many
	runs        float64 // that misses sums up
}

// tally is of one adapter.
type tally struct {
	good, total int64
	lost        bool // it cannot meet the SLO any more
}

// Done implements sim.DoneObserver.
func (c *counter) Done(r *record.Request) {
	if n := int(r.Adapter) + 2 - len(c.adapters); n > 0 {
		c.adapters = append(c.adapters, make([]tally, n)...)
	}
	a := &c.adapters[r.Adapter+1]
	c.total++
	a.total++
	if c.opt.SLO.Met(r) {
		c.good++
		a.good++
	} else if c.misses != nil {
		c.missed(a, int(r.Adapter+1))
	}
}

// missed tells what a miss costs: of the requests its own, of the adapters the
// one that cannot meet the SLO from now on.
func (c *counter) missed(a *tally, i int) {
	switch {
	case c.opt.PerAdapter == 0:
		if c.src.total > 0 {
			c.misses.add(1 / float64(c.src.total) / c.runs)
		}
	case c.src.requests != nil && !a.lost && !c.enough(c.src.requests[i]-a.total+a.good, c.src.requests[i]):
		a.lost = true
		n := 0
		for _, requests := range c.src.requests {
			n += min(int(requests), 1)
		}
		c.misses.add(1 / float64(n) / c.runs)
	}
}

// enough says whether so many requests of an adapter within the SLO are.
func (c *counter) enough(good, requests int64) bool {
	return result.SLO{Attain: c.opt.Attain}.Enough(good, requests)
}

// share is that which is asked for: of the requests, or of the adapters.
func (c *counter) share() float64 {
	if c.opt.PerAdapter == 0 {
		return float64(c.good) / float64(max(c.total, 1))
	}
	met, n := 0, 0
	for _, a := range c.adapters {
		if a.total > 0 {
			if n++; c.enough(a.good, a.total) {
				met++
			}
		}
	}
	return float64(met) / float64(max(n, 1))
}

// worst is the adapter with the smallest share, of several the one with the most
// requests.
func (c *counter) worst() (w result.Worst) {
	for i, a := range c.adapters {
		share := float64(a.good) / float64(max(a.total, 1))
		if a.total > 0 && (w.Requests == 0 || share < w.Share || share == w.Share && a.total > w.Requests) {
			w = result.Worst{Index: int32(i) - 1, Name: "base model", Requests: a.total, Share: share}
		}
	}
	if w.Index >= 0 && w.Requests > 0 {
		w.Name = c.src.Adapters()[w.Index].Name
	}
	return w
}

// run is what a whole run showed.
type run struct {
	attainment, backlog, rejected float64
	worst                         result.Worst
	causes                        Causes
}

// measure simulates a candidate to the end.
func (s *search) measure(c Candidate, factor float64, seed uint64) (*run, error) {
	var u *usage
	var fault error
	res, err := s.simulate(s.ctx, c, factor, seed, func(sc *scenario.Scenario, src *scaled) any {
		var ps []*profile.Profile
		ps, fault = sc.Profiles()
		u = newUsage(&s.opt, ps, src)
		return u
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	n := float64(max(u.total, 1))
	return &run{attainment: u.share(), backlog: u.backlog / n, rejected: float64(res.Extra.Rejected) / n, worst: u.worst(), causes: u.causes(res)}, nil
}
