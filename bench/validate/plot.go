package validate

import (
	"io"
	"strings"

	"lorasim/internal/figure"
)

// Plot draws predicted against measured as an SVG: a panel for each of the
// metrics duration, mean and median E2E latency, or for logs the mean E2E
// latency, TTFT and ITL.
func (r *Report) Plot(w io.Writer) error {
	metrics := []Metric{Duration, MeanE2E, MedianE2E}
	if r.blocks() {
		metrics = []Metric{MeanE2E, MeanTTFT, MeanITL}
	}
	var panels []figure.Panel
	for _, m := range metrics {
		panels = append(panels, r.panel(m))
	}
	return figure.WritePanels(w, panels)
}

func (r *Report) panel(m Metric) figure.Panel {
	p := figure.Panel{Title: string(m), Unit: "ms"}
	if m == Duration {
		p.Unit = "s"
	}
	for i := range r.Runs {
		row := &r.Runs[i]
		if _, ok := row.Error[m]; !ok || row.Predicted[m] <= 0 {
			continue
		}
		policy, _, _ := strings.Cut(row.Policy, ":")
		name := row.Group + " " + policy
		if r.blocks() {
			name = row.ID
		}
		p.Points = append(p.Points, figure.Point{Group: name, Measured: row.Measured[m], Predicted: row.Predicted[m]})
	}
	return p
}
