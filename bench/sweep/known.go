package sweep

import (
	"fmt"
	"reflect"
	"strings"

	"lorasim/bench/result"
)

// CheckMetrics finds names that no cell of a sweep can have a number of, before
// any cell has run.
func (m *Manifest) CheckMetrics(names []string) error {
	known := knownMetrics()
	for _, n := range names {
		if err := suggestIn("metric", n, known); err != nil {
			return err
		}
		if strings.HasPrefix(n, "goodput.") && m.Goodput == "" {
			return fmt.Errorf("%s needs an SLO, see --goodput", n)
		}
	}
	return nil
}

// CheckBaseline finds a baseline that is none of the policies.
func (m *Manifest) CheckBaseline(policy string) error {
	if policy == "" {
		return nil
	}
	return suggestIn("baseline", policy, m.Policies)
}

// knownMetrics names the numbers of a result that lacks none.
func knownMetrics() []string {
	r := &result.Result{Extra: &result.Extra{}}
	for m := range result.NumMetrics {
		r.Metrics.Set(m, 1) // of completed requests too: without one there are no latencies
	}
	fill(reflect.ValueOf(r.Extra).Elem())
	var names []string
	for _, v := range Values(r) {
		if v.Name != completedSet {
			names = append(names, v.Name)
		}
	}
	return names
}

// fill gives every pointer to a struct in a struct something to point to.
func fill(v reflect.Value) {
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Kind() == reflect.Pointer && f.CanSet() {
			f.Set(reflect.New(f.Type().Elem()))
			f = f.Elem()
		}
		if f.Kind() == reflect.Struct {
			fill(f)
		}
	}
}
