package result

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Layout is a form of the block that versions of the reference benchmark print.
type Layout string

// The layouts.
const (
	SGLang054 Layout = "sglang-0.5.4"
	SGLang056 Layout = "sglang-0.5.6"
	LoRA      Layout = "lora" // the multi-worker LoRA benchmark
	SGLang    Layout = "sglang"
)

// Layouts lists all layouts, the oldest first.
func Layouts() []Layout { return []Layout{SGLang054, SGLang056, LoRA, SGLang} }

// ParseLayout finds a layout by name.
func ParseLayout(name string) (Layout, error) {
	for _, l := range Layouts() {
		if string(l) == name {
			return l, nil
		}
	}
	return "", fmt.Errorf("unknown layout %q: expected %s, %s, %s or %s", name, SGLang054, SGLang056, LoRA, SGLang)
}

// RowKind says what a row of the block shows.
type RowKind int

// The kinds of rows.
const (
	MetricRow RowKind = iota
	TitleRow          // a section title
	BackendRow
	RateRow
	ConcurrencyRow // the limit, not the metric
)

// Row is one row of a block's layout.
type Row struct {
	Kind   RowKind
	Label  string // title of a TitleRow; otherwise with the colon
	Metric Metric // of a MetricRow
}

// The width of a block and the text of its first line.
const (
	blockWidth = 50
	blockTitle = " Serving Benchmark Result "
)

// Rows returns the rows of the layout in order, those included that runs print
// only where they have something to show.
func (l Layout) Rows() []Row {
	peaks := l == SGLang056 || l == SGLang
	var rows []Row
	meta := func(kind RowKind, label string) { rows = append(rows, Row{Kind: kind, Label: label}) }
	metric := func(ms ...Metric) {
		for _, m := range ms {
			rows = append(rows, Row{Label: m.Descriptor().Label + ":", Metric: m})
		}
	}

	meta(BackendRow, "Backend:")
	meta(RateRow, "Traffic request rate:")
	if l != LoRA {
		meta(ConcurrencyRow, "Max request concurrency:")
	}
	metric(Completed, Duration, TotalInputTokens)
	if peaks {
		metric(TotalInputTextTokens, TotalInputVisionTokens)
	}
	metric(TotalOutputTokens, TotalOutputTokensRetokenized, RequestThroughput, InputThroughput, OutputThroughput)
	if peaks {
		metric(MaxOutputTokensPerS, MaxConcurrentRequests)
	}
	if l == LoRA {
		rows = append(rows, Row{Label: "Total throughput (tok/s):", Metric: TotalThroughput})
	} else {
		metric(TotalThroughput, Concurrency, AcceptLength)
	}
	for _, s := range l.sections() {
		meta(TitleRow, s.title)
		metric(s.metrics...)
	}
	return rows
}

type section struct {
	title   string
	metrics []Metric
}

// sections returns the latency sections of the layout.
func (l Layout) sections() []section {
	const (
		e2e  = "End-to-End Latency"
		ttft = "Time to First Token"
		tpot = "Time per Output Token (excl. 1st token)"
		itl  = "Inter-Token Latency"
	)
	switch l {
	case SGLang054:
		return []section{
			{e2e, []Metric{MeanE2E, MedianE2E}},
			{ttft, []Metric{MeanTTFT, MedianTTFT, P99TTFT}},
			{itl, []Metric{MeanITL, MedianITL, P95ITL, P99ITL, MaxITL}},
		}
	case SGLang056:
		return []section{
			{e2e, []Metric{MeanE2E, MedianE2E, P90E2E, P99E2E}},
			{ttft, []Metric{MeanTTFT, MedianTTFT, P99TTFT}},
			{tpot, []Metric{MeanTPOT, MedianTPOT, P99TPOT}},
			{itl, []Metric{MeanITL, MedianITL, P95ITL, P99ITL, MaxITL}},
		}
	case LoRA:
		return []section{
			{e2e, []Metric{MeanE2E, MedianE2E}},
			{ttft, []Metric{MeanTTFT, MedianTTFT, P99TTFT}},
			{tpot, []Metric{MeanTPOT, MedianTPOT, P99TPOT}},
			{"Inter-token Latency", []Metric{MeanITL, MedianITL, P99ITL}},
		}
	}
	return []section{
		{e2e, []Metric{MeanE2E, MedianE2E, P90E2E, P95E2E, P99E2E}},
		{ttft, []Metric{MeanTTFT, MedianTTFT, P90TTFT, P95TTFT, P99TTFT}},
		{tpot, []Metric{MeanTPOT, MedianTPOT, P90TPOT, P95TPOT, P99TPOT}},
		{itl, []Metric{MeanITL, MedianITL, P90ITL, P95ITL, P99ITL, MaxITL}},
	}
}

// BlockStart returns the line that opens a block; the reference prints an empty
// line before it.
func BlockStart() string { return centre(blockTitle, '=') }

// BlockEnd returns the line that closes a block.
func BlockEnd() string { return strings.Repeat("=", blockWidth) }

// centre pads s to the block's width as Python's ^ alignment does: the odd
// character goes to the right.
func centre(s string, fill rune) string {
	pad := max(blockWidth-len([]rune(s)), 0)
	f := string(fill)
	return strings.Repeat(f, pad/2) + s + strings.Repeat(f, pad-pad/2)
}

// Value returns the text of a row's value; false where the result does not have
// it, in which case the row is not printed.
func (r *Result) Value(row Row) (string, bool) {
	switch row.Kind {
	case BackendRow:
		return r.Backend, r.Backend != ""
	case RateRow:
		return r.RequestRate.String(), r.RequestRate != 0
	case ConcurrencyRow:
		if r.MaxConcurrency == 0 {
			return "not set", true
		}
		return strconv.Itoa(r.MaxConcurrency), true
	case MetricRow:
		v, ok := r.Metrics.Get(row.Metric)
		return FormatMetric(row.Metric, v), ok
	}
	return "", false
}

// FormatMetric prints a value as the block does: counts as integers, all else
// with two decimals.
func FormatMetric(m Metric, v float64) string {
	if m.Descriptor().Int {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// FormatRow prints one row, without the end of the line: a section title
// centred in dashes, or label and value, padded.
func FormatRow(row Row, value string) string {
	if row.Kind == TitleRow {
		return centre(row.Label, '-')
	}
	return fmt.Sprintf("%-40s %-10s", row.Label, value)
}

// WriteBlock prints the reference's block in the given layout, byte for byte.
// Rows whose metric is absent, and sections without rows, are left out. Below
// it stands which requests did not succeed, if any.
func (r *Result) WriteBlock(w io.Writer, l Layout) error {
	var b bytes.Buffer
	title := ""
	b.WriteString("\n" + BlockStart() + "\n")
	for _, row := range l.Rows() {
		if row.Kind == TitleRow {
			title = FormatRow(row, "") + "\n"
			continue
		}
		if v, ok := r.Value(row); ok {
			b.WriteString(title + FormatRow(row, v) + "\n")
			title = ""
		}
	}
	b.WriteString(BlockEnd() + "\n" + r.shortfall())
	_, err := w.Write(b.Bytes())
	return err
}
