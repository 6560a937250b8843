package live

import (
	"testing"

	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
)

func TestCounters(t *testing.T) {
	c := counters(&Stats{Moved: 4}, &fleet.Stats{Plans: 3, Applied: 2, Dropped: 1, FailedLoads: 5}, "recompute")
	if c.SolverRuns != 3 || c.Plans.Applied != 2 || c.Plans.Dropped != 1 || c.FailedLoads != 5 || c.Migrations[0].Count != 4 {
		t.Errorf("%+v", c)
	}
}

func TestStated(t *testing.T) {
	var sc scenario.Scenario
	c := &sc.Cluster
	c.MaxRunningRequests, c.MaxLorasPerBatch, c.KVTokens, c.MaxLoadedLoras = 1, 2, 3, 4
	if got := Stated(&sc); got != (fleet.Limits{MaxRunning: 1, Slots: 2, KVCapacity: 3, MaxLoaded: 4}) {
		t.Errorf("%+v", got)
	}
	if def := scenario.Default(); Stated(&def) != (fleet.Limits{}) {
		t.Errorf("the defaults state %+v", Stated(&def))
	}
}
