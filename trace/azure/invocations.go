package azure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"

	"lorasim/internal/textfile"
)

const (
	v2Header = "app,func,end_timestamp,duration"
	v2Name   = "AzureFunctionsInvocationTraceForTwoWeeksJan2021"
	v2Key    = 2 // columns that identify a function
)

// Invocation is one row of the 2021 trace. Times are in s since the start of
// the trace.
type Invocation struct {
	Function int32 // index in Invocations.Functions
	End      float64
	Duration float64
}

// Start returns when the invocation began.
func (v Invocation) Start() float64 { return v.End - v.Duration }

// Invocations reads the 2021 trace, row by row.
type Invocations struct {
	in        *textfile.File
	opt       Options
	progress  progress
	functions functions
	rows      int64
	skipped   int64
}

// OpenInvocations opens the trace. Path is the file, or a folder that holds it
// under its published name with the ending .txt, .csv, .txt.gz, .csv.gz or .rar.
func OpenInvocations(path string, opt Options) (*Invocations, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		path, err = find(path, v2Name+".txt", v2Name+".csv", v2Name+".txt.gz", v2Name+".csv.gz", v2Name+".rar")
		if err != nil {
			return nil, err
		}
	}
	r := &Invocations{opt: opt, progress: progress{report: opt.Progress, total: size([]string{path})}}
	if r.in, err = open(path, &r.progress); err != nil {
		return nil, err
	}
	if err := r.readHeader(); err != nil {
		r.in.Close()
		return nil, err
	}
	return r, nil
}

// readHeader checks the header.
func (r *Invocations) readHeader() error {
	line, err := r.in.Line()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty, expected a header %s", r.in.Path(), v2Header)
	}
	if err != nil {
		return err
	}
	names, wanted := bytes.Split(line, []byte(",")), bytes.Split([]byte(v2Header), []byte(","))
	for i, want := range wanted {
		if i >= len(names) {
			return badf(r.in, "the header has %d columns, expected column %d to be %s", len(names), i+1, want)
		}
		if !bytes.Equal(names[i], want) {
			return badf(r.in, "header column %d is %.60q, expected %s", i+1, names[i], want)
		}
	}
	if len(names) > len(wanted) {
		return badf(r.in, "the header has %d columns, expected %s", len(names), v2Header)
	}
	return nil
}

// Functions returns the functions met so far, in the order of first appearance.
func (r *Invocations) Functions() []Function { return r.functions.list }

// Skipped returns the number of malformed rows passed over so far.
func (r *Invocations) Skipped() int64 { return r.skipped }

// Where returns the file and line of the row last read, for messages.
func (r *Invocations) Where() string { return r.in.Where() }

// Close closes the file.
func (r *Invocations) Close() error { return r.in.Close() }

// Next returns the next row, or io.EOF after the last one.
func (r *Invocations) Next() (Invocation, error) {
	for {
		line, err := r.in.Line()
		if errors.Is(err, io.EOF) && r.rows == 0 {
			return Invocation{}, fmt.Errorf("%s: no rows%s", r.in.Path(), skippedNote(r.skipped))
		}
		if err != nil {
			return Invocation{}, err
		}
		v, err := r.parse(line)
		if err == nil {
			r.rows++
			return v, nil
		}
		if !r.opt.SkipBadRows || !skippable(err) {
			return Invocation{}, err
		}
		r.skipped++
	}
}

func (r *Invocations) parse(line []byte) (v Invocation, err error) {
	if got := bytes.Count(line, []byte(",")) + 1; got != 4 {
		return v, badf(r.in, "%d fields, expected %s", got, v2Header)
	}
	app := bytes.IndexByte(line, ',')
	key := app + 1 + bytes.IndexByte(line[app+1:], ',')
	end, duration, _ := bytes.Cut(line[key+1:], []byte(","))
	if v.End, err = r.seconds("end_timestamp", end); err != nil {
		return v, err
	}
	if v.Duration, err = r.seconds("duration", duration); err != nil {
		return v, err
	}
	v.Function = r.functions.index(line[:key], v2Key)
	return v, nil
}

func (r *Invocations) seconds(column string, field []byte) (float64, error) {
	v, err := strconv.ParseFloat(string(field), 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return 0, badField(r.in, column, field, "a number of seconds >= 0")
	}
	return v, nil
}
