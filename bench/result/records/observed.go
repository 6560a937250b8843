package records

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// observed is a row of trace.csv of `blis observe` (inference-sim, TraceV2). Times are in
// us. Arrivals count from the start of the run; the other times are on the client's clock.
type observed struct {
	id                                   int64
	arrival, sent, firstChunk, lastChunk float64
	serverInput, input, output           int32
	status, fault                        string
	columns                              []table.Column
}

func newObserved() *observed {
	o := &observed{}
	o.columns = []table.Column{
		{Name: "request_id", Value: &o.id},
		{Name: "arrival_time_us", Value: &o.arrival},
		{Name: "send_time_us", Value: &o.sent},
		{Name: "first_chunk_time_us", Value: &o.firstChunk},
		{Name: "last_chunk_time_us", Value: &o.lastChunk},
		{Name: "server_input_tokens", Value: &o.serverInput, Optional: true},
		{Name: "input_tokens", Value: &o.input, Optional: true},
		{Name: "output_tokens", Value: &o.output},
		{Name: "status", Value: &o.status, Optional: true},
		{Name: "error_message", Value: &o.fault, Optional: true},
	}
	return o
}

// clear empties the optional cells before a row is read.
func (o *observed) clear() { o.serverInput, o.input, o.status, o.fault = 0, 0, "", "" }

// firstLine returns the first line of a text file, "" if it has none that can be read. A pipe counts as none: its first
// line could not be read again.
func firstLine(ctx context.Context, files trace.Files, path string) string {
	if files.FS == nil {
		if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
			return ""
		}
	}
	f, err := textfile.OpenIn(ctx, files.FS, path, nil)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, err := f.Line()
	if err != nil {
		return ""
	}
	return string(line)
}

// containsAll reports whether a line contains all names.
func containsAll(line string, names ...string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !strings.Contains(line, name) })
}

// extension is the extension of a file, without that of its compression.
func extension(path string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(path), ".gz"))
}

// isObserved reports whether a file is a trace of `blis observe`, by its header.
func isObserved(ctx context.Context, files trace.Files, path string) bool {
	return extension(path) == ".csv" && observes(firstLine(ctx, files, path))
}

// observes reports whether a header is one of `blis observe`.
func observes(line string) bool {
	return containsAll(line, "send_time_us", "first_chunk_time_us", "last_chunk_time_us")
}

// Has reports whether a file has records of requests: it is binary, or its first line names their columns.
func Has(ctx context.Context, files trace.Files, path string) bool {
	switch extension(path) {
	case ".parquet", ".arrow":
		return true
	case ".csv", ".jsonl":
		line := firstLine(ctx, files, path)
		return containsAll(line, "arrival_s", "sent_s") || observes(line)
	}
	return false
}

// readObserved reads a whole trace. Time 0 of the records is the start of the run: the
// latest instant for which no request was sent before its arrival.
func readObserved(ctx context.Context, files trace.Files, path string,
	left *LeftOut) (rs []record.Request, err error) {
	o := newObserved()
	f, err := table.Open(ctx, path, o.columns, table.Options{Files: table.Files(files)})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := math.Inf(1)
	var first error // of a row
	for {
		o.clear()
		err := f.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			if column, fault := check(o.columns); fault != nil {
				err = f.Bad(column, fault)
			}
		}
		if err != nil {
			first = cmp.Or(first, err)
			if err = left.skip(err, path); err != nil {
				return nil, err
			}
			continue
		}
		r := record.Request{ID: o.id, Adapter: -1, Arrival: o.arrival / 1e6, Sent: o.sent / 1e6,
			FirstToken: o.firstChunk / 1e6, Finish: o.lastChunk / 1e6, Prompt: o.serverInput, Output: o.output,
			WorkerFirst: -1, WorkerLast: -1}
		if r.Prompt == 0 {
			r.Prompt = o.input
		}
		if o.status != "" && o.status != "ok" || r.FirstToken < r.Sent || r.Finish < r.FirstToken {
			r.Status, r.Error = record.Failed, clean(o.fault)
			r.FirstToken = math.NaN()
		}
		if fault := Fault(&r); fault != nil {
			left.skip(f.Bad("", fault), path)
			continue
		}
		start = min(start, r.Sent-r.Arrival)
		rs = append(rs, r)
	}
	if len(rs) == 0 && first != nil {
		return nil, first
	}
	if len(rs) == 0 {
		return nil, fmt.Errorf("%s: holds no request", path)
	}
	for i := range rs {
		r := &rs[i]
		r.Sent, r.FirstToken, r.Finish = r.Sent-start, r.FirstToken-start, r.Finish-start
	}
	slices.SortStableFunc(rs, func(a, b record.Request) int { return cmp.Compare(a.ID, b.ID) })
	return rs, nil
}
