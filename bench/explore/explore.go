// Package explore computes the content of the explorer's page, without a server and without files. It reads settings
// as the user typed them, runs up to three policies, and computes their differences and the attainment over the rate.
//
//	x := explore.New(explore.Limits{}, columnar.Files())
//	err := x.Run(ctx, explore.Query{
//		Settings: map[string]string{"workload.request_rate": "20"}, Policies: []string{"static", "p2c"},
//		SLO: "ttft:1000", Seeds: "5",
//	}, func(e explore.Event) { ... })
//
// The answer comes in parts, cheap ones first: errors in the settings, the first run of each policy, the comparison
// over seeds, the points of the curve, the state from longer runs, and intervals of the breaks. It ends early when ctx
// ends.
package explore

import (
	"context"
	"fmt"
	"sync"

	"lorasim/bench/scenario"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// MaxPolicies is the maximum number of policies that the page shows side by side.
const MaxPolicies = 3

// Limits bound the cost of one query. A zero selects the default.
type Limits struct {
	Requests int64 // requests of one run; default 200,000
	Workers  int   // workers; default 256
	Adapters int   // adapters; default 20,000
	Places   int   // workers times adapters; default 1,000,000
	Seeds    int   // seeds; default 30
	Work     int64 // requests of all runs of a query; beyond, the curve is left out; default 4,000,000
}

func (l Limits) filled() Limits {
	set := func(to *int, value int) {
		if *to == 0 {
			*to = value
		}
	}
	set(&l.Workers, 256)
	set(&l.Adapters, 20_000)
	set(&l.Places, 1_000_000)
	set(&l.Seeds, 30)
	if l.Requests == 0 {
		l.Requests = 200_000
	}
	if l.Work == 0 {
		l.Work = 4_000_000
	}
	return l
}

// A Query is the input of a page, as text that the user typed.
type Query struct {
	Settings map[string]string `json:"settings"` // by key; the other settings have their defaults
	Policies []string          `json:"policies"` // 1 to MaxPolicies
	SLO      string            `json:"slo"`      // as in result.ParseSLO; "": none
	Price    string            `json:"price"`    // price of a worker per hour: X, or PROFILE=X,...; "": unknown
	Seeds    string            `json:"seeds"`    // number of seeds for the differences; "": 1
}

// An Event is a part of an answer.
type Event struct {
	Kind string `json:"kind"`
	Data any    `json:"data"`
}

// The kinds of events, in their order, with the types of their data.
const (
	KindChecked  = "checked"  // Checked
	KindRuns     = "runs"     // []Run
	KindCompared = "compared" // Compared; again when more seeds have run
	KindPoints   = "points"   // []Point, of the curve
	KindBreaks   = "breaks"   // []Break; again with intervals over the seeds, after the states
	KindStates   = "states"   // []State
	KindNote     = "note"     // string
)

// An Explorer answers queries. Its methods are safe for concurrent use.
type Explorer struct {
	limits Limits
	files  trace.Files

	mu       sync.Mutex
	profiles map[string][]*profile.Profile // by the text of the cluster
	shown    map[string]*scenario.Scenario // the scenarios of runs by their IDs
	order    []string                      // of shown, the oldest first
}

// New returns an explorer with the given limits, whose logs are in files.
func New(l Limits, files trace.Files) *Explorer {
	return &Explorer{limits: l.filled(), files: files, profiles: map[string][]*profile.Profile{},
		shown: map[string]*scenario.Scenario{}}
}

// Most of what is remembered.
const (
	maxProfiles = 32
	maxShown    = 64
)

// workers are the profiles of a scenario's workers. Reading a profile takes longer than a short run.
func (x *Explorer) workers(ctx context.Context, sc *scenario.Scenario) ([]*profile.Profile, error) {
	key := fmt.Sprint(sc.Cluster)
	x.mu.Lock()
	ps, ok := x.profiles[key]
	x.mu.Unlock()
	if ok {
		return ps, nil
	}
	ps, err := sc.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.profiles) >= maxProfiles {
		clear(x.profiles)
	}
	x.profiles[key] = ps
	return ps, nil
}

// remember keeps the scenario of a run that is shown.
func (x *Explorer) remember(id string, sc *scenario.Scenario) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.shown[id] != nil {
		return
	}
	if len(x.order) == maxShown {
		delete(x.shown, x.order[0])
		x.order = x.order[1:]
	}
	x.shown[id], x.order = sc, append(x.order, id)
}

// Scenario returns the scenario of the run with the given ID. It returns false if the run is too old.
func (x *Explorer) Scenario(id string) (scenario.Scenario, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if sc := x.shown[id]; sc != nil {
		return *sc, true
	}
	return scenario.Scenario{}, false
}

// Run answers a query. It calls emit with the parts of the answer, one at a time. Faults of the query are a part of
// the answer. An error is ctx's error or an internal one.
func (x *Explorer) Run(ctx context.Context, q Query, emit func(Event)) error {
	p, faults := x.resolve(q)
	if len(faults) > 0 {
		emit(Event{KindChecked, Checked{Faults: faults}})
		return nil
	}
	return newStudy(ctx, x, p, emit).run()
}
