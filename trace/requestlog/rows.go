package requestlog

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/encoding/unicode"

	"lorasim/internal/table"
	"lorasim/internal/textfile"
	"lorasim/trace"
	"lorasim/trace/requestlog/evidence"
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
func (b *builder) readFile(ctx context.Context, path string) ([]query, error) {
	files := table.Files(b.options.Files)
	if table.IsParquet(files, path) {
		b.report.Format = "Parquet"
		return nil, b.readTable(path, func(visit func(row) error) error {
			return table.ScanParquet(files, path, func(i int64, names, values []string) error {
				return visit(row{int(min(i+1, 1<<30)), names, values})
			})
		})
	}
	f, err := textfile.OpenText(ctx, files.FS, path, b.options.Progress)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := asUTF8(f)
	first, err := firstByte(in)
	switch {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: the file is empty", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	case first == '{' || first == '[':
		return b.readJSON(path, in)
	}
	scan := b.scanCSV
	switch head := headOf(in); {
	case isAccessLog(head):
		scan = b.scanAccessLog
	case jsonAmongText(head):
		return b.readJSON(path, in)
	}
	return nil, b.readTable(path, func(visit func(row) error) error { return scan(in, visit) })
}

// asUTF8 takes off a byte order mark, and turns UTF-16 with one into UTF-8.
func asUTF8(r io.Reader) *bufio.Reader {
	in := bufio.NewReaderSize(r, 1<<16)
	mark, _ := in.Peek(3)
	switch {
	case bytes.Equal(mark, []byte("\xef\xbb\xbf")):
		in.Discard(3)
	case bytes.HasPrefix(mark, []byte("\xff\xfe")), bytes.HasPrefix(mark, []byte("\xfe\xff")):
		decoder := unicode.UTF16(unicode.LittleEndian, unicode.UseBOM).NewDecoder()
		in = bufio.NewReaderSize(decoder.Reader(in), 1<<16)
	}
	return in
}

// headOf is the beginning of a text, which is left unread.
func headOf(in *bufio.Reader) []byte {
	head, _ := in.Peek(in.Size())
	return head
}

// jsonAmongText reports whether most lines of a text are JSON objects, as where a program logs both.
func jsonAmongText(head []byte) bool {
	objects, lines := 0, 0
	for line := range bytes.Lines(head) {
		if lines++; bytes.HasPrefix(line, []byte("{")) {
			objects++
		}
	}
	return 2*objects > lines
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

// readTable reads rows. It finds the columns by the first rows.
func (b *builder) readTable(path string, scan func(visit func(row) error) error) error {
	var first []row
	var l *evidence.Layout
	begin := func() (err error) {
		if l, err = b.layout(first); err != nil {
			return err
		}
		for _, r := range first {
			b.addRow(l, r)
		}
		first = nil
		return nil
	}
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

// layout decides what the columns of a table mean.
func (b *builder) layout(first []row) (*evidence.Layout, error) {
	t := &evidence.Table{Columns: columnsOf(first)}
	for _, r := range first {
		t.Rows = append(t.Rows, r.get)
	}
	l, err := evidence.Decide(t, evidence.Options{Columns: b.options.Columns,
		Unit: cmp.Or(b.options.TimeUnit, b.unit), Blocks: b.blocks})
	if err != nil {
		return nil, err
	}
	b.report.decided(l)
	b.dated = b.dated || l.IsDated()
	if c := l.Column(evidence.Adapter); strings.Contains(strings.ToLower(c), "model") ||
		b.report.Format == inferencePerf {
		b.model = c
	}
	return l, nil
}

// columnsOf lists the columns of rows in the order of their first appearance.
func columnsOf(rows []row) (names []string) {
	seen := map[string]bool{}
	for _, r := range rows {
		for _, c := range r.names {
			if !seen[c] && c != "" {
				seen[c] = true
				names = append(names, c)
			}
		}
	}
	return names
}

// addRow enters a row as a request, or drops it.
func (b *builder) addRow(l *evidence.Layout, r row) {
	b.report.Rows++
	q, err := l.Request(r.get)
	if err != nil {
		b.report.Drop(err.Error(), r.line)
		return
	}
	one := request{at: q.At, Request: trace.Request{Prompt: q.Prompt, Output: q.Output, MaxNew: q.MaxNew}}
	one.Adapter = b.adapter(q.Adapter)
	if one.Adapter >= 0 && b.adapters[one.Adapter].Rank == 0 {
		b.adapters[one.Adapter].Rank = q.Rank
	}
	b.add(one)
}

// readJSON reads JSON documents, one after the other or as one array: rows, spans or range queries.
func (b *builder) readJSON(path string, in *bufio.Reader) (queries []query, err error) {
	b.report.Format = "JSON"
	d, err := newDocuments(in, b.report)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = b.readTable(path, func(visit func(row) error) error {
		s := &jsonScan{builder: b, visit: visit}
		for {
			text, line, err := d.next()
			if errors.Is(err, io.EOF) {
				queries = s.queries
				for i := range queries {
					queries[i].path = path
				}
				if s.rows == 0 && len(queries) > 0 {
					return errOnlyQueries
				}
				return s.spans.visit(s.visit, s.report)
			}
			if err == nil {
				err = s.document(text, line)
			}
			if err != nil {
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

// jsonScan visits the rows of JSON documents.
type jsonScan struct {
	*builder
	visit   func(row) error
	rows    int
	queries []query
	spans   spanSet
}

// document reads one document.
func (s *jsonScan) document(text []byte, line int) error {
	placed := func(err error) error {
		if err != nil {
			err = fmt.Errorf("line %d: %w", line, err)
		}
		return err
	}
	switch {
	case bytes.Contains(text, []byte(`"resourceSpans"`)):
		s.report.Format = "OpenTelemetry spans (OTLP JSON)"
		return placed(s.spans.export(text, line))
	case isQuery(text):
		found, err := parseQuery(text)
		if found != nil {
			s.queries = append(s.queries, *found)
		}
		return placed(err)
	}
	r := row{line: line}
	if err := flatten(text, &r); err != nil {
		return placed(err)
	}
	if isSpan(r, text) {
		s.report.Format = "OpenTelemetry spans"
		return placed(s.spans.flat(r, text))
	}
	if s.rows == 0 && !slices.ContainsFunc(r.names, evidence.NamesTime) {
		if list := objectsIn(text); len(list) > 0 {
			for _, inner := range list {
				if err := s.document(inner, line); err != nil {
					return err
				}
			}
			return nil
		}
	}
	s.rows++
	r, keep := s.known(r, text)
	if !keep {
		return nil
	}
	return s.visit(r)
}

// objectsIn are the objects of the longest list of objects that a JSON object has as a member.
func objectsIn(text []byte) (list []json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(text, &members) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		var found []json.RawMessage
		if json.Unmarshal(members[name], &found) == nil && len(found) > len(list) &&
			bytes.HasPrefix(bytes.TrimSpace(found[0]), []byte("{")) {
			list = found
		}
	}
	return list
}

// documents are the JSON documents of a file. next ends with io.EOF.
type documents interface {
	next() (text json.RawMessage, line int, err error)
}

// newDocuments detects whether the JSON documents of a file are lines (JSON Lines), and otherwise separates them by
// their syntax.
func newDocuments(in *bufio.Reader, report *Report) (documents, error) {
	head := headOf(in)
	line, _, whole := bytes.Cut(bytes.TrimLeft(head, "\r\n\t "), []byte("\n"))
	line, valid := validJSON(bytes.TrimSpace(line))
	if whole && (valid && line[0] == '{' || line[0] != '{' && line[0] != '[') {
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, textfile.MaxLine)
		return &lineDocuments{lines: lines, report: report}, nil
	}
	d := &stream{lines: &lineCounter{in: newWithoutNaN(textfile.Limit(in, "the log", textfile.MaxData))},
		report: report}
	d.decoder = json.NewDecoder(d.lines)
	if d.array = head[len(head)-len(bytes.TrimLeft(head, "\r\n\t "))] == '['; d.array {
		if _, err := d.decoder.Token(); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// lineDocuments are JSON Lines. Lines that are no JSON are dropped: other programs may write into the same log, and the
// last line may be cut off.
type lineDocuments struct {
	lines  *bufio.Scanner
	line   int
	report *Report
}

func (d *lineDocuments) next() (text json.RawMessage, line int, err error) {
	for d.lines.Scan() {
		d.line++
		text := bytes.TrimSpace(d.lines.Bytes())
		if len(text) == 0 {
			continue
		}
		text, valid := validJSON(text)
		if valid {
			return text, d.line, nil
		}
		d.report.Rows++
		d.report.Drop("not valid JSON", d.line)
	}
	if err := d.lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("line %d: %w", d.line+1, err)
	}
	return nil, 0, io.EOF
}

// stream splits a stream into JSON documents: concatenated, or the elements of an array.
type stream struct {
	decoder *json.Decoder
	lines   *lineCounter
	array   bool
	read    int // documents
	report  *Report
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

func (d *stream) next() (text json.RawMessage, line int, err error) {
	if d.array && !d.decoder.More() {
		if _, err := d.decoder.Token(); err == nil || d.read == 0 && errors.Is(err, io.EOF) {
			return nil, 0, io.EOF
		}
	}
	if err = d.decoder.Decode(&text); err == nil {
		d.read++
		return text, d.lines.at(d.decoder.InputOffset() - int64(len(text))), nil
	}
	line = d.lines.at(d.decoder.InputOffset())
	switch cut := errors.Is(err, io.ErrUnexpectedEOF) || d.array && errors.Is(err, io.EOF); {
	case cut && d.read > 0: // as in a file that is being written
		d.report.Rows++
		d.report.Drop("the end of the file is cut off", line)
		return nil, 0, io.EOF
	case errors.Is(err, io.EOF) && !d.array:
		return nil, 0, io.EOF
	}
	return nil, 0, fmt.Errorf("line %d: not valid JSON: %w", line, err)
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
		return fmt.Errorf(
			"expected an object for each request, such as {\"timestamp\": 0.5, \"prompt_tokens\": 200, ...}")
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
			listed := false
			if v == '{' {
				err = r.members(d, name+".", depth+1)
			} else {
				listed, err = skipList(d)
			}
			if err != nil {
				return err
			}
			if listed && evidence.NamesError(name) { // a list of errors
				r.names, r.values = append(r.names, name), append(r.values, "a list")
			}
		case nil:
		default:
			r.names, r.values = append(r.names, name), append(r.values, fmt.Sprint(v))
		}
	}
	_, err := d.Token() // the "}"
	return err
}

// skipList reads what follows a "[". some: the list is not empty.
func skipList(d *json.Decoder) (some bool, err error) {
	for depth := 1; depth > 0; {
		t, err := d.Token()
		if err != nil {
			return false, err
		}
		switch t {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
			continue
		}
		some = true
	}
	return some, nil
}
