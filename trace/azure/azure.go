// Package azure reads and writes the two public Azure Functions traces.
//
// The 2019 trace (format [V1], "Serverless in the Wild", USENIX ATC'20) holds
// one file a day, invocations_per_function_md.anon.dNN.csv, with the number of
// invocations of each function in each of the day's 1440 minutes. [Minutes]
// reads it.
//
// The 2021 trace (format [V2], "Faster and Cheaper Serverless Computing on
// Harvested Resources", SOSP'21) holds one file,
// AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt, with one row per
// invocation. [Invocations] reads it. The trace is published as a .rar, which
// is read directly; so are files compressed with gzip.
//
//	r, err := azure.OpenInvocations("traces/", azure.Options{})
//	if err != nil {
//		return err
//	}
//	defer r.Close()
//	for {
//		v, err := r.Next()
//		if errors.Is(err, io.EOF) {
//			return nil
//		}
//		if err != nil {
//			return err
//		}
//		f := r.Functions()[v.Function]
//		fmt.Println(f.App, f.Func, v.Start())
//	}
//
// [ReadHistogram] reduces either to invocations per function and interval,
// which is all that most replays need. Both traces are published by the
// AzurePublicDataset under CC-BY 4.0.
package azure

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/atomicfile"
	"lorasim/trace"
)

// Format names one of the two schemas.
type Format string

// The formats.
const (
	V1 Format = "azure_v1" // invocations per function and minute, 2019
	V2 Format = "azure_v2" // one row per invocation, 2021
)

// Function identifies a function of a trace by its hashed names. Functions of
// different applications may share a name.
type Function struct {
	Owner string // empty in V2
	App   string
	Func  string
}

// Compare orders functions by owner, application and name.
func (f Function) Compare(g Function) int {
	return cmp.Or(strings.Compare(f.Owner, g.Owner), strings.Compare(f.App, g.App), strings.Compare(f.Func, g.Func))
}

// Options say how to read.
type Options struct {
	// SkipBadRows passes over malformed rows instead of failing at the first
	// one; the readers count them. A bad header or an unreadable file remains
	// an error.
	SkipBadRows bool
	// Progress, if not nil, is called now and then with the bytes read so far and the bytes to read in all, both
	// of the files on disk. Its error ends the reading.
	Progress func(read, total int64) error
}

const minutesPerDay = 24 * 60

// ParseInstant reads a minute of a trace, "d.h.m" with days counted from 0, and
// returns its distance from the start of day 0. Hour 24 and minute 60 are legal, so
// that "0.0.60" can end the first hour.
func ParseInstant(s string) (minute int, err error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return 0, fmt.Errorf("time %q: expected day.hour.minute, such as 0.0.60", s)
	}
	for i, unit := range [3]struct {
		name         string
		max, minutes int
	}{{"day", 9999, minutesPerDay}, {"hour", 24, 60}, {"minute", 60, 1}} {
		n, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil || int(n) > unit.max {
			return 0, fmt.Errorf("time %q: %s is %q, expected a whole number from 0 to %d", s, unit.name, parts[i],
				unit.max)
		}
		minute += int(n) * unit.minutes
	}
	return minute, nil
}

// Window is a span of minutes of a trace, counted from the start of day 0:
// from the start of minute Start to the start of minute End.
type Window struct{ Start, End int }

// ParseWindow reads the start and the end of a window as ParseInstant does.
func ParseWindow(start, end string) (w Window, err error) {
	if w.Start, err = ParseInstant(start); err != nil {
		return w, fmt.Errorf("start %w", err)
	}
	if w.End, err = ParseInstant(end); err != nil {
		return w, fmt.Errorf("end %w", err)
	}
	if w.End <= w.Start {
		return w, fmt.Errorf("window %v: expected its end to be after its start", w)
	}
	return w, nil
}

// Minutes returns the length of the window.
func (w Window) Minutes() int { return w.End - w.Start }

// Intervals returns how many intervals of the given minutes the window has;
// the last one may be shorter.
func (w Window) Intervals(minutes int) int { return (w.Minutes() + minutes - 1) / minutes }

// Seconds returns the start and the end of the window in s since the start of
// day 0.
func (w Window) Seconds() (start, end float64) { return 60 * float64(w.Start), 60 * float64(w.End) }

// String returns the window as two instants.
func (w Window) String() string {
	instant := func(m int) string {
		return fmt.Sprintf("%d.%d.%d", m/minutesPerDay, m%minutesPerDay/60, m%60)
	}
	return instant(w.Start) + " to " + instant(w.End)
}

// Query says what to count.
type Query struct {
	Format   Format
	Window   Window
	Interval int // minutes, >= 1
	// ByEnd counts an invocation of V2 when it ends rather than when it starts.
	// V1 does not say which of the two its minutes mean.
	ByEnd bool
}

// Histogram holds the invocations per function and interval of a window.
type Histogram struct {
	// Functions holds every function of the files, also those without traffic
	// in the window, in the order of first appearance.
	Functions []Function
	// Counts holds for each function the invocations per interval; nil stands
	// for none at all.
	Counts  [][]int64
	Skipped int64 // malformed rows passed over
}

// ReadHistogram counts the invocations of a window. Its memory is that of the
// functions and their counts, whatever the size of the files.
func ReadHistogram(path string, q Query, opt Options) (*Histogram, error) {
	h, read := &Histogram{}, (*Histogram).readInvocations
	if q.Format == V1 {
		read = (*Histogram).readMinutes
	}
	if err := read(h, path, q, opt); err != nil {
		return nil, err
	}
	return h, nil
}

// add counts n invocations of a function in one of so many intervals; n may be 0.
func (h *Histogram) add(function int32, interval, intervals int, n int64) {
	for int(function) >= len(h.Counts) {
		h.Counts = append(h.Counts, nil)
	}
	if n == 0 {
		return
	}
	if h.Counts[function] == nil {
		h.Counts[function] = make([]int64, intervals)
	}
	h.Counts[function][interval] += n
}

func (h *Histogram) readMinutes(path string, q Query, opt Options) error {
	m, err := OpenMinutes(path, q.Window, opt)
	if err != nil {
		return err
	}
	intervals := q.Window.Intervals(q.Interval)
	return readAll(h, &m.reader, m.Next, func(row MinuteRow) {
		for i, n := range row.Counts {
			h.add(row.Function, (row.First+i-q.Window.Start)/q.Interval, intervals, int64(n))
		}
	})
}

func (h *Histogram) readInvocations(path string, q Query, opt Options) error {
	r, err := OpenInvocations(path, opt)
	if err != nil {
		return err
	}
	intervals := q.Window.Intervals(q.Interval)
	from, to := q.Window.Seconds()
	return readAll(h, &r.reader, r.Next, func(v Invocation) {
		at := v.Start()
		if q.ByEnd {
			at = v.End
		}
		if from <= at && at < to {
			h.add(v.Function, int((at-from)/(60*float64(q.Interval))), intervals, 1)
		} else {
			h.add(v.Function, 0, intervals, 0)
		}
	})
}

// readAll counts the rows of a reader, and takes over what it knows of functions.
func readAll[T any](h *Histogram, r *reader, next func() (T, error), count func(T)) error {
	defer r.Close()
	row, err := next()
	for ; err == nil; row, err = next() {
		count(row)
	}
	if h.Functions, h.Skipped = r.functions, r.skipped; errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// functionOf is the name, owner and application of the function that stands for an
// adapter. Names sort as adapter indices do, so that a replay which maps functions in
// that order to as many adapters gives each adapter its own requests back.
func functionOf(adapter int32) string { return fmt.Sprintf("%016x", adapter) }

// exported calls do with each request of a source.
func exported(src trace.Source, do func(r trace.Request) error) error {
	for r, err := range trace.All(src) {
		if err == nil && r.Adapter < 0 {
			err = fmt.Errorf("request %d uses no adapter, which a function trace cannot express", r.ID)
		}
		if err == nil {
			err = do(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// WriteInvocations writes the requests of src as a file of the 2021 trace, compressed
// if the name ends in .gz: one function per adapter, one row per request in the order
// of arrival. Rows state the end of an execution, of the given length (s), and so are
// not in the order of ends. Numbers read back as they were. It returns the number of
// rows.
func WriteInvocations(src trace.Source, name string, duration func() float64) (rows int64, err error) {
	err = writeFile(name, func(w *bufio.Writer) error {
		line := []byte(v2Header + "\n")
		w.Write(line)
		return exported(src, func(r trace.Request) error {
			d, f := duration(), functionOf(r.Adapter)
			line = append(append(line[:0], f...), ',')
			line = append(append(line, f...), ',')
			line = append(strconv.AppendFloat(line, r.Arrival+d, 'f', -1, 64), ',')
			line = append(strconv.AppendFloat(line, d, 'f', -1, 64), '\n')
			rows++
			_, err := w.Write(line)
			return err
		})
	})
	return rows, err
}

// WriteMinutes writes the requests of src as files of the 2019 trace in a folder: one
// file per day from day 0 to that of the last request, with one row per adapter. It
// returns the number of files. Memory is that of one day: 5.6 KiB per adapter in use.
func WriteMinutes(src trace.Source, folder string) (files int, err error) {
	const secondsPerDay, maxDays = 86400, 99 // file names have two digits
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	day := make([][]int32, len(src.Adapters())) // by adapter and minute; nil: none
	write := func() error {
		err := writeFile(filepath.Join(folder, dayFile(files)), func(w *bufio.Writer) error { return writeDay(w, day) })
		clear(day)
		files++
		return err
	}
	err = exported(src, func(r trace.Request) error {
		if r.Arrival >= maxDays*secondsPerDay {
			return fmt.Errorf("request %d arrives at %v s, expected within %d days", r.ID, r.Arrival, maxDays)
		}
		for r.Arrival >= float64(files+1)*secondsPerDay {
			if err := write(); err != nil {
				return err
			}
		}
		if day[r.Adapter] == nil {
			day[r.Adapter] = make([]int32, minutesPerDay)
		}
		minute := int((r.Arrival - float64(files)*secondsPerDay) / 60)
		day[r.Adapter][min(minute, minutesPerDay-1)]++
		return nil
	})
	if err == nil {
		err = write()
	}
	return files, err
}

func writeDay(w *bufio.Writer, day [][]int32) error {
	line := []byte(strings.Join(v1Names, ","))
	for k := range minutesPerDay {
		line = strconv.AppendInt(append(line, ','), int64(k+1), 10)
	}
	w.Write(append(line, '\n'))
	none := make([]int32, minutesPerDay)
	for a, counts := range day {
		if counts == nil {
			counts = none
		}
		line = fmt.Appendf(line[:0], "%[1]s,%[1]s,%[1]s,http", functionOf(int32(a)))
		for _, n := range counts {
			line = strconv.AppendInt(append(line, ','), int64(n), 10)
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file, compressed if the name ends in .gz. It appears under its
// name only when it is complete.
func writeFile(name string, fill func(w *bufio.Writer) error) error {
	err := atomicfile.Write(name, func(f *atomicfile.File) error {
		w := bufio.NewWriter(f)
		if !strings.HasSuffix(name, ".gz") {
			return cmp.Or(fill(w), w.Flush())
		}
		packed := gzip.NewWriter(f)
		w.Reset(packed)
		return cmp.Or(fill(w), w.Flush(), packed.Close())
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
