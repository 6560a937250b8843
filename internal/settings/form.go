package settings

import (
	"reflect"
	"slices"
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

// MapPaths replaces the names of files within a text of one of the forms. A text without any, and one that is of no
// form, stays as it is.
func MapPaths(forms []Form, text string, to func(path string) string) string {
	name, options, _ := strings.Cut(text, ":")
	i := slices.IndexFunc(forms, func(f Form) bool { return f.Name == strings.TrimSpace(name) })
	if i < 0 && len(forms) == 1 && forms[0].Name == "" {
		i, options = 0, text
	}
	if i < 0 {
		return text
	}
	fields := forms[i].Fields()
	given, err := split(options, fields)
	if err != nil {
		return text // the error is told where the setting is read
	}
	changed := false
	for _, f := range fields {
		for j := range given {
			if o := &given[j]; f.Path && o.Key == f.Key && o.Text != "" && !slices.Contains(f.Words, o.Text) {
				o.Text, changed = to(o.Text), true
			}
		}
	}
	if !changed {
		return text
	}
	return forms[i].Text(given)
}
