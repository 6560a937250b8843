// Package figure draws pictures with common colours, fonts, legends and file formats. A [Plot] is a plot with a
// legend beside it; [Write] writes a picture to a file.
package figure

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"lorasim/internal/atomicfile"
)

// colors are the colours of the report page in its light theme, safe for the colour-blind (after Okabe and Ito).
var colors = []color.NRGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 128, 93, 255}, {181, 73, 140, 255},
	{138, 109, 0, 255}, {43, 159, 216, 255}, {106, 81, 163, 255}, {95, 102, 112, 255},
}

// Color returns the colour of the i-th series of a picture.
func Color(i int) color.NRGBA { return colors[i%len(colors)] }

// A Plot is a plot with a legend beside it, where it hides no lines. Errors of its methods are returned by
// [Plot.DrawBeside].
type Plot struct {
	*plot.Plot
	Legend plot.Legend
	width  vg.Length // of the names in the legend
	err    error
}

// The only font: a stand-in for the others is in internal/standins/liberation.
func init() { plot.DefaultFont.Variant = "Sans" }

// New returns an empty plot with the labels x and y of its axes.
func New(x, y string) *Plot {
	p := &Plot{Plot: plot.New(), Legend: plot.NewLegend()}
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Title.Padding = vg.Points(6)
	l := &p.Legend
	l.Top, l.Left, l.Padding = true, true, vg.Points(2)
	l.TextStyle.Font.Size = vg.Points(10)
	return p
}

// Grid draws grey lines behind everything that is added later.
func (p *Plot) Grid() {
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
}

// LogX makes the x axis logarithmic.
func (p *Plot) LogX() { p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1} }

// Entry adds a line to the legend.
func (p *Plot) Entry(name string, icon plot.Thumbnailer) {
	p.Legend.Add(name, icon)
	p.width = max(p.width, p.Legend.TextStyle.Width(name))
}

// Empty reports whether the legend is empty.
func (p *Plot) Empty() bool { return p.width == 0 }

// Line adds points joined by lines in colour i. It adds an entry to the legend unless the name is "".
func (p *Plot) Line(name string, i int, xys plotter.XYs) {
	if len(xys) == 0 {
		return
	}
	l, err := plotter.NewLine(xys)
	if err == nil {
		dashes := [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(2)}}
		l.LineStyle = draw.LineStyle{Width: vg.Points(1.6), Color: Color(i), Dashes: dashes[i/len(colors)%len(dashes)]}
	}
	p.Named(name, l, err)
}

// Dots adds points in colour i. It adds an entry to the legend unless the name is "".
func (p *Plot) Dots(name string, i int, xys plotter.XYs) {
	if len(xys) > 0 {
		s, err := dots(i, xys)
		p.Named(name, s, err)
	}
}

// Marks adds black marks on points, and an entry to the legend.
func (p *Plot) Marks(name string, shape draw.GlyphDrawer, xys plotter.XYs) {
	if len(xys) == 0 {
		return
	}
	s, err := plotter.NewScatter(xys)
	if err == nil {
		s.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(4.5), Shape: shape}
	}
	p.Named(name, s, err)
}

// Named adds a plotter unless err is not nil. It adds an entry to the legend unless the name is "".
func (p *Plot) Named(name string, x interface {
	plot.Plotter
	plot.Thumbnailer
}, err error) {
	if err != nil {
		p.err = cmp.Or(p.err, err)
		return
	}
	if p.Add(x); name != "" {
		p.Entry(name, x)
	}
}

func dots(i int, xys plotter.XYs) (*plotter.Scatter, error) {
	s, err := plotter.NewScatter(xys)
	if err == nil {
		s.GlyphStyle = draw.GlyphStyle{Color: Color(i), Radius: vg.Points(2.3), Shape: draw.CircleGlyph{}}
	}
	return s, err
}

// DrawBeside draws the plot with the legend on its right.
func (p *Plot) DrawBeside(c draw.Canvas) error {
	if !p.Empty() {
		width := p.width + p.Legend.ThumbnailWidth + vg.Points(12)
		right := c
		right.Min.X = c.Max.X - width
		c.Max.X -= width + vg.Points(4)
		p.Legend.Draw(right)
	}
	p.Draw(c)
	return p.err
}

// Fill fills the rectangle between two opposite corners.
func Fill(c *draw.Canvas, of color.Color, a, b vg.Point) {
	c.FillPolygon(of, []vg.Point{a, {X: b.X, Y: a.Y}, b, {X: a.X, Y: b.Y}})
}

// A Swatch is a patch of colour in a legend.
type Swatch struct{ color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s Swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{c.Min, {X: c.Min.X, Y: c.Max.Y}, c.Max, {X: c.Max.X, Y: c.Min.Y}})
}

// Format returns png or svg, by the extension of path.
func Format(path string) (string, error) {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if format != "png" && format != "svg" {
		return "", fmt.Errorf("plot file %q: expected a name that ends in .png or .svg", path)
	}
	return format, nil
}

// Write writes a picture to a file, in the format of its extension. The file appears only when it is complete.
func Write(path string, width, height vg.Length, picture func(draw.Canvas) error) error {
	format, err := Format(path)
	if err != nil {
		return err
	}
	canvas, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	if err := picture(draw.New(canvas)); err != nil {
		return err
	}
	return atomicfile.Write(path, func(f *atomicfile.File) error {
		_, err := canvas.WriteTo(f)
		return err
	})
}

// A Panel compares predicted with measured values of a metric over several runs.
type Panel struct {
	Title, Unit string
	Points      []Point
}

// A Point is one run. Points of a group have the same colour.
type Point struct {
	Group               string
	Measured, Predicted float64 // > 0
}

// WritePanels draws panels side by side as an SVG. Axes are logarithmic, with the diagonal and lines 10 % beside it.
func WritePanels(w io.Writer, panels []Panel) error {
	const width, height = 9 * vg.Centimeter, 9 * vg.Centimeter
	canvas := vgsvg.New(width*vg.Length(len(panels)), height)
	all := draw.New(canvas)
	for i, panel := range panels {
		p, err := panel.plot()
		if err != nil {
			return fmt.Errorf("plot: %w", err)
		}
		left := width * vg.Length(i)
		p.Draw(draw.Crop(all, left, left+width-all.Max.X, 0, 0))
	}
	_, err := canvas.WriteTo(w)
	return err
}

func (panel *Panel) plot() (*plot.Plot, error) {
	if len(panel.Points) == 0 {
		return nil, fmt.Errorf("no run with a prediction of %s", panel.Title)
	}
	p := plot.New()
	p.Title.Text = panel.Title
	p.X.Label.Text, p.Y.Label.Text = "measured, "+panel.Unit, "predicted, "+panel.Unit
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = logTicks{}, logTicks{}
	p.Legend.TextStyle.Font.Size = vg.Points(8)

	var names []string
	points := map[string]plotter.XYs{}
	lo, hi := math.Inf(1), 0.0
	for _, q := range panel.Points {
		if points[q.Group] == nil {
			names = append(names, q.Group)
		}
		points[q.Group] = append(points[q.Group], plotter.XY{X: q.Measured, Y: q.Predicted})
		lo, hi = min(lo, q.Measured, q.Predicted), max(hi, q.Measured, q.Predicted)
	}
	lo, hi = lo/1.15, hi*1.15
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo, hi, lo, hi
	for _, f := range []float64{0.9, 1, 1.1} {
		l, err := plotter.NewLine(plotter.XYs{{X: lo, Y: lo * f}, {X: hi, Y: hi * f}})
		if err != nil {
			return nil, err
		}
		l.Color = color.Gray{160}
		if f != 1 {
			l.Dashes = []vg.Length{vg.Points(2), vg.Points(3)}
		}
		p.Add(l)
	}
	for i, name := range names {
		s, err := dots(i, points[name])
		if err != nil {
			return nil, err
		}
		p.Add(s)
		p.Legend.Add(name, s)
	}
	return p, nil
}

// logTicks marks round numbers, more of them in a narrow range.
type logTicks struct{}

func (logTicks) Ticks(lo, hi float64) []plot.Tick {
	factors := []float64{1, 2, 5}
	switch {
	case hi/lo < 10:
		factors = []float64{1, 1.5, 2, 3, 4, 5, 7}
	case hi/lo > 3000:
		factors = []float64{1}
	case hi/lo > 100:
		factors = []float64{1, 3}
	}
	var ts []plot.Tick
	for e := math.Floor(math.Log10(lo)); e <= math.Ceil(math.Log10(hi)); e++ {
		for _, f := range factors {
			v := f * math.Pow(10, e)
			label := fmt.Sprintf("%g", v)
			if v >= 10_000 {
				label = fmt.Sprintf("%gk", v/1000)
			}
			if v >= lo && v <= hi {
				ts = append(ts, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return ts
}
