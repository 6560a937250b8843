package vllmruns

import (
	"io"
	"strings"

	"lorasim/internal/figure"
)

// Plot draws predicted against measured as an SVG: throughput, time per output
// token and mean TTFT, coloured by model and by whether the run was starved.
func (r *Report) Plot(w io.Writer) error {
	var panels []figure.Panel
	for _, m := range []struct {
		metric Metric
		unit   string
	}{{Throughput, "tokens/s"}, {TPOT, "ms"}, {TTFTMean, "ms"}} {
		p := figure.Panel{Title: string(m.metric), Unit: m.unit}
		for i := range r.Runs {
			row := &r.Runs[i]
			if _, ok := row.Error[m.metric]; !ok || row.Predicted[m.metric] <= 0 {
				continue
			}
			model, _, _ := strings.Cut(row.Model, "-")
			if row.StarvedMeasured {
				model += ", starved"
			}
			p.Points = append(p.Points, figure.Point{Group: model, Measured: row.Measured[m.metric], Predicted: row.Predicted[m.metric]})
		}
		panels = append(panels, p)
	}
	return figure.WritePanels(w, panels)
}
