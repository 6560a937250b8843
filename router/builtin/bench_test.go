package builtin

import (
	"fmt"
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestRoutesDoNotAllocate(t *testing.T) {
	env := routertest.Env(16, 64)
	for _, spec := range specs() {
		if strings.HasPrefix(spec, "script:") {
			continue // Starlark allocates
		}
		p, v := routertest.New(t, spec, env).Policy, routertest.BusyView(env)
		id := int64(0)
		step := func() {
			id++
			p.Route(router.Request{ID: id, Adapter: int32(id%65) - 1, Prompt: 100, MaxNew: 100}, v)
		}
		for range 1000 {
			step() // hash orders are worked out on first use
		}
		if n := testing.AllocsPerRun(500, step); n != 0 {
			t.Errorf("%s: %g allocations per request", spec, n)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	for _, spec := range specs() {
		if strings.Contains(spec, ":") && !strings.HasPrefix(spec, "explicit:map=rest") &&
			spec != "affinity:variant=residency,ties=first" && spec != "least-loaded:ties=first" {
			continue
		}
		for _, workers := range []int{2, 16, 256} {
			b.Run(fmt.Sprintf("%s/workers=%d", strings.ReplaceAll(spec, "=", "-"), workers), func(b *testing.B) {
				env := routertest.Env(workers, 64)
				p, v := routertest.New(b, spec, env).Policy, routertest.BusyView(env)
				b.ReportAllocs()
				id := int64(0)
				for b.Loop() {
					id++
					p.Route(router.Request{ID: id, Adapter: int32(id % 64), Prompt: 100, MaxNew: 100}, v)
				}
			})
		}
	}
}

func BenchmarkStale(b *testing.B) {
	env := routertest.Env(256, 64)
	live := routertest.BusyView(env)
	s := router.NewStale(1)
	b.ReportAllocs()
	for b.Loop() {
		live.Now += 0.001
		s.Update(live)
	}
}
