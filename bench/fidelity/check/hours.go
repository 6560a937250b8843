package check

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// HoursReport is the errors of predicted runs.
type HoursReport struct {
	Schema  string                   `json:"schema"`
	Use     string                   `json:"use"` // use of the runs, or "all"
	Summary HoursSummary             `json:"summary"`
	Groups  []HoursGroup             `json:"groups"`
	ByLoad  []HoursByLoad            `json:"by_load"`
	Limits  []HoursLimit             `json:"limits"`
	Runs    []measured.PredictedHour `json:"runs"`
}

// HoursByLoad is the summary of the runs in one class of predicted load: workers keep up, at the edge of
// saturation, or saturated.
type HoursByLoad struct {
	Load    string       `json:"load"`
	Summary HoursSummary `json:"summary"`
}

// byLoad returns the summaries of the classes of load that have runs.
func byLoad(rows []measured.PredictedHour) (out []HoursByLoad) {
	_, classes := stats.GroupBy(rows, func(r *measured.PredictedHour) int { return loadOf(r.Ran.Waiting) })
	for class, name := range loadNames {
		if len(classes[class]) > 0 {
			out = append(out, HoursByLoad{name, summarizeHours(classes[class])})
		}
	}
	return out
}

// HoursGroup is the summary of the runs of one campaign with one model.
type HoursGroup struct {
	Use     string       `json:"use"`
	Model   string       `json:"model"`
	Group   string       `json:"group"`
	Summary HoursSummary `json:"summary"`
}

// HoursSummary summarizes all runs with a prediction.
type HoursSummary struct {
	metrics Summary
	// Starved is the number of runs, and the share of them for which the prediction says correctly
	// whether the run was starved.
	Starved struct {
		Runs      int     `json:"runs"`
		Agreement float64 `json:"agreement"`
	}
}

// Hours predicts hours of vLLM and reports on them. use is the use of the runs; "": all.
func Hours(ctx context.Context, runs []measured.Hour, t *measured.HourTables, o measured.HourOptions, use string) (
	*HoursReport, error) {
	rows, err := measured.PredictHours(ctx, runs, t, o)
	if err != nil {
		return nil, err
	}
	return NewHoursReport(rows, use), nil
}

// NewHoursReport summarizes predicted runs. use is the use of the runs; "": all.
func NewHoursReport(rows []measured.PredictedHour, use string) *HoursReport {
	r := &HoursReport{
		Schema: "lorasim.validate-vllm-runs/1", Use: cmp.Or(use, "all"), Runs: rows, Summary: summarizeHours(rows),
		Limits: hoursLimits(rows),
	}
	r.ByLoad = byLoad(slices.DeleteFunc(slices.Clone(rows), func(r measured.PredictedHour) bool {
		return r.Skipped != ""
	}))
	type key struct{ use, model, group string }
	keys, groups := stats.GroupBy(rows, func(r *measured.PredictedHour) key { return key{r.Use, r.Model, r.Group} })
	for _, k := range keys {
		r.Groups = append(r.Groups, HoursGroup{k.use, k.model, k.group, summarizeHours(groups[k])})
	}
	return r
}

func summarizeHours(rows []measured.PredictedHour) HoursSummary {
	s := HoursSummary{metrics: summarize(rows)}
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
func (r *HoursReport) Validation(what string) []profile.Validation {
	return r.Summary.metrics.Validation(measured.HourMetrics, what)
}

// Intervals implements [Report].
func (r *HoursReport) Intervals() *IntervalReport {
	return intervals(unfitted(r.Runs, func(r *measured.PredictedHour) string { return r.Use }))
}

// MarshalJSON writes the metrics by name, and starved as a further key.
func (s HoursSummary) MarshalJSON() ([]byte, error) {
	all := map[string]any{"starved": s.Starved}
	for _, m := range measured.HourMetrics {
		all[string(m)] = s.metrics[m]
	}
	return json.Marshal(all)
}

// WriteText prints the summary of all runs and of each group, and the runs with the largest errors.
func (r *HoursReport) WriteText(w io.Writer) error {
	agreement := func(s *HoursSummary, decimals int) string { return format.Percent(s.Starved.Agreement, decimals) }
	rows := [][]string{{"METRIC", "RUNS", "MEDIAN |ERROR|", "P90", "MAX", "MEAN ERROR"}}
	for _, m := range measured.HourMetrics {
		rows = append(rows, append([]string{string(m)}, r.Summary.metrics[m].Cells()...))
	}
	rows = append(rows,
		[]string{"starved or not", strconv.Itoa(r.Summary.Starved.Runs), "right in " + agreement(&r.Summary, 2)}, nil)
	loads := []string{"LOAD", "RUNS"}
	for _, m := range measured.HourMetrics {
		loads = append(loads, strings.ToUpper(string(m)), "P90")
	}
	rows = append(rows, loads)
	for _, l := range r.ByLoad {
		cells := []string{l.Load, strconv.Itoa(l.Summary.Starved.Runs)}
		for _, m := range measured.HourMetrics {
			s := l.Summary.metrics[m]
			cells = append(cells, format.Percent(s.MedianAbsError, 1), format.Percent(s.P90AbsError, 1))
		}
		rows = append(rows, cells)
	}
	rows = append(rows, nil)
	head := []string{"USE", "MODEL", "GROUP", "RUNS"}
	for _, m := range measured.HourMetrics {
		head = append(head, strings.ToUpper(string(m)))
	}
	rows = append(rows, append(head, "STARVED"))
	for _, g := range r.Groups {
		cells := []string{g.Use, g.Model, g.Group, strconv.Itoa(g.Summary.Starved.Runs)}
		for _, m := range measured.HourMetrics {
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
	for _, m := range measured.HourMetrics {
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
func (r *HoursReport) furthest(m measured.Metric) []measured.PredictedHour {
	rows := slices.DeleteFunc(slices.Clone(r.Runs), func(row measured.PredictedHour) bool {
		_, ok := row.Error[m]
		return !ok
	})
	slices.SortStableFunc(rows, func(a, b measured.PredictedHour) int {
		return cmp.Compare(math.Abs(b.Error[m]), math.Abs(a.Error[m]))
	})
	return rows[:min(5, len(rows))]
}

// Plot implements [Report]: throughput, time per output token and mean TTFT. Colours show the model and whether the run
// was starved.
func (r *HoursReport) Plot(w io.Writer) error {
	return plot(w, r.Runs, []measured.Metric{measured.Throughput, measured.TPOT, measured.TTFTMean},
		func(row *measured.PredictedHour) string {
			model, _, _ := strings.Cut(row.Model, "-")
			if row.StarvedMeasured {
				model += ", starved"
			}
			return model
		})
}

// HoursLimit is the capacity of a server in a group of runs. Its adapters are the largest number that
// some number of slots serves without starvation. Its slots are the number of slots with the
// largest throughput for that number of adapters. 0: none is served.
type HoursLimit struct {
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

// hoursLimits compares the measured and the predicted limits of the groups. The best slots are compared
// at the largest measured number of adapters. Runs without a prediction do not count.
func hoursLimits(rows []measured.PredictedHour) (limits []HoursLimit) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r measured.PredictedHour) bool { return r.Skipped != "" })
	type key struct{ model, group string }
	keys, groups := stats.GroupBy(rows, func(r *measured.PredictedHour) key { return key{r.Model, r.Group} })
	for _, k := range keys {
		l := HoursLimit{Model: k.model, Group: k.group}
		for _, r := range groups[k] {
			if !r.StarvedMeasured {
				l.MeasuredAdapters = max(l.MeasuredAdapters, r.Adapters)
			}
			if !r.StarvedPredicted {
				l.PredictedAdapters = max(l.PredictedAdapters, r.Adapters)
			}
		}
		at := slices.DeleteFunc(groups[k],
			func(r measured.PredictedHour) bool { return r.Adapters != l.MeasuredAdapters })
		slices.SortFunc(at, func(a, b measured.PredictedHour) int { return cmp.Compare(a.Slots, b.Slots) })
		most, mostPredicted := 0, 0
		for i, r := range at {
			if r.Measured[measured.Throughput] > at[most].Measured[measured.Throughput] {
				most = i
			}
			if r.Predicted[measured.Throughput] > at[mostPredicted].Predicted[measured.Throughput] {
				mostPredicted = i
			}
		}
		if len(at) > 0 {
			l.MeasuredSlots, l.PredictedSlots = at[most].Slots, at[mostPredicted].Slots
			l.Steps = max(most-mostPredicted, mostPredicted-most)
			if best := at[most].Measured[measured.Throughput]; best > 0 {
				l.Lost = 1 - at[mostPredicted].Measured[measured.Throughput]/best
			}
		}
		limits = append(limits, l)
	}
	return limits
}
