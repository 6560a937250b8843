package scenario

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"lorasim/internal/suggest"
)

// Field is one setting of a scenario.
type Field struct {
	Key     string // path in the YAML file: "workload.num_prompts"
	Flag    string // name on the command line: "num-prompts"; "": none
	Section string // "workload", ...; "": top level
	Help    string

	check string // tag, see values.go
	index []int
	kind  reflect.Type
}

// Leaf is the last part of the key: "num_prompts".
func (f Field) Leaf() string { return f.Key[strings.LastIndexByte(f.Key, '.')+1:] }

// Fields lists every setting in the order of the struct.
func Fields() []Field { return fieldsOf(reflect.TypeFor[Scenario](), "", "", nil) }

func fieldsOf(t reflect.Type, prefix, section string, index []int) []Field {
	var fs []Field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		at := append(append([]int(nil), index...), i)
		if sf.Type.Kind() == reflect.Struct {
			fs = append(fs, fieldsOf(sf.Type, prefix+name+".", prefix+name, at)...)
			continue
		}
		f := Field{Key: prefix + name, Flag: strings.ReplaceAll(name, "_", "-"), Section: section,
			Help: sf.Tag.Get("help"), check: sf.Tag.Get("check"), index: at, kind: sf.Type}
		if flag, ok := sf.Tag.Lookup("flag"); ok {
			f.Flag = strings.TrimPrefix(flag, "-")
		}
		fs = append(fs, f)
	}
	return fs
}

// Find returns the setting with the given key: its path, its last part, or its
// flag name.
func Find(key string) (Field, error) {
	fs := Fields()
	known := make([]string, len(fs))
	for i, f := range fs {
		if key == f.Key || key == f.Leaf() || key == f.Flag && key != "" {
			return f, nil
		}
		known[i] = f.Leaf()
		if strings.Contains(key, ".") {
			known[i] = f.Key
		}
	}
	return Field{}, suggest.Unknown("key", key, known)
}

// Set changes one setting, given by any name that Find knows, to a value in
// the form of a flag.
func (s *Scenario) Set(key, value string) error {
	f, err := Find(key)
	if err != nil {
		return err
	}
	return f.Set(s, value)
}

// Get returns a setting in the form that Set takes.
func (f Field) Get(s *Scenario) string {
	v := reflect.ValueOf(s).Elem().FieldByIndex(f.index)
	switch x := v.Interface().(type) {
	case float64:
		return formatFloat(x)
	case []float64:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = formatFloat(e)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v.Interface())
}

// Value returns a setting as JSON knows it; an infinite number is its text.
func (f Field) Value(s *Scenario) any {
	v := reflect.ValueOf(s).Elem().FieldByIndex(f.index)
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return v.Int()
	case reflect.Uint64:
		return int64(v.Uint())
	case reflect.Bool:
		return v.Bool()
	case reflect.Float64:
		if !math.IsInf(v.Float(), 0) && !math.IsNaN(v.Float()) {
			return v.Float()
		}
	}
	return f.Get(s)
}

func formatFloat(x float64) string {
	return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(x, 'g', -1, 64)), "+") // "inf", not "+Inf"
}

// Set changes the setting in a scenario to a value in the form of a flag, as
// [Scenario.Set] does by name.
func (f Field) Set(s *Scenario, value string) error {
	if err := f.set(s, value); err != nil {
		return fmt.Errorf("%s: %w", f.Key, err)
	}
	return nil
}

func (f Field) set(s *Scenario, text string) error {
	v, err := f.parse(text)
	if err == nil {
		reflect.ValueOf(s).Elem().FieldByIndex(f.index).Set(v)
	}
	return err
}

// Type is the kind of value, as flags name it.
func (f Field) Type() string {
	switch f.kind.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "int"
	case reflect.Float64:
		return "float"
	case reflect.Slice:
		return "floats"
	}
	return "string"
}
