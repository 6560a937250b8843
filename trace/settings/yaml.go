package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/suggest"
	"lorasim/internal/yamlerr"
)

// Anchors holds the anchors met so far in a YAML document. The zero value is empty.
type Anchors struct{ nodes map[string]ast.Node }

// Resolve returns the node behind anchors, aliases and tags.
func (a *Anchors) Resolve(node ast.Node) (ast.Node, error) {
	for range 10 {
		switch n := node.(type) {
		case nil:
			return nil, errors.New("no value")
		case *ast.AnchorNode:
			if a.nodes == nil {
				a.nodes = map[string]ast.Node{}
			}
			a.nodes[n.Name.String()] = n.Value
			node = n.Value
		case *ast.TagNode:
			node = n.Value
		case *ast.AliasNode:
			if node = a.nodes[n.Value.String()]; node == nil {
				return nil, &LineError{n.GetToken().Position.Line, "", fmt.Errorf("unknown alias *%s", n.Value)}
			}
		default:
			return node, nil
		}
	}
	return nil, errors.New("aliases within aliases")
}

// A LineError is an error at a line of a YAML file.
type LineError struct {
	Line int
	Key  string // key within the node, such as "elastic.max"; "": the error is about the node itself
	Err  error
}

func (e *LineError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("%d: %s: %v", e.Line, e.Key, e.Err)
}

func (e *LineError) Unwrap() error { return e.Err }

// nameKey is the key of a mapping that holds the name of its form.
const nameKey = "name"

// DecodeYAML sets a struct, as [Decode] does, to the keys and values of a mapping; a null node gives no options. An
// error about a key is a [LineError].
func DecodeYAML(n ast.Node, anchors *Anchors, to any) (Given, error) {
	return decodeYAML(n, anchors, Form{New: func() any { return to }}, to)
}

func decodeYAML(n ast.Node, anchors *Anchors, form Form, to any) (Given, error) {
	pairs, err := pairsOf(n, anchors)
	if err != nil {
		return nil, err
	}
	if err := SetDefaults(form.Preset, to); err != nil {
		return nil, err
	}
	fields := form.Fields()
	var given Given
	for _, p := range pairs {
		key, line := p.Key.String(), p.Key.GetToken().Position.Line
		if key == nameKey && form.Name != "" {
			continue
		}
		text, err := one(fields, key, p.Value, anchors, to)
		if err != nil {
			return nil, at(line, key, err)
		}
		if text != nil {
			given = append(given, Option{key, *text})
		}
	}
	if err := complete(fields, given, form.Preset, to); err != nil {
		return nil, at(n.GetToken().Position.Line, "", err)
	}
	return given, nil
}

// one sets the field of a key and returns its text, nil if there is no value.
func one(fields []Field, key string, value ast.Node, anchors *Anchors, to any) (*string, error) {
	i := slices.IndexFunc(fields, func(f Field) bool { return f.Key == key })
	if i < 0 {
		known := make([]string, len(fields))
		for i, f := range fields {
			known[i] = f.Key
		}
		return nil, suggest.Unknown("key", key, known)
	}
	text, ok, err := fields[i].YAML(value, anchors)
	if err != nil || !ok {
		return nil, err
	}
	if !fields[i].Commas && !fields[i].isList() && strings.Contains(text, ",") {
		return nil, fmt.Errorf("%q holds a comma", suggest.Clip(text)) // the short form could not
	}
	return &text, fields[i].Parse(text, reflect.ValueOf(to).Elem().FieldByIndex(fields[i].index))
}

// at adds line and key to an error that has no line yet; what has one gets the key before its own.
func at(line int, key string, err error) error {
	var e *LineError
	if !errors.As(err, &e) {
		return &LineError{line, key, err}
	}
	return &LineError{e.Line, strings.Trim(key+"."+e.Key, "."), e.Err}
}

// At returns err with a line and a key, for an error within the value of that key.
func At(line int, key string, err error) error { return at(line, key, err) }

func pairsOf(n ast.Node, anchors *Anchors) ([]*ast.MappingValueNode, error) {
	n, err := anchors.Resolve(n)
	if err != nil || n.Type() == ast.NullType {
		return nil, err
	}
	pairs, ok := yamlerr.Pairs(n)
	if !ok {
		return nil, at(n.GetToken().Position.Line, "", errors.New("expected keys and values"))
	}
	return pairs, nil
}

// fromYAML checks a mapping and returns the equal text of one of the forms: {name: hash, c: 2} becomes "hash:c=2".
// Its options keep their order.
func fromYAML(n ast.Node, anchors *Anchors, forms []Form) (string, error) {
	pairs, err := pairsOf(n, anchors)
	if err != nil {
		return "", err
	}
	form := forms[0]
	if form.Name != "" {
		if form, err = named(n, pairs, anchors, forms); err != nil {
			return "", err
		}
	}
	given, err := decodeYAML(n, anchors, form, form.New())
	if err != nil {
		return "", err
	}
	return form.Text(given), nil
}

// named finds the form that a mapping names.
func named(n ast.Node, pairs []*ast.MappingValueNode, anchors *Anchors, forms []Form) (Form, error) {
	names := make([]string, len(forms))
	for i, f := range forms {
		names[i] = f.Name
	}
	for _, p := range pairs {
		if p.Key.String() != nameKey {
			continue
		}
		name, _, err := scalar(p.Value, anchors)
		if err == nil {
			err = suggest.Among("name", name, names)
		}
		if err != nil {
			return Form{}, at(p.Key.GetToken().Position.Line, nameKey, err)
		}
		return forms[slices.Index(names, name)], nil
	}
	return Form{}, at(n.GetToken().Position.Line, "", fmt.Errorf("name is missing, expected one of %s",
		strings.Join(names, ", ")))
}

// YAML returns the text of a field's value: a scalar, a list if the field takes one, or a mapping if the field
// writes it as pairs. ok is false if there is no value.
func (f *Field) YAML(node ast.Node, anchors *Anchors) (text string, ok bool, err error) {
	if f.Grammar != nil {
		return f.Grammar.text(node, anchors)
	}
	if node, err = anchors.Resolve(node); err != nil {
		return "", false, err
	}
	if list, is := node.(*ast.SequenceNode); is && f.isList() {
		return joined(list, ",", anchors)
	}
	if n, is := node.(*ast.IntegerNode); is && (f.Type.Kind() == reflect.String || f.hasParser()) {
		return n.GetToken().Value, true, nil // 0x10 may be a name
	}
	pairs, is := yamlerr.Pairs(node)
	if !is || f.Pairs == nil {
		return scalar(node, anchors)
	}
	parts := make([]string, len(pairs))
	for i, p := range pairs {
		value, err := anchors.Resolve(p.Value)
		if err != nil {
			return "", false, err
		}
		if list, is := value.(*ast.SequenceNode); is {
			text, _, err = joined(list, "+", anchors)
		} else {
			text, _, err = scalar(value, anchors)
		}
		if err != nil {
			return "", false, at(p.Key.GetToken().Position.Line, p.Key.String(), err)
		}
		key, _, _ := scalar(p.Key, anchors)
		parts[i] = key + f.Pairs[0] + text
	}
	return strings.Join(parts, f.Pairs[1]), true, nil
}

func joined(list *ast.SequenceNode, by string, anchors *Anchors) (text string, ok bool, err error) {
	parts := make([]string, len(list.Values))
	for i, n := range list.Values {
		if parts[i], _, err = scalar(n, anchors); err != nil {
			return "", false, err
		}
	}
	return strings.Join(parts, by), true, nil
}

// scalar returns a scalar node as a flag takes it. Numbers stay as written, but 0x10 and 1_000 become 16 and 1000.
// ok is false for null.
func scalar(node ast.Node, anchors *Anchors) (text string, ok bool, err error) {
	if node, err = anchors.Resolve(node); err != nil {
		return "", false, err
	}
	switch n := node.(type) {
	case *ast.NullNode:
		return "", false, nil
	case *ast.IntegerNode:
		return fmt.Sprint(n.Value), true, nil
	case *ast.InfinityNode:
		return Format(n.Value), true, nil
	case *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true, nil
	case ast.ScalarNode:
		return fmt.Sprint(n.GetValue()), true, nil
	case *ast.SequenceNode:
		return "", false, errors.New("a list, expected one value")
	}
	return "", false, errors.New("keys and values, expected one value")
}

// Format formats a number as settings read it: "inf", not "+Inf".
func Format(x float64) string {
	return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64)), "+")
}

// schemaOf returns the JSON Schema of a setting with some forms: a text, or a mapping.
func schemaOf(forms []Form) []any {
	ways := []any{map[string]any{"type": []string{"string", "number"}}}
	for _, f := range forms {
		ways = append(ways, ObjectSchema(f))
	}
	return ways
}

// ObjectSchema returns the JSON Schema of the mapping of one form.
func ObjectSchema(f Form) map[string]any {
	properties := map[string]any{}
	var required []string
	if f.Name != "" {
		properties[nameKey] = map[string]any{"const": f.Name, "description": f.Summary}
		required = append(required, nameKey)
	}
	for _, field := range f.Fields() {
		properties[field.Key] = field.Schema()
		if field.Required {
			required = append(required, field.Key)
		}
	}
	object := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if required != nil {
		object["required"] = required
	}
	return object
}
