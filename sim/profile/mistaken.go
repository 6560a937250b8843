package profile

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
)

// Mistaken returns a copy of the profile with deliberate errors, to test policies that predict with a wrong
// profile. All step times are longer or shorter by share, each coefficient by up to another 10 % at random.
// Adapter loads take 1.5 or 1/1.5 times the time.
func (p *Profile) Mistaken(share float64, rng *rand.Rand) *Profile {
	either := func(factor float64) float64 {
		if rng.IntN(2) == 0 {
			return 1 / factor
		}
		return factor
	}
	c := *p
	all := 1 + share
	if rng.IntN(2) == 0 {
		all = 1 - share
	}
	mistake(reflect.ValueOf(&c.Latency).Elem(), func() float64 { return all * (0.9 + 0.2*rng.Float64()) })
	load := either(1.5)
	for _, s := range []*Stage{&c.Adapters.HostToGPU, &c.Adapters.DiskToHost, &c.Adapters.RemoteToHost} {
		mistake(reflect.ValueOf(s).Elem(), func() float64 { return load })
	}
	return &c
}

// mistake multiplies the times in a value: its fields whose names end in a unit of time.
func mistake(v reflect.Value, factor func() float64) {
	switch v.Kind() {
	case reflect.Struct:
		for field, x := range v.Fields() {
			n := field.Name
			switch {
			case x.Kind() != reflect.Float64:
				mistake(x, factor)
			case strings.HasSuffix(n, "Ms") || strings.HasSuffix(n, "Us") || strings.HasSuffix(n, "Ns"):
				x.SetFloat(x.Float() * factor())
			case strings.HasSuffix(n, "GBPerS"):
				x.SetFloat(x.Float() / factor())
			}
		}
	case reflect.Slice:
		switch list := v.Interface().(type) {
		case []RankCost:
			v.Set(reflect.ValueOf(slices.Clone(list)))
			for i := range list {
				mistake(v.Index(i), factor)
			}
		case []float64: // AllReduce.Ms, which does not fall
			list, f := slices.Clone(list), factor()
			for i := range list {
				list[i] *= f
			}
			v.Set(reflect.ValueOf(list))
		}
	}
}
