package steps

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/record"
	"lorasim/internal/tick"
	"lorasim/router"
	"lorasim/sim"
	"lorasim/sim/profile"
	"lorasim/trace"
)

// vllmCase is a case of vLLM's scheduler, NAME.case.json.
type vllmCase struct {
	MaxLoras                  int           `json:"max_loras"` // 0: adapters are ignored
	MaxNumSeqs                int           `json:"max_num_seqs"`
	MaxNumBatchedTokens       int           `json:"max_num_batched_tokens"`
	MaxModelLen               int           `json:"max_model_len"`
	BlockSize                 int           `json:"block_size"`
	NumBlocks                 int64         `json:"num_blocks"` // one of them, the null block, holds nothing
	PrefixCaching             bool          `json:"prefix_caching"`
	LongPrefillTokenThreshold int           `json:"long_prefill_token_threshold"`
	Requests                  []vllmRequest `json:"requests"`
}

// vllmRequest is a request of a case; it is added before step Step.
type vllmRequest struct {
	ID      int64      `json:"id"`
	Step    int        `json:"step"`
	Adapter int32      `json:"adapter"` // -1: none
	Parts   [][2]int64 `json:"parts"`   // seed and tokens of each part of the prompt
	Output  int32      `json:"output"`
}

// vllmStep is a line of NAME.steps.jsonl; requests go by their ID.
type vllmStep struct {
	Step      int              `json:"step"`
	Tokens    map[string]int32 `json:"tokens"`
	New       []string         `json:"new"`
	Resumed   []string         `json:"resumed"`
	Preempted []string         `json:"preempted"` // sorted
	Finished  []string         `json:"finished"`
	Running   int              `json:"running"`
	Waiting   int              `json:"waiting"`
	Skipped   int              `json:"skipped"`
	Free      int64            `json:"free"`
	Computed  map[string]int32 `json:"computed"`
}

// VLLM holds the simulated scheduler against the steps of vLLM's in a folder of
// cases, NAME.case.json with NAME.steps.jsonl.
func VLLM(ctx context.Context, dir string) (*Report, error) {
	return runFolder(ctx, dir, ".case.json", runVLLM)
}

func runVLLM(path string) (Case, error) {
	var out Case
	data, err := os.ReadFile(path)
	if err != nil {
		return out, err
	}
	c, err := parseVLLMCase(data)
	if err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	recorded := strings.TrimSuffix(path, ".case.json") + ".steps.jsonl"
	want, err := readVLLMSteps(recorded)
	if err != nil {
		return out, err
	}
	out.Steps = len(want)
	if c.PrefixCaching {
		out.Skipped, out.Reason = true, "needs prefix caching"
		return out, nil
	}
	if out.FirstDifference, err = c.compare(want); err != nil {
		return out, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// parseVLLMCase reads a case and checks it.
func parseVLLMCase(data []byte) (*vllmCase, error) {
	c := vllmCase{MaxModelLen: 4096}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if c.MaxLoras < 0 || c.NumBlocks < 2 || c.NumBlocks > 1<<40 || c.LongPrefillTokenThreshold < 0 || c.BlockSize < 1 || c.BlockSize > 1<<16 {
		return nil, errors.New("expected max_loras and long_prefill_token_threshold >= 0, block_size 1 to 65536, num_blocks 2 to 2^40")
	}
	ids := map[int64]bool{}
	for _, r := range c.Requests {
		switch {
		case ids[r.ID]:
			return nil, fmt.Errorf("request %d is there twice", r.ID)
		case r.Step < 0 || r.Adapter < -1 || r.Output < 1 || r.Adapter > 1<<20:
			return nil, fmt.Errorf("request %d: expected step >= 0, adapter -1 to 2^20, output >= 1", r.ID)
		case r.prompt() < 1 || r.prompt() > 1<<30:
			return nil, fmt.Errorf("request %d: the parts have %d tokens, expected 1 to 2^30", r.ID, r.prompt())
		}
		ids[r.ID] = true
	}
	slices.SortFunc(c.Requests, func(a, b vllmRequest) int {
		if a.Step != b.Step {
			return a.Step - b.Step
		}
		return int(a.ID - b.ID)
	})
	return &c, nil
}

// prompt is the number of prompt tokens, -1 if a part is out of range.
func (r *vllmRequest) prompt() (n int64) {
	for _, p := range r.Parts {
		if p[1] < 0 || p[1] > 1<<30 || n > 1<<30 {
			return -1
		}
		n += p[1]
	}
	return n
}

func readVLLMSteps(path string) ([]vllmStep, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var steps []vllmStep
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<24)
	for sc.Scan() {
		var s vllmStep
		if err := json.Unmarshal(sc.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, len(steps)+1, err)
		}
		if s.Step != len(steps) {
			return nil, fmt.Errorf("%s:%d: step %d, expected %d", path, len(steps)+1, s.Step, len(steps))
		}
		slices.Sort(s.Finished)
		steps = append(steps, s)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return steps, nil
}

// compare steps the simulated scheduler through the case and returns the first
// difference, nil if there is none.
func (c *vllmCase) compare(want []vllmStep) (*Difference, error) {
	p := c.profile()
	if err := p.Check(); err != nil {
		return nil, err
	}
	e := &vllmEngine{todo: c.Requests, lora: c.MaxLoras > 0, blockSize: int64(c.BlockSize)}
	adapters := 0
	for _, r := range c.Requests {
		adapters = max(adapters, int(r.Adapter)+1)
	}
	var err error
	e.server, err = sim.NewServer(sim.ServerConfig{Costs: p.Compile(), Listener: e, MaxAdapters: adapters, Home: router.Disk})
	if err != nil {
		return nil, err
	}
	for i, w := range want {
		g, err := e.step(i)
		if err != nil {
			return nil, err
		}
		if d := difference(i, &w, g); d != nil {
			return d, nil
		}
	}
	if e.live > 0 || len(e.todo) > 0 {
		return &Difference{Step: len(want), Expected: "the end", Got: fmt.Sprintf("%d requests left", e.live+len(e.todo))}, nil
	}
	return nil, nil
}

// profile is the engine of the case. Steps take any constant time: no rule of
// the scheduler looks at a clock.
func (c *vllmCase) profile() *profile.Profile {
	p := profile.Default()
	p.Name = "steps"
	p.Latency.Decode.BaseMs, p.Latency.Prefill.BaseMs = 1000, 1000
	p.Memory.KVTokens = (c.NumBlocks - 1) * int64(c.BlockSize)
	e := &p.Engine
	e.Scheduler, e.ContextOverflow = profile.SchedulerVLLM, profile.OverflowPrompt
	e.MaxLorasPerBatch = max(c.MaxLoras, 1)
	e.MaxRunningRequests, e.MaxNumBatchedTokens = c.MaxNumSeqs, c.MaxNumBatchedTokens
	e.LongPrefillTokenThreshold = c.LongPrefillTokenThreshold
	e.ContextLength, e.PageSize = c.MaxModelLen, c.BlockSize
	return &p
}

// vllmEngine drives a simulated worker step by step.
type vllmEngine struct {
	server    *sim.Server
	todo      []vllmRequest // not added yet
	lora      bool
	blockSize int64
	live      int

	last     *sim.Step // the step that has just ended
	finished []string
	failed   error
}

func (e *vllmEngine) Token(int64, tick.Ticks) {}

func (e *vllmEngine) Step(s *sim.Step) { e.last = s }

func (e *vllmEngine) Ended(id int64, status record.Status, reason string, _ tick.Ticks) {
	e.live--
	e.finished = append(e.finished, name(id))
	if status != record.OK && e.failed == nil {
		e.failed = fmt.Errorf("request %d: %s", id, reason)
	}
}

func name(id int64) string { return strconv.FormatInt(id, 10) }

// add submits the requests that come before step i.
func (e *vllmEngine) add(i int) error {
	for len(e.todo) > 0 && e.todo[0].Step <= i {
		r := e.todo[0]
		e.todo = e.todo[1:]
		e.live++
		q := trace.Request{ID: r.ID, Adapter: r.Adapter, Prompt: int32(r.prompt()), Output: r.Output}
		if !e.lora {
			q.Adapter = trace.BaseModel
		}
		if err := e.server.Submit(q); err != nil {
			return err
		}
	}
	return nil
}

// step carries out step i. A step with nothing to do counts too.
func (e *vllmEngine) step(i int) (*vllmStep, error) {
	if i == 0 {
		if err := e.add(0); err != nil {
			return nil, err
		}
		e.server.Advance(0)
	}
	e.last, e.finished = nil, []string{}
	got := &vllmStep{Step: i, Tokens: map[string]int32{}, Computed: map[string]int32{}}
	v := e.server.View() // stands if there is nothing to do
	got.Running, got.Waiting, got.Free = v.Running, v.Queued, (v.KVCapacity-v.KVUsed)/e.blockSize
	end := e.server.Next()
	if end == tick.Never {
		end = e.server.Now()
	}
	if err := e.add(i + 1); err != nil { // they come between the end of this step and the next
		return nil, err
	}
	e.server.Advance(end)
	if e.failed != nil {
		return nil, e.failed
	}
	if s := e.last; s != nil {
		got.New, got.Resumed, got.Preempted = names(s.New), names(s.Resumed), names(s.Preempted)
		got.Running, got.Waiting, got.Free = s.Running, s.Waiting, s.FreePages
		for id, n := range s.Tokens {
			got.Tokens[name(id)] = n
		}
		for id, n := range s.Computed {
			got.Computed[name(id)] = n
		}
	}
	got.Finished = e.finished
	slices.Sort(got.Preempted)
	slices.Sort(got.Finished)
	return got, nil
}

func names(ids []int64) []string {
	var s []string
	for _, id := range ids {
		s = append(s, name(id))
	}
	return s
}

// difference compares a step field by field.
func difference(step int, want, got *vllmStep) *Difference {
	w, g := map[string]any{}, map[string]any{}
	differ := func(field string, equal bool, a, b any) {
		if !equal {
			w[field], g[field] = a, b
		}
	}
	differ("tokens", maps.Equal(want.Tokens, got.Tokens), want.Tokens, got.Tokens)
	differ("computed", maps.Equal(want.Computed, got.Computed), want.Computed, got.Computed)
	differ("new", slices.Equal(want.New, got.New), want.New, got.New)
	differ("resumed", slices.Equal(want.Resumed, got.Resumed), want.Resumed, got.Resumed)
	differ("preempted", slices.Equal(want.Preempted, got.Preempted), want.Preempted, got.Preempted)
	differ("finished", slices.Equal(want.Finished, got.Finished), want.Finished, got.Finished)
	differ("running", want.Running == got.Running, want.Running, got.Running)
	differ("waiting", want.Waiting+want.Skipped == got.Waiting, want.Waiting+want.Skipped, got.Waiting)
	differ("free", want.Free == got.Free, want.Free, got.Free)
	if len(w) == 0 {
		return nil
	}
	return &Difference{Step: step, Expected: w, Got: g}
}
