// Package fpdf takes the place of codeberg.org/go-pdf/fpdf. gonum/plot alone imports it, to write PDF; lorasim writes
// SVG and PNG. These are the names that gonum/plot uses. A call of New panics.
package fpdf

import "io"

type (
	// Fpdf would be a document.
	Fpdf struct{}
	// InitType would describe one.
	InitType struct {
		UnitStr string
		Size    SizeType
	}
	// SizeType is a size.
	SizeType struct{ Wd, Ht float64 }
	// ImageOptions would describe an image.
	ImageOptions struct {
		ImageType string
		ReadDpi   bool
	}
	// FontDescType would describe a font.
	FontDescType struct{ Ascent, Descent int }
)

// NewCustom panics.
func NewCustom(*InitType) *Fpdf { panic("PDF is not supported") }

// MakeFont does nothing.
func MakeFont(_, _, _ string, _ io.Writer, _ bool) error { return nil }

func (f *Fpdf) AddFontFromBytes(string, string, []byte, []byte)            {}
func (f *Fpdf) AddPage()                                                   {}
func (f *Fpdf) Arc(x, y, rx, ry, rotate, begin, end float64, style string) {}
func (f *Fpdf) CellFormat(w, h float64, text, border string, ln int, align string, fill bool, link int, url string) {
}
func (f *Fpdf) Close()                                              {}
func (f *Fpdf) ClosePath()                                          {}
func (f *Fpdf) CurveBezierCubicTo(cx0, cy0, cx1, cy1, x, y float64) {}
func (f *Fpdf) CurveTo(cx, cy, x, y float64)                        {}
func (f *Fpdf) DrawPath(string)                                     {}
func (f *Fpdf) GetCellMargin() float64                              { return 0 }
func (f *Fpdf) GetFontDesc(family, style string) FontDescType       { return FontDescType{} }
func (f *Fpdf) GetFontSize() (points, unit float64)                 { return 0, 0 }
func (f *Fpdf) GetStringWidth(string) float64                       { return 0 }
func (f *Fpdf) ImageOptions(name string, x, y, w, h float64, flow bool, options ImageOptions, link int, url string) {
}
func (f *Fpdf) LineTo(x, y float64)                                        {}
func (f *Fpdf) MoveTo(x, y float64)                                        {}
func (f *Fpdf) Output(io.Writer) error                                     { return nil }
func (f *Fpdf) PageNo() int                                                { return 0 }
func (f *Fpdf) RegisterImageOptionsReader(string, ImageOptions, io.Reader) {}
func (f *Fpdf) SetAlpha(float64, string)                                   {}
func (f *Fpdf) SetDashPattern([]float64, float64)                          {}
func (f *Fpdf) SetDrawColor(r, g, b int)                                   {}
func (f *Fpdf) SetFillColor(r, g, b int)                                   {}
func (f *Fpdf) SetFont(family, style string, size float64)                 {}
func (f *Fpdf) SetLineWidth(float64)                                       {}
func (f *Fpdf) SetMargins(left, top, right float64)                        {}
func (f *Fpdf) SetTextColor(r, g, b int)                                   {}
func (f *Fpdf) TransformBegin()                                            {}
func (f *Fpdf) TransformEnd()                                              {}
func (f *Fpdf) TransformRotate(angle, x, y float64)                        {}
func (f *Fpdf) TransformScale(width, height, x, y float64)                 {}
func (f *Fpdf) TransformTranslate(x, y float64)                            {}
