// Package liberationmonoregular has the font of all texts.
package liberationmonoregular

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is Liberation Sans Regular.
var TTF = liberationsansregular.TTF
