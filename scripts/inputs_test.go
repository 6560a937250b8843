package scripts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Reading that does without the bounds: a device or a pipe without end would be read whole,
// and YAML of a few bytes could take all memory.
var unbounded = []struct {
	call    *regexp.Regexp
	instead string
	but     []string // files that may
}{
	{regexp.MustCompile(`\bos\.(ReadFile|Open)\(`), "internal/textfile: OpenInput, ReadFile, Read, Open", []string{
		"bench/serving/matrix/matrix.go",   // logs that matrix writes itself
		"bench/serving/metrics/process.go", // files below /proc
		"internal/testutil/testutil.go",    // golden files of tests
	}},
	{regexp.MustCompile(`\byaml\.(Unmarshal|NewDecoder|NodeToValue)|\bparser\.Parse(Bytes|File)?\(|\blexer\.Tokenize`),
		"internal/yamlfile", []string{
			"internal/yamlfile/yamlfile.go",
		}},
	// Not about inputs: where methods are found by their names, the linker keeps all exported methods.
	{regexp.MustCompile(`"(text|html)/template"|\.Set(Version|Help|Usage)Template\(|\.MethodByName\(`),
		"internal/slots", nil},
	{regexp.MustCompile(`\bio\.ReadAll\((os\.Stdin|cmd\.InOrStdin)`), "textfile.ReadAll", nil},
}

// TestInputs: files that users name are opened in one place, and YAML is read in one.
func TestInputs(t *testing.T) {
	seen := 0
	for _, root := range floors {
		err := filepath.WalkDir(filepath.Join("..", root), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			src, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			seen++
			name := filepath.ToSlash(strings.TrimPrefix(path, "../"))
			for i, line := range strings.Split(string(src), "\n") {
				for _, u := range unbounded {
					if !strings.HasPrefix(strings.TrimSpace(line), "//") && u.call.MatchString(line) &&
						!slices.Contains(u.but, name) {
						t.Errorf("%s:%d: %s: use %s", name, i+1, strings.TrimSpace(line), u.instead)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if seen < 200 {
		t.Errorf("%d files looked at, expected hundreds", seen)
	}
}
