package format

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Width is the width of tables for people, in columns of text.
const Width = 100

const (
	gap       = "  "
	widestKey = 34 // columns of a cell that names a row, unless it is the only one
)

// Fit writes rows in aligned columns that take at most width columns of text; 0: no limit. The first row is the
// head; the first keys cells of a row are its names. Heads and long names wrap. Columns that do not fit side by side
// continue in another table below, which repeats the names. Values are aligned at their " ±".
func Fit(w io.Writer, rows [][]string, keys, width int) error {
	columns := make([][]string, len(rows[0]))
	for i := range columns {
		for _, row := range rows {
			columns[i] = append(columns[i], Line(row[i], 0))
		}
	}
	var b strings.Builder
	names, values := columns[:keys], columns[keys:]
	for limit := widestKey; ; limit -= 4 {
		wrapped := make([]column, keys)
		for i, c := range names {
			wrapped[i] = newColumn(c, limit)
		}
		if total(wrapped) <= width*6/10 || limit <= 12 || width == 0 {
			writeBlocks(&b, wrapped, values, width)
			break
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeBlocks writes as many value columns side by side as fit, and the others below them.
func writeBlocks(b *strings.Builder, names []column, values [][]string, width int) {
	for first := true; first || len(values) > 0; first = false {
		block := slices.Clone(names)
		for len(values) > 0 {
			c := newColumn(aligned(values[0]), 0)
			if len(block) > len(names) && width > 0 && total(block)+len(gap)+c.width > width {
				break
			}
			block, values = append(block, c), values[1:]
		}
		if !first {
			b.WriteByte('\n')
		}
		writeColumns(b, block)
	}
}

// column is a column of cells of several lines.
type column struct {
	width int
	cells [][]string
}

// newColumn wraps the head to the width of the cells, and cells that are wider than limit; 0: no limit.
func newColumn(cells []string, limit int) column {
	c := column{}
	for _, s := range cells[1:] {
		lines := []string{s}
		if limit > 0 {
			lines = Wrap(s, limit)
		}
		c.cells = append(c.cells, lines)
		for _, line := range lines {
			c.width = max(c.width, utf8.RuneCountInString(line))
		}
	}
	for _, word := range words(cells[0]) {
		c.width = max(c.width, utf8.RuneCountInString(strings.TrimRight(word, " ")))
	}
	head := Wrap(cells[0], c.width)
	c.cells = append([][]string{head}, c.cells...)
	return c
}

func total(columns []column) (n int) {
	for i, c := range columns {
		if n += c.width; i > 0 {
			n += len(gap)
		}
	}
	return n
}

// writeColumns writes columns side by side. The lines of a head are aligned at the bottom.
func writeColumns(b *strings.Builder, columns []column) {
	if len(columns) == 0 {
		return
	}
	for row := range columns[0].cells {
		height := 1
		for _, c := range columns {
			height = max(height, len(c.cells[row]))
		}
		for line := range height {
			text := ""
			for _, c := range columns {
				at, lines := line, c.cells[row]
				if row == 0 {
					at -= height - len(lines)
				}
				cell := ""
				if at >= 0 && at < len(lines) {
					cell = lines[at]
				}
				text += cell + strings.Repeat(" ", c.width-utf8.RuneCountInString(cell)) + gap
			}
			b.WriteString(strings.TrimRight(text, " ") + "\n")
		}
	}
}

// aligned pads the cells below the head on the left, so that their " ±", or else their first spaces, are aligned.
func aligned(cells []string) []string {
	before := func(s string) int {
		number, _, _ := strings.Cut(s, " ")
		return utf8.RuneCountInString(number)
	}
	widest := 0
	for _, s := range cells[1:] {
		if isNumber(s) {
			widest = max(widest, before(s))
		}
	}
	out := slices.Clone(cells)
	for i, s := range cells[1:] {
		if isNumber(s) {
			out[i+1] = strings.Repeat(" ", widest-before(s)) + s
		}
	}
	return out
}

func isNumber(s string) bool {
	s = strings.TrimLeft(s, "*+-−×")
	return s == "" || s[0] >= '0' && s[0] <= '9'
}

// words cuts a text after each place where it may be wrapped.
func words(s string) (out []string) {
	start := 0
	for i, r := range s {
		if strings.ContainsRune(" _,:+/", r) {
			out = append(out, s[start:i+1])
			start = i + 1
		}
	}
	if start < len(s) || len(out) == 0 {
		out = append(out, s[start:])
	}
	return out
}

// Wrap breaks a text into lines of at most width columns, between words or after punctuation if possible.
func Wrap(s string, width int) (lines []string) {
	line := ""
	for _, word := range words(s) {
		if line != "" && utf8.RuneCountInString(line)+utf8.RuneCountInString(strings.TrimRight(word, " ")) > width {
			lines, line = append(lines, strings.TrimRight(line, " ")), ""
		}
		line += word
		for trimmed := strings.TrimRight(line, " "); utf8.RuneCountInString(trimmed) > max(width,
			1); trimmed = strings.TrimRight(line, " ") {
			runes := []rune(line)
			lines, line = append(lines, string(runes[:max(width, 1)])), string(runes[max(width, 1):])
		}
	}
	return append(lines, strings.TrimRight(line, " "))
}

// Paragraph wraps a text to width columns and indents all lines but the first.
func Paragraph(s string, width int) string {
	if width <= 0 {
		return s
	}
	const indent = "  "
	lines := wrapSpaces(s, width, len(indent))
	return strings.Join(lines, "\n"+indent)
}

// wrapSpaces breaks a text at spaces, and words that are too long at punctuation;
// lines after the first have less room.
func wrapSpaces(s string, width, indent int) (lines []string) {
	line, room := "", width
	for _, word := range strings.Split(s, " ") {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > room {
			lines, line, room = append(lines, line), "", width-indent
		}
		if line != "" {
			line += " "
		}
		if line += word; utf8.RuneCountInString(line) > room { // the word alone is too long
			pieces := Wrap(line, width-indent)
			last := len(pieces) - 1
			lines, line, room = append(lines, pieces[:last]...), pieces[last], width-indent
		}
	}
	return append(lines, line)
}
