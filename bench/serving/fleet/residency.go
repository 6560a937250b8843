package fleet

import (
	"fmt"
	"slices"

	"lorasim/router"
	"lorasim/router/promtext"
)

// Newer versions of vLLM tell where the weights of their adapters are, and how long they took to get there. Without
// such a report the fleet assumes that the adapters used last are in the GPU slots.

// The metrics. A series of loadedInfo is an adapter, with the fastest memory that holds it; an adapter that vLLM only
// knows by its path has none.
const (
	loadedInfo  = "vllm:lora_adapter_loaded"
	inSlotsInfo = "vllm:num_gpu_loaded_lora_adapters"
	slotsInfo   = "vllm:max_gpu_lora_adapters"
	loadSeconds = "vllm:lora_adapter_load_seconds"
)

// LoadTimes are mean times that a worker reports, s; 0: not reported.
type LoadTimes struct {
	Load     float64 `json:"load_s,omitempty"`     // from disk to host memory
	Activate float64 `json:"activate_s,omitempty"` // from host memory to a GPU slot
}

// readResidency reads what a worker tells of the places of its adapters.
func (l *load) readResidency(families promtext.Families) error {
	if families[inSlotsInfo] != nil || families[loadedInfo] != nil {
		l.InSlots = map[string]bool{}
	}
	for _, m := range families[slotsInfo] { // one for each engine
		if v := gauge(m); v > 0 && v <= maxHeld && l.Slots == 0 {
			l.Slots = int(v)
		}
	}
	for _, m := range families[loadedInfo] {
		if m.Label("level") != "gpu" || gauge(m) <= 0 {
			continue
		}
		if l.InSlots[m.Label("adapter_name")] = true; len(l.InSlots) > maxList {
			return fmt.Errorf("%s reports more than %d adapters", loadedInfo, maxList)
		}
	}
	mean := func(transition string) float64 {
		sum, n := 0.0, 0.0
		for _, m := range families[loadSeconds] {
			if m.Label("transition") == transition {
				sum, n = sum+m.Sum, n+m.Count
			}
		}
		if s := sum / n; s > 0 && s <= maxClock { // not so without a sample
			return s
		}
		return 0
	}
	l.Times = LoadTimes{mean("load"), mean("activate")}
	return nil
}

// resident notes which adapters the worker reports to be in GPU slots. Those of running requests are there, too: the
// report may be older than they are.
func (h *holdings) resident(inSlot func(a int32) bool) {
	slots := slices.DeleteFunc(h.recent, func(a int32) bool { return !inSlot(a) && h.view.Adapters[a].Running == 0 })
	for _, a := range h.held {
		if inSlot(a) && !slices.Contains(slots, a) {
			slots = append(slots, a)
		}
		h.view.Adapters[a].Tier = router.Host
	}
	h.recent = slots
	h.updateSlots()
}
