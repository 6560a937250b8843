package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"lorasim/internal/suggest"
	"lorasim/internal/yamlerr"
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
	if part := scenarioPart(root); part != nil {
		root = part
	}
	return ParseNode(root, file)
}

// ParseNode reads a scenario that is part of a YAML file, as Parse does.
func ParseNode(node ast.Node, file string) (Scenario, error) {
	r := nodeReader{scenario: Default(), anchors: map[string]ast.Node{}, seen: map[string]bool{}}
	if err := r.section(node, ""); err != nil {
		return r.scenario, fmt.Errorf("%s:%w", file, err)
	}
	return r.scenario, nil
}

// scenarioPart is what a sweep file has under "scenario"; nil in other files.
func scenarioPart(root ast.Node) ast.Node {
	if m, ok := root.(*ast.MappingNode); ok {
		for _, p := range m.Values {
			if p.Key.String() == "scenario" {
				return p.Value
			}
		}
	}
	return nil
}

// nodeReader sets what the nodes of a file say. Its errors begin with the line.
type nodeReader struct {
	scenario Scenario
	anchors  map[string]ast.Node
	seen     map[string]bool
}

func (r *nodeReader) section(node ast.Node, prefix string) error {
	node, err := r.resolve(node)
	if err != nil {
		return err
	}
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return nil
	default:
		return fmt.Errorf("%d: %sexpected keys and values", node.GetToken().Position.Line, named(strings.TrimSuffix(prefix, ".")))
	}
	for _, p := range pairs {
		key, line := prefix+p.Key.String(), p.Key.GetToken().Position.Line
		if r.seen[key] {
			return fmt.Errorf("%d: %q is given twice", line, key)
		}
		r.seen[key] = true
		f, isSection, err := find(key, prefix)
		switch {
		case err != nil:
			return fmt.Errorf("%d: %w", line, err)
		case isSection:
			if err := r.section(p.Value, key+"."); err != nil {
				return err
			}
		default:
			text, given, err := r.value(f, p.Value)
			if err == nil && given {
				err = f.set(&r.scenario, text)
			}
			if err != nil {
				return fmt.Errorf("%d: %s: %w", line, key, err)
			}
		}
	}
	return nil
}

func named(key string) string {
	if key == "" {
		return ""
	}
	return key + ": "
}

// find returns the setting or section of a key.
func find(key, prefix string) (f Field, isSection bool, err error) {
	var known []string
	for _, f := range Fields() {
		switch {
		case f.Key == key:
			return f, false, nil
		case f.Section == key:
			return f, true, nil
		}
		if rest, ok := strings.CutPrefix(f.Key, prefix); ok {
			name, _, _ := strings.Cut(rest, ".")
			if len(known) == 0 || known[len(known)-1] != name {
				known = append(known, name)
			}
		}
	}
	name := strings.TrimPrefix(key, prefix)
	if name == "starvation_s" {
		return f, false, fmt.Errorf("unknown key %q: it is lora_drain_wait_threshold now, off by default as in sglang", key)
	}
	if f, err := Find(name); err == nil {
		return f, false, fmt.Errorf("unknown key %q, did you mean %q?", key, f.Key)
	}
	return f, false, suggest.Unknown("key", name, known)
}

// value is a node's value in the form of a flag; without one the default stays.
func (r *nodeReader) value(f Field, node ast.Node) (text string, given bool, err error) {
	if node, err = r.resolve(node); err != nil {
		return "", false, err
	}
	switch n := node.(type) {
	case *ast.NullNode:
		return "", false, nil
	case *ast.StringNode:
		return n.Value, true, nil
	case *ast.LiteralNode:
		return n.Value.Value, true, nil
	case *ast.IntegerNode:
		if f.Type() == "string" {
			return n.GetToken().Value, true, nil
		}
		return fmt.Sprint(n.Value), true, nil // also 0x10 and 1_000
	case *ast.InfinityNode:
		return formatFloat(n.Value), true, nil
	case *ast.NanNode:
		return "NaN", true, nil
	case *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true, nil
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

// YAML returns the whole scenario as a file that Parse reads back.
func (s *Scenario) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(s, yaml.Indent(2))
}
