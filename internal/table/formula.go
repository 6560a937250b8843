package table

import (
	"strings"
	"unicode/utf8"

	"lorasim/internal/textfile"
)

// A spreadsheet runs the text of a CSV cell as a formula if it begins with one of these characters (OWASP, "CSV
// Injection"; the last four are the wide forms). Names of adapters come from untrusted sources.
const formula = "=+-@\t\r\n＝＋－＠"

// An apostrophe before such a text makes a spreadsheet show it. A text of apostrophes followed by such a character
// gets one more apostrophe, so that reading can remove one and every text reads back unchanged. Numbers are not
// changed.

// isFormula reports whether a spreadsheet would run a text as a formula, leading apostrophes ignored.
func isFormula(s string) bool {
	bare := strings.TrimLeft(s, "'")
	first, _ := utf8.DecodeRuneInString(bare)
	if bare == "" || !strings.ContainsRune(formula, first) {
		return false
	}
	if len(bare) < len(s) {
		return true
	}
	_, err := textfile.Float([]byte(s))
	return err != nil
}

// Unquoted returns a field of a CSV file without the apostrophe that a Writer puts before texts that a spreadsheet
// would run.
func Unquoted(field []byte) []byte {
	if len(field) > 1 && field[0] == '\'' && isFormula(string(field)) {
		return field[1:]
	}
	return field
}
