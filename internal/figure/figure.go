// Package figure holds what all pictures have in common: colours, letters,
// legends and files.
package figure

import (
	"fmt"
	"image/color"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"lorasim/internal/atomicfile"
)

// colors are those of a report's page in its light theme, safe for the
// colour-blind (after Okabe and Ito).
var colors = []color.NRGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 128, 93, 255}, {181, 73, 140, 255},
	{138, 109, 0, 255}, {43, 159, 216, 255}, {106, 81, 163, 255}, {95, 102, 112, 255},
}

// Color is that of the i-th thing of a picture.
func Color(i int) color.NRGBA { return colors[i%len(colors)] }

// Plot is a plot with a legend of its own beside it, as within it would hide
// lines.
type Plot struct {
	*plot.Plot
	Legend plot.Legend
	width  vg.Length // of the names in the legend
}

// New returns an empty plot without serifs.
func New(x, y string) *Plot {
	p := &Plot{Plot: plot.New(), Legend: plot.NewLegend()}
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, st := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label,
	} {
		st.Font.Variant = "Sans"
	}
	p.Title.Padding = vg.Points(6)
	l := &p.Legend
	l.Top, l.Left, l.Padding = true, true, vg.Points(2)
	l.TextStyle.Font.Variant, l.TextStyle.Font.Size = "Sans", vg.Points(10)
	return p
}

// Grid draws grey lines behind what is added after it.
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

// Empty says whether the legend is.
func (p *Plot) Empty() bool { return p.width == 0 }

// Line adds points joined by lines in the colour of i, and the line to the
// legend unless its name is "".
func (p *Plot) Line(name string, i int, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	l, err := plotter.NewLine(xys)
	if err != nil {
		return err
	}
	dashes := [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(2)}}
	l.LineStyle = draw.LineStyle{Width: vg.Points(1.6), Color: Color(i), Dashes: dashes[i/len(colors)%len(dashes)]}
	p.Add(l)
	if name != "" {
		p.Entry(name, l)
	}
	return nil
}

// Dots adds points in the colour of i, and to the legend unless the name is "".
func (p *Plot) Dots(name string, i int, xys plotter.XYs) error {
	if len(xys) == 0 {
		return nil
	}
	s, err := dots(i, xys)
	if err != nil {
		return err
	}
	p.Add(s)
	if name != "" {
		p.Entry(name, s)
	}
	return nil
}

func dots(i int, xys plotter.XYs) (*plotter.Scatter, error) {
	s, err := plotter.NewScatter(xys)
	if err == nil {
		s.GlyphStyle = draw.GlyphStyle{Color: Color(i), Radius: vg.Points(2.3), Shape: draw.CircleGlyph{}}
	}
	return s, err
}

// DrawBeside draws the plot and, on its right, the legend.
func (p *Plot) DrawBeside(c draw.Canvas) {
	if !p.Empty() {
		width := p.width + p.Legend.ThumbnailWidth + vg.Points(12)
		right := c
		right.Min.X = c.Max.X - width
		c.Max.X -= width + vg.Points(4)
		p.Legend.Draw(right)
	}
	p.Draw(c)
}

// Swatch is a legend's patch of colour.
type Swatch struct{ color.Color }

// Thumbnail implements plot.Thumbnailer.
func (s Swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{
		{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y},
	})
}

// Format is png or svg, as the name of a file ends.
func Format(path string) (string, error) {
	format := strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	if format != "png" && format != "svg" {
		return "", fmt.Errorf("plot file %q: expected a name that ends in .png or .svg", path)
	}
	return format, nil
}

// Write draws a picture into a file, which appears only when it is complete.
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
