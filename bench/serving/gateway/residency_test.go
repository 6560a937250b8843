package gateway_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
)

// A worker that reports which adapters are in its slots is believed: the uses of other clients count.
func TestReportedSlots(t *testing.T) {
	inMemory(t, func(t *memory) {
		w := newTestWorker(t, httpapi.VLLM, emulate.Adapter{Name: "a", Path: "a-r8"},
			emulate.Adapter{Name: "b", Path: "b-r8"})
		srv := newGateway(t, "least-loaded", nil, w)
		for _, c := range []struct {
			url, model string
			want       []string
		}{{srv.URL, "a", []string{"a"}}, {w.srv.URL, "b", []string{"a", "b"}}} {
			body := fmt.Sprintf(`{"model": %q, "prompt": [1], "max_tokens": 1}`, c.model)
			if status, text := post(t, c.url+"/v1/completions", body); status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			time.Sleep(time.Second)
			var state struct{ Workers []fleet.WorkerState }
			_, text := get(t, srv.URL+"/admin/workers")
			if err := json.Unmarshal([]byte(text), &state); err != nil || len(state.Workers) != 1 {
				t.Fatalf("%v: %s", err, text)
			}
			if k := state.Workers[0]; !slices.Equal(k.InSlots, c.want) || k.Activate <= 0 {
				t.Errorf("after %s: %v are in slots, expected %v; %v s to activate", c.model, k.InSlots, c.want,
					k.Activate)
			}
		}
	})
}
