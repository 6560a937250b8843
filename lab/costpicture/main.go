// Costpicture draws the table that lab/scale prints: processor time per simulated request over workers. It has a panel
// for each number of adapters and a line for each policy.
//
//	go run ./costpicture docs/speed.md docs/img/cost.svg
//
// It reads the first table of the page whose heading begins with "workers" and "adapters".
package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
	"lorasim/internal/format"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "costpicture:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%d arguments, expected 2: the page with the table, and the picture", len(args))
	}
	page, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer page.Close()
	c, err := readCosts(page)
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	return c.draw(args[1])
}

// cost is a cell of the table.
type cost struct {
	workers, adapters, policy int // policy: index in costs.policies
	us                        float64
}

// costs are the cells of the table.
type costs struct {
	policies []string
	cells    []cost
}

// readCosts reads the table of a page.
func readCosts(page io.Reader) (*costs, error) {
	c := new(costs)
	lines := bufio.NewScanner(page)
	for n := 1; lines.Scan(); n++ {
		row, isRow := cells(lines.Text())
		switch {
		case c.policies == nil:
			if len(row) > 2 && row[0] == "workers" && row[1] == "adapters" {
				c.policies = row[2:]
				lines.Scan() // the line below the heading
				n++
			}
		case isRow:
			if err := c.add(row); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		case len(c.cells) > 0:
			return c, nil
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(c.cells) == 0 {
		return nil, fmt.Errorf("no table whose columns are workers, adapters and policies")
	}
	return c, nil
}

// cells returns the cells of a row of a table.
func cells(line string) (row []string, ok bool) {
	line, ok = strings.CutPrefix(strings.TrimSpace(line), "|")
	if !ok {
		return nil, false
	}
	for cell := range strings.SplitSeq(strings.TrimSuffix(line, "|"), "|") {
		row = append(row, strings.Trim(strings.TrimSpace(cell), "`"))
	}
	return row, true
}

// add adds a row: workers, adapters, and "TIME µs, MEMORY MB" of each policy.
func (c *costs) add(row []string) error {
	if len(row) != 2+len(c.policies) {
		return fmt.Errorf("%d cells, expected %d", len(row), 2+len(c.policies))
	}
	var n [2]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(row[i]); err != nil {
			return err
		}
	}
	for i, cell := range row[2:] {
		text, _, ok := strings.Cut(cell, " µs")
		us, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil || us <= 0 {
			return fmt.Errorf("%q: expected TIME µs, MEMORY MB, with a time above 0", cell)
		}
		c.cells = append(c.cells, cost{n[0], n[1], i, us})
	}
	return nil
}

// The sizes of the picture.
const (
	panelWidth  = 7.6 * vg.Centimeter
	panelHeight = 5.5 * vg.Centimeter
	legendWidth = 3.6 * vg.Centimeter
)

// draw draws the panels in rows of two, with the legend beside the upper row.
func (c *costs) draw(path string) error {
	var adapters []int
	least, most, last := math.Inf(1), 0.0, 1
	for _, k := range c.cells {
		if !slices.Contains(adapters, k.adapters) {
			adapters = append(adapters, k.adapters)
		}
		least, most, last = min(least, k.us), max(most, k.us), max(last, k.workers)
	}
	rows := (len(adapters) + 1) / 2
	width, height := 2*panelWidth+legendWidth, panelHeight*vg.Length(rows)
	return figure.Write(path, width, height, func(all draw.Canvas) error {
		for i, n := range adapters {
			p := c.panel(n)
			p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0.8, float64(last)*1.25, least/1.3, most*1.3
			part := all
			part.Min.X += panelWidth * vg.Length(i%2)
			part.Max.X = part.Min.X + panelWidth - vg.Points(6)
			part.Max.Y -= panelHeight*vg.Length(i/2) + vg.Points(4)
			part.Min.Y = part.Max.Y - panelHeight + vg.Points(10)
			if i == 1 {
				part.Max.X += legendWidth
				if err := p.DrawBeside(part); err != nil {
					return err
				}
				continue
			}
			p.Legend = plot.NewLegend()
			p.Plot.Draw(part)
		}
		return nil
	})
}

// panel plots the costs with a number of adapters.
func (c *costs) panel(adapters int) *figure.Plot {
	p := figure.New("", "") // labels of logarithmic axes would take room on the other side
	p.Title.Text = format.Count(adapters, "adapter") + ": µs per request over workers"
	p.Title.TextStyle.Font.Size = vg.Points(10)
	p.LogX()
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	p.Grid()
	for i, policy := range c.policies {
		var line plotter.XYs
		for _, k := range c.cells {
			if k.adapters == adapters && k.policy == i {
				line = append(line, plotter.XY{X: float64(k.workers), Y: k.us})
			}
		}
		p.Line(policy, i, line)
		p.Dots("", i, line)
	}
	return p
}
