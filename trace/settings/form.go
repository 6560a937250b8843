package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// A Form is a [Kind] without its type. YAML, JSON Schema, the reference, completion and file names in settings use
// it.
type Form struct {
	Name    string // "": the only form of the setting, without a name
	Summary string
	Preset  string
	New     func() any // returns a pointer to a new struct
}

// Forms returns the forms of some kinds.
func Forms[T any](kinds []Kind[T]) []Form {
	forms := make([]Form, len(kinds))
	for i, k := range kinds {
		forms[i] = Form{k.Name, k.Summary, k.Preset, func() any { return k.New() }}
	}
	return forms
}

// FormOf returns the only form of a setting that consists of options alone, such as "min=1,max=8".
func FormOf[T any]() []Form { return []Form{{New: func() any { return new(T) }}} }

// Fields returns the options of the form, each with its default in this form.
func (f Form) Fields() []Field {
	fields := fieldsOf(reflect.TypeOf(f.New()))
	usual, _ := split(f.Preset, fields)
	for i := range fields {
		if text, ok := usual.Text(fields[i].Key); ok {
			fields[i].Default, fields[i].Required = text, false
		}
	}
	return fields
}

// Text returns the short form of given options, "name:value,key=value". Values with a position come first.
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

// Nested returns a text of one of the forms as a mapping in YAML's flow style. For example, "hash:c=2" becomes
//
//	"{name: hash, c: 2}".
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

// Quoted returns a text, in quotes if YAML would not read it as the same string.
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

// mapPaths replaces the file names within a text of one of the forms. It returns a text unchanged if it holds no
// file name or matches no form.
func mapPaths(forms []Form, text string, to func(path string) string) string {
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
					parts[i] = mapPaths(forms, parts[i], to)
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
