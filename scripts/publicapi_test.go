package scripts

import (
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
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
