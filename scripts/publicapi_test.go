package scripts

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoInternalTypesInPublicAPI looks at what the packages outside of internal export: a program outside of the
// repository can name every type in it.
func TestNoInternalTypesInPublicAPI(t *testing.T) {
	compiled := map[string]string{} // export data by import path
	for _, line := range goList(t, "-export", "-deps", "{{.ImportPath}} {{.Export}}") {
		path, file, _ := strings.Cut(line, " ")
		compiled[path] = file
	}
	read := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(compiled[path])
	})
	seen := 0
	for _, path := range goList(t, `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`) {
		if isInternal(path) || strings.HasPrefix(path, "lorasim/scripts") {
			continue
		}
		pkg, err := read.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		w := walker{seen: map[types.Type]bool{}}
		for _, name := range pkg.Scope().Names() {
			if obj := pkg.Scope().Lookup(name); obj.Exported() {
				seen++
				w.object(path+"."+name, obj)
			}
		}
		for _, what := range w.internal {
			t.Error(what)
		}
	}
	if seen < 500 {
		t.Errorf("%d exported names, expected hundreds", seen)
	}
}

func isInternal(path string) bool {
	return strings.HasPrefix(path, "lorasim/") && slices.Contains(strings.Split(path, "/"), "internal")
}

// walker looks for types of internal packages.
type walker struct {
	seen     map[types.Type]bool
	internal []string
}

// object looks at an exported name: its type and, where it is one, fields and methods.
func (w *walker) object(where string, obj types.Object) {
	named, ok := obj.Type().(*types.Named)
	if _, is := obj.(*types.TypeName); !is || !ok {
		w.typ(where, obj.Type())
		return
	}
	w.typ(where, named.Underlying())
	for m := range named.Methods() {
		if m.Exported() {
			w.typ(where+"."+m.Name(), m.Type())
		}
	}
}

// typ looks at a type and at those that it is made of, as far as they are exported.
func (w *walker) typ(where string, t types.Type) {
	t = types.Unalias(t)
	if n, ok := t.(*types.Named); ok {
		if pkg := n.Obj().Pkg(); pkg != nil && isInternal(pkg.Path()) {
			w.internal = append(w.internal, fmt.Sprintf("%s has the type %s.%s", where, pkg.Path(), n.Obj().Name()))
		}
		for arg := range n.TypeArgs().Types() {
			w.typ(where, arg)
		}
		return
	}
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case interface{ Elem() types.Type }: // pointers, slices, arrays, maps, channels
		w.typ(where, t.Elem())
		if m, ok := t.(*types.Map); ok {
			w.typ(where, m.Key())
		}
	case *types.Signature:
		for v := range t.Params().Variables() {
			w.typ(where, v.Type())
		}
		for v := range t.Results().Variables() {
			w.typ(where, v.Type())
		}
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				w.typ(where+"."+f.Name(), f.Type())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				w.typ(where+"."+m.Name(), m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			w.typ(where, e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.typ(where, term.Type())
		}
	}
}

// homeNames is the number of exported names that only their own package uses, and may only shrink. It counts neither
// names in internal and main packages nor methods and fields. What remains is on purpose: the constants of a type
// whose other constants are used, options of generators, errors that a caller may look for.
const homeNames = 118

// TestExportedNames counts the exported names that no other package uses, by the syntax of all Go files, those of the
// lab included. An unexported name tells a reader that its uses are near.
func TestExportedNames(t *testing.T) {
	declared, used := map[string]bool{}, map[string]bool{} // by folder and name: sim.Run
	err := filepath.WalkDir("..", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(file)), "../")
		if top, _, _ := strings.Cut(dir, "/"); slices.Contains(floors, top) && !isInternal("lorasim/"+dir) &&
			f.Name.Name != "main" && !strings.HasSuffix(file, "_test.go") {
			for _, name := range exportedNames(f) {
				declared[dir+"."+name] = true
			}
		}
		noteUses(f, dir, used)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var home []string
	for name := range declared {
		if !used[name] {
			home = append(home, name)
		}
	}
	slices.Sort(home)
	if len(declared) < 1000 || len(home) > homeNames {
		t.Errorf("%d of %d exported names are used by their own package alone, expected at most %d: unexport "+
			"them\n%s", len(home), len(declared), homeNames, strings.Join(home, "\n"))
	}
}

// exportedNames returns the functions, types, constants and variables that a file exports.
func exportedNames(f *ast.File) (names []string) {
	var ids []*ast.Ident
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				ids = append(ids, d.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					ids = append(ids, s.Name)
				case *ast.ValueSpec:
					ids = append(ids, s.Names...)
				}
			}
		}
	}
	for _, id := range ids {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	return names
}

// noteUses notes the names of other packages that a file uses, and those that appear in exported declarations of its
// own: a program meets such a type without naming it.
func noteUses(f *ast.File, dir string, used map[string]bool) {
	folders := map[string]string{} // by the name of the import
	for _, i := range f.Imports {
		to, ok := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), "lorasim/")
		if !ok || to == dir {
			continue
		}
		name := path.Base(to)
		if i.Name != nil {
			name = i.Name.Name
		}
		folders[name] = to
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && folders[x.Name] != "" {
				used[folders[x.Name]+"."+s.Sel.Name] = true
			}
		}
		return true
	})
	shown := func(typ ast.Node) {
		ast.Inspect(typ, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				used[dir+"."+id.Name] = true
			}
			return true
		})
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				shown(d.Type)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						shown(s.Type)
					}
				case *ast.ValueSpec:
					if s.Type != nil && s.Names[0].IsExported() {
						shown(s.Type)
					}
				}
			}
		}
	}
}
