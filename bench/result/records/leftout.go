package records

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lorasim/internal/textfile"
	"lorasim/sim/record"
)

// LeftOut lists the rows that a reader left out of a run: rows that cannot be requests. The zero value lists none.
type LeftOut struct {
	Reasons []Reason // in the order of their first rows
}

// A Reason is one reason why rows were left out.
type Reason struct {
	Text  string
	Rows  int    // number of rows
	First string // place of the first row, such as "run.csv:7" or "request 7"
}

// maxReasons is the number of different reasons that a LeftOut keeps; damaged files have one for each row.
const maxReasons = 20

const otherReasons = "other reasons"

// Add counts a row at a place.
func (l *LeftOut) Add(place, reason string) {
	i := slices.IndexFunc(l.Reasons, func(r Reason) bool { return r.Text == reason })
	if i < 0 && len(l.Reasons) >= maxReasons {
		reason = otherReasons
		i = slices.IndexFunc(l.Reasons, func(r Reason) bool { return r.Text == reason })
	}
	if i < 0 {
		i = len(l.Reasons)
		l.Reasons = append(l.Reasons, Reason{Text: reason, First: place})
	}
	l.Reasons[i].Rows++
}

// Rows returns the number of rows left out.
func (l *LeftOut) Rows() (n int) {
	for _, r := range l.Reasons {
		n += r.Rows
	}
	return n
}

// Lines returns a line for each reason.
func (l *LeftOut) Lines() (lines []string) {
	for _, r := range l.Reasons {
		lines = append(lines, r.First+": "+r.Left())
	}
	return lines
}

// Left says that the rows of the reason are left out, and why.
func (r *Reason) Left() string {
	switch r.Rows {
	case 1:
		return "left out: " + r.Text
	case 2:
		return "left out, and 1 more row: " + r.Text
	}
	return fmt.Sprintf("left out, and %d more rows: %s", r.Rows-1, r.Text)
}

// skip counts the row of err if err is of a single row. It returns other errors. place is the row where err names none.
func (l *LeftOut) skip(err error, place string) error {
	var row *textfile.RowError
	var wrong *fault
	isFault := errors.As(err, &wrong)
	text := ""
	switch isRow := errors.As(err, &row); {
	case isRow:
		place, text = fmt.Sprintf("%s:%d", row.File, row.Line), row.Err.Error()
		if row.Column != "" {
			text = fmt.Sprintf("column %q: %s", row.Column, text)
		}
	case !isFault:
		return err
	}
	if isFault {
		text = wrong.text
	}
	l.Add(place, text)
	return nil
}

// Limits of the indexes of a record. They bound the memory that a wrong record can take.
const (
	maxAdapters = 1_000_000
	maxWorkers  = 100_000
)

// Fault returns what a record cannot be, nil for a possible one. Requests that did not succeed may lack times. The
// error has no numbers, so that equal faults count as one.
func Fault(r *record.Request) error {
	worker := func(i int32) bool { return i >= -1 && i < maxWorkers }
	text := ""
	switch {
	case r.Adapter < -1 || r.Adapter >= maxAdapters:
		text = fmt.Sprintf("the adapter's index is out of range, expected -1 to %d", maxAdapters-1)
	case !worker(r.WorkerFirst) || !worker(r.WorkerLast):
		text = fmt.Sprintf("the worker's index is out of range, expected -1 to %d", maxWorkers-1)
	case r.Prompt < 0 || r.Output < 0:
		text = "the number of tokens is negative"
	case r.Status != record.OK:
	case math.IsNaN(r.Sent) || math.IsNaN(r.Finish):
		text = "it succeeded, but the time of sending or the end is missing"
	case r.Finish < r.Sent:
		text = "it ends before it was sent"
	case r.FirstToken < r.Sent-clockError:
		text = "its first token came before it was sent"
	case r.FirstToken > r.Finish+clockError:
		text = "its first token came after its end"
	}
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// clockError is the largest contradiction between two times of a record that rounding explains, s.
const clockError = 1e-3

// Unwrap returns the error with the place of the row.
func (f *fault) Unwrap() error { return f.error }
