package promtext

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A Page collects metrics and writes them as text, sorted by their names and labels.
type Page struct{ families map[string]*written }

// written is a metric with its lines.
type written struct {
	kind   Type
	help   string
	series []series
}

// series is one series: its labels, and its lines.
type series struct{ labels, text string }

// Add adds a series of a counter or a gauge. The first series of a name states its help.
func (p *Page) Add(kind Type, name, help string, v float64, labels ...Label) {
	of := render(labels)
	p.add(kind, name, help, series{of, name + braces(of) + " " + formatNumber(v) + "\n"})
}

// AddHistogram adds a series of a histogram. The counts are those between bounds, the last one that above all bounds.
func (p *Page) AddHistogram(name, help string, bounds []float64, counts []uint64, sum float64, labels ...Label) {
	of := render(labels)
	var b strings.Builder
	total := uint64(0)
	for i, n := range counts {
		bound := math.Inf(1)
		if i < len(bounds) {
			bound = bounds[i]
		}
		total += n
		with := strings.TrimPrefix(of+`,le="`+formatNumber(bound)+`"`, ",")
		fmt.Fprintf(&b, "%s_bucket{%s} %d\n", name, with, total)
	}
	fmt.Fprintf(&b, "%s_sum%s %s\n%s_count%s %d\n", name, braces(of), formatNumber(sum), name, braces(of), total)
	p.add(Histogram, name, help, series{of, b.String()})
}

// AddSummary adds a summary without labels. quantiles has the quantiles and their values in turn.
func (p *Page) AddSummary(name, help string, quantiles []Bucket, count, sum float64) {
	var b strings.Builder
	for _, q := range quantiles {
		fmt.Fprintf(&b, "%s{quantile=%q} %s\n", name, formatNumber(q.Bound), formatNumber(q.Count))
	}
	fmt.Fprintf(&b, "%s_sum %s\n%s_count %s\n", name, formatNumber(sum), name, formatNumber(count))
	p.add(Summary, name, help, series{"", b.String()})
}

func (p *Page) add(kind Type, name, help string, s series) {
	if p.families == nil {
		p.families = map[string]*written{}
	}
	f := p.families[name]
	if f == nil {
		f = &written{kind: kind, help: help}
		p.families[name] = f
	}
	f.series = append(f.series, s)
}

var (
	escapeValue = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
)

// render writes labels in the order of their names.
func render(labels []Label) string {
	var b strings.Builder
	for i, l := range byName(labels) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.Name + `="` + escapeValue.Replace(strings.ToValidUTF8(l.Value, "\uFFFD")) + `"`)
	}
	return b.String()
}

// byName returns labels in the order of their names.
func byName(labels []Label) []Label {
	return slices.SortedFunc(slices.Values(labels), func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
}

func braces(labels string) string {
	if labels == "" {
		return ""
	}
	return "{" + labels + "}"
}

func formatNumber(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// WriteTo implements io.WriterTo.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.families)) {
		f := p.families[name]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, escapeHelp.Replace(f.help), name, f.kind)
		slices.SortStableFunc(f.series, func(a, b series) int { return strings.Compare(a.labels, b.labels) })
		for _, s := range f.series {
			b.WriteString(s.text)
		}
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}
