// Package yamlerr words the errors of YAML files in one line, in terms of the file instead of the program's types.
package yamlerr

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// In returns an error that names file, line and key: "a.yaml:3: rate: "fast" is not a number". For errors of other
// sources than the YAML library it adds only the file.
func In(file string, err error) error {
	if err == nil {
		return nil
	}
	var e yaml.Error
	if !errors.As(err, &e) || e.GetToken() == nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	at := e.GetToken()
	key := keyOf(at)
	var (
		text    string
		wrong   *yaml.TypeError
		large   *yaml.OverflowError
		unknown *yaml.UnknownFieldError
		node    *yaml.UnexpectedNodeTypeError
	)
	switch {
	case errors.As(err, &wrong):
		text = key + fmt.Sprintf("%.60q is not %s", at.Value, kind(wrong.DstType))
		if src := wrong.SrcType; src != nil && (src.Kind() == reflect.Map || src.Kind() == reflect.Slice) {
			text = key + "expected " + kind(wrong.DstType)
		}
	case errors.As(err, &large):
		text = key + fmt.Sprintf("%q is not %s of this size", large.SrcNum, kind(large.DstType))
	case errors.As(err, &unknown):
		text = fmt.Sprintf("unknown key %.60q", at.Value)
	case errors.As(err, &node):
		text = key + fmt.Sprintf("%.60q is not %s", at.Value, nodeKinds[node.Expected])
	default:
		text, _, _ = strings.Cut(e.GetMessage(), "\n")
		text = goTypes.ReplaceAllString(text, "")
		if strings.Contains(text, "'\t' that cannot start") {
			text = "a tab begins the line or a value: YAML indents with spaces"
		}
	}
	return fmt.Errorf("%s:%d: %s", file, at.Position.Line, text)
}

var nodeKinds = map[ast.NodeType]string{ast.MappingType: "a block of keys and values", ast.SequenceType: "a list",
	ast.StringType: "a text", ast.IntegerType: "a whole number", ast.FloatType: "a number",
	ast.BoolType: "true or false"}

// goTypes matches Go types in the messages of the library.
var goTypes = regexp.MustCompile(`(of type |into Go struct field |Go value of type )\S+ ?`)

// Pairs returns the keys and values of a mapping; false for other nodes.
func Pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// keyOf returns the key of a value, with ": ", or "" if it is unknown.
func keyOf(value *token.Token) string {
	colon := value.Prev
	if colon != nil && colon.Type == token.MappingValueType && colon.Prev != nil {
		return colon.Prev.Value + ": "
	}
	return ""
}

// kind describes the values of a type for people.
func kind(t reflect.Type) string {
	if t == nil {
		return "what is expected here"
	}
	switch k := t.Kind(); {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 500ms or 1m30s"
	case k == reflect.Bool:
		return "true or false"
	case reflect.Int <= k && k <= reflect.Int64:
		return "a whole number"
	case reflect.Uint <= k && k <= reflect.Uint64:
		return "a whole number >= 0"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.String:
		return "a text"
	case k == reflect.Slice || k == reflect.Array:
		return "a list"
	case k == reflect.Pointer:
		return kind(t.Elem())
	}
	return "a block of keys and values"
}
