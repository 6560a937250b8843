package azure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/textfile"
)

// reader is the common part of the readers of both formats.
type reader struct {
	opt     Options
	ctx     context.Context // ends the wait for a pipe
	in      *textfile.File  // nil: none open
	rows    int64           // accepted from the open file
	skipped int64

	read, total int64 // bytes of all files on the disk

	functions []Function
	index     map[string]int32 // by the names as the rows begin with them
}

// Functions returns the functions read so far, in the order of first appearance.
func (r *reader) Functions() []Function { return r.functions }

// Skipped returns the number of malformed rows that were skipped so far.
func (r *reader) Skipped() int64 { return r.skipped }

// Where returns the file and line of the last row read, for messages.
func (r *reader) Where() string { return r.in.Where() }

// Close closes the open file.
func (r *reader) Close() error {
	if r.in == nil {
		return nil
	}
	err := r.in.Close()
	r.in = nil
	return err
}

// count adds the sizes of files to what there is to read.
func (r *reader) count(files ...string) {
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			r.total += info.Size()
		}
	}
}

// open opens the next file.
func (r *reader) open(name string) (err error) {
	var progress func(n int64) error
	if before := r.read; r.opt.Progress != nil {
		progress = func(n int64) error {
			r.read = before + n
			return r.opt.Progress(r.read, r.total)
		}
	}
	r.in, err = textfile.Open(r.ctx, name, progress)
	return err
}

// header reads the header of the open file, which must begin with these columns, and returns the columns after them.
// more describes the expected further columns, for messages.
func (r *reader) header(columns []string, more string) ([][]byte, error) {
	line, err := r.in.Line()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty, expected a header %s%s", r.in.Path(), strings.Join(columns, ","),
			more)
	}
	if err != nil {
		return nil, err
	}
	names := bytes.Split(line, []byte(","))
	for i, want := range columns {
		if i >= len(names) {
			return nil, r.badf("the header has %d columns, expected column %d to be %s", len(names), i+1, want)
		}
		if string(names[i]) != want {
			return nil, r.badf("header column %d is %.60q, expected %s", i+1, names[i], want)
		}
	}
	return names[len(columns):], nil
}

// next hands the next well-formed row of the open file to parse. It returns
// io.EOF after the last one; a file without any is an error.
func (r *reader) next(parse func(line []byte) error) error {
	for {
		line, err := r.in.Line()
		if errors.Is(err, io.EOF) && r.rows == 0 {
			err = fmt.Errorf("%s: no rows", r.in.Path())
			if r.skipped > 0 {
				err = fmt.Errorf("%w but %d malformed ones", err, r.skipped)
			}
		}
		if err != nil {
			return err
		}
		if err = parse(line); err == nil {
			r.rows++
			return nil
		}
		var bad *textfile.RowError
		if !r.opt.SkipBadRows || !errors.As(err, &bad) {
			return err
		}
		r.skipped++
	}
}

// badf returns the error of a fault in the line last read; SkipBadRows passes
// over one in a row.
func (r *reader) badf(format string, args ...any) error {
	return r.in.Bad("", fmt.Errorf(format, args...))
}

// function returns the number of the function whose row begins with key, the
// comma-separated names; columns is their number.
func (r *reader) function(key []byte, columns int) int32 {
	if i, ok := r.index[string(key)]; ok { // does not allocate
		return i
	}
	if r.index == nil {
		r.index = make(map[string]int32)
	}
	i := int32(len(r.functions))
	r.index[string(key)] = i
	names := strings.SplitN(string(key), ",", columns)
	f := Function{App: names[columns-2], Func: names[columns-1]}
	if columns == 3 {
		f.Owner = names[0]
	}
	r.functions = append(r.functions, f)
	return i
}

// find returns the first of the names that exists in the folder dir.
func find(dir string, names ...string) (string, error) {
	for _, n := range names {
		p := filepath.Join(dir, n)
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: expected a file %s there: %w", dir, strings.Join(names, " or "), os.ErrNotExist)
}

const (
	v2Header = "app,func,end_timestamp,duration"
	v2Name   = "AzureFunctionsInvocationTraceForTwoWeeksJan2021"
)

// Invocation is one row of the 2021 trace. Times are in s since the start of
// the trace.
type Invocation struct {
	Function int32 // index in Invocations.Functions
	End      float64
	Duration float64
}

// Start returns the start of the invocation, s since the start of the trace.
func (v Invocation) Start() float64 { return v.End - v.Duration }

// Invocations is a reader of the 2021 trace, row by row.
type Invocations struct{ reader }

// OpenInvocations opens the 2021 trace. Path is the file, or a folder that holds it under its published name with
// the extension .txt, .csv, .txt.gz, .csv.gz or .rar.
func OpenInvocations(ctx context.Context, path string, opt Options) (*Invocations, error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path, err = find(path, v2Name+".txt", v2Name+".csv", v2Name+".txt.gz", v2Name+".csv.gz", v2Name+".rar")
	}
	if err != nil {
		return nil, err
	}
	r := &Invocations{reader{ctx: ctx, opt: opt}}
	r.count(path)
	if err := r.open(path); err != nil {
		return nil, err
	}
	if err := r.readHeader(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Invocations) readHeader() error {
	columns := strings.Split(v2Header, ",")
	more, err := r.header(columns, "")
	if err == nil && len(more) > 0 {
		err = r.badf("the header has %d columns, expected %s", len(columns)+len(more), v2Header)
	}
	return err
}

// Next returns the next row, or io.EOF after the last one.
func (r *Invocations) Next() (v Invocation, err error) {
	err = r.next(func(line []byte) (err error) { v, err = r.parse(line); return err })
	return v, err
}

func (r *Invocations) parse(line []byte) (v Invocation, err error) {
	if got := bytes.Count(line, []byte(",")) + 1; got != 4 {
		return v, r.badf("%d fields, expected %s", got, v2Header)
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
	v.Function = r.function(line[:key], 2)
	return v, nil
}

func (r *Invocations) seconds(column string, field []byte) (float64, error) {
	v, err := strconv.ParseFloat(string(field), 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 1) {
		return 0, r.badf("column %s is %.60q, expected a number of seconds >= 0", column, field)
	}
	return v, nil
}

// v1Names are the columns before the minutes; the first three identify a function.
var v1Names = []string{"HashOwner", "HashApp", "HashFunction", "Trigger"}

// A MinuteRow is the row of one function in the file of one day.
type MinuteRow struct {
	Function int32   // index in Minutes.Functions
	First    int     // minute of Counts[0], counted from the start of day 0
	Counts   []int32 // invocations per minute of the window; valid until the next Next
}

// Minutes is a reader of the files of the 2019 trace that cover a window, row by row.
type Minutes struct {
	reader
	window  Window
	days    []string // files, one per day
	first   int      // day of days[0]
	next    int      // index in days of the next file
	columns minuteColumns
	counts  []int32
}

// minuteColumns are the minute columns of a file and those of interest.
type minuteColumns struct {
	first, count int // name of the first one, and their number
	skip, take   int // columns to skip after Trigger, then to read
	minute       int // of the first one to read, from the start of day 0
}

// OpenMinutes opens the files of the 2019 trace for a window. Path is a folder or one file. In a folder, day N (from
// 0) is invocations_per_function_md.anon.dNN.csv or .csv.gz with NN = N+1 from 01. A single file is taken as the day
// of the window, whatever its name. A file may hold fewer minutes than a whole day. Minute columns are identified by
// their names, 1 to 1440: column k is the minute that starts k-1 minutes into the day.
func OpenMinutes(ctx context.Context, path string, w Window, opt Options) (*Minutes, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m := &Minutes{reader: reader{ctx: ctx, opt: opt}, window: w, first: w.Start / minutesPerDay}
	last := (w.End - 1) / minutesPerDay
	switch {
	case info.IsDir():
		for day := m.first; day <= last; day++ {
			file, err := find(path, dayFile(day), dayFile(day)+".gz")
			if err != nil {
				return nil, fmt.Errorf("day %d of the window %v: %w", day, w, err)
			}
			m.days = append(m.days, file)
		}
	case last > m.first:
		return nil, fmt.Errorf("%s: one file holds one day, but the window %v spans days %d to %d: expected the folder of the daily files", path, w, m.first, last)
	default:
		m.days = []string{path}
	}
	m.count(m.days...)
	return m, nil
}

func dayFile(day int) string { return fmt.Sprintf("invocations_per_function_md.anon.d%02d.csv", day+1) }

// Next returns the next row, or io.EOF after the last one of the last file.
func (m *Minutes) Next() (row MinuteRow, err error) {
	for {
		if m.in == nil {
			if m.next == len(m.days) {
				return row, io.EOF
			}
			if err := m.open(m.days[m.next]); err != nil {
				return row, err
			}
			m.next++
			if err := m.startDay(m.first + m.next - 1); err != nil {
				return row, err
			}
		}
		err = m.reader.next(func(line []byte) (err error) { row, err = m.parse(line); return err })
		if !errors.Is(err, io.EOF) {
			return row, err
		}
		if err := m.Close(); err != nil {
			return row, err
		}
	}
}

// startDay reads the header of the open file, that of a day, and finds the
// columns of the window in it.
func (m *Minutes) startDay(day int) error {
	m.rows = 0
	minutes, err := m.header(v1Names, " and the minutes 1 to 1440")
	if err != nil {
		return err
	}
	if len(minutes) == 0 {
		return m.badf("the header has no minute columns after Trigger, expected 1 to %d or a part of them",
			minutesPerDay)
	}
	c := &m.columns
	for i, name := range minutes {
		v, err := strconv.ParseUint(string(name), 10, 16)
		if i == 0 {
			c.first = int(v)
		}
		if err != nil || v < 1 || v > minutesPerDay || int(v) != c.first+i {
			return m.badf("header column %d is %.60q, expected a minute from 1 to %d: minutes follow one another",
				len(v1Names)+i+1, name, minutesPerDay)
		}
	}
	c.count = len(minutes)
	midnight := day * minutesPerDay
	from, to := max(m.window.Start, midnight), min(m.window.End, midnight+minutesPerDay)
	firstName, lastName := from-midnight+1, to-midnight
	if firstName < c.first || lastName >= c.first+c.count {
		return m.badf("the window %v needs the minute columns %d to %d of this file, which has %d to %d",
			m.window, firstName, lastName, c.first, c.first+c.count-1)
	}
	c.skip, c.take, c.minute = firstName-c.first, to-from, from
	return nil
}

// parse parses a row. Only the counts of the window are looked at. (Several times
// as fast as splitting all 1444 fields.)
func (m *Minutes) parse(line []byte) (MinuteRow, error) {
	if got, want := bytes.Count(line, []byte(","))+1, len(v1Names)+m.columns.count; got != want {
		return MinuteRow{}, m.badf("%d fields, expected %d as in the header", got, want)
	}
	rest := line
	skip := func(n int) {
		for range n {
			rest = rest[bytes.IndexByte(rest, ',')+1:]
		}
	}
	skip(3)
	key := line[:len(line)-len(rest)-1]
	skip(1 + m.columns.skip) // Trigger and minutes
	m.counts = m.counts[:0]
	for i := range m.columns.take {
		v, n := parseCount(rest)
		if n < 0 {
			field, _, _ := bytes.Cut(rest, []byte(","))
			return MinuteRow{}, m.badf("column %d is %.60q, expected a whole number from 0 to %d",
				m.columns.first+m.columns.skip+i, field, math.MaxInt32)
		}
		m.counts = append(m.counts, v)
		rest = rest[n:]
	}
	return MinuteRow{m.function(key, 3), m.columns.minute, m.counts}, nil
}

// parseCount parses the digits at the start of b up to a comma or the end. It
// returns the number and how many bytes to go on by, or -1.
func parseCount(b []byte) (v int32, n int) {
	var x int64
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			if x = x*10 + int64(c-'0'); x > math.MaxInt32 {
				return 0, -1
			}
		case c == ',' && i > 0:
			return int32(x), i + 1
		default:
			return 0, -1
		}
	}
	if len(b) == 0 {
		return 0, -1
	}
	return int32(x), len(b)
}
