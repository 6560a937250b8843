package table

import (
	"strings"
	"unicode/utf8"

	"lorasim/internal/textfile"
)

// A spreadsheet runs the text of a CSV cell as a formula if it begins with one of these
// characters (OWASP, "CSV Injection"; the last four are the wide forms), and names of
// adapters come from anybody.
const formula = "=+-@\t\r\n＝＋－＠"

// An apostrophe before such a text makes a spreadsheet show it. Texts that begin with
// apostrophes and then such a character get one more, so that reading can take one off and
// every text comes back as it was. Numbers stay as they are.

// isFormula says whether a text is a formula to a spreadsheet once its apostrophes are gone.
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

// Unquoted is a field of a CSV file without the apostrophe that a Writer puts before texts
// that a spreadsheet would run.
func Unquoted(field []byte) []byte {
	if len(field) > 1 && field[0] == '\'' && isFormula(string(field)) {
		return field[1:]
	}
	return field
}
