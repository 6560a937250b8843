package policies

import (
	"context"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router/routertest"
)

// Six slots; demand 5, 3, 0 and 1 of 9: 3.33, 2, 0 and 0.67 of them.
func TestResizeByHand(t *testing.T) {
	p := routertest.New(t, "min-cost-flow:cooldown=10", routertest.HandEnv(3, 4)).Policy.(*minCost)
	for k, rate := range []float64{5, 3, 0, 1} {
		p.Demand()[k].Rate = rate
	}
	resize := func(now float64, up int, slots float64, want ...int) {
		t.Helper()
		p.resize(now, up, slots)
		if !slices.Equal(p.replicas, want) {
			t.Errorf("replicas at %v are %v, expected %v", now, p.replicas, want)
		}
	}
	resize(1, 3, 6, 3, 2, 1, 1)
	p.Demand()[0].Rate, p.Demand()[3].Rate = 1, 5
	resize(10.9, 3, 6, 3, 2, 1, 3) // what changed at 1 stays for 10 s
	resize(11, 3, 6, 1, 2, 1, 3)   // 0.67, 2, 0, 3.33
	resize(30, 2, 6, 1, 2, 1, 2)   // two workers are up
	p.Demand()[1].Rate, p.Demand()[0].Rate = 0, 2
	resize(50, 3, 4, 1, 1, 1, 3) // 1.14, 0, 0, 2.86
	for k := range p.Demand() {
		p.Demand()[k].Rate = 0
	}
	resize(90, 1, 6, 1, 1, 1, 3) // nothing is known: as it was
}

// A flow that takes a minute stops with the run, and nothing moves.
func TestFlowStops(t *testing.T) {
	env := routertest.Env(128, 1024)
	ctx, stop := context.WithCancel(t.Context())
	env.Context = ctx
	stop()
	p := routertest.New(t, "min-cost-flow", env).Policy.(*minCost)
	before := p.Held()
	for k := range p.replicas {
		p.replicas[k] = 1 + k%3
	}
	if got := p.target(slices.Repeat([]bool{true}, 128)); !reflect.DeepEqual(got, before) {
		t.Error("the placement has changed")
	}
}

// transport finds the cheapest assignment: compared with trying all.
func TestTransportIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, m := rapid.IntRange(1, 3).Draw(t, "sources"), rapid.IntRange(1, 3).Draw(t, "sinks")
		solve := rapid.SampledFrom([]func(supply, room []int, cost [][]float64) [][]int32{inOrder,
			func(supply, room []int, cost [][]float64) [][]int32 {
				out, err := byPrices(t.Context(), supply, room, cost)
				if err != nil {
					t.Fatal(err)
				}
				return out
			}}).Draw(t, "way")
		supply, room := make([]int, n), make([]int, m)
		cost := make([][]float64, n)
		for k := range supply {
			supply[k] = rapid.IntRange(0, m).Draw(t, "supply")
			cost[k] = make([]float64, m)
			for j := range cost[k] {
				cost[k][j] = float64(rapid.IntRange(-5, 9).Draw(t, "cost"))
			}
		}
		for j := range room {
			room[j] = rapid.IntRange(0, n).Draw(t, "room")
		}
		units, total := 0, 0.0
		left := slices.Clone(room)
		for k, js := range solve(supply, room, cost) {
			if len(js) > supply[k] {
				t.Fatalf("source %d sends %d units of %d", k, len(js), supply[k])
			}
			for _, j := range js {
				units++
				total += cost[k][j]
				if left[j]--; left[j] < 0 {
					t.Fatalf("too much to sink %d", j)
				}
			}
		}
		wantUnits, want := cheapest(supply, room, cost)
		if units != wantUnits || math.Abs(total-want) > 1e-6 {
			t.Fatalf("%d units for %v, the best is %d for %v", units, total, wantUnits, want)
		}
	})
}

// cheapest tries every set of edges.
func cheapest(supply, room []int, cost [][]float64) (units int, total float64) {
	n, m := len(supply), len(room)
	total = math.Inf(1)
	units = -1
	for set := range uint(1) << (n * m) {
		used, sum, ok := make([]int, m), 0.0, true
		for k := range n {
			row := set >> (k * m) & (1<<m - 1)
			ok = ok && bits.OnesCount(row) <= supply[k]
			for j := range m {
				if row>>j&1 == 1 {
					used[j]++
					sum += cost[k][j]
				}
			}
		}
		for j := range used {
			ok = ok && used[j] <= room[j]
		}
		if c := bits.OnesCount(set); ok && (c > units || c == units && sum < total) {
			units, total = c, sum
		}
	}
	return units, total
}

// Replicas follow the slots, wherever the worker with most of them stands.
func TestMinCostMindsSlots(t *testing.T) {
	env := routertest.Unequal(6)
	for many := range 2 {
		held := routertest.New(t, "min-cost-flow", env).Policy.(*minCost).Held()
		if len(held[many]) != 4 || len(held[1-many]) != 2 {
			t.Errorf("%d and %d adapters on workers of 4 and 2 slots", len(held[many]), len(held[1-many]))
		}
		env.Workers = routertest.Mirror(env.Workers)
	}
}
