// Package fit fits the coefficients of a latency profile to measurements: per-request records
// of live runs, result blocks of serving benchmarks, tables of measured runs, and kernel timings.
//
// A fit simulates the measured runs and moves the coefficients within bounds until the simulated
// metrics agree. A [Result] has the new profile, the standard error of each coefficient, and the
// errors on held-out data. A coefficient that the data cannot determine keeps its value in the
// profile at the start.
package fit

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

const (
	// undetermined is the relative standard error from which a coefficient counts as undetermined:
	// twice the error is then a factor of 2.7.
	undetermined = 0.5
	// derivativeStep is the step in the logarithm of a coefficient for its
	// derivative: large enough to average over the jumps of a simulator.
	derivativeStep = 0.02
	simplexSize    = 0.05 // of the first simplex
	// coarseStep and coarseSimplex are the two steps for a problem whose residuals jump.
	coarseStep, coarseSimplex = 0.06, 0.2
	// looseStep is the step of a loose coefficient of such a problem, over [Param.Loose].
	looseStep     = 0.3
	maxIterations = 12
	// restartGain is the ratio of the sum of squares after and before a simplex up to which another one
	// starts.
	restartGain = 0.99
)

// value maps the unbounded coordinate of a coefficient to its value:
// ln x = ln Min + (ln Max - ln Min) / (1 + exp(-u)).
func (q *Param) value(u float64) float64 {
	lo, hi := math.Log(q.Min), math.Log(q.Max)
	return math.Exp(lo + (hi-lo)/(1+math.Exp(-u)))
}

// coordinate returns the coordinate of a value: the inverse of value.
func (q *Param) coordinate(x float64) float64 {
	lo, hi := math.Log(q.Min), math.Log(q.Max)
	t := (math.Log(x) - lo) / (hi - lo)
	return math.Log(t / (1 - t))
}

// Result is the result of a fit: a profile, its coefficients, and its errors on held-out data.
type Result struct {
	Profile *profile.Profile // fitted profile
	Groups  *measured.Groups // groups of the runs, if they were fitted too; else nil
	Params  []Estimate       // fitted and held coefficients
	// Loss is the root mean square of the residuals: 1 where the error of the model equals the
	// uncertainty of the measurement. StartLoss is the loss at the start. If Evaluations is 0, both
	// are unset, and Errors has the errors on the fitted data.
	Loss, StartLoss float64
	Evaluations     int // number of simulated or computed predictions; 0: least squares
	Errors          stats.ErrorSummary
	// Notes are sentences on what was assumed, and on the data that would determine more.
	Notes []string

	x []float64 // NaN: held
}

// Param is one coefficient that a fit may move.
type Param struct {
	Name     string
	Start    float64
	Min, Max float64 // 0 < Min < Start < Max
	// Prior is the standard deviation of the logarithm of the value about Start, where it is known. A
	// coefficient with a prior is never held. 0: that of the problem.
	Prior float64
	// Loose is the standard deviation of the logarithm of the value about Start, for a coefficient that is held if
	// the data do not determine it. 0: that of the problem.
	Loose float64
}

// Estimate is one fitted coefficient.
type Estimate struct {
	Param
	Value float64 // NaN: held
	// RelStd is the relative standard error, as a fraction (of the logarithm of the value): from the
	// data, and from Prior if it is set. It is +Inf where nothing constrains the value, NaN where it is
	// unknown.
	RelStd float64
	// Assumed says that the prior counts more than the data.
	Assumed bool
	// Held says that the data cannot determine the coefficient, so that it kept its start value.
	Held    bool
	AtBound bool // the value is within 1 % of Min or Max
	// Physical says that Min is the least value that the hardware allows.
	Physical bool
}

// interval returns the 95 % interval of the value, from RelStd.
func (e *Estimate) interval() (low, high float64) {
	factor := math.Exp(1.96 * e.RelStd)
	return e.Value / factor, e.Value * factor
}

// MarshalJSON writes numbers that are not finite as null.
func (e Estimate) MarshalJSON() ([]byte, error) {
	low, high := e.interval()
	return json.Marshal(map[string]any{"name": e.Name, "start": e.Start, "value": format.Number(e.Value),
		"relative_error": format.Number(e.RelStd), "low": format.Number(low), "high": format.Number(high),
		"held": e.Held, "assumed": e.Assumed,
		"at_bound": e.AtBound})
}

// describe names the data of the fit in the profile, and checks the profile.
func (f *Result) describe(start *profile.Profile, data string, args ...any) (*Result, error) {
	p := f.Profile
	p.Name, p.Uncalibrated = start.Name+"-fitted", false
	// The data do not name their hardware and engine version. An analytic profile is taken for the
	// GPU that was measured.
	if p.Hardware, p.EngineVersion = "", ""; !start.Uncalibrated {
		p.Hardware = "not stated"
	}
	p.Source = fmt.Sprintf("Fitted to "+data+", starting from "+start.Name+".", args...)
	var held, assumed []string
	for _, e := range f.Params {
		switch {
		case e.Held:
			held = append(held, e.Name)
		case e.Assumed:
			assumed = append(assumed, e.Name)
		}
	}
	if held != nil {
		p.Source += " Not determined by the data, unchanged: " + strings.Join(held, ", ") + "."
	}
	if assumed != nil {
		p.Source += " Less by the data than by " + start.Name + ": " + strings.Join(assumed, ", ") + "."
	}
	return f, f.check()
}

func (f *Result) check() error {
	if err := f.Profile.Check(); err != nil {
		return fmt.Errorf("the fitted profile is invalid: %w", err)
	}
	return nil
}

// textWidth is the width of the table of coefficients: it fits a terminal of 80 columns.
const textWidth = 80

// WriteText prints the coefficients and the errors on held-out data.
func (f *Result) WriteText(w io.Writer) error {
	tw := format.Columns(w)
	fmt.Fprintln(tw, "COEFFICIENT\tSTART\tVALUE\t95 % INTERVAL\tSTD ERROR")
	for _, e := range f.Params {
		value, interval, std := "-", "-", "-"
		if !e.Held {
			value = fmt.Sprintf("%.4g", e.Value)
		}
		if !e.Held && !math.IsNaN(e.RelStd) {
			low, high := e.interval()
			interval, std = fmt.Sprintf("%.3g to %.3g", low, high), fmt.Sprintf("%.1f %%", 100*e.RelStd)
		}
		fmt.Fprintf(tw, "%s\t%.4g\t%s\t%s\t%s\n", e.Name, e.Start, value, interval, std)
	}
	if notes := f.coefficientNotes(); len(notes) > 0 {
		fmt.Fprintf(tw, "\n%s\n", strings.Join(notes, "\n"))
	}
	if f.Evaluations > 0 {
		fmt.Fprintf(tw, "\ndeviation in units of the noise: %.2f before, %.2f after, %d evaluations\n",
			f.StartLoss, f.Loss, f.Evaluations)
	} else {
		fmt.Fprintf(tw, "\nerror of the fit: median %.1f %%, P90 %.1f %%\n",
			100*f.Errors.MedianAbsError, 100*f.Errors.P90AbsError)
	}
	if len(f.Profile.Validation) > 0 {
		fmt.Fprintln(tw, "\nUNSEEN DATA\tMETRIC\tMEDIAN |ERROR|\tP90")
		for _, v := range f.Profile.Validation {
			fmt.Fprintf(tw, "%s\t%s\t%.1f %%\t%.1f %%\n", v.Runs, v.Metric, 100*v.MedianAbsError, 100*v.P90AbsError)
		}
	}
	if err := tw.Flush(); err != nil || len(f.Notes) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(f.Notes, "\n"))
	return err
}

// coefficientNotes returns the lines below the table: what to know about which coefficients.
func (f *Result) coefficientNotes() (lines []string) {
	const (
		held     = "not determined by the data, unchanged"
		physical = "at the physical minimum of the GPU"
		bound    = "at its bound"
		assumed  = "less by the data than by the start"
	)
	names := map[string][]string{}
	for _, e := range f.Params {
		note := ""
		switch {
		case e.Held:
			note = held
		case math.IsNaN(e.RelStd):
		case e.AtBound && e.Physical && e.Value < 1.01*e.Min:
			note = physical
		case e.AtBound:
			note = bound
		case e.Assumed:
			note = assumed
		}
		names[note] = append(names[note], e.Name)
	}
	for _, note := range []string{held, physical, bound, assumed} {
		line := note + ": "
		for i, name := range names[note] {
			if i < len(names[note])-1 {
				name += ", "
			}
			if len(line)+len(name) > textWidth {
				lines, line = append(lines, strings.TrimRight(line, " ")), "  "
			}
			line += name
		}
		if names[note] != nil {
			lines = append(lines, strings.TrimRight(line, " "))
		}
	}
	return lines
}

// MarshalJSON writes the numbers of WriteText as a JSON object.
func (f *Result) MarshalJSON() ([]byte, error) {
	object := map[string]any{
		"profile": f.Profile.Name, "coefficients": f.Params,
		"unseen": append([]profile.Validation{}, f.Profile.Validation...),
		"notes":  append([]string{}, f.Notes...),
	}
	if f.Evaluations > 0 {
		object["start_deviation"], object["deviation"], object["evaluations"] = format.Number(f.StartLoss),
			format.Number(f.Loss), f.Evaluations
	} else {
		object["fit_error"] = f.Errors
	}
	return json.Marshal(object)
}
