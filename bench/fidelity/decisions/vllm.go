package decisions

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/textfile"
	simengine "lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
	"lorasim/trace"
)

const vllmEnding = ".case.json"

// vllmCase is a case of vLLM's scheduler, NAME.case.json.
type vllmCase struct {
	MaxLoras                  int       `json:"max_loras"` // 0: adapters are ignored
	MaxNumSeqs                int       `json:"max_num_seqs"`
	MaxNumBatchedTokens       int       `json:"max_num_batched_tokens"`
	MaxModelLen               int       `json:"max_model_len"`
	BlockSize                 int       `json:"block_size"`
	NumBlocks                 int64     `json:"num_blocks"` // includes the null block, which holds no tokens
	PrefixCaching             bool      `json:"prefix_caching"`
	LongPrefillTokenThreshold int       `json:"long_prefill_token_threshold"`
	Policy                    string    `json:"policy"`       // fcfs (or "") or priority
	Priorities                []int     `json:"priorities"`   // by adapter; 0 for the base model
	VLLMVersion               string    `json:"vllm_version"` // version whose rules apply; "": 0.32
	AsyncScheduling           bool      `json:"async_scheduling"`
	Requests                  []request `json:"requests"`
}

// vllmStep is a line of NAME.steps.jsonl. Requests are identified by their ID.
type vllmStep struct {
	Step      int             `json:"step"`
	Tokens    map[int64]int32 `json:"tokens"`
	New       []string        `json:"new"`
	Resumed   []string        `json:"resumed"`
	Preempted []string        `json:"preempted"` // sorted
	Finished  []string        `json:"finished"`
	Running   int             `json:"running"`
	Waiting   int             `json:"waiting"`
	Skipped   int             `json:"skipped"`
	Free      int64           `json:"free"`
	Computed  map[int64]int32 `json:"computed"`
}

// VLLMSteps compares the simulated scheduler with the recorded steps of vLLM's. The cases are the files
// NAME.case.json with NAME.steps.jsonl of a folder.
func VLLMSteps(ctx context.Context, dir string) (*Report, error) {
	return runFolder(ctx, dir, vllmEnding, runVLLM)
}

func runVLLM(ctx context.Context, path string, data []byte) (out Case, err error) {
	c, err := parseVLLMCase(data)
	if err != nil {
		return out, err
	}
	want, err := readVLLMSteps(ctx, strings.TrimSuffix(path, vllmEnding)+".steps.jsonl")
	if err != nil {
		return out, err
	}
	out.Steps = len(want)
	out.FirstDifference, err = c.compare(want)
	return out, err
}

// parseVLLMCase reads a case and checks it.
func parseVLLMCase(data []byte) (*vllmCase, error) {
	c := vllmCase{MaxModelLen: 4096}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	if c.MaxLoras < 0 || c.NumBlocks < 2 || c.NumBlocks > 1<<40 || c.LongPrefillTokenThreshold < 0 || c.BlockSize < 1 ||
		c.BlockSize > 1<<16 {
		return nil, errors.New(
			"expected max_loras and long_prefill_token_threshold >= 0, block_size 1 to 65536, num_blocks 2 to 2^40")
	}
	if c.Policy != "" && c.Policy != profile.OrderFCFS && c.Policy != profile.OrderPriority {
		return nil, fmt.Errorf("policy is %q, expected fcfs or priority", c.Policy)
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		n := int64(0)
		for _, p := range r.Parts {
			if n += p[1]; p[1] < 0 || p[1] > 1<<30 || n > 1<<30 {
				n = -1
				break
			}
		}
		if n < 1 {
			return nil, fmt.Errorf("request %d: the parts have %d tokens, expected 1 to 2^30", r.ID, n)
		}
		if r.Prompt = int32(n); c.MaxLoras == 0 {
			r.Adapter = min(r.Adapter, trace.BaseModel)
		}
	}
	slices.SortFunc(c.Requests, func(a, b request) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.ID, b.ID))
	})
	return &c, checkRequests(c.Requests)
}

// readVLLMSteps reads the steps of a case, and unpacks them with gzip if the file name requires it.
func readVLLMSteps(ctx context.Context, path string) ([]vllmStep, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		path += ".gz"
	}
	text, err := textfile.OpenText(ctx, nil, path, nil)
	if err != nil {
		return nil, err
	}
	defer text.Close()
	data, err := io.ReadAll(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var steps []vllmStep
	for line := range bytes.Lines(data) {
		var s vllmStep
		err := json.Unmarshal(line, &s)
		if err == nil && s.Step != len(steps) {
			err = fmt.Errorf("step %d, expected %d", s.Step, len(steps))
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", filepath.Base(path), len(steps)+1, err)
		}
		slices.Sort(s.Finished)
		steps = append(steps, s)
	}
	return steps, nil
}

// profile returns the engine of the case. Steps take an arbitrary constant time: no rule of the
// scheduler depends on time.
func (c *vllmCase) profile() *profile.Profile {
	p := profile.Default()
	p.Name = "steps"
	p.Latency.Decode.BaseMs, p.Latency.Prefill.BaseMs = 1000, 1000
	p.Memory.KVTokens = (c.NumBlocks - 1) * int64(c.BlockSize)
	e := &p.Engine
	if c.AsyncScheduling { // two steps may be formed at one time
		p.Latency.FrontEnd, e.AdapterLoading = profile.FrontEnd{}, profile.LoadBlocking
	}
	e.Scheduler, e.ContextOverflow = profile.SchedulerVLLM, profile.OverflowPrompt
	e.MaxLorasPerBatch = max(c.MaxLoras, 1)
	e.MaxRunningRequests, e.MaxNumBatchedTokens = c.MaxNumSeqs, c.MaxNumBatchedTokens
	e.LongPrefillTokenThreshold = c.LongPrefillTokenThreshold
	e.PrefixCache, e.SchedulePolicy = c.PrefixCaching, c.Policy
	e.ContextLength, e.PageSize = c.MaxModelLen, c.BlockSize
	e.AsyncScheduling, e.VLLMVersion = c.AsyncScheduling, c.VLLMVersion
	return &p
}

// compare steps the simulated scheduler through the case and returns the first
// difference, nil if there is none.
func (c *vllmCase) compare(want []vllmStep) (*Difference, error) {
	p := c.profile()
	if err := p.Check(); err != nil {
		return nil, err
	}
	e, err := newEngine(p, c.Requests, c.Priorities, func(*request) int64 { return sampled })
	if err != nil {
		return nil, err
	}
	if c.AsyncScheduling {
		return c.compareAsync(e, want)
	}
	e.add(0)
	e.Advance(0)
	left := len(c.Requests)
	for i, w := range want {
		g, err := c.step(e, i)
		if err != nil {
			return nil, err
		}
		left -= len(g.Finished)
		if d := difference(i, &w, g); d != nil {
			return d, nil
		}
	}
	if left > 0 {
		return &Difference{Step: len(want), Expected: "the end", Got: fmt.Sprintf("%d requests left", left)}, nil
	}
	return nil, nil
}

// step carries out step i. A step with nothing to do counts too.
func (c *vllmCase) step(e *engine, i int) (*vllmStep, error) {
	e.steps, e.ended = nil, nil
	v := e.View() // the view if there is nothing to do
	got := &vllmStep{Running: v.Running, Waiting: v.Queued, Free: (v.KVCapacity - v.KVUsed) / int64(c.BlockSize),
		Tokens: map[int64]int32{}, Computed: map[int64]int32{}}
	end := e.Next()
	if end == tick.Never {
		end = e.Now()
	}
	if e.add(i + 1); e.err != nil { // requests that arrive between the end of this step and the next one
		return nil, e.err
	}
	if e.Advance(end); e.failed != nil {
		return nil, e.failed
	}
	if n := len(e.steps); n > 0 {
		got = vllmStepOf(e.steps[n-1])
	}
	got.Finished = append([]string{}, names(e.ended)...)
	slices.Sort(got.Preempted)
	slices.Sort(got.Finished)
	return got, nil
}

func vllmStepOf(s *simengine.Report) *vllmStep {
	return &vllmStep{New: names(s.New), Resumed: names(s.Resumed), Preempted: names(s.Preempted),
		Running: s.Running, Waiting: s.Waiting, Free: s.FreePages, Tokens: s.Tokens, Computed: s.Computed}
}

// compareAsync is compare with asynchronous scheduling: a step forms a batch, and ends the previous
// one. The engine takes no steps if it has nothing to do.
func (c *vllmCase) compareAsync(e *engine, want []vllmStep) (*Difference, error) {
	var got []*vllmStep
	v := e.View()
	idle := func() *vllmStep {
		return &vllmStep{Running: v.Running, Waiting: v.Queued, Free: (v.KVCapacity - v.KVUsed) / int64(c.BlockSize)}
	}
	e.next = func(int) {
		s := vllmStepOf(e.steps[len(e.steps)-1])
		s.Finished = names(e.ended)
		e.ended = nil
		slices.Sort(s.Preempted)
		slices.Sort(s.Finished)
		got = append(got, s)
		e.now = true
		e.add(len(got))
		e.now = false
	}
	for e.add(0); e.err == nil && e.failed == nil && len(got) <= len(want); {
		t := e.Next()
		if t == tick.Never {
			if len(e.todo) == 0 {
				break
			}
			for len(got) < e.todo[0].Step {
				got = append(got, idle())
			}
			e.add(len(got))
			t = e.Now()
		}
		e.Advance(t)
	}
	if err := errors.Join(e.err, e.failed); err != nil {
		return nil, err
	}
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return &Difference{Step: i, Expected: want[i], Got: "the end"}, nil
		case i >= len(want):
			return &Difference{Step: i, Expected: "the end", Got: got[i]}, nil
		}
		if d := difference(i, &want[i], got[i]); d != nil {
			return d, nil
		}
	}
	return nil, nil
}

// sampled is the seed of the sampled tokens of every step.
const sampled = -1

func names(ids []int64) (s []string) {
	for _, id := range ids {
		s = append(s, strconv.FormatInt(id, 10))
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
