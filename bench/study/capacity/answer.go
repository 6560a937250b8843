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
	"lorasim/internal/figure"
	"lorasim/internal/format"
	"lorasim/internal/parallel"
)

// span is a confidence interval of 95 %.
type span struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// spanOf is the interval of an estimate; nil where there is none.
func spanOf(t *Tried) *span {
	e := &t.Attainment
	if !t.hasInterval() {
		return nil
	}
	return &span{exact(max(e.Low, 0)), exact(min(e.High, 1))}
}

// hasInterval reports whether there is an interval: an overloaded cluster has no mean
// that it could be about.
func (t *Tried) hasInterval() bool {
	return t.Attainment.N > 1 && t.Decision != Overloaded && t.Attainment.High > 0
}

// jsonTried is a candidate with what it reached.
type jsonTried struct {
	Workers    int      `json:"workers"`
	Attainment float64  `json:"attainment"`
	Interval   *span    `json:"interval"`
	Decision   Decision `json:"decision"`
	Bottleneck string   `json:"bottleneck"` // why it fails
}

// jsonRuns describes the runs behind the interval of the answer.
type jsonRuns struct {
	Seeds    int    `json:"seeds"`
	Requests int64  `json:"requests,omitempty"` // of each run; absent: all of the workload
	Warmup   int64  `json:"warmup_requests"`    // requests of each run that do not count
	Fixed    string `json:"fixed,omitempty"`    // why runs are not extended
}

// MarshalJSON encodes the answer. workers is null if no candidate holds; next_cheaper is then the result with the most
// workers. Otherwise next_cheaper is the candidate with one worker less, or null if there is none.
func (a *Answer) MarshalJSON() ([]byte, error) {
	out := struct {
		Workers *int `json:"workers"`
		// share of the requests; of the adapters, where PerAdapter is asked for; of the runs, where Hold is
		Attainment       float64    `json:"attainment"`
		Interval         *span      `json:"interval"`
		Hold             string     `json:"hold"`
		PerAdapter       float64    `json:"per_adapter,omitempty"`
		Certain          bool       `json:"certain"` // the answer holds, and what is cheaper fails
		Decision         Decision   `json:"decision"`
		NextCheaper      *jsonTried `json:"next_cheaper"`
		Headroom         float64    `json:"headroom"`
		HeadroomInterval *span      `json:"headroom_interval"`
		Verdict          Verdict    `json:"verdict"`
		Bottleneck       string     `json:"bottleneck"`
		// Of the answer, or the most that was reached.
		Worst  result.Worst `json:"worst_adapter"`
		Choice *Candidate   `json:"choice,omitempty"` // where several kinds were tried
		Cost   float64      `json:"cost,omitempty"`
		// Load is the part of a period of the rate pattern that the answer is about.
		Load   string   `json:"load,omitempty"`
		Runs   jsonRuns `json:"runs"`
		Budget int64    `json:"budget,omitempty"` // requests
		CPU    float64  `json:"budget_cpu_s,omitempty"`
		Spent  int64    `json:"requests_simulated"`
		// The search was interrupted: this is the best answer that was known.
		Interrupted bool `json:"interrupted,omitempty"`
		// Next is the command that would decide what is open.
		Next string `json:"next,omitempty"`
	}{Attainment: exact(a.Found.Attainment.Mean), Interval: spanOf(&a.Found), Hold: a.holdText(),
		PerAdapter: a.PerAdapter,
		Certain:    a.Found.Certain && (a.NextCheaper == nil || a.NextCheaper.Certain),
		Decision:   a.Found.Decision, Headroom: a.Headroom.Factor, Verdict: a.Verdict, Bottleneck: a.Limit.Bottleneck(),
		Worst: a.Found.Worst, Load: a.busiest,
		Runs:  jsonRuns{a.Found.Attainment.N, a.Found.Size.requests, a.Found.Size.warm, a.fixed},
		Spent: a.Spent, Interrupted: a.Interrupted, Next: a.NextCommand}
	if out.CPU = a.CPU.Seconds(); a.CPU == 0 {
		out.Budget = a.Budget
	}
	if a.Headroom.Seeds > 1 && !a.single {
		out.HeadroomInterval = &span{a.Headroom.Low, a.Headroom.High}
	}
	next := a.NextCheaper
	if a.Found.Holds {
		workers := a.Found.total()
		out.Workers = &workers
	} else {
		next = &a.Found
	}
	if next != nil {
		out.NextCheaper = &jsonTried{
			next.total(), exact(next.Attainment.Mean), spanOf(next), next.Decision, next.Causes.Bottleneck(),
		}
	}
	if len(a.Kinds) > 1 || len(a.Cost) > 0 {
		out.Choice, out.Cost = &a.Found.Candidate, a.cost(a.Found.Candidate)
	}
	return json.Marshal(out)
}

// exact rounds away floating-point error in a mean of shares.
func exact(share float64) float64 { return math.Round(share*1e9) / 1e9 }

// holdText is the option Hold as it is given.
func (o *Options) holdText() string {
	if o.Hold == 0 {
		return "mean"
	}
	return strconv.FormatFloat(100*o.Hold, 'g', 6, 64) + "%"
}

// Failure returns an error if no candidate holds.
func (a *Answer) Failure() error {
	switch f := &a.Found; {
	case f.Holds || a.Interrupted:
		return nil
	case a.Stopped:
		return a.noneWithin()
	case f.Decision == Overloaded:
		return fmt.Errorf("not enough: with %s queues grow without end (overloaded); required: %s %s",
			f.Candidate, percent(a.asked()), a.demand())
	case f.Decision == Undecided && f.Attainment.N >= a.MaxSeeds:
		return fmt.Errorf("undecided with %d seeds: %s, %s %s, required: %s; increase --max-seeds",
			a.MaxSeeds, f.Candidate, percent(f.Mean), a.demand(), percent(a.asked()))
	case f.Decision == Undecided:
		return fmt.Errorf(
			"undecided within the budget of %s: %s, %s %s, required: %s; increase --budget or --max-workers",
			a.allowed(), f.Candidate, percent(f.Mean), a.demand(), percent(a.asked()))
	default:
		return fmt.Errorf("not enough: with %s %s %s, required: %s",
			f.Candidate, percent(f.Mean), a.demand(), percent(a.asked()))
	}
}

func (o *Options) noneWithin() error {
	return fmt.Errorf("no number of workers was accepted within the budget of %s; increase --budget", o.allowed())
}

// allowed is the budget in words.
func (o *Options) allowed() string {
	if o.CPU > 0 {
		return fmt.Sprintf("%v of processor time", o.CPU)
	}
	return fmt.Sprintf("%d requests", o.Budget)
}

// percent writes a share so that 99.9 % and 100 % differ.
func percent(share float64) string { return format.Percent(share, 2) }

// heading names what the attainment of a row is about.
func (o *Options) heading() string {
	switch {
	case o.Hold > 0:
		return "Runs that hold"
	case o.PerAdapter > 0:
		return "Adapters within SLO"
	}
	return "Within SLO"
}

// row is a candidate's row of the table.
func (a *Answer) row(t *Tried) []string {
	e, interval := &t.Attainment, "-"
	if t.hasInterval() {
		interval = fmt.Sprintf("%s to %s", percent(max(e.Low, 0)), percent(min(e.High, 1)))
	}
	holds := string(t.Decision)
	switch t.Decision {
	case Holds:
		if holds = "yes"; a.doubtful(t) {
			holds = "unclear"
		}
	case Likely:
		holds = "likely"
	case Fails:
		holds = "no"
	}
	workers := strconv.Itoa(t.Workers)
	switch {
	case t.With != "":
		workers = fmt.Sprintf("%d + %d", t.Workers, t.More)
	case a.Mix:
		workers += " " + t.Profile
	}
	worst := fmt.Sprintf("%s of %d, %s", percent(t.Worst.Share), t.Worst.Requests, format.Clip(t.Worst.Name, 18))
	return []string{workers, percent(e.Mean), interval, strconv.Itoa(e.N), holds, worst, t.Causes.String()}
}

// doubtful reports whether the runs of a candidate's interval miss the target on average, though it was accepted: fresh
// runs were worse than those of the decision.
func (a *Answer) doubtful(t *Tried) bool {
	return t.Decision == Holds && !t.Certain && t.hasInterval() && t.Attainment.Mean < a.target()-rounding
}

// WriteText writes the answer.
func (a *Answer) WriteText(w io.Writer) error {
	err := a.writeText(w)
	if err == nil && a.NextCommand != "" {
		_, err = fmt.Fprintf(w, "Next:        %s\n", a.NextCommand)
	}
	return err
}

func (a *Answer) writeText(w io.Writer) error {
	if err := a.writeKinds(w); err != nil {
		return err
	}
	rows := [][]string{
		{"Workers", a.heading(), "95 % interval", "Seeds", "Holds", "Worst adapter", "What requests wait for"},
	}
	for _, t := range []*Tried{a.NextCheaper, &a.Found} {
		if t != nil && t.Attainment.N > 0 {
			rows = append(rows, a.row(t))
		}
	}
	f := &a.Found
	line := func(form string, args ...any) { fmt.Fprintf(w, form+"\n", args...) }
	if len(rows) > 1 {
		if err := format.Table(w, rows); err != nil {
			return err
		}
		line("")
	}
	switch {
	case f.Attainment.N == 0:
		if a.Stopped {
			line("Answer:      none within the budget of %s", a.allowed())
		}
		line("So far:      about %s for %s %s, by single runs; no decision was made", f.Candidate, percent(a.asked()),
			a.demand())
		_, err := fmt.Fprintf(w, "Runs:        %s\n", a.lengths())
		return err
	case !f.Holds && a.Interrupted:
		line("So far:      %s, undecided, for %s %s", f.Candidate, percent(a.asked()), a.demand())
	case f.Holds:
		cost := ""
		if len(a.Cost) > 0 {
			cost = fmt.Sprintf(", %.4g an hour", a.cost(f.Candidate))
		}
		line("Answer:      %s%s for %s %s", f.Candidate, cost, percent(a.asked()), a.demand())
	case a.Stopped:
		line("Answer:      none within the budget of %s; %s reached %s, required: %s %s",
			a.allowed(), f.Candidate, percent(f.Mean), percent(a.asked()), a.demand())
	default:
		line("Answer:      none up to %d workers; the best reached %s, required: %s %s",
			a.MaxWorkers, percent(f.Mean), percent(a.asked()), a.demand())
	}
	line("             %s", a.reading())
	if a.busiest != "" {
		line("Load:        %s", a.busiest)
	}
	for _, note := range a.notes() {
		line("             %s", note)
	}
	line("Runs:        %s", a.lengths())
	h := &a.Headroom
	interval := ""
	if h.Seeds > 1 && !a.single {
		interval = fmt.Sprintf(" (95 %% interval %.2f to %.2f)", h.Low, h.High)
	}
	switch {
	case h.Seeds == 0:
		line("Headroom:    not measured, since the search was stopped")
	case !f.Holds:
		line("Headroom:    %.2f%s: the SLO holds up to this factor of the load", h.Factor, interval)
	case h.most():
		line("Headroom:    %.0f or more: the request rate is not the limit", h.Factor)
	default:
		line("Headroom:    %.2f%s: the SLO holds up to this factor of the load; beyond it, requests wait for %s",
			h.Factor, interval, a.Limit.String())
	}
	line("Verdict:     %s (%s)", a.Verdict, a.why())
	_, err := fmt.Fprintf(w, "Bottleneck:  %s\n", a.Limit.Bottleneck())
	return err
}

// reading explains the meaning of "holds".
func (a *Answer) reading() string {
	switch {
	case a.single:
		return fmt.Sprintf("in this workload, which covers %s s; other workloads, and other hours of a day, may differ",
			format.Digits(a.Found.last))
	case a.Hold > 0:
		length := "the workload's length"
		if a.Found.Size.requests > 0 {
			length = fmt.Sprintf("%d requests", a.Found.Size.requests-a.Found.Size.warm)
		}
		return fmt.Sprintf("in %s of the runs of %s (--hold %s)", percent(a.Hold), length, a.holdText())
	}
	if a.spread {
		return "in the mean over resamples of one workload"
	}
	return "in the mean over runs (--hold mean)"
}

// notes are remarks about the answer.
func (a *Answer) notes() (notes []string) {
	if a.partial != "" {
		notes = append(notes, "not certain: "+a.partial)
	}
	if a.Interrupted {
		notes = append(notes, "interrupted: the best answer so far")
	}
	for _, t := range []*Tried{a.NextCheaper, &a.Found} {
		switch {
		case t == nil || t.Certain || a.single:
		case t.Decision == Likely:
			notes = append(notes,
				fmt.Sprintf("%s: likely, not certain within the budget; increase --budget", t.Candidate))
		case t.Decision == Undecided && a.spread:
			notes = append(notes, fmt.Sprintf("%s: undecided; use a longer log", t.Candidate))
		case t.Decision == Undecided && t.Attainment.N < a.MaxSeeds:
			notes = append(notes,
				fmt.Sprintf("%s: undecided within the budget; increase --budget", t.Candidate))
		case t.Decision == Undecided:
			notes = append(notes,
				fmt.Sprintf("%s: undecided with %d seeds; increase --max-seeds", t.Candidate, a.MaxSeeds))
		case t.Attainment.N < 2:
			notes = append(notes, fmt.Sprintf("not certain: %s ran with one seed", t.Candidate))
		case a.target() == 1:
			notes = append(notes, "not certain: no number of runs can show that all requests meet the SLO")
		case a.doubtful(t):
			notes = append(notes, fmt.Sprintf("not certain: %s passed the test, but with fresh runs the mean misses the target",
				t.Candidate))
		default:
			notes = append(notes, fmt.Sprintf("not certain: the interval of %s contains the target", t.Candidate))
		}
	}
	if a.Found.Rejected > 0 {
		notes = append(notes, percent(a.Found.Rejected)+" of the requests are rejected")
	}
	return notes
}

// lengths states the length of the runs and the requests simulated.
func (a *Answer) lengths() string {
	z, simulated := a.Found.Size,
		fmt.Sprintf("%.1f million requests simulated (--budget %.0f million)",
			float64(a.Spent)/1e6, float64(a.Budget)/1e6)
	switch {
	case a.CPU > 0:
		simulated = fmt.Sprintf("%.1f million requests simulated (--budget %v)", float64(a.Spent)/1e6, a.CPU)
	case a.Budget < 1e6:
		simulated = fmt.Sprintf("%d requests simulated (--budget %d)", a.Spent, a.Budget)
	}
	if z.requests == 0 {
		return fmt.Sprintf("as long as the workload: %s is not extended; %s", a.fixed, simulated)
	}
	return fmt.Sprintf("%d requests each, of which the first %d are warm-up; %s", z.requests, z.warm, simulated)
}

// why returns the reason of the verdict.
func (a *Answer) why() string {
	switch {
	case a.Verdict == Stable:
		return fmt.Sprintf("headroom is at least %.2f", nearBelow)
	case a.Verdict == Near && a.Headroom.Factor >= nearBelow:
		return fmt.Sprintf("headroom may be below %.2f", nearBelow)
	case a.Verdict == Near:
		return fmt.Sprintf("headroom is below %.2f", nearBelow)
	case a.Found.Decision == Overloaded:
		return "requests arrive faster than the workers serve them: queues grow without end"
	case a.Verdict == Unknown && a.Found.Holds:
		return "the headroom was not measured"
	case a.Verdict == Unknown:
		return "it is not certain that the SLO holds"
	}
	return "the SLO does not hold"
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
		case k.Bound:
			workers = fmt.Sprintf("over %d", k.Workers-1)
		case k.Workers > 0:
			workers, cost = strconv.Itoa(k.Workers), strconv.FormatFloat(k.Cost, 'g', 4, 64)
		}
		rows = append(rows, []string{workers, cost, of})
	}
	if err := format.Table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "Screening with one run each; final answer with several:\n\n")
	return err
}

// The rates that Plot draws, as multiples of the workload's.
const ratePoints, leastRate, mostRate = 16, 0.5, 2.0

// curves is the attainment with the first seed, in %, over the rate, for the
// answer's number of workers and those around it.
func (a *Answer) curves(ctx context.Context, base *scenario.Scenario) ([]Candidate, []plotter.XYs, error) {
	const around = 2
	s := newSearch(ctx, base, a.Options)
	z := a.Found.Size
	var lines []Candidate
	var xys []plotter.XYs
	for w := max(a.Found.Workers-around, 1); w <= a.Found.Workers+around; w++ {
		if _, err := s.measure(a.Found.Candidate.with(w), 1, base.Seed, z, false); !s.cannotBe(
			a.Found.Candidate.with(w), err) {
			lines = append(lines, a.Found.Candidate.with(w))
			xys = append(xys, make(plotter.XYs, ratePoints))
		}
	}
	err := parallel.Do(ctx, ratePoints*len(lines), func(k int) error {
		line, point := k%len(lines), k/len(lines)
		factor := leastRate + (mostRate-leastRate)*float64(point)/(ratePoints-1)
		r, err := s.measure(lines[line], factor, base.Seed, z, false)
		if err == nil {
			xys[line][point] = plotter.XY{X: factor, Y: 100 * r.attainment}
		}
		return err
	}, nil)
	return lines, xys, err
}

// Plot draws the attainment over the rate to a file.
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
	p.Title.Text = fmt.Sprintf("%s, required %s", a.SLO, percent(a.asked()))
	p.Y.Min, p.Y.Max = 0, 100
	p.Grid()
	for i, c := range lines {
		p.Line(c.workers(), i, xys[i])
	}
	p.Line("required", len(lines), plotter.XYs{{X: leastRate, Y: 100 * a.asked()}, {X: mostRate, Y: 100 * a.asked()}})
	return figure.Write(path, 18*vg.Centimeter, 10*vg.Centimeter, p.DrawBeside)
}
