package vllmruns

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/accuracy/validate"
	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// Row is one run with its prediction.
type Row struct {
	Setup
	Adapters int `json:"adapters"`
	// Arrivals is the number of requests that arrived, as recorded, else as generated.
	Arrivals int64 `json:"arrivals"`
	validate.Comparison

	// LoadsPerStep is the mean number of adapters that a predicted step loads into slots.
	LoadsPerStep float64 `json:"-"`

	StarvedMeasured  bool `json:"starved_measured"`
	StarvedPredicted bool `json:"starved_predicted"`
	// Skipped is the reason why the run was not predicted; "": it was.
	Skipped string `json:"skipped,omitempty"`
}

// Report is the errors of predicted runs.
type Report struct {
	Schema  string  `json:"schema"`
	Use     string  `json:"use"` // use of the runs, or "all"
	Summary Summary `json:"summary"`
	Groups  []Group `json:"groups"`
	ByLoad  []Load  `json:"by_load"`
	Limits  []Limit `json:"limits"`
	Runs    []Row   `json:"runs"`
}

// Load is the summary of the runs in one class of predicted load: workers keep up, at the edge of
// saturation, or saturated.
type Load struct {
	Load    string  `json:"load"`
	Summary Summary `json:"summary"`
}

// byLoad returns the summaries of the classes of load that have runs.
func byLoad(rows []Row) (out []Load) {
	_, classes := stats.GroupBy(rows, func(r *Row) int { return validate.LoadOf(r.Ran.Waiting) })
	for class, name := range validate.LoadNames {
		if len(classes[class]) > 0 {
			out = append(out, Load{name, summarize(classes[class])})
		}
	}
	return out
}

// Group is the summary of the runs of one campaign with one model.
type Group struct {
	Use     string  `json:"use"`
	Model   string  `json:"model"`
	Group   string  `json:"group"`
	Summary Summary `json:"summary"`
}

// Summary summarizes all runs with a prediction.
type Summary struct {
	metrics map[validate.Quantity]stats.ErrorSummary
	// Starved is the number of runs, and the share of them for which the prediction says correctly
	// whether the run was starved.
	Starved struct {
		Runs      int     `json:"runs"`
		Agreement float64 `json:"agreement"`
	}
}

// NewReport summarizes predicted runs. use is the use of the runs; "": all.
func NewReport(rows []Row, use string) *Report {
	r := &Report{
		Schema: "lorasim.validate-vllm-runs/1", Use: cmp.Or(use, "all"), Runs: rows, Summary: summarize(rows),
		Limits: Limits(rows),
	}
	r.ByLoad = byLoad(slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Skipped != "" }))
	type key struct{ use, model, group string }
	keys, groups := stats.GroupBy(rows, func(r *Row) key { return key{r.Use, r.Model, r.Group} })
	for _, k := range keys {
		r.Groups = append(r.Groups, Group{k.use, k.model, k.group, summarize(groups[k])})
	}
	return r
}

func summarize(rows []Row) Summary {
	s := Summary{metrics: validate.Summaries(rows)}
	right := 0
	for i := range rows {
		if r := &rows[i]; r.Skipped == "" {
			s.Starved.Runs++
			if r.StarvedMeasured == r.StarvedPredicted {
				right++
			}
		}
	}
	if right > 0 {
		s.Starved.Agreement = float64(right) / float64(s.Starved.Runs)
	}
	return s
}

// Validation returns the summary as lines of a profile's validation table. what names the data.
func (r *Report) Validation(what string) []profile.Validation {
	return validate.ValidationOf(r.Summary.metrics, Metrics, what)
}

// Intervals derives the intervals of the runs of a report.
func (r *Report) Intervals() *validate.IntervalReport {
	return validate.Intervals(validate.Unfitted(r.Runs, func(r *Row) string { return r.Use }),
		map[validate.Quantity]result.ID{
			Throughput: result.TotalThroughput, TPOT: result.MeanTPOT, ITL: result.MeanITL, TTFTMean: result.MeanTTFT,
			TTFTMedian: result.MedianTTFT})
}

// MarshalJSON writes the metrics by name, and starved as a further key.
func (s Summary) MarshalJSON() ([]byte, error) {
	all := map[string]any{"starved": s.Starved}
	for _, m := range Metrics {
		all[string(m)] = s.metrics[m]
	}
	return json.Marshal(all)
}

// WriteText prints the summary of all runs and of each group, and the runs with the largest errors.
func (r *Report) WriteText(w io.Writer) error {
	agreement := func(s *Summary, decimals int) string { return format.Percent(s.Starved.Agreement, decimals) }
	rows := [][]string{{"METRIC", "RUNS", "MEDIAN |ERROR|", "P90", "MAX", "MEAN ERROR"}}
	for _, m := range Metrics {
		rows = append(rows, append([]string{string(m)}, r.Summary.metrics[m].Cells()...))
	}
	rows = append(rows,
		[]string{"starved or not", strconv.Itoa(r.Summary.Starved.Runs), "right in " + agreement(&r.Summary, 2)}, nil)
	loads := []string{"LOAD", "RUNS"}
	for _, m := range Metrics {
		loads = append(loads, strings.ToUpper(string(m)), "P90")
	}
	rows = append(rows, loads)
	for _, l := range r.ByLoad {
		cells := []string{l.Load, strconv.Itoa(l.Summary.Starved.Runs)}
		for _, m := range Metrics {
			s := l.Summary.metrics[m]
			cells = append(cells, format.Percent(s.MedianAbsError, 1), format.Percent(s.P90AbsError, 1))
		}
		rows = append(rows, cells)
	}
	rows = append(rows, nil)
	head := []string{"USE", "MODEL", "GROUP", "RUNS"}
	for _, m := range Metrics {
		head = append(head, strings.ToUpper(string(m)))
	}
	rows = append(rows, append(head, "STARVED"))
	for _, g := range r.Groups {
		cells := []string{g.Use, g.Model, g.Group, strconv.Itoa(g.Summary.Starved.Runs)}
		for _, m := range Metrics {
			s := g.Summary.metrics[m]
			cells = append(cells, fmt.Sprintf("%s %+.1f", format.Percent(s.MedianAbsError, 1), 100*s.MeanError))
		}
		rows = append(rows, append(cells, agreement(&g.Summary, 1)))
	}
	rows = append(rows, nil, []string{
		"MAX ADAPTERS WITHOUT STARVATION", "GROUP", "MEASURED", "PREDICTED", "BEST SLOTS FOR THEM", "PREDICTED",
		"LOSES",
	})
	for _, l := range r.Limits {
		rows = append(rows,
			strings.Split(
				fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%s", l.Model, l.Group, l.MeasuredAdapters, l.PredictedAdapters,
					l.MeasuredSlots, l.PredictedSlots, format.Percent(l.Lost, 1)), "\t"))
	}
	rows = append(rows, nil, []string{
		"LARGEST ERRORS", "RUN", "SLOTS", "ADAPTERS", "ARRIVALS", "MEASURED", "PREDICTED", "ERROR",
	})
	for _, m := range Metrics {
		for _, row := range r.furthest(m) {
			rows = append(rows,
				strings.Split(fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%.5g\t%.5g\t%+.1f %%",
					m, row.Name, row.Slots, row.Adapters, row.Arrivals,
					row.Measured[m], row.Predicted[m], 100*row.Error[m]), "\t"))
		}
	}
	for _, row := range r.Runs {
		if row.Skipped != "" {
			rows = append(rows, []string{"skipped", row.Name, row.Skipped})
		}
	}
	return format.Table(w, rows)
}

// furthest returns the five runs with the largest errors.
func (r *Report) furthest(m validate.Quantity) []Row {
	rows := slices.DeleteFunc(slices.Clone(r.Runs), func(row Row) bool { _, ok := row.Error[m]; return !ok })
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(math.Abs(b.Error[m]), math.Abs(a.Error[m])) })
	return rows[:min(5, len(rows))]
}

// Plot draws predicted against measured values as an SVG: throughput, time per output token and
// mean TTFT. Colours show the model and whether the run was starved.
func (r *Report) Plot(w io.Writer) error {
	group := func(row *Row) string {
		model, _, _ := strings.Cut(row.Model, "-")
		if row.StarvedMeasured {
			model += ", starved"
		}
		return model
	}
	return validate.Plot(w,
		validate.NewPanel(r.Runs, Throughput, "tokens/s", group), validate.NewPanel(r.Runs, TPOT, "ms", group),
		validate.NewPanel(r.Runs, TTFTMean, "ms", group),
	)
}

// Limit is the capacity of a server in a group of runs. Its adapters are the largest number that
// some number of slots serves without starvation. Its slots are the number of slots with the
// largest throughput for that number of adapters. 0: none is served.
type Limit struct {
	Model             string `json:"model"`
	Group             string `json:"group"`
	MeasuredAdapters  int    `json:"measured_adapters"`
	PredictedAdapters int    `json:"predicted_adapters"`
	MeasuredSlots     int    `json:"measured_slots"`
	PredictedSlots    int    `json:"predicted_slots"`
	// Steps is the distance between measured and predicted slots, in steps of the measured numbers
	// of slots. Lost is the measured throughput that the predicted slots lose, as a share.
	Steps int     `json:"slot_steps"`
	Lost  float64 `json:"lost_throughput"`
}

// Limits compares the measured and the predicted limits of the groups. The best slots are compared
// at the largest measured number of adapters. Runs without a prediction do not count.
func Limits(rows []Row) (limits []Limit) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Skipped != "" })
	type key struct{ model, group string }
	keys, groups := stats.GroupBy(rows, func(r *Row) key { return key{r.Model, r.Group} })
	for _, k := range keys {
		l := Limit{Model: k.model, Group: k.group}
		for _, r := range groups[k] {
			if !r.StarvedMeasured {
				l.MeasuredAdapters = max(l.MeasuredAdapters, r.Adapters)
			}
			if !r.StarvedPredicted {
				l.PredictedAdapters = max(l.PredictedAdapters, r.Adapters)
			}
		}
		at := slices.DeleteFunc(groups[k], func(r Row) bool { return r.Adapters != l.MeasuredAdapters })
		slices.SortFunc(at, func(a, b Row) int { return cmp.Compare(a.Slots, b.Slots) })
		measured, predicted := 0, 0
		for i, r := range at {
			if r.Measured[Throughput] > at[measured].Measured[Throughput] {
				measured = i
			}
			if r.Predicted[Throughput] > at[predicted].Predicted[Throughput] {
				predicted = i
			}
		}
		if len(at) > 0 {
			l.MeasuredSlots, l.PredictedSlots = at[measured].Slots, at[predicted].Slots
			l.Steps = abs(measured - predicted)
			if best := at[measured].Measured[Throughput]; best > 0 {
				l.Lost = 1 - at[predicted].Measured[Throughput]/best
			}
		}
		limits = append(limits, l)
	}
	return limits
}
