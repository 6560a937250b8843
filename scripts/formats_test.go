package scripts

import (
	"slices"
	"strings"
	"testing"
)

// TestFormatsAreHandedIn: the libraries of Parquet and Arrow are in trace/columnar alone, and only commands import it.
// So a program that hands in no binary formats, such as the explorer in a browser, does not contain them.
func TestFormatsAreHandedIn(t *testing.T) {
	libraries := []string{"github.com/apache/arrow/", "github.com/parquet-go/", "github.com/google/flatbuffers/"}
	users := 0
	for _, line := range goList(t, `{{if ne .Name "main"}}{{.ImportPath}}{{range .Deps}} {{.}}{{end}}{{end}}`) {
		pkg, deps, _ := strings.Cut(line, " ")
		if pkg == "lorasim/trace/columnar" || pkg == "lorasim/cmd/cli" {
			users++
			continue
		}
		for dep := range strings.FieldsSeq(deps) {
			if slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(dep, l) }) {
				t.Errorf("%s depends on %s", pkg, dep)
				break
			}
		}
	}
	if users != 2 {
		t.Errorf("%d of trace/columnar and cmd/cli found", users)
	}
}
