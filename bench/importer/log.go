package importer

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"lorasim/bench/result"
)

// logReader walks through a log. Headers of a section (server, client, rate)
// hold until the next header; what belongs to one run ends with its block.
type logReader struct {
	name     string
	line     int
	runs     []*Imported
	warnings []Warning
	context  Context
	args     map[string]any
	block    *block // being read; nil: none
}

func readLog(r io.Reader, name string) ([]*Imported, []Warning, error) {
	l := &logReader{name: name}
	lines := newLineReader(r, name)
	for {
		text, err := lines.next()
		if errors.Is(err, io.EOF) {
			l.endBlock(cutByEnd)
			return l.runs, l.warnings, nil
		}
		if err != nil {
			return nil, nil, err
		}
		l.line = lines.number
		l.take(strings.TrimPrefix(text, "\ufeff"))
	}
}

func (l *logReader) warn(line int, format string, a ...any) {
	l.warnings = append(l.warnings, Warning{l.name, line, fmt.Sprintf(format, a...)})
}

// take reads one line.
func (l *logReader) take(text string) {
	switch trimmed := strings.TrimSpace(text); {
	case trimmed == "":
	case trimmed == result.BlockStart():
		l.endBlock(cutShort)
		l.block = &block{line: l.line}
	case l.block != nil && trimmed == result.BlockEnd():
		l.endBlock(complete)
	case l.takeEnding(trimmed):
	case l.takeContext(trimmed):
	case l.block != nil && !isProgress(trimmed):
		if !l.block.add(l, text) {
			l.endBlock(cutShort)
		}
	}
}

// endingLine matches what stands below a block of lorasim; see result.Shortfall.
var endingLine = regexp.MustCompile(`^(\d+) of (\d+) (failed|rejected|aborted|unfinished|not completed|not sent): (.+)$`)

// takeEnding reads a line below a block on requests that did not succeed; false
// if it is none.
func (l *logReader) takeEnding(text string) bool {
	m := endingLine.FindStringSubmatch(text)
	if m == nil || l.block != nil || len(l.runs) == 0 {
		return false
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	all, err2 := strconv.ParseInt(m[2], 10, 64)
	if err != nil || err2 != nil {
		return false
	}
	r := l.runs[len(l.runs)-1].Result
	if r.Ended == nil || len(r.Ended.Reasons) == 0 {
		r.Ended = &result.Endings{}
	}
	e := r.Ended
	e.Requests = all
	switch m[3] {
	case "not sent":
		e.Unsent, e.Requests = n, all-n
		return true
	case "rejected":
		e.Rejected += n
	case "aborted":
		e.Aborted += n
	case "unfinished":
		e.Unfinished += n
	default:
		e.Failed += n
	}
	e.Reasons = append(e.Reasons, result.Reason{Status: m[3], Reason: m[4], Count: n})
	return true
}

// takeContext reads a line that tells something of a run; false if it does not.
// Such a line never stands inside a block, and so ends one.
func (l *logReader) takeContext(text string) bool {
	c, args := l.context, l.args
	found, err := c.take(text, &args)
	if !found {
		return false
	}
	if l.block != nil {
		l.endBlock(cutShort)
		c, args = l.context, l.args
		_, err = c.take(text, &args)
	}
	if err != nil {
		l.warn(l.line, "%v", err)
	}
	l.context, l.args = c, args
	return true
}

// take enters what a line tells into the context or the arguments; false if it
// tells nothing.
func (c *Context) take(text string, args *map[string]any) (found bool, err error) {
	if before, list, ok := strings.Cut(text, "Namespace("); ok && (before == "" || before == "benchmark_args=") {
		if *args, err = namespace(list); err != nil {
			return true, fmt.Errorf("argument list not understood: %w", err)
		}
		return true, nil
	}
	if m := combination.FindStringSubmatch(text); m != nil {
		c.Server, c.Client = m[1], m[2]
		return true, nil
	}
	if m := sectionRate.FindStringSubmatch(text); m != nil {
		c.SectionRate = m[1]
		return true, nil
	}
	if m := modelCounts.FindStringSubmatch(text); m != nil {
		c.ModelCounts = parseCounts(m[1])
		return true, nil
	}
	return c.takeField(text), nil
}

var (
	combination = regexp.MustCompile(`\bSERVER=(\S+)\s+CLIENT=(\S+)`)
	sectionRate = regexp.MustCompile(`^#\s*request rate\s*[=:]\s*(\S+)$`)
	// The counts may share their line with a progress bar that has no end yet.
	modelCounts = regexp.MustCompile(`^(?:.*(?:it/s|s/it)\])?(\[\d+(?:, \d+)*\])$`)
)

// takeField reads a line of the form "name: value".
func (c *Context) takeField(text string) bool {
	name, value, ok := strings.Cut(text, ":")
	value = strings.TrimSpace(value)
	if !ok || value == "" {
		return false
	}
	var err error
	switch name {
	case "SERVER":
		c.Server = value
	case "CLIENT":
		c.Client = value
	case "#Input tokens":
		c.InputTokens, err = strconv.ParseInt(value, 10, 64)
	case "#Output tokens":
		c.OutputTokens, err = strconv.ParseInt(value, 10, 64)
	case "last arrival":
		c.LastArrival, err = strconv.ParseFloat(value, 64)
	default:
		return false
	}
	return err == nil
}

// parseCounts reads a list such as "[189, 253]" that modelCounts matched.
func parseCounts(list string) (counts []int64) {
	for _, s := range strings.Split(strings.Trim(list, "[]"), ", ") {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil
		}
		counts = append(counts, n)
	}
	return counts
}

// isProgress says whether a line is a progress bar, which may be printed into
// the middle of a block.
func isProgress(text string) bool {
	return strings.Contains(text, "it/s") || strings.Contains(text, "s/it") || strings.Contains(text, "%|")
}

// ending is how a block ended.
type ending int

const (
	complete ending = iota
	cutShort        // by a line that cannot be part of it
	cutByEnd        // of the file
)

// endBlock turns the block being read, if any, into a run.
func (l *logReader) endBlock(how ending) {
	b := l.block
	if b == nil {
		return
	}
	l.block = nil
	switch how {
	case cutShort:
		l.warn(b.line, "the block that begins here is cut short before line %d", l.line)
	case cutByEnd:
		l.warn(b.line, "the block that begins here is cut short by the end of the file")
	}
	run := &Imported{
		Result: &b.res, Context: l.context, File: l.name, Line: b.line,
		Layout: b.layout(), Rows: b.rows, Truncated: how != complete,
	}
	run.Source = result.Log
	setArguments(run.Result, l.args, b.has(known["Max request concurrency:"]))
	run.InferStreaming()
	setMissing(run)
	l.runs = append(l.runs, run)
	l.args = nil
	l.context = Context{Server: l.context.Server, Client: l.context.Client, SectionRate: l.context.SectionRate}
}

// setArguments enters the arguments of a run; rows of the block go before them.
func setArguments(r *result.Result, args map[string]any, limitKnown bool) {
	r.Config = maps.Clone(args)
	if s, ok := args["dataset_name"].(string); ok {
		r.DatasetName = s
	} else if s, ok := args["trace_name"].(string); ok && args["use_trace"] == true {
		r.DatasetName = s
	}
	if s, ok := args["backend"].(string); ok && r.Backend == "" {
		r.Backend = s
	}
	if v, ok := args["max_concurrency"].(int64); ok && !limitKnown && v > 0 {
		r.MaxConcurrency = int(v)
	}
	if v, ok := args["seed"].(int64); ok {
		r.Seed = &v
	}
	r.RandomInputLen = intArgument(args, "random_input_len")
	r.RandomOutputLen = intArgument(args, "random_output_len")
	switch v := args["random_range_ratio"].(type) {
	case float64:
		r.RandomRangeRatio = &v
	case int64:
		f := float64(v)
		r.RandomRangeRatio = &f
	}
}

// setMissing notes that fewer requests succeeded than were asked for, where
// the arguments say how many that were: a trace may have fewer.
func setMissing(run *Imported) {
	asked, ok := run.Config["num_prompts"].(int64)
	completed, has := run.Metrics.Get(result.Completed)
	if !ok || !has || run.Config["use_trace"] == true || completed > float64(asked) || len(run.ModelCounts) > 0 {
		return
	}
	run.Ended = &result.Endings{Requests: asked, Failed: asked - int64(completed)}
}

func intArgument(args map[string]any, name string) *int {
	v, ok := args[name].(int64)
	if !ok {
		return nil
	}
	n := int(v)
	return &n
}
