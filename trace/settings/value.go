package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"lorasim/internal/yamlerr"
)

// An Optional is a number that may be left out. The zero value is not given; 0 is a value like others.
type Optional[T int | int64] struct {
	Value T // 0 if it is not given
	Given bool
}

// Some returns a number that is given.
func Some[T int | int64](v T) Optional[T] { return Optional[T]{v, true} }

// Or returns the number, or another one if it is not given.
func (o Optional[T]) Or(other T) T {
	if o.Given {
		return o.Value
	}
	return other
}

// String returns the number; "": it is not given.
func (o Optional[T]) String() string {
	if !o.Given {
		return ""
	}
	return fmt.Sprint(o.Value)
}

// IsZero reports that the number is not given. YAML leaves it out.
func (o Optional[T]) IsZero() bool { return !o.Given }

// MarshalYAML returns the number.
func (o Optional[T]) MarshalYAML() (any, error) { return o.Value, nil }

func (o *Optional[T]) optional() (value reflect.Value, given *bool) {
	return reflect.ValueOf(&o.Value).Elem(), &o.Given
}

// maybe is a pointer to an [Optional].
type maybe interface {
	optional() (value reflect.Value, given *bool)
}

var maybeType = reflect.TypeFor[maybe]()

// A Syntax is how users write a value of type T as a text.
type Syntax[T any] interface {
	Parse(text string) (T, error)
	Grammar() Grammar
}

// A Parsed is a value that users write as a text. The text is parsed once, when the value is set, so that code that
// has a Parsed has a valid value. The zero value is not given.
type Parsed[T any, S Syntax[T]] struct {
	text  string
	value T
}

// Value returns what the text means; the zero value of T if no text is given.
func (p Parsed[T, S]) Value() T { return p.value }

// String returns the text; "": it is not given.
func (p Parsed[T, S]) String() string { return p.text }

// Given reports whether there is a value.
func (p Parsed[T, S]) Given() bool { return p.text != "" }

// Equal reports whether two values have the same text.
func (p Parsed[T, S]) Equal(other Parsed[T, S]) bool { return p.text == other.text }

// Grammar describes the texts.
func (p Parsed[T, S]) Grammar() Grammar {
	var s S
	return s.Grammar()
}

// MarshalText implements encoding.TextMarshaler.
func (p Parsed[T, S]) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// With returns the value of a text.
func (p Parsed[T, S]) With(text string) (Parsed[T, S], error) {
	var s S
	if canonical := s.Grammar().Canonical; canonical != nil {
		text = canonical(text)
	}
	v, err := s.Parse(text)
	if err != nil {
		return p, err
	}
	return Parsed[T, S]{text, v}, nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It leaves the value as it is if the text is wrong.
func (p *Parsed[T, S]) UnmarshalText(text []byte) (err error) {
	*p, err = p.With(string(text))
	return err
}

// A Grammar describes the texts of a [Syntax] to YAML, JSON Schema, reference and completion. In YAML, a setting with
// forms may also be a mapping, and one with Joined a list: it becomes the text of the same meaning.
type Grammar struct {
	Forms   func() []Form // of a mapping; nil: no mapping
	Joined  string        // joins the texts of a list, "+" or ","; "": no list
	Example string        // a text, for the reference
	// Suggest lists beginnings of texts, for completion; a tab precedes a description. nil: none.
	Suggest func(typed string) []string
	// Canonical returns how a text is kept; nil: as it is written.
	Canonical func(text string) string
	// Paths replaces the file names within a text; nil: those of the forms.
	Paths func(text string, to func(path string) string) string
}

// forms returns the forms of a mapping.
func (g *Grammar) forms() []Form {
	if g.Forms == nil {
		return nil
	}
	return g.Forms()
}

// Nests reports whether a value may be a mapping or a list in YAML.
func (g *Grammar) Nests() bool { return g.Forms != nil || g.Joined != "" }

// mapPaths replaces the file names within a text.
func (g *Grammar) MapPaths(text string, to func(path string) string) string {
	if g.Paths != nil {
		return g.Paths(text, to)
	}
	return mapPaths(g.forms(), text, to)
}

// text returns the short form of a YAML node: a single value as it is, a mapping or list as the text with the same
// meaning. ok is false if there is no value.
func (g *Grammar) text(node ast.Node, anchors *Anchors) (text string, ok bool, err error) {
	if node, err = anchors.Resolve(node); err != nil {
		return "", false, err
	}
	if list, is := node.(*ast.SequenceNode); is && g.Joined != "" {
		return g.list(list, anchors)
	}
	if _, is := yamlerr.Pairs(node); is && g.Forms != nil {
		text, err = fromYAML(node, anchors, g.Forms())
		return text, err == nil, err
	}
	text, ok, err = scalar(node, anchors)
	if n, is := node.(*ast.IntegerNode); is {
		text = n.GetToken().Value // 0x10 is a name
	}
	return text, ok, err
}

func (g *Grammar) list(list *ast.SequenceNode, anchors *Anchors) (text string, ok bool, err error) {
	if len(list.Values) == 0 {
		return "", false, errors.New("an empty list")
	}
	one := Grammar{Forms: g.Forms}
	parts := make([]string, len(list.Values))
	for i, n := range list.Values {
		parts[i], ok, err = one.text(n, anchors)
		switch {
		case err != nil:
			return "", false, At(n.GetToken().Position.Line, "", err)
		case !ok:
			return "", false, fmt.Errorf("value %d of the list is missing", i+1)
		case strings.Contains(parts[i], g.Joined):
			return "", false, fmt.Errorf("%q holds a %q, which joins the values of the list", parts[i], g.Joined)
		}
	}
	return strings.Join(parts, g.Joined), true, nil
}

// schema is the JSON Schema of a value that may be a mapping or a list.
func (g *Grammar) schema() []any {
	one := schemaOf(g.forms())
	if g.Joined == "" {
		return one
	}
	list := map[string]any{"type": "array", "minItems": 1, "items": map[string]any{"anyOf": one}}
	return append(slices.Clone(one), list)
}

// grammarOf returns the grammar of a [Parsed] type, nil for other types.
func grammarOf(t reflect.Type) *Grammar {
	if p, ok := reflect.Zero(t).Interface().(interface{ Grammar() Grammar }); ok {
		g := p.Grammar()
		return &g
	}
	return nil
}
