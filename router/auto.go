package router

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"lorasim/trace/settings"
)

// auto chooses among policies by simulation. It routes and plans as one of its candidates, the
// incumbent, and remembers the latest requests (window). Now and then it has a twin of the
// cluster serve them under each candidate (race), and changes the incumbent where another one is
// clearly better (auto_race.go).
//
// It has no clock: races begin at plans, whose time the caller tells, and may run beside routing.
type auto struct {
	env        Env
	candidates []candidate
	incumbent  int
	chosen     int // takes over at the next look at the cluster
	current    *Router
	objective  objective
	window     *window
	rng        *rand.Rand
	error      ProfileError
	every      int64   // requests between races, at most
	margin     float64 // by which a candidate must be better
	budget     float64 // requests simulated per request

	credit float64 // requests that may be simulated
	raceAt int64   // number of requests from which the next race is due
	ended  int64   // requests that ended since the load changed
	step   int64   // requests until the one after
	drift  drift
	planAt float64    // of the incumbent's latest plan
	owner  Planner    // of the plan under way; nil: a race
	used   [][]uint64 // by worker, a bit for each adapter: requests were sent for it
	log    *Race      // the latest choice
	served served
	live   liveRaces
	fault  error // the first of a candidate
}

// candidate is a policy that auto may choose.
type candidate struct {
	spec   string
	weight float64 // cost of a simulated request, of one without plans
	prefix bool    // it looks at what prompts have in common
	behind int     // races in a row in which it was far behind
	skip   int     // races that it sits out
	broken bool    // it failed in a race
	belief belief
}

// autoTick is the time between looks at whether a race is due, s: races and plans begin at these times alone.
const autoTick = 0.125

type autoOptions struct {
	Candidates string  `default:"plan-and-route+plan-and-route:spill=1.5+static+bounded-hash+least-tokens+prefix-scorer" commas:"yes" specs:"+" help:"policies, joined by +; the first one begins"`
	Objective  string  `default:"all" check:"oneof all e2e ttft p99-ttft goodput" help:"what is to be small: all (E2E, TTFT and P99 TTFT), e2e, ttft, p99-ttft or goodput"`
	MaxTTFT    float64 `key:"max-ttft" default:"0" check:">=0" help:"goodput: largest TTFT, ms; 0: any"`
	MaxTPOT    float64 `key:"max-tpot" default:"0" check:">=0" help:"goodput: largest TPOT, ms; 0: any"`
	MaxE2E     float64 `key:"max-e2e" default:"0" check:">=0" help:"goodput: largest E2E latency, ms; 0: any"`
	Window     int     `default:"2048" check:">=64 <=1048576" help:"requests that it remembers"`
	Every      int     `default:"1024" check:">=32" help:"requests between races, at most"`
	Margin     float64 `default:"0.02" check:">=0 <=1" help:"least gain for a change, as a share of the objective"`
	Budget     float64 `default:"6" check:">=0 <=1000000" help:"requests simulated per request; one with plans counts twice, one with prefixes three times"`
	Error      percent `key:"profile-error" default:"0%" help:"share by which the twin's step times are wrong on purpose"`
	Share      percent `default:"2%" help:"bench and gateway: share of one core that races may take; replaces budget"`
}

// percent is a share, written as a percentage from 0% to below 100%.
type percent float64

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *percent) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(string(text), "%"), 64)
	if err != nil || !(v >= 0 && v < 100) {
		return fmt.Errorf("%q is not a percentage from 0%% to below 100%%", text)
	}
	*p = percent(v / 100)
	return nil
}

// Check implements settings.Checker.
func (o *autoOptions) Check(settings.Given) error {
	if o.Objective == "goodput" && o.MaxTTFT+o.MaxTPOT+o.MaxE2E == 0 {
		return errors.New("objective: goodput needs one of max-ttft, max-tpot and max-e2e")
	}
	return nil
}

// Build implements Builder.
func (o *autoOptions) Build(env Env) (*Router, error) {
	if env.Twin == nil {
		return nil, errors.New("needs a twin that simulates the cluster")
	}
	p := &auto{
		env: env, rng: newRand(env), window: newWindow(o.Window), every: int64(o.Every), margin: o.Margin,
		budget: o.Budget, credit: firstCredit, raceAt: firstRace, step: firstRace,
		error: ProfileError{Seed: env.Seed, Share: float64(o.Error)}, planAt: math.Inf(-1), objective: o.objective(),
		live: newLiveRaces(env.Live, float64(o.Share)),
	}
	if env.Live != nil {
		p.budget, p.credit = 0, 0
	}
	rt := &Router{Policy: p, Planner: p, ReadsKV: true, ReadsFewKV: true, ReadsPrefixes: true}
	for spec := range strings.SplitSeq(o.Candidates, "+") {
		c, err := New(spec, env.withoutTwin())
		if err != nil {
			return nil, fmt.Errorf("candidate: %w", err)
		}
		_, changes := c.Policy.(PlacementChanger)
		if c.Prefetch || changes {
			return nil, fmt.Errorf("candidate %s changes what workers do at a request: "+
				"auto cannot take that up during a run", spec)
		}
		if p.current == nil {
			p.current = c
			if env.hostLimited() {
				rt.Placement = c.Placement
			}
		}
		weight := 1.0
		if c.Planner != nil {
			weight = 2
		}
		if c.ReadsPrefixes {
			weight = 3
		}
		p.candidates = append(p.candidates, candidate{spec: spec, weight: weight, prefix: c.ReadsPrefixes,
			belief: belief{priorMean, priorGain * priorGain}})
	}
	for range env.Workers {
		p.used = append(p.used, make([]uint64, (len(env.Adapters)+63)/64))
	}
	p.candidates[0].belief = belief{} // it is what the others are compared with
	return rt, nil
}

// look forgets what workers that are down have seen.
func (p *auto) look(v *View) {
	for j := range v.Workers {
		if !v.Workers[j].Up {
			clear(p.used[j])
		}
	}
}

// objective is what the options say is to be small.
func (o *autoOptions) objective() objective {
	b := objective{maxTTFT: o.MaxTTFT / 1e3, maxTPOT: o.MaxTPOT / 1e3, maxE2E: o.MaxE2E / 1e3}
	switch o.Objective {
	case "e2e":
		b.e2e = 1
	case "ttft":
		b.ttft = 1
	case "p99-ttft":
		b.p99 = 1
	case "goodput":
		b.missed = 1
	default:
		b.e2e, b.ttft, b.p99 = 1, 0.35, 0.15
	}
	return b
}

func (p *auto) Route(r Request, v *View) int {
	p.takeOver(v)
	if p.current.ReadsKV && !p.current.ReadsFewKV {
		for j := range v.Workers {
			v.read(j)
		}
	}
	w := p.current.Policy.Route(r, v)
	p.window.sent(&r, w, v.Now)
	if w != None && isAdapter(r.Adapter) {
		p.used[w][r.Adapter/64] |= 1 << (r.Adapter % 64)
	}
	p.credit = min(p.credit+p.budget, maxCredit)
	switch rate, mix := p.drift.arrived(&r, v.Now); {
	case mix:
		p.changed()
	case rate:
		p.busier()
	}
	return w
}

// Preview implements previewer.
func (p *auto) Preview(r Request, v *View) int {
	if q, ok := p.current.Policy.(previewer); ok {
		return q.Preview(r, v)
	}
	return None
}

// Finished implements CompletionObserver.
func (p *auto) Finished(f Finished) {
	if s := p.window.get(f.ID); s != nil {
		s.output, s.e2e, s.ttft = max(f.Output, 1), f.E2E, f.TTFT
		s.worker = f.Worker
	}
	p.ended++
	p.served.add(f)
	if p.drift.ended(f.Output) {
		p.changed()
	}
	if o, ok := p.current.Policy.(CompletionObserver); ok {
		o.Finished(f)
	}
}

// LoadFailed implements LoadFailureObserver.
func (p *auto) LoadFailed(l Placement) {
	if o, ok := p.current.Policy.(LoadFailureObserver); ok {
		o.LoadFailed(l)
	}
}

// Interval implements Planner.
func (p *auto) Interval() float64 { return autoTick }

// planDue says whether the incumbent's next plan is due.
func (p *auto) planDue(now float64) bool {
	return p.current.Planner != nil && now >= p.planAt+p.current.Planner.Interval()-autoTick/2
}

// Select implements Selector. A race has to know how far running requests are.
func (p *auto) Select(v *View) Selection {
	p.takeOver(v)
	p.earn()
	switch {
	case p.raceDue(v):
		return Selection{MostWaiting: manyWait}
	case p.planDue(v.Now):
		if s, ok := p.current.Planner.(Selector); ok {
			return s.Select(v)
		}
		return Selection{}
	}
	return Selection{Worker: func(int) bool { return false }}
}

// Begin implements Planner.
func (p *auto) Begin(s *PlannerInput) *Pending {
	p.takeOver(s.View)
	p.look(s.View)
	p.earn()
	if p.raceDue(s.View) {
		if pending := p.beginRace(p.forRace(s)); pending != nil {
			return pending
		}
	}
	if !p.planDue(s.Now) {
		return nil
	}
	p.planAt = s.Now
	owner := p.current.Planner
	pending := owner.Begin(s)
	if pending == nil {
		return nil
	}
	return &Pending{pending.Solve, func() *Plan {
		p.owner = owner
		return pending.Plan()
	}}
}

// Applied implements Planner.
func (p *auto) Applied(plan *Plan, err error) {
	if plan.Race == nil {
		if p.owner != nil {
			p.owner.Applied(plan, err)
		}
		return
	}
	if err == nil {
		p.chosen = slices.IndexFunc(p.candidates, func(c candidate) bool { return c.spec == plan.Race.Chosen })
	}
}

// takeOver makes the choice of the latest race the incumbent, which learns from the window what it would know.
func (p *auto) takeOver(v *View) {
	if p.chosen == p.incumbent {
		return
	}
	next, err := New(p.candidates[p.chosen].spec, p.env.withoutTwin())
	if err != nil { // it was built before
		p.chosen = p.incumbent
		return
	}
	var ready *prefixIndex
	until := int64(0)
	if p.log != nil && p.log.Chosen == p.candidates[p.chosen].spec {
		ready, until = p.log.index, p.log.Requests
		p.log.index = nil
	}
	replace(next.Policy, p.current.Policy, p.recall(), v, ready, until)
	p.rebase(p.chosen)
	p.incumbent, p.current, p.planAt = p.chosen, next, math.Inf(-1)
}

// recall is what auto remembers for policies that take over.
func (p *auto) recall() *recall { return &recall{p.window, p.used} }

// past is a copy of the memory and of the incumbent, whose times count from now on.
func (p *auto) past(now float64) (*recall, Policy, error) {
	m := &recall{p.window.snapshot(now), make([][]uint64, len(p.used))}
	for j := range p.used {
		m.used[j] = slices.Clone(p.used[j])
	}
	rt, err := New(p.candidates[p.incumbent].spec, p.env.withoutTwin())
	if err != nil {
		return nil, nil, err
	}
	if c, ok := rt.Policy.(copier); ok {
		c.copyFrom(p.current.Policy, now)
	}
	return m, rt.Policy, nil
}

// withoutTwin is the environment of candidates, which simulate nothing.
func (e Env) withoutTwin() Env {
	e.Twin = nil
	return e
}
