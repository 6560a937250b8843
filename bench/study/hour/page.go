package hour

import (
	"encoding/json"
	"io"
	"math"
	"strings"

	"lorasim/bench/study/report"
	"lorasim/internal/format"
)

// MarshalJSON writes the answer as one object.
func (a *Answer) MarshalJSON() ([]byte, error) {
	object := format.Object{"schema", "lorasim.hour/1", "begin", a.Begin, "requests", len(a.Requests), "asked", a.Asked,
		"left_out", append([]Left{}, a.Left...), "workers", a.Workers, "adapters", len(a.Adapters),
		"start_profile", a.Start, "profile", a.Fit.Profile, "slots", a.Slots, "kv_tokens", a.KV, "policy", a.Policy,
		"policy_agreement,omitempty", a.Guessed, "max_error", a.options.MaxError, "proof", a.Proof,
		"refused", append([]string{}, a.Refused...), "resampled_hours", a.options.Draws}
	if len(a.Refused) == 0 {
		object = append(object, "simulated", a.Base, "changes", append([]Change{}, a.Changes...))
	}
	return json.Marshal(object)
}

// WriteHTML writes the answer as a page.
func (a *Answer) WriteHTML(w io.Writer) error {
	page := report.Page{Title: "What another fleet would have done", About: a.hourText(), Sections: []report.Section{
		a.answerSection(),
		a.minutesSection("ttft", "TTFT by minute", "mean TTFT, ms", func(m *Minute) *Row { return &m.TTFT }),
		a.minutesSection("e2e", "E2E latency by minute", "mean E2E, s", func(m *Minute) *Row { return &m.E2E }),
		a.minutesSection("load", "Requests in flight by minute", "requests of all workers",
			func(m *Minute) *Row { return &m.InFlight }),
		{ID: "proof", Title: "Proof", Table: a.proofTable(),
			Note: "The second half of the time, which the fit has not seen. Predicted: requests go to the workers " +
				"that served them. By " + a.Policy + ": requests go where the policy sends them."},
		{ID: "workers", Title: "Workers in the second half", Table: a.loadsTable()},
	}}
	if len(a.Refused) == 0 {
		page.Sections = append(page.Sections, a.changesSection())
	}
	return page.WriteHTML(w)
}

func (a *Answer) answerSection() report.Section {
	rows := [][]string{}
	for _, r := range a.rows() {
		rows = append(rows, []string{r[0], r[1]})
	}
	title := "Answer"
	if len(a.Refused) > 0 {
		title = "Not reproduced"
	}
	text := []string{}
	for _, r := range rows {
		text = append(text, format.Wrap(r[0]+": "+r[1], lineWidth)...)
	}
	return report.Section{ID: "answer", Title: title, Text: strings.Join(text, "\n")}
}

// minutesSection draws measured and predicted means of the minutes.
func (a *Answer) minutesSection(id, title, y string, of func(*Minute) *Row) report.Section {
	scale := 1.0
	if id == "e2e" {
		scale = 1e-3
	}
	c := &report.Chart{Label: title, X: "minute", Y: y}
	for v, name := range []string{"measured", "predicted", "by " + a.Policy} {
		line := report.Line{Name: name}
		for i := range a.Proof.Minutes {
			m := &a.Proof.Minutes[i]
			line.Points = append(line.Points, [4]float64{m.Start / 60, *of(m).at(v) * scale, math.NaN(), math.NaN()})
		}
		c.Lines = append(c.Lines, line)
	}
	fitted := format.Count(len(a.Requests)-a.Proof.Requests, "request")
	return report.Section{ID: id, Title: title, Chart: c,
		Note: "The fit has seen the first half of the time: " + fitted + "."}
}

// changesSection draws the changes of the mean TTFT.
func (a *Answer) changesSection() report.Section {
	c := &report.Chart{Label: "Change of the mean TTFT", X: "change", Y: "mean TTFT, % of the fleet as it is"}
	line := report.Line{Name: "mean TTFT", Dots: true}
	for i := range a.Changes {
		if x := &a.Changes[i]; x.Why == "" {
			line.Points = append(line.Points, [4]float64{float64(len(c.Names)), 100 * (1 + x.TTFT.Mean),
				100 * (1 + x.TTFT.Low), 100 * (1 + x.TTFT.High)})
			c.Names = append(c.Names, x.Text)
		}
	}
	c.Lines = []report.Line{line}
	return report.Section{ID: "changes", Title: "Other fleets", Chart: c, Table: a.changesTable(),
		Note: a.intervalText()}
}
