// Package remedy finds the one change of a simulated scenario that lowers its latency most, by simulating each.
//
//	found, err := remedy.Find(ctx, &sc, res)
//	fmt.Println(found)
package remedy

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/internal/parallel"
)

const (
	// mostRequests and mostAdapters are the size of the largest run for which changes are tried: plans for more
	// adapters take far longer than the run itself.
	mostRequests, mostAdapters = 20_000, 10_000
	// leastGain is the least gain in mean E2E latency that counts, as a share.
	leastGain = 0.03
)

// A Change is a scenario with one setting changed.
type Change struct {
	Text       string // the change in words
	key, value string
	// E2E and TTFT are the mean latencies with it, ms.
	E2E, TTFT float64
}

// A Found is the outcome of [Find].
type Found struct {
	Best      *Change // nil: no change lowers the mean E2E latency by 3 %
	Tried     []Change
	E2E, TTFT float64 // without a change, ms
}

// String describes the outcome in one sentence.
func (f *Found) String() string {
	if f.Best == nil {
		names := make([]string, len(f.Tried))
		for i := range f.Tried {
			names[i] = f.Tried[i].Text
		}
		return "no gain of 3 % in the mean E2E by: " + strings.Join(names, "; ")
	}
	text := fmt.Sprintf("%s: mean E2E %+.0f %%", f.Best.Text, 100*(f.Best.E2E/f.E2E-1))
	if f.TTFT > 0 {
		text += fmt.Sprintf(", mean TTFT %+.0f %%", 100*(f.Best.TTFT/f.TTFT-1))
	}
	if len(f.Tried) > 1 {
		text += fmt.Sprintf(" (the best of %d changes, each simulated)", len(f.Tried))
	}
	return text
}

// Find simulates the scenario of a run with one change each: one worker more, twice the adapter slots, twice the places
// in host memory, and the default policy. The runs have the same requests. It returns nil if the run is too long, or if
// no change applies.
func Find(ctx context.Context, sc *scenario.Scenario, res *result.Result) (*Found, error) {
	f := &Found{}
	var known bool
	if f.E2E, known = res.Metrics.Get(result.MeanE2E); !known || !(f.E2E > 0) {
		return nil, nil
	}
	f.TTFT, _ = res.Metrics.Get(result.MeanTTFT)
	w := res.Scenario.Workload
	if w == nil || w.Requests > mostRequests || res.Scenario.Adapters > mostAdapters || res.Scenario.Elastic != "" {
		return nil, nil
	}
	changes := Changes(res)
	worked := make([]bool, len(changes))
	err := parallel.Do(ctx, len(changes), func(i int) error {
		changed, err := changes[i].Apply(sc)
		if err != nil {
			return nil // the scenario does not allow the change
		}
		r, err := changed.Simulate(ctx, scenario.RunOptions{})
		if err != nil {
			return ctx.Err()
		}
		changes[i].E2E, worked[i] = r.Metrics.Get(result.MeanE2E)
		changes[i].TTFT, _ = r.Metrics.Get(result.MeanTTFT)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	for i, c := range changes {
		if !worked[i] {
			continue
		}
		if f.Tried = append(f.Tried, c); c.E2E <= f.E2E*(1-leastGain) && (f.Best == nil || c.E2E < f.Best.E2E) {
			f.Best = &changes[i]
		}
	}
	if f.Tried == nil {
		return nil, nil
	}
	return f, nil
}

// Set returns the change of one setting.
func Set(text, key, value string) Change { return Change{Text: text, key: key, value: value} }

// Key is the key of the setting that changes.
func (c *Change) Key() string { return c.key }

// Apply returns a copy of a scenario with the change.
func (c *Change) Apply(sc *scenario.Scenario) (*scenario.Scenario, error) {
	changed := *sc
	return &changed, changed.Set(c.key, c.value)
}

// Changes lists the changes that apply to a run: those of workers, slots and host memory, and the default policy.
func Changes(res *result.Result) (list []Change) {
	s := &res.Scenario
	workers := 0
	for i := range s.Profiles {
		workers += s.Profiles[i].Workers
	}
	if len(s.Profiles) != 1 || workers == 0 {
		return nil
	}
	list = append(list, Change{Text: "1 worker more", key: "num_workers", value: strconv.Itoa(workers + 1)})
	if slots := s.Profiles[0].AdapterSlots; slots > 0 && slots < s.Adapters {
		list = append(list, Change{Text: fmt.Sprintf("%d adapter slots instead of %d", 2*slots, slots),
			key: "max_loras_per_batch", value: strconv.Itoa(2 * slots)})
	}
	for _, v := range s.Settings {
		name := v.Key[strings.LastIndexByte(v.Key, '.')+1:]
		if n, err := strconv.Atoi(v.Value); err == nil && name == "max_loaded_loras" && n > 0 && n < s.Adapters {
			list = append(list, Change{Text: fmt.Sprintf("%d adapters in host memory instead of %d", 2*n, n),
				key: "max_loaded_loras", value: strconv.Itoa(2 * n)})
		}
	}
	if policy := defaultPolicy(); s.Policy != policy {
		list = append(list, Change{Text: "policy " + policy, key: "policy", value: policy})
	}
	return list
}

func defaultPolicy() string {
	sc := scenario.Default()
	f, err := scenario.Find("policy")
	if err != nil {
		panic(err) // there is such a setting
	}
	return f.Get(&sc)
}
