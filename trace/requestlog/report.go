package requestlog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"lorasim/trace"
	"lorasim/trace/requestlog/evidence"
)

// A Report describes how Read read a log.
type Report struct {
	Format     string            // format of the log, such as "CSV, separator ;"
	Mapped     []evidence.Choice // columns that were read, in the order of the fields
	Unused     []string          // columns that were not read, some with the reason
	Candidates []string          // columns that may name adapters, if no column does
	NoAdapter  bool              // the log has columns, and none of them names adapters
	Rows       int64             // rows of the log
	Kept       int64             // requests of the workload
	Dropped    []Dropped         // dropped rows by reason, in the order of their first rows
	Sorted     bool              // Read sorted the rows: they were not in the order of arrival
	Begin      time.Time         // time of the first request; zero: the log has no dates
	Traffic    Traffic           // what the requests are
	Notes      []string          // facts about the format
	Assumed    []string          // what no evidence decides
	Doubts     []string          // answers that are likely wrong, with the flag that decides
}

// Traffic describes the requests of a workload.
type Traffic struct {
	Span           float64 // s from the first request to the last
	Rate           float64 // requests/s on average; 0: all arrive at once
	Peak           int     // requests in the busiest minute
	Adapters       int
	Busiest        []Share // the three adapters with the most requests; "" is the base model
	Base           float64 // share of the requests to the base model
	Prompt, Output [2]int32
}

// Share is the share of an adapter's requests.
type Share struct {
	Name  string
	Share float64
}

// Dropped counts the dropped rows of one reason.
type Dropped struct {
	Reason string
	Rows   int64
	First  int // line of the first one
}

// Drop counts a dropped row at a line.
func (r *Report) Drop(reason string, line int) {
	i := slices.IndexFunc(r.Dropped, func(d Dropped) bool { return d.Reason == reason })
	if i < 0 {
		i = len(r.Dropped)
		r.Dropped = append(r.Dropped, Dropped{Reason: reason, First: line})
	}
	r.Dropped[i].Rows++
}

func add(list *[]string, format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*list, text) {
		*list = append(*list, text)
	}
}

func (r *Report) note(format string, args ...any)  { add(&r.Notes, format, args...) }
func (r *Report) doubt(format string, args ...any) { add(&r.Doubts, format, args...) }

// Assume adds an assumption.
func (r *Report) Assume(format string, args ...any) { add(&r.Assumed, format, args...) }

// decided enters how the columns of a table are read.
func (r *Report) decided(l *evidence.Layout) {
	r.Mapped, r.Unused, r.Candidates = l.Choices, l.Unused, l.Candidates
	for _, a := range l.Assumed {
		r.Assume("%s", a)
	}
	for _, d := range l.Doubts {
		r.doubt("%s", d)
	}
	r.NoAdapter = l.Column(evidence.Adapter) == "" && !l.BaseOnly
	switch {
	case !r.NoAdapter:
	case len(r.Candidates) > 0:
		r.doubt("no column names an adapter: all requests use the base model; columns that may: %s (--columns adapter=%s)",
			strings.Join(r.Candidates[:min(len(r.Candidates), 5)], ", "), r.Candidates[0])
	default:
		r.Assume("no column names an adapter: all requests use the base model (--columns adapter=NAME)")
	}
}

// failedBy names the flags that read all rows as successes.
func (r *Report) failedBy() string {
	var flags []string
	for _, m := range r.Mapped {
		if m.Field == evidence.Status || m.Field == evidence.Success || m.Field == evidence.Error {
			flags = append(flags, fmt.Sprintf("%s=none", m.Field))
		}
	}
	if len(flags) == 0 {
		return ""
	}
	return fmt.Sprintf("; --columns %s reads them as successes", strings.Join(slices.Compact(flags), ","))
}

// measure describes the requests of a workload.
func (r *Report) measure(w *trace.Workload) {
	t := &r.Traffic
	n := len(w.Requests)
	t.Adapters = len(w.Adapters)
	t.Span = w.Requests[n-1].Arrival
	if t.Span > 0 {
		t.Rate = float64(n) / t.Span
	}
	counts := make([]int, len(w.Adapters)+1) // the last one is the base model
	prompts, outputs := make([]int32, n), make([]int32, n)
	first := 0
	for i, q := range w.Requests {
		for q.Arrival-w.Requests[first].Arrival >= 60 {
			first++
		}
		t.Peak = max(t.Peak, i-first+1)
		if q.Adapter < 0 {
			q.Adapter = int32(len(w.Adapters))
		}
		counts[q.Adapter]++
		prompts[i], outputs[i] = q.Prompt, q.Output
	}
	t.Base = float64(counts[len(w.Adapters)]) / float64(n)
	for i, a := range w.Adapters {
		t.Busiest = append(t.Busiest, Share{a.Name, float64(counts[i]) / float64(n)})
	}
	slices.SortStableFunc(t.Busiest, func(a, b Share) int { return cmp.Compare(b.Share, a.Share) })
	t.Busiest = t.Busiest[:min(len(t.Busiest), 3)]
	t.Prompt, t.Output = quantiles(prompts), quantiles(outputs)
	r.frown()
}

// quantiles returns the median and the 99th percentile of a list.
func quantiles(list []int32) [2]int32 {
	slices.Sort(list)
	at := func(share float64) int32 { return list[max(int(math.Ceil(share*float64(len(list))))-1, 0)] }
	return [2]int32{at(0.5), at(0.99)}
}

// frown adds doubts about a workload at which an operator would frown.
func (r *Report) frown() {
	t := &r.Traffic
	switch {
	case r.Kept >= 3 && t.Span < 1:
		r.doubt("all %d requests arrive within %.3g s: are the times in another unit? (--time-unit)", r.Kept, t.Span)
	case t.Rate > 1000:
		r.doubt("%.3g requests/s on average: are the times in another unit? (--time-unit)", t.Rate)
	case r.Kept >= 3 && t.Rate < 1.0/3600:
		r.doubt("one request every %.3g h on average: are the times in another unit? (--time-unit)", 1/(3600*t.Rate))
	}
	if left := r.Rows - r.Kept; r.Rows > 0 && 2*left > r.Rows {
		r.doubt("%d of %d rows are left out", left, r.Rows)
	}
}

// Err returns an error if Read had to assume something: the error of --strict.
func (r *Report) Err() error {
	list := slices.Concat(r.Doubts, r.Assumed)
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("--strict: %d assumptions:\n  %s", len(list), strings.Join(list, "\n  "))
}

// Short returns the report in a few lines, for a run that reads the log. A line that names a remedy has the command
// that imports the file with it.
func (r *Report) Short(file string) []string {
	var fields []string
	for _, m := range r.Mapped {
		text := fmt.Sprintf("%s %q", m.Field, m.Column)
		if m.Why != "" && (m.Field == evidence.Time || m.Field == evidence.End || m.Field == evidence.Duration) {
			text += " (" + m.Why + ")"
		}
		fields = append(fields, text)
	}
	head := r.Format
	if len(fields) > 0 {
		head += ": " + strings.Join(fields, ", ")
	}
	t := &r.Traffic
	out := []string{head, fmt.Sprintf("kept %d of %d rows, %s, %s", r.Kept, r.Rows, t.rate(), t.adapters())}
	for _, d := range r.Dropped {
		out = append(out, fmt.Sprintf("dropped %d: %s (first: line %d)", d.Rows, d.Reason, d.First))
	}
	for _, d := range r.Doubts {
		out = append(out, "? "+d)
	}
	for i := range out { // a run has no such flag
		out[i] = strings.Replace(out[i], "--columns ", "lorasim trace import "+file+" -o w.parquet --columns ", 1)
	}
	return out
}

func (t *Traffic) rate() string {
	if t.Span == 0 {
		return "all at once"
	}
	return fmt.Sprintf("%.3g requests/s over %s", t.Rate, time.Duration(t.Span*1e9).Round(time.Millisecond))
}

func (t *Traffic) adapters() string {
	if t.Adapters == 0 {
		return "no adapters: all requests use the base model"
	}
	text := fmt.Sprintf("%d adapters", t.Adapters)
	var parts []string
	for _, b := range t.Busiest {
		parts = append(parts, fmt.Sprintf("%s %.1f %%", b.Name, 100*b.Share))
	}
	if t.Base > 0 {
		parts = append(parts, fmt.Sprintf("base model %.1f %%", 100*t.Base))
	}
	return text + ": " + strings.Join(parts, ", ")
}

// String returns the report as text: several lines, without a newline at the end.
func (r *Report) String() string {
	var b strings.Builder
	line := func(label, format string, args ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", label, fmt.Sprintf(format, args...))
	}
	line("format", "%s", r.Format)
	for _, m := range r.Mapped {
		if m.Why == "" {
			line(string(m.Field), "column %q", m.Column)
		} else {
			line(string(m.Field), "column %q, %s", m.Column, m.Why)
		}
	}
	if len(r.Unused) > 0 {
		line("not used", "%s", strings.Join(r.Unused, ", "))
	}
	t := &r.Traffic
	if !r.Begin.IsZero() {
		line("first", "%s (0 s of the workload)", r.Begin.UTC().Format(time.RFC3339Nano))
		line("last", "%s",
			r.Begin.Add(time.Duration(t.Span*1e9)).Round(time.Microsecond).UTC().Format(time.RFC3339Nano))
	}
	line("rate", "%s; busiest minute: %d requests", t.rate(), t.Peak)
	line("adapters", "%s", strings.TrimPrefix(t.adapters(), "no adapters: "))
	line("tokens", "prompt: median %d, P99 %d; output: median %d, P99 %d", t.Prompt[0], t.Prompt[1], t.Output[0],
		t.Output[1])
	if r.Sorted {
		line("order", "rows were sorted by arrival")
	}
	line("kept", "%d of %d rows", r.Kept, r.Rows)
	for _, d := range r.Dropped {
		line("dropped", "%d: %s (first: line %d)", d.Rows, d.Reason, d.First)
	}
	for _, n := range r.Notes {
		line("note", "%s", n)
	}
	for _, a := range r.Assumed {
		line("assumed", "%s", a)
	}
	for _, d := range r.Doubts {
		line("?", "%s", d)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
