package result

import (
	"bytes"
	"fmt"
	"io"
	"slices"
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
	if !slices.Contains(Layouts(), Layout(name)) {
		return "", fmt.Errorf("unknown layout %q: expected %s, %s, %s or %s", name, SGLang054, SGLang056, LoRA, SGLang)
	}
	return Layout(name), nil
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

// statistics are those that layouts have rows for, by latency.
var statistics = map[Layout][len(families)]string{
	SGLang054: {"mean median", "mean median p99", "", "mean median p95 p99 max"},
	SGLang056: {"mean median p90 p99", "mean median p99", "mean median p99", "mean median p95 p99 max"},
	LoRA:      {"mean median", "mean median p99", "mean median p99", "mean median p99"},
	SGLang: {
		"mean median p90 p95 p99", "mean median p90 p95 p99", "mean median p90 p95 p99", "mean median p90 p95 p99 max",
	},
}

// Rows returns the rows of the layout in order, those included that runs print
// only where they have something to show.
func (l Layout) Rows() []Row {
	peaks := l == SGLang056 || l == SGLang
	var rows []Row
	metric := func(ms ...Metric) {
		for _, m := range ms {
			rows = append(rows, Row{Label: m.Descriptor().Label + ":", Metric: m})
		}
	}
	rows = append(rows, Row{Kind: BackendRow, Label: "Backend:"}, Row{Kind: RateRow, Label: "Traffic request rate:"})
	if l != LoRA {
		rows = append(rows, Row{Kind: ConcurrencyRow, Label: "Max request concurrency:"})
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
	for i, f := range families {
		title := f.title
		if l == LoRA && f.first == MeanITL {
			title = "Inter-token Latency"
		}
		stats := strings.Fields(statistics[l][i])
		if len(stats) > 0 {
			rows = append(rows, Row{Kind: TitleRow, Label: title})
		}
		for _, stat := range stats {
			metric(byKey[stat+"_"+f.key+"_ms"])
		}
	}
	return rows
}

// blockWidth is the width of a block.
const blockWidth = 50

// BlockStart returns the line that opens a block; the reference prints an empty
// line before it.
func BlockStart() string { return centre(" Serving Benchmark Result ", "=") }

// BlockEnd returns the line that closes a block.
func BlockEnd() string { return strings.Repeat("=", blockWidth) }

// centre pads s to the block's width as Python's ^ alignment does: the odd
// character goes to the right.
func centre(s, fill string) string {
	pad := max(blockWidth-len([]rune(s)), 0)
	return strings.Repeat(fill, pad/2) + s + strings.Repeat(fill, pad-pad/2)
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
		return centre(row.Label, "-")
	}
	return fmt.Sprintf("%-40s %-10s", row.Label, value)
}

// WriteBlock prints the reference's block in the given layout, byte for byte.
// Rows whose metric is absent, and sections without rows, are left out. Below
// it stand the requests that did not succeed, if any, and why latencies do not
// hold, if the run was not steady.
func (r *Result) WriteBlock(w io.Writer, l Layout) error {
	var b bytes.Buffer
	title := ""
	b.WriteString("\n" + BlockStart() + "\n")
	for _, row := range l.Rows() {
		if row.Kind == TitleRow {
			title = FormatRow(row, "") + "\n"
		} else if v, ok := r.Value(row); ok {
			b.WriteString(title + FormatRow(row, v) + "\n")
			title = ""
		}
	}
	b.WriteString(BlockEnd() + "\n")
	if lines := r.Shortfall(); len(lines) > 0 {
		b.WriteString(strings.Join(lines, "\n") + "\nnote: ")
		if completed, _ := r.Metrics.Get(Completed); completed == 0 {
			b.WriteString("no request succeeded, so there are no latencies\n")
		} else {
			fmt.Fprintf(&b, "latencies and throughputs cover only the other %.0f requests\n", completed)
		}
	}
	for _, line := range r.SteadyNotes() {
		b.WriteString(line + "\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}
