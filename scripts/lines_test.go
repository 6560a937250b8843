package scripts

import (
	"bytes"
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"lorasim/internal/testutil"
)

const (
	// maxColumns is the longest line of a Go file. A tab counts as tabColumns.
	maxColumns, tabColumns = 120, 4
	// longText is the length of a string literal that may stay whole in a longer line:
	// one can search for it.
	longText = 80
	// longLines lists the files that still have longer lines, with their number.
	longLines = "long-lines.txt"
)

// TestLineLength holds the lines of all Go files to 120 columns. Files in long-lines.txt
// may have as many longer lines as stand there; the list may only shrink. -update takes
// off what is done.
func TestLineLength(t *testing.T) {
	found := map[string][]int{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "testdata" || strings.HasPrefix(e.Name(), ".") && e.Name() != ".."):
			return fs.SkipDir
		case e.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		text, err := os.ReadFile(path)
		if lines := tooLong(text); len(lines) > 0 {
			name, _ := filepath.Rel("..", path)
			found[filepath.ToSlash(name)] = lines
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	listed := readLongLines(t, found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if n, most := len(found[name]), listed[name]; n > most {
			t.Errorf("%s has %d lines of more than %d columns, at most %d are allowed: lines %d",
				name, n, maxColumns, most, found[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		n := len(found[name])
		if n < listed[name] && !*testutil.Update {
			t.Errorf("%s has %d long lines, scripts/%s lists %d; run go test ./scripts -run LineLength -update",
				name, n, longLines, listed[name])
		}
		if listed[name] = min(n, listed[name]); listed[name] == 0 {
			delete(listed, name)
		}
	}
	if *testutil.Update && !t.Failed() {
		writeLongLines(t, listed)
	}
}

// readLongLines returns the number of long lines that each listed file may have. With
// -update and no list it is what was found, which begins a new list.
func readLongLines(t *testing.T, found map[string][]int) map[string]int {
	listed := map[string]int{}
	text, err := os.ReadFile(longLines)
	if errors.Is(err, fs.ErrNotExist) && *testutil.Update {
		for name, lines := range found {
			listed[name] = len(lines)
		}
		return listed
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var n int
		var name string
		if _, err := fmt.Sscan(line, &n, &name); err != nil || n < 1 {
			t.Fatalf("%s: %q, expected a number of lines above 0 and a file", longLines, line)
		}
		listed[name] = n
	}
	return listed
}

func writeLongLines(t *testing.T, listed map[string]int) {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		fmt.Fprintf(&b, "%d %s\n", listed[name], name)
	}
	if err := os.WriteFile(longLines, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tooLong lists the numbers of the lines that have too many columns, those left out
// that hold a long string literal.
func tooLong(text []byte) (numbers []int) {
	whole := linesWithLongText(text)
	for i, line := range bytes.Split(text, []byte("\n")) {
		if columns(line) > maxColumns && !whole[i+1] {
			numbers = append(numbers, i+1)
		}
	}
	return numbers
}

func columns(line []byte) int {
	return utf8.RuneCount(line) + (tabColumns-1)*bytes.Count(line, []byte("\t"))
}

// linesWithLongText says which lines hold a string literal of at least longText
// columns, or part of one that spans lines.
func linesWithLongText(text []byte) map[int]bool {
	fset := token.NewFileSet()
	file := fset.AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, literal := s.Scan()
		if tok == token.EOF {
			return lines
		}
		first, last := file.Line(pos), file.Line(pos+token.Pos(len(literal)))
		if tok == token.STRING && (first != last || columns([]byte(literal)) >= longText) {
			for i := first; i <= last; i++ {
				lines[i] = true
			}
		}
	}
}

func TestTooLong(t *testing.T) {
	pad := func(n int) string { return strings.Repeat("x", n) }
	for name, c := range map[string]struct {
		line string
		long bool
	}{
		"fits":                  {"var a = " + pad(112), false},
		"one column more":       {"var a = " + pad(113), true},
		"a tab is four columns": {"\t" + pad(117), true},
		"a character is one":    {"// " + strings.Repeat("é", 117), false},
		"a long text":           {`var a = f("` + pad(78) + `", ` + pad(50) + ")", false},
		"a text that fits":      {`var a = f("` + pad(77) + `", ` + pad(50) + ")", true},
		"within a raw text":     {"var a = `\n" + pad(130) + "`", false},
	} {
		if got := len(tooLong([]byte("package p\n\n"+c.line+"\n"))) > 0; got != c.long {
			t.Errorf("%s: too long is %v", name, got)
		}
	}
}
