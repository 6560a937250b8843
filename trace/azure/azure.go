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
	"cmp"
	"fmt"
	"strconv"
	"strings"
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
	// Progress, if not nil, is called about every megabyte and at the end with
	// the bytes read so far and the bytes to read in all, both of the files as
	// they lie on disk; its error ends the reading.
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
			return 0, fmt.Errorf("time %q: %s is %q, expected a whole number from 0 to %d", s, unit.name, parts[i], unit.max)
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
