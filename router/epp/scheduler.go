package epp

import (
	"math/rand/v2"
	"slices"
)

// Options configure a scheduler.
type Options struct {
	Seed uint64 // seed of random picks among equal endpoints

	// Observer observes the results of plugins; nil: none.
	Observer Observer
	// Choose replaces the picker of each profile; nil: the pickers pick. It gets the endpoints that the filters left,
	// and returns the indexes of its picks, best first.
	Choose func(profile string, left []int32) []int
}

// Observer observes the results of plugins. Endpoints are indexes. Slices are valid only during the call.
type Observer interface {
	// Profile reports that a profile with the given picker starts.
	Profile(name, picker string)
	// Filtered reports the endpoints that a filter left.
	Filtered(plugin string, left []int32)
	// Scored reports the scores that a scorer gave to the endpoints in of.
	Scored(plugin string, of []int32, scores []float64)
	// Totals reports the weighted sums of scores of the endpoints in of.
	Totals(of []int32, totals []float64)
}

// Scheduler picks endpoints for requests. It is not safe for concurrent use.
type Scheduler struct {
	config *Config
	m      *machine
	o      Options
	cycle  cycle
	index  *prefixIndex
	flight *Flight

	in       []int32
	scores   []float64
	totals   []float64
	decision Decision
}

// Decision is the result of [Scheduler.Schedule].
type Decision struct {
	profiles []Result
}

// Result holds the picks of one profile.
type Result struct {
	Profile string // name of the profile
	Picked  []int  // indexes of endpoints, best first
}

// primary returns the index of the endpoint that the request is sent to.
func (d *Decision) primary() int { return d.profiles[0].Picked[0] }

// Results returns the picks of all profiles that ran, the primary profile first.
func (d *Decision) Results() []Result { return d.profiles }

// NewScheduler returns a scheduler with an empty prefix index and no requests in flight.
func NewScheduler(c *Config, o Options) *Scheduler {
	m, err := c.assemble()
	if err != nil {
		panic("epp: a parsed configuration does not assemble: " + err.Error())
	}
	s := &Scheduler{config: c, m: m, o: o}
	s.cycle.rng = rand.New(rand.NewPCG(o.Seed, 0))
	if m.index != nil {
		s.index = &prefixIndex{params: *m.index}
		s.cycle.index = s.index
	}
	s.cycle.costs = &flightParams{OutputRatio: 1.5, dialect: c.Dialect}
	if m.flight != nil {
		s.flight, s.cycle.costs = newFlight(), m.flight
		s.cycle.flight = s.flight
	}
	return s
}

// Schedule picks an endpoint among the candidates, or returns a rejection. The decision is valid until the next call.
// It affects later decisions only through [Scheduler.Commit].
func (s *Scheduler) Schedule(r *Request, candidates []Endpoint) (*Decision, *Rejection) {
	c := &s.cycle
	c.r, c.eps = r, candidates
	s.decision.profiles = s.decision.profiles[:0]
	saturation := s.m.detector.saturation(c)
	if r.Priority < 0 && saturation >= 1 && len(s.m.admitters) == 0 {
		return nil, saturated
	}
	if len(candidates) == 0 {
		return nil, noCandidates
	}
	c.matches = c.matches[:0]
	if s.index != nil {
		s.index.read(r, candidates)
		c.matches = s.index.match(candidates, c.matches)
	}
	for _, a := range s.m.admitters {
		if reason := a.admit(c, saturation); reason != nil {
			return nil, reason
		}
	}
	return s.run()
}

// run runs the profiles.
func (s *Scheduler) run() (*Decision, *Rejection) {
	for i := range s.m.profiles {
		if i > 0 && (s.m.decider == nil || !s.m.decider.splits(&s.cycle, int32(s.decision.primary()))) {
			break
		}
		p := &s.m.profiles[i]
		left := s.filter(p)
		switch {
		case len(left) == 0 && i == 0:
			return nil, noneLeft
		case len(left) == 0:
			continue // without a server for prefill the decoding one does it
		}
		s.decision.add(p.name, s.pick(p, left))
	}
	return &s.decision, nil
}

// add notes the picks of a profile; it keeps the memory of earlier decisions.
func (d *Decision) add(name string, picked []int32) {
	n := len(d.profiles)
	if n < cap(d.profiles) {
		d.profiles = d.profiles[:n+1]
	} else {
		d.profiles = append(d.profiles, Result{})
	}
	p := &d.profiles[n]
	p.Profile, p.Picked = name, p.Picked[:0]
	for _, i := range picked {
		p.Picked = append(p.Picked, int(i))
	}
}

// filter runs the filters of a profile.
func (s *Scheduler) filter(p *profile) []int32 {
	s.in = s.in[:0]
	for i := range s.cycle.eps {
		s.in = append(s.in, int32(i))
	}
	if s.o.Observer != nil {
		s.o.Observer.Profile(p.name, p.picks)
	}
	left := s.in
	for _, f := range p.filters {
		left = f.run.filter(&s.cycle, left)
		if s.o.Observer != nil {
			s.o.Observer.Filtered(f.name, left)
		}
		if len(left) == 0 {
			break
		}
	}
	return left
}

// pick scores the endpoints that are left and picks.
func (s *Scheduler) pick(p *profile, left []int32) []int32 {
	s.totals = slices.Grow(s.totals[:0], len(left))[:len(left)]
	s.scores = slices.Grow(s.scores[:0], len(left))[:len(left)]
	clear(s.totals)
	for _, w := range p.scorers {
		w.run.score(&s.cycle, left, s.scores)
		if s.o.Observer != nil {
			s.o.Observer.Scored(w.name, left, s.scores)
		}
		for k, v := range s.scores {
			s.totals[k] += min(1, max(0, v)) * w.weight
		}
	}
	if s.o.Observer != nil {
		s.o.Observer.Totals(left, s.totals)
	}
	if s.o.Choose != nil {
		chosen := s.o.Choose(p.name, left)
		left = left[:0]
		for _, i := range chosen {
			left = append(left, int32(i))
		}
		return left
	}
	return left[:p.picker.pick(&s.cycle, left, s.totals)]
}

// Matches returns the prefix index's match of each candidate of the last Schedule; empty without an index.
func (s *Scheduler) Matches() []Match { return s.cycle.matches }

// Flight returns the counts of requests in flight, or nil if no plugin counts them.
func (s *Scheduler) Flight() *Flight { return s.flight }

// Commit notes that the request of the last Schedule is sent as decided.
func (s *Scheduler) Commit(r *Request, d *Decision) {
	c := &s.cycle
	for _, p := range s.m.all {
		if x, ok := p.(committer); ok {
			x.commit(c, d)
		}
	}
	for i := range d.profiles {
		e := d.profiles[i].Picked[0]
		if s.flight != nil {
			m := c.match(int32(e))
			s.flight.add(r.ID, c.eps[e].ID, c.costs.tokens(r, &m, s.index != nil))
		}
		if s.index != nil {
			s.index.add(&c.eps[e])
		}
	}
}

// FirstToken notes that the response of a request has begun. llm-d then no longer counts its tokens as in flight.
func (s *Scheduler) FirstToken(request int64) {
	if s.flight != nil && s.config.Dialect == LLMD {
		s.flight.firstToken(request)
	}
}

// Ended notes that the response of a request has ended, or that its client has disconnected.
func (s *Scheduler) Ended(request int64) {
	if s.flight != nil {
		s.flight.ended(request)
	}
}

// Forget drops the prefix index of a server that has left. endpoint is its Endpoint.ID.
func (s *Scheduler) Forget(endpoint int) {
	if s.index != nil {
		s.index.forget(endpoint)
	}
}
