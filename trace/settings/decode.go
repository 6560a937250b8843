package settings

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"lorasim/internal/suggest"
)

// Given lists the options that a text or a mapping states, in order.
type Given []Option

// An Option is a key and its value as written.
type Option struct{ Key, Text string }

// Has reports whether an option is given.
func (g Given) Has(key string) bool {
	_, ok := g.Text(key)
	return ok
}

// Text returns the value given for an option; ok is false if there is none.
func (g Given) Text(key string) (text string, ok bool) {
	for _, o := range g {
		if o.Key == key {
			return o.Text, true
		}
	}
	return "", false
}

// A Checker is a struct whose fields depend on each other. Decode calls Check once all fields are set and within
// their own bounds. Check returns an error if the fields do not fit together.
type Checker interface{ Check(given Given) error }

// Decode sets the struct that to points to: first to its defaults, then to the options of a text. The text is
// "key=value,key=value" or, where fields have positions, "value,value,key=value". Decode returns the given options.
// An empty text gives no options.
func Decode(text string, to any) (Given, error) {
	return decode(text, "", to)
}

// decode is Decode with a preset of other defaults than those of the tags.
func decode(text, preset string, to any) (Given, error) {
	fields := fieldsOf(reflect.TypeOf(to))
	if err := setDefaults(fields, preset, to); err != nil {
		return nil, err
	}
	given, err := split(text, fields)
	if err != nil {
		return nil, err
	}
	if err := set(fields, given, to); err != nil {
		return nil, err
	}
	return given, complete(fields, given, preset, to)
}

// SetDefaults sets a struct to the defaults of its tags, and then to the values of a preset, "key=value,...".
func SetDefaults(preset string, to any) error {
	return setDefaults(fieldsOf(reflect.TypeOf(to)), preset, to)
}

// setDefaults is SetDefaults of a struct with these options.
func setDefaults(fields []Field, preset string, to any) error {
	v := reflect.ValueOf(to).Elem()
	for i := range fields {
		f := &fields[i]
		at := v.FieldByIndex(f.index)
		at.SetZero()
		if f.Default == "" {
			continue
		}
		if err := f.Parse(f.Default, at); err != nil {
			return fmt.Errorf("default of %s: %w", f.Key, err)
		}
	}
	given, err := split(preset, fields)
	if err != nil {
		return err
	}
	return set(fields, given, to)
}

// set sets the options that are given.
func set(fields []Field, given Given, to any) error {
	if len(given) == 0 {
		return nil
	}
	v := reflect.ValueOf(to).Elem()
	for i := range fields {
		f := &fields[i]
		text, ok := given.Text(f.Key)
		if !ok {
			continue
		}
		if err := f.Parse(text, v.FieldByIndex(f.index)); err != nil {
			return fmt.Errorf("%s: %w", f.Key, err)
		}
	}
	return nil
}

// complete checks what has to be given, and the struct as a whole.
func complete(fields []Field, given Given, preset string, to any) error {
	usual, err := split(preset, fields)
	if err != nil {
		return err
	}
	for _, f := range fields {
		if f.Required && !given.Has(f.Key) && !usual.Has(f.Key) {
			return fmt.Errorf("%s is missing (%s), expected %s", f.Key, f.Help, f.expected())
		}
	}
	if c, ok := to.(Checker); ok {
		return c.Check(given)
	}
	return nil
}

// splitter takes a text apart.
type splitter struct {
	fields []Field
	keys   []string
	given  Given
	last   *Field // of the last option
	args   int    // values by position so far
	named  bool   // a key has been seen
}

// split finds the options that a text gives. It does not look at their values.
func split(text string, fields []Field) (Given, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	s := splitter{fields: fields}
	for _, f := range fields {
		s.keys = append(s.keys, f.Key)
	}
	for piece := range strings.SplitSeq(text, ",") {
		if err := s.take(piece); err != nil {
			return nil, err
		}
	}
	for i := range s.given {
		s.given[i].Text = strings.TrimSpace(s.given[i].Text)
	}
	return s.given, nil
}

func (s *splitter) take(piece string) error {
	key, value, isOption := strings.Cut(piece, "=")
	key = strings.TrimSpace(key)
	known := s.field(key)
	next := s.arg(s.args + 1)
	switch {
	case isOption && known != nil:
		s.named = true
		return s.add(known, value)
	case s.goesOn(isOption):
		s.given[len(s.given)-1].Text += "," + piece
		return nil
	case !s.named && next != nil && (!isOption || next.Path || next.Pairs != nil): // whose values may hold a =
		s.args++
		return s.add(next, piece)
	case isOption && key != "":
		return suggest.Unknown("option", key, s.keys)
	case len(s.fields) == 0:
		return fmt.Errorf("%q, expected no options", strings.TrimSpace(piece))
	case s.arg(1) != nil && !s.named:
		return fmt.Errorf("%q has no option left, expected %s", strings.TrimSpace(piece), s.positions())
	}
	return fmt.Errorf("%q is not of the form key=value", strings.TrimSpace(piece))
}

// goesOn reports whether a piece belongs to the value before it.
func (s *splitter) goesOn(isOption bool) bool {
	switch {
	case s.last == nil:
		return false
	case s.last.isList():
		return !isOption
	}
	return s.last.Commas && (!isOption || s.last.Arg > 0 && (s.last.Path || s.last.Pairs != nil))
}

func (s *splitter) add(f *Field, value string) error {
	if s.given.Has(f.Key) {
		return fmt.Errorf("%s is given twice", f.Key)
	}
	s.given, s.last = append(s.given, Option{f.Key, value}), f
	return nil
}

func (s *splitter) field(key string) *Field {
	for i := range s.fields {
		if s.fields[i].Key == key {
			return &s.fields[i]
		}
	}
	return nil
}

// positions returns the names of the values by position, and shows whether there are other options:
// "file,key=value".
func (s *splitter) positions() string {
	var names []string
	for i := range s.fields {
		if s.fields[i].Arg > 0 {
			names = append(names, s.fields[i].Key)
		}
	}
	if len(names) < len(s.fields) {
		names = append(names, "key=value")
	}
	return strings.Join(names, ",")
}

// arg is the field with a position.
func (s *splitter) arg(n int) *Field {
	for i := range s.fields {
		if s.fields[i].Arg == n {
			return &s.fields[i]
		}
	}
	return nil
}

// Fill sets those fields with the tag env that are not given, to the value in env under the name in the tag. Fill
// skips a value of 0, which means unknown.
func Fill(given Given, to any, env map[string]float64) {
	v := reflect.ValueOf(to).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if x := env[f.Env]; x != 0 && !given.Has(f.Key) {
			v.FieldByIndex(f.index).SetFloat(x)
		}
	}
}

// A Kind is one of several forms of a setting, identified by the name before the colon:
// "affinity-spill:threshold=4".
type Kind[T any] struct {
	Name    string
	Summary string // one line
	Preset  string // "key=value,...": defaults that differ from those of the struct's tags
	New     func() T
}

// A Spec is a parsed text of the form "name:options".
type Spec[T any] struct {
	Name  string
	Value T // pointer to the decoded struct
	Given Given
}

// Parse parses "name" or "name:options" as one of several kinds. T is a pointer to a struct, or an interface of such
// pointers. Errors begin with what and the name: "policy hash: ".
func Parse[T any](what string, kinds []Kind[T], spec string) (Spec[T], error) {
	name, options, some := strings.Cut(spec, ":")
	name = strings.TrimSpace(name)
	var names []string
	for _, k := range kinds {
		if names = append(names, k.Name); k.Name != name {
			continue
		}
		s := Spec[T]{Name: name, Value: k.New()}
		var err error
		if s.Given, err = decode(options, k.Preset, s.Value); some && err == nil && s.Given == nil {
			err = errors.New("expected options after the colon")
		}
		if err != nil {
			err = fmt.Errorf("%s %s: %w", what, name, err)
		}
		return s, err
	}
	return Spec[T]{}, suggest.Unknown(what, name, names)
}
