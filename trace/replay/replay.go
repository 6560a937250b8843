// Package replay turns the Azure Functions traces into workloads for LoRA adapters. Each adapter gets the
// invocations of a group of functions. Requests have an arrival time and an adapter; package lengths adds token
// counts. There are three kinds of replay:
//
// [Config], the default, counts the invocations of each adapter per interval. It draws requests at these rates,
// optionally scaled to a total rate, with gaps of a chosen distribution.
//
//	c := replay.Default()
//	c.Path = "traces/"
//	c.TotalRate = 4
//	src, traffic, err := c.Replay(ctx, trace.Names(32, nil))
//
// [DLoRA] uses the algorithm of dLoRA's workload generator (OSDI'24). It yields the same requests for the same
// parameters, so published runs can be repeated.
//
// [Vanilla] keeps the times of the invocations.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// Traffic is the traffic of a window of a trace, by adapter.
type Traffic struct {
	// Functions holds the functions in the order in which they were assigned to adapters; nil if the histogram
	// did not come from a trace.
	Functions []azure.Function
	// AdapterOf holds the adapter of each of the Functions.
	AdapterOf []int32
	// Histogram holds the invocations by adapter and interval.
	Histogram [][]int64
	// SkippedRows is the number of malformed rows that were skipped.
	SkippedRows int64
}

// A Strategy is a rule that assigns functions to adapters.
type Strategy string

// The strategies. All of them take the functions in lexicographic order or, with Mapping.Sort, by descending
// traffic.
const (
	Stride     Strategy = "stride"      // blocks of Mapping.Stride functions to the adapters in turn
	RoundRobin Strategy = "round-robin" // one function to each adapter in turn
	Stripe     Strategy = "stripe"      // one block of consecutive functions to each adapter
)

// A Mapping assigns functions to adapters.
type Mapping struct {
	Strategy Strategy
	Stride   int  // functions per block; Stride only
	Sort     bool // sort functions by descending traffic, ties in lexicographic order; false: lexicographic order
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
		return nil, fmt.Errorf("the window has %d functions for %d adapters, expected at least one for each",
			len(order), adapters)
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
func (m Mapping) read(ctx context.Context, path string, q azure.Query, o azure.Options, adapters int,
	order func(*azure.Histogram) []int) (*Traffic, error) {
	h, err := azure.ReadHistogram(ctx, path, q, o)
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

// checkHistogram checks a histogram of adapters by intervals given by a caller.
func checkHistogram(counts [][]int64, adapters int) error {
	if adapters < 1 {
		return errors.New("no adapters, expected at least one")
	}
	if len(counts) != adapters {
		return fmt.Errorf("the histogram has %d rows, expected %d, one per adapter", len(counts), adapters)
	}
	for k, row := range counts {
		if len(row) == 0 || len(row) != len(counts[0]) {
			return fmt.Errorf("row %d of the histogram has %d intervals, expected %d as in row 0, at least 1", k,
				len(row), len(counts[0]))
		}
		for i, n := range row {
			if n < 0 {
				return fmt.Errorf("adapter %d has %d invocations in interval %d, expected >= 0", k, n, i)
			}
		}
	}
	return nil
}

// Vanilla replays the invocations of azure_v2 that start within a window, at their start times. It reads the trace
// twice: once to assign its functions to the adapters, as Config does, then row by row as requests are read.
// Read.Progress is called in both passes.
type Vanilla struct {
	Path    string // file or folder
	Window  azure.Window
	Mapping Mapping
	Read    azure.Options
}

// reorderWindow is the number of rows held back to restore the order of start
// times. The published trace is in start order already.
const reorderWindow = 1 << 16

// A VanillaSource yields the requests of a Vanilla replay. Close closes the trace.
type VanillaSource struct {
	trace.Source
	io.Closer
}

// Replay returns the replay of the trace for the adapters, and the traffic of the window. The caller should close
// the source if it does not read it to its end.
func (v Vanilla) Replay(ctx context.Context, adapters []trace.Adapter) (*VanillaSource, *Traffic, error) {
	q := azure.Query{Format: azure.V2, Window: v.Window, Interval: v.Window.Minutes()}
	t, err := v.Mapping.read(ctx, v.Path, q, v.Read, len(adapters), v.Mapping.order)
	if err != nil {
		return nil, nil, fmt.Errorf("vanilla replay of %s: %w", v.Path, err)
	}
	rows, err := azure.OpenInvocations(ctx, v.Path, v.Read)
	if err != nil {
		return nil, nil, err
	}
	s := &vanillaRows{Vanilla: v, rows: rows, adapterOf: make(map[azure.Function]int32, len(t.Functions))}
	for i, f := range t.Functions {
		s.adapterOf[f] = t.AdapterOf[i]
	}
	return &VanillaSource{trace.Generate(adapters, -1, s.next), rows}, t, nil
}

type vanillaRows struct {
	Vanilla
	rows      *azure.Invocations
	adapterOf map[azure.Function]int32
	byIndex   []int32 // adapter by index of function in rows; -1: none

	done  bool          // rows has ended
	queue renewal.Queue // rows held back
	taken int64
	last  float64 // start of the last row given out, s
}

func (s *vanillaRows) next() (trace.Request, error) {
	for !s.done && len(s.queue) < reorderWindow {
		if err := s.read(); err != nil {
			return trace.Request{}, err
		}
	}
	if len(s.queue) == 0 {
		return trace.Request{}, io.EOF
	}
	e := s.queue[0]
	s.queue.Pop()
	s.last = e.At
	from, _ := s.Window.Seconds()
	return trace.Request{Arrival: e.At - from, Adapter: e.Item}, nil
}

// read takes in one row, if it is in the window.
func (s *vanillaRows) read() error {
	row, err := s.rows.Next()
	if errors.Is(err, io.EOF) {
		s.done = true
		return s.rows.Close()
	}
	if err != nil {
		return err
	}
	from, to := s.Window.Seconds()
	at := row.Start()
	if at < from || at >= to {
		return nil
	}
	if at < s.last {
		return fmt.Errorf(
			"%s: the invocation starts at %v s, more than %[4]d rows after one that starts at %[3]v s: expected rows in order of their start",
			s.rows.Where(), at, s.last, reorderWindow)
	}
	for i := len(s.byIndex); i <= int(row.Function); i++ {
		k, ok := s.adapterOf[s.rows.Functions()[i]]
		if !ok {
			k = -1 // no traffic in the window
		}
		s.byIndex = append(s.byIndex, k)
	}
	adapter := s.byIndex[row.Function]
	if adapter < 0 {
		return fmt.Errorf("%s: the function was not in the file at the first reading: the file has changed",
			s.rows.Where())
	}
	s.queue.Push(renewal.Event{At: at, Seq: s.taken, Item: adapter})
	s.taken++
	return nil
}
