package table

import (
	"strings"
	"unicode/utf8"

	"lorasim/internal/textfile"
)

// formulaStart contains the characters that make a spreadsheet run a CSV cell as a formula if the cell begins with one
// (OWASP, "CSV Injection"; the last four are the full-width forms). Names of adapters come from untrusted sources.
//
// A Writer puts an apostrophe before such a text, so that a spreadsheet shows it. [Unquoted] removes the apostrophe. A
// text that begins with apostrophes and such a character gets one more apostrophe, so that every text reads back
// unchanged. Numbers stay as they are.
const formulaStart = "=+-@\t\r\n＝＋－＠"

// isFormula reports whether a spreadsheet would run a text as a formula, leading apostrophes ignored.
func isFormula(s string) bool {
	bare := strings.TrimLeft(s, "'")
	first, _ := utf8.DecodeRuneInString(bare)
	if bare == "" || !strings.ContainsRune(formulaStart, first) {
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
