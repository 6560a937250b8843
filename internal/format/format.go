// Package format formats numbers, texts and tables for people, and JSON with numbers that may not be finite. [Line]
// and [Safe] protect terminals from control characters in foreign texts.
package format

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Clip returns s as one printable line of at most n characters.
func Clip(s string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if obeyed(r) {
			return ' '
		}
		return r
	}, s))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}

// Percent formats a share (0 to 1) as "12.3 %", and NaN as "-".
func Percent(share float64, decimals int) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.*f %%", decimals, 100*share)
}

// Digits formats x with three significant digits, or all those before the point: "0.0125", "24.3", "1239". It never
// writes an exponent.
func Digits(x float64) string {
	if math.Abs(x) >= 999.5 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 3, 64), 64) // reads what it wrote
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}

// PlusMinus formats a mean as [Digits] does, and half of its interval with the same decimals: "24.3 ± 0.6".
func PlusMinus(mean, half float64) string {
	text := Digits(mean)
	_, decimals, _ := strings.Cut(text, ".")
	return text + " ± " + strconv.FormatFloat(half, 'f', len(decimals), 64)
}

// Count returns a number with its noun, which is in the singular: "1 request", "2 requests".
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Columns returns a writer that aligns cells that end in tabs, two spaces apart. Flush writes them.
func Columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// Table writes rows of cells in aligned columns, two spaces apart. Empty cells
// at the end of a row are left out.
func Table(w io.Writer, rows [][]string) error {
	t := Columns(w)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = Line(cell, 0)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	return t.Flush()
}

// JSON writes v as JSON and a newline, with the given indentation for each level.
func JSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// Compact returns v as JSON in one line, for messages.
func Compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// IsFinite reports whether x is finite, so that JSON can hold it.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// finite returns a pointer to x, nil if x is not finite.
func finite(x float64) *float64 {
	if !IsFinite(x) {
		return nil
	}
	return &x
}

// A Number is a float64 that JSON encodes as null if it is not finite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return json.Marshal(finite(float64(n))) }

// An Object is a JSON object whose fields keep their order: names and values alternate. Numbers that are not finite
// become null. A field with ",omitempty" after its name is left out if its value is false, 0, "", nil, an empty
// list, or a float that is not finite.
type Object []any

// All yields the names and values of the fields that are not left out.
func (o Object) All() iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i := 0; i < len(o); i += 2 {
			name, omit := strings.CutSuffix(o[i].(string), ",omitempty")
			if !(omit && isEmpty(o[i+1])) && !yield(name, o[i+1]) {
				return
			}
		}
	}
}

func isEmpty(x any) bool {
	switch v := reflect.ValueOf(x); v.Kind() {
	case reflect.Float64:
		return !IsFinite(v.Float())
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Invalid:
		return true
	default:
		return v.IsZero()
	}
}

// MarshalJSON implements json.Marshaler.
func (o Object) MarshalJSON() ([]byte, error) {
	b := []byte("{")
	for name, v := range o.All() {
		if x, ok := v.(float64); ok {
			v = finite(x)
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		b = append(append(strconv.AppendQuote(b, name), ':'), append(text, ',')...)
	}
	return append(bytes.TrimSuffix(b, []byte(",")), '}'), nil
}
