package result

import (
	"math"
	"reflect"
	"slices"
	"strings"
)

// A Value is a number of a result with its name.
type Value struct {
	Name  string
	Value float64
}

// Values returns the numbers of a result: its metrics under their JSON names, and further
// single numbers under names such as "goodput.share". It includes counts of 0, so that
// means over seeds are right. It omits the latencies of a run without a successful
// request, which the block prints as 0.
func Values(r *Result) []Value {
	var out []Value
	for m := range NumMetrics {
		if v, ok := r.Metrics.Get(m); ok {
			out = append(out, Value{m.String(), v})
		}
	}
	switch {
	case r.Extra != nil:
		out = flatten(out, "", reflect.ValueOf(r.Extra).Elem(), false)
	case r.Ended != nil:
		out = flatten(out, "", reflect.ValueOf(r.Ended).Elem(), false)
	}
	if r.Goodput != nil {
		out = flatten(out, "goodput.", reflect.ValueOf(r.Goodput).Elem(), false)
	}
	out = append(out, steadyValues(r.Steady)...)
	if completed, ok := r.Metrics.Get(Completed); !ok || completed > 0 {
		return out
	}
	return slices.DeleteFunc(out, func(v Value) bool { return MetricOf(v.Name).latency() })
}

// flatten appends the numbers of a struct. The names of numbers in an inner struct begin
// with the inner struct's field name. Structs behind a nil pointer are omitted, or have
// zeros if absent is true. Slices are omitted, except for counts by kind, which are
// summed.
func flatten(out []Value, prefix string, v reflect.Value, absent bool) []Value {
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && (name == "" || name == "-" || !f.IsExported()) {
			continue
		}
		name = prefix + name
		if x.Kind() == reflect.Pointer {
			if x.IsNil() && absent {
				x = reflect.New(f.Type.Elem())
			}
			if x = x.Elem(); !x.IsValid() {
				continue
			}
		}
		if f.Anonymous {
			out = flatten(out, prefix, x, absent)
			continue
		}
		switch x.Kind() {
		case reflect.Int, reflect.Int32, reflect.Int64:
			out = append(out, Value{name, float64(x.Int())})
		case reflect.Float64:
			out = append(out, Value{name, x.Float()})
		case reflect.Struct:
			out = flatten(out, name+".", x, absent)
		case reflect.Slice:
			if counts, ok := x.Interface().([]MigrationCount); ok {
				sum := 0.0
				for _, c := range counts {
					sum += float64(c.Count)
				}
				out = append(out, Value{name, sum})
			}
		}
	}
	return out
}

// ValueOf returns the value with the given name; NaN if there is none.
func ValueOf(values []Value, name string) float64 {
	for _, v := range values {
		if v.Name == name {
			return v.Value
		}
	}
	return math.NaN()
}
