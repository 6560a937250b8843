// Package validate compares predictions of the simulator with measured runs. It simulates every run
// of a table of measurements, or of a folder of serving-benchmark logs, and reports the error of
// each metric.
//
//	runs, err := textfile.Read(ctx, "runs.csv", validate.ReadRuns)
//	hist, err := textfile.Read(ctx, "histograms.json", validate.ReadHistograms)
//	rows, err := validate.Simulate(ctx, runs, hist, validate.Options{Profile: p, Seeds: 8})
//	validate.NewReport(rows).WriteText(os.Stdout)
//
// The lengths of single requests were not recorded in those runs. They are drawn with several
// seeds, and the prediction is the mean of the metric over the seeds.
package validate

import (
	"io"

	"lorasim/bench/stats"
	"lorasim/internal/figure"
)

// Quantity is the name of a measured number of a run.
type Quantity string

// The compared metrics. Runs have Duration, MeanE2E, MedianE2E and P99E2E; blocks have all but
// P99E2E. Duration is in s, the others are in ms.
const (
	Duration   Quantity = "duration" // s
	MeanE2E    Quantity = "mean_e2e"
	MedianE2E  Quantity = "median_e2e"
	P99E2E     Quantity = "p99_e2e"
	MeanTTFT   Quantity = "mean_ttft"
	MedianTTFT Quantity = "median_ttft"
	P99TTFT    Quantity = "p99_ttft"
	MeanITL    Quantity = "mean_itl"
	MedianITL  Quantity = "median_itl"
	P95ITL     Quantity = "p95_itl"
	P99ITL     Quantity = "p99_itl"
	MaxITL     Quantity = "max_itl"
)

// Metrics lists the metrics of runs, and BlockMetrics those of blocks, in printing order.
var (
	Metrics      = []Quantity{Duration, MeanE2E, MedianE2E, P99E2E}
	BlockMetrics = []Quantity{
		Duration, MeanE2E, MedianE2E, MeanTTFT, MedianTTFT, P99TTFT, MeanITL, MedianITL, P95ITL, P99ITL, MaxITL,
	}
)

// Values holds the values of metrics. An unknown metric is absent.
type Values map[Quantity]float64

// Comparison is the measured and the predicted values of a run. Spread is the relative standard
// deviation of the prediction over the seeds. Error is predicted / measured - 1.
type Comparison struct {
	Measured  Values `json:"measured"`
	Predicted Values `json:"predicted,omitempty"`
	Spread    Values `json:"spread,omitempty"`
	Error     Values `json:"error,omitempty"`
	Ran       Ran    `json:"-"`
}

// Predict sets the prediction and its errors.
func (c *Comparison) Predict(predicted Values) {
	c.Predicted, c.Error = predicted, Values{}
	for m, b := range predicted {
		if a := c.Measured[m]; a != 0 {
			c.Error[m] = (b - a) / a
		}
	}
}

// compared is a pointer to a row that embeds a Comparison.
type compared[Row any] interface {
	*Row
	comparison() *Comparison
}

func (c *Comparison) comparison() *Comparison { return c }

// Summaries summarizes the errors of runs by metric.
func Summaries[Row any, P compared[Row]](rows []Row) map[Quantity]stats.ErrorSummary {
	errors := map[Quantity][]float64{}
	for i := range rows {
		for m, e := range P(&rows[i]).comparison().Error {
			errors[m] = append(errors[m], e)
		}
	}
	return stats.SummarizeErrorsBy(errors)
}

// Panel is a plot of predicted against measured values of one metric.
type Panel struct{ panel figure.Panel }

// Plot draws panels as one SVG.
func Plot(w io.Writer, panels ...Panel) error {
	list := make([]figure.Panel, len(panels))
	for i, p := range panels {
		list[i] = p.panel
	}
	return figure.WritePanels(w, list)
}

// NewPanel plots predicted against measured values of a metric. unit is the unit of the metric, and
// group returns the group of a row.
func NewPanel[Row any, P compared[Row]](rows []Row, m Quantity, unit string, group func(*Row) string) Panel {
	p := figure.Panel{Title: string(m), Unit: unit}
	for i := range rows {
		c := P(&rows[i]).comparison()
		if _, ok := c.Error[m]; ok && c.Predicted[m] > 0 {
			p.Points = append(p.Points, figure.Point{
				Group: group(&rows[i]), Measured: c.Measured[m], Predicted: c.Predicted[m],
			})
		}
	}
	return Panel{p}
}
