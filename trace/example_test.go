package trace_test

import (
	"fmt"

	"lorasim/trace"
)

// A workload in memory, as a program makes it or reads it from its own files.
func ExampleWorkload() {
	w := &trace.Workload{
		Adapters: []trace.Adapter{{Name: "chat-de", Rank: 16}, {Name: "chat-fr", Rank: 32}},
		Requests: []trace.Request{
			{ID: 0, Arrival: 0, Adapter: 1, Prompt: 120, Output: 40},
			{ID: 1, Arrival: 0.5, Adapter: trace.BaseModel, Prompt: 900, Output: 7},
		},
	}
	for r, err := range trace.All(w.Source()) {
		if err != nil {
			fmt.Println(err)
			return
		}
		name := "base model"
		if r.Adapter != trace.BaseModel {
			name = w.Adapters[r.Adapter].Name
		}
		fmt.Printf("%.1f s: %s, %d + %d tokens\n", r.Arrival, name, r.Prompt, r.Output)
	}
	// Output:
	// 0.0 s: chat-fr, 120 + 40 tokens
	// 0.5 s: base model, 900 + 7 tokens
}

// A source makes requests one at a time; Collect puts them into memory.
func ExampleGenerate() {
	adapters, at := trace.Names(3, []int{8, 16}), 0.0
	every := func() (trace.Request, error) {
		at += 0.25
		return trace.Request{Arrival: at, Adapter: int32(at/0.25) % 3, Prompt: 100, Output: 10}, nil
	}
	w, err := trace.Collect(trace.Limit(trace.Generate(adapters, 1000, every), 4))
	fmt.Println(len(w.Requests), w.Requests[3].Arrival, w.Adapters[1], err)
	// Output:
	// 4 1 {lora1 16 0} <nil>
}
