package live

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Stated are the limits of workers that flags or a scenario state; what is not
// stated is 0.
func Stated(sc *scenario.Scenario) fleet.Limits {
	c := &sc.Cluster
	return fleet.Limits{MaxRunning: c.MaxRunningRequests, Slots: c.MaxLorasPerBatch, KVCapacity: c.KVTokens, MaxLoaded: c.MaxLoadedLoras}
}

// Preflight looks at the workers before a run: their profiles take over what they
// tell of themselves and nobody has stated, and what cannot work there is refused.
type Preflight struct {
	URLs    []string
	API     fleet.API
	Client  *http.Client
	Header  http.Header
	Ready   time.Duration // wait so long for workers that do not answer yet
	Reports []fleet.Report
}

// Look asks the workers, and returns the scenario's profiles of them.
func (p *Preflight) Look(ctx context.Context, sc *scenario.Scenario) ([]*profile.Profile, error) {
	ps, err := sc.Profiles()
	if err != nil {
		return nil, err
	}
	p.Reports = fleet.Check(ctx, fleet.CheckConfig{URLs: p.URLs, API: p.API, Client: p.Client, Header: p.Header, Wait: p.Ready})
	return told(ps, p.Reports, Stated(sc)), ctx.Err()
}

// Judge says why the router cannot work on the workers, or nil; with moves, what
// keeps requests from moving is logged.
func (p *Preflight) Judge(adapters []trace.Adapter, rt *router.Router, moves bool, log func(format string, args ...any)) error {
	for i := range p.Reports {
		if r := &p.Reports[i]; r.Error == "" && moves && r.TokenIDs == fleet.Off {
			log("worker %d (%s) tells no token ids: requests that have begun do not move", i, r.URL)
		}
	}
	return fleet.Refuse(p.Reports, adapters, rt)
}

// told are profiles with what workers tell of themselves.
func told(ps []*profile.Profile, reports []fleet.Report, stated fleet.Limits) []*profile.Profile {
	list := make([]*profile.Profile, len(ps))
	for i := range ps {
		p, r := *ps[i], &reports[i] // a copy: workers share profiles
		e := &p.Engine
		take := func(to *int, stated, told int) {
			if stated == 0 {
				*to = cmp.Or(told, *to)
			}
		}
		take(&e.MaxRunningRequests, stated.MaxRunning, r.MaxRunning)
		take(&e.MaxLorasPerBatch, stated.Slots, r.Slots)
		take(&e.MaxLoadedLoras, stated.MaxLoaded, r.MaxLoaded)
		if stated.KVCapacity == 0 {
			p.Memory.KVTokens = cmp.Or(r.KVCapacity, p.Memory.KVTokens)
		}
		list[i] = &p
	}
	return list
}
