package profile

import (
	"reflect"
	"slices"
	"strings"
)

// Slower returns a copy of the profile with all step times multiplied by factor.
func (p *Profile) Slower(factor float64) *Profile {
	c := *p
	slow(reflect.ValueOf(&c.Latency).Elem(), factor)
	return &c
}

// slow multiplies the times in a value: its fields whose names end in a unit of time.
func slow(v reflect.Value, factor float64) {
	switch v.Kind() {
	case reflect.Struct:
		for field, x := range v.Fields() {
			n := field.Name
			switch {
			case x.Kind() != reflect.Float64:
				slow(x, factor)
			case strings.HasSuffix(n, "Ms") || strings.HasSuffix(n, "Us") || strings.HasSuffix(n, "Ns"):
				x.SetFloat(x.Float() * factor)
			case strings.HasSuffix(n, "GBPerS"):
				x.SetFloat(x.Float() / factor)
			}
		}
	case reflect.Slice:
		switch list := v.Interface().(type) {
		case []RankCost:
			v.Set(reflect.ValueOf(slices.Clone(list)))
			for i := range list {
				slow(v.Index(i), factor)
			}
		case []KernelSteps:
			v.Set(reflect.ValueOf(slices.Clone(list)))
			for i := range list {
				slow(v.Index(i), factor)
			}
		case []float64: // AllReduce.Ms, terms of KernelSteps
			list = slices.Clone(list)
			for i := range list {
				list[i] *= factor
			}
			v.Set(reflect.ValueOf(list))
		}
	}
}
