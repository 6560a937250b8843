package info

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/trace"
)

// naiveHits counts the hits of one cache by searching a list.
func naiveHits(refs []int32, slots int) int64 {
	var held []int32 // used last first
	hits := int64(0)
	for _, a := range refs {
		if i := slices.Index(held, a); i >= 0 {
			hits++
			held = slices.Delete(held, i, i+1)
		} else if len(held) == slots {
			held = held[:slots-1]
		}
		held = slices.Insert(held, 0, a)
	}
	return hits
}

func TestLRUEqualsLists(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		adapters := rapid.SampledFrom([]int{1, 2, 3, 5, 20, 1100}).Draw(t, "adapters")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		refs := make([]int32, rapid.IntRange(1, 3000).Draw(t, "refs"))
		l := newLRU(adapters)
		for i := range refs {
			refs[i] = int32(float64(adapters) * math.Pow(rng.Float64(), 3))
			l.add(refs[i])
		}
		for k, got := range l.rates() {
			want := float64(naiveHits(refs, 1<<k)) / float64(len(refs))
			if float64(got) != want {
				t.Fatalf("%d slots: hit rate %v, expected %v", 1<<k, got, want)
			}
		}
	})
}

// TestCurve: two adapters in two runs of 10, and a base model that needs no slot.
func TestCurve(t *testing.T) {
	w := &trace.Workload{Adapters: trace.Names(5, nil)}
	for i := range 30 {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: float64(i), Adapter: int32(i/10) - 1})
	}
	s := summarize(t, w, 0)
	if len(s.LRU) != 2 || s.LRU[0].Slots != 1 || s.LRU[1].Slots != 2 {
		t.Fatalf("the curve is %+v, expected 1 and 2 slots", s.LRU)
	}
	near(t, "hit rate of 1 slot", s.LRU[0].Hits, 0.9, 0)
	near(t, "hit rate of 2 slots", s.LRU[1].Hits, 0.9, 0)
	near(t, "hit rate of 2 slots in random order", s.LRU[1].Shuffled, 0.9, 0)
	// 20 references in random order: 19 pairs of neighbours, each equal with probability 9/19
	near(t, "hit rate of 1 slot in random order", s.LRU[0].Shuffled, 0.45, 0.2)

	s = summarize(t, &trace.Workload{Requests: []trace.Request{{Adapter: trace.BaseModel}}}, 0)
	if s.LRU == nil || len(s.LRU) != 0 {
		t.Errorf("without adapters the curve is %#v, expected none", s.LRU)
	}
}

func BenchmarkLRU(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	refs := make([]int32, 1<<16)
	for i := range refs {
		refs[i] = int32(5000 * math.Pow(rng.Float64(), 3))
	}
	l := newLRU(5000)
	b.ReportAllocs()
	for i := range b.N {
		l.add(refs[i&(1<<16-1)])
	}
}
