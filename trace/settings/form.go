package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Form is a [Kind] without its type, for those who describe a setting or change its texts: YAML, JSON Schema, the
// reference, completion, names of files.
type Form struct {
	Name    string // "": the setting's only form, which has no name
	Summary string
	Preset  string
	New     func() any // a pointer to a struct
}

// Forms are the forms of some kinds.
func Forms[T any](kinds []Kind[T]) []Form {
	forms := make([]Form, len(kinds))
	for i, k := range kinds {
		forms[i] = Form{k.Name, k.Summary, k.Preset, func() any { return k.New() }}
	}
	return forms
}

// FormOf is the only form of a setting that has options alone, "min=1,max=8".
func FormOf[T any]() []Form { return []Form{{New: func() any { return new(T) }}} }

// Fields lists the options, each with the default that it has in this form.
func (f Form) Fields() []Field {
	fields := FieldsOf(reflect.TypeOf(f.New()))
	usual, _ := split(f.Preset, fields)
	for i := range fields {
		if text, ok := usual.Text(fields[i].Key); ok {
			fields[i].Default, fields[i].Required = text, false
		}
	}
	return fields
}

// Text is the short form: "name:value,key=value". Values with a position come first.
func (f Form) Text(given Given) string {
	var parts []string
	byPosition := map[string]bool{}
	for _, field := range f.Fields() {
		text, ok := given.Text(field.Key)
		if field.Arg == 0 || !ok {
			break
		}
		parts = append(parts, text)
		byPosition[field.Key] = true
	}
	for _, o := range given {
		if !byPosition[o.Key] {
			parts = append(parts, o.Key+"="+o.Text)
		}
	}
	options := strings.Join(parts, ",")
	if f.Name == "" || options == "" {
		return f.Name + options
	}
	return f.Name + ":" + options
}

// Nested returns the mapping, in YAML's flow style, that is equal to a text: "hash:c=2" is "{name: hash, c: 2}".
func Nested(forms []Form, text string) (string, error) {
	form, options, ok := find(forms, text)
	if !ok {
		return "", fmt.Errorf("%q matches no form", text)
	}
	fields := form.Fields()
	given, err := split(options, fields)
	if err != nil {
		return "", err
	}
	var parts []string
	if form.Name != "" {
		parts = append(parts, nameKey+": "+form.Name)
	}
	for _, o := range given {
		f := fields[slices.IndexFunc(fields, func(f Field) bool { return f.Key == o.Key })]
		parts = append(parts, o.Key+": "+f.nested(o.Text))
	}
	return "{" + strings.Join(parts, ", ") + "}", nil
}

// nested is a value in flow style.
func (f *Field) nested(text string) string {
	switch {
	case f.isList():
		return "[" + strings.ReplaceAll(text, ",", ", ") + "]"
	case f.Pairs != nil:
		var pairs []string
		for part := range strings.SplitSeq(text, f.Pairs[1]) {
			key, value, _ := strings.Cut(part, f.Pairs[0])
			pairs = append(pairs, Quoted(strings.TrimSpace(key))+": "+Quoted(value))
		}
		return "{" + strings.Join(pairs, ", ") + "}"
	}
	return Quoted(text)
}

// Quoted puts a text between quotes if YAML might take it for something else than itself.
func Quoted(text string) string {
	plain := func(r rune) bool {
		return '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("._/+-", r)
	}
	if text != "" && !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) && text[0] != '-' {
		return text
	}
	return strconv.Quote(text)
}

// find is the form of a text and the options in it.
func find(forms []Form, text string) (form Form, options string, ok bool) {
	if len(forms) == 1 && forms[0].Name == "" {
		return forms[0], text, true
	}
	name, options, _ := strings.Cut(text, ":")
	i := slices.IndexFunc(forms, func(f Form) bool { return f.Name == strings.TrimSpace(name) })
	if i < 0 {
		return Form{}, "", false
	}
	return forms[i], options, true
}

// MapPaths replaces the names of files within a text of one of the forms. A text without any, and one that is of no
// form, stays as it is.
func MapPaths(forms []Form, text string, to func(path string) string) string {
	form, options, ok := find(forms, text)
	if !ok {
		return text
	}
	fields := form.Fields()
	given, err := split(options, fields)
	if err != nil {
		return text // the error is told where the setting is read
	}
	changed := false
	for _, f := range fields {
		for j := range given {
			o := &given[j]
			switch {
			case o.Key != f.Key || o.Text == "" || slices.Contains(f.Words, o.Text):
			case f.Path:
				o.Text, changed = to(o.Text), true
			case f.Specs != "":
				parts := strings.Split(o.Text, f.Specs)
				for i := range parts {
					parts[i] = MapPaths(forms, parts[i], to)
				}
				if text := strings.Join(parts, f.Specs); text != o.Text {
					o.Text, changed = text, true
				}
			}
		}
	}
	if !changed {
		return text
	}
	return form.Text(given)
}
