package scenario

import (
	"fmt"
	"slices"

	"lorasim/trace"
)

// reconcile gives the requests of a file the adapters of the run, whatever the format of the file:
//
//   - The adapters of the file come first, in its order. num_adapters adds adapters without requests; it may not be
//     smaller than their number.
//   - Ranks are those of lora_ranks, else those of the file, else unknown.
func (s *Scenario) reconcile(src trace.Source) (trace.Source, error) {
	w, own := &s.Workload, src.Adapters()
	switch {
	case w.baseOnly() && len(own) > 0:
		return nil, fmt.Errorf("num_adapters is 0, but %s names %d adapters, such as %q", w.File, len(own), own[0].Name)
	case w.NumAdapters.Or(len(own)) < len(own):
		return nil, fmt.Errorf("num_adapters is %d, but %s names %d adapters", w.NumAdapters.Value, w.File, len(own))
	}
	adapters := extended(slices.Clone(own), w.NumAdapters.Value)
	if w.LoraRanks.Given() {
		for i, rank := range w.ranks().For(len(adapters), s.Seed) {
			adapters[i].Rank = rank
		}
	}
	return withAdapters{src, adapters}, nil
}

// extended returns at least n adapters: the given ones, then others with names that are not in use.
func extended(adapters []trace.Adapter, n int) []trace.Adapter {
	used := map[string]bool{}
	for _, a := range adapters {
		used[a.Name] = true
	}
	for next := len(adapters); len(adapters) < n; next++ {
		if name := fmt.Sprint("lora", next); !used[name] {
			adapters = append(adapters, trace.Adapter{Name: name})
		}
	}
	return adapters
}
