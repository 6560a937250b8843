// Package liberationsansitalic has the font of all texts.
package liberationsansitalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is Liberation Sans Regular.
var TTF = liberationsansregular.TTF
