package policies

import (
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/router/routertest"
)

func TestKShardFollowsLoad(t *testing.T) {
	env := routertest.Env(4, 1) // 8 running requests allowed per worker
	p := routertest.New(t, "k-shard:high=1,low=0.5,grow-every=2,shrink-every=10", env).Policy.(*kShard)
	o := order(p.hrw, 0)
	v := routertest.View(env)
	for _, c := range []struct {
		name  string
		now   float64
		loads []int // in hash order; -1: down
		place int   // in hash order
		k     int
	}{
		{"starts with one worker", 0, []int{8, 0, 0, 0}, 0, 1},
		{"load above high", 1, []int{9, 0, 0, 0}, 1, 2},
		{"too soon to grow", 2, []int{20, 20, 0, 0}, 0, 2},
		{"grows again", 3, []int{20, 20, 0, 0}, 2, 3},
		{"between the watermarks", 20, []int{8, 4, 6, 0}, 1, 3},
		{"worker outside the shard is idle", 20, []int{5, 6, 7, 0}, 0, 3},
		{"first is down, the next moves up", 20, []int{-1, 6, 7, 5}, 3, 3},
		{"load below low", 20, []int{4, 4, 3, 0}, 0, 2},
		{"too soon to shrink", 29, []int{3, 2, 0, 0}, 1, 2},
		{"shrinks again", 30, []int{3, 2, 0, 0}, 0, 1},
		{"not below k", 60, []int{0, 0, 0, 0}, 0, 1},
		{"none", 70, []int{-1, -1, -1, -1}, router.None, 1},
	} {
		v.Now = c.now
		for i, load := range c.loads {
			v.Workers[o[i]].Up = load >= 0
			v.Workers[o[i]].Running = max(load, 0)
		}
		want := c.place
		if want != router.None {
			want = o[want]
		}
		if got := p.Route(router.Request{}, v).Worker; got != want || p.shards[0].k != c.k {
			t.Errorf("%s: got worker %d with k %d, want %d with k %d", c.name, got, p.shards[0].k, want, c.k)
		}
	}
}

func TestKShardPlacementAndLimits(t *testing.T) {
	env := routertest.Env(4, 10)
	rt := routertest.New(t, "k-shard:k=2,max=3,grow-every=0", env)
	h := rt.Policy.(*kShard).hrw
	homes := make([][]int, 10)
	for w, list := range rt.Placement {
		for _, a := range list {
			homes[a] = append(homes[a], w)
		}
	}
	v := routertest.View(env)
	routertest.SetRunning(v, 50, 50, 50, 50)
	for a := range int32(10) {
		first := order(h, a)[:2]
		routertest.Equal(t, homes[a], []int{min(first[0], first[1]), max(first[0], first[1])}, "placement")
		routertest.Route(rt.Policy, v, a, 9)
		if k := rt.Policy.(*kShard).shards[a].k; k != 3 {
			t.Errorf("adapter %d has k %d, want the maximum, 3", a, k)
		}
	}
	routertest.SetRunning(v, 9, 7, 8, 6)
	routertest.Equal(t, routertest.Route(rt.Policy, v, -1, 1), []int{3}, "base model goes to the least loaded")
}

func TestKShardUsesEnvLimitWhereWorkersStateNone(t *testing.T) {
	env := routertest.Env(2, 1)
	p := routertest.New(t, "k-shard", env).Policy.(*kShard)
	v := routertest.View(env)
	v.Workers[0].MaxRunning, v.Workers[1].MaxRunning = 0, 0
	routertest.SetRunning(v, 8, 8)
	p.Route(router.Request{}, v)
	if p.shards[0].k != 1 {
		t.Error("k grew at a load of 1")
	}
	routertest.SetRunning(v, 9, 9)
	p.Route(router.Request{}, v)
	if p.shards[0].k != 2 {
		t.Error("k did not grow above a load of 1")
	}
}

// Whatever the load does, k stays within its limits, moves by one, and not
// before its cooldown is over.
func TestKShardCooldowns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		env := routertest.Env(5, 1)
		p := routertest.New(t, "k-shard:k=2,max=4,grow-every=1,shrink-every=3", env).Policy.(*kShard)
		v := routertest.View(env)
		last, before := -1.0, 2
		for range 60 {
			v.Now += rapid.Float64Range(0, 2).Draw(t, "dt")
			level := rapid.IntRange(0, 2).Draw(t, "level") * 8
			routertest.SetRunning(v, level, level, level, level, level)
			p.Route(router.Request{}, v)
			k := p.shards[0].k
			if k == before {
				continue
			}
			cooldown := 1.0
			if k < before {
				cooldown = 3
			}
			if last >= 0 && v.Now-last < cooldown {
				t.Fatalf("k went from %d to %d after %g s", before, k, v.Now-last)
			}
			if k < 2 || k > 4 || k-before > 1 || before-k > 1 {
				t.Fatalf("k went from %d to %d", before, k)
			}
			last, before = v.Now, k
		}
	})
}
