package scripts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const architecture = "docs/architecture.md"

// names of the code are what a page of the docs may name of it.
type names struct {
	packages map[string]bool // by their names
	symbols  map[string]bool // "sim.Run", "engine.Engine.Add", "router.View.Index"
	tests    map[string]bool
}

// TestArchitectureNames holds the files, functions, types and tests that docs/architecture.md names against the
// code. Functions are written `package.Function` or `package.Type.Method`.
func TestArchitectureNames(t *testing.T) { holdNames(t, architecture, 100) }

// TestChangePage does the same for docs/change.md.
func TestChangePage(t *testing.T) { holdNames(t, "docs/change.md", 40) }

// holdNames checks that the code has all names on a page. A page with fewer names than least is an error, too.
func holdNames(t *testing.T, file string, least int) {
	text := pageOf(t, file)
	code := namesOf(t)
	var missing, found []string
	note := func(name string, ok bool) {
		if found = append(found, name); !ok {
			missing = append(missing, name)
		}
	}
	roots := strings.Join(floors, "|") + "|scripts|lab|docs|scenarios"
	for _, m := range regexp.MustCompile(`(?:^|[^\w/.-])((?:`+roots+`)/[\w./-]*\w)`).FindAllStringSubmatch(text, -1) {
		_, err := os.Stat(filepath.Join("..", m[1]))
		note(m[1], err == nil)
	}
	for _, m := range regexp.MustCompile(`\b([a-z]\w*)\.\w+(?:\.\w+)?\b`).FindAllStringSubmatch(text, -1) {
		if code.packages[m[1]] && !regexp.MustCompile(`\.(go|md|sh|py|json)$`).MatchString(m[0]) {
			note(m[0], code.symbols[m[0]])
		}
	}
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`).FindAllString(text, -1) {
		note(name, code.tests[name])
	}
	slices.Sort(missing)
	for _, name := range slices.Compact(missing) {
		t.Errorf("%s names %s, which the code does not have", file, name)
	}
	if len(found) < least {
		t.Errorf("%d names found in %s, expected at least %d", len(found), file, least)
	}
}

// TestArchitectureLayers holds the drawings of imports (mermaid flowcharts with the comment "%% imports") against the
// imports: each arrow is one, and each import follows arrows.
func TestArchitectureLayers(t *testing.T) {
	drawing := regexp.MustCompile("(?s)```mermaid\nflowchart [A-Z]+\n *%% imports\n(.*?)```")
	blocks := drawing.FindAllStringSubmatch(page(t), -1)
	if len(blocks) != 3 {
		t.Fatalf("%d drawings of imports in %s, expected 3", len(blocks), architecture)
	}
	all := imports(t)
	for _, b := range blocks {
		folder := map[string]string{} // by the identifier of the node
		for _, m := range regexp.MustCompile(`(\w+)\["([\w/]+)`).FindAllStringSubmatch(b[1], -1) {
			folder[m[1]] = m[2]
		}
		arrows := map[string][]string{}
		for _, m := range regexp.MustCompile(`(?m)^ *(\w+) --> (\w+(?: & \w+)*)$`).FindAllStringSubmatch(b[1], -1) {
			for to := range strings.SplitSeq(m[2], " & ") {
				arrows[folder[m[1]]] = append(arrows[folder[m[1]]], folder[to])
			}
		}
		folders := slices.Sorted(maps.Values(folder))
		imported := map[[2]string]bool{}
		for _, i := range all {
			from, to := folderOf(i[0], folders), folderOf(i[1], folders)
			if from == "" || to == "" || from == to {
				continue
			}
			if imported[[2]string{from, to}] = true; !reaches(arrows, from, to) {
				t.Errorf("%s imports %s, which no arrows of the drawing of %s say", i[0], i[1], folders[0])
			}
		}
		for from, list := range arrows {
			for _, to := range list {
				if !imported[[2]string{from, to}] {
					t.Errorf("an arrow goes from %s to %s, which it does not import", from, to)
				}
			}
		}
	}
}

// folderOf is the innermost of the folders that a package lies in; "": it lies in none.
func folderOf(pkg string, folders []string) (in string) {
	for _, f := range folders {
		if (pkg == f || strings.HasPrefix(pkg, f+"/")) && len(f) > len(in) {
			in = f
		}
	}
	return in
}

// reaches says whether arrows lead from one node to another.
func reaches(arrows map[string][]string, from, to string) bool {
	return from == to || slices.ContainsFunc(arrows[from], func(n string) bool { return reaches(arrows, n, to) })
}

func page(t *testing.T) string { return pageOf(t, architecture) }

// pageOf returns the text of a page.
func pageOf(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// namesOf parses all packages.
func namesOf(t *testing.T) names {
	t.Helper()
	n := names{packages: map[string]bool{}, symbols: map[string]bool{}, tests: map[string]bool{}}
	for _, line := range goList(t, "{{.Dir}}\t{{.Name}}") {
		dir, pkg, _ := strings.Cut(line, "\t")
		n.packages[pkg] = true
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range f.Decls {
				n.add(pkg, d, strings.HasSuffix(file, "_test.go"))
			}
		}
	}
	return n
}

// add notes what a declaration declares.
func (n *names) add(pkg string, d ast.Decl, test bool) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		switch {
		case test:
			n.tests[d.Name.Name] = true
		case d.Recv == nil:
			n.symbols[pkg+"."+d.Name.Name] = true
		default:
			n.symbols[pkg+"."+bareName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.ValueSpec:
				for _, id := range s.Names {
					n.symbols[pkg+"."+id.Name] = true
				}
			case *ast.TypeSpec:
				n.symbols[pkg+"."+s.Name.Name] = true
				for _, member := range members(s.Type) {
					n.symbols[pkg+"."+s.Name.Name+"."+member] = true
				}
			}
		}
	}
}

// members are the fields of a struct, or the methods of an interface.
func members(t ast.Expr) (list []string) {
	var fields *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return nil
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			list = append(list, id.Name)
		}
		if f.Names == nil {
			list = append(list, bareName(f.Type))
		}
	}
	return list
}

// bareName is the name of a type without its package, pointer and parameters.
func bareName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.StarExpr:
		return bareName(t.X)
	case *ast.IndexExpr:
		return bareName(t.X)
	case *ast.IndexListExpr:
		return bareName(t.X)
	case *ast.SelectorExpr:
		return t.Sel.Name
	case *ast.Ident:
		return t.Name
	}
	return ""
}
