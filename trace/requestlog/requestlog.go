// Package requestlog reads request logs of other programs as workloads. [Read] reads tables (CSV with any separator,
// JSON Lines, JSON arrays, Parquet; also compressed with gzip), whose columns it finds by their usual names, and
// spans of OpenTelemetry. From range queries of Prometheus it draws a workload.
//
//	w, report, err := requestlog.Read(ctx, []string{"log.csv"}, requestlog.Options{})
//	fmt.Println(report)
//
// A log may be unsorted. Its times may be epoch seconds, milliseconds, microseconds or nanoseconds, or ISO 8601. The
// workload starts with its first request, at 0 s. Read drops rows that cannot be requests; the [Report] counts them
// by reason and names the first line of each.
package requestlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/trace"
)

// Options are the options of Read. With the zero value, Read detects everything.
type Options struct {
	Columns  map[Field]string // columns of fields; Read finds other fields by their usual names
	TimeUnit Unit             // unit of numeric times; "": detected
	Seed     uint64           // seed of the workload drawn from range queries of Prometheus
	MaxDrawn int              // most requests drawn from range queries; 0: 20 million
	// Progress, if not nil, is called with the number of bytes read from the disk so far. If it returns an
	// error, reading ends with this error.
	Progress func(bytesRead int64) error
	Files    trace.Files
}

// A Report describes how Read read a log.
type Report struct {
	Format  string    // format of the log, such as "CSV, separator ;"
	Mapped  []Mapping // columns that were read, in the order of the fields
	Unused  []string  // columns that were not read
	Rows    int64     // rows of the log
	Kept    int64     // requests of the workload
	Dropped []Dropped // dropped rows by reason, in the order of their first rows
	Sorted  bool      // Read sorted the rows: they were not in the order of arrival
	Begin   time.Time // time of the first request; zero: the log has no dates
	Notes   []string  // assumptions that Read made
}

// A Mapping is a field and the column that it was read from.
type Mapping struct {
	Field  Field
	Column string
	Detail string // details such as the unit; may be empty
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

func (r *Report) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// String returns the report as text: several lines, without a newline at the end.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "format     %s\n", r.Format)
	for _, m := range r.Mapped {
		fmt.Fprintf(&b, "%-10s column %q", m.Field, m.Column)
		if m.Detail != "" {
			fmt.Fprintf(&b, ", %s", m.Detail)
		}
		b.WriteByte('\n')
	}
	if len(r.Unused) > 0 {
		fmt.Fprintf(&b, "not used   %s\n", strings.Join(r.Unused, ", "))
	}
	if !r.Begin.IsZero() {
		fmt.Fprintf(&b, "begins     %s (0 s of the workload)\n", r.Begin.UTC().Format(time.RFC3339Nano))
	}
	if r.Sorted {
		b.WriteString("order      rows were sorted by arrival\n")
	}
	fmt.Fprintf(&b, "kept       %d of %d rows", r.Kept, r.Rows)
	for _, d := range r.Dropped {
		fmt.Fprintf(&b, "\ndropped    %d: %s (first: line %d)", d.Rows, d.Reason, d.First)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\nnote       %s", n)
	}
	return b.String()
}

// Read reads the files of one log, in any order, as a workload. ctx ends the wait for a pipe. All files must have the
// same format. Errors name the file, the line if there is one, and the expected value.
func Read(ctx context.Context, paths []string, o Options) (*trace.Workload, *Report, error) {
	if len(paths) == 0 {
		return nil, nil, errors.New("no log to read")
	}
	b := &builder{options: o, report: &Report{}, index: map[string]int32{}}
	var queries []query
	for _, path := range paths {
		found, err := b.readFile(ctx, path)
		if err != nil {
			return nil, nil, err
		}
		queries = append(queries, found...)
	}
	if len(queries) > 0 {
		if b.report.Rows > 0 {
			return nil, nil, errors.New("range queries of Prometheus and logs of requests cannot be one workload")
		}
		return draw(queries, &o)
	}
	return b.workload()
}

// request is a row of a log, with its time since the epoch or another origin.
type request struct {
	trace.Request
	at int64 // ns
}

// builder collects the requests of a log.
type builder struct {
	options  Options
	report   *Report
	requests []request
	adapters []trace.Adapter
	index    map[string]int32
	model    string // the column that names adapters, where that may be the base model
}

// adapter returns the index of the adapter of a name; some names mean the base model.
func (b *builder) adapter(name string) int32 {
	switch strings.ToLower(name) {
	case "", "-", "none", "null", "nil", "nan", "base", "-1":
		return trace.BaseModel
	}
	name = strings.ToValidUTF8(name, "\uFFFD")
	i, known := b.index[name]
	if !known {
		i = int32(len(b.adapters))
		b.index[name] = i
		b.adapters = append(b.adapters, trace.Adapter{Name: name})
	}
	return i
}

func (b *builder) add(r request) { b.requests = append(b.requests, r) }

// workload sorts and numbers the requests read.
func (b *builder) workload() (*trace.Workload, *Report, error) {
	if len(b.requests) == 0 {
		why := ""
		if len(b.report.Dropped) > 0 {
			d := b.report.Dropped[0]
			why = fmt.Sprintf(": %d rows dropped: %s (first: line %d)", d.Rows, d.Reason, d.First)
		}
		return nil, nil, fmt.Errorf("the log has no request%s", why)
	}
	first := slices.MinFunc(b.requests, func(a, c request) int { return cmp.Compare(a.at, c.at) }).at
	requests := make([]trace.Request, len(b.requests))
	for i, r := range b.requests {
		r.Arrival = float64(r.at-first) / 1e9
		requests[i] = r.Request
	}
	w := Workload(b.adapters, requests, b.report)
	if last := requests[len(requests)-1].Arrival; last > maxSpan {
		return nil, nil, fmt.Errorf("the log spans %.0f days, expected at most %d: are its times in one unit? (--time-unit)",
			last/86400, maxSpan/86400)
	}
	if first >= epochNs {
		b.report.Begin = time.Unix(0, first)
	}
	b.noteModel()
	return w, b.report, nil
}

// noteModel adds a note if all requests name one model, which may be the base model.
func (b *builder) noteModel() {
	if b.model == "" || len(b.adapters) != 1 ||
		slices.ContainsFunc(b.requests, func(r request) bool { return r.Adapter == trace.BaseModel }) {
		return
	}
	b.report.note("all requests name %q, which is read as an adapter; if it is the base model: --columns base=%s",
		b.adapters[0].Name, b.model)
}

// Workload returns the requests of a log, at least one, as a workload. It sorts and numbers them. Arrivals may have
// any origin; in the workload the first request arrives at 0 s. Workload sets the number of kept requests and Sorted
// in the report.
func Workload(adapters []trace.Adapter, requests []trace.Request, report *Report) *trace.Workload {
	byArrival := func(a, b trace.Request) int { return cmp.Compare(a.Arrival, b.Arrival) }
	report.Sorted = !slices.IsSortedFunc(requests, byArrival)
	slices.SortStableFunc(requests, byArrival)
	first := requests[0].Arrival
	for i := range requests {
		requests[i].ID, requests[i].Arrival = int64(i), requests[i].Arrival-first
	}
	report.Kept = int64(len(requests))
	return &trace.Workload{Adapters: adapters, Requests: requests}
}

const (
	maxSpan = 366 * 10 * 86400       // s from the first request to the last
	epochNs = 100_000_000 * 1e9      // times from here on are dates (3 March 1973), ns
	maxNs   = float64(math.MaxInt64) // of a time
)

// count reads a number of tokens: a whole number, also with separators of thousands or as a float such as 12.0.
func count(text string) (int32, error) {
	plain := strings.ReplaceAll(text, "_", "")
	if strings.Contains(plain, ",") {
		if !thousands.MatchString(plain) {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		plain = strings.ReplaceAll(plain, ",", "")
	}
	x, err := strconv.ParseFloat(plain, 64)
	if err != nil || x != math.Trunc(x) || x < 0 || x > math.MaxInt32 {
		return 0, fmt.Errorf("%q is not a number of tokens, expected a whole number from 0 to %d", text, math.MaxInt32)
	}
	return int32(x), nil
}

var thousands = regexp.MustCompile(`^\d{1,3}(,\d{3})+(\.0*)?$`)
