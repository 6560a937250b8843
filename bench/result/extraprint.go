package result

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
)

// topAdapters is how many adapters the table lists one by one.
const topAdapters = 10

// WriteExtra prints what lies beyond the reference's block, in its style:
// titles centred in dashes, rows of label and value, tables of at most 80
// columns. What a run has not is left out; without an Extra nothing is printed.
func (r *Result) WriteExtra(w io.Writer) error {
	e := r.Extra
	if e == nil {
		return nil
	}
	p := &printer{}
	p.requests(e)
	p.scheduled(r, e)
	p.goodput(e.Goodput)
	p.adapters(e)
	p.workers(e)
	p.costs(e)
	if len(r.Approximate) > 0 {
		p.title("Accuracy")
		p.row("Percentiles within 0.05 %", strings.Join(r.Approximate, ", "))
	}
	p.b.WriteString(BlockEnd() + "\n")
	_, err := w.Write(p.b.Bytes())
	return err
}

// printer writes sections; a title appears once its section has a row.
type printer struct {
	b       bytes.Buffer
	pending string
}

func (p *printer) title(s string) { p.pending = centre(s, '-') + "\n" }

func (p *printer) line(s string) {
	p.b.WriteString(p.pending + strings.TrimRight(s, " ") + "\n")
	p.pending = ""
}

func (p *printer) row(label, value string) { p.line(fmt.Sprintf("%-40s %s", label+":", value)) }

// count prints a row unless n is 0.
func (p *printer) count(label string, n int64) {
	if n != 0 {
		p.row(label, fmt.Sprint(n))
	}
}

// seconds prints a row unless v is 0; times below a second, such as a solver's,
// get more decimals.
func (p *printer) seconds(label string, v float64) {
	switch {
	case v == 0:
	case v < 1:
		p.row(label+" (s)", fmt.Sprintf("%.6f", v))
	default:
		p.row(label+" (s)", fmt.Sprintf("%.2f", v))
	}
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

func (p *printer) requests(e *Extra) {
	p.title("Requests")
	p.row("Requests", fmt.Sprint(e.Requests))
	p.row("Failed requests", fmt.Sprint(e.Failed))
	p.row("Rejected requests", fmt.Sprint(e.Rejected))
	p.row("Aborted requests", fmt.Sprint(e.Aborted))
	p.count("Unfinished requests", e.Unfinished)
	for _, r := range e.Reasons {
		p.line(fmt.Sprintf("  %7d %-8s %s", r.Count, r.Status, clip(r.Reason, 61)))
	}
	p.count("Replies without text (TTFT 0)", e.TextlessReplies)
}

// scheduled is left out where every request was sent on time: its numbers
// would be those of the block.
func (p *printer) scheduled(r *Result, e *Extra) {
	if mean, _ := r.Metrics.Get(MeanE2E); mean == e.ScheduledE2E.Mean {
		return
	}
	p.title("Latency from the Scheduled Arrival")
	for _, f := range []struct {
		name string
		s    Stats
	}{{"E2E Latency", e.ScheduledE2E}, {"TTFT", e.ScheduledTTFT}} {
		p.row("Mean "+f.name+" (ms)", fmt.Sprintf("%.2f", f.s.Mean))
		p.row("Median "+f.name+" (ms)", fmt.Sprintf("%.2f", f.s.Median))
		p.row("P99 "+f.name+" (ms)", fmt.Sprintf("%.2f", f.s.P99))
	}
}

func (p *printer) goodput(g *Goodput) {
	if g == nil {
		return
	}
	p.title("Goodput")
	p.row("SLO (ms)", g.SLO)
	p.row("Good requests", fmt.Sprint(g.Good))
	p.row("Goodput (req/s)", fmt.Sprintf("%.2f", g.PerS))
	p.row("Good share of all requests", percent(g.Share))
	for _, l := range []struct {
		name  string
		share float64
	}{{"ttft", g.TTFT}, {"tpot", g.TPOT}, {"e2e", g.E2E}} {
		if strings.Contains(g.SLO, l.name) {
			p.row("Successful within "+l.name, percent(l.share))
		}
	}
}

func (p *printer) adapters(e *Extra) {
	if e.Fairness == nil {
		return
	}
	p.title("Adapters")
	p.row("Adapters with requests", fmt.Sprint(e.Fairness.Adapters))
	p.row("Jain fairness of normalized latency", fmt.Sprintf("%.4f", e.Fairness.NormalizedLatency))
	p.row("Jain fairness of tokens served", fmt.Sprintf("%.4f", e.Fairness.Tokens))
	const format = "%-26s %9s %8s %11s %11s %10s"
	p.line(fmt.Sprintf(format, "Adapter", "Requests", "Share", "Mean E2E ms", "P99 E2E ms", "Mean TTFT"))
	line := func(a AdapterStats, p99 string) {
		e2e, ttft := fmt.Sprintf("%.2f", a.MeanE2E), fmt.Sprintf("%.2f", a.MeanTTFT)
		if a.Completed == 0 { // there is no latency to tell
			e2e, p99, ttft = "-", "-", "-"
		}
		p.line(fmt.Sprintf(format, clip(a.Name, 26), fmt.Sprint(a.Requests), percent(a.Share), e2e, p99, ttft))
	}
	top := e.Adapters
	if len(top) > topAdapters+1 { // a rest of one takes no more room than naming it
		top = top[:topAdapters]
	}
	for _, a := range top {
		line(a, fmt.Sprintf("%.2f", a.P99E2E))
	}
	if rest := e.Adapters[len(top):]; len(rest) > 0 {
		line(others(rest), "-")
	}
}

// others sums up adapters; the P99 of a sum cannot be had from its parts.
func others(as []AdapterStats) AdapterStats {
	sum := AdapterStats{Name: fmt.Sprintf("(%d others)", len(as))}
	for _, a := range as {
		n := float64(a.Completed)
		sum.Requests += a.Requests
		sum.Completed += a.Completed
		sum.Share += a.Share
		sum.MeanE2E += n * a.MeanE2E
		sum.MeanTTFT += n * a.MeanTTFT
	}
	sum.MeanE2E = ratio(sum.MeanE2E, float64(sum.Completed))
	sum.MeanTTFT = ratio(sum.MeanTTFT, float64(sum.Completed))
	return sum
}

func (p *printer) workers(e *Extra) {
	if len(e.Workers) == 0 {
		return
	}
	p.title("Workers")
	if b := e.Balance; b != nil {
		p.row("Requests per worker, mean", fmt.Sprintf("%.2f", b.Mean))
		p.row("Requests per worker, std (CV)", fmt.Sprintf("%.2f (%.4f)", b.Std, b.CV))
		p.row("Requests per worker, max / min", fmt.Sprintf("%d / %d", b.Max, b.Min))
	}
	columns := workerColumns(e.Workers)
	for i := -1; i < len(e.Workers); i++ {
		var s strings.Builder
		if i < 0 {
			fmt.Fprintf(&s, "%-6s", "Worker")
		} else {
			fmt.Fprintf(&s, "%-6d", i)
		}
		for _, c := range columns {
			text := c.head
			if i >= 0 {
				text = c.text(&e.Workers[i])
			}
			fmt.Fprintf(&s, " %*s", c.width, text)
		}
		p.line(s.String())
	}
}

// workerColumn is a column of the per-worker table.
type workerColumn struct {
	head  string
	width int
	text  func(*WorkerStats) string
	used  func(*WorkerStats) bool // nil: always shown
}

// workerColumns returns the columns that any worker has something in.
func workerColumns(workers []WorkerStats) []workerColumn {
	all := []workerColumn{
		{"Requests", 9, func(w *WorkerStats) string { return fmt.Sprint(w.Requests) }, nil},
		{"Share", 8, func(w *WorkerStats) string { return percent(w.Share) }, nil},
		{"Tokens", 11, func(w *WorkerStats) string { return fmt.Sprint(w.Tokens) }, nil},
		{"Busy", 8, func(w *WorkerStats) string { return percent(w.Busy) }, func(w *WorkerStats) bool { return w.Busy != 0 }},
		{"Loads", 7, func(w *WorkerStats) string { return fmt.Sprint(w.ColdLoads) }, func(w *WorkerStats) bool { return w.ColdLoads != 0 }},
		{"Evicted", 7, func(w *WorkerStats) string { return fmt.Sprint(w.Evictions) }, func(w *WorkerStats) bool { return w.Evictions != 0 }},
		{"Retract", 7, func(w *WorkerStats) string { return fmt.Sprint(w.Retractions) }, func(w *WorkerStats) bool { return w.Retractions != 0 }},
		{"Load s", 8, func(w *WorkerStats) string { return fmt.Sprintf("%.2f", w.LoadTime) }, func(w *WorkerStats) bool { return w.LoadTime != 0 }},
	}
	shown := all[:0]
	for _, c := range all {
		used := c.used == nil
		for i := range workers {
			used = used || c.used(&workers[i])
		}
		if used {
			shown = append(shown, c)
		}
	}
	return shown
}

func (p *printer) costs(e *Extra) {
	p.title("Loads and Migrations")
	p.count("Cold loads", e.ColdLoads)
	p.count("Evictions", e.Evictions)
	p.count("Retractions", e.Retractions)
	p.seconds("Time lost to loads", e.LoadTime)
	p.count("Requests that waited for an adapter", e.ColdStarts)
	p.seconds("Their waits, summed", e.ColdStartWait)
	p.count("Requests that migrated", e.Migrated)
	for _, m := range e.Migrations {
		p.count("Migrations, "+clip(cmp.Or(m.Kind, "unnamed"), 26), m.Count)
	}
	p.seconds("Time lost to migrations", e.MigrationTime)
	p.count("Failed adapter loads", e.FailedLoads)
	p.pending = ""
	p.plans(e)
	p.oracle(e.Oracle)
}

func (p *printer) plans(e *Extra) {
	c := e.Plans
	if c == nil {
		return
	}
	p.title("Plans")
	p.count("Plans made", e.SolverRuns)
	p.row("Plans applied / dropped", fmt.Sprintf("%d / %d", c.Applied, c.Dropped))
	p.seconds("Solver time", e.SolverTime)
	if c.Gap > 0 {
		p.row("Gap of the plans to their bounds, mean", percent(c.Gap))
	}
	p.row("Adapters brought / taken away", fmt.Sprintf("%d / %d", c.Loads, c.Unloads))
	p.row("Changes of placement / undone", fmt.Sprintf("%d / %d", c.Changes, c.Undone))
	p.count("KV tokens recomputed", c.Recomputed)
	if c.Copied > 0 {
		p.row("KV cache copied (MB)", fmt.Sprintf("%.1f", c.Copied/1e6))
	}
	p.pending = ""
}

func (p *printer) oracle(o *Oracle) {
	if o == nil {
		return
	}
	p.title("Against Perfect Knowledge")
	p.row("Mean E2E latency, lower bound (ms)", fmt.Sprintf("%.2f", o.MeanE2E))
	p.row("Mean E2E latency above it", percent(o.E2ERegret))
	p.row("Benchmark duration, lower bound (s)", fmt.Sprintf("%.2f", o.Duration))
	p.row("Benchmark duration above it", percent(o.DurationRegret))
}

// clip cuts s to at most n characters and makes it one printable line.
func clip(s string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s))
	if len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return string(runes)
}
