// Package settings reads options into structs whose tags describe them: key, default, allowed values, unit and help.
// Flags, YAML, JSON Schema, reference pages and completion use the same tags, and a wrong value gives the same
// message everywhere. [Decode] reads one set of options; [Parse] reads one of several [Kind] values.
//
//	type spill struct {
//		Threshold int    `default:"5" check:">=1" unit:"requests" help:"waiting requests that fill a worker"`
//		Ties      string `default:"random" check:"oneof random first" help:"how to choose among equals"`
//	}
//
//	var o spill
//	given, err := settings.Decode("threshold=4", &o) // o.Threshold is 4, o.Ties is "random"
//
// Tags of a field:
//
//	key       name of the option; default: name of the Go field in lower case; "-": not an option
//	default   value if none is given; without this tag, the zero value
//	check     ">=0 <1": a number within bounds (package bounds); "oneof a b": one of these words; "any" or none: all
//	unit      unit of the value; "-": none
//	help      description for users
//	arg       "1", "2", ...: position in the short form, "on-off:10,5,0"; a list takes all values that follow
//	required  "yes": there is no default
//	words     words allowed in place of a [Number] or a file name
//	path      "yes": the value is the name of a file or folder
//	commas    "yes": the value may hold commas, and ends before the next key
//	pairs     "@ ,": in YAML the value may be a mapping, which is written as KEY@VALUE,KEY@VALUE; a list in it as A+B
//	specs     "+": the value consists of texts of the forms of the enclosing setting, joined by +
//	env       name of a value that the caller provides ([Fill]), in place of the default
//
// Fields are strings, booleans, numbers, [Number], [Optional], []float64, and types with an UnmarshalText method, such
// as [Parsed]. The fields of
// an embedded struct count as fields of the struct. A struct whose fields depend on each other has a method Check,
// see [Checker].
package settings

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
)

// A Field is one option, as described by the tags of a struct field.
type Field struct {
	Key      string
	Default  string // "": the zero value
	Check    string // as in the tag check
	Unit     string
	Help     string
	Arg      int // position in the short form, from 1; 0: by key alone
	Required bool
	Words    []string // words allowed in place of a number or a path
	Path     bool
	Commas   bool
	Pairs    []string // separators of key and value, and of pairs; nil: no mapping
	Specs    string   // separator of texts of the same forms within the value; "": none
	Env      string
	Type     reflect.Type
	Grammar  *Grammar          // of a [Parsed] value; nil: the field has another type
	Tag      reflect.StructTag // all tags, for tags of the struct's own package

	index []int
}

// Fields returns the options of a struct, in order.
func Fields[T any]() []Field { return fieldsOf(reflect.TypeFor[T]()) }

// fieldsOf returns the options of a struct type, or of a pointer to a struct type.
func fieldsOf(t reflect.Type) []Field {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return appendFields(nil, t, nil)
}

func appendFields(fs []Field, t reflect.Type, index []int) []Field {
	for i := range t.NumField() {
		sf := t.Field(i)
		at := append(slices.Clip(index), i)
		if sf.Anonymous && sf.Type.Kind() == reflect.Struct {
			fs = appendFields(fs, sf.Type, at)
		} else if sf.IsExported() && sf.Tag.Get("key") != "-" {
			f := NewField(sf)
			f.index = at
			fs = append(fs, f)
		}
	}
	return fs
}

// NewField returns the option that the tags of a struct field describe.
func NewField(sf reflect.StructField) Field {
	tag := sf.Tag
	f := Field{Key: tag.Get("key"), Default: tag.Get("default"), Check: tag.Get("check"), Unit: tag.Get("unit"),
		Help: tag.Get("help"), Required: tag.Get("required") == "yes", Words: strings.Fields(tag.Get("words")),
		Path: tag.Get("path") == "yes", Commas: tag.Get("commas") == "yes", Env: tag.Get("env"), Type: sf.Type,
		Specs: tag.Get("specs"), Grammar: grammarOf(sf.Type), Tag: tag, index: sf.Index}
	if f.Key == "" {
		f.Key = strings.ToLower(sf.Name)
	}
	f.Arg, _ = strconv.Atoi(tag.Get("arg"))
	if pairs := strings.Fields(tag.Get("pairs")); len(pairs) == 2 {
		f.Pairs = pairs
	}
	return f
}

// A Number is a number, or one of the words that its field allows.
type Number struct {
	Value float64
	Word  string // "": it is a number
}

var (
	numberType = reflect.TypeFor[Number]()
	textType   = reflect.TypeFor[encoding.TextUnmarshaler]()
)

func (f *Field) hasParser() bool { return reflect.PointerTo(f.Type).Implements(textType) }

// isOptional reports whether the field is an [Optional].
func (f *Field) isOptional() bool { return reflect.PointerTo(f.Type).Implements(maybeType) }

// Kind returns the kind of the values: that of the number of an [Optional], and String for types with a parser.
func (f *Field) Kind() reflect.Kind {
	switch {
	case f.hasParser():
		return reflect.String
	case f.isOptional():
		value, _ := reflect.New(f.Type).Interface().(maybe).optional()
		return value.Kind()
	}
	return f.Type.Kind()
}

// isList reports whether a field takes any number of values.
func (f *Field) isList() bool { return f.Type.Kind() == reflect.Slice && !f.hasParser() }

// Enum returns the words that the field takes, nil if it takes other values, too.
func (f *Field) Enum() []string {
	words, ok := strings.CutPrefix(f.Check, "oneof ")
	if !ok {
		return nil
	}
	return strings.Fields(words)
}

// Parse sets v, which has the field's type, to the value of a text. The error quotes the text and names the expected
// values; the caller adds the name of the field.
func (f *Field) Parse(text string, v reflect.Value) error {
	if f.hasParser() {
		return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text))
	}
	if f.isOptional() {
		value, given := v.Addr().Interface().(maybe).optional()
		own := *f
		own.Type = value.Type()
		err := own.Parse(text, value)
		*given = err == nil
		return err
	}
	var xs []float64 // to be within the bounds
	var err error
	switch k := f.Type.Kind(); {
	case f.Type == numberType:
		if slices.Contains(f.Words, text) {
			v.Set(reflect.ValueOf(Number{Word: text}))
			return nil
		}
		var x float64
		x, err = strconv.ParseFloat(text, 64)
		v.Set(reflect.ValueOf(Number{Value: x}))
		xs = []float64{x}
	case k == reflect.String:
		v.SetString(text)
		if words := f.Enum(); words != nil && (text != "" || f.Default != "") {
			return suggest.Among("value", text, words)
		}
		return nil
	case k == reflect.Bool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case k == reflect.Float64:
		var x float64
		x, err = strconv.ParseFloat(text, 64)
		v.SetFloat(x)
		xs = []float64{x}
	case k == reflect.Slice:
		for part := range strings.SplitSeq(text, ",") {
			x, e := strconv.ParseFloat(strings.TrimSpace(part), 64)
			if xs = append(xs, x); e != nil {
				err = e
			}
		}
		v.Set(reflect.ValueOf(xs))
	case v.CanUint():
		var n uint64
		n, err = strconv.ParseUint(text, 10, f.Type.Bits())
		v.SetUint(n)
		xs = []float64{float64(n)}
	default:
		var n int64
		n, err = strconv.ParseInt(text, 10, f.Type.Bits())
		v.SetInt(n)
		xs = []float64{float64(n)}
	}
	b := bounds.MustParse(f.numbers())
	if errors.Is(err, strconv.ErrRange) && !strings.HasPrefix(text, "-") && f.Kind() != reflect.Float64 &&
		b.Has(math.MaxFloat64) {
		return wrong(text, fmt.Sprintf("a whole number up to %d", largest(v)))
	}
	if err != nil || slices.ContainsFunc(xs, func(x float64) bool { return !b.Has(x) }) {
		return wrong(text, f.expected())
	}
	return nil
}

// largest returns the largest value of a whole number's type.
func largest(v reflect.Value) uint64 {
	if v.CanUint() {
		return math.MaxUint64 >> (64 - v.Type().Bits())
	}
	return math.MaxInt64 >> (64 - v.Type().Bits())
}

// numbers is the check of a number.
func (f *Field) numbers() string {
	if f.Check == "any" {
		return ""
	}
	return f.Check
}

// wrong returns the error of a wrong value. All messages about wrong values come from it.
func wrong(text, expected string) error {
	return fmt.Errorf("%q is not %s", suggest.Clip(text), expected)
}

// Within returns an error if a number violates a check such as ">=1 <=8". It is for bounds that are known only when
// the program runs.
func Within[N int | float64](key string, x N, check string) error {
	b := bounds.MustParse(check)
	if b.Has(float64(x)) {
		return nil
	}
	return fmt.Errorf("%s: %v is not %s", key, x, describe(reflect.TypeFor[N]().Kind(), b))
}

// expected describes the allowed values for people: "a number >= 0, or auto".
func (f *Field) expected() string {
	switch k := f.Kind(); {
	case f.Enum() != nil:
		return "one of " + strings.Join(f.Enum(), ", ")
	case k == reflect.String:
		return "a text"
	case k == reflect.Bool:
		return "true or false"
	case f.Type == numberType:
		return describe(reflect.Float64, bounds.MustParse(f.numbers())) + orWords(f.Words)
	default:
		return describe(k, bounds.MustParse(f.numbers()))
	}
}

func orWords(words []string) (text string) {
	for _, w := range words {
		text += ", or " + w
	}
	return text
}

func describe(k reflect.Kind, b bounds.Bounds) string {
	what := "a whole number"
	switch k {
	case reflect.Float64:
		what = "a number"
	case reflect.Slice:
		what = "a list of numbers"
	}
	return strings.TrimSpace(what + " " + b.String())
}

// Values describes the values of the field for a table of settings: "number >= 0; s".
func (f *Field) Values() string {
	if words := f.Enum(); words != nil {
		return "`" + strings.Join(words, "`, `") + "`"
	}
	var text string
	switch k := f.Kind(); {
	case k == reflect.Bool:
		return "`true`, `false`"
	case f.Path:
		text = "file" + orWords(f.Words)
	case k == reflect.String:
		text = "text"
	case k == reflect.Slice:
		text = "number or list " + bounds.MustParse(f.numbers()).String()
	default:
		_, text, _ = strings.Cut(f.expected(), " ")
	}
	if f.Unit != "" && f.Unit != "-" {
		text = strings.TrimSpace(text) + "; " + f.Unit
	}
	return strings.TrimSpace(text)
}

// Schema returns the JSON Schema of the field's value.
func (f *Field) Schema() map[string]any {
	s := map[string]any{}
	number := func(typ string) map[string]any { return bounds.MustParse(f.numbers()).Schema(typ) }
	switch k := f.Kind(); {
	case f.Enum() != nil:
		words := f.Enum()
		if f.Default == "" && !f.Required {
			words = append(words, "")
		}
		s["enum"] = words
	case f.Type == numberType:
		s["anyOf"] = []any{number("number"), map[string]any{"enum": f.Words}}
	case f.Pairs != nil:
		s["type"] = []string{"string", "number", "object"}
	case f.Grammar != nil && f.Grammar.Nests():
		s["anyOf"] = f.Grammar.schema()
	case k == reflect.String:
		s["type"] = []string{"string", "number"} // 1024, where a text may begin with a number
	case k == reflect.Bool:
		s["type"] = "boolean"
	case k == reflect.Slice:
		n := number("number")
		s["anyOf"] = []any{n, map[string]any{"type": "array", "minItems": 1, "items": n},
			map[string]any{"type": "string"}}
	case k == reflect.Float64:
		s = number("number")
	default:
		s = number("integer")
	}
	about := f.Help
	if f.Unit != "" && f.Unit != "-" {
		about += " [" + f.Unit + "]"
	}
	s["description"] = strings.TrimSpace(about)
	if f.Default != "" {
		s["default"] = f.jsonDefault()
	}
	return s
}

// jsonDefault returns the default as a JSON value; an infinite number is a string.
func (f *Field) jsonDefault() any {
	v := reflect.New(f.Type).Elem()
	if err := f.Parse(f.Default, v); err != nil || f.hasParser() {
		return f.Default
	}
	switch k := v.Kind(); {
	case k == reflect.Bool:
		return v.Bool()
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return int64(v.Uint())
	case f.Type == numberType && v.Interface().(Number).Word == "":
		return v.Interface().(Number).Value
	case k == reflect.Float64 && bounds.MustParse("").Has(v.Float()):
		return v.Float()
	}
	return f.Default
}

// Verify returns an error if the tags of the struct or the preset are faulty: a default that violates its own check,
// a key that the short form cannot hold, a field without help. Tests call it.
func (f Form) Verify() error {
	seen := map[string]bool{}
	for i, field := range f.Fields() {
		v := reflect.New(field.Type).Elem()
		odd := func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_' }
		switch {
		case field.Key == "" || strings.ContainsFunc(field.Key, odd) || seen[field.Key]:
			return fmt.Errorf("%s: key %q is invalid or appears twice", f.Name, field.Key)
		case field.Help == "":
			return fmt.Errorf("%s: %s has no help", f.Name, field.Key)
		case field.Arg != 0 && field.Arg != i+1:
			return fmt.Errorf("%s: %s is argument %d, expected %d", f.Name, field.Key, field.Arg, i+1)
		case field.Required && field.Default != "" && f.Preset == "":
			return fmt.Errorf("%s: %s is required and has a default", f.Name, field.Key)
		}
		seen[field.Key] = true
		if err := field.verifyType(); err != nil {
			return fmt.Errorf("%s: %s: %w", f.Name, field.Key, err)
		}
		if field.Default == "" {
			continue
		}
		if err := field.Parse(field.Default, v); err != nil {
			return fmt.Errorf("%s: default of %s: %w", f.Name, field.Key, err)
		}
	}
	if err := SetDefaults(f.Preset, f.New()); err != nil {
		return fmt.Errorf("%s: preset: %w", f.Name, err)
	}
	return nil
}

// verifyType returns an error if a field's type or check is not valid.
func (f *Field) verifyType() error {
	if f.hasParser() || f.Enum() != nil {
		return nil
	}
	switch k := f.Kind(); {
	case k == reflect.String, k == reflect.Bool:
		return nil
	case f.Type == numberType, k == reflect.Float64, reflect.Int <= k && k <= reflect.Uint64,
		f.Type == reflect.TypeFor[[]float64]():
		_, err := bounds.Parse(f.numbers())
		return err
	}
	return fmt.Errorf("type %v, expected a text, true or false, a number, or a type with UnmarshalText", f.Type)
}
