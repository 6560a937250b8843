package table

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/format"
	"lorasim/internal/textfile"
)

// A CSVRow is a row of a CSV file with a header. Fields are identified by the names of their columns; the fields of
// missing columns are empty. The first error of a row ends the reading; it names file, line and column.
type CSVRow struct {
	Line   int
	file   *textfile.File
	header []string
	fields [][]byte
	err    error
}

// ReadCSV calls f for every row of a table. It returns an error if the table has no rows or lacks a required column.
func ReadCSV(in io.Reader, name string, required []string, f func(*CSVRow)) error {
	r := CSVRow{file: textfile.New(name, in)}
	t, err := r.file.Header()
	if err != nil {
		return err
	}
	t.Multiline = true
	r.header = t.Names()
	for _, column := range required {
		if !slices.Contains(r.header, column) {
			return fmt.Errorf("%s:1: no column %q; the header has %.120s", name, column, strings.Join(r.header, ","))
		}
	}
	for {
		r.fields, err = t.Row()
		switch {
		case errors.Is(err, io.EOF) && r.Line == 0:
			return fmt.Errorf("%s: no rows below the header", name)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		r.Line = r.file.Number()
		if f(&r); r.err != nil {
			return r.err
		}
	}
}

// Fail reports an error in a field.
func (r *CSVRow) Fail(column, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s: %w", r.file.Where(), column, fmt.Errorf(format, args...))
	}
}

// Text returns a field without the space around it.
func (r *CSVRow) Text(column string) string {
	if i := slices.Index(r.header, column); i >= 0 {
		return strings.TrimSpace(string(r.fields[i]))
	}
	return ""
}

// Has reports whether a field is not empty.
func (r *CSVRow) Has(column string) bool { return r.Text(column) != "" }

// Number returns a field as a number, NaN if it is empty.
func (r *CSVRow) Number(column string) float64 {
	if !r.Has(column) {
		return math.NaN()
	}
	return r.number(column, "a number", func(float64) bool { return true })
}

// Positive returns a field that must be a number > 0.
func (r *CSVRow) Positive(column string) float64 {
	return r.number(column, "a number > 0", func(x float64) bool { return x > 0 })
}

// Count returns a field that must be a whole number from low to high.
func (r *CSVRow) Count(column string, low, high int) int {
	// 8.0 is one, too
	x := r.number(column, fmt.Sprintf("a whole number from %d to %d", low, high), func(x float64) bool {
		return x == math.Trunc(x) && x >= float64(low) && x <= float64(high)
	})
	if math.IsNaN(x) {
		return low
	}
	return int(x)
}

// number returns a field that must be a finite number for which ok is true; NaN after an error.
func (r *CSVRow) number(column, expected string, ok func(float64) bool) float64 {
	x, err := strconv.ParseFloat(r.Text(column), 64)
	if err != nil || !format.IsFinite(x) || !ok(x) {
		r.Fail(column, "%q, expected "+expected, r.Text(column))
		return math.NaN()
	}
	return x
}
