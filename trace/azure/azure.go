// Package azure reads and writes the two public Azure Functions traces. [ReadHistogram] counts the invocations of
// either trace per function and interval, which is enough for most replays.
//
// The 2019 trace (format [V1], "Serverless in the Wild", USENIX ATC'20) has one file a day,
// invocations_per_function_md.anon.dNN.csv. It holds the number of invocations of each function in each of the day's
// 1440 minutes. [Minutes] reads it.
//
// The 2021 trace (format [V2], "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP'21) has one
// file, AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt, with one row per invocation. [Invocations] reads it.
// The trace is published as a .rar file; the package reads .rar files and files compressed with gzip directly.
//
//	r, err := azure.OpenInvocations(ctx, "traces/", azure.Options{})
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
// Both traces are published by the AzurePublicDataset under CC-BY 4.0.
package azure

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"context"
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

// Format is the name of one of the two trace formats.
type Format string

// The formats.
const (
	V1 Format = "azure_v1" // invocations per function and minute, 2019
	V2 Format = "azure_v2" // one row per invocation, 2021
)

// A Function identifies a function of a trace by its hashed names. Functions of different applications may share a
// name.
type Function struct {
	Owner string // empty in V2
	App   string
	Func  string
}

// Compare compares functions by owner, application and name. It returns a negative number, 0 or a positive number.
func (f Function) Compare(g Function) int {
	return cmp.Or(strings.Compare(f.Owner, g.Owner), strings.Compare(f.App, g.App), strings.Compare(f.Func, g.Func))
}

// Options are the options of the readers.
type Options struct {
	// SkipBadRows skips malformed rows and counts them, instead of failing at the first one. A bad header or an
	// unreadable file is still an error.
	SkipBadRows bool
	// Progress, if not nil, is called from time to time with the number of bytes read so far and in total, both
	// of the files on disk. If it returns an error, reading ends with this error.
	Progress func(read, total int64) error
}

const minutesPerDay = 24 * 60

// An Instant is a minute of a trace. Days count from 0.
type Instant struct {
	Day    int
	Minute int // of the day; hour 24 and minute 60 are legal, so that "0.0.60" can end the first hour
}

// Minutes returns the minutes since the start of day 0.
func (i Instant) Minutes() int { return i.Day*minutesPerDay + i.Minute }

// ParseInstant parses "day.hour.minute".
func ParseInstant(s string) (i Instant, err error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return i, fmt.Errorf("time %q: expected day.hour.minute, such as 0.0.60", s)
	}
	for k, unit := range [3]struct {
		name   string
		max    int
		to     *int
		factor int
	}{{"day", 9999, &i.Day, 1}, {"hour", 24, &i.Minute, 60}, {"minute", 60, &i.Minute, 1}} {
		n, err := strconv.ParseUint(parts[k], 10, 16)
		if err != nil || int(n) > unit.max {
			return Instant{}, fmt.Errorf("time %q: %s is %q, expected a whole number from 0 to %d", s, unit.name,
				parts[k], unit.max)
		}
		*unit.to += int(n) * unit.factor
	}
	return i, nil
}

// A Window is a time span of a trace, from the start of minute Start to the start of minute End. Minutes count from
// the start of day 0.
type Window struct{ Start, End int }

// NewWindow returns the window between two instants.
func NewWindow(start, end Instant) (Window, error) {
	w := Window{start.Minutes(), end.Minutes()}
	if w.End <= w.Start {
		return w, fmt.Errorf("window %v: expected its end to be after its start", w)
	}
	return w, nil
}

// Minutes returns the length of the window, minutes.
func (w Window) Minutes() int { return w.End - w.Start }

// Intervals returns the number of intervals of the given length (minutes) in the window. The last one may be
// shorter.
func (w Window) Intervals(minutes int) int { return (w.Minutes() + minutes - 1) / minutes }

// Seconds returns the start and the end of the window, s since the start of day 0.
func (w Window) Seconds() (start, end float64) { return 60 * float64(w.Start), 60 * float64(w.End) }

// String returns the window as two instants.
func (w Window) String() string {
	instant := func(m int) string {
		return fmt.Sprintf("%d.%d.%d", m/minutesPerDay, m%minutesPerDay/60, m%60)
	}
	return instant(w.Start) + " to " + instant(w.End)
}

// Query describes what ReadHistogram counts.
type Query struct {
	Format   Format
	Window   Window
	Interval int // length of an interval, minutes, >= 1
	// ByEnd counts an invocation of V2 in the interval in which it ends, rather than starts. V1 does not say
	// whether its minutes are those of starts or ends.
	ByEnd bool
}

// A Histogram holds the invocations per function and interval of a window.
type Histogram struct {
	// Functions holds every function of the files in the order of first appearance, including those without
	// traffic in the window.
	Functions []Function
	// Counts holds the invocations per interval of each function; nil means no invocations.
	Counts  [][]int64
	Skipped int64 // malformed rows that were skipped
}

// ReadHistogram counts the invocations of a window. Memory grows with the functions and their counts, not with the
// size of the files.
func ReadHistogram(ctx context.Context, path string, q Query, opt Options) (*Histogram, error) {
	h, read := &Histogram{}, (*Histogram).readInvocations
	if q.Format == V1 {
		read = (*Histogram).readMinutes
	}
	if err := read(h, ctx, path, q, opt); err != nil {
		return nil, err
	}
	return h, nil
}

// add counts n invocations of a function in one of the given number of intervals; n may be 0.
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

func (h *Histogram) readMinutes(ctx context.Context, path string, q Query, opt Options) error {
	m, err := OpenMinutes(ctx, path, q.Window, opt)
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

func (h *Histogram) readInvocations(ctx context.Context, path string, q Query, opt Options) error {
	r, err := OpenInvocations(ctx, path, opt)
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

// readAll counts the rows of a reader, and copies its functions.
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

// functionOf returns the name, owner and application of the function of an adapter. Names sort as adapter indices
// do. So a replay with as many adapters, which assigns functions in that order, gives each adapter its own requests
// back.
func functionOf(adapter int32) string { return fmt.Sprintf("%016x", adapter) }

// exported calls do for each request of a source.
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

// WriteInvocations writes the requests of src as a file of the 2021 trace, compressed if the name ends in .gz. It
// writes one function per adapter and one row per request in the order of arrival. A row holds the end of an
// execution of duration() seconds, so rows are not in the order of ends. Numbers read back exactly. WriteInvocations
// returns the number of rows.
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

// WriteMinutes writes the requests of src as files of the 2019 trace in a folder: one file per day, from day 0 to
// the day of the last request, with one row per adapter. It returns the number of files. Memory is that of one day:
// 5.6 KiB per adapter in use.
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
