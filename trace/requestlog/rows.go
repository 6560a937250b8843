package requestlog

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"lorasim/internal/suggest"
	"lorasim/internal/table"
	"lorasim/internal/textfile"
)

// row is one row of a table. Values are texts; an empty one is absent.
type row struct {
	line   int
	names  []string
	values []string
}

func (r row) get(name string) string {
	for i, n := range r.names {
		if n == name && i < len(r.values) {
			return r.values[i]
		}
	}
	return ""
}

// sniffed is the number of rows from which columns and units are found.
const sniffed = 1000

// readFile reads one file. What is a range query of Prometheus is returned, all else is added to the builder.
func (b *builder) readFile(path string) ([]query, error) {
	if table.IsParquet(path) {
		b.report.Format = "Parquet"
		return nil, b.readTable(path, func(visit func(row) error) error {
			return table.ScanParquet(path, func(i int64, names, values []string) error {
				return visit(row{int(min(i+1, 1<<30)), names, values})
			})
		})
	}
	f, err := textfile.OpenText(path, b.options.Progress)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<16)
	if mark, _ := in.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		in.Discard(3)
	}
	first, err := firstByte(in)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case first == '{' || first == '[':
		return b.readJSON(path, in)
	}
	return nil, b.readTable(path, func(visit func(row) error) error { return b.scanCSV(in, visit) })
}

// firstByte is the first byte that is no white space, which is left unread.
func firstByte(in *bufio.Reader) (byte, error) {
	for {
		c, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		if !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, in.UnreadByte()
		}
	}
}

// readTable reads rows, of which the first ones say what the columns are.
func (b *builder) readTable(path string, scan func(visit func(row) error) error) error {
	var first []row
	var l *layout
	begin := func() (err error) {
		if l, err = newLayout(&b.options, first, b.report); err != nil {
			return err
		}
		for _, r := range first {
			b.addRow(l, r)
		}
		first = nil
		return nil
	}
	b.report.Mapped, b.report.Unused = nil, nil
	err := scan(func(r row) error {
		if l != nil {
			b.addRow(l, r)
			return nil
		}
		if first = append(first, r); len(first) < sniffed {
			return nil
		}
		return begin()
	})
	if err == nil && l == nil {
		if len(first) == 0 {
			err = errors.New("the log has no rows")
		} else {
			err = begin()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// separators of tables, as far as they are told apart.
var separators = []rune{',', ';', '\t', '|'}

// scanCSV reads a table of text with a header.
func (b *builder) scanCSV(in *bufio.Reader, visit func(row) error) error {
	head, err := in.Peek(in.Size())
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	if !utf8.Valid(line) || bytes.IndexByte(line, 0) >= 0 {
		return errors.New("not a text file: expected CSV, JSON or Parquet")
	}
	c := csv.NewReader(in)
	c.Comma, c.FieldsPerRecord, c.LazyQuotes = separatorOf(line), -1, true
	c.TrimLeadingSpace = c.Comma != '\t' // a tab is a space
	b.report.Format = fmt.Sprintf("CSV, separator %q", c.Comma)
	names, err := c.Read()
	if err != nil {
		return err
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	if !slices.ContainsFunc(names, func(n string) bool { return strings.ContainsFunc(n, isLetter) }) {
		return fmt.Errorf("line 1 is %q, expected the names of the columns", suggest.Clip(string(line)))
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
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if err := visit(row{at, names, values}); err != nil {
			return err
		}
	}
}

func isLetter(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }

// separatorOf is the separator that splits the header into the most parts.
func separatorOf(header []byte) rune {
	best, parts := ',', 0
	for _, s := range separators {
		if n := strings.Count(string(header), string(s)); n > parts {
			best, parts = s, n
		}
	}
	return best
}

// readJSON reads JSON documents, one after the other or as one array: rows, spans or range queries.
func (b *builder) readJSON(path string, in *bufio.Reader) (queries []query, err error) {
	b.report.Format = "JSON"
	err = b.readTable(path, func(visit func(row) error) error {
		d := &documents{in: in}
		rows := 0
		for {
			text, err := d.next()
			if errors.Is(err, io.EOF) {
				if rows == 0 && len(queries) > 0 {
					return errOnlyQueries
				}
				return nil
			}
			if err != nil {
				return err
			}
			switch {
			case bytes.Contains(text, []byte(`"resourceSpans"`)):
				b.report.Format = "OpenTelemetry spans (OTLP JSON)"
				n, err := scanSpans(text, d.line, visit)
				if rows += n; err != nil {
					return fmt.Errorf("line %d: %w", d.line, err)
				}
				continue
			case bytes.Contains(text, []byte(`"resultType"`)):
				found, err := parseQuery(text)
				if err != nil {
					return fmt.Errorf("line %d: %w", d.line, err)
				}
				queries = append(queries, found...)
				continue
			}
			r := row{line: d.line}
			if err := flatten(text, &r); err != nil {
				return fmt.Errorf("line %d: %w", d.line, err)
			}
			rows++
			if err := visit(r); err != nil {
				return err
			}
		}
	})
	if errors.Is(err, errOnlyQueries) {
		return queries, nil
	}
	return nil, err
}

var errOnlyQueries = errors.New("range queries alone")

// documents splits a stream into JSON documents: concatenated, or the elements of an array.
type documents struct {
	in      *bufio.Reader
	decoder *json.Decoder
	lines   *lineCounter
	array   bool
	line    int // of the last document
}

// lineCounter counts the lines read through it.
type lineCounter struct {
	in     io.Reader
	ends   []int64 // offsets after newlines that are not passed yet
	offset int64
	passed int
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for i, x := range p[:n] {
		if x == '\n' {
			c.ends = append(c.ends, c.offset+int64(i)+1)
		}
	}
	c.offset += int64(n)
	return n, err
}

// at is the line, from 1, of an offset; offsets may not fall.
func (c *lineCounter) at(offset int64) int {
	i, _ := slices.BinarySearch(c.ends, offset+1)
	c.passed += i
	c.ends = c.ends[i:]
	return c.passed + 1
}

func (d *documents) next() (text json.RawMessage, err error) {
	if d.decoder == nil {
		d.lines = &lineCounter{in: textfile.Limit(d.in, "the log", textfile.MaxData)}
		d.decoder = json.NewDecoder(d.lines)
		if c, err := firstByte(d.in); err == nil && c == '[' {
			d.array = true
			if _, err := d.decoder.Token(); err != nil {
				return nil, err
			}
		}
	}
	if d.array && !d.decoder.More() {
		return nil, io.EOF
	}
	if err = d.decoder.Decode(&text); err == nil {
		d.line = d.lines.at(d.decoder.InputOffset() - int64(len(text)))
	} else if !errors.Is(err, io.EOF) || d.array {
		err = fmt.Errorf("line %d: not valid JSON: %w", d.lines.at(d.decoder.InputOffset()), err)
	}
	return text, err
}

// flatten enters the members of a JSON object into a row; those of inner objects as "outer.inner". Lists are left out.
func flatten(text []byte, r *row) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("expected an object for each request, such as {\"timestamp\": 0.5, \"prompt_tokens\": 200, ...}")
	}
	return r.members(d, "", 0)
}

// members enters what follows a "{".
func (r *row) members(d *json.Decoder, prefix string, depth int) error {
	const deepest = 16
	if depth > deepest {
		return fmt.Errorf("objects are nested more than %d deep", deepest)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		name := prefix + key.(string)
		value, err := d.Token()
		if err != nil {
			return err
		}
		switch v := value.(type) {
		case json.Delim:
			if v == '{' {
				err = r.members(d, name+".", depth+1)
			} else {
				err = skipList(d)
			}
			if err != nil {
				return err
			}
		case nil:
		default:
			r.names, r.values = append(r.names, name), append(r.values, fmt.Sprint(v))
		}
	}
	_, err := d.Token() // the "}"
	return err
}

// skipList reads what follows a "[".
func skipList(d *json.Decoder) error {
	for depth := 1; depth > 0; {
		t, err := d.Token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
	}
	return nil
}
