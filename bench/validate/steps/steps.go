// Package steps holds the simulated engines against what the engines
// themselves did, step by step. Where time plays no part, the order in which an
// engine admits, batches and preempts follows from its rules alone, so that a
// case is either exact or shows a rule that the simulator lacks.
//
//	report, err := steps.VLLM(ctx, "vllm_steps")
//	report.WriteText(os.Stdout)
//	err = report.Err() // not nil where a case differs
package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"
)

// Report is the outcome of a folder of cases.
type Report struct {
	Summary Summary `json:"summary"`
	Cases   []Case  `json:"cases"`
}

// Summary counts cases.
type Summary struct {
	Cases   int `json:"cases"`
	Exact   int `json:"exact"`
	Skipped int `json:"skipped"`
}

// Case is one case held against its recording.
type Case struct {
	Name    string `json:"name"`
	Exact   bool   `json:"exact"`
	Skipped bool   `json:"skipped"`
	// Reason says why the case was skipped.
	Reason string `json:"reason,omitempty"`
	// Steps is the number of steps recorded.
	Steps           int         `json:"steps"`
	FirstDifference *Difference `json:"first_difference,omitempty"`
}

// Difference is the first step at which the engines part: what the recording
// has and what the simulator did, only the fields that differ.
type Difference struct {
	Step     int `json:"step"`
	Expected any `json:"expected"`
	Got      any `json:"got"`
}

// runFolder runs each case of a folder, whose file is named NAME and the ending.
func runFolder(ctx context.Context, dir, ending string, run func(path string) (Case, error)) (*Report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no NAME%s there", dir, ending), err)
	}
	var cases []Case
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := run(path)
		if err != nil {
			return nil, err
		}
		c.Name = strings.TrimSuffix(filepath.Base(path), ending)
		cases = append(cases, c)
	}
	return newReport(cases), nil
}

// newReport sums up cases. A case without a difference that was not skipped is exact.
func newReport(cases []Case) *Report {
	r := &Report{Cases: cases, Summary: Summary{Cases: len(cases)}}
	for i := range cases {
		c := &cases[i]
		c.Exact = !c.Skipped && c.FirstDifference == nil
		if c.Exact {
			r.Summary.Exact++
		}
		if c.Skipped {
			r.Summary.Skipped++
		}
	}
	return r
}

// Err tells how many cases differ, nil if none does.
func (r *Report) Err() error {
	if n := r.Summary.Cases - r.Summary.Exact - r.Summary.Skipped; n > 0 {
		return fmt.Errorf("%d of %d cases differ from the engine", n, r.Summary.Cases)
	}
	return nil
}

// WriteJSON prints the report as one JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText prints a table with a line for each case, and the summary.
func (r *Report) WriteText(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "CASE\tSTEPS\tRESULT")
	for _, c := range r.Cases {
		fmt.Fprintf(tw, "%s\t%d\t%s\n", c.Name, c.Steps, c.result())
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d cases: %d exact, %d skipped, %d differ\n", r.Summary.Cases, r.Summary.Exact, r.Summary.Skipped,
		r.Summary.Cases-r.Summary.Exact-r.Summary.Skipped)
	return err
}

func (c *Case) result() string {
	switch d := c.FirstDifference; {
	case c.Skipped:
		return "skipped: " + c.Reason
	case d != nil:
		return fmt.Sprintf("step %d: expected %s, got %s", d.Step, compact(d.Expected), compact(d.Got))
	}
	return "exact"
}

// compact is a value as short JSON.
func compact(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
