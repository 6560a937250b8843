// Package compare puts runs side by side, simulated, live, or read from logs:
// one table, metric by metric, with ratios and, where there are several seeds,
// 95 % confidence intervals.
//
//	runs, warnings, err := compare.Load([]string{"bench.log", "sim.json"}, result.SLO{})
//	t, err := compare.New(runs, compare.Options{Baseline: "A"})
//	err = t.WriteText(os.Stdout)
package compare

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
	"lorasim/internal/record"
	"lorasim/internal/suggest"
)

// Options says what to compare.
type Options struct {
	Baseline string   // name of the run that ratios refer to; "": the first
	Metrics  []string // rows; none: the usual ones, as far as a run has them
	All      bool     // every metric that a run has
	Wide     bool     // the text has all runs side by side, however wide
}

// defaultMetrics are the rows of a table that does not say otherwise.
var defaultMetrics = []string{
	"completed", "failed", "rejected", "aborted", "unfinished", "unsent", "duration",
	"request_throughput", "output_throughput", "total_throughput", "concurrency",
	"mean_e2e_latency_ms", "median_e2e_latency_ms", "p99_e2e_latency_ms",
	"mean_ttft_ms", "median_ttft_ms", "p99_ttft_ms",
	"mean_tpot_ms", "median_tpot_ms", "p99_tpot_ms",
	"mean_itl_ms", "p99_itl_ms",
	"goodput.share", "goodput.adapter_share", "goodput.worst_adapter.share", "load_balance.cv", "fairness.normalized_latency",
	"cold_loads", "evictions", "migrated_requests",
}

// Table is a comparison.
type Table struct {
	Runs     []*Run
	Baseline int // index
	Rows     []Row
	Notes    []string // about single runs and about the comparison
	// Verdict is by the first metric that was asked for, else the mean latency;
	// nil: none can be told.
	Verdict *stats.Verdict

	apart   bool     // some cell is
	same    *Run     // that most runs had the same requests as
	differs []string // by run: how its requests differ from those of same; "": they do not
	width   int      // of the text, columns; 0: no limit
}

// Row is one metric of all runs.
type Row struct {
	Metric string
	Title  string
	Better stats.Direction
	Cells  []Cell
}

// Cell is one metric of one run; an Estimate with N = 0 is absent.
type Cell struct {
	stats.Estimate
	Ratio float64 // to the baseline; NaN: none
	// Diff is the difference to the baseline, paired by seed where both have
	// the same seeds; N = 0: none.
	Diff stats.Estimate
	// Best: no other comparable run is better; with several seeds, by the
	// intervals of the differences.
	Best bool
	// Clear: Best, and the interval of the difference to every other comparable
	// run excludes 0.
	Clear bool
	// Apart: not comparable with the other runs; see apartIn.
	Apart bool
	// Within is the 95 % interval of the mean within a single run; High < Low: none.
	Within steady.Interval
}

// New compares runs.
func New(runs []*Run, o Options) (*Table, error) {
	if len(runs) == 0 {
		return nil, fmt.Errorf("nothing to compare")
	}
	t := &Table{Runs: runs, width: format.Width}
	if o.Wide {
		t.width = 0
	}
	if o.Baseline != "" {
		var names []string
		for _, r := range runs {
			names = append(names, r.Name)
		}
		if t.Baseline = slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, o.Baseline) }); t.Baseline < 0 {
			return nil, suggest.Unknown("run", o.Baseline, names)
		}
	}
	metrics, err := choose(runs, o)
	if err != nil {
		return nil, err
	}
	t.findDifferences()
	for _, m := range metrics {
		row := Row{Metric: m, Title: result.Title(m), Better: result.Better(m)}
		for i, apart := range t.apartIn(m) {
			c := t.cell(i, m)
			c.Apart = apart && c.N > 0
			t.apart = t.apart || c.Apart
			row.Cells = append(row.Cells, c)
		}
		t.markBest(&row)
		t.Rows = append(t.Rows, row)
	}
	t.note()
	t.judge(append(slices.Clone(o.Metrics), "mean_e2e_latency_ms")[0])
	return t, nil
}

// judge takes runs with other seeds than the first one that has the metric as
// not comparable. Single runs are judged by the intervals within them, where all
// that compare have one.
func (t *Table) judge(metric string) {
	var first *Run
	apart, candidates := t.apartIn(metric), make([]stats.Candidate, len(t.Runs))
	for i, r := range t.Runs {
		own := r.values[metric]
		if first == nil && !apart[i] && len(own) > 0 {
			first = r
		}
		if first != nil {
			n := len(first.values[metric])
			otherSeeds := len(own) != n || n > 1 && !slices.Equal(r.Seeds, first.Seeds)
			apart[i] = apart[i] || otherSeeds || r.sampling != first.sampling
		}
		candidates[i] = stats.Candidate{
			Name: r.Name, Values: own, Apart: apart[i], Unsteady: result.Unsteady(metric, r.Stationarity()),
		}
	}
	if first == nil {
		return
	}
	if t.Verdict = t.judgeWithin(metric, candidates); t.Verdict == nil {
		t.Verdict = stats.Judge(metric, result.Better(metric), first.sampling, candidates)
	}
}

// choose lists the metrics to show.
func choose(runs []*Run, o Options) (list []string, err error) {
	var all []string
	for _, r := range runs {
		for _, n := range r.order {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	if o.All {
		return all, nil
	}
	for _, m := range o.Metrics {
		err = cmp.Or(err, suggest.Among("metric", m, all))
	}
	if err != nil || len(o.Metrics) > 0 {
		return o.Metrics, err
	}
	for _, m := range defaultMetrics { // zero failures and the like are worth no row
		if slices.ContainsFunc(runs, func(r *Run) bool { return len(r.values[m]) > 0 && (m == "completed" || r.value(m).Mean != 0) }) {
			list = append(list, m)
		}
	}
	return list, nil
}

// value estimates a metric over the seeds of the run.
func (r *Run) value(name string) stats.Estimate { return stats.MeanOf(r.sampling, r.values[name]) }

func (t *Table) cell(i int, metric string) Cell {
	r, base := t.Runs[i], t.Runs[t.Baseline]
	c := Cell{Estimate: r.value(metric), Ratio: math.NaN(), Diff: stats.Mean(nil), Within: r.within(metric)}
	b := base.value(metric)
	if r == base {
		return c
	}
	if b.Mean != 0 {
		c.Ratio = c.Mean / b.Mean
	}
	if d := t.difference(metric, i, t.Baseline); d.HasInterval() {
		c.Diff = d
	}
	return c
}

// apartIn says which runs' values of a metric cannot be compared with the others':
// those of other requests; those of other completed requests, as far as the metric
// depends on that; token times of clients that did not stream; and token throughputs
// that count tokens that were only asked for.
func (t *Table) apartIn(metric string) []bool {
	apart, ref := make([]bool, len(t.Runs)), t.reference()
	tokens := metric == "output_throughput" || metric == "total_throughput"
	times := slices.ContainsFunc([]string{"ttft", "tpot", "itl"}, func(f string) bool { return strings.Contains(metric, f) })
	counted := slices.ContainsFunc(t.Runs, func(r *Run) bool { return !r.Asked })
	streamed := slices.ContainsFunc(t.Runs, func(r *Run) bool { return r.Streamed == record.Streamed })
	for i, r := range t.Runs {
		apart[i] = t.differs[i] != "" || !result.CountsAll(metric) && !r.sameRequests(ref) ||
			tokens && r.Asked && counted || times && r.Streamed == record.NotStreamed && streamed
	}
	return apart
}

// reference is the run whose completed requests the others are held against: of
// those that had the same requests the first that completed most of them.
func (t *Table) reference() *Run {
	ref := t.same
	for i, r := range t.Runs {
		if t.differs[i] == "" && (r.left() < ref.left() || r.left() == ref.left() && slices.Index(t.Runs, ref) > i) {
			ref = r
		}
	}
	return ref
}

func (r *Run) whole() bool {
	return !slices.ContainsFunc(r.completed, func(c result.Completion) bool { return !c.Whole() })
}

// left is the mean share of requests that did not complete; infinite where it is
// not known.
func (r *Run) left() float64 {
	sum := 0.0
	for _, c := range r.completed {
		sum += c.Left()
	}
	if math.IsNaN(sum) || len(r.completed) == 0 {
		return math.Inf(1)
	}
	return sum / float64(len(r.completed))
}

// sameRequests says whether both runs completed the same requests, seed by seed.
func (r *Run) sameRequests(o *Run) bool {
	if r == o || r.whole() && o.whole() {
		return true
	}
	return (len(r.Seeds) <= 1 || slices.Equal(r.Seeds, o.Seeds)) && slices.EqualFunc(r.completed, o.completed, result.Completion.Same)
}

// markBest marks the best of a row's comparable runs, if one can be better than
// another and not all are the same. Runs that did not reach a steady state are not
// compared by metrics that need one. With several seeds the interval of its
// difference to each other run must exclude 0.
func (t *Table) markBest(row *Row) {
	var among []int
	for i, c := range row.Cells {
		judge := !result.NeedsSteady(row.Metric) || t.Runs[i].Stationarity().Judge()
		if row.Better != stats.Neither && c.N > 0 && !c.Apart && judge {
			among = append(among, i)
		}
	}
	mean := func(i, j int) int {
		return int(row.Better) * cmp.Compare(row.Cells[i].Mean, row.Cells[j].Mean)
	}
	if len(among) < 2 || mean(slices.MinFunc(among, mean), slices.MaxFunc(among, mean)) == 0 {
		return
	}
	best := slices.MinFunc(among, mean)
	clear, seeds := true, false
	for _, i := range among {
		if i != best {
			d := t.difference(row.Metric, i, best)
			clear = clear && d.HasInterval() && (d.Low > 0 || d.High < 0)
			seeds = seeds || row.Cells[i].N > 1 && row.Cells[best].N > 1 || d.HasInterval()
		}
	}
	row.Cells[best].Clear = clear
	for _, i := range among {
		row.Cells[i].Best = mean(i, best) == 0 && (clear || !seeds)
	}
}

// difference is that of a metric between two runs, paired by seed, of single runs
// by the intervals within them; N = 0 where their seeds are not the same.
func (t *Table) difference(metric string, i, j int) stats.Estimate {
	a, b := t.Runs[i], t.Runs[j]
	xs, ys := a.values[metric], b.values[metric]
	if d := differenceWithin(a, b, metric); d.HasInterval() {
		return d
	}
	if !slices.Equal(a.Seeds, b.Seeds) || len(xs) != len(a.Seeds) || len(ys) != len(b.Seeds) || a.sampling != b.sampling {
		return stats.Mean(nil)
	}
	return stats.PairedOf(a.sampling, xs, ys)
}

// note gathers the notes of the runs, each once, and those on the comparison.
func (t *Table) note() {
	var all grouped
	for _, r := range t.Runs {
		notes := r.Notes
		if left := r.left(); len(r.Results) != 1 && left > 0 && !math.IsInf(left, 0) {
			notes = append(slices.Clone(notes), fmt.Sprintf("%.3g %% of its requests did not complete", 100*left))
		}
		for _, n := range notes {
			all.add(r.Name, n)
		}
	}
	t.Notes = all.lines()
	t.noteDifferences()
}

// WriteText prints the runs and the table of their metrics.
func (t *Table) WriteText(w io.Writer) error {
	var b strings.Builder
	t.writeRuns(&b)
	b.WriteByte('\n')
	if err := t.writeRows(&b); err != nil {
		return err
	}
	t.writeNotes(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeRuns prints a line per run, with what it was at the end.
func (t *Table) writeRuns(b *strings.Builder) {
	var names []string
	widest := [3]int{}
	cells := func(r *Run) [3]string {
		where := filepath.Base(r.File)
		if r.Line > 0 {
			where += fmt.Sprintf(":%d", r.Line)
		}
		return [3]string{r.Name, r.Source, where}
	}
	for _, r := range t.Runs {
		for i, c := range cells(r) {
			widest[i] = max(widest[i], utf8.RuneCountInString(c))
		}
	}
	for _, r := range t.Runs {
		line := ""
		for i, c := range cells(r) {
			if widest[i] > 0 {
				line += fmt.Sprintf("%-*s  ", widest[i], c)
			}
		}
		what := r.What
		if n := len(r.Seeds); n > 1 && r.sampling == stats.Resampled {
			what += fmt.Sprintf(", %d resamples", n)
		} else if n > 1 {
			what += fmt.Sprintf(", %d seeds", n)
		}
		const least = 40 // columns for what it was
		indent := utf8.RuneCountInString(line)
		if t.width > 0 && indent > t.width-least {
			names, indent = append(names, strings.TrimRight(line, " ")), 4
			line = strings.Repeat(" ", indent)
		}
		text := what
		if t.width > 0 {
			text = strings.Join(format.Wrap(what, t.width-indent), "\n"+strings.Repeat(" ", indent))
		}
		names = append(names, strings.TrimRight(line+text, " "))
	}
	b.WriteString(strings.Join(names, "\n") + "\n")
}

// writeRows prints a line per metric, the value of each run with its ratio behind;
// above them stand the states of the runs, where any is known.
func (t *Table) writeRows(b *strings.Builder) error {
	head, states, known := []string{""}, []string{"State"}, false
	for _, r := range t.Runs {
		reached := r.Stationarity()
		head, states, known = append(head, r.Name), append(states, reached.Mark()), known || reached.State != ""
	}
	rows := [][]string{head}
	if known {
		rows = append(rows, states)
	}
	for _, row := range t.Rows {
		line := []string{strings.TrimRight(row.Title+" "+[...]string{"↑", "", "↓"}[row.Better+1], " ")}
		for i, c := range row.Cells {
			text := c.text()
			if ratio := c.ratio(); i != t.Baseline && ratio != "" {
				text += " " + ratio
			}
			line = append(line, text)
		}
		rows = append(rows, line)
	}
	return format.Fit(b, rows, 1, t.width)
}

func (c Cell) text() string {
	if c.N == 0 {
		return "-"
	}
	s := stats.Number(c.Mean)
	if c.Mean != math.Trunc(c.Mean) && math.Abs(c.Mean) >= 1 {
		s = fmt.Sprintf("%.2f", c.Mean) // as in the block
	}
	switch {
	case c.HasInterval():
		s += fmt.Sprintf(" ±%.2f", c.Half())
	case c.N == 1 && c.Within.High > c.Within.Low:
		s += fmt.Sprintf(" ±%.2f", (c.Within.High-c.Within.Low)/2)
	}
	if c.Best {
		s = "*" + s
	}
	if c.Apart {
		s += " " + stats.NotComparable
	}
	return s
}

func (c Cell) ratio() string {
	if math.IsNaN(c.Ratio) {
		return ""
	}
	s := fmt.Sprintf("×%.2f", c.Ratio)
	if base := c.Mean / c.Ratio; c.Diff.HasInterval() && base != 0 {
		s += fmt.Sprintf(" ±%.2f", math.Abs(c.Diff.Half()/base))
	}
	return s
}

func (t *Table) writeNotes(b *strings.Builder) {
	line := func(text string) { b.WriteString(format.Paragraph(text, t.width) + "\n") }
	text := "\n↓ less is better, ↑ more is; * the best" + t.bestOf()
	if len(t.Runs) > 1 {
		text += "; × ratio to " + t.Runs[t.Baseline].Name
	}
	line(text)
	for _, note := range t.intervalNotes() {
		line(note)
	}
	if t.apart {
		line(stats.NotComparable + " not comparable: other requests, or measured in another way (see the notes)")
	}
	if slices.ContainsFunc(t.Runs, func(r *Run) bool { return !r.Stationarity().Judge() }) {
		line(steady.StateNote)
	}
	if v := t.Verdict; v != nil {
		line(fmt.Sprintf("\nby %s: %s", result.Title(v.Metric), v))
		if v.Seeds > 1 && v.Of != stats.OneWorkload {
			line(stats.VerdictNote)
		}
	}
	for _, n := range t.Notes {
		line("note: " + n)
	}
}

// Schema names the version of the JSON form.
const Schema = "lorasim.compare/1"

// WriteJSON prints the comparison as one JSON object.
func (t *Table) WriteJSON(w io.Writer) error {
	var metrics []any
	for _, r := range t.Rows {
		runs := map[string]any{}
		for i, c := range r.Cells {
			runs[t.Runs[i].Name] = format.Object{"n", c.N, "mean", c.Mean, "ci95_low,omitempty", c.Low, "ci95_high,omitempty", c.High, "ratio,omitempty", c.Ratio,
				"within_low,omitempty", c.Within.Low, "within_high,omitempty", c.Within.High, "diff_mean,omitempty", c.Diff.Mean, "diff_ci95_low,omitempty", c.Diff.Low, "diff_ci95_high,omitempty", c.Diff.High,
				"best,omitempty", c.Best, "best_by_intervals,omitempty", c.Clear, "not_comparable,omitempty", c.Apart}
		}
		better := [...]string{"more", "", "less"}[r.Better+1]
		metrics = append(metrics, format.Object{"metric", r.Metric, "title", r.Title, "better,omitempty", better, "runs", runs})
	}
	var verdict any
	if t.Verdict != nil {
		verdict = t.Verdict.JSON()
	}
	return format.JSON(w, format.Object{"schema", Schema, "baseline", t.Runs[t.Baseline].Name, "runs", t.Runs, "metrics", metrics,
		"verdict,omitempty", verdict, "notes", append([]string{}, t.Notes...)}, " ")
}
