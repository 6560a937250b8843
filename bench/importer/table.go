package importer

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"lorasim/bench/result"
)

// WriteTable lists runs, one per line, in aligned columns; - stands for what a
// run does not tell.
func WriteTable(w io.Writer, runs []*Imported) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FILE\tLINE\tLAYOUT\tBACKEND\tRATE\tCONC\tCOMPLETED\tDURATION s\tMEAN E2E ms\tMEDIAN E2E ms\tMEAN TTFT ms\tNOTE")
	for _, m := range runs {
		metric := func(id result.Metric) string {
			if v, ok := m.Metrics.Get(id); ok {
				return result.FormatMetric(id, v)
			}
			return "-"
		}
		fields := []string{
			filepath.Base(m.File), strconv.Itoa(m.Line), m.format(), m.Backend, m.RequestRate.String(), m.concurrency(),
			metric(result.Completed), metric(result.Duration),
			metric(result.MeanE2E), metric(result.MedianE2E), metric(result.MeanTTFT), m.note(),
		}
		for i, f := range fields {
			if f = oneLine(f); f == "" && i < len(fields)-1 {
				f = "-"
			}
			fields[i] = f
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(fields, "\t"), "\t"))
	}
	return t.Flush()
}

func (m *Imported) format() string {
	if m.Rows == nil {
		return "jsonl"
	}
	return string(m.Layout)
}

// concurrency returns the limit on requests in flight; "" where it is none or
// not known.
func (m *Imported) concurrency() string {
	if m.MaxConcurrency == 0 {
		return ""
	}
	return strconv.Itoa(m.MaxConcurrency)
}

// note tells runs of one log apart.
func (m *Imported) note() string {
	var parts []string
	if m.Server != "" || m.Client != "" {
		parts = append(parts, m.Server+"/"+m.Client)
	}
	if m.SectionRate != "" {
		parts = append(parts, "rate "+m.SectionRate)
	}
	if m.Truncated {
		parts = append(parts, "cut short")
	}
	return strings.Join(parts, ", ")
}

// oneLine drops what would break the table.
func oneLine(s string) string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s))
}
