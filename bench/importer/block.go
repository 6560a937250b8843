package importer

import (
	"math"
	"strconv"
	"strings"

	"lorasim/bench/result"
)

// block is a result block being read.
type block struct {
	line  int // of its title
	res   result.Result
	rows  []Row
	noise int // lines in a row that are no rows
}

// maxNoise is how many lines that are no rows a block may have between two
// rows, from programs that print to the same terminal; after more the block is
// taken to have ended.
const maxNoise = 8

// known lists the rows of all layouts by label; titles by their text.
var known = knownRows()

func knownRows() map[string]result.Row {
	rows := map[string]result.Row{}
	for _, l := range result.Layouts() {
		for _, r := range l.Rows() {
			rows[r.Label] = r
		}
	}
	return rows
}

// add takes a line of the block; false if the block seems to be over.
func (b *block) add(l *logReader, text string) bool {
	trimmed := strings.TrimRight(text, " \t")
	if title := strings.Trim(trimmed, "-"); title != "" && strings.HasPrefix(trimmed, "---") && strings.HasSuffix(trimmed, "---") {
		b.noise = 0
		b.addTitle(l, text, title)
		return true
	}
	label, value, _ := strings.Cut(trimmed, ":")
	label, value = label+":", strings.TrimSpace(value)
	row, ok := known[label]
	switch {
	case ok && row.Kind != result.TitleRow:
		b.noise = 0
		b.addRow(l, row, value, text)
	case value != "" && trimmed == strings.TrimRight(result.FormatRow(result.Row{Label: label}, value), " "):
		b.noise = 0
		l.warn(l.line, "unknown row %q, kept as it is", clip(label))
		b.rows = append(b.rows, Row{Row: result.Row{Label: label}, Text: text, Unknown: true, Verbatim: true})
	case b.noise == maxNoise:
		return false
	default:
		b.noise++
		l.warn(l.line, "not a row of the block: %q", clip(trimmed))
	}
	return true
}

// addRow adds a row that some layout has.
func (b *block) addRow(l *logReader, row result.Row, value, text string) {
	switch {
	case b.repeats(row):
		l.warn(l.line, "second row %q, kept as it is", row.Label)
	case !b.set(row, value):
		l.warn(l.line, "row %q: value %q not understood, kept as it is", row.Label, clip(value))
	default:
		b.append(l, row, text)
		return
	}
	b.rows = append(b.rows, Row{Row: row, Text: text, Verbatim: true})
}

// append adds a row whose value is in the result.
func (b *block) append(l *logReader, row result.Row, text string) {
	value, _ := b.res.Value(row)
	printed := result.FormatRow(row, value)
	r := Row{Row: row, Text: text}
	if text != printed {
		r.Trimmed = text == strings.TrimRight(printed, " ")
		r.Verbatim = !r.Trimmed
	}
	if r.Verbatim {
		l.warn(l.line, "row %q is not in the form the benchmark prints, kept as it is", clip(row.Label))
	}
	b.rows = append(b.rows, r)
}

func (b *block) addTitle(l *logReader, text, title string) {
	row, ok := known[title]
	if !ok || row.Kind != result.TitleRow {
		l.warn(l.line, "unknown section %q, kept as it is", clip(title))
		b.rows = append(b.rows, Row{Row: result.Row{Kind: result.TitleRow, Label: title}, Text: text, Unknown: true, Verbatim: true})
		return
	}
	b.append(l, row, text)
}

// has says whether the block already has a row.
func (b *block) has(row result.Row) bool {
	for _, r := range b.rows {
		if r.Row == row {
			return true
		}
	}
	return false
}

// repeats says whether the block already has the row, or its value under
// another label. The limit on concurrency always has a value, "not set".
func (b *block) repeats(row result.Row) bool {
	if row.Kind == result.ConcurrencyRow {
		return b.has(row)
	}
	_, there := b.res.Value(row)
	return there
}

// set enters the value of a row into the result; false if it is none.
func (b *block) set(row result.Row, value string) bool {
	switch row.Kind {
	case result.BackendRow:
		b.res.Backend = value
		return value != ""
	case result.RateRow:
		rate, err := result.ParseRate(value)
		b.res.RequestRate = rate
		return err == nil
	case result.ConcurrencyRow:
		if value == "not set" {
			return true
		}
		n, err := strconv.Atoi(value)
		if err != nil || n <= 0 {
			return false
		}
		b.res.MaxConcurrency = n
		return true
	}
	v, err := strconv.ParseFloat(value, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || row.Metric.Descriptor().Int && v != math.Trunc(v) {
		return false
	}
	b.res.Metrics.Set(row.Metric, v)
	return true
}

// layout tells the layout from the rows that only one has.
func (b *block) layout() result.Layout {
	has := func(label string) bool { return b.has(known[label]) }
	switch {
	case has("Inter-token Latency") || has("Total throughput (tok/s):"):
		return result.LoRA
	case has("P95 E2E Latency (ms):") || has("P90 TTFT (ms):") || has("P90 TPOT (ms):") || has("P90 ITL (ms):"):
		return result.SGLang
	case has("Mean TPOT (ms):") || has("Total input text tokens:") || has("Peak concurrent requests:"):
		return result.SGLang056
	}
	return result.SGLang054
}

// clip shortens text from a log for a message.
func clip(s string) string {
	const n = 60
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}
