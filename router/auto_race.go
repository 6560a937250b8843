package router

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// When races take place, and how much they simulate.
const (
	firstRace   = 32      // requests before the first one; after each, until every, twice as many before the next
	firstEnded  = 64      // requests that must have ended before the first race
	leastFuture = 512     // requests of a future that count
	mostFuture  = 1536    // likewise
	turnovers   = 3       // times that the requests in flight are replaced in a future, and in its tail
	firstCredit = 12000   // requests that may be simulated before any came
	maxCredit   = 100_000 // bounds what is saved up
	farBehind   = 0.2     // of the objective: such candidates leave a race early
	zChange     = 1.1     // standard deviations of what is believed that a gain must exceed
	zFar        = 3.0     // standard errors that a difference must exceed to leave early
	farOff      = 1.5     // factor between a measured and a predicted latency that tells of another load
	mostSkipped = 4       // races that a candidate sits out at most
	fewRequests = 256     // seen, so many double the margin
	perRequest  = 5e-6    // s charged for one simulated request
)

// Race is one choice among policies by simulation.
type Race struct {
	At         float64   `json:"at_s"`
	Requests   int64     `json:"requests"`  // requests seen before the race
	Future     int       `json:"future"`    // requests of the simulated future whose latencies count
	Simulated  int64     `json:"simulated"` // simulated requests of all candidates together
	Incumbent  string    `json:"incumbent"`
	Chosen     string    `json:"chosen"`
	Candidates []Raced   `json:"candidates"`
	Previous   *Measured `json:"previous,omitempty"` // prediction of the previous choice against what was measured
	// Of live runs:
	Seconds float64   `json:"seconds,omitempty"` // wall time of the race
	Slower  []float64 `json:"slower,omitempty"`  // Slower are the corrections of step times, by worker.

	far   []far
	index *prefixIndex // of the chosen one; nil: it has none, or inherits it
}

// Raced is the prediction of a race for one candidate. Gains are differences of the objective from that of the
// incumbent. Where the objective is a sum of logarithms, 0.01 is about 1 %.
type Raced struct {
	Policy string  `json:"policy"`
	Gain   float64 `json:"gain"`
	Error  float64 `json:"standard_error"`
	Belief float64 `json:"believed_gain"` // by this race and earlier ones
	E2E    float64 `json:"e2e_s"`         // predicted mean, s
	TTFT   float64 `json:"ttft_s"`
	// far behind on the first part of the future, and not simulated further
	Dropped bool `json:"dropped,omitempty"`
}

// Measured compares the predicted latencies of the incumbent with the measured ones.
type Measured struct {
	Requests      int64   `json:"requests"`
	PredictedE2E  float64 `json:"predicted_e2e_s"`
	E2E           float64 `json:"e2e_s"`
	PredictedTTFT float64 `json:"predicted_ttft_s"`
	TTFT          float64 `json:"ttft_s"`
}

// surprises says whether what came is far from the prediction, although many requests ended: the load has changed in a
// way that nothing else notices.
func (m *Measured) surprises() bool {
	ratio := m.E2E / m.PredictedE2E
	return m.Requests >= firstEnded && m.PredictedE2E > 0 && (ratio > farOff || ratio < 1/farOff)
}

// served sums up requests that ended.
type served struct {
	n         int64
	e2e, ttft float64
}

func (s *served) add(f Finished) {
	s.n++
	s.e2e += f.E2E
	s.ttft += f.TTFT
}

// raceDue says whether a race should take place now, and can be paid for.
func (p *auto) raceDue(v *View) bool {
	return p.window.n >= p.raceAt && p.ended >= firstEnded && len(p.candidates) > 1 && p.credit >= p.price(v)
}

// price is about what a race costs, in requests: a part of the candidates leaves early.
func (p *auto) price(v *View) float64 {
	n := 0
	for i := range v.Workers {
		n += v.Workers[i].Load()
	}
	weight := 0.0
	for k := range p.candidates {
		if c := &p.candidates[k]; k == p.incumbent || c.skip == 0 && (!c.prefix || p.window.prefixes) {
			weight += c.weight
		}
	}
	count, _ := futureSize(n)
	return min(weight*float64(count+2*n), maxCredit)
}

// futureSize is how many requests of a future count, and how many come after them at most, with n requests in flight.
func futureSize(n int) (count, tail int) {
	return min(max(turnovers*n, leastFuture), mostFuture), min(turnovers*n, mostFuture)
}

// changed has another mix of requests be noticed: what came before it tells little.
func (p *auto) changed() {
	p.window.from = max(p.window.n-firstRace, 0)
	p.ended = 0
	p.busier()
}

// busier has another rate of requests be noticed. Races soon follow; what requests look like is known.
func (p *auto) busier() {
	p.step = firstRace
	p.raceAt = p.window.n + firstRace
	p.reconsider()
}

// reconsider has all candidates take part in the next race, and what is believed of them be little sure: the load is
// another one than in the races before.
func (p *auto) reconsider() {
	for k := range p.candidates {
		p.candidates[k].behind, p.candidates[k].skip = 0, 0
		if k != p.incumbent {
			p.candidates[k].belief.forget(priorGain)
		}
	}
}

// beginRace takes what a race needs from the situation; nil: it is too early.
func (p *auto) beginRace(s *PlannerInput) *Pending {
	inFlight := 0
	for i := range s.Workers {
		inFlight += s.Workers[i].Load()
	}
	for i := range s.Requests {
		if q := p.window.get(s.Requests[i].ID); q != nil {
			q.generated = s.Requests[i].Generated
		}
	}
	var previous *Measured
	if p.log != nil && p.served.n > 0 {
		if previous = p.measured(); previous.surprises() {
			p.reconsider()
		}
	}
	runners := p.runners()
	past, incumbent, err := p.past(s.Now)
	if err != nil { // it was built before
		return nil
	}
	now := &View{Workers: slices.Clone(s.Workers), Adapters: s.Adapters, Prefixes: s.Prefixes}
	race := &Race{At: s.Now, Requests: p.window.n, Incumbent: p.candidates[p.incumbent].spec, Previous: previous}
	p.step = min(2*p.step, p.every)
	p.raceAt = p.window.n + p.step/2
	if p.step == p.every {
		p.raceAt = p.window.n + p.every
	}
	p.served = served{}
	for k := range p.candidates {
		if k != p.incumbent {
			p.candidates[k].belief.forget(gainDrift)
		}
	}
	start := &start{past, incumbent, now}
	return &Pending{func() { // from here on nothing is used that routing changes
		err = p.timed(race, func() error {
			count, tail := futureSize(inFlight)
			f := past.future(s, past.used, count, tail, rand.New(rand.NewPCG(p.env.Seed, uint64(past.n))))
			if f == nil {
				return errNoOutputs
			}
			f.Error, race.Future = p.error, f.Counted()
			return p.run(race, f, runners, start)
		})
		if err == nil && race.Chosen != race.Incumbent {
			p.prepare(race, start)
		}
	}, func() *Plan {
		p.spend(race)
		plan := &Plan{Race: race, SolveTime: solveBase + perRequest*float64(race.Simulated)}
		if err != nil {
			p.broke(err)
			race.Chosen = race.Incumbent
			plan.Reason = fmt.Sprintf("stay with %s: %v", race.Incumbent, err)
			return plan
		}
		p.note(race)
		p.live.slower = race.Slower
		if race.Seconds > 0 {
			plan.SolveTime = race.Seconds
		}
		plan.Reason = race.reason()
		p.log = race
		return plan
	}}
}

// errNoOutputs: since the load changed no request has told its output.
var errNoOutputs = errors.New("no output of a request is known")

// prepare builds the prefix index of the candidate that was chosen: that takes long, and routing would wait for it.
func (p *auto) prepare(race *Race, from *start) {
	rt, err := New(race.Chosen, p.env.withoutTwin())
	if err != nil { // it was built before
		return
	}
	x, ok := rt.Policy.(indexed)
	if old, is := from.incumbent.(indexed); !ok || *x.prefixes() == nil || is && *old.prefixes() != nil &&
		(*x.prefixes()).like(*old.prefixes()) {
		return // it has none, or inherits it
	}
	from.past.kept = from.past.n
	race.index = *x.prefixes()
	race.index.adopt(from.past.window, from.now, from.past.keptFrom())
}

// runners are the candidates that take part in a race, the incumbent first.
func (p *auto) runners() []int {
	list := []int{p.incumbent}
	for k := range p.candidates {
		if c := &p.candidates[k]; k != p.incumbent {
			if c.broken || c.prefix && !p.window.prefixes {
				continue
			}
			if c.skip > 0 {
				c.skip--
				continue
			}
			list = append(list, k)
		}
	}
	return list
}

// start is where all candidates of a race begin.
type start struct {
	past      *recall
	incumbent Policy // with its state
	now       *View
}

// entrant is a candidate during a race.
type entrant struct {
	Raced
	at      int
	scores  scores
	dropped bool
	alike   bool // as one before it
}

// run has all candidates serve the first part of a future, and those that are not far behind all of it.
func (p *auto) run(race *Race, f *Future, runners []int, from *start) error {
	if err := p.correct(race, f, from.past.window); err != nil {
		return err
	}
	list := make([]entrant, len(runners))
	for i, k := range runners {
		list[i] = entrant{at: k, Raced: Raced{Policy: p.candidates[k].spec}}
	}
	part := *f
	part.Count = max(f.Counted()/4, min(f.Counted(), leastFuture/4))
	for _, f := range []*Future{&part, f} {
		if err := p.lap(race, f, list, from); err != nil {
			return err
		}
		best := &list[0]
		for i := range list {
			if e := &list[i]; !e.dropped && e.scores.all < best.scores.all {
				best = e
			}
		}
		for i := range list[1:] {
			e := &list[i+1]
			like := func(x entrant) bool { return !x.dropped && x.scores == e.scores }
			if f == &part && slices.ContainsFunc(list[:i+1], like) {
				e.dropped, e.Dropped, e.alike = true, true, true
			}
			if diff, se := e.scores.minus(&best.scores); !e.dropped && diff > farBehind && diff > zFar*se {
				e.dropped, e.Dropped = true, f == &part
			}
		}
	}
	p.decide(race, list)
	return nil
}

// lap runs a future for all that are still in the race.
func (p *auto) lap(race *Race, f *Future, list []entrant, from *start) error {
	for i := range list {
		e := &list[i]
		if e.dropped {
			continue
		}
		rt, err := New(e.Policy, p.env.withoutTwin())
		if err != nil {
			return err
		}
		takeUp(rt.Policy, from.incumbent, from.past, from.now)
		o, err := p.env.Twin.Simulate(rt, f)
		if err != nil {
			return err
		}
		n := o.Sent + len(f.State.InFlight) + len(f.State.Kept)/2
		race.Simulated += int64(p.candidates[e.at].weight * float64(n))
		e.scores = p.objective.scores(o, f)
		e.E2E, e.TTFT = o.means(f.Counted())
		if i > 0 {
			e.Gain, e.Error = e.scores.minus(&list[0].scores)
			e.Gain = -e.Gain
		}
	}
	return nil
}

// decide chooses the candidate that is believed to be best, if that is better than the incumbent beyond doubt and
// margin.
func (p *auto) decide(race *Race, list []entrant) {
	for i := range list {
		race.Candidates = append(race.Candidates, list[i].Raced)
		race.far = append(race.far, far{list[i].at, list[i].dropped && !list[i].alike})
	}
	best, most := p.incumbent, p.margin*(1+fewRequests/float64(race.Requests))
	for i := range list {
		e := &list[i]
		c := &p.candidates[e.at]
		if i > 0 {
			c.belief.learn(e.Gain, e.Error)
		}
		race.Candidates[i].Belief = c.belief.mean
		if sure := zChange * math.Sqrt(c.belief.variance); !e.dropped && c.belief.mean > most && c.belief.mean > sure {
			best, most = e.at, c.belief.mean
		}
	}
	race.Chosen = p.candidates[best].spec
}

// belief is what races have told of the gain of a candidate against the incumbent, as a mean and a variance. Gains
// change as the load does: a random walk, of which each race is a noisy look (a Kalman filter).
type belief struct{ mean, variance float64 }

const (
	priorMean = -0.05 // of the gain of a candidate against the first one, before any race
	priorGain = 0.15  // standard deviation of that
	gainDrift = 0.03  // likewise of the change of a gain from one race to the next
	twinError = 0.15  // likewise of what a race predicts from what would come: the twin is not exact
	mostGain  = 1.0   // of one race: larger gains are of a situation that passes
	mostLoss  = 0.3   // likewise: by how much more a candidate is behind does not matter
)

func (b *belief) forget(sd float64) { b.variance = min(b.variance+sd*sd, priorGain*priorGain) }

func (b *belief) learn(gain, se float64) {
	weight := b.variance / (b.variance + se*se + twinError*twinError)
	b.mean += weight * (min(max(gain, -mostLoss), mostGain) - b.mean)
	b.variance *= 1 - weight
}

// rebase has all beliefs be against another incumbent.
func (p *auto) rebase(to int) {
	old, by := p.incumbent, p.candidates[to].belief
	for k := range p.candidates {
		b := &p.candidates[k].belief
		b.mean -= by.mean
		b.forget(math.Sqrt(by.variance))
	}
	p.candidates[old].belief = belief{-by.mean, by.variance}
	p.candidates[to].belief = belief{}
}

// far says whether a candidate was far behind in a race.
type far struct {
	candidate int
	behind    bool
}

// note has candidates that were far behind sit out the next races, more each time.
func (p *auto) note(race *Race) {
	for _, x := range race.far {
		c := &p.candidates[x.candidate]
		if !x.behind {
			c.behind = 0
			continue
		}
		c.behind++
		c.skip = min(1<<(c.behind-1), mostSkipped)
	}
}

// measured compares the latest prediction with what came.
func (p *auto) measured() *Measured {
	n := float64(p.served.n)
	m := &Measured{Requests: p.served.n, E2E: p.served.e2e / n, TTFT: p.served.ttft / n}
	for _, c := range p.log.Candidates {
		if c.Policy == p.log.Chosen {
			m.PredictedE2E, m.PredictedTTFT = c.E2E, c.TTFT
		}
	}
	return m
}

// means are the mean latencies of the first requests, of those that ended well.
func (o *Outcome) means(first int) (e2e, ttft float64) {
	n := 0.0
	for i, x := range o.E2E[:first] {
		if x == x {
			n++
			e2e += float64(x)
			ttft += float64(o.TTFT[i])
		}
	}
	return e2e / math.Max(n, 1), ttft / math.Max(n, 1)
}

// reason says for people what a race led to.
func (r *Race) reason() string {
	best := Raced{Gain: math.Inf(-1)}
	for _, c := range r.Candidates {
		if c.Policy == r.Chosen && r.Chosen != r.Incumbent {
			return fmt.Sprintf("change from %s to %s: the twin predicts a gain of %.3f (standard error %.3f), "+
				"%.3f with the races before", r.Incumbent, r.Chosen, c.Gain, c.Error, c.Belief)
		}
		if c.Policy != r.Incumbent && !c.Dropped && c.Gain > best.Gain {
			best = c
		}
	}
	if best.Policy == "" {
		return fmt.Sprintf("stay with %s: all others are far behind, or alike", r.Incumbent)
	}
	return fmt.Sprintf("stay with %s: %s is the best other one, with a gain of %.3f (standard error %.3f)", r.Incumbent,
		best.Policy, best.Gain, best.Error)
}
