package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

// Tolerances beyond which two runs had different requests: clients count tokens and
// measure rates in slightly different ways.
const (
	tokenTolerance  = 0.02
	rateTolerance   = 0.05
	statedTolerance = 0.1 // between a stated rate and a measured one
)

// findDifferences finds the runs with the same requests, and how the requests of the others differ. t.same is a run of
// the largest group with the same requests; among equal groups, of the one with the baseline.
func (t *Table) findDifferences() {
	most := 0
	for k := range t.Runs {
		i := (t.Baseline + k) % len(t.Runs)
		n := 0
		for _, r := range t.Runs {
			if r == t.Runs[i] || r.differsFrom(t.Runs[i]) == "" {
				n++
			}
		}
		if n > most {
			most, t.same = n, t.Runs[i]
		}
	}
	for _, r := range t.Runs {
		how := ""
		if r != t.same {
			how = r.differsFrom(t.same)
		}
		t.differs = append(t.differs, how)
	}
}

// differsFrom describes in a few words the first difference between the requests of two runs; "": no known difference.
func (r *Run) differsFrom(o *Run) string {
	if r.excludes() || o.excludes() {
		return r.differsWarm(o)
	}
	if a, b, exact := requests(r, o); !near(a, b, exact) {
		return fmt.Sprintf("%.0f requests instead of %.0f", a, b)
	}
	if a, b := r.value("total_input_tokens").Mean, o.value("total_input_tokens").Mean; r.whole() && o.whole() &&
		!near(a, b, tokenTolerance) {
		return fmt.Sprintf("%.0f input tokens instead of %.0f", a, b)
	}
	if r.whole() && o.whole() && slices.Equal(r.Seeds, o.Seeds) &&
		!slices.EqualFunc(r.completed, o.completed, result.Completion.SameSet) {
		return "different request ids"
	}
	if r.dataset != "" && o.dataset != "" && r.dataset != o.dataset && !(r.fingerprinted() && o.fingerprinted()) {
		return fmt.Sprintf("data set %s instead of %s", r.dataset, o.dataset)
	}
	a, b, tolerance := rates(r, o)
	if !near(a, b, tolerance) {
		return fmt.Sprintf("%s requests/s instead of %s", format.Digits(a), format.Digits(b))
	}
	return ""
}

// excludes reports whether a warm-up is left out of the figures, its requests included.
func (r *Run) excludes() bool {
	return r.warmup || slices.ContainsFunc(r.Results, func(res *result.Result) bool {
		return res.Steady != nil && res.Steady.Excluded > 0
	})
}

// differsWarm is differsFrom where the requests of a warm-up are not counted: by when
// requests arrived. Runs of one workload may have warm-ups of different lengths.
func (r *Run) differsWarm(o *Run) string {
	last := func(r *Run) float64 {
		if len(r.Results) == 0 || r.Results[0].Steady == nil {
			return 0
		}
		return r.Results[0].Steady.LastArrival
	}
	if a, b := last(r), last(o); !near(a, b, rateTolerance) {
		return fmt.Sprintf("the last request arrives after %.4g s instead of %.4g s", a, b)
	}
	if !near(r.measured, o.measured, rateTolerance) {
		return fmt.Sprintf("%s requests/s instead of %s", format.Digits(r.measured), format.Digits(o.measured))
	}
	return ""
}

// requests are the mean numbers of requests of two runs, NaN where they are not
// known, and how far they may differ: what was sent is known exactly, but logs may
// tell only what completed.
func requests(r, o *Run) (a, b, tolerance float64) {
	tolerance = 1e-9
	mean := func(r *Run) (sum float64) {
		for _, c := range r.completed {
			n := c.Requests
			if math.IsNaN(n) {
				n, tolerance = c.Completed, tokenTolerance
			}
			sum += n / float64(len(r.completed))
		}
		return sum
	}
	a, b = mean(r), mean(o)
	return a, b, tolerance
}

// near reports whether two numbers differ by no more than a share; unknown numbers (0
// or NaN) differ from none.
func near(a, b, tolerance float64) bool {
	if !(a > 0 && b > 0) || a == b {
		return true
	}
	return math.Abs(a-b) <= tolerance*max(a, b)
}

func (r *Run) fingerprinted() bool {
	return len(r.completed) > 0 &&
		!slices.ContainsFunc(r.completed, func(c result.Completion) bool { return !c.Known() })
}

// noteDifferences adds notes on the runs with different requests, one per reason. The verdict leaves these runs out.
func (t *Table) noteDifferences() {
	notes := grouped{}
	for i, r := range t.Runs {
		if d := t.differs[i]; d != "" {
			notes.add(r.Name,
				fmt.Sprintf("requests differ from those of %s (%s): no star and no verdict between the two",
					t.same.Name, d))
		}
	}
	t.Notes = append(t.Notes, notes.lines()...)
}

// noteDefinitions adds a note on each family of metrics that clients measured in different ways.
func (t *Table) noteDefinitions() {
	ref := t.reference()
	for _, of := range ref.Definitions.Known() {
		ways := grouped{}
		differ := false
		for _, r := range t.Runs {
			if d := r.Definitions.Of(of.Name); d != "" && r.has(of.Name) {
				ways.add(r.Name, string(d))
				differ = differ || d.Differs(of.Definition)
			}
		}
		if differ {
			name := strings.ToUpper(strings.TrimSuffix(of.Name, "_latency"))
			t.Notes = append(t.Notes, fmt.Sprintf("%s is measured in different ways. %s", name,
				strings.Join(ways.lines(), ". ")))
		}
	}
}

// has reports whether the run has a metric of a family.
func (r *Run) has(family string) bool {
	return slices.ContainsFunc(r.order, func(name string) bool { return strings.Contains(name, family) })
}

// grouped are notes with the names of the runs that they are about.
type grouped struct {
	order []string
	names map[string][]string
}

func (g *grouped) add(name, note string) {
	if g.names == nil {
		g.names = map[string][]string{}
	}
	if g.names[note] == nil {
		g.order = append(g.order, note)
	}
	g.names[note] = append(g.names[note], name)
}

func (g *grouped) lines() (out []string) {
	for _, n := range g.order {
		out = append(out, strings.Join(g.names[n], ", ")+": "+n)
	}
	return out
}

// rates are those at which the requests of two runs arrived, requests/s, measured or
// stated in both where possible; 0: unknown.
func rates(r, o *Run) (a, b, tolerance float64) {
	switch {
	case r.measured > 0 && o.measured > 0:
		return r.measured, o.measured, rateTolerance
	case r.stated > 0 && o.stated > 0:
		return r.stated, o.stated, rateTolerance
	}
	return max(r.measured, r.stated), max(o.measured, o.stated), statedTolerance
}

// measuredRate is the rate at which a run's requests arrived, requests/s; 0: unknown.
func measuredRate(res *result.Result) float64 {
	if res.Steady != nil {
		return res.Steady.OfferedRate
	}
	return 0
}

// within is the 95 % interval of a mean within a single run; High < Low: none.
func (r *Run) within(metric string) steady.Interval {
	none := steady.Interval{Low: math.NaN(), High: math.NaN()}
	if len(r.Results) != 1 || r.Results[0].Steady == nil {
		return none
	}
	for _, i := range r.Results[0].Steady.Intervals {
		if i.Metric == metric {
			return i
		}
	}
	return none
}

// intervalNotes say what ± means.
func (t *Table) intervalNotes() (notes []string) {
	has := func(of stats.Sampling) bool {
		return slices.ContainsFunc(t.Runs, func(r *Run) bool { return len(r.Seeds) > 1 && r.sampling == of })
	}
	if has(stats.Fresh) {
		notes = append(notes,
			"± half of the 95 % confidence interval over seeds or (low to high); of a ratio from differences paired by seed")
	}
	if has(stats.Resampled) {
		notes = append(notes,
			"± of resamples: half of the 95 % interval of the workload's mean, from the spread of the resamples")
	}
	if has(stats.OneWorkload) {
		notes = append(notes, "one workload: no interval over seeds, which only break ties (see --resample)")
	}
	if slices.ContainsFunc(t.Rows, func(r Row) bool {
		return slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.N == 1 && c.Within.High > c.Within.Low })
	}) {
		notes = append(notes,
			"± of a single run: half of the 95 % interval within the run, or (low to high), by batch means")
	}
	return append(notes, t.tooShort()...)
}

// tooShort says which single runs of the table have no interval of a mean, and how long a run with one is.
func (t *Table) tooShort() []string {
	notes := grouped{}
	for _, r := range t.Runs {
		if len(r.Results) != 1 || r.Results[0].Steady == nil {
			continue
		}
		for _, s := range r.Results[0].Steady.TooShort {
			if slices.ContainsFunc(t.Rows, func(row Row) bool { return row.Metric == s.Metric }) {
				notes.add(r.Name, fmt.Sprintf("%s without ±, %v", s.Metric, s))
			}
		}
	}
	return notes.lines()
}
