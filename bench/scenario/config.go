package scenario

import (
	"fmt"
	"strconv"
)

// FromConfig returns the scenario that a result's configuration describes, as [Scenario.Meta] writes it. It returns
// false if the configuration is not a scenario.
func FromConfig(config map[string]any) (Scenario, bool) {
	s := Default()
	if config["workload.num_prompts"] == nil {
		return s, false
	}
	for _, f := range fields {
		v, ok := config[f.Key]
		if !ok {
			continue // a setting that is newer than the result
		}
		text := fmt.Sprint(v)
		if x, ok := v.(float64); ok {
			text = strconv.FormatFloat(x, 'f', -1, 64)
		}
		if err := f.set(&s, text); err != nil {
			return s, false
		}
	}
	return s, true
}
