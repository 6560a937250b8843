package planroute

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestPlansAreSoundPlanAndRoute(t *testing.T) {
	for _, spec := range []string{"plan-and-route", "plan-and-route:busy=0,margin=0"} {
		t.Run(spec, func(t *testing.T) {
			c := routertest.PlannerTest{Spec: spec, Route: routeChecked,
				Prepare: func(t *rapid.T, routers [2]*router.Router) {
					deep := rapid.SampledFrom([]int{1, 3, manyWait}).Draw(t, "many wait")
					for _, rt := range routers {
						rt.Policy.(*planAndRoute).deep = deep
					}
				}}
			rapid.Check(t, c.Check)
		})
	}
}

// routeChecked is Route. It must pick the worker with the lowest price of all, of equals the first.
func routeChecked(t *rapid.T, policy router.Policy, r router.Request, v *router.View) int {
	p := policy.(*planAndRoute)
	p.arrived(r, v)
	want, least := router.None, math.Inf(1)
	p.begin(&r, v)
	for j := range v.Usable() {
		if c, _ := p.price(r, j, v); c < least {
			want, least = j, c
		}
	}
	got := p.send(r, v)
	if got != want {
		t.Fatalf("routed to %d, the cheapest is %d", got, want)
	}
	return got
}
