package place

import (
	"reflect"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestForecast(t *testing.T) {
	p := New(10, routertest.HandEnv(2, 2))
	rates := func(now float64, requests int, want float64) {
		t.Helper()
		for range requests {
			p.Count(router.Request{Adapter: 1, Prompt: 10})
			p.Count(router.Request{Adapter: -1, Prompt: 10})
		}
		p.Forecast(now)
		routertest.Close(t, "rate of adapter 1", p.demand[1].Rate, want)
		routertest.Close(t, "rate of adapter 0", p.demand[0].Rate, 0)
	}
	rates(10, 40, 4)
	rates(10, 10, 4) // no time has passed: they count for the next
	rates(15, 0, 3)  // 10 in 5 s
	rates(25, 0, 1.5)
}

func TestLeastLoadedHolder(t *testing.T) {
	env := routertest.HandEnv(4, 4)
	p := New(10, env)
	p.SetPlacement([][]int32{{0}, {0, 1}, {1}, {0}})
	for _, c := range []struct {
		k       int32
		running []int
		want    int
	}{
		{0, []int{3, 2, 0, 2}, 1}, {0, []int{1, 2, 0, 1}, 0}, {0, []int{-1, -1, 5, 3}, 3}, {0, []int{-1, -1, 5, -1}, 2},
		{3, []int{2, 1, 1, 3}, 1}, {-1, []int{2, 1, 0, 3}, 2}, {1, []int{-1, -1, -1, -1}, router.None},
	} {
		v := routertest.View(env)
		routertest.SetRunning(v, c.running...)
		if got := p.leastLoadedHolder(router.Request{Adapter: c.k}, v); got != c.want {
			t.Errorf("adapter %d with %v running: worker %d, expected %d", c.k, c.running, got, c.want)
		}
	}
	if got := p.where[0]; !slices.Equal(got, []int32{0, 1, 3}) {
		t.Errorf("adapter 0 is on %v", got)
	}
}

// Workers start with the adapters that are placed there, and others while there is room.
func TestStartFillsHostMemory(t *testing.T) {
	env := routertest.Env(3, 5)
	env.Workers[0].HostSlots, env.Workers[1].HostSlots = 3, 1 // the third worker has room for all
	p := New(10, env)
	want := [][]int32{{0, 3, 1}, {1, 4}, {2, 0, 1, 3, 4}}
	if got := p.Router(nil).Placement; !reflect.DeepEqual(got, want) {
		t.Errorf("start with %v, expected %v", got, want)
	}
	if got := p.Held(); !reflect.DeepEqual(got, [][]int32{{0, 3}, {1, 4}, {2}}) {
		t.Errorf("placed %v", got)
	}
}
