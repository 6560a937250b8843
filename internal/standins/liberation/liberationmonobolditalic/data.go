// Package liberationmonobolditalic has the font of all texts.
package liberationmonobolditalic

import "github.com/go-fonts/liberation/liberationsansregular"

// TTF is Liberation Sans Regular.
var TTF = liberationsansregular.TTF
