// Package format words numbers, texts and tables for people, and numbers that
// are not finite for JSON.
package format

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Clip makes s one printable line of at most n characters.
func Clip(s string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}

// Percent writes a share as "12.3 %"; NaN as "-".
func Percent(share float64, decimals int) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.*f %%", decimals, 100*share)
}

// Columns aligns cells that end in tabs, two spaces apart; Flush writes them.
func Columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// Table writes rows of cells in aligned columns, two spaces apart. Empty cells
// at the end of a row are left out.
func Table(w io.Writer, rows [][]string) error {
	t := Columns(w)
	for _, row := range rows {
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// JSON writes v and a newline, indented by the given text for each level.
func JSON(w io.Writer, v any, indent string) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", indent)
	return enc.Encode(v)
}

// IsFinite says whether JSON has x.
func IsFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// Finite is nil where JSON has no x.
func Finite(x float64) *float64 {
	if !IsFinite(x) {
		return nil
	}
	return &x
}

// Number is a float64 that JSON writes as null when it is not finite.
type Number float64

// MarshalJSON implements json.Marshaler.
func (n Number) MarshalJSON() ([]byte, error) { return json.Marshal(Finite(float64(n))) }
