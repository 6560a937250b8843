package explain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"lorasim/bench/scenario"
	"lorasim/internal/shareddata"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/sim/profile"
	"lorasim/trace/columnar"
)

func with(t *testing.T, settings string) *scenario.Scenario {
	t.Helper()
	sc := scenario.Default()
	sc.Files = columnar.Files()
	for _, set := range strings.Fields(settings) {
		key, value, _ := strings.Cut(set, "=")
		if err := sc.Set(key, value); err != nil {
			t.Fatal(err)
		}
	}
	return &sc
}

// TestCauses: one thing is short in each scenario; slow adapters wait most for it, and more of it is the cure.
func TestCauses(t *testing.T) {
	const vllm = "profile=llama-2-7b-rtx-4090-sglang-0.5 scheduler=vllm num_prompts=600 popularity=uniform "
	overloaded := 0
	for _, c := range []struct {
		name, settings string
		slow           int // adapters; -1: any number above 0
		cause          int
		cure           string
	}{
		{"nothing", vllm + "num_workers=8 num_adapters=4 request_rate=1", 0, 0, ""},
		{"slots", vllm + "num_workers=1 num_adapters=3 max_loras_per_batch=2 request_rate=1.5", -1, aSlot,
			"3 adapter slots instead of 2"},
		{"workers", vllm + "num_workers=1 num_adapters=2 max_loras_per_batch=2 request_rate=6", 2, fullWorkers,
			"1 worker more"},
		{"a blocked head", "profile=llama-2-7b-rtx-4090-sglang-0.5 head_of_line=block num_prompts=600 num_workers=1 " +
			"num_adapters=8 popularity=zipf:2 max_loras_per_batch=3 request_rate=1.6", -1, blockedHead, ""},
		{"routing", vllm + "policy=hash num_workers=4 num_adapters=1 max_loras_per_batch=1 request_rate=8", 1, routing,
			"policy plan-and-route"},
		{"overload", "profile=llama-2-7b-rtx-4090-sglang-0.5 num_workers=1 num_adapters=16 max_loras_per_batch=2 " +
			"num_prompts=2000 request_rate=4.5", 16, fullWorkers, ""},
	} {
		a, err := Find(t.Context(), with(t, c.settings), Options{Seeds: 2})
		if err != nil {
			t.Fatal(err)
		}
		slow := a.slow()
		if c.slow >= 0 && len(slow) != c.slow || c.slow < 0 && len(slow) == 0 {
			t.Errorf("%s: %d slow adapters, expected %d", c.name, len(slow), c.slow)
		}
		if len(slow) == 0 {
			continue
		}
		if !slices.ContainsFunc(slow, func(d *Adapter) bool { return d.cause() == c.cause }) {
			t.Errorf("%s: %s waits for %v, expected most for %s", c.name, slow[0].Name, slow[0].WaitsFor,
				causeNames[c.cause])
		}
		if c.cure != "" && (a.Cure == nil || a.Cure.Text != c.cure) {
			t.Errorf("%s: cure %v, expected %s", c.name, a.Cure, c.cure)
		}
		if a.Cure != nil && a.Cure.SlowTTFT > cured*a.SlowTTFT {
			t.Errorf("%s: the cure leaves %v of %v ms", c.name, a.Cure.SlowTTFT, a.SlowTTFT)
		}
		if a.isOverloaded() {
			overloaded++
			if a.Cure != nil && a.Cure.Overloaded == a.Seeds {
				t.Errorf("%s: overloaded even with %s", c.name, a.Cure)
			}
		}
	}
	if overloaded == 0 {
		t.Error("no scenario is overloaded")
	}
}

// TestWaitsAreTTFT: what requests wait for, and their own steps, are their TTFT: waits are below it, and where nothing
// but a queue makes requests slow, most of it.
func TestWaitsAreTTFT(t *testing.T) {
	a, err := Find(t.Context(), with(t, "num_workers=1 num_adapters=16 max_loras_per_batch=2 request_rate=1.5"),
		Options{Seeds: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range a.Adapters {
		d := &a.Adapters[i]
		if d.wait() > d.TTFT || d.wait() < 0.9*d.TTFT {
			t.Errorf("%s waits %v ms of a mean TTFT of %v", d.Name, d.wait(), d.TTFT)
		}
		sum := 0.0
		for _, k := range slices.Sorted(maps.Keys(d.WaitsFor)) {
			sum += d.WaitsFor[k]
		}
		if math.Abs(sum-d.wait()) > 1e-6*sum {
			t.Errorf("%s: the causes sum up to %v ms, the waits are %v", d.Name, sum, d.wait())
		}
	}
}

// TestHolders: adapter 2 waits for one of two slots, in which 0 and 1 run, for 3 s.
func TestHolders(t *testing.T) {
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	p.Engine.MaxLorasPerBatch = 2
	worker := func() router.Worker {
		return router.Worker{Up: true, MaxRunning: 8, Slots: 2, Running: 3, Queued: 2, ActiveLoras: 2,
			Adapters: []router.AdapterState{{Running: 2, Tier: router.GPU}, {Running: 1, Tier: router.GPU},
				{Queued: 2, Tier: router.Host}}}
	}
	o := newObserver([]*profile.Profile{p, p}, 3)
	busy := router.Worker{Up: true, MaxRunning: 8, Slots: 2, Queued: 1, Adapters: make([]router.AdapterState, 3)}
	o.state(3, &router.View{Workers: []router.Worker{worker(), busy}})
	got := &o.adapters[2+1]
	if got.causes[aSlot] != 6 || got.holders[0] != 3 || got.holders[1] != 3 {
		t.Errorf("%v, held by %v; expected 6 request-seconds for a slot, half by 0 and half by 1", got.causes,
			got.holders)
	}
	// with room on the other worker, the router could have sent them there
	busy.Queued = 0
	o.state(1, &router.View{Workers: []router.Worker{worker(), busy}})
	if got.causes[routing] != 2 || got.causes[aSlot] != 6 {
		t.Errorf("%v, expected 2 more for a full worker while another has room", got.causes)
	}
}

// TestMap: an adapter each for itself needs no more slots than adapters; more load or a flatter popularity does not
// need fewer.
func TestMap(t *testing.T) {
	m, err := NewMap(t.Context(), with(t,
		"num_workers=1 num_adapters=6 max_loras_per_batch=2 request_rate=1 num_prompts=400 popularity=zipf:1.6"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range m.Rows {
		for i, n := range r.Least {
			if n < 1 || n > 6 || i > 0 && !r.Full[i] && n < r.Least[i-1] {
				t.Errorf("%s: %v slots for %v requests/s", r.Popularity, r.Least, m.Rates)
			}
		}
	}
	if m.Rows[0].Popularity != "zipf:1.6" || m.Rows[1].Popularity != "uniform" ||
		m.Rows[0].Least[1] > m.Rows[1].Least[1] {
		t.Errorf("%+v: zipf:1.6 needs more slots than uniform", m.Rows)
	}
	trace := with(t, "max_loras_per_batch=2 num_adapters=1 trace_name=azure_llm")
	if _, err := NewMap(t.Context(), trace, nil); err == nil {
		t.Error("a map of a trace")
	}
}

// TestMeasuredStarvation holds the answer against measured runs of vLLM with 3 adapters and 1 to 3 slots: the runs that
// starve are those that it says do, and a slot for each adapter is the cure. The profile is computed, so that TTFTs are
// held within a factor of 3.
func TestMeasuredStarvation(t *testing.T) {
	dir := shareddata.Path(t, "vllm_slots_a100")
	for run, mean := range measuredRuns(t, dir) {
		slots := slotsOf(t, run)
		file := filepath.Join(t.TempDir(), "run.csv")
		if err := os.WriteFile(file, requestsOf(t, dir, run), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Find(t.Context(), with(t, fmt.Sprintf(
			"profile=analytic:llama-2-7b,a100-80gb num_workers=1 scheduler=vllm max_lora_rank=64 "+
				"max_loras_per_batch=%d file=%s",
			slots, file)), Options{Seeds: 1})
		if err != nil {
			t.Fatal(err)
		}
		starves := mean > 1000
		if got := len(a.slow()) > 0; got != starves {
			t.Errorf("%s: measured mean TTFT %v ms, slow adapters: %v", run, mean, got)
			continue
		}
		if !starves {
			continue
		}
		if ratio := a.TTFT / mean; ratio < 1.0/3 || ratio > 3 {
			t.Errorf("%s: mean TTFT %v ms, measured %v", run, a.TTFT, mean)
		}
		if top := a.slow()[0].cause(); top != aSlot || a.Cure == nil || a.Cure.TTFT > 500 ||
			!strings.Contains(a.Cure.Text, fmt.Sprintf("instead of %d", slots)) &&
				!strings.Contains(a.Cure.Text, "merged into the base model of all workers") {
			t.Errorf("%s: waits for %s, cure %v", run, causeNames[top], a.Cure)
		}
	}
}

// TestText: the answer begins with at most five lines, and JSON has what they state.
func TestText(t *testing.T) {
	sc := with(t, "num_workers=1 num_adapters=16 max_loras_per_batch=2 request_rate=1.5 num_prompts=500")
	a, err := Find(t.Context(), sc, Options{Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := a.WriteText(&b, false); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) > 5 || !strings.HasPrefix(lines[0], "Slow") || !strings.HasPrefix(lines[1], "Because") ||
		!strings.Contains(b.String(), "\nCure ") {
		t.Errorf("%s", b.String())
	}
	text, err := json.Marshal(a)
	if err != nil || !bytes.Contains(text, []byte(`"waits_ms":{`)) ||
		!bytes.Contains(text, []byte(strconv.Quote(a.Cure.Text))) {
		t.Errorf("%s (%v)", text, err)
	}
}
