package planroute

import "lorasim/router"

// Policies lists the policies of this package, in the order in which to show them.
func Policies() []router.Descriptor {
	full := router.Describe[planAndRouteOptions]("plan-and-route",
		"least added time; an ILP over all workers loads and unloads adapters and moves requests")
	full.Group = router.Planning
	full.Facts = &router.Facts{Plans: true, Interval: true, Signals: true}
	full.Aliases = []string{"period_mig"} // also dLoRA's name of a migration type, which is dlora_period_mig
	routing := router.Describe[routeOnlyOptions]("route-only",
		"the routing of plan-and-route alone: no request moves, no adapter is placed")
	routing.Group = router.Planning
	routing.Facts = &router.Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
	return []router.Descriptor{full, routing}
}
