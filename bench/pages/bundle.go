package pages

import (
	"regexp"
	"strings"
)

// bundle returns the scripts that entry imports, directly or not, and entry as one script without imports and exports.
// Each script comes after those that it imports, and all declarations share one scope. Invariants, which the tests
// check: an import and a list of exports are one line each; an import keeps the names; no two scripts of a page declare
// the same name.
func bundle(files map[string][]byte, entry string) string {
	var b strings.Builder
	done := map[string]bool{}
	var add func(name string)
	add = func(name string) {
		if done[name] {
			return
		}
		done[name] = true
		text := string(files[name])
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			add(m[2])
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "import ") && !strings.HasPrefix(line, "export {") {
				b.WriteString(strings.TrimPrefix(line, "export "))
			}
		}
	}
	add(entry)
	return b.String()
}

// imported finds the imports of a script: names, and the file that declares them.
var imported = regexp.MustCompile(`(?m)^import \{ (.*) \} from '\./([^']+)';$`)
