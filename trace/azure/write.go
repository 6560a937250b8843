package azure

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/atomicfile"
)

// WriteDay writes a day's file of the 2019 trace into a folder: fill calls add
// for each function, with its invocations in the minutes of the day.
func WriteDay(folder string, day int, fill func(add func(Function, []int32) error) error) error {
	return writeFile(filepath.Join(folder, dayFile(day)), func(w *bufio.Writer) error { return writeMinutes(w, 1, minutesPerDay, fill) })
}

// WriteInvocations writes a file of the 2021 trace, compressed if the name ends in
// .gz: fill calls add for each row, whose Invocation.Function is not used. Times are
// written with as many digits as it takes to read the same numbers back.
func WriteInvocations(name string, fill func(add func(Function, Invocation) error) error) error {
	return writeFile(name, func(w *bufio.Writer) error { return writeInvocations(w, fill) })
}

// writeMinutes writes a file with the minute columns first to last.
func writeMinutes(w *bufio.Writer, first, last int, fill func(add func(Function, []int32) error) error) error {
	line := []byte(strings.Join(v1Names, ","))
	for k := first; k <= last; k++ {
		line = strconv.AppendInt(append(line, ','), int64(k), 10)
	}
	if _, err := w.Write(append(line, '\n')); err != nil {
		return err
	}
	return fill(func(f Function, counts []int32) (err error) {
		if line, err = appendNames(line[:0], f.Owner, f.App, f.Func); err != nil {
			return err
		}
		line = append(line, "http"...)
		for i, n := range counts {
			if n < 0 {
				return fmt.Errorf("function %s: count %d is %d, expected >= 0", f.Func, i, n)
			}
			line = strconv.AppendInt(append(line, ','), int64(n), 10)
		}
		_, err = w.Write(append(line, '\n'))
		return err
	})
}

func writeInvocations(w *bufio.Writer, fill func(add func(Function, Invocation) error) error) error {
	if _, err := w.WriteString(v2Header + "\n"); err != nil {
		return err
	}
	var line []byte
	return fill(func(f Function, v Invocation) (err error) {
		if line, err = appendNames(line[:0], f.App, f.Func); err != nil {
			return err
		}
		for _, x := range []float64{v.End, v.Duration} {
			if !(x >= 0) || math.IsInf(x, 1) {
				return fmt.Errorf("function %s: time is %v, expected a number of seconds >= 0", f.Func, x)
			}
			line = append(strconv.AppendFloat(line, x, 'f', -1, 64), ',')
		}
		line[len(line)-1] = '\n'
		_, err = w.Write(line)
		return err
	})
}

// appendNames refuses names that would break a row apart.
func appendNames(line []byte, names ...string) ([]byte, error) {
	for _, n := range names {
		if strings.ContainsAny(n, ",\n\r") {
			return line, fmt.Errorf("name %q holds a comma or a line end", n)
		}
		line = append(append(line, n...), ',')
	}
	return line, nil
}

// writeFile writes a file, compressed if the name ends in .gz. It appears under its
// name only when it is complete.
func writeFile(name string, fill func(w *bufio.Writer) error) error {
	err := atomicfile.Write(name, func(f *atomicfile.File) (err error) {
		var out io.Writer = f
		if strings.HasSuffix(name, ".gz") {
			z := gzip.NewWriter(f)
			defer func() {
				if err == nil {
					err = z.Close()
				}
			}()
			out = z
		}
		w := bufio.NewWriter(out)
		if err := fill(w); err != nil {
			return err
		}
		return w.Flush()
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}
