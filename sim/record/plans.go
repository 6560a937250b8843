package record

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"lorasim/router"
	"lorasim/sim/tick"
)

// PlanCounters counts the plans of a run and their effects. A [PlanBook] fills it, in the simulator and in a fleet.
type PlanCounters struct {
	Made      int64   `json:"-"` // all plans; in a result solver_runs
	SolveTime float64 `json:"-"` // time in which they were made, s; in a result solver_time_s

	Applied int64 `json:"applied"` // plans that were not empty and were carried out
	Dropped int64 `json:"dropped"` // plans that could no longer be carried out when they were due
	Loads   int64 `json:"loads"`   // adapters to load to a worker, in applied plans
	Unloads int64 `json:"unloads"` // adapters to unload from a worker, in applied plans
	// Gap is the mean relative distance of the plans' objectives to their bounds.
	Gap float64 `json:"mean_gap"`

	Moves map[string]int64 `json:"-"` // moved requests by kind; in a result migrations
	// Recomputed are the KV tokens that moved requests left on their old workers. They must be computed again, but for
	// those in a prefix cache: Counters.RepeatedTokens excludes these.
	Recomputed int64      `json:"recomputed_tokens"`
	Copied     float64    `json:"copied_bytes"` // bytes of KV cache sent
	Lost       tick.Ticks `json:"-"`            // time of moved requests between two workers; migration_time_s

	Changes int64 `json:"placement_changes"`
	Undone  int64 `json:"placement_changes_undone"` // changes that a later change reverted (thrashing)

	// Idle counts why the planner changed nothing, the most frequent reason first.
	Idle []Idle `json:"idle,omitempty"`
}

// Idle is a reason why a planner made no plan, or a plan that changes nothing. Reasons that differ in numbers alone
// count as one.
type Idle struct {
	Reason string `json:"reason"` // with the latest numbers
	Count  int64  `json:"count"`

	kind string // the reason without its numbers
}

// A PlanBook counts plans while they are made and carried out. The zero value is ready.
type PlanBook struct {
	PlanCounters
	gaps   float64 // sum over the plans with a bound
	bounds int64   // number of plans with a bound
	// places are those that plans have named.
	places map[router.Placement]*place
}

// place is the history of an adapter on a worker.
type place struct {
	before bool // the adapter was there before the first plan that named the place
	wanted bool // the latest plan wants it there
}

// Counters returns the counts so far.
func (b *PlanBook) Counters() PlanCounters {
	c := b.PlanCounters
	c.Moves = maps.Clone(c.Moves)
	c.Idle = slices.Clone(c.Idle)
	slices.SortStableFunc(c.Idle, func(a, b Idle) int { return cmp.Compare(b.Count, a.Count) })
	return c
}

// Rest counts a time at which the planner made no plan, by its reason; "": it gave none.
func (b *PlanBook) Rest(reason string) {
	if reason == "" {
		return
	}
	if i := slices.IndexFunc(b.Idle, func(o Idle) bool { return o.Reason == reason }); i >= 0 {
		b.Idle[i].Count++
		return
	}
	kind := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, reason)
	i := slices.IndexFunc(b.Idle, func(o Idle) bool { return o.kind == kind })
	if i < 0 {
		i = len(b.Idle)
		b.Idle = append(b.Idle, Idle{kind: kind})
	}
	b.Idle[i].Count++
	b.Idle[i].Reason = reason
}

// Make counts a plan. solve is the time in which it was made, s.
func (b *PlanBook) Make(p *router.Plan, solve float64) {
	b.Made++
	b.SolveTime += solve
	if p.Bound > 0 {
		b.gaps += p.Gap()
		b.bounds++
		b.Gap = b.gaps / float64(b.bounds)
	}
}

// Begin notes which adapters of a plan are there already, before the plan is carried out.
func (b *PlanBook) Begin(p *router.Plan, held func(router.Placement) bool) {
	if b.places == nil {
		b.places = map[router.Placement]*place{}
	}
	for _, at := range slices.Concat(p.Load, p.Unload) {
		if b.places[at] == nil {
			h := held(at)
			b.places[at] = &place{h, h}
		}
	}
}

// End counts the outcome of a plan: err is the reason why it was dropped, nil if it was carried out after Begin.
// An adapter that a plan loads and unloads at the same place stays there.
func (b *PlanBook) End(p *router.Plan, err error) {
	switch {
	case err != nil:
		b.Dropped++
		return
	case p.Empty():
		b.Rest(p.Reason)
		return
	}
	b.Applied++
	stays := map[router.Placement]bool{}
	if len(p.Unload) > 0 {
		for _, at := range p.Load {
			stays[at] = true
		}
	}
	for _, at := range p.Unload {
		if !stays[at] {
			b.want(at, false)
			b.Unloads++
		}
	}
	for _, at := range p.Load {
		b.want(at, true)
		b.Loads++
	}
}

// want notes that a plan wants an adapter at a place, or away from it.
func (b *PlanBook) want(at router.Placement, there bool) {
	p := b.places[at]
	if p.wanted == there {
		return
	}
	p.wanted = there
	b.Changes++
	if there == p.before { // this change and an earlier one have no effect together
		b.Undone += 2
	}
}

// Move counts a request that left its worker for another one. kv is the number of KV tokens that it left behind:
// 0 if it had not run on the worker or took its KV cache along.
func (b *PlanBook) Move(kind router.Moving, kv int64) {
	if b.Moves == nil {
		b.Moves = map[string]int64{}
	}
	b.Moves[string(kind)]++
	b.Recomputed += kv
}
