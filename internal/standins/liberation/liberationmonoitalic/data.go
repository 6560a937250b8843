// Package liberationmonoitalic has the font of all texts.
package liberationmonoitalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is Liberation Sans Regular.
var TTF = liberationsansregular.TTF
