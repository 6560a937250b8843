package evidence

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clock reads the times of one column. All are numbers of one unit, or all are dates.
type clock struct {
	unit    Unit     // "": dates
	layouts []string // of dates; the one that was read last comes first
	local   bool     // some date stated no zone
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
	"2006-01-02 15:04:05 MST",
	"2006-01-02 15:04:05",
	"2006-01-02 15:04:05 -0700 MST", // Go's
	"2006-01-02T15:04",
	"2006-01-02 15:04",
	"2006/01/02 15:04:05",
	"2.1.2006 15:04:05",
	"02/Jan/2006:15:04:05 -0700",
	"02-Jan-2006 15:04:05",
	"20060102T150405Z",
	"20060102T150405",
	"20060102 15:04:05",
	time.RFC1123,
	time.RFC1123Z,
	time.ANSIC,
	time.UnixDate,
	"Jan 2, 2006 15:04:05",
	"Jan 2, 2006 3:04:05 PM",
}

// Layouts that differ in the order of day and month alone.
var (
	monthFirst = []string{"1/2/2006 15:04:05", "1/2/2006 15:04", "1/2/2006 3:04:05 PM", "1/2/2006 3:04 PM",
		"1/2/2006, 3:04:05 PM"}
	dayFirst = []string{"2/1/2006 15:04:05", "2/1/2006 15:04", "2/1/2006 3:04:05 PM", "2/1/2006 3:04 PM",
		"2/1/2006, 3:04:05 PM"}
)

// newCalendar finds how to read dates.
func newCalendar(values []string) (*clock, string, error) {
	var best *clock
	most, order, tie, wide := -1, "", false, 0.0
	var first error
	for _, o := range []struct {
		layouts []string
		name    string
	}{{monthFirst, "month/day/year"}, {dayFirst, "day/month/year"}} {
		c := &clock{layouts: slices.Concat(layouts, o.layouts)}
		n, least, last := 0, int64(math.MaxInt64), int64(math.MinInt64)
		for _, v := range values {
			if ns, err := c.read(v); err == nil {
				n, least, last = n+1, min(least, ns), max(last, ns)
			} else if first == nil {
				first = err
			}
		}
		// Where both orders fit, requests follow each other: the order with the shorter span is the right one.
		if span := float64(last) - float64(least); n > most || n == most && span < wide {
			tie = n == most
			best, most, order, wide = c, n, o.name, span
		} else {
			tie = tie || n == most
		}
	}
	if 2*most < len(values) || len(values) == 0 {
		return nil, "", first
	}
	detail := "dates"
	if slices.Contains(monthFirst, best.layouts[0]) || slices.Contains(dayFirst, best.layouts[0]) {
		detail += ", " + order
		if tie {
			detail += " assumed"
		}
	}
	if best.local {
		detail += " without a zone, read as UTC"
	}
	return best, detail, nil
}

// read returns a time in ns since the origin.
func (c *clock) read(text string) (int64, error) {
	if c.unit == "" {
		t, zone, err := c.date(text)
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
	x, ok := number(text)
	if ns := math.Round(x * c.unit.ns()); ok && math.Abs(ns) < maxNs {
		return int64(ns), nil
	}
	return 0, fmt.Errorf("%q is not a time in %s", text, c.unit)
}

// date parses a date. zone: it states its zone.
func (c *clock) date(text string) (t time.Time, zone bool, err error) {
	text = strings.Trim(strings.TrimSpace(text), "[]")
	for i, layout := range c.layouts {
		if t, err = time.Parse(layout, text); err != nil {
			continue
		}
		if name, offset := t.Zone(); strings.HasSuffix(layout, "MST") && !strings.Contains(layout, "-0700") &&
			(offset != 0 || name != "UTC" && name != "GMT") {
			return t, false, fmt.Errorf("the zone %s of %q is ambiguous: expected an offset such as +02:00, UTC or GMT",
				name, text)
		}
		if i > 0 { // most rows have the layout of the row before
			c.layouts = slices.Insert(slices.Delete(c.layouts, i, i+1), 0, layout)
		}
		return t, hasZone(layout), nil
	}
	return t, false, notATime(text)
}

func notATime(text string) error {
	return fmt.Errorf("%q is not a time: expected a number (s, ms, us or ns) or a date such as 2024-05-16T09:00:00.25Z",
		text)
}

// isDay reports whether a text is a day without a time.
func isDay(text string) bool {
	return slices.ContainsFunc([]string{"2006-01-02", "2006/01/02", "2.1.2006", "1/2/2006", "2/1/2006", "02-Jan-2006"},
		func(layout string) bool { _, err := time.Parse(layout, text); return err == nil })
}

// isHour reports whether a text is a time of the day.
func isHour(text string) bool {
	return slices.ContainsFunc([]string{"15:04:05", "15:04", "3:04:05 PM"},
		func(layout string) bool { _, err := time.Parse(layout, text); return err == nil })
}

func hasZone(layout string) bool {
	return strings.Contains(layout, "07") || strings.HasSuffix(layout, "Z") || strings.HasSuffix(layout, "MST")
}
