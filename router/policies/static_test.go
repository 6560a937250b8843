package policies

import (
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestStaticHomes(t *testing.T) {
	for _, c := range []struct {
		spec              string
		workers, adapters int
		want              []int // worker of each adapter
	}{
		{"static", 2, 4, []int{0, 1, 0, 1}},
		{"static", 3, 5, []int{0, 1, 2, 0, 1}},
		{"static", 4, 2, []int{0, 1}},
		{"static-block", 2, 4, []int{0, 0, 1, 1}},
		{"static-block", 2, 16, []int{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}},
		{"static-block", 3, 7, []int{0, 0, 0, 1, 1, 1, 2}},
		{"static-block", 4, 9, []int{0, 0, 0, 1, 1, 1, 2, 2, 2}},
		{"static-block", 4, 2, []int{0, 1}},
	} {
		env := routertest.Env(c.workers, c.adapters)
		rt := routertest.New(t, c.spec, env)
		v := routertest.View(env)
		placed := make([]int, c.adapters)
		for w, adapters := range rt.Placement {
			for _, a := range adapters {
				placed[a] = w
			}
		}
		routertest.Equal(t, placed, c.want, c.spec+" placement")
		for a, want := range c.want {
			routertest.Equal(t, routertest.Route(rt.Policy, v, int32(a), 2), []int{want, want}, c.spec)
		}
	}
}

func TestStaticBaseModelAndOutages(t *testing.T) {
	env := routertest.Env(3, 3)
	for _, spec := range []string{"static", "static-block"} {
		p := routertest.New(t, spec, env).Policy
		v := routertest.View(env)
		routertest.Equal(t, routertest.Route(p, v, -1, 5), []int{0, 1, 2, 0, 1}, spec+" base model")
		v.Workers[2].Draining = true
		routertest.Equal(t, routertest.Route(p, v, 2, 1), []int{0}, spec+" draining")
		routertest.Equal(t, routertest.Route(p, v, -1, 3), []int{0, 1, 0}, spec+" base model, draining")
		v.Workers[0].Up = false
		routertest.Equal(t, routertest.Route(p, v, 2, 1), []int{1}, spec+" two out")
		v.Workers[1].Up = false
		routertest.Equal(t, routertest.Route(p, v, 2, 1), []int{router.None}, spec+" all out")
	}
}

func TestStaticWithoutAdapters(t *testing.T) {
	env := routertest.Env(2, 0)
	for _, spec := range []string{"static", "static-block", "hash"} {
		rt := routertest.New(t, spec, env)
		routertest.Equal(t, routertest.Route(rt.Policy, routertest.View(env), -1, 3), []int{0, 1, 0}, spec)
	}
}
