package check

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
	"lorasim/sim/profile"
)

// loads are the classes of load that have separate intervals, by measured.Ran.Waiting: workers keep up, are
// near saturation, are saturated.
var loads = [][2]float64{{0, 0.05}, {0.05, 0.9}, {0.9, 1}}

// loadNames are the names of the classes of load. Workers keep up below 5 % of waiting and are
// saturated from 90 %; the edge of saturation lies between.
var loadNames = [...]string{"keeps up", "edge", "saturated"}

// loadOf returns the class of load of a run as an index into loadNames. waiting is the share of
// their time at the workers that requests wait (record.Waiting).
func loadOf(waiting float64) (class int) {
	for class < len(loads)-1 && waiting >= loads[class][1] {
		class++
	}
	return class
}

// edge is the class of runs near saturation.
const edge = 1

// IntervalReport holds prediction intervals of profiles, derived from runs that were not fitted,
// and their coverage of other kinds of runs.
type IntervalReport struct {
	Schema   string             `json:"schema"`
	Profiles []ProfileIntervals `json:"profiles"`
}

// ProfileIntervals are the intervals of a profile.
type ProfileIntervals struct {
	Profile   string             `json:"profile"`
	Intervals *profile.Intervals `json:"intervals"`
	Coverage  []Coverage         `json:"coverage"`
	// Extrapolated is the coverage of widened intervals for runs unlike those that the intervals
	// come from.
	Extrapolated []Extrapolated `json:"extrapolated,omitempty"`
}

// Extrapolated is the coverage of held-out runs by the intervals of all other runs: the runs of a
// policy, or those with many adapters or slots. It counts the figures of all metrics and classes of
// load that have intervals.
type Extrapolated struct {
	HeldOut string  `json:"held_out"`
	Figures float64 `json:"figures"`
	Half    [2]Held `json:"half"` // original range, widened range
	Most    [2]Held `json:"most"`
}

// Held is the share of figures within a range, and the range's median width.
type Held struct {
	Share float64 `json:"share"`
	Width float64 `json:"width"`
}

// Coverage is the share of measured values within the intervals from all other kinds of runs.
type Coverage struct {
	Metric  string     `json:"metric"`
	Waiting [2]float64 `json:"waiting"`
	Half    Covered    `json:"half"`
	Most    Covered    `json:"most"`
}

// Covered is the share of the runs within their interval; Runs is the number of runs with an
// interval. Width is the median of high minus low, relative to the prediction.
type Covered struct {
	Runs   float64 `json:"runs"`
	Share  float64 `json:"share"`
	Width  float64 `json:"width"`
	widths []float64
}

// cells returns the share with the number of runs, and the width.
func (c *Covered) cells() []string {
	if c.Runs == 0 {
		return []string{"-", "-"}
	}
	return []string{fmt.Sprintf("%s of %.0f", format.Percent(c.Share, 0), c.Runs), format.Percent(c.Width, 1)}
}

// intervals derives intervals from runs that were not fitted.
func intervals[Row any, P compared[Row]](rows []Row) *IntervalReport {
	var known []*measured.Comparison
	for i := range rows {
		if c := P(&rows[i]).Compared(); c.Predicted != nil && c.Ran.Base != nil {
			known = append(known, c)
		}
	}
	out := &IntervalReport{Schema: "lorasim.intervals/1"}
	names, byName := stats.GroupBy(known, func(c **measured.Comparison) string { return (*c).Ran.Base.Name })
	for _, name := range names {
		var ran []profile.ValidatedRun
		var rs []residual
		_, repeats := stats.GroupBy(byName[name], func(c **measured.Comparison) string { return (*c).Ran.Repeat })
		for _, c := range byName[name] {
			ran = append(ran, c.Ran.ValidatedRun)
			times := 1
			if c.Ran.Repeat != "" {
				times = len(repeats[c.Ran.Repeat])
			}
			rs = append(rs, residuals(c, 1/float64(times))...)
		}
		p := ProfileIntervals{Profile: name, Intervals: profile.NewIntervals(byName[name][0].Ran.Base, ran)}
		p.Intervals.Bands = bands(rs)
		p.Coverage = coverage(rs, p.Intervals.Bands)
		p.Extrapolated = extrapolations(rs)
		out.Profiles = append(out.Profiles, p)
	}
	return out
}

// One returns the intervals of a report on one profile, or nil if no run was predicted.
func (r *IntervalReport) One() *profile.Intervals {
	if len(r.Profiles) == 0 {
		return nil
	}
	return r.Profiles[0].Intervals
}

// unfitted returns the runs whose use is not calibration.
func unfitted[Row any](rows []Row, use func(*Row) string) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return use(&r) == measured.Calibration })
}

// WriteText prints the intervals of every profile, and their coverage of other kinds of runs.
func (r *IntervalReport) WriteText(w io.Writer) error {
	var rows [][]string
	for _, p := range r.Profiles {
		rows = append(rows, []string{"PROFILE " + p.Profile},
			[]string{"METRIC", "WAITING", "RUNS", "HALF OF RUNS", "MOST RUNS", "OF",
				"HALF HELD OUT", "WIDTH", "MOST HELD OUT", "WIDTH"})
		for i, b := range p.Intervals.Bands {
			c := &p.Coverage[i]
			rows = append(rows,
				slices.Concat(
					[]string{b.Metric, format.Percent(b.Waiting[0], 0) + " to " + format.Percent(b.Waiting[1], 0),
						strconv.FormatFloat(b.Runs, 'f', -1, 64),
						factors(b.Half), factors(b.Most), format.Percent(b.Level, 0)}, c.Half.cells(), c.Most.cells()))
		}
		if rows = append(rows, nil); len(p.Extrapolated) > 0 {
			rows = append(rows, []string{
				"HELD OUT", "FIGURES", "HALF", "WIDTH", "WIDENED", "WIDTH", "MOST", "WIDTH", "WIDENED", "WIDTH",
			})
			for _, x := range p.Extrapolated {
				row := []string{x.HeldOut, fmt.Sprintf("%.0f", x.Figures)}
				for _, h := range slices.Concat(x.Half[:], x.Most[:]) {
					row = append(row, format.Percent(h.Share, 0), format.Percent(h.Width, 0))
				}
				rows = append(rows, row)
			}
			rows = append(rows, nil)
		}
	}
	return format.Table(w, rows[:max(len(rows)-1, 0)])
}

func factors(r *[2]float64) string {
	if r == nil {
		return "-"
	}
	return fmt.Sprintf("%+.1f to %+.1f %%", 100*(r[0]-1), 100*(r[1]-1))
}
