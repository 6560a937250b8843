// Package records reads and writes files of per-request records, with one row per request.
// The file's extension selects the format: .parquet, .arrow (Arrow IPC file), .csv or
// .jsonl.
//
//	w, err := records.Create(columnar.Files(), "run.parquet", workload.Adapters, false)
//	defer w.Abort()         // leaves nothing behind unless Close succeeded
//	err = w.Write(&request) // for each request
//	err = w.Close()
//
//	r, err := records.Open(ctx, columnar.Files(), "run.parquet")
//	defer r.Close()
//	for err = r.Read(&request); err == nil; err = r.Read(&request) { ... }
//
// The columns are id, adapter (index, -1: base model), adapter_name, rank, arrival_s,
// sent_s, first_token_s, finish_s, prompt_tokens, output_tokens, requested_output_tokens,
// worker_first, worker_last (-1: none), migrations, cold_load_s, client_queue_s
// (sent - arrival), status, error, streamed and, except in CSV, token_gaps_s. A time that
// never came is null, or an empty field in CSV. Column streamed says whether the client
// streamed replies: yes, no, or empty if unknown. The same records give the same bytes. A
// Reader and a Writer hold only one batch of rows in memory.
//
// A Reader also reads files of other clients. Text may be compressed with gzip. Columns
// ttft_s and e2e_s, both from sent_s, may replace first_token_s and finish_s. Without column
// adapter, all requests are for the base model. Without column status, a request with a
// finish and at least one output token is ok. [ReadAll] also reads the trace of `blis
// observe` (TraceV2: send_time_us, first_chunk_time_us, last_chunk_time_us,
// server_input_tokens).
package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/internal/table"
	"lorasim/sim/record"
	"lorasim/trace"
)

// row is a record in the form of a file's row.
type row struct {
	record.Request
	adapterName, status, streamed string
	queue                         float64
	ttft, e2e                     float64 // s, in files with latencies instead of times
}

// absent marks a cell without a value. No file may contain it.
var absent = math.Inf(1)

// foreign returns the columns of a file to read: those of a file to write, with more of
// them optional, and the columns that may replace them.
func (r *row) foreign() []table.Column {
	columns := r.columns(true)
	for i := range columns {
		switch c := &columns[i]; c.Name {
		case "adapter", "first_token_s", "finish_s", "status":
			c.Optional = true
		}
	}
	return append(columns, table.Column{Name: "ttft_s", Value: &r.ttft, Optional: true, Nullable: true},
		table.Column{Name: "e2e_s", Value: &r.e2e, Optional: true, Nullable: true})
}

// clear empties the cells before a row is read.
func (r *row) clear() {
	*r = row{Request: record.Request{Adapter: -1, WorkerFirst: -1, WorkerLast: -1, FirstToken: absent, Finish: absent},
		ttft: absent, e2e: absent}
}

// complete derives the times and the status that a file lacks. With an error it returns the
// column at fault.
func (r *row) complete() (column string, err error) {
	for _, t := range []struct {
		name, latency string
		at, after     *float64
	}{{"first_token_s", "ttft_s", &r.FirstToken, &r.ttft}, {"finish_s", "e2e_s", &r.Finish, &r.e2e}} {
		switch {
		case *t.at != absent:
		case *t.after == absent:
			return t.name, fmt.Errorf("is missing, and so is %s: expected one of them", t.latency)
		default:
			*t.at = r.Sent + *t.after
		}
	}
	switch {
	case r.status != "":
		r.Status, err = record.ParseStatus(r.status)
	case math.IsNaN(r.Finish) || r.Output < 1:
		r.Status = record.Failed
	}
	return "status", err
}

func (r *row) columns(cached bool) []table.Column {
	columns := []table.Column{
		{Name: "id", Value: &r.ID},
		{Name: "adapter", Value: &r.Adapter},
		{Name: "adapter_name", Value: &r.adapterName, Optional: true},
		{Name: "rank", Value: &r.Rank, Optional: true},
		{Name: "arrival_s", Value: &r.Arrival, Nullable: true},
		{Name: "sent_s", Value: &r.Sent, Nullable: true},
		{Name: "first_token_s", Value: &r.FirstToken, Nullable: true},
		{Name: "finish_s", Value: &r.Finish, Nullable: true},
		{Name: "prompt_tokens", Value: &r.Prompt},
		{Name: "output_tokens", Value: &r.Output},
		{Name: "requested_output_tokens", Value: &r.Requested, Optional: true},
		{Name: "worker_first", Value: &r.WorkerFirst, Optional: true},
		{Name: "worker_last", Value: &r.WorkerLast, Optional: true},
		{Name: "migrations", Value: &r.Migrations, Optional: true},
		{Name: "cold_load_s", Value: &r.ColdLoad, Nullable: true, Optional: true},
		{Name: "client_queue_s", Value: &r.queue, Nullable: true, Optional: true},
		{Name: "status", Value: &r.status},
		{Name: "error", Value: &r.Error, Optional: true},
		{Name: "streamed", Value: &r.streamed, Optional: true},
		{Name: "token_gaps_s", Value: &r.Gaps, Optional: true},
	}
	if cached {
		columns = append(columns, table.Column{Name: "cached_tokens", Value: &r.Cached, Optional: true})
	}
	return columns
}

// check returns an error, and its column, for a value that a file cannot represent.
func check(columns []table.Column) (column string, err error) {
	for _, c := range columns {
		switch p := c.Value.(type) {
		case *float64:
			if math.IsInf(*p, 0) {
				return c.Name, fmt.Errorf("is %v, expected a finite number or NaN", *p)
			}
		case *[]float64:
			for _, g := range *p {
				if math.IsInf(g, 0) || math.IsNaN(g) {
					return c.Name, fmt.Errorf("holds %v, expected finite numbers", g)
				}
			}
		}
	}
	return "", nil
}

// clean returns text that every format preserves: valid UTF-8, with \n as the line end.
func clean(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.Contains(s, "\r") {
		s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	}
	return s
}

// A Writer writes a file of records. It is not safe for concurrent use.
type Writer struct {
	file    *table.Writer
	path    string
	names   []string // of the adapters
	row     row
	columns []table.Column
}

// Create creates a file of records. adapters are the names for column adapter_name. cached
// adds column cached_tokens. The file appears under its name only when Close succeeds.
func Create(files trace.Files, path string, adapters []trace.Adapter, cached bool) (w *Writer, err error) {
	w = &Writer{path: path}
	for _, a := range adapters {
		w.names = append(w.names, clean(a.Name))
	}
	w.columns = w.row.columns(cached)
	if w.file, err = table.Create(path, w.columns, table.Options{Files: table.Files(files)}); err != nil {
		return nil, err
	}
	return w, nil
}

// Write writes a record. Text is stored as valid UTF-8 with \n as the line end. An infinite
// time or gap, or a gap that is NaN, is an error.
func (w *Writer) Write(q *record.Request) error {
	r := &w.row
	*r = row{Request: *q, queue: q.ClientQueue(), streamed: string(q.Streamed)}
	r.Error = clean(q.Error)
	if q.Adapter >= 0 && int(q.Adapter) < len(w.names) {
		r.adapterName = w.names[q.Adapter]
	}
	if q.Status >= record.NumStatus {
		return fmt.Errorf("%s: request %d: status is %d, expected one below %d",
			w.path, q.ID, q.Status, record.NumStatus)
	}
	r.status = q.Status.String()
	if column, err := check(w.columns); err != nil {
		return fmt.Errorf("%s: request %d: %s %w", w.path, q.ID, column, err)
	}
	return w.file.Write()
}

// Close finishes the file. Call it only once.
func (w *Writer) Close() error { return w.file.Close() }

// Abort discards the file; nothing appears under its name. After Close it does nothing.
func (w *Writer) Abort() { w.file.Abort() }

// A Reader reads a file of records. It is not safe for concurrent use.
type Reader struct {
	file    *table.Reader
	row     row
	columns []table.Column
	names   map[int32]string
}

// Open opens a file of records.
func Open(ctx context.Context, files trace.Files, path string) (r *Reader, err error) {
	r = &Reader{names: map[int32]string{}}
	r.columns = r.row.foreign()
	if r.file, err = table.Open(ctx, path, r.columns, table.Options{Files: table.Files(files)}); err != nil {
		return nil, err
	}
	return r, nil
}

// Read reads the next record into q. It returns io.EOF after the last one. The slice Gaps
// is new for each record. Errors contain the file, the row and the column.
func (r *Reader) Read(q *record.Request) (err error) {
	r.row.clear()
	if err := r.file.Read(); err != nil {
		return err
	}
	column, err := r.row.complete()
	if err == nil {
		r.row.ttft, r.row.e2e = 0, 0
		column, err = check(r.columns)
	}
	if err != nil {
		return &fault{r.file.Bad(column, err), fmt.Sprintf("column %q: %v", column, err)}
	}
	*q = r.row.Request
	q.Error = clean(q.Error)
	q.Streamed = record.ParseStreaming(r.row.streamed)
	if _, seen := r.names[q.Adapter]; !seen && r.row.adapterName != "" {
		r.names[q.Adapter] = clean(r.row.adapterName)
	}
	return nil
}

// fault is an error in the contents of a row. The rows after it can be read.
type fault struct {
	error
	text string // without the place
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Info describes a file that was read.
type Info struct {
	Names map[int32]string // of the adapters, by index
	Left  LeftOut          // rows that cannot be requests
}

// Each reads a file and calls visit for each record, until visit returns an error. It leaves out rows that cannot be
// requests; a file that has rows but no request is an error.
func Each(ctx context.Context, files trace.Files, path string, visit func(*record.Request) error) (in Info, err error) {
	if isObserved(ctx, files, path) {
		rs, err := readObserved(ctx, files, path, &in.Left)
		for i := range rs {
			if err = visit(&rs[i]); err != nil {
				break
			}
		}
		return in, err
	}
	r, err := Open(ctx, files, path)
	if err != nil {
		return in, err
	}
	defer r.Close()
	in.Names = r.names
	var q record.Request
	var first error // of a row
	for row, kept := 1, 0; ; row++ {
		err := r.Read(&q)
		if err == nil {
			if wrong := Fault(&q); wrong != nil {
				err = &fault{r.file.Bad("", wrong), wrong.Error()}
			}
		}
		switch {
		case errors.Is(err, io.EOF) && kept == 0 && first != nil:
			return in, first
		case errors.Is(err, io.EOF):
			return in, nil
		case err == nil:
			kept++
			err = visit(&q)
		default:
			first = cmp.Or(first, err)
			err = in.Left.skip(err, fmt.Sprintf("%s: row %d", path, row))
		}
		if err != nil {
			return in, err
		}
	}
}

// ReadAll reads a whole file, as Each does.
func ReadAll(ctx context.Context, files trace.Files, path string) (rs []record.Request, in Info, err error) {
	in, err = Each(ctx, files, path, func(q *record.Request) error {
		rs = append(rs, *q)
		return nil
	})
	return rs, in, err
}

// WriteAll writes a whole file, in the order of the ids. It has column cached_tokens if any
// request has cached tokens.
func WriteAll(files trace.Files, path string, list []record.Request, adapters []trace.Adapter) error {
	list = slices.SortedFunc(slices.Values(list), func(a, b record.Request) int { return cmp.Compare(a.ID, b.ID) })
	w, err := Create(files, path, adapters, slices.ContainsFunc(list,
		func(r record.Request) bool { return r.Cached > 0 }))
	if err != nil {
		return err
	}
	defer w.Abort()
	for i := range list {
		if err := w.Write(&list[i]); err != nil {
			return err
		}
	}
	return w.Close()
}
