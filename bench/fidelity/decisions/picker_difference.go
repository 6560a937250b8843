package decisions

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
)

// pickerDifference returns the name of the first field in which outcomes differ, or "".
func pickerDifference(want, got *outcome) (what string, w, g any) {
	if want.Status != got.Status {
		return "status", fmt.Sprint(want.Status, " ", want.Error), fmt.Sprint(got.Status, " ", got.Error)
	}
	if want.Error != got.Error {
		return "error", want.Error, got.Error
	}
	if what, w, g = differRan(&want.ran, &got.ran); what != "" {
		return what, w, g
	}
	if len(want.Then) != len(got.Then) {
		return "then", len(want.Then), len(got.Then)
	}
	for k := range want.Then {
		if what, w, g = differRan(&want.Then[k], &got.Then[k]); what != "" {
			return fmt.Sprintf("then[%d].%s", k, what), w, g
		}
	}
	if !maps.Equal(want.Header, got.Header) {
		return "header", want.Header, got.Header
	}
	if !sameJSON(want.Metadata, got.Metadata) {
		return "metadata", want.Metadata, got.Metadata
	}
	if !sameJSON(want.Body, got.Body) {
		return "body", want.Body, got.Body
	}
	return "", nil, nil
}

// differRan compares the results of a profile. A recording may leave out prefix and inflight.
func differRan(want, got *ran) (what string, w, g any) {
	switch {
	case len(want.Filters)+len(got.Filters) > 0 && !reflect.DeepEqual(want.Filters, got.Filters):
		return "filters", want.Filters, got.Filters
	case !maps.EqualFunc(want.Scores, got.Scores, near):
		return "scores", want.Scores, got.Scores
	case !near(want.Totals, got.Totals):
		return "totals", want.Totals, got.Totals
	case !reflect.DeepEqual(want.Best, got.Best):
		return "best", want.Best, got.Best
	case want.Picker != got.Picker:
		return "picker", want.Picker, got.Picker
	case !reflect.DeepEqual(want.Picked, got.Picked):
		return "picked", want.Picked, got.Picked
	case want.Prefix != nil && !maps.Equal(want.Prefix, got.Prefix):
		return "prefix", want.Prefix, got.Prefix
	case want.InFlight != nil && !maps.Equal(want.InFlight, got.InFlight):
		return "inflight", want.InFlight, got.InFlight
	}
	return "", nil, nil
}

// near reports whether numbers agree to 1e-12.
func near(a, b map[string]float64) bool {
	return maps.EqualFunc(a, b, func(x, y float64) bool { return math.Abs(x-y) <= 1e-12 })
}

func sameJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
