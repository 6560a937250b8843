package decisions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	simengine "lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/tick"
)

// sglangCase is a case of sglang's scheduler, NAME.json. It has requests, in arrival order, and the
// logged batches. The requests were waiting when the server began, or arrived before batch Step.
type sglangCase struct {
	Flags map[string]*string `json:"flags"` // flags of the server; null: a flag without a value
	// IgnoreEOS reports whether the requests were sent with ignore_eos; absent: true. If it is
	// false, min_new_tokens fixes their lengths, but the scheduler cannot rely on them.
	IgnoreEOS *bool `json:"ignore_eos"`
	// OverlapSchedule says that the server ran without --disable-overlap-schedule. It logs a batch
	// when it forms the next one, and a retraction when it makes it. Requests arrive when Step
	// batches have been logged.
	OverlapSchedule bool `json:"overlap_schedule,omitempty"`

	Requests []request     `json:"requests"`
	Batches  []sglangBatch `json:"batches"`
	First    [][]int64     `json:"first"` // IDs in the order of their first tokens; a list has equal times
	// Priorities is by adapter, with --enable-priority-scheduling. The base model has priority 0.
	Priorities []int   `json:"priorities,omitempty"`
	Refused    []int64 `json:"refused,omitempty"` // IDs, with --max-queued-requests
}

// sglangBatch is a batch, or a log line about retracted requests.
type sglangBatch struct {
	Prefill   []int64 `json:"prefill,omitempty"` // new requests, new tokens, cached tokens, running, queued
	Decode    []int64 `json:"decode,omitempty"`  // running, tokens in the KV cache, queued
	IDs       []int64 `json:"ids,omitempty"`     // of the batch's requests, ascending; none: not recorded
	Log       string  `json:"log,omitempty"`
	Retracted int     `json:"retracted,omitempty"` // number of retracted requests in the log
}

// SGLangBatches compares the simulated scheduler with the recorded batches of sglang's. The cases are the
// files NAME.json of a folder.
func SGLangBatches(ctx context.Context, dir string) (*Report, error) {
	return runFolder(ctx, dir, ".json", runSGLang)
}

// SGLangOverlapBatches is like [SGLangBatches] for servers with the overlap schedule, even if the cases do not
// state it.
func SGLangOverlapBatches(ctx context.Context, dir string) (*Report, error) {
	return runFolder(ctx, dir, ".json", func(_ context.Context, _ string, data []byte) (Case, error) {
		c, err := parseSGLangCase(data)
		if err != nil {
			return Case{}, err
		}
		c.OverlapSchedule = true
		return c.run()
	})
}

func runSGLang(_ context.Context, _ string, data []byte) (Case, error) {
	c, err := parseSGLangCase(data)
	if err != nil {
		return Case{}, err
	}
	return c.run()
}

// run compares the simulated scheduler with the case.
func (c *sglangCase) run() (Case, error) {
	out := Case{Steps: len(c.Batches)}
	p, err := c.profile()
	if err != nil {
		return out, err
	}
	out.FirstDifference, err = c.compare(p)
	return out, err
}

// parseSGLangCase reads a case and checks it.
func parseSGLangCase(data []byte) (*sglangCase, error) {
	var c sglangCase
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, err
	}
	for i := range c.Batches {
		b := &c.Batches[i]
		if !(len(b.Prefill) == 5 && b.Decode == nil || len(b.Decode) == 3 && b.Prefill == nil ||
			b.Prefill == nil && b.Decode == nil && b.Log != "") {
			return nil, fmt.Errorf("batch %d: expected 5 numbers of a prefill, 3 of a decode, or a log line", i)
		}
		if _, after, ok := strings.Cut(b.Log, "#retracted_reqs: "); ok {
			n, _, _ := strings.Cut(after, ",")
			var err error
			if b.Retracted, err = strconv.Atoi(n); err != nil {
				return nil, fmt.Errorf("batch %d: %q: expected the number of retracted requests", i, b.Log)
			}
		}
		b.Log = ""
	}
	for i := range c.Requests {
		r := &c.Requests[i]
		r.Parts = nil
		if r.Shared != nil {
			r.Parts = append(r.Parts, *r.Shared)
		}
		r.Parts = append(r.Parts, [2]int64{own(r)}) // from the shared beginning to the end of the prompt
	}
	return &c, checkRequests(c.Requests)
}

// profile returns the engine of the case: the engine of the recordings, with the case's flags. The
// length of steps is arbitrary: no recorded rule depends on time.
func (c *sglangCase) profile() (*profile.Profile, error) {
	p := profile.Default()
	p.Name = "batches"
	p.Latency.Decode.BaseMs, p.Latency.Prefill.BaseMs = 10, 10
	p.Memory.KVTokens = 65536
	e := &p.Engine
	e.MaxLorasPerBatch, e.MaxLoadedLoras, e.MaxRunningRequests, e.ContextLength = 4, 0, 16, 2048
	e.IgnoreEOS, e.OverlapSchedule = c.IgnoreEOS == nil || *c.IgnoreEOS, c.OverlapSchedule
	conservativeness := 1.0
	numbers := map[string]*int{
		"--max-loras-per-batch": &e.MaxLorasPerBatch, "--max-running-requests": &e.MaxRunningRequests,
		"--max-prefill-tokens": &e.MaxPrefillTokens, "--context-length": &e.ContextLength,
		"--page-size": &e.PageSize, "--chunked-prefill-size": &e.ChunkedPrefillSize,
		"--max-queued-requests":                      &e.MaxQueuedRequests,
		"--priority-scheduling-preemption-threshold": &e.PreemptionThreshold,
	}
	for _, name := range slices.Sorted(maps.Keys(c.Flags)) {
		text := ""
		if v := c.Flags[name]; v != nil {
			text = *v
		}
		var err error
		switch to := numbers[name]; {
		case to != nil:
			*to, err = strconv.Atoi(text)
		case name == "--max-total-tokens":
			p.Memory.KVTokens, err = strconv.ParseInt(text, 10, 64)
		case name == "--schedule-conservativeness":
			conservativeness, err = strconv.ParseFloat(text, 64)
		case name == "--enable-mixed-chunk":
			e.MixedChunk = true
		case name == "--disable-overlap-schedule":
			e.OverlapSchedule = false
		case name == "--disable-radix-cache":
			e.DisableRadixCache = true
		case name == "--enable-priority-scheduling":
			e.SchedulePolicy = profile.OrderPriority
		case name == "--schedule-low-priority-values-first":
			e.LowPriorityFirst = true
		case name == "--disable-priority-preemption":
			e.NoPriorityPreemption = true
		default:
			return nil, fmt.Errorf("flag %s is not known", name)
		}
		if err != nil {
			return nil, fmt.Errorf("flag %s %s: expected a number", name, text)
		}
	}
	e.PrefixCache, e.PrefixEviction = !e.DisableRadixCache, profile.EvictNodes
	e.ChunkedPrefillSize = max(e.ChunkedPrefillSize, 0) // -1: no chunks
	e.NewTokenRatio = min(e.NewTokenRatio*conservativeness, 1)
	return &p, p.Check()
}

// compare runs the case and returns the first difference, nil if there is none.
func (c *sglangCase) compare(p *profile.Profile) (*Difference, error) {
	e, err := newEngine(p, c.Requests, c.Priorities, own)
	if err != nil {
		return nil, err
	}
	if err := c.play(e); err != nil {
		return nil, err
	}
	batches := c.batchesOf(e.steps, p)
	for i := range max(len(c.Batches), len(batches)) {
		var want, got sglangBatch
		if i < len(c.Batches) {
			want = c.Batches[i]
		}
		if i < len(batches) {
			got = batches[i]
		}
		if want.IDs == nil {
			got.IDs = nil
		}
		if !slices.Equal(want.Prefill, got.Prefill) || !slices.Equal(want.Decode, got.Decode) ||
			!slices.Equal(want.IDs, got.IDs) || want.Retracted != got.Retracted {
			return &Difference{Step: i, Expected: want, Got: got}, nil
		}
	}
	slices.Sort(e.turned)
	if slices.Sort(c.Refused); !slices.Equal(c.Refused, e.turned) {
		return &Difference{Step: len(c.Batches), Expected: map[string]any{"refused": c.Refused},
			Got: map[string]any{"refused": e.turned}}, nil
	}
	return c.compareFirst(e.first), nil
}

// own returns the seed of the tokens that no other request has.
func own(r *request) int64 { return ^r.ID }

// play makes the engine serve the requests of the case.
func (c *sglangCase) play(e *engine) error {
	e.next = e.add
	for e.add(0); e.err == nil; {
		t := e.Next()
		if t == tick.Never {
			if len(e.todo) == 0 {
				break
			}
			e.submit()
			t = e.Now()
		}
		e.Advance(t)
	}
	if c.Flags["--max-queued-requests"] == nil {
		return errors.Join(e.err, e.failed)
	}
	return e.err
}

// batchesOf returns steps in the form of sglang's log.
func (c *sglangCase) batchesOf(steps []*simengine.Report, p *profile.Profile) (out []sglangBatch) {
	size := int64(p.Engine.PageSize)
	pages := p.Memory.KVTokens / size
	ahead := 0
	if c.OverlapSchedule { // a step is logged when the next one is formed
		ahead = 1
	}
	for i, s := range steps {
		if i += ahead; i < len(steps) && steps[i].Retracted > 0 {
			out = append(out, sglangBatch{Retracted: steps[i].Retracted})
		}
		b := sglangBatch{Decode: []int64{int64(s.Before), (pages - s.FreePages) * size, int64(s.Waiting)}}
		if s.Prompts > 0 {
			b = sglangBatch{
				Prefill: []int64{int64(s.Prompts), s.PromptTokens, s.CachedTokens, int64(s.Before), int64(s.Waiting)},
			}
		}
		b.IDs = slices.Sorted(maps.Keys(s.Tokens))
		out = append(out, b)
	}
	return out
}

// compareFirst compares the order of the first tokens with the recorded one. The recording groups
// first tokens within a few ms, and may split those of one batch. Only two requests in the opposite
// order therefore differ.
func (c *sglangCase) compareFirst(first map[int64]tick.Ticks) *Difference {
	latest, last := tick.Ticks(-1), int64(0) // of the groups before
	for _, group := range c.First {
		end, id := latest, last
		for _, r := range group {
			if first[r] < latest {
				return &Difference{Step: len(c.Batches), Expected: fmt.Sprintf("first token of %d before %d", last, r),
					Got: fmt.Sprintf("that of %d before %d", r, last)}
			}
			if first[r] > end {
				end, id = first[r], r
			}
		}
		latest, last = end, id
	}
	return nil
}
