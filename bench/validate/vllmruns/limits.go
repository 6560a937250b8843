package vllmruns

import (
	"cmp"
	"slices"

	"lorasim/bench/validate"
)

// Limit is what the runs of a group say of a server's limits: the most adapters
// that some number of slots serves without starving, and the slots with the
// largest throughput among runs of so many adapters. 0: none is served.
type Limit struct {
	Model             string `json:"model"`
	Group             string `json:"group"`
	MeasuredAdapters  int    `json:"measured_adapters"`
	PredictedAdapters int    `json:"predicted_adapters"`
	MeasuredSlots     int    `json:"measured_slots"`
	PredictedSlots    int    `json:"predicted_slots"`
	// Steps is how many steps of the measured numbers of slots the two are apart,
	// Lost the throughput that the predicted slots lose, as measured.
	Steps int     `json:"slot_steps"`
	Lost  float64 `json:"lost_throughput"`
}

// Limits compares the groups' limits as measured and as predicted. The best slots
// are compared at the number of adapters that was measured as the most. Runs that
// were not predicted do not count.
func Limits(rows []Row) (limits []Limit) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Skipped != "" })
	type key struct{ model, group string }
	keys, groups := validate.GroupBy(rows, func(r *Row) key { return key{r.Model, r.Group} })
	for _, k := range keys {
		l := Limit{Model: k.model, Group: k.group}
		for _, r := range groups[k] {
			if !r.StarvedMeasured {
				l.MeasuredAdapters = max(l.MeasuredAdapters, r.Adapters)
			}
			if !r.StarvedPredicted {
				l.PredictedAdapters = max(l.PredictedAdapters, r.Adapters)
			}
		}
		at := slices.DeleteFunc(groups[k], func(r Row) bool { return r.Adapters != l.MeasuredAdapters })
		slices.SortFunc(at, func(a, b Row) int { return cmp.Compare(a.Slots, b.Slots) })
		measured, predicted := 0, 0
		for i, r := range at {
			if r.Measured[Throughput] > at[measured].Measured[Throughput] {
				measured = i
			}
			if r.Predicted[Throughput] > at[predicted].Predicted[Throughput] {
				predicted = i
			}
		}
		if len(at) > 0 {
			l.MeasuredSlots, l.PredictedSlots = at[measured].Slots, at[predicted].Slots
			l.Steps = abs(measured - predicted)
			if best := at[measured].Measured[Throughput]; best > 0 {
				l.Lost = 1 - at[predicted].Measured[Throughput]/best
			}
		}
		limits = append(limits, l)
	}
	return limits
}
