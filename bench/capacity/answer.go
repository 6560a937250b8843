package capacity

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/validate"
	"lorasim/internal/figure"
	"lorasim/internal/format"
)

// MarshalJSON writes the answer for programs: workers is null where nothing
// holds, and what was reached with the most of them is next_cheaper, which else
// is the candidate with one worker less, null where there is none.
func (a *Answer) MarshalJSON() ([]byte, error) {
	type tried struct {
		Workers    int     `json:"workers"`
		Attainment float64 `json:"attainment"`
		Bottleneck string  `json:"bottleneck"` // why it fails
	}
	out := struct {
		Workers     *int    `json:"workers"`
		Attainment  float64 `json:"attainment"` // share of the requests; of the adapters, where PerAdapter is asked for
		PerAdapter  float64 `json:"per_adapter,omitempty"`
		Certain     bool    `json:"certain"` // so says the interval of both
		NextCheaper *tried  `json:"next_cheaper"`
		Headroom    float64 `json:"headroom"`
		Verdict     Verdict `json:"verdict"`
		Bottleneck  string  `json:"bottleneck"`
		// Of the answer, or the most that was reached.
		Worst  result.Worst `json:"worst_adapter"`
		Choice *Candidate   `json:"choice,omitempty"` // where several kinds were tried
		Cost   float64      `json:"cost,omitempty"`
	}{Attainment: exact(a.Found.Attainment.Mean), Headroom: a.Headroom, Verdict: a.Verdict, Bottleneck: a.Limit.Bottleneck(), Worst: a.Found.Worst, PerAdapter: a.PerAdapter, Certain: a.Found.Certain && (a.NextCheaper == nil || a.NextCheaper.Certain)}
	next := a.NextCheaper
	if a.Found.Holds {
		workers := a.Found.total()
		out.Workers = &workers
	} else {
		next = &a.Found
	}
	if next != nil {
		out.NextCheaper = &tried{next.total(), exact(next.Attainment.Mean), next.Causes.Bottleneck()}
	}
	if len(a.Kinds) > 1 || len(a.Cost) > 0 {
		out.Choice, out.Cost = &a.Found.Candidate, a.cost(a.Found.Candidate)
	}
	return json.Marshal(out)
}

// exact takes the dust of adding up off a mean of shares.
func exact(share float64) float64 { return math.Round(share*1e9) / 1e9 }

// Failure is an error where nothing holds.
func (a *Answer) Failure() error {
	if a.Found.Holds {
		return nil
	}
	return fmt.Errorf("not even %s: %s %s, asked for %s",
		a.Found.Candidate, percent(a.Found.Attainment.Mean), a.demand(), percent(a.asked()))
}

// percent writes a share so that 99.9 % and 100 % differ.
func percent(share float64) string { return format.Percent(share, 2) }

// WriteText prints the answer.
func (a *Answer) WriteText(w io.Writer) error {
	if err := a.writeKinds(w); err != nil {
		return err
	}
	rows := [][]string{{"Workers", "Within SLO", "95 % interval", "Seeds", "Holds", "Worst adapter", "What requests wait for"}}
	if a.PerAdapter > 0 {
		rows[0][1] = "Adapters within SLO"
	}
	for _, t := range []*Tried{a.NextCheaper, &a.Found} {
		if t == nil {
			continue
		}
		e, holds, interval := &t.Attainment, "no", "-"
		if t.Holds {
			holds = "yes"
		}
		if e.N > 1 {
			interval = fmt.Sprintf("%s to %s", percent(max(e.Low, 0)), percent(min(e.High, 1)))
		}
		workers := strconv.Itoa(t.Workers)
		switch {
		case t.With != "":
			workers = fmt.Sprintf("%d + %d", t.Workers, t.More)
		case a.Mix:
			workers += " " + t.Profile
		}
		worst := fmt.Sprintf("%s of %d, %s", percent(t.Worst.Share), t.Worst.Requests, format.Clip(t.Worst.Name, 18))
		rows = append(rows, []string{workers, percent(e.Mean), interval, strconv.Itoa(e.N), holds, worst, t.Causes.String()})
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	f := &a.Found
	line := func(form string, args ...any) { fmt.Fprintf(w, form+"\n", args...) }
	line("")
	if f.Holds {
		cost := ""
		if len(a.Cost) > 0 {
			cost = fmt.Sprintf(", %.4g an hour", a.cost(f.Candidate))
		}
		line("Answer:      %s%s for %s %s", f.Candidate, cost, percent(a.asked()), a.demand())
	} else {
		line("Answer:      none up to %d workers; the most reached %s, asked for %s %s", a.MaxWorkers, percent(f.Attainment.Mean), percent(a.asked()), a.demand())
	}
	for _, t := range []*Tried{a.NextCheaper, f} {
		if t != nil && !t.Certain {
			line("             not certain: with %s the interval of %d seeds holds the share asked for", t.Candidate, t.Attainment.N)
		}
	}
	if f.Rejected > 0 {
		line("             %s of the requests are rejected", percent(f.Rejected))
	}
	switch {
	case !f.Holds:
		line("Headroom:    %.2f: it holds up to that share of the load", a.Headroom)
	case a.Headroom >= mostHeadroom/100:
		line("Headroom:    %.0f or more: the rate is not what limits it", a.Headroom)
	default:
		line("Headroom:    %.2f: it holds up to so many times the load, then requests wait for %s", a.Headroom, a.Limit.String())
	}
	why := map[Verdict]string{
		Stable:     fmt.Sprintf("headroom of %.2f or more", nearBelow),
		Near:       fmt.Sprintf("headroom below %.2f", nearBelow),
		Overloaded: "the SLO does not hold",
	}[a.Verdict]
	if f.Holds && a.Verdict == Overloaded {
		why = fmt.Sprintf("%s of the requests still wait when the last one arrives: they come faster than they are served", percent(f.Backlog))
	}
	line("Verdict:     %s (%s)", a.Verdict, why)
	_, err := fmt.Fprintf(w, "Bottleneck:  %s\n", a.Limit.Bottleneck())
	return err
}

// writeKinds prints a table of the kinds, where there are several.
func (a *Answer) writeKinds(w io.Writer) error {
	if len(a.Kinds) < 2 {
		return nil
	}
	rows := [][]string{{"Workers", "Cost", "Of"}}
	for _, k := range a.Kinds {
		workers, cost, of := fmt.Sprintf("over %d", a.MaxWorkers), "", k.with(0).kind()
		switch {
		case k.With != "" && k.Workers == 0:
			workers, of = "-", of+": no mix is cheaper"
		case k.With != "":
			workers = fmt.Sprintf("%d + %d", k.Workers, k.More)
			cost = strconv.FormatFloat(k.Cost, 'g', 4, 64)
		case k.Err != "":
			workers, of = "-", of+": "+k.Err
		case k.Workers > 0:
			workers, cost = strconv.Itoa(k.Workers), strconv.FormatFloat(k.Cost, 'g', 4, 64)
		}
		rows = append(rows, []string{workers, cost, of})
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "by the first seed; the answer with further seeds:\n\n")
	return err
}

// The rates that Plot draws, as multiples of the workload's.
const ratePoints, leastRate, mostRate = 16, 0.5, 2.0

// curves is the attainment with the first seed, in %, over the rate, for the
// answer's number of workers and those around it.
func (a *Answer) curves(ctx context.Context, base *scenario.Scenario) ([]Candidate, []plotter.XYs, error) {
	const around = 2
	s := newSearch(ctx, base, a.Options)
	var lines []Candidate
	var xys []plotter.XYs
	for w := max(a.Found.Workers-around, 1); w <= a.Found.Workers+around; w++ {
		if _, err := s.measure(a.Found.Candidate.with(w), 1, base.Seed); !s.cannotBe(a.Found.Candidate.with(w), err) {
			lines = append(lines, a.Found.Candidate.with(w))
			xys = append(xys, make(plotter.XYs, ratePoints))
		}
	}
	err := validate.Parallel(ctx, ratePoints*len(lines), func(k int) error {
		line, point := k%len(lines), k/len(lines)
		factor := leastRate + (mostRate-leastRate)*float64(point)/(ratePoints-1)
		r, err := s.measure(lines[line], factor, base.Seed)
		if err == nil {
			xys[line][point] = plotter.XY{X: factor, Y: 100 * r.attainment}
		}
		return err
	}, nil)
	return lines, xys, err
}

// Plot draws the attainment over the rate.
func (a *Answer) Plot(ctx context.Context, base *scenario.Scenario, path string) error {
	lines, xys, err := a.curves(ctx, base)
	if err != nil {
		return err
	}
	what := "requests within the SLO, %"
	if a.PerAdapter > 0 {
		what = "adapters within the SLO, %"
	}
	p := figure.New("rate, as a multiple of the workload's", what)
	p.Title.Text = fmt.Sprintf("%s, asked for %s", a.SLO, percent(a.asked()))
	p.Y.Min, p.Y.Max = 0, 100
	p.Grid()
	for i, c := range lines {
		p.Line(c.workers(), i, xys[i])
	}
	p.Line("asked for", len(lines), plotter.XYs{{X: leastRate, Y: 100 * a.asked()}, {X: mostRate, Y: 100 * a.asked()}})
	return figure.Write(path, 18*vg.Centimeter, 10*vg.Centimeter, p.DrawBeside)
}
