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
	"slices"
	"strings"
	"time"

	"lorasim/trace"
	"lorasim/trace/requestlog/evidence"
)

// Options are the options of Read. With the zero value, Read detects everything.
type Options struct {
	Columns  map[evidence.Field]string // columns of fields; Read finds the columns of other fields itself
	TimeUnit evidence.Unit             // unit of numeric times; "": detected
	Seed     uint64                    // seed of the workload drawn from range queries of Prometheus
	MaxDrawn int                       // most requests drawn from range queries; 0: 20 million
	// Progress, if not nil, is called with the number of bytes read from the disk so far. If it returns an
	// error, reading ends with this error.
	Progress func(bytesRead int64) error
	Files    trace.Files
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
	model    string        // the column that names adapters, where that may be the base model
	blocks   bool          // the rows list the blocks of their prompts
	unit     evidence.Unit // unit of times that the format states; "": none
	dated    bool          // the times are since 1970
}

// adapter returns the index of the adapter of a name; "" means the base model.
func (b *builder) adapter(name string) int32 {
	if name == "" {
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
			if d.Reason == evidence.Failed {
				why += b.report.failedBy()
			}
		}
		return nil, nil, fmt.Errorf("the log has no request%s", why)
	}
	first := slices.MinFunc(b.requests, func(a, c request) int { return cmp.Compare(a.at, c.at) }).at
	requests := make([]trace.Request, len(b.requests))
	for i, r := range b.requests {
		r.Arrival = float64(r.at-first) / 1e9
		requests[i] = r.Request
	}
	if last := slices.MaxFunc(b.requests, func(a, c request) int {
		return cmp.Compare(a.at,
			c.at)
	}).at; last-first > maxSpan*1e9 || last < first {
		return nil, nil,
			fmt.Errorf("the log spans %.0f days, expected at most %d: are its times in one unit? (--time-unit)",
				(float64(last)-float64(first))/86400e9, maxSpan/86400)
	}
	if b.dated {
		b.report.Begin = time.Unix(0, first)
	}
	b.noteModel()
	return Workload(b.adapters, requests, b.report), b.report, nil
}

// noteModel adds a doubt if all requests name one model, which may be the base model.
func (b *builder) noteModel() {
	if b.model == "" || len(b.adapters) != 1 ||
		slices.ContainsFunc(b.requests, func(r request) bool { return r.Adapter == trace.BaseModel }) {
		return
	}
	b.report.doubt("all requests name %q, which is read as an adapter; if it is the base model: --columns base=%s",
		b.adapters[0].Name, b.model)
}

// Workload returns the requests of a log, at least one, as a workload. It sorts and numbers them. Arrivals may have
// any origin; in the workload the first request arrives at 0 s. Adapters are numbered by their first requests, so that
// the same rows give the same workload in every order and format. Workload completes the report.
func Workload(adapters []trace.Adapter, requests []trace.Request, report *Report) *trace.Workload {
	byArrival := func(a, b trace.Request) int { return cmp.Compare(a.Arrival, b.Arrival) }
	report.Sorted = !slices.IsSortedFunc(requests, byArrival)
	slices.SortStableFunc(requests, byArrival)
	first := requests[0].Arrival
	w := &trace.Workload{Requests: requests}
	index := map[int32]int32{trace.BaseModel: trace.BaseModel}
	for i := range requests {
		r := &requests[i]
		r.ID, r.Arrival = int64(i), r.Arrival-first
		at, known := index[r.Adapter]
		if !known {
			at = int32(len(w.Adapters))
			index[r.Adapter] = at
			w.Adapters = append(w.Adapters, adapters[r.Adapter])
		}
		r.Adapter = at
	}
	report.Kept = int64(len(requests))
	report.measure(w)
	return w
}

const maxSpan = 366 * 10 * 86400 // s from the first request to the last
