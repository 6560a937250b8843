package scenario

import (
	"fmt"
	"strconv"
)

// FromConfig returns the scenario that a result's configuration describes, as [Scenario.Meta] writes it. It returns
// false if the configuration is not a scenario. Results of older versions hold 0 for numbers that were not given.
func FromConfig(config map[string]any) (Scenario, bool) {
	s := Default()
	if config["workload.request_rate"] == nil {
		return s, false
	}
	for key, none := range map[string]string{"burstiness": "0", "time_scale": "1", "trace_cv": "1",
		"trace_arrival_distribution": "gamma"} {
		if v, ok := config["workload."+key]; ok && fmt.Sprint(v) != none {
			return s, false // today's settings have other names
		}
	}
	for _, f := range fields {
		v, ok := config[f.Key]
		if !ok {
			continue // not given, or newer than the result
		}
		text := fmt.Sprint(v)
		if x, ok := v.(float64); ok {
			text = strconv.FormatFloat(x, 'f', -1, 64)
		}
		if text == "0" && f.optional() && (f.leaf != "num_adapters" || config["workload.file"] == "") {
			continue
		}
		if err := f.Set(&s, text); err != nil {
			return s, false
		}
	}
	return s, true
}
