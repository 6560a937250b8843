// Package drawtex has the names of go-latex's package that gonum/plot uses.
package drawtex

import "golang.org/x/image/font/sfnt"

type (
	// Canvas would have operations.
	Canvas struct{}
	// Op would be an operation.
	Op interface{ isOp() }
	// GlyphOp would draw a glyph.
	GlyphOp struct {
		Op
		X, Y  float64
		Glyph struct {
			Font   *sfnt.Font
			Size   float64
			Symbol string
		}
	}
	// RectOp would draw a rectangle.
	RectOp struct {
		Op
		X1, Y1, X2, Y2 float64
	}
)

// New returns a canvas.
func New() *Canvas { return &Canvas{} }

// Ops returns nothing.
func (*Canvas) Ops() []Op { return nil }
