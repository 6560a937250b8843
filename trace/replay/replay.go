// Package replay turns the Azure Functions traces into workloads for LoRA
// adapters: each adapter stands for a group of functions, and is asked for as
// often as they were invoked. Three ways lead there.
//
// [Config], the default, counts the invocations of each adapter per interval
// and draws requests at these rates, scaled to a total rate if wanted, with
// gaps of a chosen distribution.
//
//	c := replay.Default()
//	c.Path = "traces/"
//	c.TotalRate = 4
//	src, traffic, err := c.Replay(trace.Names(32, nil))
//
// [DLoRA] does the same the way the workload generator of dLoRA (OSDI'24)
// does, with the same sequence of requests for the same parameters, so that
// published runs can be repeated.
//
// [Vanilla] keeps the times of the invocations as they were.
//
// Requests have a time and an adapter; their lengths come from elsewhere.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"lorasim/trace/azure"
)

// Traffic is what a window of a trace asks of the adapters.
type Traffic struct {
	// Functions are the functions in the order in which they were given to the
	// adapters; nil if the histogram did not come from a trace.
	Functions []azure.Function
	// AdapterOf holds the adapter of each of the Functions.
	AdapterOf []int32
	// Histogram holds the invocations by adapter and interval.
	Histogram [][]int64
	// SkippedRows counts the malformed rows that were passed over.
	SkippedRows int64
}

// Strategy says how functions are given to adapters.
type Strategy string

// The strategies. All of them go through the functions in their order, which is
// lexicographic, or by descending traffic if that is asked for.
const (
	Stride     Strategy = "stride"      // blocks of so many functions to the adapters in turn, again and again
	RoundRobin Strategy = "round-robin" // one function to each adapter in turn
	Stripe     Strategy = "stripe"      // one block of consecutive functions to each adapter
)

// Mapping gives functions to adapters.
type Mapping struct {
	Strategy Strategy
	Stride   int  // functions per block; Stride only
	Sort     bool // by descending traffic; ties and the rest in lexicographic order
}

// Check says what is wrong with m, or nil.
func (m Mapping) Check() error {
	switch m.Strategy {
	case Stride:
		if m.Stride < 1 {
			return fmt.Errorf("map stride is %d functions, expected >= 1", m.Stride)
		}
	case RoundRobin, Stripe:
	default:
		return fmt.Errorf("unknown map strategy %q: expected %s, %s or %s", m.Strategy, Stride, RoundRobin, Stripe)
	}
	return nil
}

// adapter returns the adapter of function i of n.
func (m Mapping) adapter(i, n, adapters int) int32 {
	switch m.Strategy {
	case Stride:
		return int32(i / m.Stride % adapters)
	case RoundRobin:
		return int32(i % adapters)
	}
	return int32(i * adapters / n)
}

// apply gives the functions of h with these indices, in this order, to the
// adapters.
func (m Mapping) apply(h *azure.Histogram, order []int, adapters, intervals int) (*Traffic, error) {
	if len(order) < adapters {
		return nil, fmt.Errorf("the window has %d functions for %d adapters, expected at least one for each", len(order), adapters)
	}
	t := &Traffic{SkippedRows: h.Skipped, Histogram: make([][]int64, adapters)}
	for k := range t.Histogram {
		t.Histogram[k] = make([]int64, intervals)
	}
	for i, f := range order {
		k := m.adapter(i, len(order), adapters)
		t.Functions = append(t.Functions, h.Functions[f])
		t.AdapterOf = append(t.AdapterOf, k)
		for j, n := range h.Counts[f] {
			t.Histogram[k][j] += n
		}
	}
	return t, nil
}

// read counts the invocations of a trace and gives its functions, in an order, to
// the adapters.
func (m Mapping) read(path string, q azure.Query, o azure.Options, adapters int, order func(*azure.Histogram) []int) (*Traffic, error) {
	if adapters < 1 {
		return nil, errNoAdapters
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	h, err := azure.ReadHistogram(path, q, o)
	if err != nil {
		return nil, err
	}
	return m.apply(h, order(h), adapters, q.Window.Intervals(q.Interval))
}

// order returns the functions of h with traffic in the order in which adapters
// get them.
func (m Mapping) order(h *azure.Histogram) []int {
	fs := active(h)
	lexicographic(h, fs)
	if m.Sort {
		slices.SortStableFunc(fs, func(a, b int) int { return cmp.Compare(total(h.Counts[b]), total(h.Counts[a])) })
	}
	return fs
}

// total returns the invocations of a function or adapter.
func total(counts []int64) (n int64) {
	for _, c := range counts {
		n += c
	}
	return n
}

// sumInterval returns the invocations of all adapters in interval i.
func sumInterval(counts [][]int64, i int) (n int64) {
	for _, row := range counts {
		n += row[i]
	}
	return n
}

// active returns the functions with traffic, in the order of h.
func active(h *azure.Histogram) (fs []int) {
	for f, counts := range h.Counts {
		if total(counts) > 0 {
			fs = append(fs, f)
		}
	}
	return fs
}

// lexicographic sorts functions of h by owner, application and name.
func lexicographic(h *azure.Histogram, fs []int) {
	slices.SortFunc(fs, func(a, b int) int { return h.Functions[a].Compare(h.Functions[b]) })
}

var errNoAdapters = errors.New("no adapters, expected at least one")

// checkHistogram checks a histogram of adapters by intervals given by a caller.
func checkHistogram(counts [][]int64, adapters int) error {
	if adapters < 1 {
		return errNoAdapters
	}
	if len(counts) != adapters {
		return fmt.Errorf("the histogram has %d rows, expected %d, one per adapter", len(counts), adapters)
	}
	for k, row := range counts {
		if len(row) == 0 || len(row) != len(counts[0]) {
			return fmt.Errorf("row %d of the histogram has %d intervals, expected at least one and as many as row 0 has (%d)", k, len(row), len(counts[0]))
		}
		for i, n := range row {
			if n < 0 {
				return fmt.Errorf("adapter %d has %d invocations in interval %d, expected >= 0", k, n, i)
			}
		}
	}
	return nil
}
