package azure

import (
	"fmt"
	"strconv"
	"strings"
)

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
