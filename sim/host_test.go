package sim

import (
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// Three adapters share host memory for two. While requests need all of them, all
// stay; the first that nobody needs goes, out of its slot too. Nobody needing
// any, the least recently used one went.
func TestHostMemoryLimit(t *testing.T) {
	p := plainProfile()
	p.Engine.MaxLorasPerBatch, p.Engine.MaxLoadedLoras = 2, 2
	for _, c := range []struct {
		name  string
		reqs  []trace.Request
		gone  int
		count int64 // evictions from slots
	}{
		{"1 ends first", []trace.Request{
			{ID: 0, Adapter: 0, Prompt: 10, Output: 90}, {ID: 1, Adapter: 1, Prompt: 10, Output: 20},
			{ID: 2, Arrival: 0.001, Adapter: 2, Prompt: 10, Output: 5},
		}, 1, 1},
		{"0 ends first", []trace.Request{
			{ID: 0, Adapter: 0, Prompt: 10, Output: 20}, {ID: 1, Adapter: 1, Prompt: 10, Output: 90},
			{ID: 2, Arrival: 0.001, Adapter: 2, Prompt: 10, Output: 5},
		}, 0, 1},
		{"both idle", []trace.Request{
			{ID: 0, Adapter: 1, Prompt: 10, Output: 5}, {ID: 1, Arrival: 5, Adapter: 0, Prompt: 10, Output: 5},
			{ID: 2, Arrival: 10, Adapter: 2, Prompt: 10, Output: 5},
		}, 1, 1},
	} {
		wl := &trace.Workload{Adapters: trace.Names(3, []int{8}), Requests: c.reqs}
		s, err := newSim(Config{Source: wl.Source(), Router: &router.Router{Policy: byID{n: 1}}, Observer: newLedger(),
			Home: router.Disk, Workers: []*profile.Costs{p.Compile()}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := &s.workers[0]
		if st, hosts := w.stats(0), w.engine.LoRA.Hosts(); hosts != 2 || st.Evictions != c.count || st.Requests != 3 {
			t.Errorf("%s: %d adapters in host memory, %d evictions, %d requests; expected 2, %d, 3", c.name, hosts,
				st.Evictions, st.Requests, c.count)
		}
		for a, st := range w.v.Adapters {
			if in := st.Tier >= router.Host; in != (a != c.gone) {
				t.Errorf("%s: adapter %d in memory: %v", c.name, a, in)
			}
		}
	}
}
