package result

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/format"
)

// topAdapters is the number of adapters that the table lists one by one.
const topAdapters = 10

// WriteExtra writes the metrics beyond the block of the reference benchmark, in the
// block's style: titles centred in dashes, rows of label and value, tables of at most 80
// columns. It omits unknown metrics. Without an Extra it writes nothing.
func (r *Result) WriteExtra(w io.Writer) error {
	e := r.Extra
	if e == nil {
		return nil
	}
	p := &printer{values: map[string]float64{}}
	for _, v := range append(flatten(nil, "", reflect.ValueOf(e).Elem(), false), steadyValues(r.Steady)...) {
		p.values[v.Name] = v.Value
	}
	p.requests(e)
	if mean, _ := r.Metrics.Get(MeanE2E); mean != e.ScheduledE2E.Mean { // else every request was sent on time
		p.section("Latency from the Scheduled Arrival", nil)
	}
	p.steady(r.Steady)
	p.goodput(e.Goodput, len(e.Adapters) > 1)
	p.section("Elastic Workers", map[string]func(){workerHoursName: func() {
		if e.Elastic != nil && e.Elastic.WorkerHours != e.Elastic.GPUHours {
			p.metrics(workerHoursName)
		}
	}})
	p.adapters(e)
	p.workers(e)
	p.costs(e)
	if e.Plans != nil {
		p.section("Plans", nil)
	}
	p.section("Versions of Adapters", nil)
	p.section("Lower Bound with Perfect Knowledge", nil)
	p.intervals(e.Intervals)
	if len(r.Approximate) > 0 {
		p.title("Accuracy")
		p.row("Percentiles accurate to 0.05 %", strings.Join(r.Approximate, ", "))
	}
	p.b.WriteString(BlockEnd() + "\n")
	_, err := w.Write(p.b.Bytes())
	return err
}

// printer writes sections. A title appears only if its section has a row.
type printer struct {
	b       bytes.Buffer
	pending string
	values  map[string]float64 // by name; see Values
}

func (p *printer) title(s string) { p.pending = centre(s, "-") + "\n" }

func (p *printer) line(s string) {
	p.b.WriteString(p.pending + strings.TrimRight(s, " ") + "\n")
	p.pending = ""
}

func (p *printer) row(label, value string) { p.line(fmt.Sprintf("%-40s %s", label+":", value)) }

func (p *printer) rowf(label, format string, values ...any) {
	p.row(label, fmt.Sprintf(format, values...))
}

// section prints the rows of a group of metrics under its title. A function of instead
// prints the row of the metric of that name.
func (p *printer) section(title string, instead map[string]func()) {
	p.title(title)
	ms := table[slices.IndexFunc(table, func(g group) bool { return g.Title == title })].Metrics
	for i, n := 0, 0; i < len(ms); i += n {
		for n = 1; i+n < len(ms) && ms[i].Label != "" && ms[i+n].Label == ms[i].Label; n++ {
		}
		if f := instead[ms[i].Name]; f != nil {
			f()
			continue
		}
		p.joined(ms[i : i+n])
	}
}

// metrics prints the rows of the given metrics.
func (p *printer) metrics(names ...string) {
	for _, name := range names {
		p.joined([]Metric{*byName[name]})
	}
}

// joined prints metrics that share a row.
func (p *printer) joined(ms []Metric) {
	text, show := "", false
	for i := range ms {
		v, known := p.values[ms[i].Name]
		if ms[i].Print == nil || !known {
			return
		}
		text += ms[i].Print(v)
		show = show || v > 0 || ms[i].Zero
	}
	if show {
		p.row(ms[0].label(), text)
	}
}

func percent(share float64) string { return format.Percent(share, 2) }

func (p *printer) requests(e *Extra) {
	p.section("Requests", map[string]func(){"textless_replies": func() {
		for _, r := range e.Reasons {
			p.line(fmt.Sprintf("  %7d %-8s %s", r.Count, r.Status, format.Clip(r.Reason, 61)))
		}
		p.metrics("textless_replies")
	}})
}

// adapters prints the fairness and the table of adapters.
func (p *printer) adapters(e *Extra) {
	if e.Fairness == nil {
		return
	}
	p.section("Adapters", nil)
	width := 26
	if e.Goodput != nil { // room for one more column
		width = 17
	}
	line := func(name string, requests any, share, good string, latencies ...any) {
		s := fmt.Sprintf("%-*s %9v %8s", width, format.Clip(name, width), requests, share)
		if e.Goodput != nil {
			s += fmt.Sprintf(" %8s", good)
		}
		p.line(s + fmt.Sprintf(" %11s %11s %10s", latencies...))
	}
	line("Adapter", "Requests", "Share", "Good", "Mean E2E ms", "P99 E2E ms", "Mean TTFT")
	adapter := func(a AdapterStats, p99 string) {
		e2e, ttft := fmt.Sprintf("%.2f", a.MeanE2E), fmt.Sprintf("%.2f", a.MeanTTFT)
		if a.Completed == 0 { // no latency is known
			e2e, p99, ttft = "-", "-", "-"
		}
		line(a.Name, a.Requests, percent(a.Share), percent(ratio(float64(a.Good), float64(a.Requests))), e2e, p99, ttft)
	}
	top := e.Adapters
	if len(top) > topAdapters+1 { // a rest of one takes no more room than naming it
		top = top[:topAdapters]
	}
	for _, a := range top {
		adapter(a, fmt.Sprintf("%.2f", a.P99E2E))
	}
	if rest := e.Adapters[len(top):]; len(rest) > 0 {
		adapter(others(rest), "-") // the P99 of several adapters does not follow from those of each
	}
}

// others combines adapters into one row.
func others(as []AdapterStats) AdapterStats {
	sum := AdapterStats{Name: fmt.Sprintf("(%d others)", len(as))}
	for _, a := range as {
		n := float64(a.Completed)
		sum.Requests += a.Requests
		sum.Good += a.Good
		sum.Completed += a.Completed
		sum.Share += a.Share
		sum.MeanE2E += n * a.MeanE2E
		sum.MeanTTFT += n * a.MeanTTFT
	}
	sum.MeanE2E = ratio(sum.MeanE2E, float64(sum.Completed))
	sum.MeanTTFT = ratio(sum.MeanTTFT, float64(sum.Completed))
	return sum
}

// workers prints the balance of the workers and their table.
func (p *printer) workers(e *Extra) {
	if len(e.Workers) == 0 {
		return
	}
	p.section("Workers", nil)
	lines, values := []string{"Worker"}, make([]map[string]float64, len(e.Workers))
	for i := range e.Workers {
		lines, values[i] = append(lines, fmt.Sprintf("%-6d", i)), map[string]float64{}
		for _, v := range flatten(nil, "", reflect.ValueOf(&e.Workers[i]).Elem(), false) {
			values[i][v.Name] = v.Value
		}
	}
	for _, m := range columns {
		name, c := strings.TrimPrefix(m.Name, workersPrefix), m.Column
		if c.Optional && !slices.ContainsFunc(values, func(v map[string]float64) bool { return v[name] != 0 }) {
			continue
		}
		lines[0] += fmt.Sprintf(" %*s", c.Width, c.Head)
		for i := range values {
			lines[i+1] += fmt.Sprintf(" %*s", c.Width, c.Format(values[i][name]))
		}
	}
	for _, line := range lines {
		p.line(line)
	}
}

func (p *printer) costs(e *Extra) {
	p.section("Loads and Migrations", map[string]func(){migrationsName: func() {
		for _, m := range e.Migrations {
			if m.Count > 0 {
				p.row("Migrations, "+format.Clip(cmp.Or(m.Kind, "unnamed"), 26), fmt.Sprint(m.Count))
			}
		}
	}})
}

func (p *printer) intervals(in *Intervals) {
	if in == nil {
		return
	}
	p.title("Prediction Intervals")
	p.row("Profile", in.Profile)
	p.metrics("intervals.waiting_share")
	for _, why := range in.Without {
		p.line("none: " + why)
	}
	for _, what := range in.Extrapolated {
		p.line("extrapolated: " + what)
	}
	if len(in.Extrapolated) > 0 {
		p.line("The ranges are therefore twice as wide as in the validated runs.")
	}
	if len(in.Figures) == 0 {
		return
	}
	line := func(cells ...any) { p.line(fmt.Sprintf("%-24s %9s %17s %17s %4s %4v", cells...)) }
	line("", "Predicted", "half of runs", "most runs", "of", "Runs")
	for _, f := range in.Figures {
		label := strings.Replace(MetricOf(f.Metric).Title, "Total token throughput", "Total throughput", 1)
		line(label, figure(f.Predicted), span(f.Half), span(f.Most), format.Percent(f.Level, 0), f.Runs)
	}
}

func span(r *[2]float64) string {
	if r == nil {
		return "too few runs"
	}
	return figure(r[0]) + ".." + figure(r[1])
}

func figure(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}
