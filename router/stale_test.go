package router

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestStaleRefreshes(t *testing.T) {
	env := testEnv(2, 2)
	live := testView(env)
	live.Workers[1].Age = 0.25 // its own signals are late as well
	s := NewStale(1)
	for _, c := range []struct {
		now     float64
		running int // of worker 0 now
		seen    int
		age     float64 // of the copy
	}{
		{0, 1, 1, 0},
		{0.5, 2, 1, 0.5},
		{0.75, 3, 1, 0.75},
		{1, 4, 4, 0},
		{1.75, 5, 4, 0.75},
		{9, 6, 6, 0},
		{9.5, 7, 6, 0.5},
		{3, 8, 8, 0}, // another run begins
	} {
		live.Now = c.now
		live.Workers[0].Running = c.running
		live.Workers[0].Adapters[1].Running = int32(c.running)
		v := s.Update(live)
		if v.Now != c.now || v.Workers[0].Running != c.seen || v.Workers[0].Adapters[1].Running != int32(c.seen) {
			t.Errorf("at %g: seen %d at %g, want %d", c.now, v.Workers[0].Running, v.Now, c.seen)
		}
		if v.Workers[0].Age != c.age || v.Workers[1].Age != 0.25+c.age {
			t.Errorf("at %g: ages %g and %g, want %g and %g", c.now, v.Workers[0].Age, v.Workers[1].Age, c.age, 0.25+c.age)
		}
	}
}

func TestStalePassesThrough(t *testing.T) {
	live := testView(testEnv(2, 2))
	for _, period := range []float64{0, -1, math.NaN()} {
		if NewStale(period).Update(live) != live {
			t.Errorf("period %g: expected the live view", period)
		}
	}
}

// The copy is what the live view was at the last refresh, whatever happened
// since, and is never older than the period.
func TestStaleIsAnOldView(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const period = 2.0
		env := testEnv(3, 2)
		live := testView(env)
		s := NewStale(period)
		var old *View
		for range 20 {
			live.Now += rapid.Float64Range(0, 1.5).Draw(t, "dt")
			drawWorkers(t, live)
			before := cloneView(live)
			v := s.Update(live)
			if d := cmp.Diff(before, live); d != "" {
				t.Fatalf("live view changed: %s", d)
			}
			if old == nil || live.Now-old.Now >= period {
				old = before
			}
			want := cloneView(old)
			want.Now = live.Now
			for i := range want.Workers {
				want.Workers[i].Age += live.Now - old.Now
				if v.Workers[i].Age-old.Workers[i].Age >= period {
					t.Fatalf("copy is %g s old", v.Workers[i].Age-old.Workers[i].Age)
				}
			}
			if d := cmp.Diff(want, v); d != "" {
				t.Fatalf("copy differs from the old view: %s", d)
			}
		}
	})
}

func TestStaleFollowsTheNumberOfWorkers(t *testing.T) {
	s := NewStale(10)
	s.Update(testView(testEnv(2, 2)))
	if v := s.Update(testView(testEnv(4, 3))); len(v.Workers) != 4 || len(v.Workers[3].Adapters) != 3 {
		t.Errorf("%d workers", len(v.Workers))
	}
}

func TestStaleDoesNotAllocate(t *testing.T) {
	live := testView(testEnv(16, 64))
	s := NewStale(1)
	s.Update(live)
	if n := testing.AllocsPerRun(100, func() {
		live.Now += 0.4
		s.Update(live)
	}); n != 0 {
		t.Errorf("%g allocations per update", n)
	}
}

func cloneView(v *View) *View {
	c := *v
	c.Workers = append([]Worker(nil), v.Workers...)
	for i := range c.Workers {
		c.Workers[i].Adapters = append([]AdapterState(nil), c.Workers[i].Adapters...)
	}
	return &c
}
