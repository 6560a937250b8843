package planroute

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

// TestGroupBounds compares the bounds of groups with those of their workers, whose outlines change at random.
func TestGroupBounds(t *testing.T) {
	env := routertest.Env(5, 2)
	rapid.Check(t, func(t *rapid.T) {
		p := routertest.New(t, "plan-and-route", env).Policy.(*planAndRoute)
		g := &p.outlines.groups
		g.from, g.most = 0, rapid.IntRange(1, 3).Draw(t, "most workers of a group")
		g.begin(len(env.Workers), 1)
		g.scale = [measures]float64{200, 0.1, 10}
		all := make([]outline, len(env.Workers))
		now := 0.0
		after := func(what string) float64 {
			return rapid.SampledFrom([]float64{math.Inf(-1), now - 0.1, now + 0.05, now + 0.3}).Draw(t, what)
		}
		for range rapid.IntRange(1, 40).Draw(t, "changes") {
			now += rapid.SampledFrom([]float64{0, 0.06, 1}).Draw(t, "later")
			j := int32(rapid.IntRange(0, len(all)-1).Draw(t, "worker"))
			all[j] = outline{
				kind:       int32(rapid.SampledFrom([]int{0, 0, 0, -1}).Draw(t, "kind")),
				running:    rapid.SampledFrom([]float64{0, 60}).Draw(t, "running"),
				step:       rapid.Float64Range(0.01, 0.03).Draw(t, "step"),
				longer:     rapid.SampledFrom([]float64{math.Inf(-1), 0, 0.001}).Draw(t, "longer"),
				waits:      rapid.Float64Range(0, 1).Draw(t, "waits"),
				exec:       rapid.SampledFrom([]float64{-1, 3, 9}).Draw(t, "execution"),
				stepHere:   rapid.Float64Range(0.01, 0.02).Draw(t, "step of an adapter that is there"),
				longerHere: rapid.SampledFrom([]float64{math.Inf(-1), 0, 0.001}).Draw(t, "longer with it"),
				place:      rapid.Float64Range(0, 1).Draw(t, "place"),
				starts:     after("step's beginning"), closes: after("step's forming"),
				ends: after("step's end"), fetched: after("fetch's end"),
				joins:   rapid.Bool().Draw(t, "joins"),
				loads:   rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "loads"),
				compute: rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "compute"),
				fetches: rapid.Bool().Draw(t, "fetches"), evicts: rapid.Bool().Draw(t, "evicts"),
			}
			g.move(j, all, now, j == 0, unusedKey{is: rapid.Bool().Draw(t, "unused")})
			r := router.Request{Prompt: int32(rapid.IntRange(1, 4000).Draw(t, "prompt")), Expected: 100, MaxNew: 100}
			p.bounds.begin(p, &r, routertest.View(env))
			some := standing{hosted: rapid.Bool().Draw(t, "hosted"), wanted: rapid.Bool().Draw(t, "wanted"),
				placed: rapid.Bool().Draw(t, "placed")}
			members := 0
			for i := range g.list {
				bound := g.list[i].boundOf(p, &r, now, some)
				for _, k := range g.list[i].workers {
					own := all[k].bound(p, &r, now, standing{some.hosted || k == 0, some.wanted && !g.list[i].unused.is,
						some.placed})
					if bound > own*(1+1e-12) {
						t.Fatalf("group %+v: the bound is %g, that of worker %d is %g", g.list[i], bound, k, own)
					}
				}
				members += len(g.list[i].workers)
			}
			for k := range all {
				if all[k].kind >= 0 && g.at[k].group >= 0 {
					members--
				}
			}
			if members != 0 {
				t.Fatalf("the groups have %d workers too many", members)
			}
		}
	})
}
