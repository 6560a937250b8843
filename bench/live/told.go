package live

import (
	"lorasim/bench/live/fleet"
	"lorasim/bench/scenario"
)

// Stated are the limits of workers that flags or a scenario state; what is not
// stated is 0.
func Stated(sc *scenario.Scenario) fleet.Limits {
	c := &sc.Cluster
	return fleet.Limits{MaxRunning: c.MaxRunningRequests, Slots: c.MaxLorasPerBatch, KVCapacity: c.KVTokens, MaxLoaded: c.MaxLoadedLoras}
}
