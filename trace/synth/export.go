package synth

import (
	"errors"
	"fmt"
	"io"
	"os"

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

// nextExport is src.Next for requests that a function can stand for.
func nextExport(src trace.Source) (trace.Request, error) {
	r, err := src.Next()
	if err == nil && r.Adapter < 0 {
		err = fmt.Errorf("request %d uses no adapter, which a function trace cannot express", r.ID)
	}
	return r, err
}

// ExportInvocations writes the requests of src as a file of the 2021 Azure
// Functions trace (azure_v2): one function per adapter, one row per request in
// the order of arrival. Execution times are exponential with the given mean (s,
// 0: none), so that rows, which state the end, are not in the order of ends. It
// returns the number of rows.
func ExportInvocations(src trace.Source, name string, meanDuration float64, seed uint64) (rows int64, err error) {
	if err := check("mean execution time", meanDuration, " s", ">=0 <=1e12"); err != nil {
		return 0, err
	}
	functions := make([]azure.Function, len(src.Adapters()))
	for i := range functions {
		functions[i] = exportName(int32(i))
	}
	rng := stream(seed, forExport, 0)
	err = azure.WriteInvocations(name, func(add func(azure.Function, azure.Invocation) error) error {
		for ; ; rows++ {
			r, err := nextExport(src)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			d := rng.ExpFloat64() * meanDuration
			if err := add(functions[r.Adapter], azure.Invocation{End: r.Arrival + d, Duration: d}); err != nil {
				return err
			}
		}
	})
	return rows, err
}

// ExportMinutes writes the requests of src as files of the 2019 Azure Functions
// trace (azure_v1) in a folder: one file per day from day 0 to that of the last
// request, with one row per adapter. It returns the number of files. Memory is
// that of one day: 5.6 KiB per adapter in use.
func ExportMinutes(src trace.Source, folder string) (files int, err error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return 0, err
	}
	day := make([][]int32, len(src.Adapters())) // by adapter and minute; nil: none
	write := func() error {
		err := azure.WriteDay(folder, files, func(add func(azure.Function, []int32) error) error {
			none := make([]int32, minutesPerDay)
			for a, counts := range day {
				if counts == nil {
					counts = none
				}
				if err := add(exportName(int32(a)), counts); err != nil {
					return err
				}
			}
			return nil
		})
		clear(day)
		files++
		return err
	}
	for {
		r, err := nextExport(src)
		if errors.Is(err, io.EOF) {
			err = write()
			return files, err
		}
		if err == nil && r.Arrival >= maxDays*secondsPerDay {
			err = fmt.Errorf("request %d arrives at %v s, expected within %d days", r.ID, r.Arrival, maxDays)
		}
		for err == nil && r.Arrival >= float64(files+1)*secondsPerDay {
			err = write()
		}
		if err != nil {
			return files, err
		}
		if day[r.Adapter] == nil {
			day[r.Adapter] = make([]int32, minutesPerDay)
		}
		minute := int((r.Arrival - float64(files)*secondsPerDay) / 60)
		day[r.Adapter][min(minute, minutesPerDay-1)]++
	}
}
