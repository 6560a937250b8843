package profile

import "reflect"

// Slower returns a copy of the profile with all step times multiplied by factor.
func (p *Profile) Slower(factor float64) *Profile {
	c := *p
	mistake(reflect.ValueOf(&c.Latency).Elem(), func() float64 { return factor })
	return &c
}
