package evidence

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Unit is the unit of numeric times.
type Unit string

// The units.
const (
	Seconds Unit = "s"
	Millis  Unit = "ms"
	Micros  Unit = "us"
	Nanos   Unit = "ns"
	Minutes Unit = "min"
	Hours   Unit = "h"
)

// Units returns all units.
func Units() []Unit { return []Unit{Seconds, Millis, Micros, Nanos, Minutes, Hours} }

// machine are the units in which programs write times; the others are for people, and only a name states them.
var machine = []Unit{Seconds, Millis, Micros, Nanos}

// ns returns the length of the unit, ns.
func (u Unit) ns() float64 {
	switch u {
	case Millis:
		return 1e6
	case Micros:
		return 1e3
	case Nanos:
		return 1
	case Minutes:
		return 60e9
	case Hours:
		return 3600e9
	}
	return 1e9
}

// spellings are the words that state a unit.
var spellings = map[Unit]string{
	Nanos:   "ns nsec nsecs nano nanos nanosec nanosecs nanosecond nanoseconds unixnano",
	Micros:  "us \u00b5s \u03bcs usec usecs micro micros microsec microsecs microsecond microseconds unixmicro",
	Millis:  "ms msec msecs milli millis millisec millisecs millisecond milliseconds unixmilli",
	Seconds: "s sec secs second seconds",
	Minutes: "min mins minute minutes",
	Hours:   "h hr hrs hour hours",
}

// unitOfWord holds the units that words state.
var unitOfWord = func() map[string]Unit {
	out := map[string]Unit{}
	for u, list := range spellings {
		for w := range strings.FieldsSeq(list) {
			out[w] = u
		}
	}
	return out
}()

// timeWords are the usual names of times and durations.
var timeWords = func() map[string]bool {
	out := map[string]bool{}
	for _, names := range []string{usual[Time], usual[End], usual[Duration], moments} {
		for w := range strings.FieldsSeq(names) {
			out[w] = true
		}
	}
	return out
}()

// unitIn returns the unit that a name states, in any spelling, and the name without it: "timestampMs", "ts_msec",
// "timestamp [ms]", "(minutes)", "timestampms". A name that consists of a unit alone states none, as nginx's $msec,
// which is seconds.
func unitIn(name string) (Unit, string) {
	list := words(name)
	if strings.HasSuffix(name, ".min") { // the least value of a summary
		return "", name
	}
	for i := len(list) - 1; i >= 0; i-- {
		u, ok := unitOfWord[list[i]]
		if ok && len(list) > 1 {
			return u, strings.Join(slices.Delete(list, i, i+1), " ")
		}
	}
	if len(list) == 0 {
		return "", name
	}
	last := list[len(list)-1]
	for cut := 1; cut < len(last)-1; cut++ { // a unit of one letter is no suffix: "timestamps"
		if u, ok := unitOfWord[last[cut:]]; ok && timeWords[last[:cut]] {
			return u, strings.Join(append(list[:len(list)-1:len(list)-1], last[:cut]), " ")
		}
	}
	return "", name
}

// number reads a number, also one with a decimal comma.
func number(text string) (float64, bool) {
	if strings.Count(text, ",") == 1 && !strings.Contains(text, ".") {
		text = strings.Replace(text, ",", ".", 1)
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil && !math.IsNaN(x) && !math.IsInf(x, 0)
}

// IsNumberOrDate reports whether a text is a number or a date, and so not the name of a column.
func IsNumberOrDate(text string) bool {
	_, isNumber := number(text)
	_, _, err := newCalendar([]string{text})
	return isNumber || err == nil
}

// span writes a length of time for people.
func span(ns float64) string {
	s := ns / 1e9
	switch {
	case s >= 2*86400:
		return fmt.Sprintf("%.3g days", s/86400)
	case s >= 2*3600:
		return fmt.Sprintf("%.3g h", s/3600)
	case s >= 120:
		return fmt.Sprintf("%.3g min", s/60)
	case s >= 1 || s == 0:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	case s >= 1e-6:
		return fmt.Sprintf("%.3g us", s*1e6)
	}
	return fmt.Sprintf("%.3g ns", ns)
}

// pace writes the number of requests in a span for people.
func pace(requests int, ns float64) string {
	gap := ns / float64(max(requests-1, 1))
	if gap > 1e9 {
		return "one request every " + span(gap)
	}
	if gap == 0 {
		return "all at once"
	}
	return fmt.Sprintf("%.3g requests/s", 1e9/gap)
}

// A Reading is one way to read a column.
type Reading struct {
	Column string
	As     string // such as "ms since the log's origin"
	Says   string // what follows: span and rate
	Flag   string // the flag that selects this reading
}

// A contradiction is the error for columns that can be read in two ways.
type contradiction struct {
	About    string // what is undecided, and why
	Readings []Reading
}

func (c *contradiction) Error() string {
	var b strings.Builder
	b.WriteString(c.About)
	for _, r := range c.Readings {
		fmt.Fprintf(&b, "\n  column %q as %s: %s", r.Column, r.As, r.Says)
		if r.Flag != "" {
			fmt.Fprintf(&b, " (lorasim trace import %s)", r.Flag)
		}
	}
	return b.String()
}

// day writes a date of an epoch time.
func day(ns float64) string { return time.Unix(0, int64(ns)).UTC().Format("2006-01-02 15:04:05") }
