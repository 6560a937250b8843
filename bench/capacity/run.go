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

	mu        sync.Mutex
	workloads map[uint64]func() (*scenario.Collected, error) // by seed
}

func newSearch(ctx context.Context, base *scenario.Scenario, o Options) *search {
	return &search{ctx: ctx, base: base, opt: o, judged: map[Candidate]*Tried{}, workloads: map[uint64]func() (*scenario.Collected, error){}}
}

// open is the workload of a seed for one more run, and the number of its
// requests; 0: not known.
func (s *search) open(sc *scenario.Scenario) (*scenario.Input, int64, error) {
	s.mu.Lock()
	load := s.workloads[sc.Seed]
	if load == nil {
		load = sync.OnceValues(func() (*scenario.Collected, error) { return sc.Collect(s.ctx) })
		s.workloads[sc.Seed] = load
	}
	s.mu.Unlock()
	c, err := load()
	if err != nil {
		return nil, 0, err
	}
	var in *scenario.Input
	if c != nil {
		in = c.Input()
	} else if in, err = sc.OpenWorkload(s.ctx, nil); err != nil {
		return nil, 0, err
	}
	n := max(in.Len(), 0)
	if n == 0 && c != nil {
		return nil, 0, errNoRequests
	}
	return in, n, nil
}

// simulate runs a candidate under factor times the load: the same requests,
// closer together. observe makes the observer, from the number of requests.
func (s *search) simulate(ctx context.Context, c Candidate, factor float64, seed uint64, observe func(sc *scenario.Scenario, src *scaled, requests int64) any) (*result.Result, error) {
	sc := c.apply(s.base)
	sc.Seed = seed
	in, n, err := s.open(&sc)
	if err != nil {
		return nil, err
	}
	src := &scaled{Source: in.Source, factor: factor}
	in.Source = src
	sc.Workload.Window /= factor
	res, err := sc.Simulate(ctx, scenario.RunOptions{Input: in, Watch: func([]trace.Adapter) any { return observe(&sc, src, n) }})
	if total := s.runs.Add(1); s.opt.Progress != nil {
		s.opt.Progress(total)
	}
	return res, err
}

// scaled is a source whose requests come so many times as fast.
type scaled struct {
	trace.Source
	factor float64
	ended  bool // all requests were read
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
	misses := &misses{left: 1 - s.opt.Attain + rounding, stop: stop}
	counts := make([]counter, len(seeds))
	err := validate.Parallel(ctx, len(seeds), func(i int) error {
		_, err := s.simulate(ctx, c, factor, seeds[i], func(_ *scenario.Scenario, _ *scaled, n int64) any {
			counts[i] = counter{slo: s.opt.SLO, misses: misses}
			if n > 0 {
				counts[i].weight = 1 / float64(n) / float64(len(seeds))
			}
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
	return mean >= s.opt.Attain-rounding, nil
}

// misses ends runs that cannot meet the SLO often enough any more.
type misses struct {
	mu   sync.Mutex
	left float64 // share of the requests that may still miss it
	stop func()
}

func (m *misses) add(weight float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left -= weight; m.left < 0 {
		m.stop()
	}
}

// counter counts the requests that meet the SLO.
type counter struct {
	slo         result.SLO
	good, total int64
	misses      *misses // nil: none are too many
	weight      float64 // of a miss
}

// Done implements sim.DoneObserver.
func (c *counter) Done(r *record.Request) {
	if c.total++; c.slo.Met(r) {
		c.good++
	} else if c.misses != nil {
		c.misses.add(c.weight)
	}
}

func (c *counter) share() float64 { return float64(c.good) / float64(max(c.total, 1)) }

// run is what a whole run showed.
type run struct {
	attainment, backlog, rejected float64
	causes                        Causes
}

// measure simulates a candidate to the end.
func (s *search) measure(c Candidate, factor float64, seed uint64) (*run, error) {
	var u *usage
	var fault error
	res, err := s.simulate(s.ctx, c, factor, seed, func(sc *scenario.Scenario, src *scaled, _ int64) any {
		var ps []*profile.Profile
		ps, fault = sc.Profiles()
		u = newUsage(s.opt.SLO, ps, src)
		return u
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	n := float64(max(u.total, 1))
	return &run{attainment: u.share(), backlog: u.backlog / n, rejected: float64(res.Extra.Rejected) / n, causes: u.causes(res)}, nil
}
