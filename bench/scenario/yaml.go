package scenario

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"lorasim/internal/suggest"
)

// Load reads a scenario file on top of the defaults.
func Load(file string) (Scenario, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Scenario{}, fmt.Errorf("scenario: %w", err)
	}
	return Parse(data, file)
}

// Parse reads a scenario from YAML on top of the defaults; where names it in
// errors. Unknown keys are errors that name the nearest known one. Of a sweep it
// takes the scenario that the sweep varies.
func Parse(data []byte, where string) (Scenario, error) {
	sc := Default()
	f, err := parser.ParseBytes(data, 0)
	if err != nil {
		return sc, fmt.Errorf("scenario %s: %s", where, yaml.FormatError(err, false, true))
	}
	if len(f.Docs) > 1 {
		return sc, fmt.Errorf("scenario %s: %d documents, expected one", where, len(f.Docs))
	}
	if len(f.Docs) == 1 && f.Docs[0].Body != nil {
		if part := scenarioPart(f.Docs[0].Body); part != nil {
			if sc, err = ParseNode(part); err != nil {
				return sc, fmt.Errorf("%s: %w", where, err)
			}
			return sc, nil
		}
		if err := checkKeys(f.Docs[0].Body, ""); err != nil {
			return sc, fmt.Errorf("scenario %s:%w", where, err)
		}
		if err := yaml.UnmarshalWithOptions(data, &sc, yaml.Strict()); err != nil {
			return sc, fmt.Errorf("scenario %s: %s", where, yaml.FormatError(err, false, true))
		}
	}
	return sc, nil
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

// checkKeys finds keys that no setting has; the error begins with the line.
func checkKeys(node ast.Node, prefix string) error {
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		if prefix == "" {
			return errors.New(" expected keys and values")
		}
		return nil
	}
	for _, p := range pairs {
		key := prefix + p.Key.String()
		line := p.Key.GetToken().Position.Line
		isSection, isField := false, false
		var known []string
		for _, f := range Fields() {
			isField = isField || f.Key == key
			isSection = isSection || f.Section == key
			if rest, ok := strings.CutPrefix(f.Key, prefix); ok {
				name, _, _ := strings.Cut(rest, ".")
				if len(known) == 0 || known[len(known)-1] != name {
					known = append(known, name)
				}
			}
		}
		switch {
		case isSection:
			if err := checkKeys(p.Value, key+"."); err != nil {
				return err
			}
		case !isField:
			if f, err := Find(p.Key.String()); err == nil {
				return fmt.Errorf("%d: unknown key %q, did you mean %q?", line, key, f.Key)
			}
			return fmt.Errorf("%d: %w", line, suggest.Unknown("key", p.Key.String(), known))
		}
	}
	return nil
}

// YAML returns the whole scenario as a file that Parse reads back.
func (s *Scenario) YAML() ([]byte, error) {
	return yaml.MarshalWithOptions(s, yaml.Indent(2))
}
