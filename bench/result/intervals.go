package result

import (
	"fmt"
	"strings"
)

// Intervals says how far figures of a simulated run may be off a measured one, by
// the runs that its profile was validated with.
type Intervals struct {
	Profile string `json:"profile"`
	// Waiting is the share of their time that requests wait: it says with which
	// runs this one compares.
	Waiting float64 `json:"waiting_share"`
	// Without says why there are none: in which ways the run leaves what was
	// validated.
	Without []string   `json:"without,omitempty"`
	Figures []Interval `json:"figures,omitempty"`
}

// Interval is where a figure would be measured: in half of the cases within Half,
// in nine of ten within Most. Runs is the number of runs that say so; both are
// absent where these are too few.
type Interval struct {
	Metric    string      `json:"metric"`
	Predicted float64     `json:"predicted"`
	Runs      int         `json:"runs"`
	Half      *[2]float64 `json:"half,omitempty"`
	Most      *[2]float64 `json:"most,omitempty"`
}

func (p *printer) intervals(in *Intervals) {
	if in == nil {
		return
	}
	p.title("Prediction Intervals")
	p.row("Profile", in.Profile)
	p.row("Share of their time that requests wait", percent(in.Waiting))
	for _, why := range in.Without {
		p.line("none: " + why)
	}
	if len(in.Figures) == 0 {
		return
	}
	line := func(cells ...any) { p.line(fmt.Sprintf("%-25s %10s %18s %18s %4v", cells...)) }
	line("", "Predicted", "half of runs", "9 in 10 runs", "Runs")
	for _, f := range in.Figures {
		m, _ := MetricByKey(f.Metric)
		label := strings.Replace(m.Descriptor().Label, "Total token throughput", "Total throughput", 1)
		line(label, figure(f.Predicted), span(f.Half), span(f.Most), f.Runs)
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
