package advise

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"lorasim/bench/study/report"
)

// WriteHTML writes the answer as a page: its text, the finalists with confidence intervals, and the rounds of the
// race.
func (a *Advice) WriteHTML(w io.Writer) error {
	page := report.Page{Title: "Which policy: " + a.Scenario.Summary(), About: "Recommended: " + a.recommended().Spec,
		Sections: []report.Section{a.answerSection(), a.finalistsSection(), a.roundsSection()}}
	if a.Worst != nil {
		page.Sections = append(page.Sections, a.worstSection())
	}
	return page.WriteHTML(w)
}

func (a *Advice) answerSection() report.Section {
	text := a.Words() + "\n\n" + paragraph(a.bound())
	if skipped := a.skippedText(); skipped != "" {
		text += "\n" + paragraph(skipped)
	}
	return report.Section{ID: "answer", Title: "Recommendation", Note: a.raced(), Text: text}
}

// finalistsSection draws the differences of the finalists to the recommended one.
func (a *Advice) finalistsSection() report.Section {
	c := &report.Chart{Label: "Finalists against the recommended policy", X: "finalist",
		Y: "objective, worse by (" + a.Objective.unit() + ")"}
	line := report.Line{Name: "worse by", Dots: true}
	p := a.Objective.Percent
	for i, f := range a.Finalists {
		c.Names = append(c.Names, f.Spec)
		at := [4]float64{float64(i), 0, math.NaN(), math.NaN()}
		if i > 0 {
			at = [4]float64{float64(i), p(f.Diff.Mean), p(f.Diff.Low), p(f.Diff.High)}
		}
		line.Points = append(line.Points, at)
	}
	c.Lines = []report.Line{line}
	return report.Section{ID: "finalists", Title: "Finalists", Note: a.note() + ". " + a.states() + ".",
		Table: a.rows(), Chart: c}
}

// shownLines is the number of candidates that the chart of rounds shows.
const shownLines = 16

// roundsSection draws the score of the candidates round by round. Of those that were not
// among the last it shows the policies that lasted longest.
func (a *Advice) roundsSection() report.Section {
	c := &report.Chart{Label: "Race by round", X: "round", Y: "objective, worse than the best of the round by (" +
		a.Objective.unit() + ")"}
	var order []string // those that lasted longest first
	points := map[string][][4]float64{}
	for i := len(a.Rounds) - 1; i >= 0; i-- {
		for _, e := range a.Rounds[i].Entries {
			if points[e.Spec] == nil {
				order = append(order, e.Spec)
			}
			points[e.Spec] = append(points[e.Spec],
				[4]float64{float64(i + 1), a.Objective.Percent(e.Worse), math.NaN(), math.NaN()})
		}
	}
	for _, spec := range order[:min(shownLines, len(order))] {
		slices.Reverse(points[spec])
		c.Lines = append(c.Lines, report.Line{Name: spec, Points: points[spec]})
	}
	rows := [][]string{{"round", "what", "candidates", "kept", "seeds", "best"}}
	for i, r := range a.Rounds {
		kept := 0
		for _, e := range r.Entries {
			if e.Kept {
				kept++
			}
		}
		rows = append(rows, []string{fmt.Sprint(i + 1), r.What, fmt.Sprint(len(r.Entries)), fmt.Sprint(kept),
			fmt.Sprint(r.Seeds), r.Entries[0].Spec})
	}
	return report.Section{ID: "rounds", Title: "Race by round", Chart: c, Table: rows,
		Note: fmt.Sprintf("Mean objective of each candidate less that of the best of the round. "+
			"The chart shows the %d candidates that lasted longest.", len(c.Lines))}
}

func (a *Advice) worstSection() report.Section {
	return report.Section{ID: "worst", Title: "Worst scenario found", Note: a.worstText(),
		Text: strings.Join(a.Worst.lines(a.recommended().Candidate), "\n")}
}
