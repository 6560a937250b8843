package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"lorasim/internal/suggest"
	"lorasim/internal/yamlerr"
	"lorasim/sim/profile"
)

// Load reads a scenario file on top of the defaults. Relative paths in it are
// those from the file's folder.
func Load(file string) (Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Scenario{}, err
	}
	sc, err := Parse(data, file)
	sc.MapPaths(In(filepath.Dir(file)))
	return sc, err
}

// Parse reads a scenario from YAML on top of the defaults; file names it in
// errors, which say line and key. Unknown keys are errors that name the nearest
// known one. Of a sweep it takes the scenario that the sweep varies.
func Parse(data []byte, file string) (Scenario, error) {
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return Default(), yamlerr.In(file, err)
	}
	if len(f.Docs) > 1 {
		return Default(), fmt.Errorf("%s: %d documents, expected one", file, len(f.Docs))
	}
	if len(f.Docs) == 0 || f.Docs[0].Body == nil {
		return Default(), nil
	}
	root := f.Docs[0].Body
	pairs, _ := yamlerr.Pairs(root)
	if i := slices.IndexFunc(pairs, func(p *ast.MappingValueNode) bool { return p.Key.String() == "scenario" }); i >= 0 {
		root = pairs[i].Value
	}
	return ParseNode(root, file)
}

// ParseNode reads a scenario that is part of a YAML file, as Parse does.
func ParseNode(node ast.Node, file string) (Scenario, error) {
	r := nodeReader{scenario: Default(), anchors: map[string]ast.Node{}}
	if err := r.section(node, ""); err != nil {
		return r.scenario, fmt.Errorf("%s:%w", file, err)
	}
	return r.scenario, nil
}

// YAML returns the whole scenario as a file that Parse reads back.
func (s *Scenario) YAML() ([]byte, error) { return yaml.MarshalWithOptions(s, yaml.Indent(2)) }

// nodeReader sets what the nodes of a file say. Its errors begin with the line.
type nodeReader struct {
	scenario Scenario
	anchors  map[string]ast.Node
}

// section reads the keys of a section, "" or with a dot at its end.
func (r *nodeReader) section(node ast.Node, prefix string) error {
	node, err := r.resolve(node)
	if err != nil || node.Type() == ast.NullType {
		return err
	}
	pairs, ok := yamlerr.Pairs(node)
	if !ok {
		where := ""
		if prefix != "" {
			where = strings.TrimSuffix(prefix, ".") + ": "
		}
		return fmt.Errorf("%d: %sexpected keys and values", node.GetToken().Position.Line, where)
	}
	for _, p := range pairs { // the parser refuses keys that are given twice
		key, line := prefix+p.Key.String(), p.Key.GetToken().Position.Line
		if slices.ContainsFunc(fields, func(f Field) bool { return f.Section == key }) {
			if err := r.section(p.Value, key+"."); err != nil {
				return err
			}
			continue
		}
		f, err := findKey(key, prefix)
		if err != nil {
			return fmt.Errorf("%d: %w", line, err)
		}
		text, given, err := r.value(f, p.Value)
		if err != nil {
			return fmt.Errorf("%d: %s: %w", line, key, err)
		}
		if given {
			if err := f.Set(&r.scenario, text); err != nil {
				return fmt.Errorf("%d: %w", line, err)
			}
		}
	}
	return nil
}

// findKey returns the setting of a key of the section with the prefix.
func findKey(key, prefix string) (Field, error) {
	var known []string
	for _, f := range fields {
		if f.Key == key {
			return f, nil
		}
		if rest, ok := strings.CutPrefix(f.Key, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			known = append(known, name)
		}
	}
	name := strings.TrimPrefix(key, prefix)
	if name == "starvation_s" {
		return Field{}, fmt.Errorf("unknown key %q: it is lora_drain_wait_threshold now, off by default as in sglang", key)
	}
	if f, err := Find(name); err == nil {
		return f, fmt.Errorf("unknown key %q, did you mean %q?", key, f.Key)
	}
	return Field{}, suggest.Unknown("key", name, slices.Compact(known))
}

// value is a node's value in the form of a flag; without one the default stays.
func (r *nodeReader) value(f Field, node ast.Node) (text string, given bool, err error) {
	if node, err = r.resolve(node); err != nil {
		return "", false, err
	}
	switch n := node.(type) {
	case *ast.NullNode:
		return "", false, nil
	case *ast.IntegerNode:
		if f.Type() == "string" {
			return n.GetToken().Value, true, nil
		}
		return fmt.Sprint(n.Value), true, nil // also 0x10 and 1_000
	case *ast.InfinityNode:
		return formatFloat(n.Value), true, nil
	case *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true, nil
	case ast.ScalarNode:
		return fmt.Sprint(n.GetValue()), true, nil
	case *ast.SequenceNode:
		if f.Type() != "floats" {
			return "", false, errors.New("a list, expected one value")
		}
		parts := make([]string, len(n.Values))
		for i, e := range n.Values {
			if parts[i], _, err = r.value(Field{kind: f.kind.Elem()}, e); err != nil {
				return "", false, err
			}
		}
		return strings.Join(parts, ","), true, nil
	}
	return "", false, errors.New("keys and values, expected one value")
}

// resolve looks through anchors, aliases and tags.
func (r *nodeReader) resolve(node ast.Node) (ast.Node, error) {
	for range 10 {
		switch n := node.(type) {
		case *ast.AnchorNode:
			r.anchors[n.Name.String()] = n.Value
			node = n.Value
		case *ast.TagNode:
			node = n.Value
		case *ast.AliasNode:
			if node = r.anchors[n.Value.String()]; node == nil {
				return nil, fmt.Errorf("%d: unknown alias *%s", n.GetToken().Position.Line, n.Value)
			}
		default:
			return node, nil
		}
	}
	return nil, fmt.Errorf("%d: aliases within aliases", node.GetToken().Position.Line)
}

// pathsIn replaces the names of files within the values of those settings that
// have any.
var pathsIn = map[string]func(value string, f func(string) string) string{
	"workload.file":            pathBetween("", ""),
	"workload.trace_path":      pathBetween("", ""),
	"workload.trace_histogram": pathBetween("", ".json"),
	"workload.lengths":         pathBetween("table:", ""),
	"cluster.profile": func(value string, f func(string) string) string {
		entries, err := parseProfiles(value)
		if err != nil {
			return value // whoever loads them says what is wrong
		}
		names := make([]string, len(entries))
		for i, e := range entries {
			if isProfileFile(e.name, f) {
				e.name = f(e.name)
			}
			names[i] = e.String()
		}
		return strings.Join(names, ",")
	},
	"routing.policy": func(value string, f func(string) string) string {
		text, ok := strings.CutPrefix(value, "explicit:")
		if !ok {
			return value
		}
		options := strings.Split(text, ",")
		for i, o := range options {
			if file, ok := strings.CutPrefix(o, "file="); ok {
				options[i] = "file=" + f(file)
			}
		}
		return "explicit:" + strings.Join(options, ",")
	},
}

// pathBetween is a path after a prefix, ending in a suffix.
func pathBetween(prefix, suffix string) func(value string, f func(string) string) string {
	return func(value string, f func(string) string) string {
		path, ok := strings.CutPrefix(value, prefix)
		if !ok || path == "" || !strings.HasSuffix(path, suffix) {
			return value
		}
		return prefix + f(path)
	}
}

// isProfileFile says whether a profile is a file and not a built-in one, nor a
// name that is neither, which is left for the error message to show.
func isProfileFile(name string, f func(string) string) bool {
	if name == "" || slices.Contains(profile.Names(), name) || strings.HasPrefix(name, profile.AnalyticPrefix) {
		return false
	}
	if strings.ContainsAny(name, `./\`) {
		return true
	}
	_, err := os.Stat(f(name))
	return err == nil
}

// MapPaths replaces the name of every file that the scenario reads by f of it.
func (s *Scenario) MapPaths(f func(path string) string) {
	for _, field := range fields {
		if replace, ok := pathsIn[field.Key]; ok {
			v := field.of(s)
			v.SetString(replace(v.String(), f))
		}
	}
}

// MapPaths replaces the names of files within a value of the setting by those
// that path gives; values of settings that name none stay as they are.
func (f Field) MapPaths(value string, path func(string) string) string {
	if replace, ok := pathsIn[f.Key]; ok {
		value = replace(value, path)
	}
	return value
}

// In returns a function for MapPaths that resolves relative paths against a
// folder.
func In(folder string) func(string) string {
	return func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(folder, path)
	}
}

// AbsolutePaths makes the scenario independent of the working directory.
func (s *Scenario) AbsolutePaths() (failed error) {
	s.MapPaths(func(path string) string {
		abs, err := filepath.Abs(path)
		if err != nil {
			failed = err
			return path
		}
		return abs
	})
	return failed
}
