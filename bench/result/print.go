package result

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"lorasim/internal/format"
)

// topAdapters is the number of adapters that the table lists one by one.
const topAdapters = 10

// WriteExtra writes the metrics beyond the block of the reference benchmark, in the
// block's style: titles centred in dashes, rows of label and value, tables of at most 80
// columns. It omits unknown metrics. Without an Extra it writes nothing.
func (r *Result) WriteExtra(w io.Writer) error {
	e := r.Extra
	if e == nil {
		return nil
	}
	p := &printer{}
	p.requests(e)
	if mean, _ := r.Metrics.Get(MeanE2E); mean != e.ScheduledE2E.Mean { // else every request was sent on time
		p.title("Latency from the Scheduled Arrival")
		for i, s := range []Stats{e.ScheduledE2E, e.ScheduledTTFT} {
			p.rowf("Mean "+families[i].label+" (ms)", "%.2f", s.Mean)
			p.rowf("Median "+families[i].label+" (ms)", "%.2f", s.Median)
			p.rowf("P99 "+families[i].label+" (ms)", "%.2f", s.P99)
		}
	}
	p.steady(r.Steady)
	p.goodput(e.Goodput, len(e.Adapters) > 1)
	p.elastic(e.Elastic)
	p.adapters(e)
	p.workers(e)
	p.costs(e)
	p.plans(e)
	if o := e.Oracle; o != nil {
		p.title("Lower Bound with Perfect Knowledge")
		p.rowf("Mean E2E latency, lower bound (ms)", "%.2f", o.MeanE2E)
		p.row("Mean E2E latency above the bound", percent(o.E2ERegret))
		p.rowf("Benchmark duration, lower bound (s)", "%.2f", o.Duration)
		p.row("Benchmark duration above the bound", percent(o.DurationRegret))
	}
	p.intervals(e.Intervals)
	if len(r.Approximate) > 0 {
		p.title("Accuracy")
		p.row("Percentiles accurate to 0.05 %", strings.Join(r.Approximate, ", "))
	}
	p.b.WriteString(BlockEnd() + "\n")
	_, err := w.Write(p.b.Bytes())
	return err
}

// printer writes sections. A title appears only if its section has a row.
type printer struct {
	b       bytes.Buffer
	pending string
}

func (p *printer) title(s string) { p.pending = centre(s, "-") + "\n" }

func (p *printer) line(s string) {
	p.b.WriteString(p.pending + strings.TrimRight(s, " ") + "\n")
	p.pending = ""
}

func (p *printer) row(label, value string) { p.line(fmt.Sprintf("%-40s %s", label+":", value)) }

func (p *printer) rowf(label, format string, values ...any) {
	p.row(label, fmt.Sprintf(format, values...))
}

// count prints a row unless n is 0.
func (p *printer) count(label string, n int64) {
	if n != 0 {
		p.row(label, fmt.Sprint(n))
	}
}

// seconds prints a row unless v is 0. Times below a second, such as a solver's, get more
// decimals.
func (p *printer) seconds(label string, v float64) {
	decimals := 2
	if v < 1 {
		decimals = 6
	}
	if v != 0 {
		p.rowf(label+" (s)", "%.*f", decimals, v)
	}
}

func percent(share float64) string { return format.Percent(share, 2) }

func (p *printer) requests(e *Extra) {
	p.title("Requests")
	p.row("Requests", fmt.Sprint(e.Requests))
	p.row("Failed requests", fmt.Sprint(e.Failed))
	p.row("Rejected requests", fmt.Sprint(e.Rejected))
	p.row("Aborted requests", fmt.Sprint(e.Aborted))
	p.count("Unfinished requests", e.Unfinished)
	for _, r := range e.Reasons {
		p.line(fmt.Sprintf("  %7d %-8s %s", r.Count, r.Status, format.Clip(r.Reason, 61)))
	}
	p.count("Replies without text (TTFT 0)", e.TextlessReplies)
}

// adapters prints the fairness and the table of adapters.
func (p *printer) adapters(e *Extra) {
	if e.Fairness == nil {
		return
	}
	p.title("Adapters")
	p.row("Adapters with requests", fmt.Sprint(e.Fairness.Adapters))
	p.rowf("Jain fairness of normalized latency", "%.4f", e.Fairness.NormalizedLatency)
	p.rowf("Jain fairness of tokens served", "%.4f", e.Fairness.Tokens)
	width := 26
	if e.Goodput != nil { // room for one more column
		width = 17
	}
	line := func(name string, requests any, share, good string, latencies ...any) {
		s := fmt.Sprintf("%-*s %9v %8s", width, format.Clip(name, width), requests, share)
		if e.Goodput != nil {
			s += fmt.Sprintf(" %8s", good)
		}
		p.line(s + fmt.Sprintf(" %11s %11s %10s", latencies...))
	}
	line("Adapter", "Requests", "Share", "Good", "Mean E2E ms", "P99 E2E ms", "Mean TTFT")
	adapter := func(a AdapterStats, p99 string) {
		e2e, ttft := fmt.Sprintf("%.2f", a.MeanE2E), fmt.Sprintf("%.2f", a.MeanTTFT)
		if a.Completed == 0 { // no latency is known
			e2e, p99, ttft = "-", "-", "-"
		}
		line(a.Name, a.Requests, percent(a.Share), percent(ratio(float64(a.Good), float64(a.Requests))), e2e, p99, ttft)
	}
	top := e.Adapters
	if len(top) > topAdapters+1 { // a rest of one takes no more room than naming it
		top = top[:topAdapters]
	}
	for _, a := range top {
		adapter(a, fmt.Sprintf("%.2f", a.P99E2E))
	}
	if rest := e.Adapters[len(top):]; len(rest) > 0 {
		adapter(others(rest), "-") // the P99 of several adapters does not follow from those of each
	}
}

// others combines adapters into one row.
func others(as []AdapterStats) AdapterStats {
	sum := AdapterStats{Name: fmt.Sprintf("(%d others)", len(as))}
	for _, a := range as {
		n := float64(a.Completed)
		sum.Requests += a.Requests
		sum.Good += a.Good
		sum.Completed += a.Completed
		sum.Share += a.Share
		sum.MeanE2E += n * a.MeanE2E
		sum.MeanTTFT += n * a.MeanTTFT
	}
	sum.MeanE2E = ratio(sum.MeanE2E, float64(sum.Completed))
	sum.MeanTTFT = ratio(sum.MeanTTFT, float64(sum.Completed))
	return sum
}

// workerColumns are the columns of the table of workers. An optional column appears if a
// worker has a value other than 0 in it.
var workerColumns = []struct {
	head     string
	width    int
	optional bool
	format   string
	value    func(*WorkerStats) float64
}{
	{"Requests", 9, false, "%.0f", func(w *WorkerStats) float64 { return float64(w.Requests) }},
	{"Share", 8, false, "%.2f %%", func(w *WorkerStats) float64 { return 100 * w.Share }},
	{"Tokens", 11, false, "%.0f", func(w *WorkerStats) float64 { return float64(w.Tokens) }},
	{"On s", 9, true, "%.1f", func(w *WorkerStats) float64 { return w.On }},
	{"Busy", 8, true, "%.2f %%", func(w *WorkerStats) float64 { return 100 * w.Busy }},
	{"Loads", 7, true, "%.0f", func(w *WorkerStats) float64 { return float64(w.ColdLoads) }},
	{"Evicted", 7, true, "%.0f", func(w *WorkerStats) float64 { return float64(w.Evictions) }},
	{"Preempt", 7, true, "%.0f", func(w *WorkerStats) float64 { return float64(w.Retractions) }},
	{"Load s", 8, true, "%.2f", func(w *WorkerStats) float64 { return w.LoadTime }},
	{"Cached", 8, true, "%.2f %%", func(w *WorkerStats) float64 { return 100 * w.hitRate() }},
}

func (p *printer) workers(e *Extra) {
	if len(e.Workers) == 0 {
		return
	}
	p.title("Workers")
	if b := e.Balance; b != nil {
		p.rowf("Requests per worker, mean", "%.2f", b.Mean)
		p.rowf("Requests per worker, std (CV)", "%.2f (%.4f)", b.Std, b.CV)
		p.rowf("Requests per worker, max / min", "%d / %d", b.Max, b.Min)
	}
	lines := []string{"Worker"}
	for i := range e.Workers {
		lines = append(lines, fmt.Sprintf("%-6d", i))
	}
	for _, c := range workerColumns {
		if c.optional && !slices.ContainsFunc(e.Workers, func(w WorkerStats) bool { return c.value(&w) != 0 }) {
			continue
		}
		lines[0] += fmt.Sprintf(" %*s", c.width, c.head)
		for i := range e.Workers {
			lines[i+1] += fmt.Sprintf(" %*s", c.width, fmt.Sprintf(c.format, c.value(&e.Workers[i])))
		}
	}
	for _, line := range lines {
		p.line(line)
	}
}

func (p *printer) costs(e *Extra) {
	p.title("Loads and Migrations")
	p.count("Cold loads", e.ColdLoads)
	p.count("Evictions", e.Evictions)
	p.count("Preemptions", e.Retractions)
	if r := e.Reuse; r != nil {
		p.count("Prompt tokens from prefix caches", r.Cached)
		p.row("Prefix hit rate", percent(r.HitRate))
	}
	p.seconds("Time spent loading adapters", e.LoadTime)
	p.count("Requests that waited for an adapter", e.ColdStarts)
	p.seconds("Total wait for adapters", e.ColdStartWait)
	p.count("Migrated requests", e.Migrated)
	for _, m := range e.Migrations {
		p.count("Migrations, "+format.Clip(cmp.Or(m.Kind, "unnamed"), 26), m.Count)
	}
	p.seconds("Time spent on migrations", e.MigrationTime)
	p.count("Failed adapter loads", e.FailedLoads)
}

func (p *printer) plans(e *Extra) {
	c := e.Plans
	if c == nil {
		return
	}
	p.title("Plans")
	p.count("Plans made", e.SolverRuns)
	p.rowf("Plans applied / dropped", "%d / %d", c.Applied, c.Dropped)
	p.seconds("Solver time", e.SolverTime)
	if c.Gap > 0 {
		p.row("Optimality gap of plans, mean", percent(c.Gap))
	}
	p.rowf("Adapters loaded / unloaded by plans", "%d / %d", c.Loads, c.Unloads)
	p.rowf("Placement changes / reverted", "%d / %d", c.Changes, c.Undone)
	p.count("KV tokens recomputed", c.Recomputed)
	if c.Copied > 0 {
		p.rowf("KV cache copied (MB)", "%.1f", c.Copied/1e6)
	}
}

func (p *printer) intervals(in *Intervals) {
	if in == nil {
		return
	}
	p.title("Prediction Intervals")
	p.row("Profile", in.Profile)
	p.row("Share of request time spent waiting", percent(in.Waiting))
	for _, why := range in.Without {
		p.line("none: " + why)
	}
	for _, what := range in.Extrapolated {
		p.line("extrapolated: " + what)
	}
	if len(in.Extrapolated) > 0 {
		p.line("The ranges are therefore twice as wide as in the validated runs.")
	}
	if len(in.Figures) == 0 {
		return
	}
	line := func(cells ...any) { p.line(fmt.Sprintf("%-24s %9s %17s %17s %4s %4v", cells...)) }
	line("", "Predicted", "half of runs", "most runs", "of", "Runs")
	for _, f := range in.Figures {
		m, _ := MetricByKey(f.Metric)
		label := strings.Replace(m.Descriptor().Label, "Total token throughput", "Total throughput", 1)
		line(label, figure(f.Predicted), span(f.Half), span(f.Most), format.Percent(f.Level, 0), f.Runs)
	}
}

func span(r *[2]float64) string {
	if r == nil {
		return "too few runs"
	}
	return figure(r[0]) + ".." + figure(r[1])
}

func figure(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func (p *printer) elastic(e *Elastic) {
	if e == nil {
		return
	}
	p.title("Elastic Workers")
	p.rowf("GPU-hours", "%.3f", e.GPUHours)
	if e.WorkerHours != e.GPUHours {
		p.rowf("Worker-hours", "%.3f", e.WorkerHours)
	}
	p.rowf("Workers, mean", "%.2f", e.Mean)
	p.rowf("Workers, min / max", "%d / %d", e.Min, e.Max)
	p.rowf("Scale-ups (cancelled)", "%d (%d)", e.Ups, e.CalledOff)
	p.rowf("Scale-downs (cancelled)", "%d (%d)", e.Downs, e.TakenBack)
}
