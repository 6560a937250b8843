// Package promtext reads and writes metrics in the text format of Prometheus, version 0.0.4.
//
//	families, err := promtext.Parse(text)
//	for _, m := range families["vllm:num_requests_running"] { ... m.Value ... }
package promtext

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Type is the type of a metric, as in a line of TYPE.
type Type string

// The types of metrics.
const (
	Counter        Type = "counter"
	Gauge          Type = "gauge"
	Histogram      Type = "histogram"
	GaugeHistogram Type = "gauge_histogram"
	Summary        Type = "summary"
	Untyped        Type = "untyped" // also without a line of TYPE
)

// types are the types by their names in capitals. Some writers spell one as OpenMetrics does.
var types = map[string]Type{"COUNTER": Counter, "GAUGE": Gauge, "HISTOGRAM": Histogram,
	"GAUGE_HISTOGRAM": GaugeHistogram, "GAUGEHISTOGRAM": GaugeHistogram, "SUMMARY": Summary, "UNTYPED": Untyped}

// Label is a label and its value.
type Label struct{ Name, Value string }

// Metric is a series. A histogram or summary has one Metric for all its lines with the same labels, le and quantile
// left out. Quantiles are not read.
type Metric struct {
	Type       Type
	Labels     []Label
	Value      float64 // of a counter, a gauge or a metric without a type
	Time       int64   // ms since 1970; 0: not stated
	Count, Sum float64 // of a histogram or summary
	Buckets    []Bucket
}

// Bucket is the number of observations up to a bound.
type Bucket struct{ Bound, Count float64 }

// Label returns the value of a label, "" without it.
func (m *Metric) Label(name string) string {
	for _, l := range m.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// Families has the metrics of a text by name, each with at least one series.
type Families map[string][]*Metric

// family is a metric while the text is read.
type family struct {
	name    string
	kind    Type // "": not stated yet
	help    bool
	metrics []*Metric
	parts   map[string]*Metric // of histograms and summaries, by their labels
}

func (f *family) hasParts() bool {
	return f.kind == Histogram || f.kind == GaugeHistogram || f.kind == Summary
}

// special is the label whose value is not a label of the series.
func (f *family) special() string {
	switch f.kind {
	case Histogram, GaugeHistogram:
		return "le"
	case Summary:
		return "quantile"
	}
	return ""
}

type parser map[string]*family

// Parse reads a text. Names and labels may be any UTF-8 in quotes.
func Parse(text string) (Families, error) {
	p := parser{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		err := p.line(strings.TrimSuffix(line, "\n"))
		if err == nil && !strings.HasSuffix(line, "\n") && strings.Trim(line, " \t") != "" {
			err = errors.New("unexpected end of the text: expected a line break")
		}
		if err != nil {
			return nil, fmt.Errorf("text format of Prometheus, line %d: %w", number, err)
		}
	}
	all := Families{}
	for name, f := range p {
		if len(f.metrics) > 0 {
			all[name] = f.metrics
		}
	}
	return all, nil
}

func (p parser) line(s string) error {
	switch s = blank(s); {
	case s == "":
		return nil
	case s[0] == '#':
		return p.comment(blank(s[1:]))
	}
	return p.sample(s)
}

// blank removes blanks and tabs at the begin.
func blank(s string) string { return strings.TrimLeft(s, " \t") }

// word splits a text at the first blank or tab.
func word(s string) (first, rest string) {
	if i := strings.IndexAny(s, " \t"); i >= 0 {
		return s[:i], blank(s[i:])
	}
	return s, ""
}

func (p parser) comment(s string) error {
	keyword, s := word(s)
	if keyword != "HELP" && keyword != "TYPE" || s == "" {
		return nil
	}
	name, rest, err := quotedOr(s, isName)
	if err != nil {
		return err
	}
	if name == "" || rest != "" && rest == blank(rest) {
		return fmt.Errorf("invalid name of a metric in %s", keyword)
	}
	f, _ := p.of(name)
	switch rest = blank(rest); {
	case rest == "":
	case keyword == "HELP" && f.help:
		return fmt.Errorf("second HELP of metric %q", f.name)
	case keyword == "HELP":
		f.help = true
	case f.kind != "":
		return fmt.Errorf("TYPE of metric %q appears twice or after its values", f.name)
	default:
		if f.kind = types[strings.ToUpper(rest)]; f.kind == "" {
			return fmt.Errorf("unknown type %q of metric %q", rest, f.name)
		}
	}
	return nil
}

// of returns the family that a name belongs to, and the suffix of a part: _bucket, _sum or _count.
func (p parser) of(name string) (f *family, suffix string) {
	if f = p[name]; f != nil {
		return f, ""
	}
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		base, ok := strings.CutSuffix(name, suffix)
		if f = p[base]; ok && base != "" && f != nil && f.hasParts() && (f.kind != Summary || suffix != "_bucket") {
			return f, suffix
		}
	}
	f = &family{name: name}
	p[name] = f
	return f, ""
}

func isName(b byte, first bool) bool { return b == ':' || isLabel(b, first) }

func isLabel(b byte, first bool) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || !first && b >= '0' && b <= '9'
}

// quotedOr reads a name: in quotes, or as long as its bytes are in a set. "": there is none.
func quotedOr(s string, in func(b byte, first bool) bool) (name, rest string, err error) {
	if strings.HasPrefix(s, `"`) {
		return quoted(s)
	}
	i := 0
	for i < len(s) && in(s[i], i == 0) {
		i++
	}
	return s[:i], s[i:], nil
}

// quoted reads a text in quotes.
func quoted(s string) (text, rest string, err error) {
	s = s[1:]
	i := strings.IndexAny(s, `"\`)
	if i >= 0 && s[i] == '"' { // nothing to unescape
		return valid(s[:i], s[i+1:])
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return valid(b.String(), s[i+1:])
		case '\\':
			if i++; i == len(s) {
				break
			}
			switch s[i] {
			case '\\', '"':
				b.WriteByte(s[i])
			case 'n':
				b.WriteByte('\n')
			default:
				return "", "", fmt.Errorf("invalid escape sequence \\%c", s[i])
			}
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", errors.New("a quote is missing")
}

func valid(text, rest string) (string, string, error) {
	if !utf8.ValidString(text) {
		return "", "", fmt.Errorf("%q is not valid UTF-8", text)
	}
	return text, rest, nil
}

// sample reads a line with a value.
func (p parser) sample(s string) error {
	name, rest := "", s
	var err error
	if s[0] != '{' {
		if name, rest, err = quotedOr(s, isName); err != nil {
			return err
		}
		if name == "" {
			return errors.New("invalid name of a metric")
		}
		rest = blank(rest)
	}
	var labels []Label
	if strings.HasPrefix(rest, "{") {
		if labels, rest, err = readLabels(rest[1:], &name); err != nil {
			return fmt.Errorf("metric %q: %w", name, err)
		}
		if name == "" {
			return errors.New("invalid name of a metric")
		}
	}
	f, suffix := p.of(name)
	if f.kind == "" {
		f.kind = Untyped
	}
	m := &Metric{Type: f.kind, Labels: labels}
	special, hasSpecial := 0.0, false
	for i, l := range labels {
		if l.Name != "" && l.Name == f.special() {
			if special, err = number(l.Value); err != nil {
				return fmt.Errorf("metric %q: expected a number in label %s, got %q", name, l.Name, l.Value)
			}
			m.Labels, hasSpecial = slices.Delete(slices.Clone(labels), i, i+1), true
			break
		}
	}
	text, rest := word(blank(rest))
	v, err := number(text)
	if err != nil {
		return fmt.Errorf("metric %q: expected a number as value, got %q", name, text)
	}
	m = f.add(m)
	if stamp, more := word(rest); stamp != "" {
		if m.Time, err = strconv.ParseInt(stamp, 10, 64); err != nil || more != "" {
			return fmt.Errorf("metric %q: expected a whole number as timestamp, got %q", name, rest)
		}
	}
	isHistogram := f.kind == Histogram || f.kind == GaugeHistogram
	switch {
	case isHistogram && v < 0 && (suffix == "_count" || suffix != "_sum" && hasSpecial):
		return fmt.Errorf("metric %q: the number of observations is negative", name)
	case !f.hasParts():
		m.Value = v
	case suffix == "_count":
		m.Count = v
	case suffix == "_sum":
		m.Sum = v
	case isHistogram && hasSpecial:
		m.Buckets = append(m.Buckets, Bucket{special, v})
	}
	return nil
}

// add adds a series. For a further part of a histogram or summary it returns the series with the same labels.
func (f *family) add(m *Metric) *Metric {
	if f.hasParts() {
		var key strings.Builder
		for _, l := range byName(m.Labels) {
			key.WriteString(l.Name + "\xff" + l.Value + "\xff")
		}
		if before := f.parts[key.String()]; before != nil {
			return before
		}
		if f.parts == nil {
			f.parts = map[string]*Metric{}
		}
		f.parts[key.String()] = m
	}
	f.metrics = append(f.metrics, m)
	return m
}

// readLabels reads labels to the closing brace. A name in quotes without a value is that of the metric.
func readLabels(s string, metric *string) (labels []Label, rest string, err error) {
	seen := map[string]bool{}
	for {
		s = blank(s)
		if after, ok := strings.CutPrefix(s, "}"); ok {
			return labels, after, nil
		}
		var l Label
		if l.Name, s, err = quotedOr(s, isLabel); err != nil {
			return nil, "", err
		}
		s = blank(s)
		if after, ok := strings.CutPrefix(s, "="); ok {
			if l.Name == "" || l.Name == "__name__" || seen[l.Name] {
				return nil, "", fmt.Errorf("label %q: the name is empty, reserved or there twice", l.Name)
			}
			seen[l.Name] = true
			if s = blank(after); !strings.HasPrefix(s, `"`) {
				return nil, "", fmt.Errorf("label %q: expected a value in quotes", l.Name)
			}
			if l.Value, s, err = quoted(s); err != nil {
				return nil, "", fmt.Errorf("label %q: %w", l.Name, err)
			}
			labels = append(labels, l)
		} else if *metric == "" && l.Name != "" {
			*metric = l.Name
		} else {
			return nil, "", fmt.Errorf("expected = after label %q", l.Name)
		}
		if s = blank(s); strings.HasPrefix(s, ",") {
			s = s[1:]
		} else if !strings.HasPrefix(s, "}") {
			return nil, "", errors.New("expected a comma or } after a label")
		}
	}
}

// number reads a number as Prometheus does: hexadecimal numbers and underscores are none.
func number(s string) (float64, error) {
	if strings.ContainsAny(s, "pP_") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseFloat(s, 64)
}

// Names returns the names of the metrics, sorted.
func (f Families) Names() []string { return slices.Sorted(maps.Keys(f)) }
