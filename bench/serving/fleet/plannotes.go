package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"lorasim/router"
)

// keptPlans is the number of the latest plans that a fleet remembers.
const keptPlans = 50

// A PlanNote is a record of one plan that changes something, for operators.
type PlanNote struct {
	At     time.Time `json:"at"`
	Result string    `json:"result"` // "applied", "dropped", or "race" (a race chose a policy)
	Reason string    `json:"reason"`
	Error  string    `json:"error,omitempty"` // why the plan was dropped
	Load   []string  `json:"load"`            // loads, each ADAPTER@URL
	Unload []string  `json:"unload"`          // unloads, each ADAPTER@URL
	Moves  int       `json:"moves"`           // number of requests to move
}

// Plans returns the latest plans that change something, the latest first.
func (f *Fleet) Plans() []PlanNote {
	defer f.lock()()
	list := append([]PlanNote{}, f.notes...) // not nil: a page reads it
	slices.Reverse(list)
	return list
}

// remember notes a plan; called with mu held.
func (p *planRunner) remember(plan *router.Plan, err error) {
	n := PlanNote{At: time.Now(), Result: "applied", Reason: plan.Reason, Load: p.names(plan.Load),
		Unload: p.names(plan.Unload), Moves: len(plan.Move)}
	switch {
	case err != nil:
		n.Result, n.Error = "dropped", err.Error()
	case plan.Race != nil:
		n.Result = "race"
	case plan.Empty():
		return
	}
	if p.notes = append(p.notes, n); len(p.notes) > keptPlans {
		p.notes = slices.Delete(p.notes, 0, len(p.notes)-keptPlans)
	}
}

// names returns placements as text for operators. Called with mu held.
func (p *planRunner) names(list []router.Placement) []string {
	names := []string{}
	for _, at := range list {
		name := at.Name(p.catalog.adapters) // an unknown adapter is why a plan is dropped
		if w := int(at.Worker); w >= 0 && w < len(p.workers) {
			name = strings.TrimSuffix(name, fmt.Sprint("@", w)) + "@" + p.workers[w].url
		}
		names = append(names, name)
	}
	return names
}
