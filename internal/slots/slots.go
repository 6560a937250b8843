// Package slots fills in texts such as pages and job files. Unlike text/template it uses no reflection, which would
// make the linker keep all exported methods of the program.
//
//	slots.Fill("{{?time}}#SBATCH --time={{time}}\nexec {{program}}\n", map[string]string{"time": "", "program": "x"})
package slots

import (
	"fmt"
	"strings"
)

// Fill replaces each {{name}} by its value. Values are not searched for slots. A line that begins with {{?name}} is
// left out if the value is "". Fill panics if a slot has no value: the texts are part of the program.
func Fill(text string, values map[string]string) string {
	of := func(name string) string {
		v, ok := values[name]
		if !ok {
			panic(fmt.Sprintf("slots: no value for %q", name))
		}
		return v
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "{{?"); ok {
			name, after, _ := strings.Cut(rest, "}}")
			if of(name) == "" {
				continue
			}
			line = after
		}
		for {
			before, rest, ok := strings.Cut(line, "{{")
			b.WriteString(before)
			if !ok {
				break
			}
			name, after, _ := strings.Cut(rest, "}}")
			b.WriteString(of(name))
			line = after
		}
	}
	return b.String()
}
