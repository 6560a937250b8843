// Package liberationserifbold has the font of all texts.
package liberationserifbold

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is Liberation Sans Regular.
var TTF = liberationsansregular.TTF
