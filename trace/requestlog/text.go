package requestlog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"lorasim/internal/suggest"
	"lorasim/internal/textfile"
	"lorasim/trace/requestlog/evidence"
)

// separators are the separators of tables that are detected.
var separators = []rune{',', ';', '\t', '|'}

// scanCSV reads a table of text with a header. Comments begin with #. Without any separator in the header, columns are
// separated by white space.
func (b *builder) scanCSV(in *bufio.Reader, visit func(row) error) error {
	h := findHeader(headOf(in))
	if !utf8.Valid(h.line) || bytes.IndexByte(h.line, 0) >= 0 {
		return errors.New("not a text file: expected CSV, JSON or Parquet")
	}
	if len(bytes.TrimSpace(h.line)) == 0 {
		return errors.New("the log has no rows: it holds comments alone")
	}
	in.Discard(h.at)
	lines := 1 + h.before
	if h.separator == ' ' {
		b.report.Format = "table, separated by white space"
		return scanWords(in, lines, visit)
	}
	b.report.Format = fmt.Sprintf("CSV, separator %q", h.separator)
	c := csv.NewReader(in)
	c.Comma, c.Comment, c.FieldsPerRecord, c.LazyQuotes = h.separator, '#', -1, true
	c.TrimLeadingSpace = c.Comma != '\t' // a tab is a space
	names, err := c.Read()
	if err != nil {
		return err
	}
	trim(names)
	if err := checkHeader(names, h.line, lines); err != nil {
		return err
	}
	for {
		values, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, _ := c.FieldPos(0)
		if trim(values); isRule(values) {
			continue
		}
		if err := visit(row{at + h.before, names, values}); err != nil {
			return err
		}
	}
}

// scanWords reads a table whose columns are separated by white space.
func scanWords(in io.Reader, line int, visit func(row) error) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, textfile.MaxLine)
	var names []string
	for ; lines.Scan(); line++ {
		words := strings.Fields(lines.Text())
		switch {
		case len(words) == 0 || isRule(words) || names != nil && strings.HasPrefix(words[0], "#"):
		case names == nil:
			names = words
			if err := checkHeader(names, lines.Bytes(), line); err != nil {
				return err
			}
		default:
			if err := visit(row{line, names, words}); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func trim(values []string) {
	for i := range values {
		values[i] = strings.TrimSpace(values[i])
	}
}

// isRule reports whether a row holds nothing, or the line that psql and Markdown draw below a header.
func isRule(values []string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return strings.Trim(v, "-+:|") != "" })
}

// checkHeader returns an error if a log has no names of columns: its first line holds a number or a date.
func checkHeader(names []string, line []byte, at int) error {
	for _, n := range names {
		if evidence.IsNumberOrDate(n) {
			return fmt.Errorf("line %d is %q, expected the names of the columns", at, suggest.Clip(string(line)))
		}
	}
	return nil
}

// header is where a table of text begins.
type header struct {
	line      []byte
	at        int // bytes before it
	before    int // lines before it
	separator rune
}

// findHeader finds the header in the beginning of a text: the first line that is not a comment, or the last comment
// before it if that comment names a time. Excel's first line "sep=;" sets the separator.
func findHeader(head []byte) header {
	var h, comment header
	var told rune
	at, before := 0, 0
	for line := range bytes.Lines(head) {
		text := bytes.TrimSpace(line)
		here := header{bytes.TrimLeft(text, "# "), at + bytes.Index(line, bytes.TrimLeft(text, "# ")), before, ' '}
		at, before = at+len(line), before+1
		sep, isSep := bytes.CutPrefix(bytes.ToLower(text), []byte("sep="))
		switch {
		case isSep && len(sep) == 1:
			told = rune(sep[0])
			continue
		case len(text) == 0:
			continue
		case text[0] == '#':
			comment = here
			continue
		}
		h = here
		break
	}
	h.separator = separatorOf(h.line)
	comment.separator = separatorOf(comment.line)
	if namesTime(comment) && !namesTime(h) {
		h = comment
	}
	if told != 0 {
		h.separator = told
	}
	return h
}

// namesTime reports whether a column of a header has a usual name of a time.
func namesTime(h header) bool {
	return slices.ContainsFunc(strings.Split(string(h.line), string(h.separator)), func(name string) bool {
		return evidence.NamesTime(strings.Trim(name, " \"'\r"))
	})
}

// separatorOf is the separator that splits the header into the most parts, else a space.
func separatorOf(header []byte) rune {
	best, parts := ' ', 0
	for _, s := range separators {
		if n := strings.Count(string(header), string(s)); n > parts {
			best, parts = s, n
		}
	}
	return best
}
