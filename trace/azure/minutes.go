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

// v1Names are the columns before the minutes.
var v1Names = [...]string{"HashOwner", "HashApp", "HashFunction", "Trigger"}

const v1Key = 3 // columns that identify a function

// MinuteRow is the row of one function in one day's file.
type MinuteRow struct {
	Function int32   // index in Minutes.Functions
	First    int     // the minute of Counts[0], from the start of day 0
	Counts   []int32 // invocations per minute of the window; valid until the next Next
}

// Minutes reads the files of the 2019 trace that hold a window, row by row.
type Minutes struct {
	window  Window
	opt     Options
	days    []string       // files, one per day
	first   int            // day of days[0]
	next    int            // index in days of the next file
	in      *textfile.File // nil: none open
	columns minuteColumns
	counts  []int32
	rows    int64 // accepted from the open file

	progress  progress
	functions functions
	skipped   int64
}

// minuteColumns are the minute columns of a file and those of interest.
type minuteColumns struct {
	first, count int // name of the first one, and their number
	skip, take   int // columns to skip after Trigger, then to read
	minute       int // of the first one to read, from the start of day 0
}

// OpenMinutes opens the files of a window. Path is a folder, in which day N
// (from 0) is invocations_per_function_md.anon.dNN.csv or .csv.gz with NN = N+1
// from 01, or one file, which is taken for the day of the window whatever its
// name. A file may hold fewer minutes than a whole day: minute columns go by
// their names, 1 to 1440, where column k holds the minute that starts k-1
// minutes into the day.
func OpenMinutes(path string, w Window, opt Options) (*Minutes, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	m := &Minutes{window: w, opt: opt, first: w.Start / minutesPerDay}
	last := (w.End - 1) / minutesPerDay
	switch {
	case info.IsDir():
		for day := m.first; day <= last; day++ {
			name := fmt.Sprintf("invocations_per_function_md.anon.d%02d.csv", day+1)
			file, err := find(path, name, name+".gz")
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
	m.progress = progress{report: opt.Progress, total: size(m.days)}
	return m, nil
}

// Functions returns the functions met so far, in the order of first appearance.
func (m *Minutes) Functions() []Function { return m.functions.list }

// Skipped returns the number of malformed rows passed over so far.
func (m *Minutes) Skipped() int64 { return m.skipped }

// Close closes the files.
func (m *Minutes) Close() error {
	if m.in == nil {
		return nil
	}
	err := m.in.Close()
	m.in = nil
	return err
}

// Next returns the next row, or io.EOF after the last one of the last file.
func (m *Minutes) Next() (MinuteRow, error) {
	for {
		if m.in == nil {
			if m.next == len(m.days) {
				return MinuteRow{}, io.EOF
			}
			if err := m.openDay(); err != nil {
				return MinuteRow{}, err
			}
		}
		line, err := m.in.Line()
		if errors.Is(err, io.EOF) {
			err = m.endDay()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return MinuteRow{}, err
		}
		row, err := m.parse(line)
		if err == nil {
			m.rows++
			return row, nil
		}
		if !m.opt.SkipBadRows || !skippable(err) {
			return MinuteRow{}, err
		}
		m.skipped++
	}
}

// openDay opens the next file.
func (m *Minutes) openDay() error {
	in, err := open(m.days[m.next], &m.progress)
	if err != nil {
		return err
	}
	m.next++
	return m.startDay(in, m.first+m.next-1)
}

// startDay reads the header of the file of a day.
func (m *Minutes) startDay(in *textfile.File, day int) error {
	m.in, m.rows = in, 0
	header, err := in.Line()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: the file is empty, expected a header %s,%s,%s,%s and the minutes 1 to 1440", in.Path(), v1Names[0], v1Names[1], v1Names[2], v1Names[3])
	}
	if err != nil {
		return err
	}
	m.columns, err = minuteHeader(in, header)
	if err != nil {
		return err
	}
	return m.choose(day)
}

// minuteHeader parses the header of a file.
func minuteHeader(in *textfile.File, header []byte) (c minuteColumns, err error) {
	names := bytes.Split(header, []byte(","))
	for i, want := range v1Names {
		if i >= len(names) {
			return c, badf(in, "the header has %d columns, expected column %d to be %s", len(names), i+1, want)
		}
		if string(names[i]) != want {
			return c, badf(in, "header column %d is %.60q, expected %s", i+1, names[i], want)
		}
	}
	minutes := names[len(v1Names):]
	if len(minutes) == 0 {
		return c, badf(in, "the header has no minute columns after %s, expected 1 to %d or a part of them", v1Names[3], minutesPerDay)
	}
	for i, name := range minutes {
		v, err := strconv.ParseUint(string(name), 10, 16)
		switch {
		case err != nil || v < 1 || v > minutesPerDay:
			return c, badf(in, "header column %d is %.60q, expected a minute from 1 to %d", len(v1Names)+i+1, name, minutesPerDay)
		case i == 0:
			c.first = int(v)
		case int(v) != c.first+i:
			return c, badf(in, "header column %d is minute %d, expected %d: minutes follow one another", len(v1Names)+i+1, v, c.first+i)
		}
	}
	c.count = len(minutes)
	return c, nil
}

// choose finds the columns of the window in the open file of a day.
func (m *Minutes) choose(day int) error {
	c := &m.columns
	midnight := day * minutesPerDay
	from := max(m.window.Start, midnight)
	to := min(m.window.End, midnight+minutesPerDay)
	firstName, lastName := from-midnight+1, to-midnight
	if firstName < c.first || lastName >= c.first+c.count {
		return badf(m.in, "the window %v needs the minute columns %d to %d of this file, which has %d to %d",
			m.window, firstName, lastName, c.first, c.first+c.count-1)
	}
	c.skip, c.take, c.minute = firstName-c.first, to-from, from
	return nil
}

// endDay closes the file of a day.
func (m *Minutes) endDay() error {
	if m.rows == 0 {
		return fmt.Errorf("%s: no rows%s", m.in.Path(), skippedNote(m.skipped))
	}
	return m.Close()
}

func skippedNote(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" but %d malformed ones", n)
}

// parse parses a row. Only the counts of the window are looked at.
func (m *Minutes) parse(line []byte) (MinuteRow, error) {
	if got, want := bytes.Count(line, []byte(","))+1, len(v1Names)+m.columns.count; got != want {
		return MinuteRow{}, badf(m.in, "%d fields, expected %d as in the header", got, want)
	}
	rest := line
	for range v1Key {
		rest = rest[bytes.IndexByte(rest, ',')+1:]
	}
	key := line[:len(line)-len(rest)-1]
	rest = rest[bytes.IndexByte(rest, ',')+1:] // Trigger
	for range m.columns.skip {
		rest = rest[bytes.IndexByte(rest, ',')+1:]
	}
	counts := m.counts[:0]
	for i := range m.columns.take {
		v, n := parseCount(rest)
		if n < 0 {
			field, _, _ := bytes.Cut(rest, []byte(","))
			name := strconv.Itoa(m.columns.first + m.columns.skip + i)
			return MinuteRow{}, badField(m.in, name, field, fmt.Sprintf("a whole number from 0 to %d", math.MaxInt32))
		}
		counts = append(counts, v)
		rest = rest[n:]
	}
	m.counts = counts
	return MinuteRow{m.functions.index(key, v1Key), m.columns.minute, counts}, nil
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
