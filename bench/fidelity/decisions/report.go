// Package decisions compares rules of the simulator with recorded decisions of real programs. No time plays a part in
// them: a case is exact, or it shows a rule that the simulator lacks.
//
//   - vLLM's scheduler, step by step: [VLLMSteps]
//   - sglang's scheduler, batch by batch: [SGLangBatches]
//   - endpoint pickers of Kubernetes gateways, decision by decision: [Pickers]
//
// Each reads a folder of cases:
//
//	report, err := decisions.VLLMSteps(ctx, "vllm_steps")
//	report.WriteText(os.Stdout)
//	err = report.Err() // not nil if a case differs
package decisions

import (
	"fmt"
	"io"

	"lorasim/internal/format"
)

// Report is the result of the cases in a folder.
type Report struct {
	Summary Summary `json:"summary"`
	Cases   []Case  `json:"cases"`

	of    string // the program that was recorded
	skips bool   // some cases may be skipped, and the text lists only cases that are not exact
}

// Summary counts cases.
type Summary struct {
	Cases   int  `json:"cases"`
	Exact   int  `json:"exact"`
	Skipped *int `json:"skipped,omitempty"` // nil: no case of this kind is ever skipped
}

func (s Summary) differ() int {
	n := s.Cases - s.Exact
	if s.Skipped != nil {
		n -= *s.Skipped
	}
	return n
}

// Case is one case compared with its recording.
type Case struct {
	Name            string      `json:"name"`
	Exact           bool        `json:"exact"`
	Skipped         string      `json:"skipped,omitempty"` // reason; "": not skipped
	Steps           int         `json:"steps"`             // number of recorded steps
	FirstDifference *Difference `json:"first_difference,omitempty"`
}

// Difference is the first step at which the recording and the simulator differ. Expected is recorded, Got is simulated;
// of a scheduler's step they have only the fields that differ.
type Difference struct {
	Step     int    `json:"step"`
	What     string `json:"what,omitempty"` // name of the field of a picker's decision
	Expected any    `json:"expected"`
	Got      any    `json:"got"`
}

// newReport summarizes the cases of a report.
func newReport(r Report) *Report {
	skipped := 0
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Exact = c.Skipped == "" && c.FirstDifference == nil; c.Exact {
			r.Summary.Exact++
		}
		if c.Skipped != "" {
			skipped++
		}
	}
	if r.Summary.Cases = len(r.Cases); r.skips {
		r.Summary.Skipped = &skipped
	}
	return &r
}

// Err returns an error with the number of cases that differ, or nil if none does.
func (r *Report) Err() error {
	if n := r.Summary.differ(); n > 0 {
		return fmt.Errorf("%d of %d cases differ from the %s", n, r.Summary.Cases, r.of)
	}
	return nil
}

// WriteText prints a table with a line for each case, and the summary.
func (r *Report) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprintln(tw, "CASE\tSTEPS\tRESULT")
	for _, c := range r.Cases {
		if !c.Exact || !r.skips {
			fmt.Fprintf(tw, "%s\t%d\t%s\n", c.Name, c.Steps, c.result())
		}
	}
	skipped := ""
	if n := r.Summary.Skipped; n != nil {
		skipped = fmt.Sprintf(" %d skipped,", *n)
	}
	fmt.Fprintf(tw, "\n%d cases: %d exact,%s %d differ\n", r.Summary.Cases, r.Summary.Exact, skipped,
		r.Summary.differ())
	return tw.Flush()
}

func (c *Case) result() string {
	d := c.FirstDifference
	switch {
	case c.Skipped != "":
		return "skipped: " + c.Skipped
	case d == nil:
		return "exact"
	}
	at := fmt.Sprintf("step %d", d.Step)
	if d.What != "" {
		at += ", " + d.What
	}
	return fmt.Sprintf("%s: expected %s, got %s", at, format.Compact(d.Expected), format.Compact(d.Got))
}
