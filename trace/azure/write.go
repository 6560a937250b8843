package azure

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/atomicfile"
	"lorasim/trace"
)

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
