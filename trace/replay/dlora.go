package replay

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
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
	if err := cmp.Or(d.check(len(adapters)), checkHistogram(counts, len(adapters))); err != nil {
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
	w, err := d.window()
	if err != nil {
		return nil, err
	}
	q := azure.Query{Format: d.Trace, Window: w, Interval: d.Interval, ByEnd: true}
	return Mapping{Strategy: Stride, Stride: d.MapStride}.read(d.Path, q, d.Read, adapters, d.order)
}

func (d DLoRA) window() (w azure.Window, err error) {
	start, err := azure.ParseInstant(d.Start)
	if err != nil {
		return w, fmt.Errorf("start %w", err)
	}
	end, err := azure.ParseInstant(d.End)
	if err != nil {
		return w, fmt.Errorf("end %w", err)
	}
	end.Day = start.Day
	w = azure.Window{Start: start.Minutes(), End: end.Minutes()}
	if w.End <= w.Start {
		return w, fmt.Errorf("window %s to %s: the dlora replay takes the end to be on the start's day, which leaves %d minutes; use the default replay for windows across days",
			d.Start, d.End, w.Minutes())
	}
	if d.Trace != azure.V1 || start.Day == 0 {
		return w, nil
	}
	// The error is that of the later day's file, or else that of its columns.
	m, err := azure.OpenMinutes(d.Path, w, d.Read)
	if err != nil {
		return w, err
	}
	return w, cmp.Or(m.Close(), fmt.Errorf("window %v: the dlora replay of %s asks for the minute columns %d to %d, but the last one is 1440; use the default replay for days after 0",
		w, d.Trace, w.Start+1, w.End))
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
	sign := int64(-1)
	if d.Trace == azure.V1 {
		sign = 1
		slices.Reverse(fs)
	}
	keys := make([]int64, len(fs))
	for i, f := range fs {
		keys[i] = sign * total(h.Counts[f])
	}
	sorted := make([]int, len(fs))
	for i, j := range argsort(keys) {
		sorted[i] = fs[j]
	}
	if d.Trace == azure.V1 {
		slices.Reverse(sorted)
	}
	return sorted
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

// dloraSource yields the requests of a DLoRA replay.
type dloraSource struct {
	d         DLoRA
	adapters  []trace.Adapter
	histogram [][]int64

	rng      *nprand.Rand // numpy's global generator
	interval int          // the next one
	left     int          // requests left in the current one
	procs    []dloraProcess
	queue    renewal.Queue
	next     int64
	last     float64
}

// dloraProcess draws the gaps of one adapter in one interval.
type dloraProcess struct {
	shape, scale float64
	batch        []float64
	at           int // next gap of the batch
}

func newDLoRASource(d DLoRA, adapters []trace.Adapter, histogram [][]int64) *dloraSource {
	return &dloraSource{d: d, adapters: adapters, histogram: histogram,
		rng: nprand.New(0), procs: make([]dloraProcess, len(adapters))}
}

func (s *dloraSource) Adapters() []trace.Adapter { return s.adapters }
func (s *dloraSource) Len() int64                { return int64(s.d.Requests) - s.next }

func (s *dloraSource) Next() (trace.Request, error) {
	for s.left == 0 {
		if s.interval == len(s.histogram[0]) {
			return trace.Request{}, io.EOF
		}
		s.left = s.d.budget(s.interval, len(s.histogram[0]))
		if s.left > 0 {
			s.begin(s.interval)
		}
		s.interval++
	}
	e := s.queue[0]
	s.queue.Replace(renewal.Event{At: e.At + s.gap(&s.procs[e.Item]), Item: e.Item})
	s.left--
	s.last = e.At
	r := trace.Request{ID: s.next, Arrival: e.At, Adapter: e.Item}
	s.next++
	return r, nil
}

// begin starts the processes of an interval. Their first batches are drawn
// here, in the order of the adapters, each from seed 0.
func (s *dloraSource) begin(interval int) {
	cv := s.d.CV
	if s.d.Distribution == "exponential" {
		cv = 1
	}
	sum := float64(sumInterval(s.histogram, interval))
	s.queue = s.queue[:0]
	for k := range s.procs {
		count := s.histogram[k][interval]
		if count == 0 {
			continue
		}
		rate := float64(count) / sum * s.d.TotalRate
		size := max(int(rate*float64(s.d.Interval)*1.2), 1)
		p := &s.procs[k]
		p.shape, p.scale = 1/(cv*cv), cv*cv/rate
		p.batch = slices.Grow(p.batch[:0], size)[:size]
		s.rng.Seed(0)
		s.draw(p)
		s.queue.Push(renewal.Event{At: s.last + s.gap(p), Item: int32(k)})
	}
}

// gap returns the next gap of a process.
func (s *dloraSource) gap(p *dloraProcess) float64 {
	if p.at == len(p.batch) {
		s.draw(p)
	}
	p.at++
	return p.batch[p.at-1]
}

// draw draws a batch.
func (s *dloraSource) draw(p *dloraProcess) {
	for i := range p.batch {
		p.batch[i] = s.rng.Gamma(p.shape, p.scale)
	}
	p.at = 0
}
