package replay

import (
	"cmp"
	"context"
	"fmt"
	"math/bits"
	"slices"

	"lorasim/trace"
	"lorasim/trace/azure"
	"lorasim/trace/internal/renewal"
	"lorasim/trace/nprand"
)

// DLoRA replays a window of a trace with the algorithm of dLoRA's workload generator (B. Wu et al., OSDI'24).
// Results depend on numpy's legacy generator (see package nprand) and on these peculiarities, which it reproduces:
//
//   - The day of End is ignored: the window ends on the day of Start.
//   - azure_v2 counts invocations by the time they end.
//   - azure_v1 works for day 0 only: for later days it reads the minute columns after 1440, which do not exist.
//   - Functions go to adapters in lexicographic order. azure_v1 leaves out those without traffic in the window,
//     azure_v2 does not. With NeedSort they go by descending traffic, without the idle ones. The order of equal ones
//     is that of numpy's unstable sort: for azure_v2 of the negated counts in lexicographic order; for azure_v1 of the
//     counts in the reversed order of the file, with the result reversed again.
//   - The requests are divided among the intervals beforehand, equally up to one. Each interval lasts until its share
//     is used up, and the next one begins at that time, with new processes.
//   - Gaps are drawn in batches. The first batch of every process reseeds the common generator with 0, so all adapters
//     repeat the same gaps, in units of their mean, in all intervals. Later batches continue in the generator.
//   - The exponential distribution is the gamma distribution with CV 1.
type DLoRA struct {
	Trace        azure.Format
	Path         string // file or folder
	Start, End   azure.Instant
	NeedSort     bool
	Requests     int     // number of requests, >= 1
	Distribution string  // distribution of the gaps: exponential or gamma
	Interval     int     // length of an interval, minutes, >= 1
	TotalRate    float64 // requests/s of all adapters together
	CV           float64 // coefficient of variation of the gaps of one adapter; gamma only
	MapStride    int     // functions per block, >= 1
	Read         azure.Options
}

// A Summary describes the requests that a DLoRA replay yields.
type Summary struct {
	Traffic
	Counts      []int   // number of requests, by adapter
	LastArrival float64 // arrival of the last request, s
}

// Replay returns the replay of the trace for the adapters. The summary comes from a first run of the generator, so
// the source need not be read for it.
func (d DLoRA) Replay(ctx context.Context, adapters []trace.Adapter) (trace.Source, *Summary, error) {
	if err := d.check(); err != nil {
		return nil, nil, err
	}
	w, err := d.window(ctx)
	var t *Traffic
	if err == nil {
		q := azure.Query{Format: d.Trace, Window: w, Interval: d.Interval, ByEnd: true}
		t, err = Mapping{Strategy: Stride, Stride: d.MapStride}.read(ctx, d.Path, q, d.Read, len(adapters), d.order)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("dlora replay of %s: %w", d.Path, err)
	}
	return d.start(adapters, t)
}

// ReplayHistogram is Replay for given invocations by adapter and interval. It ignores Trace, Path, Start, End,
// NeedSort and MapStride.
func (d DLoRA) ReplayHistogram(adapters []trace.Adapter, counts [][]int64) (trace.Source, *Summary, error) {
	if err := cmp.Or(d.check(), checkHistogram(counts, len(adapters))); err != nil {
		return nil, nil, err
	}
	return d.start(adapters, &Traffic{Histogram: counts})
}

// maxBatch bounds the memory for the gaps of one batch.
const maxBatch = 1e8

func (d DLoRA) check() error {
	switch {
	case d.Distribution != renewal.Exponential && d.Distribution != renewal.Gamma:
		return fmt.Errorf("unknown arrival distribution %q: the dlora replay knows exponential and gamma",
			d.Distribution)
	case !(d.TotalRate > 0):
		return fmt.Errorf("total rate is %v requests/s, expected > 0", d.TotalRate)
	case d.Distribution == renewal.Gamma && !(d.CV >= renewal.MinCV && d.CV <= renewal.MaxCV):
		return fmt.Errorf("cv is %v, expected %g to %g", d.CV, renewal.MinCV, renewal.MaxCV)
	case d.TotalRate*float64(d.Interval)*1.2 > maxBatch:
		return fmt.Errorf("total rate %v requests/s times interval %d minutes is too large for the dlora replay, expected below %g", d.TotalRate, d.Interval, maxBatch/1.2)
	}
	return nil
}

// window returns the window of the trace. Its end is on the day of the start.
func (d DLoRA) window(ctx context.Context) (azure.Window, error) {
	w, err := azure.NewWindow(d.Start, azure.Instant{Day: d.Start.Day, Minute: d.End.Minute})
	switch {
	case err != nil:
		return w, fmt.Errorf("%w; the dlora replay assumes that the window ends on the day of its start: use the default replay for windows across days", err)
	case d.Trace == azure.V1 && d.Start.Day > 0:
		// the error is that of the file, or else that of its columns
		_, err = azure.OpenMinutes(ctx, d.Path, w, d.Read)
		err = cmp.Or(err, fmt.Errorf("window %v: the dlora replay of %s asks for the minute columns %d to %d, but the last one is 1440; use the default replay for days after 0",
			w, d.Trace, w.Start+1, w.End))
	}
	return w, err
}

// order returns the functions of h in the order in which adapters get them.
func (d DLoRA) order(h *azure.Histogram) (fs []int) {
	for f, counts := range h.Counts {
		if d.Trace == azure.V2 && !d.NeedSort || total(counts) > 0 {
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
	for r := range trace.All(d.source(adapters, t.Histogram)) {
		s.Counts[r.Adapter]++
		s.LastArrival = r.Arrival
	}
	return d.source(adapters, t.Histogram), s, nil
}

// budget returns the requests of interval i of n.
func (d DLoRA) budget(i, n int) int {
	b := d.Requests / n
	if i < d.Requests%n {
		b++
	}
	return b
}

// dloraSource draws the requests of a DLoRA replay.
type dloraSource struct {
	DLoRA
	histogram [][]int64

	rng      *nprand.Rand // numpy's global generator
	interval int          // the next one
	left     int          // requests left in the current one
	procs    []dloraProcess
	queue    renewal.Queue
	last     float64
}

// dloraProcess draws the gaps of one adapter in one interval.
type dloraProcess struct {
	shape, scale float64
	batch        []float64
	at           int // next gap of the batch
}

func (d DLoRA) source(adapters []trace.Adapter, histogram [][]int64) trace.Source {
	s := &dloraSource{DLoRA: d, histogram: histogram, rng: nprand.New(0), procs: make([]dloraProcess, len(adapters))}
	return trace.Generate(adapters, int64(d.Requests), s.next)
}

func (s *dloraSource) next() (trace.Request, error) {
	for s.left == 0 {
		if s.left = s.budget(s.interval, len(s.histogram[0])); s.left > 0 {
			s.begin(s.interval)
		}
		s.interval++
	}
	e := s.queue[0]
	s.queue.Replace(renewal.Event{At: e.At + s.gap(&s.procs[e.Item]), Item: e.Item})
	s.left--
	s.last = e.At
	return trace.Request{Arrival: e.At, Adapter: e.Item}, nil
}

// begin starts the processes of an interval. Their first batches are drawn
// here, in the order of the adapters, each from seed 0.
func (s *dloraSource) begin(interval int) {
	cv := s.CV
	if s.Distribution == renewal.Exponential {
		cv = 1
	}
	sum := float64(sumInterval(s.histogram, interval))
	s.queue = s.queue[:0]
	for k := range s.procs {
		count := s.histogram[k][interval]
		if count == 0 {
			continue
		}
		rate := float64(count) / sum * s.TotalRate
		size := max(int(rate*float64(s.Interval)*1.2), 1)
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

// argsort returns the indices that sort v in ascending order, equal values in
// the order in which numpy.argsort (before numpy 1.25) leaves them. That is the
// introsort of D. R. Musser, "Introspective sorting and selection algorithms",
// Software: Practice and Experience 27(8), 1997: quicksort on the median of
// three, partitions of up to 16 elements sorted by insertion, and heapsort
// where the partitions have become too lopsided. It is not stable; the choices
// that decide ties are marked below.
func argsort(v []int64) []int {
	s := indirect{v: v, at: make([]int, len(v))}
	for i := range s.at {
		s.at[i] = i
	}
	if len(v) > 1 {
		s.quick(0, len(v)-1, 2*(bits.Len(uint(len(v)))-1))
	}
	return s.at
}

const maxInsertion = 16 // elements sorted by insertion

// indirect sorts the indices at by the values they point to.
type indirect struct {
	v  []int64
	at []int
}

func (s indirect) less(i, j int) bool { return s.v[s.at[i]] < s.v[s.at[j]] }
func (s indirect) swap(i, j int)      { s.at[i], s.at[j] = s.at[j], s.at[i] }

// quick sorts at[lo..hi]. The depth left is only looked at on entry, which is
// for the larger partition: the smaller one goes on in the loop.
func (s indirect) quick(lo, hi, depth int) {
	if depth < 0 {
		s.heap(s.at[lo : hi+1])
		return
	}
	for hi-lo+1 > maxInsertion {
		p := s.partition(lo, hi)
		depth--
		if p-lo < hi-p {
			s.quick(p+1, hi, depth)
			hi = p - 1
		} else {
			s.quick(lo, p-1, depth)
			lo = p + 1
		}
	}
	s.insertion(lo, hi)
}

// partition splits at[lo..hi] around the median of its first, middle and last
// element and returns where that ends up. Both scans stop at values equal to
// the median and swap them.
func (s indirect) partition(lo, hi int) int {
	mid := lo + (hi-lo)/2
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	if s.less(hi, mid) {
		s.swap(hi, mid)
	}
	if s.less(mid, lo) {
		s.swap(mid, lo)
	}
	pivot := s.v[s.at[mid]]
	i, j := lo, hi-1
	s.swap(mid, j)
	for {
		for i++; s.v[s.at[i]] < pivot; i++ {
		}
		for j--; pivot < s.v[s.at[j]]; j-- {
		}
		if i >= j {
			break
		}
		s.swap(i, j)
	}
	s.swap(i, hi-1)
	return i
}

// insertion sorts at[lo..hi] stably.
func (s indirect) insertion(lo, hi int) {
	for i := lo + 1; i <= hi; i++ {
		x, j := s.at[i], i
		for ; j > lo && s.v[x] < s.v[s.at[j-1]]; j-- {
			s.at[j] = s.at[j-1]
		}
		s.at[j] = x
	}
}

// heap sorts at by heapsort.
func (s indirect) heap(at []int) {
	for root := len(at)/2 - 1; root >= 0; root-- {
		s.sift(at, root, at[root])
	}
	for n := len(at) - 1; n > 0; n-- {
		x := at[n]
		at[n] = at[0]
		s.sift(at[:n], 0, x)
	}
}

// sift puts x into the heap at, in which hole is free.
func (s indirect) sift(at []int, hole, x int) {
	for child := 2*hole + 1; child < len(at); child = 2*hole + 1 {
		if child+1 < len(at) && s.v[at[child]] < s.v[at[child+1]] {
			child++
		}
		if s.v[x] >= s.v[at[child]] {
			break
		}
		at[hole] = at[child]
		hole = child
	}
	at[hole] = x
}
