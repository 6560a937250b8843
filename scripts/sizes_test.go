package scripts

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The most methods and fields of a type of the simulator. One that has more does the work of several.
const (
	maxMethods = 60
	maxFields  = 30
)

// configurations are types whose fields are what users can set.
var configurations = map[string]bool{"sim/profile.Engine": true}

// parts are types that no other may embed: a type that does has all their methods.
var parts = []string{"Engine", "Scheduler", "Manager", "Pool", "Loop"}

// typeSize is what a type declares itself; what it embeds is one field.
type typeSize struct{ methods, fields int }

// TestTypeSizes counts methods and fields of every type below sim over the syntax trees.
func TestTypeSizes(t *testing.T) {
	types := map[string]*typeSize{}
	of := func(dir, name string) *typeSize {
		key := dir + "." + name
		if types[key] == nil {
			types[key] = &typeSize{}
		}
		return types[key]
	}
	err := filepath.WalkDir("../sim", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(path), "../"))
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv != nil {
					of(dir, bareName(n.Recv.List[0].Type)).methods++
				}
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok {
					countFields(t, of(dir, n.Name.Name), s, fmt.Sprintf("%s.%s", dir, n.Name.Name))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range types {
		if s.methods > maxMethods {
			t.Errorf("%s has %d methods, expected at most %d", name, s.methods, maxMethods)
		}
		if s.fields > maxFields && !configurations[name] {
			t.Errorf("%s has %d fields, expected at most %d", name, s.fields, maxFields)
		}
	}
	if e := types["sim/engine.Engine"]; e == nil || e.methods < 20 || e.fields < 15 {
		t.Errorf("sim/engine.Engine is counted as %+v, expected tens of methods and fields", e)
	}
}

// countFields counts the fields of a struct, and finds parts that it embeds.
func countFields(t *testing.T, s *typeSize, st *ast.StructType, name string) {
	for _, f := range st.Fields.List {
		s.fields += max(len(f.Names), 1)
		if len(f.Names) > 0 {
			continue
		}
		for _, p := range parts {
			if bareName(f.Type) == p {
				t.Errorf("%s embeds %s, expected a field with a name", name, p)
			}
		}
	}
}

// TestKindsOfEngines: what sglang or vLLM alone does is in their schedulers' packages. Shared code asks no engine of
// which kind it is; the cluster does once, where it makes one.
func TestKindsOfEngines(t *testing.T) {
	names := []string{"SchedulerSGLang", "SchedulerVLLM", "SchedulerSLoRA", "BackendMerged", "BackendDLoRA"}
	files := 0
	for _, dir := range []string{"engine", "kvcache", "lora", "event", "."} {
		paths, err := filepath.Glob(filepath.Join("../sim", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			files++
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			ast.Inspect(file, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && slices.Contains(names, s.Sel.Name) {
					found++
				}
				return true
			})
			if allowed := 2 * strings.Count(filepath.ToSlash(path), "sim/worker.go"); found > allowed {
				t.Errorf("%s asks %d times for the kind of an engine, expected %d", path, found, allowed)
			}
		}
	}
	if files < 20 {
		t.Errorf("%d files read, expected tens", files)
	}
}
