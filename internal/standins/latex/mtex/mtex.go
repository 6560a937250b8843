// Package mtex has the names of go-latex's package that gonum/plot uses.
package mtex

import (
	"errors"

	"codeberg.org/go-latex/latex/drawtex"
	"codeberg.org/go-latex/latex/font/ttf"
	"codeberg.org/go-latex/latex/tex"
)

// Renderer would draw formulas.
type Renderer interface {
	Render(width, height, dpi float64, c *drawtex.Canvas) error
}

// Parse returns an error.
func Parse(_ string, _, _ float64, _ *ttf.Backend) (tex.Node, error) {
	return nil, errors.New("formulas are not supported")
}
