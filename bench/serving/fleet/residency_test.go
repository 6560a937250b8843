package fleet

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lorasim/router"
)

// What vLLM tells of its adapters: the slots, who is there, and how long they took. Without these metrics nothing is
// known; without an adapter, the slots are free.
func TestReadResidency(t *testing.T) {
	const loaded = `# TYPE vllm:lora_adapter_loaded gauge
vllm:lora_adapter_loaded{adapter_name="a",engine="0",level="gpu",pinned="false"} 1.0
vllm:lora_adapter_loaded{adapter_name="a",engine="1",level="cpu",pinned="false"} 1.0
vllm:lora_adapter_loaded{adapter_name="b",engine="0",level="cpu",pinned="false"} 1.0
vllm:lora_adapter_loaded{adapter_name="c",engine="0",level="gpu",pinned="true"} 1.0
vllm:lora_adapter_loaded{adapter_name="d",engine="0",level="gpu",pinned="false"} 0.0
`
	const times = `# TYPE vllm:lora_adapter_load_seconds histogram
vllm:lora_adapter_load_seconds_bucket{transition="load",le="+Inf"} 4
vllm:lora_adapter_load_seconds_sum{transition="load"} 3
vllm:lora_adapter_load_seconds_count{transition="load"} 4
vllm:lora_adapter_load_seconds_bucket{transition="activate",le="+Inf"} 0
vllm:lora_adapter_load_seconds_sum{transition="activate"} 0
vllm:lora_adapter_load_seconds_count{transition="activate"} 0
`
	for _, c := range []struct {
		text   string
		told   bool
		names  []string
		slots  int
		loadMs float64
	}{
		{"vllm:num_requests_running 1\n", false, nil, 0, 0},
		{loaded, true, []string{"a", "c"}, 0, 0},
		{"vllm:num_gpu_loaded_lora_adapters 0.0\nvllm:max_gpu_lora_adapters 4.0\n", true, nil, 4, 0},
		{"vllm:max_gpu_lora_adapters 4.0\n" + times, false, nil, 4, 750},
		{"vllm:max_gpu_lora_adapters NaN\n", false, nil, 0, 0},
	} {
		l, err := readVLLM([]byte(c.text))
		if err != nil {
			t.Fatal(err)
		}
		names := slices.Sorted(maps.Keys(l.InSlots))
		if (l.InSlots != nil) != c.told || !slices.Equal(names, c.names) || l.Slots != c.slots ||
			l.Times != (LoadTimes{Load: c.loadMs / 1000}) {
			t.Errorf("%s: in slots %v, told %v, %d slots, %v", c.text, names, l.InSlots != nil, l.Slots, l.Times)
		}
	}
}

// After a report, the adapters in slots are those that it names and those that run. The slots are never exceeded, and
// later uses count from there.
func TestResident(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n, slots = 6, 3
		h := newHoldings(slots, n)
		for a := range int32(n) {
			if rapid.Bool().Draw(t, "held") {
				h.add(a)
			}
			if h.rows[a].held && rapid.Bool().Draw(t, "used") {
				h.used(a)
			}
		}
		running := rapid.Int32Range(0, n-1).Draw(t, "running")
		h.view.Adapters[running].Running = 1
		h.updateSlots()
		ran := h.view.Adapters[running].Tier == router.GPU
		told := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "told")
		h.resident(func(a int32) bool { return told[a] })
		if err := checkHoldings(h); err != nil {
			t.Fatal(err)
		}
		named := 0
		for _, a := range h.held {
			in := told[a] || a == running && ran
			if in {
				named++
			} else if h.view.Adapters[a].Tier == router.GPU {
				t.Fatalf("adapter %d is in a slot, told %v", a, told)
			}
		}
		if want := min(named, slots); h.view.SlotsUsed != want {
			t.Fatalf("%d slots used, expected %d", h.view.SlotsUsed, want)
		}
		if len(h.held) > 0 {
			a := h.held[0]
			if h.used(a); h.view.Adapters[a].Tier != router.GPU {
				t.Fatalf("adapter %d is in no slot after its use", a)
			}
		}
	})
}
