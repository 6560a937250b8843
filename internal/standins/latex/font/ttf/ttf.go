// Package ttf has the names of go-latex's package that gonum/plot uses.
package ttf

import (
	"codeberg.org/go-latex/latex/drawtex"
	"golang.org/x/image/font/sfnt"
)

type (
	// Fonts are faces.
	Fonts struct{ Default, Rm, It, Bf, BfIt *sfnt.Font }
	// Backend would measure glyphs.
	Backend struct{}
)

// NewFrom returns a backend.
func NewFrom(*drawtex.Canvas, *Fonts) *Backend { return &Backend{} }
