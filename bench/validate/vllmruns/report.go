package vllmruns

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"lorasim/bench/validate"
)

// Report says how well runs were predicted.
type Report struct {
	Schema  string  `json:"schema"`
	Use     string  `json:"use"` // of the runs; "all"
	Summary Summary `json:"summary"`
	Groups  []Group `json:"groups"`
	Runs    []Row   `json:"runs"`
}

// Schema names the version of the JSON form of a report.
const Schema = "lorasim.validate-vllm-runs/1"

// Group is the summary of the runs of one campaign with one model.
type Group struct {
	Use     string  `json:"use"`
	Model   string  `json:"model"`
	Group   string  `json:"group"`
	Summary Summary `json:"summary"`
}

// NewReport summarizes predictions.
func NewReport(rows []Row, use string) *Report {
	r := &Report{Schema: Schema, Use: use, Runs: rows, Summary: summarize(rows, func(*Row) bool { return true })}
	if use == "" {
		r.Use = "all"
	}
	type key struct{ use, model, group string }
	var keys []key
	for i := range rows {
		if k := (key{rows[i].Use, rows[i].Model, rows[i].Group}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		s := summarize(rows, func(row *Row) bool { return (key{row.Use, row.Model, row.Group}) == k })
		r.Groups = append(r.Groups, Group{k.use, k.model, k.group, s})
	}
	return r
}

func summarize(rows []Row, take func(*Row) bool) Summary {
	errors := map[Metric][]float64{}
	s := Summary{metrics: map[Metric]validate.Summary{}}
	right := 0
	for i := range rows {
		row := &rows[i]
		if row.Skipped != "" || !take(row) {
			continue
		}
		for m, e := range row.Error {
			errors[m] = append(errors[m], e)
		}
		s.Starved.Runs++
		if row.StarvedMeasured == row.StarvedPredicted {
			right++
		}
	}
	for _, m := range Metrics {
		s.metrics[m] = validate.Summarize(errors[m])
	}
	if s.Starved.Runs > 0 {
		s.Starved.Agreement = float64(right) / float64(s.Starved.Runs)
	}
	return s
}

// Of is the summary of one metric.
func (s *Summary) Of(m Metric) validate.Summary { return s.metrics[m] }

// MarshalJSON writes the metrics by name, and starved beside them.
func (s Summary) MarshalJSON() ([]byte, error) {
	all := map[string]any{"starved": s.Starved}
	for m, v := range s.metrics {
		all[string(m)] = v
	}
	return json.Marshal(all)
}

// WriteJSON writes the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// worst is how many runs of each metric the text lists.
const worst = 5

// WriteText prints the summary, that of each group, and the runs that are
// furthest off.
func (r *Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "METRIC\tRUNS\tMEDIAN |ERROR|\tP90\tMAX\tMEAN ERROR")
	for _, m := range Metrics {
		s := r.Summary.Of(m)
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%s\t%+.1f %%\n", m, s.Runs, percent(s.MedianAbsError), percent(s.P90AbsError), percent(s.MaxAbsError), 100*s.MeanError)
	}
	fmt.Fprintf(tw, "starved or not\t%d\tright in %.2f %%\n", r.Summary.Starved.Runs, 100*r.Summary.Starved.Agreement)
	fmt.Fprint(tw, "\nUSE\tMODEL\tGROUP\tRUNS")
	for _, m := range Metrics {
		fmt.Fprintf(tw, "\t%s", strings.ToUpper(string(m)))
	}
	fmt.Fprintln(tw, "\tSTARVED")
	for _, g := range r.Groups {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%d", g.Use, g.Model, g.Group, g.Summary.Starved.Runs)
		for _, m := range Metrics {
			s := g.Summary.Of(m)
			fmt.Fprintf(tw, "\t%s %+.1f", percent(s.MedianAbsError), 100*s.MeanError)
		}
		fmt.Fprintf(tw, "\t%.1f %%\n", 100*g.Summary.Starved.Agreement)
	}
	fmt.Fprintln(tw, "\nFURTHEST OFF\tRUN\tSLOTS\tADAPTERS\tARRIVALS\tMEASURED\tPREDICTED\tERROR")
	for _, m := range Metrics {
		for _, row := range r.furthest(m) {
			fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%d\t%.5g\t%.5g\t%+.1f %%\n", m, row.Run, row.Slots, row.Adapters, row.Arrivals,
				row.Measured[m], row.Predicted[m], 100*row.Error[m])
		}
	}
	for i := range r.Runs {
		if row := &r.Runs[i]; row.Skipped != "" {
			fmt.Fprintf(tw, "skipped\t%s\t%s\n", row.Run, row.Skipped)
		}
	}
	return tw.Flush()
}

// furthest are the runs with the largest errors.
func (r *Report) furthest(m Metric) []*Row {
	var rows []*Row
	for i := range r.Runs {
		if _, ok := r.Runs[i].Error[m]; ok {
			rows = append(rows, &r.Runs[i])
		}
	}
	slices.SortStableFunc(rows, func(a, b *Row) int {
		x, y := a.Error[m], b.Error[m]
		switch {
		case max(x, -x) > max(y, -y):
			return -1
		case max(x, -x) < max(y, -y):
			return 1
		}
		return 0
	})
	return rows[:min(worst, len(rows))]
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
