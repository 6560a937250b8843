// Package charts holds the charts of all pages: the report, the explorer, and the pages of a fleet. They are
// JavaScript modules without dependencies, and a style sheet with a light and a dark theme:
//
//   - dom.js: elements, numbers with units, colours, themes, legends, tables that fit
//   - chart.js: line charts and stacked bars, with a cursor for mouse, touch and keyboard, a table of the same
//     numbers, and pictures to keep (SVG, PNG)
//   - style.css: colours and layout
//
// A page that a server sends imports the modules from [Files]. A page in one file contains [Script].
package charts

import (
	"embed"
	"strings"
)

// Files holds the modules and the style sheet, without a folder.
//
//go:embed *.js style.css
var Files embed.FS

// modules lists the modules in the order of their imports.
var modules = []string{"dom.js", "chart.js"}

// Style returns the style sheet.
func Style() string { return read("style.css") }

// Script returns the modules as one script, without imports and exports; their declarations are then global. Each
// import and each export must be one line.
func Script() string {
	var b strings.Builder
	for _, name := range modules {
		for line := range strings.Lines(read(name)) {
			if !strings.HasPrefix(line, "import ") && !strings.HasPrefix(line, "export ") {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// read returns an embedded file.
func read(name string) string {
	text, err := Files.ReadFile(name)
	if err != nil {
		panic(err) // a fault of this package
	}
	return string(text)
}
