// Package latex takes the place of codeberg.org/go-latex/latex. gonum/plot alone imports it, to draw formulas, with
// four faces of its own; lorasim's pictures have plain texts. These are the names that gonum/plot uses.
package latex
