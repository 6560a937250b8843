package sweep

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"lorasim/internal/format"
	"lorasim/internal/suggest"
)

// DefaultMetrics are those of the table that people read.
var DefaultMetrics = []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms", "output_throughput"}

// NotComparable marks numbers of runs that did not complete the same requests.
const NotComparable = "≠"

// CheckMetrics makes sure that a merged sweep has the given metrics.
func (t *Tables) CheckMetrics(names []string) (err error) {
	for _, n := range names {
		err = cmp.Or(err, suggest.Among("metric", n, t.Metrics))
	}
	return err
}

// WriteText prints one line per combination of settings and policy, with means
// and 95 % confidence intervals, and the difference to the baseline in the first
// of the metrics, for which verdicts stand below the table.
func (d *Dir) WriteText(w io.Writer, t *Tables, metrics []string) error {
	var head []string
	for _, a := range d.Axes {
		head = append(head, a.Leaf())
	}
	head = append(head, "policy", "not completed")
	for _, n := range metrics {
		head = append(head, Title(n))
	}
	compared := len(d.Policies) > 1 && len(metrics) > 0
	if compared {
		head = append(head, "vs "+t.baseline)
	}
	rows, apart := [][]string{head}, false
	for _, p := range t.Points {
		line := append(slices.Clone(p.Values), p.Policy, percentLeft(p.Left))
		for _, n := range metrics {
			m, _ := p.Metric(n)
			text := m.Estimate.String()
			if m.N > 0 && p.Apart && !CountsAll(n) {
				text += " " + NotComparable
				apart = true
			}
			line = append(line, text)
		}
		if compared {
			m, _ := p.Metric(metrics[0])
			line = append(line, m.versus())
			apart = apart || m.Apart
		}
		rows = append(rows, line)
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	legend := fmt.Sprintf("\nmeans over %d seeds", len(d.Seeds))
	if len(d.Seeds) > 1 {
		legend += ", ± half of the 95 % confidence interval"
	}
	if compared {
		legend += fmt.Sprintf(";\nvs %s: difference in %s, paired by seed; * where its interval excludes 0", t.baseline, Title(metrics[0]))
	}
	if apart {
		legend += ";\n" + NotComparable + " not comparable: latencies and throughputs are of the requests that completed, here not the same ones"
	}
	if legend += "\n"; compared {
		legend += d.verdictLines(t, metrics[0])
	}
	_, err := io.WriteString(w, legend)
	return err
}

// percentLeft words a share of requests that did not complete; one that is not 0
// never looks like it.
func percentLeft(share float64) string {
	if share > 0 && share < 0.001 {
		return "<0.1 %"
	}
	return format.Percent(share, 1)
}

// String prints mean and half interval.
func (e Estimate) String() string {
	switch e.N {
	case 0:
		return "-"
	case 1:
		return Number(e.Mean)
	}
	return Number(e.Mean) + " ±" + numberLike(e.Half(), e.Mean)
}

// versus prints the difference to the baseline in percent of it.
func (m Metric) versus() string {
	if m.Diff.N == 0 || m.Base == 0 {
		return "-"
	}
	text := m.Diff.Versus(m.Base)
	switch {
	case m.Apart:
		text += " " + NotComparable
	case m.Diff.N > 1 && (m.Diff.Low > 0 || m.Diff.High < 0):
		text += " *"
	}
	return text
}

// Number prints a number with as many digits as a reader wants.
func Number(x float64) string { return numberLike(x, x) }

// numberLike prints x with the decimals that a number of the size of y has.
func numberLike(x, y float64) string {
	a := math.Abs(y)
	decimals := 0
	switch {
	case math.IsNaN(x):
		return "-"
	case a == math.Trunc(a) && x == math.Trunc(x):
	case a < 1:
		decimals = 4
	case a < 100:
		decimals = 2
	case a < 10_000:
		decimals = 1
	}
	return strconv.FormatFloat(x, 'f', decimals, 64)
}

// WriteJSON prints the tables as one JSON object, with verdicts by the given
// metrics for each combination of settings.
func (d *Dir) WriteJSON(w io.Writer, t *Tables, metrics []string) error {
	type num = format.Number
	type difference struct {
		N    int  `json:"n"`
		Mean num  `json:"mean"`
		Low  num  `json:"ci95_low"`
		High num  `json:"ci95_high"`
		Same bool `json:"comparable"` // both completed the same requests
	}
	type estimate struct {
		N    int         `json:"n"`
		Mean num         `json:"mean"`
		Std  num         `json:"std"`
		Low  num         `json:"ci95_low"`
		High num         `json:"ci95_high"`
		Diff *difference `json:"diff,omitempty"`
	}
	type point struct {
		Set     map[string]string   `json:"set"`
		Policy  string              `json:"policy"`
		Left    num                 `json:"not_completed_share"`
		Metrics map[string]estimate `json:"metrics"`
	}
	points := []point{}
	for _, p := range t.Points {
		jp := point{Set: map[string]string{}, Policy: p.Policy, Left: num(p.Left), Metrics: map[string]estimate{}}
		for i, a := range d.Axes {
			jp.Set[a.Key] = p.Values[i]
		}
		for _, m := range p.Metrics {
			e := estimate{N: m.N, Mean: num(m.Mean), Std: num(m.Std), Low: num(m.Low), High: num(m.High)}
			if m.Diff.N > 0 {
				e.Diff = &difference{m.Diff.N, num(m.Diff.Mean), num(m.Diff.Low), num(m.Diff.High), !m.Apart}
			}
			jp.Metrics[m.Name] = e
		}
		points = append(points, jp)
	}
	type verdict struct {
		Set     map[string]string `json:"set"`
		Verdict any               `json:"verdict"`
	}
	verdicts := []verdict{}
	for _, n := range metrics {
		for i, v := range d.Verdicts(t, n) {
			if v != nil {
				verdicts = append(verdicts, verdict{points[i*len(d.Policies)].Set, v.JSON()})
			}
		}
	}
	return format.JSON(w, struct {
		Schema   string    `json:"schema"`
		Name     string    `json:"name"`
		Hash     string    `json:"hash"`
		Cells    int       `json:"cells"`
		Left     int       `json:"left_out"`
		Seeds    []uint64  `json:"seeds"`
		Baseline string    `json:"baseline"`
		Points   []point   `json:"points"`
		Verdicts []verdict `json:"verdicts"`
	}{schema, d.Name, d.Hash, len(d.Cells), t.Left, d.Seeds, t.baseline, points, verdicts}, " ")
}
