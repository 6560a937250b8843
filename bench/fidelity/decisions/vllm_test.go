package decisions

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

const recordedVLLM = "testdata/vllm"

func TestVLLM(t *testing.T) {
	r, err := VLLMSteps(context.Background(), recordedVLLM)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Cases: 6, Exact: 6}); r.Summary != want || r.Err() != nil {
		var b strings.Builder
		_ = r.WriteText(&b)
		t.Errorf("%+v, expected %+v:\n%s", r.Summary, want, &b)
	}
}

// Asynchronous scheduling and version 0.33.
func TestVLLMAsync(t *testing.T) {
	r, err := VLLMSteps(context.Background(), "testdata/vllm-async")
	if err != nil {
		t.Fatal(err)
	}
	if want := (Summary{Cases: 9, Exact: 9}); r.Summary != want {
		var b strings.Builder
		_ = r.WriteText(&b)
		t.Errorf("%+v, expected %+v:\n%s", r.Summary, want, &b)
	}
	steps := 0
	for _, c := range r.Cases {
		steps += c.Steps
	}
	if steps < 1000 {
		t.Errorf("%d steps, expected thousands", steps)
	}
}

// A recording of asynchronous steps that is off in one figure, or ends too early, is found out.
func TestVLLMAsyncDifference(t *testing.T) {
	const path = "testdata/vllm-async/async33p-06"
	data, err := os.ReadFile(path + ".case.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parseVLLMCase(data)
	if err != nil {
		t.Fatal(err)
	}
	for at, change := range map[int]func(s []vllmStep) []vllmStep{
		9:  func(s []vllmStep) []vllmStep { s[9].Free++; return s },
		14: func(s []vllmStep) []vllmStep { s[14].Running++; return s },
		20: func(s []vllmStep) []vllmStep { return s[:20] },
	} {
		want, err := readVLLMSteps(t.Context(), path+".steps.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if d, err := c.compare(change(want)); err != nil || d == nil || d.Step != at {
			t.Errorf("difference %+v, error %v; expected one at step %d", d, err, at)
		}
	}
}

// Every shared case is exact, half of them with prefix caches.
func TestVLLMShared(t *testing.T) {
	r, err := VLLMSteps(context.Background(), shareddata.Path(t, "vllm_steps"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Cases {
		if !c.Exact {
			t.Errorf("case %s: %s", c.Name, c.result())
		}
	}
	if r.Summary.Exact < 40 {
		t.Errorf("%+v, expected 40 exact cases", r.Summary)
	}
}

// copyCase copies a recorded case to a folder of its own, its steps changed.
func copyCase(t *testing.T, name string, change func(steps []map[string]any) []map[string]any) string {
	t.Helper()
	dir := t.TempDir()
	data, err := os.ReadFile(filepath.Join(recordedVLLM, name+".case.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x.case.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(filepath.Join(recordedVLLM, name+".steps.jsonl")); err != nil {
		t.Fatal(err)
	}
	var steps []map[string]any
	for line := range bytes.Lines(data) {
		var s map[string]any
		if err := json.Unmarshal(line, &s); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	var out bytes.Buffer
	for _, s := range change(steps) {
		if err := json.NewEncoder(&out).Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "x.steps.jsonl"), out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A recording that is off in one figure is found out, at its step and field.
func TestVLLMDifference(t *testing.T) {
	for field, wrong := range map[string]any{
		"tokens": map[string]int{"0": 1}, "computed": map[string]int{"0": 16}, "new": []string{"77"},
		"resumed":   []string{"77"},
		"preempted": []string{"77"}, "finished": []string{"77"}, "running": 99, "waiting": 99, "skipped": 99,
		"free": 99,
	} {
		t.Run(field, func(t *testing.T) {
			dir := copyCase(t, "preemption", func(s []map[string]any) []map[string]any {
				s[5][field] = wrong
				return s
			})
			r, err := VLLMSteps(context.Background(), dir)
			if err != nil {
				t.Fatal(err)
			}
			d := r.Cases[0].FirstDifference
			if d == nil || d.Step != 5 || r.Cases[0].Exact || r.Err() == nil {
				t.Fatalf("%+v with difference %+v, expected one at step 5", r.Cases[0], d)
			}
			in := strings.Replace(field, "skipped", "waiting", 1) // compared together
			if got := d.Expected.(map[string]any); len(got) != 1 || got[in] == nil {
				t.Errorf("expected %v, got %v, expected the field %s alone", d.Expected, d.Got, in)
			}
		})
	}
	dir := copyCase(t, "preemption", func(s []map[string]any) []map[string]any { return s[:len(s)-1] })
	r, err := VLLMSteps(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Cases[0].FirstDifference; d == nil || d.Step != r.Cases[0].Steps {
		t.Errorf("difference %+v where the last step is missing", d)
	}
}

// ends notes when requests end, in whole seconds.
type ends map[int64]int

func (e ends) Done(r *record.Request) { e[r.ID] = int(r.Finish + 0.5) }
func (ends) Tokens(tick.Ticks, int64) {}
func (ends) Steps(record.Steps)       {}
func (ends) Gap(tick.Ticks, int64)    {}
func (c *vllmCase) source() trace.Source {
	w := trace.Workload{}
	for _, r := range c.Requests {
		q := trace.Request{ID: r.ID, Arrival: float64(r.Step), Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output}
		if c.MaxLoras == 0 {
			q.Adapter = trace.BaseModel
		}
		for len(w.Adapters) <= int(q.Adapter) {
			w.Adapters = append(w.Adapters, trace.Adapter{Name: string(rune('a' + len(w.Adapters))), Rank: 8})
			if i := len(w.Adapters) - 1; i < len(c.Priorities) {
				w.Adapters[i].Priority = c.Priorities[i]
			}
		}
		w.Requests = append(w.Requests, q)
	}
	return w.Source()
}

type only struct{ router.Base }

func (p only) Route(r router.Request, v *router.View) router.Decision { return router.To(p.pick(r, v)) }

func (p only) pick(router.Request, *router.View) int { return 0 }

// The engine that leaps over decode steps ends every request in the step in
// which vLLM did: steps take a second each, loads no time.
func TestVLLMLeaps(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(recordedVLLM, "*.case.json"))
	if shared, _ := filepath.Glob(filepath.Join(shareddata.Dir(), "vllm_steps", "*.case.json")); err == nil {
		paths = append(paths, shared...)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c, err := parseVLLMCase(data)
		if err != nil {
			t.Fatal(err)
		}
		if c.PrefixCaching {
			continue
		}
		steps, err := readVLLMSteps(t.Context(), strings.TrimSuffix(path, ".case.json")+".steps.jsonl")
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(steps, func(s vllmStep) bool { return len(s.Preempted) > 0 && len(s.Tokens) == 0 }) {
			continue // such a step takes no time
		}
		p := c.profile()
		p.Adapters.BytesPerRank, p.Engine.MaxLoadedLoras = 0, 1000
		p.Adapters.HostToGPU.LatencyMs, p.Adapters.DiskToHost.LatencyMs = 0, 0
		got := ends{}
		if _, err := sim.Run(context.Background(),
			sim.Config{Source: c.source(), Workers: []*profile.Costs{p.Compile()},
				Router: &router.Router{Policy: only{}}, Observer: got, Home: router.Disk}); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range steps {
			for _, name := range s.Finished {
				n++
				var id int64
				if err := json.Unmarshal([]byte(name), &id); err != nil {
					t.Fatal(err)
				}
				if got[id] != s.Step+1 {
					t.Fatalf("%s: request %d ends at %d s, expected %d", path, id, got[id], s.Step+1)
				}
			}
		}
		if n != len(c.Requests) {
			t.Errorf("%s: %d of %d requests end", path, n, len(c.Requests))
		}
	}
}

func TestVLLMBadInput(t *testing.T) {
	const good = `{"max_num_seqs":1,"max_num_batched_tokens":8,"block_size":16,"num_blocks":9,"requests":[{"id":1,"step":0,"adapter":-1,"parts":[[1,3]],"output":2}]}`
	if _, err := parseVLLMCase([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"num_blocks":9`, `"num_blocks":1`, "num_blocks"},
		{`"block_size":16`, `"block_size":0`, "block_size"},
		{`"max_num_seqs":1`, `"policy":"vtc"`, "fcfs or priority"},
		{`"step":0`, `"step":-1`, "step >= 0"},
		{`"adapter":-1`, `"adapter":-2`, "adapter -1"},
		{`"output":2`, `"output":0`, "output >= 1"},
		{`"output":2`, `"output":2,"max_tokens":1`, "expected >= output"},
		{`[[1,3]]`, `[]`, "0 tokens"},
		{`[[1,3]]`, `[[1,-3],[1,9]]`, "-1 tokens"},
		{`"requests":[`, `"requests":[{"id":1,"step":0,"adapter":0,"parts":[[1,3]],"output":2},`, "twice"},
		{`{"max`, `["max`, "invalid"},
	} {
		bad := strings.Replace(good, c.old, c.new, 1)
		if _, err := parseVLLMCase([]byte(bad)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, expected one on %q", bad, err, c.want)
		}
	}
	if _, err := VLLMSteps(context.Background(), t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), "no NAME.case.json") {
		t.Errorf("an empty folder: %v", err)
	}
	dir := copyCase(t, "budget", func(s []map[string]any) []map[string]any { return s[1:] })
	if _, err := VLLMSteps(context.Background(), dir); err == nil ||
		!strings.Contains(err.Error(), "x.steps.jsonl:1: step 1, expected 0") {
		t.Errorf("steps that begin at 1: %v", err)
	}
}

// No input of a case makes the reader or the engine panic.
func FuzzVLLMCase(f *testing.F) {
	f.Add([]byte(
		`{"max_loras":1,"max_num_seqs":2,"max_num_batched_tokens":8,"block_size":4,"num_blocks":5,"long_prefill_token_threshold":3,"requests":[{"id":1,"step":0,"adapter":0,"parts":[[1,9]],"output":4},{"id":2,"step":1,"adapter":1,"parts":[[1,3]],"output":2}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseVLLMCase(data)
		if err != nil || len(c.Requests) > 20 || c.MaxLoras > 1000 || c.NumBlocks > 1000 || c.BlockSize > 64 {
			return
		}
		for _, r := range c.Requests {
			if r.Adapter > 1000 {
				return
			}
		}
		_, _ = c.compare(make([]vllmStep, 50))
	})
}
