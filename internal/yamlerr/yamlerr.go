// Package yamlerr words the errors of YAML files in one line, in terms of the
// file instead of the program.
package yamlerr

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// In returns an error that names file, line and key: "a.yaml:3: rate: "fast" is
// not a number". Errors that are not of the YAML library are named by the file
// alone.
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
	var text string
	var wrong *yaml.TypeError
	var large *yaml.OverflowError
	var unknown *yaml.UnknownFieldError
	var node *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &wrong):
		text = key + fmt.Sprintf("%q is not %s", at.Value, kind(wrong.DstType))
		if block(wrong.SrcType) {
			text = key + "expected " + kind(wrong.DstType)
		}
	case errors.As(err, &large):
		text = key + fmt.Sprintf("%q is not %s of this size", large.SrcNum, kind(large.DstType))
	case errors.As(err, &unknown):
		text = fmt.Sprintf("unknown key %q", at.Value)
	case errors.As(err, &node):
		text = key + fmt.Sprintf("%q is not %s", at.Value, nodeKinds[node.Expected])
	default:
		text, _, _ = strings.Cut(e.GetMessage(), "\n")
		text = goTypes.ReplaceAllString(text, "")
	}
	return fmt.Errorf("%s:%d: %s", file, at.Position.Line, text)
}

var nodeKinds = map[ast.NodeType]string{ast.MappingType: "a block of keys and values", ast.SequenceType: "a list",
	ast.StringType: "a text", ast.IntegerType: "a whole number", ast.FloatType: "a number", ast.BoolType: "true or false"}

// goTypes are places in the library's messages that speak of the program.
var goTypes = regexp.MustCompile(`(of type |into Go struct field |Go value of type )\S+ ?`)

// keyOf is the key that a value belongs to, with ": ", as far as it is told.
func keyOf(value *token.Token) string {
	colon := value.Prev
	if colon != nil && colon.Type == token.MappingValueType && colon.Prev != nil {
		return colon.Prev.Value + ": "
	}
	return ""
}

func block(t reflect.Type) bool {
	return t != nil && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice)
}

// kind is what a value of a type is for people.
func kind(t reflect.Type) string {
	if t == nil {
		return "what is expected here"
	}
	if t.String() == "time.Duration" {
		return "a duration such as 500ms or 1m30s"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number >= 0"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.String:
		return "a text"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Pointer:
		return kind(t.Elem())
	}
	return "a block of keys and values"
}
