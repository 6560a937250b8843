package requestlog

import (
	"fmt"
	"math"
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
)

// Units lists them.
func Units() []Unit { return []Unit{Seconds, Millis, Micros, Nanos} }

// ns is the length of the unit.
func (u Unit) ns() float64 {
	switch u {
	case Millis:
		return 1e6
	case Micros:
		return 1e3
	case Nanos:
		return 1
	}
	return 1e9
}

// suffixes of column names that state a unit, the longer ones first.
var suffixes = []struct {
	end  string
	unit Unit
}{
	{"unixnano", Nanos}, {"nanoseconds", Nanos}, {"nanos", Nanos}, {"_ns", Nanos},
	{"microseconds", Micros}, {"micros", Micros}, {"_us", Micros},
	{"milliseconds", Millis}, {"millis", Millis}, {"_ms", Millis}, {"(ms)", Millis},
	{"seconds", Seconds}, {"_sec", Seconds}, {"_s", Seconds}, {"(s)", Seconds},
}

// stated is the unit that the name of a column states, and the name without it.
func stated(column string) (Unit, string) {
	lower := strings.ToLower(column)
	for _, s := range suffixes {
		if base, ok := strings.CutSuffix(lower, s.end); ok {
			return s.unit, base
		}
	}
	return "", column
}

// clock reads the times of one column. All are numbers of one unit, or all are dates.
type clock struct {
	unit   Unit // "": dates
	layout string
	local  bool // some date stated no zone
}

// layouts of dates. Go reads fractions of a second, after a point or a comma, wherever seconds stand.
var layouts = []string{
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 Z07:00",
	"2006-01-02 15:04:05-0700",
	"2006-01-02 15:04:05 -0700",
	"2006-01-02T15:04:05-0700",
	"2006-01-02 15:04:05-07",
	"2006-01-02 15:04:05 UTC",
	"2006-01-02 15:04:05",
	"2006-01-02T15:04",
	"2006-01-02 15:04",
	"2006/01/02 15:04:05",
	"02/Jan/2006:15:04:05 -0700",
	"20060102T150405Z",
	"20060102T150405",
	time.RFC1123,
	time.RFC1123Z,
}

// newClock finds how to read a column of times from the values of its first rows.
func newClock(column string, values []string, unit Unit) (*clock, string, error) {
	most, numeric := 0.0, len(values) > 0
	for _, v := range values {
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			numeric = false
			break
		}
		most = max(most, math.Abs(x))
	}
	if !numeric {
		c := &clock{}
		for _, v := range values {
			if _, err := c.read(v); err != nil {
				return nil, "", err
			}
		}
		if c.local {
			return c, "dates without a zone, read as UTC", nil
		}
		return c, "dates", nil
	}
	epoch := most >= 1e8 // as seconds: 1973; numbers below count from an origin of their own
	kind := "since the log's origin"
	if epoch {
		kind = "since 1970"
	}
	if unit == "" {
		unit, _ = stated(column)
	}
	switch {
	case unit != "":
		if most*unit.ns() < float64(epochNs) {
			kind = "since the log's origin"
		}
	case most >= 1e17:
		unit = Nanos
	case most >= 1e14:
		unit = Micros
	case most >= 1e11:
		unit = Millis
	default:
		unit = Seconds
	}
	return &clock{unit: unit}, fmt.Sprintf("%s %s", unit, kind), nil
}

// read returns a time in ns since the origin.
func (c *clock) read(text string) (int64, error) {
	if c.unit == "" {
		t, zone, err := parseDate(text, &c.layout)
		if err != nil {
			return 0, err
		}
		c.local = c.local || !zone
		if t.Year() < 1680 || t.Year() > 2260 {
			return 0, fmt.Errorf("year %d is not between 1680 and 2260", t.Year())
		}
		return t.UnixNano(), nil
	}
	per := int64(c.unit.ns())
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n < math.MaxInt64/per && n > math.MinInt64/per {
		return n * per, nil // a float would lose the last digits
	}
	x, err := strconv.ParseFloat(text, 64)
	if ns := math.Round(x * c.unit.ns()); err == nil && math.Abs(ns) < maxNs {
		return int64(ns), nil
	}
	return 0, fmt.Errorf("%q is no time in %s", text, c.unit)
}

// parseDate reads a date by the layout of the last one, else by any. zone: it states its zone.
func parseDate(text string, last *string) (t time.Time, zone bool, err error) {
	text = strings.Trim(strings.TrimSpace(text), "[]")
	if *last != "" {
		if t, err = time.Parse(*last, text); err == nil {
			return t, hasZone(*last), nil
		}
	}
	for _, layout := range layouts {
		if t, err = time.Parse(layout, text); err == nil {
			*last = layout
			return t, hasZone(layout), nil
		}
	}
	return t, false, fmt.Errorf("%q is no time: expected a number (s, ms, us or ns) or a date such as %s", text,
		"2024-05-16T09:00:00.25Z")
}

func hasZone(layout string) bool {
	return strings.Contains(layout, "07") || strings.HasSuffix(layout, "Z") || strings.HasSuffix(layout, "UTC") ||
		strings.HasSuffix(layout, "MST")
}
