package scripts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// obscure are phrases of messages that have a plain replacement, beyond those of the documentation.
var obscure = regexp.MustCompile(`(?i)\b(stands? for|tells? no|does not tell|leaves? no room|is no (?:whole )?number|` +
	`is about to leave|as they should be)\b`)

// indented lines of a help text are commands, those of a comment code.
var indented = regexp.MustCompile(`(?m)^(?:  |\t).*$`)

// TestPlainMessages holds the texts in Go code to short sentences without unclear phrases: string literals, of which
// messages, help and labels consist, and doc comments of exported names.
func TestPlainMessages(t *testing.T) {
	texts := 0
	check := func(where token.Position, text string) {
		texts++
		for _, phrases := range []*regexp.Regexp{unclear, obscure} {
			for _, phrase := range phrases.FindAllString(text, -1) {
				t.Errorf("%v: %q: name what is meant: %s", where, phrase, text)
			}
		}
		for _, p := range paragraphsOf(text) {
			for _, s := range clause.Split(p, -1) {
				if n := len(strings.Fields(s)); n > longestSentence {
					t.Errorf("%v: a sentence of %d words, at most %d are allowed: %s", where, n, longestSentence, s)
				}
			}
		}
	}
	for _, folder := range []string{"internal", "trace", "ilp", "router", "sim", "bench", "cmd"} {
		err := filepath.WalkDir("../"+folder, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if text, ok := literal(n); ok && len(strings.Fields(text)) > 2 && !isList(text) {
					check(files.Position(n.Pos()), indented.ReplaceAllString(text, ""))
				}
				return true
			})
			eachDoc(file, func(c *ast.CommentGroup) {
				check(files.Position(c.Pos()), indented.ReplaceAllString(c.Text(), ""))
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if texts < 1500 {
		t.Errorf("%d texts found, expected about 2000", texts)
	}
}

// literal returns the value of a string literal.
func literal(n ast.Node) (string, bool) {
	lit, ok := n.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// isList says whether a text is no prose: words without any punctuation, such as the names of fields, or the tags of a
// field.
func isList(text string) bool {
	return !strings.ContainsAny(text, ".,:;") || strings.Contains(text, `:"`) || strings.Contains(text, "{{")
}

// eachDoc calls do for the comment of a file's package, and for those of its exported declarations with their fields.
func eachDoc(file *ast.File, do func(*ast.CommentGroup)) {
	exported := func(c *ast.CommentGroup, names ...*ast.Ident) {
		if c != nil && slices.ContainsFunc(names, (*ast.Ident).IsExported) {
			do(c)
		}
	}
	if file.Doc != nil {
		do(file.Doc)
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			exported(d.Doc, d.Name)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					exported(d.Doc, s.Name)
					if t, ok := s.Type.(*ast.StructType); ok && s.Name.IsExported() {
						for _, f := range t.Fields.List {
							exported(f.Doc, f.Names...)
							exported(f.Comment, f.Names...)
						}
					}
				case *ast.ValueSpec:
					exported(d.Doc, s.Names...)
					exported(s.Doc, s.Names...)
				}
			}
		}
	}
}
