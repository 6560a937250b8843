package importer

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/result"
	"lorasim/internal/format"
	"lorasim/sim/record"
)

// logReader reads a log line by line. Headers of a section (server, client, rate) apply
// until the next header. Other context applies to one run and ends with its block.
type logReader struct {
	name     string
	line     int
	runs     []*Imported
	warnings []Warning
	context  Context
	args     map[string]any
	sends    struct { // what vLLM prints before its block
		rate        result.Rate
		concurrency int
	}
	block  *Imported // block being read; nil: none
	indent int       // characters before each row, which a log collector added
	noise  int       // number of successive lines in the block that are not rows
}

// maxLine is the largest length of a line, in bytes. The longest known lines are argument
// lists of a few kilobytes.
const maxLine = 1 << 20

// maxLines is the largest number of lines without a result. It limits endless pipes.
const maxLines = 2_000_000

func readLog(r io.Reader, name string) ([]*Imported, []Warning, error) {
	l := &logReader{name: name, line: 1}
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 1<<16), maxLine)
	// progress bars overwrite themselves by \r
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexAny(data, "\r\n"); i >= 0 {
			return i + 1, data[:i+1], nil
		}
		if atEOF && len(data) > 0 {
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	runs, taken := 0, 0 // lines since the last result
	for s.Scan() {
		text := s.Text()
		l.take(strings.TrimPrefix(strings.TrimRight(text, "\r\n"), "\ufeff"))
		if strings.HasSuffix(text, "\n") {
			l.line++
		}
		if len(l.runs) != runs {
			runs, taken = len(l.runs), 0
		}
		if taken++; taken > maxLines {
			return nil, nil, fmt.Errorf("%s:%d: %d lines without a result: expected the log of a serving benchmark",
				name, l.line, maxLines)
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, nil, fmt.Errorf("%s:%d: the line is longer than %d bytes: expected a text file", name, l.line,
			maxLine)
	} else if err != nil {
		return nil, nil, fmt.Errorf("%s:%d: %w", name, l.line, err)
	}
	l.endBlock("by the end of the file")
	return l.runs, l.warnings, nil
}

func (l *logReader) warn(line int, format string, a ...any) {
	l.warnings = append(l.warnings, Warning{l.name, line, fmt.Sprintf(format, a...)})
}

// here describes the line at which a block seems to end.
func (l *logReader) here() string { return fmt.Sprintf("before line %d", l.line) }

// blockTitle matches the first line of a block, behind what a log collector may have put before it.
var blockTitle = regexp.MustCompile(`^(.*?)=+ Serving Benchmark Result =+\s*$`)

// take reads one line.
func (l *logReader) take(text string) {
	text = unstyled(text)
	if m := blockTitle.FindStringSubmatch(text); m != nil {
		l.endBlock(l.here())
		l.block = &Imported{Result: &result.Result{Meta: result.Meta{Source: result.Log}}, File: l.name, Line: l.line,
			seen: map[string]bool{}}
		l.indent, l.noise = len(m[1]), 0
		return
	}
	if l.block != nil && l.indent > 0 {
		text = text[min(l.indent, len(text)):]
	}
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "":
	case l.block != nil && isBlockEnd(trimmed):
		l.endBlock("")
	case l.takeEnding(trimmed):
	case l.takeContext(trimmed):
	case l.block == nil:
		l.takeHeader(trimmed)
	case !isProgress(trimmed):
		if !l.addRow(text) {
			l.endBlock(l.here())
		}
	}
}

// isBlockEnd reports whether a line is the last one of a block.
func isBlockEnd(text string) bool { return len(text) >= 20 && strings.Trim(text, "=") == "" }

var style = regexp.MustCompile("\x1b\\[[0-9;]*m")

// unstyled removes the colours of terminals.
func unstyled(text string) string {
	if strings.IndexByte(text, '\x1b') < 0 {
		return text
	}
	return style.ReplaceAllString(text, "")
}

// takeHeader reads what vLLM prints before its block on how it sends requests.
func (l *logReader) takeHeader(text string) {
	label, value, _ := strings.Cut(text, ":")
	switch value = strings.TrimSpace(value); label {
	case "Traffic request rate":
		if rate, err := result.ParseRate(value); err == nil {
			l.sends.rate = rate
		}
	case "Maximum request concurrency":
		l.sends.concurrency, _ = strconv.Atoi(value) // None: no limit
	}
}

// endingLine matches the lines below a block of lorasim; see result.Result.Shortfall.
var endingLine = regexp.MustCompile(`^(\d+) of (\d+) (failed|rejected|aborted|unfinished|not completed|not sent): (.+)$`)

// takeEnding reads a line below a block on requests that did not succeed. It returns false
// for other lines.
func (l *logReader) takeEnding(text string) bool {
	m := endingLine.FindStringSubmatch(text)
	if m == nil || l.block != nil || len(l.runs) == 0 {
		return false
	}
	var n, all int64
	if enter(&n, m[1]) != nil || enter(&all, m[2]) != nil {
		return false
	}
	r := l.runs[len(l.runs)-1].Result
	if r.Ended == nil || len(r.Ended.Reasons) == 0 {
		r.Ended = &result.Endings{}
	}
	e := r.Ended
	e.Requests = all
	if m[3] == "not sent" {
		e.Unsent, e.Requests = n, all-n
		return true
	}
	status, err := record.ParseStatus(m[3])
	if err != nil { // "not completed": the status is unknown
		status = record.Failed
	}
	*e.Of(status) += n
	e.Reasons = append(e.Reasons, result.Reason{Status: m[3], Reason: m[4], Count: n})
	return true
}

// contextLines are the patterns of lines with information on a run, and the variables for
// their groups.
var contextLines = []struct {
	pattern *regexp.Regexp
	to      func(l *logReader) []any
}{
	{regexp.MustCompile(`^(?:benchmark_args=)?Namespace\((.*)$`), func(l *logReader) []any { return []any{&l.args} }},
	{regexp.MustCompile(`\bSERVER=(\S+)\s+CLIENT=(\S+)`),
		func(l *logReader) []any { return []any{&l.context.Server, &l.context.Client} }},
	{regexp.MustCompile(`^SERVER:\s*(\S.*)$`), func(l *logReader) []any { return []any{&l.context.Server} }},
	{regexp.MustCompile(`^CLIENT:\s*(\S.*)$`), func(l *logReader) []any { return []any{&l.context.Client} }},
	{regexp.MustCompile(`^#\s*request rate\s*[=:]\s*(\S+)$`),
		func(l *logReader) []any { return []any{&l.context.SectionRate} }},
	{regexp.MustCompile(`^#Input tokens:\s*(\d+)$`), func(l *logReader) []any { return []any{&l.context.InputTokens} }},
	{regexp.MustCompile(`^#Output tokens:\s*(\d+)$`),
		func(l *logReader) []any { return []any{&l.context.OutputTokens} }},
	{regexp.MustCompile(`^last arrival:\s*([-+.\deE]+)$`),
		func(l *logReader) []any { return []any{&l.context.LastArrival} }},
	// The counts may follow an unfinished progress bar on the same line.
	{regexp.MustCompile(`^(?:.*(?:it/s|s/it)\])?\[(\d+(?:, \d+)*)\]$`),
		func(l *logReader) []any { return []any{&l.context.ModelCounts} }},
}

// takeContext reads a line with information on a run. It returns false for other lines.
// Such a line never occurs inside a block, so it ends a block.
func (l *logReader) takeContext(text string) bool {
	for _, c := range contextLines {
		if m := c.pattern.FindStringSubmatch(text); m != nil {
			l.endBlock(l.here())
			for i, to := range c.to(l) {
				if err := enter(to, m[i+1]); err != nil {
					l.warn(l.line, "%v", err)
				}
			}
			return true
		}
	}
	return false
}

// enter parses text into to, by the type of to.
func enter(to any, text string) (err error) {
	switch to := to.(type) {
	case *string:
		*to = text
	case *int64:
		*to, err = strconv.ParseInt(text, 10, 64)
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
	case *[]int64:
		*to = nil
		for s := range strings.SplitSeq(text, ", ") {
			n := int64(0)
			if err := enter(&n, s); err != nil {
				return err
			}
			*to = append(*to, n)
		}
	case *map[string]any:
		if *to, err = namespace(text); err != nil {
			err = fmt.Errorf("argument list not understood: %w", err)
		}
	}
	return err
}

// isProgress reports whether a line is a progress bar. Progress bars may be printed in the
// middle of a block.
func isProgress(text string) bool {
	return strings.Contains(text, "it/s") || strings.Contains(text, "s/it") || strings.Contains(text, "%|")
}

// endBlock adds the block being read, if any, to the runs. cut says where the block was cut
// short; "" means that its last line was found.
func (l *logReader) endBlock(cut string) {
	b := l.block
	if b == nil {
		return
	}
	if l.block = nil; cut != "" {
		b.Truncated = true
		l.warn(b.Line, "the block that begins here is cut short %s", cut)
	}
	b.Context, b.Layout = l.context, b.layout()
	if b.RequestRate == 0 {
		b.RequestRate = l.sends.rate
	}
	if b.MaxConcurrency == 0 && b.Layout == vllmClient {
		b.MaxConcurrency = l.sends.concurrency
	}
	b.setArguments(l.args)
	b.InferStreaming()
	b.defineLine(nil)
	l.runs = append(l.runs, b)
	l.args = nil
	l.sends.rate, l.sends.concurrency = 0, 0
	l.context = Context{Server: l.context.Server, Client: l.context.Client, SectionRate: l.context.SectionRate}
}

// setArguments sets the arguments of a run. Rows of the block take precedence.
func (m *Imported) setArguments(args map[string]any) {
	for name, v := range args {
		m.SetConfig(name, v)
	}
	if v, ok := args["request_rate"].(float64); ok && v > 0 && m.RequestRate == 0 {
		m.RequestRate = result.Rate(v)
	}
	if s, ok := args["dataset_name"].(string); ok {
		m.DatasetName = s
	} else if s, ok := args["trace_name"].(string); ok && args["use_trace"] == true {
		m.DatasetName = s
	}
	if s, ok := args["backend"].(string); ok && m.Backend == "" {
		m.Backend = s
	}
	if v, ok := args["max_concurrency"].(int64); ok && v > 0 && !m.seen["Max request concurrency:"] {
		m.MaxConcurrency = int(v)
	}
	if v, ok := args["seed"].(int64); ok {
		m.Seed = &v
	}
	for name, to := range map[string]**int{"random_input_len": &m.RandomInputLen,
		"random_output_len": &m.RandomOutputLen} {
		if v, ok := args[name].(int64); ok {
			*to = new(int(v))
		}
	}
	switch v := args["random_range_ratio"].(type) {
	case float64:
		m.RandomRangeRatio = &v
	case int64:
		m.RandomRangeRatio = new(float64(v))
	}
	// Requests that did not complete count as failed, except for traces, which may have fewer
	// requests than num_prompts.
	asked, ok := args["num_prompts"].(int64)
	completed, has := m.Metrics.Get(result.Completed)
	switch {
	case m.failures > 0 || m.seen[failedRow]:
		m.Ended = &result.Endings{Requests: int64(completed) + m.failures, Failed: m.failures}
	case ok && has && args["use_trace"] != true && completed <= float64(asked) && len(m.ModelCounts) == 0:
		m.Ended = &result.Endings{Requests: asked, Failed: asked - int64(completed)}
	}
}

// maxNoise is the largest number of other lines between two rows of a block, from programs
// that print to the same terminal. After more lines the block ends.
const maxNoise = 8

// known holds the rows of all layouts by label, and titles by their text.
var known = func() map[string]result.Row {
	rows := map[string]result.Row{}
	for _, l := range result.Layouts() {
		for _, r := range l.Rows() {
			rows[r.Label] = r
		}
	}
	return rows
}()

// addRow reads a line of the block. It returns false if the block seems to have ended.
func (l *logReader) addRow(text string) bool {
	b, trimmed := l.block, strings.TrimRight(text, " \t")
	label, value, _ := strings.Cut(trimmed, ":")
	label, value = strings.TrimSpace(label)+":", strings.TrimSpace(value)
	title := strings.Trim(trimmed, "-")
	isTitle := title != "" && strings.HasPrefix(trimmed, "---") && strings.HasSuffix(trimmed, "---")
	_, numErr := strconv.ParseFloat(value, 64)
	row, ok := known[label]
	printed := result.FormatRow(result.Row{Label: label}, value)
	switch {
	case isTitle:
		label = strings.TrimSpace(title)
	case ok && b.repeats(row):
		l.warn(l.line, "second row %q, kept as it is", row.Label)
	case ok:
		if err := b.set(row, value); err != nil {
			l.warn(l.line, "row %q: %v", row.Label, err)
		}
	case b.setVLLM(label, value):
	case numErr == nil, value != "" && trimmed == strings.TrimRight(printed, " "):
		b.keepRow(label, value)
	case value == "" && strings.HasSuffix(trimmed, ":"): // the title of rows that follow
	case l.noise == maxNoise:
		return false
	default:
		l.noise++
		l.warn(l.line, "not a row of the block: %q", clip(trimmed))
		return true
	}
	l.noise = 0
	b.seen[label] = true
	b.Block += text + "\n"
	return true
}

// repeats reports whether the block already has the row, or its value under another label.
// The limit on concurrency always has a value, "not set".
func (m *Imported) repeats(row result.Row) bool {
	if row.Kind == result.ConcurrencyRow {
		return m.seen[row.Label]
	}
	_, there := m.Value(row)
	return there
}

// set sets the value of a row in the result.
func (m *Imported) set(row result.Row, value string) error {
	switch row.Kind {
	case result.BackendRow:
		m.Backend = value
		if value == "" {
			return errors.New("is empty")
		}
		return nil
	case result.RateRow:
		rate, err := result.ParseRate(value)
		m.RequestRate = rate
		return err
	case result.ConcurrencyRow:
		n, err := strconv.Atoi(value)
		if value == "not set" {
			return nil
		} else if err != nil || n <= 0 {
			return fmt.Errorf("%q, expected a number above 0, or not set", clip(value))
		}
		m.MaxConcurrency = n
		return nil
	}
	return m.setValue(row.Metric, value)
}

// setValue sets a metric from its text.
func (m *Imported) setValue(k result.ID, value string) error {
	v, err := strconv.ParseFloat(value, 64)
	switch {
	case err == nil && !format.IsFinite(v):
		return fmt.Errorf("the value is %s: unknown", value)
	case err != nil:
		return fmt.Errorf("%q is not a number", clip(value))
	case k.Metric().Int && v != math.Trunc(v):
		return fmt.Errorf("%q is not a whole number", clip(value))
	}
	m.Metrics.Set(k, v)
	return nil
}

// layout infers the layout from rows that only one layout has.
func (m *Imported) layout() result.Layout {
	has := func(labels ...string) bool {
		return slices.ContainsFunc(labels, func(label string) bool { return m.seen[label] })
	}
	if !has("Backend:", "Total throughput (tok/s):", "Total generated tokens (retokenized):") &&
		has(vllmRows...) {
		return vllmClient
	}
	for _, only := range []struct {
		layout result.Layout
		labels []string
	}{
		{result.LoRA, []string{"Inter-token Latency", "Total throughput (tok/s):"}},
		{result.SGLang, []string{"P95 E2E Latency (ms):", "P90 TTFT (ms):", "P90 TPOT (ms):", "P90 ITL (ms):"}},
		{result.SGLang056, []string{"Mean TPOT (ms):", "Total input text tokens:", "Peak concurrent requests:"}},
	} {
		if has(only.labels...) {
			return only.layout
		}
	}
	return result.SGLang054
}

var argument = regexp.MustCompile(`^[\pL\d_.]+=`)

// namespace parses a Python program's argument list, Namespace(a=1, b='x'), from behind the
// opening bracket to the closing one. Strings, numbers, None, True and False become
// string, int64, float64, nil and bool. A list, a dictionary or an object remains the text
// that Python prints for it.
func namespace(s string) (map[string]any, error) {
	args := map[string]any{}
	for rest := s; ; {
		rest = strings.TrimLeft(rest, ", ")
		if strings.HasPrefix(rest, ")") {
			return args, nil
		}
		name := argument.FindString(rest)
		if name == "" {
			return nil, fmt.Errorf("character %d: expected NAME=VALUE or )", len(s)-len(rest)+1)
		}
		rest = rest[len(name):]
		name = strings.TrimSuffix(name, "=")
		end := valueEnd(rest)
		if end <= 0 {
			return nil, fmt.Errorf("character %d: expected the value of %s and a comma or ) behind it",
				len(s)-len(rest)+1, name)
		}
		args[name] = literal(rest[:end])
		rest = rest[end:]
	}
}

// valueEnd returns the index of the next comma or bracket that is not part of the value; -1
// if there is none.
func valueEnd(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case depth == 0 && (c == ',' || c == ')'):
			return i
		case strings.IndexByte("([{<", c) >= 0:
			depth++
		case strings.IndexByte(")]}>", c) >= 0:
			depth--
		}
	}
	return -1
}

// literals are Python's words for values.
var literals = map[string]any{"None": nil, "True": true, "False": false, "nan": math.NaN(), "inf": math.Inf(1),
	"-inf": math.Inf(-1)}

// literal returns the value of a Python literal, or its text if it is another expression.
func literal(s string) any {
	if v, ok := literals[s]; ok {
		return v
	}
	if i, err := strconv.ParseInt(s, 10, 64); err == nil {
		return i
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil && strings.IndexByte("+-.0123456789", s[0]) >= 0 {
		return f
	}
	if n := len(s); n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n-1] == s[0] {
		return unquote(s[1:n-1], s[0])
	}
	return s
}

// unquote replaces the escapes of Python's repr, which are a subset of Go's. It returns text
// with other escapes unchanged.
func unquote(s string, quote byte) string {
	var b strings.Builder
	for rest := s; rest != ""; {
		r, _, tail, err := strconv.UnquoteChar(rest, quote)
		if err != nil {
			return s
		}
		b.WriteRune(r)
		rest = tail
	}
	return b.String()
}
