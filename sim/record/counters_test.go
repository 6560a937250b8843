package record

import (
	"reflect"
	"testing"
)

// Add adds every field.
func TestCountersAdd(t *testing.T) {
	var a, b Counters
	for i := range reflect.TypeFor[Counters]().NumField() {
		set := func(c *Counters, v int) {
			f := reflect.ValueOf(c).Elem().Field(i)
			f.Set(reflect.ValueOf(v).Convert(f.Type()))
		}
		set(&a, i+1)
		set(&b, 10*(i+1))
	}
	a.Add(&b)
	for i := range reflect.TypeFor[Counters]().NumField() {
		f := reflect.ValueOf(a).Field(i)
		if want := reflect.ValueOf(11 * (i + 1)).Convert(f.Type()); !f.Equal(want) {
			t.Errorf("%s is %v, expected %v", reflect.TypeFor[Counters]().Field(i).Name, f, want)
		}
	}
}
