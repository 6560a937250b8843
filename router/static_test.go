package router

import "testing"

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
		env := testEnv(c.workers, c.adapters)
		rt := mustNew(t, c.spec, env)
		v := testView(env)
		placed := make([]int, c.adapters)
		for w, adapters := range rt.Placement {
			for _, a := range adapters {
				placed[a] = w
			}
		}
		equal(t, placed, c.want, c.spec+" placement")
		for a, want := range c.want {
			equal(t, route(rt.Policy, v, int32(a), 2), []int{want, want}, c.spec)
		}
	}
}

func TestStaticBaseModelAndOutages(t *testing.T) {
	env := testEnv(3, 3)
	for _, spec := range []string{"static", "static-block"} {
		p := mustNew(t, spec, env).Policy
		v := testView(env)
		equal(t, route(p, v, -1, 5), []int{0, 1, 2, 0, 1}, spec+" base model")
		v.Workers[2].Draining = true
		equal(t, route(p, v, 2, 1), []int{0}, spec+" draining")
		equal(t, route(p, v, -1, 3), []int{0, 1, 0}, spec+" base model, draining")
		v.Workers[0].Up = false
		equal(t, route(p, v, 2, 1), []int{1}, spec+" two out")
		v.Workers[1].Up = false
		equal(t, route(p, v, 2, 1), []int{None}, spec+" all out")
	}
}

func TestStaticWithoutAdapters(t *testing.T) {
	env := testEnv(2, 0)
	for _, spec := range []string{"static", "static-block", "hash"} {
		rt := mustNew(t, spec, env)
		equal(t, route(rt.Policy, testView(env), -1, 3), []int{0, 1, 0}, spec)
	}
}
