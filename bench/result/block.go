package result

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// A Layout names a form of the result block. Each version of the reference benchmark
// (`python -m sglang.bench_serving`) prints its own form.
type Layout string

// The layouts.
const (
	SGLang054 Layout = "sglang-0.5.4"
	SGLang056 Layout = "sglang-0.5.6"
	LoRA      Layout = "lora"   // multi-worker LoRA benchmark
	SGLang    Layout = "sglang" // current layout
)

// Layouts returns all layouts, the oldest first.
func Layouts() []Layout { return []Layout{SGLang054, SGLang056, LoRA, SGLang} }

// ParseLayout returns the layout of the given name. An unknown name is an error.
func ParseLayout(name string) (Layout, error) {
	if !slices.Contains(Layouts(), Layout(name)) {
		return "", fmt.Errorf("unknown layout %q: expected %s, %s, %s or %s", name, SGLang054, SGLang056, LoRA, SGLang)
	}
	return Layout(name), nil
}

// A RowKind is the kind of content of a row.
type RowKind int

// The kinds of rows.
const (
	MetricRow      RowKind = iota
	TitleRow               // a section title
	BackendRow             // Meta.Backend
	RateRow                // Meta.RequestRate
	ConcurrencyRow         // Meta.MaxConcurrency, not the metric Concurrency
)

// A Row is one row of a layout.
type Row struct {
	Kind   RowKind
	Label  string // title of a TitleRow; of other rows the label with its colon
	Metric ID     // of a MetricRow
}

// statistics lists the statistics that each layout has rows for, by latency family.
var statistics = map[Layout][len(families)]string{
	SGLang054: {"mean median", "mean median p99", "", "mean median p95 p99 max"},
	SGLang056: {"mean median p90 p99", "mean median p99", "mean median p99", "mean median p95 p99 max"},
	LoRA:      {"mean median", "mean median p99", "mean median p99", "mean median p99"},
	SGLang: {
		"mean median p90 p95 p99", "mean median p90 p95 p99", "mean median p90 p95 p99", "mean median p90 p95 p99 max",
	},
}

// Rows returns all rows of the layout in order. Some of them are optional: WriteBlock
// omits rows without a value.
func (l Layout) Rows() []Row {
	peaks := l == SGLang056 || l == SGLang
	var rows []Row
	metric := func(ms ...ID) {
		for _, m := range ms {
			rows = append(rows, Row{Label: m.Metric().Title + ":", Metric: m})
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
			id, _ := IDOf(stat + "_" + f.key + "_ms")
			metric(id)
		}
	}
	return rows
}

// blockWidth is the width of a block.
const blockWidth = 50

// BlockStart returns the first line of a block. The reference benchmark prints an empty
// line before it.
func BlockStart() string { return centre(" Serving Benchmark Result ", "=") }

// BlockEnd returns the last line of a block.
func BlockEnd() string { return strings.Repeat("=", blockWidth) }

// centre pads s to the block's width like Python's ^ alignment: an odd padding character
// goes to the right.
func centre(s, fill string) string {
	pad := max(blockWidth-len([]rune(s)), 0)
	return strings.Repeat(fill, pad/2) + s + strings.Repeat(fill, pad-pad/2)
}

// Value returns the text of a row's value. It returns false if the result lacks the
// value; WriteBlock then omits the row.
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

// FormatMetric formats a value as in the block: counts as integers, other metrics with
// two decimals.
func FormatMetric(m ID, v float64) string {
	if m.Metric().Int {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// FormatRow formats one row without the line end. A section title is centred in dashes;
// label and value are padded.
func FormatRow(row Row, value string) string {
	if row.Kind == TitleRow {
		return centre(row.Label, "-")
	}
	return fmt.Sprintf("%-40s %-10s", row.Label, value)
}

// WriteBlock writes the block of the reference benchmark in the given layout, byte for
// byte. It omits rows whose metric is absent, and sections without rows. The lines of
// Shortfall and SteadyNotes follow the block, if there are any.
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
