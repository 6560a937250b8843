// Package suggest words errors about unknown names, with the name that the user probably meant.
package suggest

import (
	"fmt"
	"slices"
	"strings"
)

// Among returns nil if name is among the known names, else the error of Unknown.
func Among(kind, name string, known []string) error {
	if slices.Contains(known, name) {
		return nil
	}
	return Unknown(kind, name, known)
}

// Unknown returns the error that a name is not among the known names. kind is the kind of name. The error suggests
// the likely name, if there is one.
func Unknown(kind, name string, known []string) error {
	name = Clip(name)
	if len(known) == 0 {
		return fmt.Errorf("unknown %s %q, expected none", kind, name)
	}
	const most = 30 // longer lists hide the hint
	hint := ""
	if k := Likely(name, known); k != "" {
		hint = fmt.Sprintf(", did you mean %q?", k)
	}
	if hint != "" && len(known) > most {
		return fmt.Errorf("unknown %s %q%s", kind, name, hint)
	}
	list := strings.Join(known[:min(len(known), most)], ", ")
	if more := len(known) - most; more > 0 {
		list += fmt.Sprintf(", and %d more", more)
	}
	return fmt.Errorf("unknown %s %q%s (known: %s)", kind, name, hint, list)
}

// minPart is the minimum length of a name that is taken as a part of a longer name.
const minPart = 3

// Likely returns the known name that a name probably means, "" if there is none. It is the first one that begins
// with the name, else the first one that contains it, else the nearest one by edit distance. (a100 means a100-80gb,
// although h100 differs in only one letter.)
func Likely(name string, known []string) string {
	part := strings.ToLower(name)
	for _, extends := range []func(s, part string) bool{strings.HasPrefix, strings.Contains} {
		for _, k := range known {
			if len(part) >= minPart && extends(strings.ToLower(k), part) {
				return k
			}
		}
	}
	nearest, best := "", len(name)/3+2 // farther names are no typing errors
	for _, k := range known {
		if d := editDistance(name, k); d < best {
			best, nearest = d, k
		}
	}
	return nearest
}

// Clip shortens a text for an error message to 120 bytes.
func Clip(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}

// editDistance is the Levenshtein distance in bytes: the fewest insertions,
// deletions and substitutions that turn a into b.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // distances of a[:i] to every b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
