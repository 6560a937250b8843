package ilp_test

import (
	"context"
	"fmt"

	"lorasim/ilp"
)

// Ten requests of two adapters are on worker 0, worker 1 is idle.
func ExampleEmbedded() {
	p := &ilp.Problem{
		Adapters: 2,
		Workers:  []ilp.Worker{{Slots: 2, Resident: []int32{0, 1}}, {Slots: 2}},
		Groups: []ilp.Group{
			{Adapter: 0, Worker: 0, Count: 6, Work: 1, Move: 0.1},
			{Adapter: 1, Worker: 0, Count: 4, Work: 1, Move: 0.1},
		},
		Load: []float64{0.2, 0.2, 0.2, 0.2}, // s for an adapter on a worker that does not hold it
	}
	s, err := ilp.Embedded{}.Solve(context.Background(), p, ilp.Budget{})
	if err == nil {
		err = ilp.Verify(p, s)
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s: %.1f s instead of 10 s\n", s.Status, s.Objective)
	for _, f := range s.Flows {
		fmt.Printf("%d requests of adapter %d on worker %d\n", f.Count, p.Groups[f.Group].Adapter, f.Worker)
	}
	// Output:
	// optimal: 5.7 s instead of 10 s
	// 1 requests of adapter 0 on worker 0
	// 5 requests of adapter 0 on worker 1
	// 4 requests of adapter 1 on worker 0
}
