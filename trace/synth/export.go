package synth

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"lorasim/trace"
	"lorasim/trace/azure"
)

const (
	secondsPerDay = 86400
	minutesPerDay = 1440
	maxDays       = 99 // file names have two digits
)

// exportName is the function that stands for an adapter. Names sort as adapter
// indices do, so that a replay which maps functions in that order to as many
// adapters gives each adapter its own requests back.
func exportName(adapter int32) azure.Function {
	name := fmt.Sprintf("%016x", adapter)
	return azure.Function{Owner: name, App: name, Func: name}
}

// checkExport refuses requests that no function stands for.
func checkExport(r trace.Request) error {
	if r.Adapter < 0 {
		return fmt.Errorf("request %d uses no adapter, which a function trace cannot express", r.ID)
	}
	return nil
}

// ExportInvocations writes the requests of src as a file of the 2021 Azure
// Functions trace (azure_v2): one function per adapter, one row per request in
// the order of arrival. Execution times are exponential with the given mean (s,
// 0: none), so that rows, which state the end, are not in the order of ends. It
// returns the number of rows.
func ExportInvocations(src trace.Source, name string, meanDuration float64, seed uint64) (int64, error) {
	if !(meanDuration >= 0 && meanDuration <= longest) {
		return 0, fmt.Errorf("mean execution time is %v s, expected 0 to %g", meanDuration, longest)
	}
	functions := make([]azure.Function, len(src.Adapters()))
	for i := range functions {
		functions[i] = exportName(int32(i))
	}
	rng := stream(seed, forExport, 0)
	var rows int64
	err := azure.WriteFile(name, func(w io.Writer) error {
		out, err := azure.NewInvocationWriter(w)
		if err != nil {
			return err
		}
		for {
			r, err := src.Next()
			if errors.Is(err, io.EOF) {
				return out.Flush()
			}
			if err == nil {
				err = checkExport(r)
			}
			if err != nil {
				return err
			}
			d := rng.ExpFloat64() * meanDuration
			if err := out.Write(functions[r.Adapter], azure.Invocation{End: r.Arrival + d, Duration: d}); err != nil {
				return err
			}
			rows++
		}
	})
	return rows, err
}

// ExportMinutes writes the requests of src as files of the 2019 Azure Functions
// trace (azure_v1) in a folder: one file per day from day 0 to that of the last
// request, with one row per adapter. It returns the number of files. Memory is
// that of one day: 5.6 KiB per adapter in use.
func ExportMinutes(src trace.Source, folder string) (int, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	day := newExportDay(len(src.Adapters()))
	files := 0
	for {
		r, err := src.Next()
		if errors.Is(err, io.EOF) {
			err = day.write(folder, files)
			return files + 1, err
		}
		if err == nil {
			err = checkExport(r)
		}
		if err == nil && r.Arrival >= maxDays*secondsPerDay {
			err = fmt.Errorf("request %d arrives at %v s, expected within %d days", r.ID, r.Arrival, maxDays)
		}
		if err != nil {
			return files, err
		}
		for r.Arrival >= float64(files+1)*secondsPerDay {
			if err := day.write(folder, files); err != nil {
				return files, err
			}
			files++
			day = newExportDay(len(day.counts))
		}
		day.add(r, files)
	}
}

// exportDay counts the requests of each adapter and minute of a day.
type exportDay struct {
	counts [][]int32 // nil: none
}

func newExportDay(adapters int) *exportDay {
	return &exportDay{counts: make([][]int32, adapters)}
}

func (d *exportDay) add(r trace.Request, day int) {
	if d.counts[r.Adapter] == nil {
		d.counts[r.Adapter] = make([]int32, minutesPerDay)
	}
	minute := int((r.Arrival - float64(day)*secondsPerDay) / 60)
	d.counts[r.Adapter][min(minute, minutesPerDay-1)]++
}

func (d *exportDay) write(folder string, day int) error {
	name := filepath.Join(folder, fmt.Sprintf("invocations_per_function_md.anon.d%02d.csv", day+1))
	return azure.WriteFile(name, func(w io.Writer) error {
		out, err := azure.NewMinuteWriter(w, 1, minutesPerDay)
		if err != nil {
			return err
		}
		none := make([]int32, minutesPerDay)
		for a, counts := range d.counts {
			if counts == nil {
				counts = none
			}
			if err := out.Write(exportName(int32(a)), "http", counts); err != nil {
				return err
			}
		}
		return out.Flush()
	})
}
