package policies

import (
	"slices"
	"testing"

	"lorasim/ilp"
	"lorasim/router"
	"lorasim/router/place"
	"lorasim/router/routertest"
)

// dLoRA takes 5 s for an execution until it has seen one.
func TestExecTime(t *testing.T) {
	p := routertest.New(t, "dlora_period_mig", routertest.HandEnv(2, 2)).Policy.(*dloraPeriodMig)
	p.Note(router.Event{Kind: router.Finished, Adapter: 1, Exec: 2})
	p.Note(router.Event{Kind: router.Finished, Adapter: 1, Exec: 4})
	p.Note(router.Event{Kind: router.Finished, Adapter: -1, Exec: 100})
	for k, want := range map[int32]float64{-1: 5, 0: 5, 1: 3} {
		routertest.Close(t, "execution time", p.execTime(k), want)
	}
}

// dLoRA's trigger by hand. 4, 20 and 2 requests: the busiest has 20 - 26/3 =
// 11.33 more than the mean. Two workers: a threshold of 16 is met at a difference
// of 32. A worker whose KV cache is full comes first. Of equals the last is
// relieved, by the first.
func TestDLoRATrigger(t *testing.T) {
	for _, c := range []struct {
		running   []int
		threshold float64
		full      int
		want      []int32
	}{
		{[]int{4, 20, 2}, 11, -1, []int32{1, 2}},
		{[]int{4, 20, 2}, 11.5, -1, nil},
		{[]int{4, 20, 2}, 18, 0, []int32{0, 1}},
		{[]int{31, 0}, 16, -1, nil},
		{[]int{32, 0}, 16, -1, []int32{0, 1}},
		{[]int{5, 5}, 0, -1, nil},
		{[]int{5, 6}, 0, -1, []int32{1, 0}},
		{[]int{9, 1, 9, 1}, 4, -1, []int32{2, 1}},
		{[]int{-1, 40, 0}, 16, -1, []int32{1, 2}},
		{[]int{-1, 40, -1}, 0, -1, nil},
	} {
		env := routertest.Env(len(c.running), 4)
		v := routertest.View(env)
		routertest.SetRunning(v, c.running...)
		for j := range v.Workers {
			v.Workers[j].KVUsed = 100
		}
		if c.full >= 0 {
			v.Workers[c.full].KVUsed = 9500
		}
		p := &dloraPeriodMig{dispatch: dispatch{newDLoRA(env, true)}, threshold: c.threshold}
		if pair, reason := p.trigger(v); !slices.Equal(pair, c.want) || (pair != nil) != (reason != "") {
			t.Errorf("%v requests, threshold %v: workers %v (%s), expected %v", c.running, c.threshold, pair, reason,
				c.want)
		}
	}
}

// dLoRA's placement after a plan for workers 0 and 2: the adapters where the
// flows take their requests, and adapter 3, which has none and is nowhere else,
// where worker 0 has room.
func TestReplaced(t *testing.T) {
	for _, c := range []struct {
		cap  int
		want [][]int32
	}{{3, [][]int32{{1, 2, 3}, nil, {0}}}, {2, [][]int32{{1, 2}, nil, {0}}}} {
		p := routertest.New(t, "dlora_period_mig", routertest.HandEnv(3, 4)).Policy.(*dloraPeriodMig)
		p.setPlacement([][]int32{{0, 1, 3}, nil, {2}})
		p.cap = []int{c.cap, 0, 1}
		g := place.NewGrouping(&ilp.Problem{Groups: []ilp.Group{{Adapter: 0}, {Adapter: 1}, {Adapter: 2, Worker: 1},
			{Adapter: 1}}})
		flows := []ilp.Flow{{Group: 0, Worker: 1, Count: 2}, {Group: 1, Worker: 0, Count: 1},
			{Group: 2, Worker: 0, Count: 3}, {Group: 3, Worker: 0, Count: 1}}
		if p.replace(g, &ilp.Solution{Flows: flows}, []int32{0, 2}); !slices.EqualFunc(p.held, c.want, slices.Equal) {
			t.Errorf("room for %d: placement %v, expected %v", c.cap, p.held, c.want)
		}
	}
}
