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
