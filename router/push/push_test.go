package push

import (
	"slices"
	"strings"
	"testing"
)

// cluster is a cluster whose workers all hold all adapters, unless listed in bare, and have room, unless in full.
type cluster struct {
	bare, full []int32
	load       []int
}

func (c *cluster) Holds(w, _ int32) bool { return !slices.Contains(c.bare, w) }
func (c *cluster) Room(w, _ int32) bool  { return !slices.Contains(c.full, w) }
func (c *cluster) Forget(int32, int32)   {}
func (c *cluster) Load(w int32) int      { return c.load[w] }

// next lists the workers of the loads that can begin.
func next(t *testing.T, r *Rollout, c Cluster, now float64) (loads []Load) {
	t.Helper()
	for l, ok := r.Next(c, now); ok; l, ok = r.Next(c, now) {
		loads = append(loads, l)
	}
	return loads
}

// Workers load a version one after the other, the idlest first, and those that do not hold the adapter need no load.
func TestRollout(t *testing.T) {
	o, err := Parse("order=idle")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{bare: []int32{3}, load: []int{5, 1, 3, 0}}
	r := NewRollout(o, 0)
	r.Add(0, 4)
	r.Publish(0, 10)
	needs := r.Needs(0)
	for i, w := range []int32{1, 2, 0} {
		loads := next(t, r, c, 10)
		if want := []Load{{w, 0, 2}}; !slices.Equal(loads, want) {
			t.Fatalf("loads %v, expected %v", loads, want)
		}
		if r.Admits(w, 0, needs) {
			t.Errorf("worker %d admits a request before it has the version", w)
		}
		if i == 0 { // a load that fails is repeated
			r.Ended(loads[0], 10, false)
			loads = next(t, r, c, 10)
		}
		r.Ended(loads[0], 11+float64(i), true)
		if !r.Admits(w, 0, needs) || r.Version(w, 0) != 2 {
			t.Errorf("worker %d has version %d after its load", w, r.Version(w, 0))
		}
	}
	if more := next(t, r, c, 14); len(more) > 0 || r.Version(3, 0) != 2 {
		t.Errorf("loads %v, version %d of the worker that does not hold the adapter", more, r.Version(3, 0))
	}
	if s := r.Stats(); s != (Stats{Published: 1, Loads: 3, Failed: 1, Complete: 1, Time: 3}) {
		t.Errorf("%+v", s)
	}
	if age := r.Age(0, 2, 25); age != 15 {
		t.Errorf("age %v, expected 15", age)
	}
}

// New versions that come faster than loads reach all workers and all adapters: none waits for ever.
func TestRolloutIsFair(t *testing.T) {
	c := &cluster{load: make([]int, 3)}
	r := NewRollout(Default(), -1)
	r.Add(0, 3)
	r.Add(1, 3)
	for now := range 60 {
		r.Publish(0, float64(now))
		r.Publish(1, float64(now))
		for _, l := range next(t, r, c, float64(now)) {
			r.Ended(l, float64(now)+0.9, true)
		}
	}
	for a := range int32(2) {
		for w := range int32(3) {
			if v := r.Version(w, a); v < 50 {
				t.Errorf("worker %d has version %d of adapter %d, of %d", w, v, a, r.Newest(a))
			}
		}
	}
}

// A worker without room waits, and one that restarts serves the newest version.
func TestRoomAndRestart(t *testing.T) {
	c := &cluster{full: []int32{0}, load: make([]int, 2)}
	o := Default()
	o.Workers = 0
	r := NewRollout(o, -1)
	r.Add(0, 2)
	r.Publish(0, 1)
	loads := next(t, r, c, 1)
	if want := []Load{{1, 0, 2}}; !slices.Equal(loads, want) {
		t.Fatalf("loads %v, expected %v", loads, want)
	}
	r.Restarted(1)
	r.Ended(loads[0], 2, true) // lost with the worker's memory
	if r.Version(1, 0) != 2 || r.Version(0, 0) != 1 || r.Stats().Loads != 0 {
		t.Errorf("versions %d and %d, %+v", r.Version(0, 0), r.Version(1, 0), r.Stats())
	}
	c.full = nil
	if loads := next(t, r, c, 3); !slices.Equal(loads, []Load{{0, 0, 2}}) {
		t.Errorf("loads %v once there is room", loads)
	}
}

func TestSchedule(t *testing.T) {
	s := Schedule{Interval: 10, Adapters: []int32{4, 7}}
	for i, want := range []struct {
		a  int32
		at float64
	}{{4, 5}, {7, 10}, {4, 15}, {7, 20}} {
		if a, at := s.Next(); a != want.a || at != want.at {
			t.Errorf("%d: adapter %d at %v, expected %d at %v", i, a, at, want.a, want.at)
		}
	}
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"loads=demand,workers=2":            "workers is for loads=holders",
		"loads=demand,requests=cut-over":    "needs loads=holders",
		"versions=1":                        "versions",
		"order=first":                       "order",
		"workers=2,order=idle,adapters=a+b": "",
	} {
		_, err := Parse(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", text, err, want)
		}
	}
	o, _ := Parse("adapters=b+a")
	if list, err := o.Select([]string{"a", "b", "c"}); err != nil || !slices.Equal(list, []int32{1, 0}) {
		t.Errorf("%v, %v", list, err)
	}
	for _, text := range []string{"adapters=d", "adapters=a+a"} {
		o, _ := Parse(text)
		if _, err := o.Select([]string{"a"}); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("workers=2,order=idle")
	f.Add("loads=demand,adapters=a+b")
	f.Fuzz(func(t *testing.T, text string) {
		if o, err := Parse(text); err == nil && (o.Versions < 2 || o.Workers < 0) {
			t.Errorf("%q gives %+v", text, o)
		}
	})
}
