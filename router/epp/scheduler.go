package epp

import (
	"math/rand/v2"
	"slices"
)

// Options of a scheduler.
type Options struct {
	Seed uint64 // of picks among equals

	// Observer sees what plugins answer; nil: nobody does.
	Observer Observer
	// Choose picks in place of a picker, from the endpoints that the filters left; nil: pickers do. It gives the
	// endpoints by their index, the best first.
	Choose func(profile string, left []int32) []int
}

// Observer sees what plugins answer. Slices are valid during the call; endpoints are indexes.
type Observer interface {
	Profile(name, picker string)
	Filtered(plugin string, left []int32)
	Scored(plugin string, of []int32, scores []float64)
	Totals(of []int32, totals []float64)
}

// Scheduler decides where requests go. It is not safe for concurrent use.
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

// Decision is where a request goes.
type Decision struct {
	profiles []Result
}

// Result is what a profile picked.
type Result struct {
	Profile string
	Picked  []int // indexes of endpoints, the best first
}

// Primary is the endpoint that the request is sent to, an index.
func (d *Decision) Primary() int { return d.profiles[0].Picked[0] }

// Results are the picks of all profiles that ran, the primary one first.
func (d *Decision) Results() []Result { return d.profiles }

// NewScheduler returns a scheduler that has not seen a request.
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

// Schedule picks an endpoint among the candidates. The decision is valid until the next call, and only
// [Scheduler.Commit] makes it known to later ones.
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
		if i > 0 && (s.m.decider == nil || !s.m.decider.splits(&s.cycle, int32(s.decision.Primary()))) {
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

// Matches are what the prefix index found for each candidate of the last Schedule; empty without an index.
func (s *Scheduler) Matches() []Match { return s.cycle.matches }

// Flight is what the scheduler has in flight, nil where no plugin counts it.
func (s *Scheduler) Flight() *Flight { return s.flight }

// Commit notes that the request of the last Schedule goes where the decision says.
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

// FirstToken notes that the response of a request has begun: llm-d gives its tokens back.
func (s *Scheduler) FirstToken(request int64) {
	if s.flight != nil && s.config.Dialect == LLMD {
		s.flight.firstToken(request)
	}
}

// Ended notes that the response of a request has ended, or its client has left.
func (s *Scheduler) Ended(request int64) {
	if s.flight != nil {
		s.flight.ended(request)
	}
}

// Forget drops the prefix index of a server that is gone.
func (s *Scheduler) Forget(endpoint int) {
	if s.index != nil {
		s.index.forget(endpoint)
	}
}
