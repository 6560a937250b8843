package check

import (
	"context"
	"io"
	"slices"
	"strconv"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/internal/format"
)

// PointsReport is the errors of computed profiles at measured points.
type PointsReport struct {
	Schema string `json:"schema"`
	// Groups are the points of dense models, Experts those of models with experts, to which nothing was fitted.
	Groups  []pointGroup `json:"groups"`
	Experts []pointGroup `json:"experts"`
	// Skipped is the number of points that were not predicted, by reason.
	Skipped []skippedPoints           `json:"skipped,omitempty"`
	Points  []measured.PredictedPoint `json:"points"`
}

// pointGroup is the errors of the points with the same model, bits, GPU and engine.
type pointGroup struct {
	Group   string  `json:"group"`
	Summary Summary `json:"summary"`
}

// skippedPoints is points of a group that were not predicted for the same reason.
type skippedPoints struct {
	Group  string `json:"group"`
	Points int    `json:"points"`
	Reason string `json:"reason"`
}

// Points predicts points and reports on them. progress, if not nil, is called with the number of finished points and of
// all points.
func Points(ctx context.Context, points []measured.Point, progress func(done, total int64)) (*PointsReport, error) {
	rows, err := measured.PredictPoints(ctx, points, progress)
	if err != nil {
		return nil, err
	}
	r := &PointsReport{Schema: "lorasim.points/1", Points: rows, Groups: []pointGroup{}, Experts: []pointGroup{}}
	keys, groups := stats.GroupBy(rows, func(p *measured.PredictedPoint) skippedPoints {
		return skippedPoints{Group: p.Group(), Reason: p.Skipped}
	})
	for _, k := range keys {
		switch of := groups[k]; {
		case k.Reason != "":
			k.Points = len(of)
			r.Skipped = append(r.Skipped, k)
		case of[0].Experts:
			r.Experts = append(r.Experts, pointGroup{k.Group, summarize(of)})
		default:
			r.Groups = append(r.Groups, pointGroup{k.Group, summarize(of)})
		}
	}
	return r, nil
}

// Intervals implements [Report]. Profiles of points are computed, so they have no intervals.
func (r *PointsReport) Intervals() *IntervalReport { return intervals(r.Points) }

// Plot implements [Report]: TPOT of dense models, with a colour for each group.
func (r *PointsReport) Plot(w io.Writer) error {
	dense := slices.DeleteFunc(slices.Clone(r.Points), func(p measured.PredictedPoint) bool { return p.Experts })
	return plot(w, dense, []measured.Metric{measured.TPOT},
		func(p *measured.PredictedPoint) string { return p.Group() })
}

// WriteText prints a row for each group, and why points were left out.
func (r *PointsReport) WriteText(w io.Writer) error {
	rows := slices.Concat(pointRows("GROUP", r.Groups), pointRows("WITH EXPERTS", r.Experts))
	if len(r.Skipped) > 0 {
		rows = append(rows, nil, []string{"LEFT OUT", "POINTS", "REASON"})
	}
	for _, s := range r.Skipped {
		rows = append(rows, []string{s.Group, strconv.Itoa(s.Points), s.Reason})
	}
	return format.Table(w, rows)
}

// pointRows returns the table of groups: median and worst absolute error and mean error of TPOT, and the median
// absolute error of TTFT.
func pointRows(title string, groups []pointGroup) (rows [][]string) {
	if len(groups) == 0 {
		return nil
	}
	rows = [][]string{nil, {title, "POINTS", "TPOT MEDIAN |ERROR|", "WORST", "MEAN ERROR", "TTFT MEDIAN |ERROR|"}}
	for _, g := range groups {
		tpot, ttft := g.Summary[measured.TPOT], g.Summary[measured.TTFTMean]
		rows = append(rows, []string{g.Group, strconv.Itoa(tpot.Runs), format.Percent(tpot.MedianAbsError, 1),
			format.Percent(tpot.MaxAbsError, 1), percent(tpot.MeanError), format.Percent(ttft.MedianAbsError, 1)})
	}
	return rows
}
