package steps

import (
	"context"
	"encoding/json"
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

// sglangCase is a case of sglang's scheduler, NAME.json: requests that were all
// waiting when the server began, and what it logged of its batches.
type sglangCase struct {
	Flags map[string]*string `json:"flags"` // of the server; null: without a value
	// IgnoreEOS says whether the requests were sent with ignore_eos; absent: yes.
	// Otherwise their lengths are certain too (min_new_tokens), but not to the
	// scheduler.
	IgnoreEOS *bool           `json:"ignore_eos"`
	Requests  []sglangRequest `json:"requests"`
	Batches   []sglangBatch   `json:"batches"`
	First     [][]int64       `json:"first"` // IDs in the order of their first tokens; a list: at the same time
}

type sglangRequest struct {
	ID      int64 `json:"id"`
	Adapter int32 `json:"adapter"` // -1: none
	Prompt  int32 `json:"prompt"`
	Output  int32 `json:"output"`
}

// sglangBatch is a batch, or a line about retracted requests.
type sglangBatch struct {
	Prefill []int64 `json:"prefill,omitempty"` // new requests, new tokens, cached tokens, running, queued
	Decode  []int64 `json:"decode,omitempty"`  // running, tokens in the KV cache, queued
	Log     string  `json:"log,omitempty"`
	// Retracted is what Log says.
	Retracted int `json:"retracted,omitempty"`
}

// SGLang holds the simulated scheduler against the batches of sglang's in a
// folder of cases, NAME.json.
func SGLang(ctx context.Context, dir string) (*Report, error) {
	return runFolder(ctx, dir, ".json", func(path string) (Case, error) {
		data, err := os.ReadFile(path)
		if err != nil {
			return Case{}, err
		}
		c, err := runSGLang(data)
		if err != nil {
			return c, fmt.Errorf("%s: %w", path, err)
		}
		return c, nil
	})
}

func runSGLang(data []byte) (Case, error) {
	c, err := parseSGLangCase(data)
	if err != nil {
		return Case{}, err
	}
	out := Case{Steps: len(c.Batches)}
	p, err := c.profile()
	switch {
	case err != nil:
		return out, err
	case !p.Engine.DisableRadixCache:
		out.Skipped, out.Reason = true, "needs the radix cache"
		return out, nil
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
	ids := map[int64]bool{}
	for _, r := range c.Requests {
		switch {
		case ids[r.ID]:
			return nil, fmt.Errorf("request %d is there twice", r.ID)
		case r.Adapter < -1 || r.Adapter > 1<<20 || r.Prompt < 1 || r.Output < 1:
			return nil, fmt.Errorf("request %d: expected adapter -1 to 2^20, prompt and output >= 1", r.ID)
		}
		ids[r.ID] = true
	}
	for i := range c.Batches {
		b := &c.Batches[i]
		if !(len(b.Prefill) == 5 && b.Decode == nil || len(b.Decode) == 3 && b.Prefill == nil || b.Prefill == nil && b.Decode == nil && b.Log != "") {
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
	return &c, nil
}

// profile is the engine of the case: that of the recordings, with its flags.
// Steps take any time: no rule that they show looks at a clock.
func (c *sglangCase) profile() (*profile.Profile, error) {
	p := profile.Default()
	p.Name = "batches"
	p.Latency.Decode.BaseMs, p.Latency.Prefill.BaseMs = 10, 10
	p.Memory.KVTokens = 65536
	e := &p.Engine
	e.MaxLorasPerBatch, e.MaxLoadedLoras, e.MaxRunningRequests, e.ContextLength = 4, 0, 16, 2048
	e.IgnoreEOS = c.IgnoreEOS == nil || *c.IgnoreEOS
	conservativeness := 1.0
	for _, name := range slices.Sorted(maps.Keys(c.Flags)) {
		text := ""
		if v := c.Flags[name]; v != nil {
			text = *v
		}
		var err error
		number := func(to *int) { *to, err = strconv.Atoi(text) }
		switch name {
		case "--max-loras-per-batch":
			number(&e.MaxLorasPerBatch)
		case "--max-running-requests":
			number(&e.MaxRunningRequests)
		case "--max-prefill-tokens":
			number(&e.MaxPrefillTokens)
		case "--context-length":
			number(&e.ContextLength)
		case "--page-size":
			number(&e.PageSize)
		case "--chunked-prefill-size":
			number(&e.ChunkedPrefillSize)
			e.ChunkedPrefillSize = max(e.ChunkedPrefillSize, 0) // -1: no chunks
		case "--max-total-tokens":
			p.Memory.KVTokens, err = strconv.ParseInt(text, 10, 64)
		case "--schedule-conservativeness":
			conservativeness, err = strconv.ParseFloat(text, 64)
		case "--enable-mixed-chunk":
			e.MixedChunk = true
		case "--disable-radix-cache":
			e.DisableRadixCache = true
		default:
			return nil, fmt.Errorf("flag %s is not known", name)
		}
		if err != nil {
			return nil, fmt.Errorf("flag %s %s: expected a number", name, text)
		}
	}
	e.NewTokenRatio = min(e.NewTokenRatio*conservativeness, 1)
	if err := p.Check(); err != nil {
		return nil, err
	}
	return &p, nil
}

// compare runs the case and returns the first difference, nil if there is none.
func (c *sglangCase) compare(p *profile.Profile) (*Difference, error) {
	e := &sglangEngine{first: map[int64]tick.Ticks{}}
	adapters := 0
	for _, r := range c.Requests {
		adapters = max(adapters, int(r.Adapter)+1)
	}
	server, err := sim.NewServer(sim.ServerConfig{Costs: p.Compile(), Listener: e, MaxAdapters: adapters, Home: router.Disk})
	if err != nil {
		return nil, err
	}
	for a := range int32(adapters) {
		server.Define(a, trace.Adapter{Name: strconv.Itoa(int(a)), Rank: 8})
		server.Preload(a)
	}
	for _, r := range c.Requests {
		if err := server.Submit(trace.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output}); err != nil {
			return nil, err
		}
	}
	for t := server.Next(); t != tick.Never; t = server.Next() {
		server.Advance(t)
	}
	if e.failed != nil {
		return nil, e.failed
	}
	for i := range max(len(c.Batches), len(e.batches)) {
		var want, got sglangBatch
		if i < len(c.Batches) {
			want = c.Batches[i]
		}
		if i < len(e.batches) {
			got = e.batches[i]
		}
		if !slices.Equal(want.Prefill, got.Prefill) || !slices.Equal(want.Decode, got.Decode) || want.Retracted != got.Retracted {
			return &Difference{Step: i, Expected: want, Got: got}, nil
		}
	}
	return c.compareFirst(e.first), nil
}

// compareFirst holds the order of the first tokens against the recorded one.
// The recording puts what came within a few ms together, and may tear apart
// what one batch gave, so that only two requests in the opposite order differ.
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

// sglangEngine writes down what the simulated worker does, as sglang logs it.
type sglangEngine struct {
	batches []sglangBatch
	first   map[int64]tick.Ticks
	failed  error
}

func (e *sglangEngine) Token(id int64, at tick.Ticks) {
	if _, ok := e.first[id]; !ok {
		e.first[id] = at
	}
}

func (e *sglangEngine) Ended(id int64, status record.Status, reason string, _ tick.Ticks) {
	if status != record.OK && e.failed == nil {
		e.failed = fmt.Errorf("request %d: %s", id, reason)
	}
}

func (e *sglangEngine) Step(s *sim.Step) {
	if n := len(s.Preempted); n > 0 {
		e.batches = append(e.batches, sglangBatch{Retracted: n})
	}
	b := sglangBatch{Decode: []int64{int64(s.Before), s.KVTokens, int64(s.Waiting)}}
	if s.Prompts > 0 {
		b = sglangBatch{Prefill: []int64{int64(s.Prompts), s.PromptTokens, 0, int64(s.Before), int64(s.Waiting)}}
	}
	e.batches = append(e.batches, b)
}
