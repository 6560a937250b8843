package sweep

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
)

// DefaultMetrics are those of the table that people read.
var DefaultMetrics = []string{"mean_e2e_latency_ms", "p99_e2e_latency_ms", "mean_ttft_ms", "p99_ttft_ms", "output_throughput"}

// CheckMetrics makes sure that a merged sweep has the given metrics.
func (t *Tables) CheckMetrics(names []string) error {
	for _, n := range names {
		if err := suggestIn("metric", n, t.Metrics); err != nil {
			return err
		}
	}
	return nil
}

// WriteText prints one line per combination of settings and policy, with means
// and 95 % confidence intervals, and the difference to the baseline in the first
// of the metrics.
func (d *Dir) WriteText(w io.Writer, t *Tables, baseline string, metrics []string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
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
		head = append(head, "vs "+baseline)
	}
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	apart := false
	for _, p := range t.Points {
		line := append(append([]string(nil), p.Values...), p.Policy, percentLeft(p.Left))
		for _, n := range metrics {
			m, ok := p.Metric(n)
			if !ok {
				line = append(line, "-")
				continue
			}
			text := m.Estimate.String()
			if p.Apart && !CountsAll(n) {
				text += " " + NotComparable
				apart = true
			}
			line = append(line, text)
		}
		if compared {
			m, _ := p.Metric(metrics[0])
			line = append(line, m.Versus())
			apart = apart || m.Apart
		}
		fmt.Fprintln(tw, strings.Join(line, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	text := d.legend(compared, metrics, baseline)
	if apart {
		text += ";\n" + NotComparable + " not comparable: latencies and throughputs are of the requests that completed, here not the same ones"
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

func (d *Dir) legend(compared bool, metrics []string, baseline string) string {
	text := fmt.Sprintf("\nmeans over %d seeds", len(d.Seeds))
	if len(d.Seeds) > 1 {
		text += ", ± half of the 95 % confidence interval"
	}
	if compared {
		text += fmt.Sprintf(";\nvs %s: difference in %s, paired by seed; * where its interval excludes 0", baseline, Title(metrics[0]))
	}
	return text
}

// NotComparable marks numbers of runs that did not complete the same requests.
const NotComparable = "≠"

// String prints mean and half interval.
func (e Estimate) String() string {
	switch {
	case e.N == 0:
		return "-"
	case e.N == 1:
		return Number(e.Mean)
	}
	return Number(e.Mean) + " ±" + numberLike(e.Half(), e.Mean)
}

// Versus prints the difference to the baseline in percent of it.
func (m Metric) Versus() string {
	if m.Diff.N == 0 || m.Base == 0 {
		return "-"
	}
	text := fmt.Sprintf("%+.1f %%", 100*m.Diff.Mean/m.Base)
	if m.Diff.N > 1 {
		text += fmt.Sprintf(" ±%.1f", math.Abs(100*m.Diff.Half()/m.Base))
	}
	switch {
	case m.Apart:
		text += " " + NotComparable
	case m.Clear():
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

// WriteJSON prints the tables as one JSON object.
func (d *Dir) WriteJSON(w io.Writer, t *Tables, baseline string) error {
	type estimate struct {
		N    int      `json:"n"`
		Mean *float64 `json:"mean"`
		Std  *float64 `json:"std"`
		Low  *float64 `json:"ci95_low"`
		High *float64 `json:"ci95_high"`
		Diff *struct {
			N    int      `json:"n"`
			Mean *float64 `json:"mean"`
			Low  *float64 `json:"ci95_low"`
			High *float64 `json:"ci95_high"`
			Same bool     `json:"comparable"` // both completed the same requests
		} `json:"diff,omitempty"`
	}
	type point struct {
		Set     map[string]string   `json:"set"`
		Policy  string              `json:"policy"`
		Left    *float64            `json:"not_completed_share"`
		Metrics map[string]estimate `json:"metrics"`
	}
	out := struct {
		Schema   string   `json:"schema"`
		Name     string   `json:"name"`
		Hash     string   `json:"hash"`
		Cells    int      `json:"cells"`
		Left     int      `json:"left_out"`
		Seeds    []uint64 `json:"seeds"`
		Baseline string   `json:"baseline"`
		Points   []point  `json:"points"`
	}{Schema, d.Name, d.Hash, len(d.Cells), t.Left, d.Seeds, baseline, []point{}}
	for _, p := range t.Points {
		jp := point{Set: map[string]string{}, Policy: p.Policy, Left: finite(p.Left), Metrics: map[string]estimate{}}
		for i, a := range d.Axes {
			jp.Set[a.Key] = p.Values[i]
		}
		for _, m := range p.Metrics {
			e := estimate{N: m.N, Mean: finite(m.Mean), Std: finite(m.Std), Low: finite(m.Low), High: finite(m.High)}
			if m.Diff.N > 0 {
				e.Diff = &struct {
					N    int      `json:"n"`
					Mean *float64 `json:"mean"`
					Low  *float64 `json:"ci95_low"`
					High *float64 `json:"ci95_high"`
					Same bool     `json:"comparable"` // both completed the same requests
				}{m.Diff.N, finite(m.Diff.Mean), finite(m.Diff.Low), finite(m.Diff.High), !m.Apart}
			}
			jp.Metrics[m.Name] = e
		}
		out.Points = append(out.Points, jp)
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(out)
}

// finite is nil where JSON has no number.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}
