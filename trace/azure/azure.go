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

// ParseFormat reads the name of a format.
func ParseFormat(s string) (Format, error) {
	switch f := Format(s); f {
	case V1, V2:
		return f, nil
	}
	return "", fmt.Errorf("unknown trace %q: expected %s or %s", s, V1, V2)
}

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

// Instant is a minute of a trace, written "d.h.m" with days counted from 0.
type Instant struct{ Day, Hour, Minute int }

// ParseInstant reads "d.h.m". Hour 24 and minute 60 are legal, so that
// "0.0.60" can end the first hour.
func ParseInstant(s string) (Instant, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Instant{}, fmt.Errorf("time %q: expected day.hour.minute, such as 0.0.60", s)
	}
	var n [3]int
	for i, limit := range [3]struct {
		name string
		max  int
	}{{"day", 9999}, {"hour", 24}, {"minute", 60}} {
		v, err := strconv.ParseUint(parts[i], 10, 16)
		if err != nil || int(v) > limit.max {
			return Instant{}, fmt.Errorf("time %q: %s is %q, expected a whole number from 0 to %d", s, limit.name, parts[i], limit.max)
		}
		n[i] = int(v)
	}
	return Instant{n[0], n[1], n[2]}, nil
}

// Minutes returns the minutes from the start of day 0.
func (t Instant) Minutes() int { return t.Day*minutesPerDay + t.Hour*60 + t.Minute }

// String returns t as ParseInstant reads it.
func (t Instant) String() string { return fmt.Sprintf("%d.%d.%d", t.Day, t.Hour, t.Minute) }

// Window is a span of minutes of a trace, counted from the start of day 0:
// from the start of minute Start to the start of minute End.
type Window struct{ Start, End int }

// ParseWindow reads the start and the end of a window as ParseInstant does.
func ParseWindow(start, end string) (Window, error) {
	from, err := ParseInstant(start)
	if err != nil {
		return Window{}, fmt.Errorf("start %w", err)
	}
	to, err := ParseInstant(end)
	if err != nil {
		return Window{}, fmt.Errorf("end %w", err)
	}
	w := Window{from.Minutes(), to.Minutes()}
	if err := w.Check(); err != nil {
		return Window{}, err
	}
	return w, nil
}

// Check says what is wrong with w, or nil.
func (w Window) Check() error {
	if w.Start < 0 || w.End <= w.Start {
		return fmt.Errorf("window %v: expected its end to be after its start", w)
	}
	return nil
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
func (w Window) String() string { return instant(w.Start).String() + " to " + instant(w.End).String() }

func instant(minute int) Instant {
	return Instant{minute / minutesPerDay, minute % minutesPerDay / 60, minute % 60}
}
