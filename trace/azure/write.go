package azure

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"lorasim/internal/atomicfile"
)

// MinuteWriter writes a file of the 2019 trace.
type MinuteWriter struct {
	w       *bufio.Writer
	minutes int
	line    []byte
}

// NewMinuteWriter writes the header of a file with the minute columns first to
// last, of 1 to 1440.
func NewMinuteWriter(w io.Writer, first, last int) (*MinuteWriter, error) {
	if first < 1 || last < first || last > minutesPerDay {
		return nil, fmt.Errorf("minute columns %d to %d: expected a range within 1 to %d", first, last, minutesPerDay)
	}
	m := &MinuteWriter{w: bufio.NewWriter(w), minutes: last - first + 1}
	m.line = append(m.line, strings.Join(v1Names[:], ",")...)
	for k := first; k <= last; k++ {
		m.line = append(m.line, ',')
		m.line = strconv.AppendInt(m.line, int64(k), 10)
	}
	return m, m.endLine()
}

// Write writes the row of a function: its trigger (such as "http") and its
// invocations in each of the file's minutes.
func (m *MinuteWriter) Write(f Function, trigger string, counts []int32) error {
	if len(counts) != m.minutes {
		return fmt.Errorf("function %s: %d counts, expected %d, one per minute column", f.Func, len(counts), m.minutes)
	}
	if err := checkNames(f.Owner, f.App, f.Func, trigger); err != nil {
		return err
	}
	for _, name := range []string{f.Owner, f.App, f.Func} {
		m.line = append(append(m.line, name...), ',')
	}
	m.line = append(m.line, trigger...)
	for i, n := range counts {
		if n < 0 {
			m.line = m.line[:0]
			return fmt.Errorf("function %s: count %d is %d, expected >= 0", f.Func, i, n)
		}
		m.line = append(m.line, ',')
		m.line = strconv.AppendInt(m.line, int64(n), 10)
	}
	return m.endLine()
}

func (m *MinuteWriter) endLine() error {
	_, err := m.w.Write(append(m.line, '\n'))
	m.line = m.line[:0]
	return err
}

// Flush writes out what is buffered. Call it after the last row.
func (m *MinuteWriter) Flush() error { return m.w.Flush() }

// InvocationWriter writes a file of the 2021 trace.
type InvocationWriter struct {
	w    *bufio.Writer
	line []byte
}

// NewInvocationWriter writes the header of a file.
func NewInvocationWriter(w io.Writer) (*InvocationWriter, error) {
	iw := &InvocationWriter{w: bufio.NewWriter(w)}
	_, err := iw.w.WriteString(v2Header + "\n")
	return iw, err
}

// Write writes the row of an invocation of f; v.Function is not used. Times are
// written with as many digits as it takes to read the same numbers back.
func (w *InvocationWriter) Write(f Function, v Invocation) error {
	if err := checkNames(f.App, f.Func); err != nil {
		return err
	}
	for _, x := range []float64{v.End, v.Duration} {
		if !(x >= 0) || math.IsInf(x, 1) {
			return fmt.Errorf("function %s: time is %v, expected a number of seconds >= 0", f.Func, x)
		}
	}
	b := append(append(w.line[:0], f.App...), ',')
	b = append(append(b, f.Func...), ',')
	b = append(strconv.AppendFloat(b, v.End, 'f', -1, 64), ',')
	b = append(strconv.AppendFloat(b, v.Duration, 'f', -1, 64), '\n')
	w.line = b
	_, err := w.w.Write(b)
	return err
}

// Flush writes out what is buffered. Call it after the last row.
func (w *InvocationWriter) Flush() error { return w.w.Flush() }

// checkNames refuses names that would break a row apart.
func checkNames(names ...string) error {
	for _, n := range names {
		if strings.ContainsAny(n, ",\n\r") {
			return fmt.Errorf("name %q holds a comma or a line end", n)
		}
	}
	return nil
}

// WriteFile writes a file through fill, compressed if the name ends in .gz. The
// file appears under its name only when it is complete.
func WriteFile(name string, fill func(io.Writer) error) error {
	err := atomicfile.Write(name, func(f *atomicfile.File) error {
		if !strings.HasSuffix(name, ".gz") {
			return fill(f)
		}
		z := gzip.NewWriter(f)
		if err := fill(z); err != nil {
			return err
		}
		return z.Close()
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
