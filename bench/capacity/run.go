package capacity

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/steady"
	"lorasim/bench/validate"
	"lorasim/internal/record"
	"lorasim/sim"
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
	plan   plan
	judged map[Candidate]*Tried
	// stopped: the budget was spent before a candidate was accepted.
	stopped bool
	spent   atomic.Int64 // requests simulated
	runs    atomic.Int64
	ended   atomic.Int64 // of them, those that were not given up

	mu        sync.Mutex
	first     map[Candidate]bool // whether they hold, by the first seed
	workloads map[drawn]func() (*load, error)
	order     []drawn // of workloads, the oldest first
}

// drawn identifies a workload: its seed and its requests.
type drawn struct {
	seed     uint64
	requests int64
}

// maxHeld is the number of requests of generated workloads that are held in memory.
const maxHeld = 1 << 20

// load is a workload, and how many requests that count each adapter has in it, the
// base model in front; nil where it is too large to be held in memory.
type load struct {
	*scenario.Collected
	requests []int64
}

func (s *search) collect(sc *scenario.Scenario, z size) (*load, error) {
	c, err := sc.Collect(s.ctx)
	if c == nil || err != nil {
		return &load{}, err
	}
	l := &load{c, make([]int64, len(c.Workload.Adapters)+1)}
	for i := range c.Workload.Requests {
		if int64(i) >= z.warm {
			l.requests[c.Workload.Requests[i].Adapter+1]++
		}
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
	p := newPlan(base)
	if p.spread {
		o.MaxSeeds = min(o.MaxSeeds, resamples)
	}
	return &search{ctx: ctx, base: base, opt: o, plan: p, judged: map[Candidate]*Tried{}, first: map[Candidate]bool{},
		workloads: map[drawn]func() (*load, error){}}
}

// workload is the workload of a seed, collected once for all candidates as long as
// memory allows.
func (s *search) workload(sc *scenario.Scenario, z size) (*load, error) {
	key := drawn{sc.Seed, z.requests}
	s.mu.Lock()
	collected := s.workloads[key]
	if collected == nil {
		collected = sync.OnceValues(func() (*load, error) { return s.collect(sc, z) })
		s.workloads[key] = collected
		s.order = append(s.order, key)
		if most := max(maxHeld/max(z.requests, 1), 2); z.requests > 0 && int64(len(s.order)) > most {
			delete(s.workloads, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.mu.Unlock()
	return collected()
}

// open is the workload of a seed for one more run, with its requests by adapter,
// where they are known.
func (s *search) open(sc *scenario.Scenario, z size) (in *scenario.Input, src *scaled, err error) {
	l := &load{}
	if z.requests <= maxHeld {
		if l, err = s.workload(sc, z); err != nil {
			return nil, nil, err
		}
	}
	if l.Collected != nil {
		in = l.Input()
	} else if in, err = sc.OpenWorkload(s.ctx, nil); err != nil {
		return nil, nil, err
	}
	src = &scaled{Source: in.Source, size: z, total: max(in.Len(), 0), requests: l.requests}
	if in.Source = src; src.total == 0 && l.Collected != nil {
		return nil, nil, errNoRequests
	}
	return in, src, nil
}

// simulate runs a candidate under factor times the load: the same requests,
// closer together. observe makes the observer.
func (s *search) simulate(ctx context.Context, c Candidate, factor float64, seed uint64, z size,
	observe func(sc *scenario.Scenario, src *scaled) sim.Hooks) (*result.Result, error) {
	sc := c.apply(s.base)
	sc.Seed, sc.Client.Warmup = seed, "0" // the search has a warm-up of its own
	if z.requests > 0 {
		sc.Workload.NumPrompts = z.requests
	}
	in, src, err := s.open(&sc, z)
	if err != nil {
		return nil, err
	}
	src.factor = factor
	sc.Workload.Window /= factor
	res, err := sc.Simulate(ctx, scenario.RunOptions{Input: in, Watch: func([]trace.Adapter) sim.Hooks { return observe(&sc, src) }})
	if err == nil {
		s.ended.Add(1)
	}
	s.spent.Add(src.read)
	if runs := s.runs.Add(1); s.opt.Progress != nil {
		s.opt.Progress(runs, s.spent.Load())
	}
	return res, err
}

// scaled is a source whose requests come so many times as fast. It follows how many
// of them are in flight.
type scaled struct {
	trace.Source
	size     size
	factor   float64
	ended    bool    // all requests were read
	total    int64   // requests; 0: unknown
	requests []int64 // that count, by adapter, the base model in front; nil: unknown
	read     int64
	done     int64
	// Sums of the requests in flight at each arrival in the last quarter of the
	// warm-up, and in the last eighth of the run.
	before, after int64
	last          float64 // the latest arrival, s
}

func (s *scaled) Next() (trace.Request, error) {
	r, err := s.Source.Next()
	if s.ended = errors.Is(err, io.EOF); s.factor != 1 {
		r.Arrival /= s.factor
	}
	if err != nil {
		return r, err
	}
	if s.size.requests > 0 {
		r.ID = s.read
		switch eighth := s.size.requests / 8; {
		case s.read >= s.size.warm-eighth && s.read < s.size.warm:
			s.before += s.read - s.done
		case s.read >= s.size.requests-eighth:
			s.after += s.read - s.done
		}
	}
	s.read++
	s.last = r.Arrival
	return r, err
}

// growth is the growth of the number of requests in flight, per arrival after the
// warm-up.
func (s *scaled) growth() float64 {
	if s.size.requests < 8 {
		return 0
	}
	return float64(s.after-s.before) / float64(s.size.requests/8) / float64(s.size.requests-s.size.warm)
}

// holds says whether a candidate meets the SLO with one seed. It gives up as soon
// as too many requests have missed it.
func (s *search) holds(c Candidate, factor float64, seed uint64, z size) (bool, error) {
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	m := &misses{left: 1 - s.opt.asked() + rounding, stop: stop}
	var count *counter
	_, err := s.simulate(ctx, c, factor, seed, z, func(_ *scenario.Scenario, src *scaled) sim.Hooks {
		count = &counter{opt: &s.opt, src: src, misses: m}
		return sim.Hooks{Done: count.Done}
	})
	switch {
	case s.ctx.Err() != nil:
		return false, s.ctx.Err()
	case m.left < 0:
		return false, nil
	case err != nil:
		return false, err
	}
	return count.late.share(&s.opt) >= s.opt.asked()-rounding, nil
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

// cannotBe says whether a candidate is too few workers to be simulated, as where
// the last of them has an outage or a place in a table of a policy. With the most
// workers an error is one.
func (s *search) cannotBe(c Candidate, err error) bool {
	return err != nil && s.ctx.Err() == nil && c.total() < s.opt.MaxWorkers
}

// misses ends a run that cannot meet the SLO often enough any more.
type misses struct {
	left float64 // share of what is counted that may still miss it
	stop func()
}

func (m *misses) add(weight float64) {
	if m.left -= weight; m.left < 0 {
		m.stop()
	}
}

// part counts the requests of a part of a run that meet the SLO.
type part struct {
	good, total int64
	adapters    []tally // the base model in front
}

// tally is of one adapter.
type tally struct {
	good, total int64
	lost        bool // it cannot meet the SLO any more
}

// counter counts the requests that meet the SLO: early, in the second half of the
// warm-up, and late, after it.
type counter struct {
	opt         *Options
	src         *scaled
	early, late part
	rejected    int64
	waiting     int64   // requests without a first token when the last one arrives
	misses      *misses // nil: none are too many
}

// Done is a hook of sim.Hooks.
func (c *counter) Done(r *record.Request) {
	c.src.done++
	if c.src.ended && !(r.FirstToken <= c.src.last) {
		c.waiting++
	}
	p := &c.late
	if warm := c.src.size.warm; r.ID < warm {
		if p = &c.early; r.ID < warm/2 {
			return
		}
	}
	if n := int(r.Adapter) + 2 - len(p.adapters); n > 0 {
		p.adapters = append(p.adapters, make([]tally, n)...)
	}
	a := &p.adapters[r.Adapter+1]
	p.total++
	a.total++
	if r.Status == record.Rejected {
		c.rejected++
	}
	if c.opt.SLO.Met(r) {
		p.good++
		a.good++
	} else if c.misses != nil && p == &c.late {
		c.missed(a, int(r.Adapter+1))
	}
}

// missed tells what a miss costs: of the requests its own, of the adapters the
// one that cannot meet the SLO from now on.
func (c *counter) missed(a *tally, i int) {
	switch {
	case c.opt.PerAdapter == 0:
		if c.src.total > 0 {
			c.misses.add(1 / float64(c.src.total-c.src.size.warm))
		}
	case c.src.requests != nil && !a.lost && !c.opt.enough(c.src.requests[i]-a.total+a.good, c.src.requests[i]):
		a.lost = true
		n := 0
		for _, requests := range c.src.requests {
			n += min(int(requests), 1)
		}
		c.misses.add(1 / float64(n))
	}
}

// enough says whether so many requests of an adapter within the SLO are.
func (o *Options) enough(good, requests int64) bool {
	return result.SLO{Attain: o.Attain}.Enough(good, requests)
}

// share is that which is asked for: of the requests, or of the adapters.
func (p *part) share(o *Options) float64 {
	if o.PerAdapter == 0 {
		return float64(p.good) / float64(max(p.total, 1))
	}
	met, n := 0, 0
	for _, a := range p.adapters {
		if a.total > 0 {
			if n++; o.enough(a.good, a.total) {
				met++
			}
		}
	}
	return float64(met) / float64(max(n, 1))
}

// worst is the adapter with the smallest share, of several the one with the most
// requests.
func (c *counter) worst() (w result.Worst) {
	for i, a := range c.late.adapters {
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
	attainment, rejected float64
	backlog              float64 // share of the requests that wait when the last one arrives
	overloaded           bool    // by the test of the run itself
	worst                result.Worst
	causes               Causes // where they were watched
	sample
}

// measure simulates a candidate to the end. watched runs, which take longer, say
// what requests wait for.
func (s *search) measure(c Candidate, factor float64, seed uint64, z size, watched bool) (*run, error) {
	var count *counter
	var u *usage
	var fault error
	res, err := s.simulate(s.ctx, c, factor, seed, z, func(sc *scenario.Scenario, src *scaled) sim.Hooks {
		if count = (&counter{opt: &s.opt, src: src}); !watched {
			return sim.Hooks{Done: count.Done}
		}
		var ps []*profile.Profile
		ps, fault = sc.Profiles()
		u = newUsage(&s.opt, ps, src)
		count = &u.counter
		return sim.Hooks{Done: u.Done, Watch: u.Watch, Tier: u.Tier}
	})
	if err = errors.Join(err, fault); err != nil {
		return nil, err
	}
	share := count.late.share(&s.opt)
	r := &run{attainment: share, rejected: float64(count.rejected) / float64(max(count.late.total, 1)), worst: count.worst(),
		backlog:    float64(count.waiting) / float64(max(count.src.read, 1)),
		overloaded: res.Steady != nil && res.Steady.State == steady.Overloaded}
	r.sample = sample{value: share, growth: count.src.growth()}
	if s.opt.Hold > 0 {
		r.value = 0
		if share >= s.opt.asked()-rounding {
			r.value = 1
		}
	}
	if count.early.total > 0 {
		r.trend = share - count.early.share(&s.opt)
	}
	if watched {
		r.causes = u.causes(res)
	}
	return r, nil
}

// seed is seed i of a stream. Where seeds only break ties, and where there is only
// one, the base seed comes first, so that sim repeats the run.
func (s *search) seed(stream, i int) uint64 {
	if s.plan.single || s.opt.MaxSeeds == 1 {
		return s.base.Seed + uint64(i)
	}
	return seed(s.base.Seed, stream, i)
}

// measureAll simulates a candidate with seeds from..to-1 of a stream. The first few
// of them are watched, where watched is more than from.
func (s *search) measureAll(c Candidate, factor float64, stream, from, to int, z size, watched int) ([]*run, error) {
	runs := make([]*run, to-from)
	err := validate.Parallel(s.ctx, len(runs), func(i int) (err error) {
		runs[i], err = s.measure(c, factor, s.seed(stream, from+i), z, from+i < watched)
		return err
	}, nil)
	return runs, err
}
