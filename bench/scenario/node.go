package scenario

import (
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// ParseNode reads a scenario that is part of a YAML file, on top of the
// defaults. Unknown keys are errors.
func ParseNode(node ast.Node) (Scenario, error) {
	sc := Default()
	if err := checkKeys(node, ""); err != nil {
		return sc, fmt.Errorf("scenario: line %w", err)
	}
	if err := yaml.NodeToValue(node, &sc, yaml.Strict()); err != nil {
		return sc, fmt.Errorf("scenario: %s", yaml.FormatError(err, false, true))
	}
	return sc, nil
}

// Set changes the setting in a scenario to a value in the form of a flag, as
// [Scenario.Set] does by name.
func (f Field) Set(s *Scenario, value string) error {
	if err := f.set(s, value); err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return nil
}
