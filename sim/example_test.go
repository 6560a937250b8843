package sim_test

import (
	"context"
	"fmt"

	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// Two workers of a built-in profile serve a workload. Package bench/scenario does the same from one description.
func ExampleRun() {
	worker, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		fmt.Println(err)
		return
	}
	w := &trace.Workload{Adapters: trace.Names(4, []int{16})}
	for i := range 200 {
		w.Requests = append(w.Requests, trace.Request{ID: int64(i), Arrival: float64(i) * 0.2, Adapter: int32(i % 4),
			Prompt: 300, Output: 100})
	}
	rt, err := router.New("static", router.Env{Workers: router.Alike(2, router.Spec{}), Adapters: w.Adapters, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs, first, perWorker := worker.Compile(), 0.0, [2]int{}
	stats, err := sim.Run(context.Background(), sim.Config{
		Source: w.Source(), Workers: []*profile.Costs{costs, costs}, Router: rt,
		Observer: record.Ends(func(r *record.Request) {
			perWorker[r.WorkerLast]++
			first += (r.FirstToken - r.Sent) / 200
		}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d requests in %.0f s, %v by worker\n", stats.Requests, stats.End.Seconds(), perWorker)
	fmt.Printf("mean time to first token %.0f ms\n", 1000*first)
	// Output:
	// 200 requests in 41 s, [100 100] by worker
	// mean time to first token 60 ms
}
