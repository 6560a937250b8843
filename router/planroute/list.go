package planroute

import "lorasim/router"

// Policies lists the policies of this package, in the order in which to show them.
func Policies() []router.Descriptor {
	full := router.Describe[planAndRouteOptions]("plan-and-route",
		"least added time; plans by an ILP over all workers move adapters and requests")
	full.Facts = &router.Facts{Plans: true, Interval: true, Signals: true}
	full.Aliases = []string{"period_mig"} // also dLoRA's name of a migration type, which is dlora_period_mig
	routing := router.Describe[routeOnlyOptions]("route-only",
		"plan-and-route:move=none,place=off: its routing alone; no request moves, no adapter is placed")
	routing.Facts = &router.Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	return []router.Descriptor{full, routing}
}
