package router

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Live is what a policy that simulates needs when the workers are real.
type Live struct {
	Clock func() float64 // wall time, s, to measure the cost of races
	Yield func()         // called often during races, so that requests are routed meanwhile; nil: nothing is called
}

// Limits of live races.
const (
	costWeight  = 0.3  // of the latest race in the mean cost of a simulated request
	leastCost   = 1e-7 // s per simulated request
	replayed    = 512  // requests that are simulated again to compare with what was measured
	fewReplayed = 8    // requests of a worker below which its correction stays
	slowest     = 4.0  // bounds of a correction: 1/slowest to slowest
	damping     = 0.7  // exponent: load makes batches grow with step times, and so exaggerates what is wrong
)

// liveRaces keeps races beside routing within a share of one core, and corrects the twin's step times by
// what was measured. Its zero value is that of a simulated run, where races cost nothing.
type liveRaces struct {
	clock  func() float64 // nil: simulated run
	yield  func()
	share  float64   // of one core
	cost   float64   // s per simulated request
	earned float64   // clock until which the share is credited
	slower []float64 // by worker: step times measured, relative to the profile; nil: no correction yet
}

func newLiveRaces(l *Live, share float64) liveRaces {
	if l == nil {
		return liveRaces{}
	}
	return liveRaces{clock: l.Clock, yield: l.Yield, share: share, cost: perRequest, earned: l.Clock()}
}

// earn credits the share of a core since the last call, in requests that may be simulated.
func (p *auto) earn() {
	if p.live.clock == nil {
		return
	}
	now := p.live.clock()
	p.credit = min(p.credit+(now-p.live.earned)*p.live.share/p.live.cost, maxCredit)
	p.live.earned = now
}

// spend charges what a race has cost: its time if the run is live, else the requests that it simulated.
func (p *auto) spend(race *Race) {
	if race.Simulated > 0 && race.Seconds > 0 {
		cost := race.Seconds / float64(race.Simulated)
		p.live.cost = max((1-costWeight)*p.live.cost+costWeight*cost, leastCost)
		p.credit -= race.Seconds / p.live.cost
		return
	}
	p.credit -= float64(race.Simulated)
}

// timed runs a race and notes its wall time.
func (p *auto) timed(race *Race, run func() error) error {
	if p.live.clock == nil {
		return run()
	}
	begun := p.live.clock()
	err := run()
	race.Seconds = p.live.clock() - begun
	return err
}

// forRace is the input of a race: all requests in flight, and a copy of the workers that stays as it is while
// requests are routed beside the race.
func (p *auto) forRace(s *PlannerInput) *PlannerInput {
	if p.live.clock == nil {
		return s
	}
	v := *s.View
	v.Workers = slices.Clone(v.Workers)
	for j := range v.Workers {
		v.Workers[j].Adapters = slices.Clone(v.Workers[j].Adapters)
	}
	v.Read, v.Index = nil, nil
	requests := slices.Concat(s.Requests, s.Fixed)
	slices.SortStableFunc(requests, func(a, b InFlight) int {
		return cmp.Or(cmp.Compare(a.Worker, b.Worker), cmp.Compare(a.ID, b.ID))
	})
	return &PlannerInput{View: &v, Requests: requests}
}

// correct compares the latest requests with a simulation of the same requests on the same workers. The median
// ratio of the times from the first to the last token corrects the worker's step times in the twin.
func (p *auto) correct(race *Race, f *Future, past *window) error {
	if p.live.clock == nil {
		return nil
	}
	f.Slower, race.Slower, f.Yield = p.live.slower, p.live.slower, p.live.yield
	r := newReplay(past, f, rand.New(rand.NewPCG(p.env.Seed, uint64(past.n))), replayed)
	if len(r.future.Requests) < 2*fewReplayed {
		return nil
	}
	o, err := p.env.Twin.Simulate(&Router{Policy: r}, r.future)
	if err != nil {
		return err
	}
	race.Simulated += int64(len(r.future.Requests))
	slower := make([]float64, len(p.env.Workers))
	for j, ratios := range r.ratios(o, len(slower)) {
		slower[j] = 1
		if p.live.slower != nil {
			slower[j] = p.live.slower[j]
		}
		if len(ratios) >= fewReplayed {
			slower[j] = min(max(slower[j]*math.Pow(median(ratios), damping), 1/slowest), slowest)
		}
	}
	f.Slower, race.Slower = slower, slower
	return nil
}

// replay is the latest requests of a window once more, and a policy that sends each where it went.
type replay struct {
	future *Future
	seen   []*seen
}

// newReplay returns a replay of at most the latest n requests.
func newReplay(past *window, f *Future, rng *rand.Rand, n int) *replay {
	first := max(past.first(), past.n-int64(n))
	outs := past.outputs(first, rng)
	r := &replay{future: &Future{Error: f.Error, Slower: f.Slower, Yield: f.Yield,
		State: State{Down: f.State.Down, Host: f.State.Host, Slots: f.State.Slots, Used: f.State.Used}}}
	begun := 0.0
	for n := first; n < past.n; n++ {
		q := past.at(n)
		if q.worker < 0 || slices.Contains(f.State.Down, int(q.worker)) {
			continue
		}
		if len(r.seen) == 0 {
			begun = q.at
		}
		r.seen = append(r.seen, q)
		r.future.Requests = append(r.future.Requests,
			q.request(max(q.at-begun, 0), q.adapter, q.text, outs.draw(q), nil))
	}
	return r
}

// Route implements Policy.
func (r *replay) Route(q Request, v *View) int {
	if q.ID < int64(len(r.seen)) {
		if w := int(r.seen[q.ID].worker); v.Workers[w].Usable() {
			return w
		}
	}
	return nextUsable(v, 0)
}

// ratios are measured by simulated times of requests that have ended, by worker. The first quarter of the requests
// is left out: their simulation began with idle workers.
func (r *replay) ratios(o *Outcome, workers int) [][]float64 {
	list := make([][]float64, workers)
	for i := len(r.seen) / 4; i < len(r.seen); i++ {
		q := r.seen[i]
		if e := o.E2E[i]; q.output < 2 || e != e {
			continue
		}
		real, simulated := q.e2e-q.ttft, float64(o.E2E[i]-o.TTFT[i])
		if real <= 0 || simulated <= 0 { // the whole reply came at once
			real, simulated = q.e2e, float64(o.E2E[i])
		}
		if real > 0 && simulated > 0 {
			list[q.worker] = append(list[q.worker], real/simulated)
		}
	}
	return list
}

// median sorts a list, which is not empty, and returns its middle.
func median(list []float64) float64 {
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}
