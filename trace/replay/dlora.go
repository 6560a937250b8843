package replay

import (
	"fmt"
	"math"
	"slices"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
)

// DLoRA replays a window of a trace with the algorithm of the workload
// generator of dLoRA (B. Wu et al., OSDI'24), whose results depend on numpy's
// legacy generator (see package nprand) and on these peculiarities, kept here:
//
//   - The day of End is ignored: the window ends on the day of Start.
//   - azure_v2 counts invocations by the time they end.
//   - azure_v1 works for day 0 only: for later days it asks for the minute
//     columns after 1440.
//   - Functions go to adapters in lexicographic order. azure_v1 leaves out
//     those without traffic in the window, azure_v2 does not. With NeedSort
//     they go by descending traffic, without the idle ones, and the order of
//     equal ones is that of numpy's unstable sort, of the negated counts in
//     lexicographic order for azure_v2, and for azure_v1 of the counts in the
//     reversed order of the file, the result being reversed again.
//   - The requests are divided among the intervals beforehand, equally up to
//     one; each interval lasts until its share is out, and the next one begins
//     at that time, with new processes.
//   - Gaps are drawn in batches. The first batch of every process starts the
//     common generator again from seed 0, so that all adapters repeat the same
//     gaps, in units of their mean, in all intervals. Later batches go on in
//     the generator.
//   - The exponential distribution is the gamma distribution with CV 1.
type DLoRA struct {
	Trace        azure.Format
	Path         string // file or folder
	Start, End   string // "d.h.m"
	NeedSort     bool
	Requests     int     // in all, >= 1
	Distribution string  // exponential or gamma
	Interval     int     // minutes, >= 1
	TotalRate    float64 // requests/s of all adapters together
	CV           float64 // of the gaps of one adapter; gamma only
	MapStride    int     // functions per block, >= 1
	Read         azure.Options
}

// Summary is what a DLoRA replay will yield.
type Summary struct {
	Traffic
	Counts      []int   // requests per adapter
	LastArrival float64 // s
}

// Replay prepares the replay of the trace for the adapters. The summary comes
// from a first run of the generator, so that the source need not be read.
func (d DLoRA) Replay(adapters []trace.Adapter) (trace.Source, *Summary, error) {
	if err := d.check(len(adapters)); err != nil {
		return nil, nil, err
	}
	t, err := d.load(len(adapters))
	if err != nil {
		return nil, nil, fmt.Errorf("dlora replay of %s: %w", d.Path, err)
	}
	return d.start(adapters, t)
}

// ReplayHistogram does the same for known invocations by adapter and interval,
// without a trace: Trace, Path, Start, End, NeedSort and MapStride do not
// matter.
func (d DLoRA) ReplayHistogram(adapters []trace.Adapter, counts [][]int64) (trace.Source, *Summary, error) {
	if err := d.check(len(adapters)); err != nil {
		return nil, nil, err
	}
	if err := checkHistogram(counts, len(adapters)); err != nil {
		return nil, nil, err
	}
	return d.start(adapters, &Traffic{Histogram: counts})
}

// maxBatch bounds the memory for the gaps drawn in one go.
const maxBatch = 1e8

func (d DLoRA) check(adapters int) error {
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 1) }
	switch {
	case adapters < 1:
		return errNoAdapters
	case d.Distribution != "exponential" && d.Distribution != "gamma":
		return fmt.Errorf("unknown arrival distribution %q: the dlora replay knows exponential and gamma", d.Distribution)
	case d.Requests < 1:
		return fmt.Errorf("number of requests is %d, expected >= 1", d.Requests)
	case d.Interval < 1:
		return fmt.Errorf("interval is %d minutes, expected >= 1", d.Interval)
	case !positive(d.TotalRate):
		return fmt.Errorf("total rate is %v requests/s, expected > 0", d.TotalRate)
	case d.Distribution == "gamma" && !(d.CV >= renewal.MinCV && d.CV <= renewal.MaxCV):
		return fmt.Errorf("cv is %v, expected %g to %g", d.CV, renewal.MinCV, renewal.MaxCV)
	case d.TotalRate*float64(d.Interval)*1.2 > maxBatch:
		return fmt.Errorf("total rate %v requests/s times interval %d minutes is too large for the dlora replay, expected below %g", d.TotalRate, d.Interval, maxBatch/1.2)
	}
	return nil
}

// load reads the trace and gives its functions to the adapters.
func (d DLoRA) load(adapters int) (*Traffic, error) {
	mapping := Mapping{Strategy: Stride, Stride: d.MapStride}
	if err := mapping.Check(); err != nil {
		return nil, err
	}
	w, err := d.window()
	if err != nil {
		return nil, err
	}
	q := azure.Query{Format: d.Trace, Window: w, Interval: d.Interval, ByEnd: true}
	h, err := azure.ReadHistogram(d.Path, q, d.Read)
	if err != nil {
		return nil, err
	}
	return mapping.apply(h, d.order(h), adapters, w.Intervals(d.Interval))
}

func (d DLoRA) window() (azure.Window, error) {
	start, err := azure.ParseInstant(d.Start)
	if err != nil {
		return azure.Window{}, fmt.Errorf("start %w", err)
	}
	end, err := azure.ParseInstant(d.End)
	if err != nil {
		return azure.Window{}, fmt.Errorf("end %w", err)
	}
	end.Day = start.Day
	w := azure.Window{Start: start.Minutes(), End: end.Minutes()}
	if w.End <= w.Start {
		return w, fmt.Errorf("window %s to %s: the dlora replay takes the end to be on the start's day, which leaves %d minutes; use the default replay for windows across days",
			d.Start, d.End, w.Minutes())
	}
	if d.Trace == azure.V1 && start.Day > 0 {
		return w, d.laterDay(w)
	}
	return w, nil
}

// laterDay returns the error of a window of azure_v1 beyond day 0: that of its
// file, or else that of its columns.
func (d DLoRA) laterDay(w azure.Window) error {
	m, err := azure.OpenMinutes(d.Path, w, d.Read)
	if err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	return fmt.Errorf("window %v: the dlora replay of %s asks for the minute columns %d to %d, but the last one is 1440; use the default replay for days after 0",
		w, d.Trace, w.Start+1, w.End)
}

// order returns the functions of h in the order in which adapters get them.
func (d DLoRA) order(h *azure.Histogram) []int {
	var fs []int
	if d.Trace == azure.V1 || d.NeedSort {
		fs = active(h)
	} else {
		for f := range h.Functions {
			fs = append(fs, f)
		}
	}
	if d.Trace == azure.V2 || !d.NeedSort {
		lexicographic(h, fs)
	}
	if !d.NeedSort {
		return fs
	}
	keys := make([]int64, len(fs))
	if d.Trace == azure.V2 {
		for i, f := range fs {
			keys[i] = -total(h.Counts[f])
		}
		return pick(fs, argsort(keys))
	}
	slices.Reverse(fs)
	for i, f := range fs {
		keys[i] = total(h.Counts[f])
	}
	fs = pick(fs, argsort(keys))
	slices.Reverse(fs)
	return fs
}

func pick(fs, order []int) []int {
	out := make([]int, len(fs))
	for i, j := range order {
		out[i] = fs[j]
	}
	return out
}

// start makes the source, after a run for the summary.
func (d DLoRA) start(adapters []trace.Adapter, t *Traffic) (trace.Source, *Summary, error) {
	for i := range t.Histogram[0] {
		if d.budget(i, len(t.Histogram[0])) > 0 && sumInterval(t.Histogram, i) == 0 {
			return nil, nil, fmt.Errorf("interval %d of the window (minutes %d to %d after its start) has no traffic, which the dlora replay cannot handle; use the default replay or another window",
				i, i*d.Interval, (i+1)*d.Interval)
		}
	}
	s := &Summary{Traffic: *t, Counts: make([]int, len(adapters))}
	for src := newDLoRASource(d, adapters, t.Histogram); ; {
		r, err := src.Next()
		if err != nil { // the end
			return newDLoRASource(d, adapters, t.Histogram), s, nil
		}
		s.Counts[r.Adapter]++
		s.LastArrival = r.Arrival
	}
}

// budget returns the requests of interval i of n.
func (d DLoRA) budget(i, n int) int {
	b := d.Requests / n
	if i < d.Requests%n {
		b++
	}
	return b
}

func sumInterval(counts [][]int64, i int) int64 {
	var n int64
	for _, row := range counts {
		n += row[i]
	}
	return n
}
