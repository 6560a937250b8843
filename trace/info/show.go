package info

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
	"lorasim/internal/format"
	"lorasim/trace"
)

const (
	plotTop  = 8 // adapters with a colour of their own
	plotBins = 1024
	plotCols = 200 // most bins drawn
)

// plotColor is that of the i-th most used adapter or, last, of all others.
func plotColor(i int) color.Color {
	if i >= plotTop {
		return color.Gray{200}
	}
	return figure.Color(i)
}

// Plot reads src to its end and draws a picture. It shows arrivals per second over time, stacked by adapter, and
// below the lengths of prompts and outputs, if there are any. The extension of path selects PNG or SVG. The file
// appears only when it is complete.
func Plot(src trace.Source, path string) error {
	if _, err := figure.Format(path); err != nil {
		return err
	}
	rows := len(src.Adapters()) + 1
	c := newCollector(src.Adapters(), newTimeline(rows, binsFor(rows)))
	if err := c.read(src); err != nil {
		return err
	}
	if c.prompt.n == 0 {
		return fmt.Errorf("plot file %q: the workload has no requests to draw", path)
	}
	c.timeline.round(plotCols)
	if err := figure.Write(path, 9*vg.Inch, 7*vg.Inch, c.draw); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// binsFor returns the number of bins for a number of rows. More rows get fewer, wider bins.
func binsFor(rows int) int {
	const cells = 1 << 23 // that memory may hold
	return min(max(cells/rows, plotCols/2), plotBins)
}

// layer is one colour of the stacked plot.
type layer struct {
	name   string
	counts []int64
}

// layers returns the most used adapters, and all others as one more layer.
func (c *collector) layers() []layer {
	order := c.mostUsed()
	var ls []layer
	for i, row := range order {
		if i < plotTop {
			ls = append(ls, layer{c.name(row), c.timeline.row(row)})
			continue
		}
		if i == plotTop {
			ls = append(ls, layer{others(len(order) - plotTop), make([]int64, c.timeline.used)})
		}
		for bin, n := range c.timeline.row(row) {
			ls[plotTop].counts[bin] += n
		}
	}
	return ls
}

// draw puts the panels one above the other.
func (c *collector) draw(dc draw.Canvas) error {
	panels := []func() (*figure.Plot, error){c.arrivals}
	if c.prompt.total+c.output.total > 0 {
		panels = append(panels, c.lengths)
	}
	const pad = 8
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: vg.Points(18),
		PadTop: vg.Points(pad), PadBottom: vg.Points(pad), PadLeft: vg.Points(pad), PadRight: vg.Points(pad)}
	for i, panel := range panels {
		p, err := panel()
		if err != nil {
			return err
		}
		p.Y.Min = 0
		if err := p.DrawBeside(tiles.At(dc, 0, i)); err != nil {
			return err
		}
	}
	return nil
}

// arrivals draws requests/s over time. The stack is drawn from its top down,
// so that each layer's area covers the ones below it.
func (c *collector) arrivals() (*figure.Plot, error) {
	p := figure.New("time (s)", "requests/s")
	p.X.Min = 0
	ls := c.layers()
	for i := len(ls) - 1; i >= 0; i-- {
		line, err := plotter.NewLine(c.outline(ls[:i+1]))
		if err != nil {
			return nil, err
		}
		line.StepStyle, line.FillColor = plotter.PostStep, plotColor(i)
		line.LineStyle.Width = 0
		p.Add(line)
		p.Entry(ls[i].name, figure.Swatch{Color: line.FillColor})
	}
	return p, nil
}

// outline is the upper edge of layers on top of each other, in requests/s.
func (c *collector) outline(ls []layer) plotter.XYs {
	width := c.timeline.seconds()
	xys := make(plotter.XYs, c.timeline.used+1)
	for bin := range xys {
		xys[bin].X = float64(bin) * width
		for _, l := range ls {
			if bin < c.timeline.used {
				xys[bin].Y += float64(l.counts[bin]) / width
			}
		}
	}
	return xys
}

// lengths draws the distribution of prompt and output tokens.
func (c *collector) lengths() (*figure.Plot, error) {
	p := figure.New("tokens per request", "% of requests")
	p.LogX()
	for i, side := range []struct {
		name string
		h    *histogram
	}{{"prompt", c.prompt}, {"output", c.output}} {
		if side.h.total == 0 {
			continue
		}
		line, err := plotter.NewLine(side.h.outline())
		if err != nil {
			return nil, err
		}
		line.StepStyle = plotter.PostStep
		line.LineStyle.Width, line.LineStyle.Color = vg.Points(1.5), plotColor(i)
		p.Add(line)
		p.Entry(side.name, line)
	}
	return p, nil
}

// outline is the histogram in bins of a quarter octave, in % of the numbers.
// Zeros, which have no place on a logarithmic axis, are left out.
func (h *histogram) outline() plotter.XYs {
	var xys plotter.XYs
	edge := func(bin int) float64 { return math.Ceil(math.Exp2(float64(bin) / 4)) }
	bin := 0
	for value, count := range h.all {
		if value == 0 {
			continue
		}
		for float64(value) >= edge(bin) {
			if edge(bin+1) > edge(bin) { // small numbers have fewer bins
				xys = append(xys, plotter.XY{X: edge(bin)})
			}
			bin++
		}
		xys[len(xys)-1].Y += 100 * float64(count) / float64(h.n)
	}
	return append(xys, plotter.XY{X: edge(bin)})
}

// WriteJSON writes the summary as an indented JSON object.
func (s *Summary) WriteJSON(w io.Writer) error { return format.JSON(w, s, "  ") }

// WriteText writes the summary as text for people; with ascii its chart has ASCII characters only.
func (s *Summary) WriteText(w io.Writer, ascii bool) error {
	var b bytes.Buffer
	s.writeHead(&b)
	if s.Requests > 0 {
		writeTable(&b, s.adapterRows())
		writeTable(&b, s.lruRows())
		if s.Prompt.Total == 0 && s.Output.Total == 0 {
			b.WriteString("\nno token counts\n")
		} else {
			writeTable(&b, s.tokenRows())
		}
		writeChart(&b, s.Timeline, ascii)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (s *Summary) writeHead(b *bytes.Buffer) {
	fmt.Fprintf(b, "%d requests, %d adapters (%d used)\n", s.Requests, s.Adapters, s.AdaptersUsed)
	if s.Requests == 0 {
		return
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(b, "  %-12s "+format+"\n", append([]any{name}, args...)...)
	}
	line("arrivals", "%s s to %s s", number(s.FirstArrival), number(s.LastArrival))
	if math.IsInf(float64(s.Rate), 1) {
		line("rate", "all requests at once")
	} else {
		line("rate", "%s req/s", number(s.Rate))
	}
	line("cv of gaps", "%s", cv(s.CV))
	var ds []string
	for _, d := range s.Dispersion {
		ds = append(ds, fmt.Sprintf("%s in %g s", number(d.Index), d.Window))
	}
	line("dispersion", "%s (variance/mean of counts; Poisson: 1)", strings.Join(ds, ", "))
	line("locality", "%s of requests use one of the last %d adapters", percent(s.Locality), localityWindow)
	line("skew", "top 1/5/10 %% of adapters: %s / %s / %s of requests; Gini %s",
		percent(s.Skew.Top1), percent(s.Skew.Top5), percent(s.Skew.Top10), number(s.Skew.Gini))
	if u := s.Reuse; u != nil {
		turns := ""
		if u.Conversations > 0 {
			turns = fmt.Sprintf("; %d conversations, %s turns each", u.Conversations, number(u.Turns))
		}
		line("reuse", "%s of prompt tokens repeat earlier ones of the same adapter%s", percent(u.Share), turns)
	}
}

func (s *Summary) adapterRows() [][]string {
	rows := [][]string{{"adapter", "rank", "requests", "share", "req/s", "cv"}}
	if s.Reuse != nil {
		rows[0] = append(rows[0], "reused")
	}
	for _, u := range append(slices.Clone(s.Top), s.Rest) {
		if u.Requests == 0 { // of the rest
			continue
		}
		rank := "-"
		if u.Rank > 0 {
			rank = fmt.Sprint(u.Rank)
		}
		rows = append(rows, []string{u.Name, rank, fmt.Sprint(u.Requests), percent(u.Share), number(u.Rate), cv(u.CV)})
		if s.Reuse != nil {
			reused := "-"
			if u.Reuse != nil {
				reused = percent(u.Reuse.Share)
			}
			rows[len(rows)-1] = append(rows[len(rows)-1], reused)
		}
	}
	return rows
}

// lruRows returns table rows with the hit rates of caches of the adapters used last.
func (s *Summary) lruRows() [][]string {
	if len(s.LRU) == 0 {
		return nil
	}
	rows := [][]string{{"LRU slots"}, {"hits"}, {"in random order"}}
	for _, h := range s.LRU {
		for i, cell := range []string{fmt.Sprint(h.Slots), percent(h.Hits), percent(h.Shuffled)} {
			rows[i] = append(rows[i], cell)
		}
	}
	return rows
}

func (s *Summary) tokenRows() [][]string {
	row := func(name string, t Tokens) []string {
		cells := []string{name, fmt.Sprint(t.Total)}
		for _, x := range []Number{t.Mean, t.P50, t.P90, t.P95, t.P99} {
			cells = append(cells, fmt.Sprintf("%.1f", float64(x)))
		}
		return append(cells, fmt.Sprint(t.Max))
	}
	return [][]string{{"tokens", "total", "mean", "p50", "p90", "p95", "p99", "max"}, row("prompt", s.Prompt),
		row("output", s.Output)}
}

// writeTable aligns cells to the right except for those of the first column.
func writeTable(b *bytes.Buffer, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	width := 0
	for _, cells := range rows {
		width = max(width, utf8.RuneCountInString(cells[0]))
	}
	b.WriteByte('\n')
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, cells := range rows {
		fmt.Fprintf(t, "%-*s\t%s\t\n", width, strings.ReplaceAll(cells[0], "\t", " "), strings.Join(cells[1:], "\t"))
	}
	t.Flush()
}

// number writes x with four digits, or "-" if it is not defined.
func number[F ~float64](x F) string {
	if !format.IsFinite(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.4g", float64(x))
}

// cv writes a coefficient of variation.
func cv(x Number) string {
	if math.IsNaN(float64(x)) {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(x))
}

func percent(share Number) string { return format.Percent(float64(share), 1) }

const chartHeight = 5 // lines

// bars are the eighths of a cell that is filled from below.
var (
	unicodeBars = [9]string{" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}
	asciiBars   = [9]string{" ", ".", ".", ".", ":", ":", ":", ":", "#"}
)

// writeChart draws the number of requests per bin as bars. A bin with requests
// is never empty.
func writeChart(b *bytes.Buffer, t Timeline, ascii bool) {
	bars, wall, corner, floor := unicodeBars, "│", "└", "─"
	if ascii {
		bars, wall, corner, floor = asciiBars, "|", "+", "-"
	}
	top := slices.Max(t.Counts)
	label := fmt.Sprint(top)
	fmt.Fprintf(b, "\nrequests per %g s\n", t.BinWidth)
	for line := chartHeight - 1; line >= 0; line-- {
		var cells strings.Builder
		for _, n := range t.Counts {
			cells.WriteString(bars[min(max(eighths(n, top)-8*line, 0), 8)])
		}
		left := ""
		if line == chartHeight-1 {
			left = label
		}
		fmt.Fprintf(b, "  %*s %s%s\n", len(label), left, wall, strings.TrimRight(cells.String(), " "))
	}
	fmt.Fprintf(b, "  %*d %s%s\n", len(label), 0, corner, strings.Repeat(floor, len(t.Counts)))
	end := fmt.Sprintf("%g s", t.BinWidth*float64(len(t.Counts)))
	fmt.Fprintf(b, "  %*s  0%*s\n", len(label), "", max(len(t.Counts)-1, len(end)+1), end)
}

// eighths is the height of a bar of n, in eighths of a cell.
func eighths(n, top int64) int {
	h := int((16*chartHeight*n + top) / (2 * top)) // rounded
	if n > 0 {
		h = max(h, 1)
	}
	return h
}
