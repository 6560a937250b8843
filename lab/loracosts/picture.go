package main

import (
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/figure"
)

// The size of a panel.
const panelWidth, panelHeight = 9 * vg.Centimeter, 7.5 * vg.Centimeter

// draw draws four panels: LoRA of a decode step over adapters, over ranks and over tokens, and of a step of prompts
// over ranks. Each has the linear layers of the base model as a grey line.
func (k *kit) draw(path string) error {
	all := func(p row, pairs ...string) bool {
		return p.is(append(pairs, "mode", "graph", "split", "equal", "variant", "", "model", llama)...)
	}
	own := func(r row) bool { return r["slots"] == r["adapters"] }
	panels := []struct {
		title, x string
		keep     func(r row) bool
	}{
		{"Decode of 64 requests, rank 16", "adapters", func(r row) bool {
			return all(r, "phase", "decode", "tokens", "64", "rank", "16") && own(r)
		}},
		{"Decode of 64 requests, 16 adapters", "rank", func(r row) bool {
			return all(r, "phase", "decode", "tokens", "64", "adapters", "16") && own(r)
		}},
		{"Decode, 8 adapters of rank 16", "tokens", func(r row) bool {
			return all(r, "phase", "decode", "adapters", "8", "rank", "16") && own(r)
		}},
		{"Prompts of 8,192 tokens, 4 adapters", "rank", func(r row) bool {
			return all(r, "phase", "prefill", "tokens", "8192", "adapters", "4") && own(r)
		}},
	}
	return figure.Write(path, 2*panelWidth, 2*panelHeight, func(c draw.Canvas) error {
		for i, p := range panels {
			drawn, err := k.panel(p.title, p.x, i == 0, p.keep)
			if err != nil {
				return err
			}
			part := c
			part.Min.X = c.Min.X + panelWidth*vg.Length(i%2)
			part.Max.X = part.Min.X + panelWidth - vg.Points(8)
			part.Max.Y = c.Max.Y - panelHeight*vg.Length(i/2)
			part.Min.Y = part.Max.Y - panelHeight + vg.Points(8)
			drawn.Draw(part)
		}
		return nil
	})
}

// panel plots the ms of a step over a column.
func (k *kit) panel(title, x string, legend bool, keep func(row) bool) (*plot.Plot, error) {
	f := figure.New(x, "ms a step")
	f.Grid()
	f.LogX()
	f.Y.Min, f.Title.Text, f.Title.TextStyle.Font.Size = 0, title, vg.Points(10)
	var base plotter.XYs
	ticks := plot.ConstantTicks{}
	for i, b := range backends {
		var line plotter.XYs
		base, ticks = nil, nil
		for at := range 14 {
			value := math.Pow(2, float64(at))
			for _, r := range k.kernels {
				if r["engine"] != b.engine || r.number(x) != value || !keep(r) {
					continue
				}
				line = append(line, plotter.XY{X: value, Y: r.number("lora_ms_step")})
				base = append(base, plotter.XY{X: value, Y: r.number("base_ms_step")})
				ticks = append(ticks, plot.Tick{Value: value, Label: strconv.Itoa(int(value))})
			}
		}
		if len(line) == 0 {
			return nil, fmt.Errorf("%s: no rows of %s", title, b.engine)
		}
		f.Line(b.name, i, line)
		f.Dots("", i, line)
	}
	grey, err := plotter.NewLine(base)
	if err != nil {
		return nil, err
	}
	grey.LineStyle = draw.LineStyle{Width: vg.Points(2.5), Color: color.Gray{150}}
	f.Add(grey)
	f.Entry("linear layers of the base model", grey)
	f.X.Tick.Marker = ticks
	f.Y.Max = 10 * math.Ceil(f.Y.Max/10)
	if legend {
		f.Plot.Legend = f.Legend
	}
	return f.Plot, nil
}
