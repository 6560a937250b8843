package validate

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
)

// FromFile reads a file with one of the functions that read; these take the name
// for their errors.
func FromFile[T any](path string, read func(in io.Reader, name string) (T, error)) (out T, err error) {
	f, err := os.Open(path)
	if err != nil {
		return out, err
	}
	defer f.Close()
	return read(f, path)
}

// CSVRow is a row of a CSV file with a header, whose fields go by the names of
// their columns: those of columns that are not there are empty. The first fault
// stays, and ends the reading with an error that names file, line and column.
type CSVRow struct {
	Line   int
	name   string
	header []string
	fields []string
	err    error
}

// ReadCSV calls f for every row of a table, of which there must be one, as must
// the required columns.
func ReadCSV(in io.Reader, name string, required []string, f func(*CSVRow)) error {
	c := csv.NewReader(in)
	header, err := c.Read()
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: empty, expected a header line", name)
	}
	if err != nil {
		return fmt.Errorf("%s: expected CSV with a header line: %w", name, err)
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff")
	for _, column := range required {
		if !slices.Contains(header, column) {
			return fmt.Errorf("%s:1: no column %q; the header has %.120s", name, column, strings.Join(header, ","))
		}
	}
	r := CSVRow{name: name, header: header}
	for {
		r.fields, err = c.Read()
		switch {
		case errors.Is(err, io.EOF) && r.Line == 0:
			return fmt.Errorf("%s: no rows below the header", name)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		r.Line, _ = c.FieldPos(0)
		if f(&r); r.err != nil {
			return r.err
		}
	}
}

// Fail says what is wrong with a field.
func (r *CSVRow) Fail(column, format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%s:%d: %s: %w", r.name, r.Line, column, fmt.Errorf(format, args...))
	}
}

// Text is a field without the space around it.
func (r *CSVRow) Text(column string) string {
	if i := slices.Index(r.header, column); i >= 0 {
		return strings.TrimSpace(r.fields[i])
	}
	return ""
}

// Has says whether a field is not empty.
func (r *CSVRow) Has(column string) bool { return r.Text(column) != "" }

// Number is a field as a number; NaN where it is empty.
func (r *CSVRow) Number(column string) float64 {
	if !r.Has(column) {
		return math.NaN()
	}
	x, err := strconv.ParseFloat(r.Text(column), 64)
	if err != nil || math.IsInf(x, 0) || math.IsNaN(x) {
		r.Fail(column, "%q, expected a number", r.Text(column))
	}
	return x
}

// Positive is a field that must be a number > 0.
func (r *CSVRow) Positive(column string) float64 {
	x, err := strconv.ParseFloat(r.Text(column), 64)
	if err != nil || !(x > 0) || math.IsInf(x, 0) {
		r.Fail(column, "%q, expected a number > 0", r.Text(column))
	}
	return x
}

// Count is a field that must be a whole number from low to high.
func (r *CSVRow) Count(column string, low, high int) int {
	x, err := strconv.ParseFloat(r.Text(column), 64) // 8.0 is one, too
	if err != nil || x != math.Trunc(x) || x < float64(low) || x > float64(high) {
		r.Fail(column, "%q, expected a whole number from %d to %d", r.Text(column), low, high)
		return low
	}
	return int(x)
}
