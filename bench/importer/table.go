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

// columns are those of the table.
var columns = []struct {
	title string
	value func(m *Imported) string
}{
	{"FILE", func(m *Imported) string { return filepath.Base(m.File) }},
	{"LINE", func(m *Imported) string { return strconv.Itoa(m.Line) }},
	{"LAYOUT", (*Imported).format},
	{"BACKEND", func(m *Imported) string { return m.Backend }},
	{"RATE", func(m *Imported) string { return m.RequestRate.String() }},
	{"CONC", (*Imported).concurrency},
	{"COMPLETED", metric(result.Completed)},
	{"DURATION s", metric(result.Duration)},
	{"MEAN E2E ms", metric(result.MeanE2E)},
	{"MEDIAN E2E ms", metric(result.MedianE2E)},
	{"MEAN TTFT ms", metric(result.MeanTTFT)},
	{"NOTE", (*Imported).note},
}

func metric(id result.Metric) func(m *Imported) string {
	return func(m *Imported) string {
		if v, ok := m.Metrics.Get(id); ok {
			return result.FormatMetric(id, v)
		}
		return ""
	}
}

// WriteTable lists runs, one per line, in aligned columns, those alone that some
// run has a value in; below it stands what JSON files do not tell.
func WriteTable(w io.Writer, runs []*Imported) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	lines := make([]string, len(runs)+1)
	for _, c := range columns {
		cells := []string{c.title}
		for _, m := range runs {
			cells = append(cells, oneLine(c.value(m)))
		}
		if strings.Join(cells[1:], "") == "" {
			continue
		}
		for i, cell := range cells {
			lines[i] += cell + "\t"
		}
	}
	for _, line := range lines {
		fmt.Fprintln(t, strings.TrimRight(line, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	said := map[string]bool{}
	for _, m := range runs {
		if m.Rows != nil {
			continue
		}
		for _, line := range m.remarks() {
			line = fmt.Sprintf("%s: %s\n", filepath.Base(m.File), line)
			if said[line] {
				continue
			}
			said[line] = true
			if _, err := io.WriteString(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Imported) format() string {
	if m.Rows == nil {
		return "json"
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

// Who is the server and the client as far as they are known.
func (c *Context) Who(separator string) string {
	if c.Server == "" || c.Client == "" {
		return c.Server + c.Client
	}
	return c.Server + separator + c.Client
}

// note tells runs of one log apart.
func (m *Imported) note() string {
	var parts []string
	if who := m.Who("/"); who != "" {
		parts = append(parts, who)
	}
	if m.Strategy != "" {
		parts = append(parts, m.Strategy)
	}
	if len(m.Models) > 0 {
		parts = append(parts, strings.Join(m.Models, " "))
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
