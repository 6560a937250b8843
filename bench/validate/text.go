package validate

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// WriteText prints the report as tables: the runs, the summaries, the ratio of
// the policies.
func (r *Report) WriteText(w io.Writer) error {
	p := &printer{w: w}
	metrics := r.metrics()
	if r.blocks() {
		for i := range r.Runs {
			p.block(&r.Runs[i])
		}
		p.servers(r.Servers)
		return p.err
	}
	p.runs(r.Runs, metrics)
	p.summaries(r, metrics)
	if r.Ratio != nil {
		p.ratios(r.Ratio)
	}
	return p.err
}

// metrics are those of the report, in the order of Metrics and BlockMetrics.
func (r *Report) metrics() []Metric {
	var out []Metric
	for _, m := range append(append([]Metric(nil), Metrics...), BlockMetrics...) {
		if _, ok := r.Summary[m]; ok && !contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// blocks says whether the report is on blocks of logs.
func (r *Report) blocks() bool {
	return slices.ContainsFunc(r.Runs, func(row Row) bool { return row.Rate == 0 })
}

// block prints one block, a metric on each line.
func (p *printer) block(r *Row) {
	title := fmt.Sprintf("%s:%d %s", r.Group, r.Line, r.ID)
	if r.Skipped != "" {
		p.table(title, []string{"skipped: " + r.Skipped})
		return
	}
	lines := []string{"METRIC\tMEASURED\tPREDICTED\tERROR"}
	for _, m := range BlockMetrics {
		if e, ok := r.Error[m]; ok {
			lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s", m.label(), m.format(r.Measured[m]), m.format(r.Predicted[m]), percent(e)))
		}
	}
	p.table(title+", profile "+r.Profile, lines)
}

func (p *printer) servers(rs []ServerRatio) {
	if len(rs) == 0 {
		return
	}
	lines := []string{"SERVERS\tPROMPTS\tCONCURRENCY\tMEASURED\tPREDICTED\tERROR"}
	for _, r := range rs {
		lines = append(lines, fmt.Sprintf("%s\t%d\t%d\t%.4f\t%.4f\t%s", r.Servers, r.Requests, r.Concurrency, r.Measured, r.Predicted, percent(r.Error)))
	}
	p.table("Ratio of the mean E2E latencies", lines)
}

func contains(ms []Metric, m Metric) bool {
	for _, k := range ms {
		if k == m {
			return true
		}
	}
	return false
}

type printer struct {
	w   io.Writer
	err error
}

// table prints lines of tab-separated cells, the numbers right-aligned.
func (p *printer) table(title string, lines []string) {
	if p.err != nil {
		return
	}
	if title != "" {
		if _, p.err = fmt.Fprintf(p.w, "\n%s\n", title); p.err != nil {
			return
		}
	}
	tw := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintln(tw, l)
	}
	p.err = tw.Flush()
}

func (p *printer) runs(rows []Row, metrics []Metric) {
	lines := []string{"GROUP\tUSE\tPOLICY\tTRACE\tRATE\tSTRIDE\tLOAD"}
	for _, m := range metrics {
		lines[0] += fmt.Sprintf("\t%s\tPREDICTED\tERROR", m.label())
	}
	lines[0] += "\tNOTE"
	for i := range rows {
		r := &rows[i]
		cells := []string{r.Group, dash(r.Use), dash(r.Policy), dash(r.Trace), number(r.Rate), number(float64(r.Stride)), number2(r.Load)}
		for _, m := range metrics {
			e, ok := r.Error[m]
			if !ok {
				cells = append(cells, "-", "-", "-")
				continue
			}
			cells = append(cells, m.format(r.Measured[m]), m.format(r.Predicted[m]), percent(e))
		}
		note := r.Skipped
		if note != "" {
			note = "skipped: " + note
		} else if r.NearSaturation {
			note = "near saturation"
		}
		lines = append(lines, strings.TrimRight(strings.Join(append(cells, note), "\t"), "\t"))
	}
	p.table("", lines)
}

func (p *printer) summaries(r *Report, metrics []Metric) {
	lines := []string{"RUNS\tMETRIC\tN\tMEDIAN |ERROR|\tP90\tMAX\tMEAN ERROR"}
	add := func(what string, s map[Metric]Summary) {
		for _, m := range metrics {
			if v, ok := s[m]; ok {
				lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%.1f %%\t%.1f %%\t%.1f %%\t%s", what, m, v.Runs,
					100*v.MedianAbsError, 100*v.P90AbsError, 100*v.MaxAbsError, percent(v.MeanError)))
			}
		}
	}
	add("all", r.Summary)
	if len(r.Groups) > 1 || r.Ratio != nil {
		add("away from saturation", r.Clear)
		for _, g := range r.Groups {
			add(strings.TrimSpace(g.Group+" "+g.Policy), g.Summary)
		}
	}
	p.table("Errors of "+r.Profile, lines)
}

func (p *printer) ratios(r *Ratios) {
	lines := []string{"GROUP\tTRACE\tRATE\tSTRIDE\tMEASURED\tPREDICTED\tERROR\tNOTE"}
	for _, row := range r.Rows {
		note := ""
		if row.NearSaturation {
			note = "\tnear saturation"
		}
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%d\t%.3f\t%.3f\t%s%s", row.Group, dash(row.Trace), number(row.Rate), row.Stride,
			row.Measured, row.Predicted, percent(row.Error), note))
	}
	p.table("Mean E2E latency, least-loaded over static", lines)
	p.table("", []string{fmt.Sprintf("right sign in %.0f %% of %d pairs, median |error| %.1f %%, P90 %.1f %%, max %.1f %% (%.1f %% away from saturation)",
		100*r.SignRight, r.Pairs, 100*r.MedianAbsError, 100*r.P90AbsError, 100*r.MaxAbsError, 100*r.ClearMaxAbsError)})
}

func percent(e float64) string { return fmt.Sprintf("%+.1f %%", 100*e) }

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

func number2(x float64) string {
	if x == 0 {
		return "-"
	}
	return strconv.FormatFloat(x, 'f', 2, 64)
}

// label is the metric's name with its unit, as a heading.
func (m Metric) label() string {
	if m == Duration {
		return "DURATION s"
	}
	return strings.ToUpper(strings.ReplaceAll(string(m), "_", " ")) + " ms"
}

func (m Metric) format(v float64) string {
	if m == Duration {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	if v < 1000 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
