package decisions

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"lorasim/internal/textfile"
	"lorasim/router"
	"lorasim/sim"
	simengine "lorasim/sim/engine"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// runFolder runs each case of a folder. A case's file name is NAME and the ending.
func runFolder(
	ctx context.Context, dir, ending string, run func(ctx context.Context, path string, data []byte) (Case, error),
) (*Report, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err == nil && len(paths) == 0 {
		_, err = os.Stat(dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no NAME%s there", dir, ending), err)
	}
	var cases []Case
	for _, path := range paths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		data, err := textfile.ReadFile(ctx, path, textfile.MaxData)
		if err != nil {
			return nil, err
		}
		c, err := run(ctx, path, data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		c.Name = strings.TrimSuffix(filepath.Base(path), ending)
		cases = append(cases, c)
	}
	return newReport(Report{Cases: cases, of: "engine"}), nil
}

// request is a request of a case, added before step Step. vLLM's cases state the prompt in parts;
// for sglang's cases the parts follow from the shared beginning.
type request struct {
	ID      int64      `json:"id"`
	Step    int        `json:"step"`
	Adapter int32      `json:"adapter"` // -1: none
	Parts   [][2]int64 `json:"parts"`   // seed and tokens of each part of the prompt
	Shared  *[2]int64  `json:"shared"`  // sglang: seed and tokens of the beginning of the prompt
	Prompt  int32      `json:"prompt"`
	Output  int32      `json:"output"`
	// MaxTokens is the limit of output tokens; 0: Output. A stop token ends a request with a larger
	// limit.
	MaxTokens int32 `json:"max_tokens"`
}

func checkRequests(requests []request) error {
	ids := map[int64]bool{}
	for _, r := range requests {
		switch {
		case ids[r.ID]:
			return fmt.Errorf("request %d is there twice", r.ID)
		case r.MaxTokens != 0 && r.MaxTokens < r.Output:
			return fmt.Errorf("request %d: max_tokens is %d, expected >= output (%d)", r.ID, r.MaxTokens, r.Output)
		case r.Step < 0 || r.Adapter < -1 || r.Adapter > 1<<20 || r.Prompt < 1 || r.Output < 1:
			return fmt.Errorf("request %d: expected step >= 0, adapter -1 to 2^20, prompt and output >= 1", r.ID)
		}
		ids[r.ID] = true
	}
	return nil
}

// engine is a simulated worker that serves the requests of a case, and its results.
type engine struct {
	*sim.Server
	todo    []request              // not submitted yet
	sampled func(r *request) int64 // returns the seed of a reply
	texts   trace.Texts            // equal seeds give equal tokens
	err     error                  // error of submitting
	steps   []*simengine.Report
	first   map[int64]tick.Ticks // times of first tokens, by request ID
	ended   []int64
	turned  []int64        // IDs of requests that did not complete
	failed  error          // reason of the first one
	next    func(done int) // called at the end of each step
	now     bool           // submitted requests arrive at once
}

// newEngine returns a worker of a profile for requests. priorities are by adapter.
func newEngine(
	p *profile.Profile, requests []request, priorities []int, sampled func(r *request) int64,
) (e *engine, err error) {
	adapters := 0
	for _, r := range requests {
		adapters = max(adapters, int(r.Adapter)+1)
	}
	e = &engine{
		todo: requests, sampled: sampled, texts: trace.Texts{}, first: map[int64]tick.Ticks{}, next: func(int) {},
	}
	cfg := sim.ServerConfig{
		Costs: p.Compile(), Hooks: sim.ServerHooks{Token: e.Token, Ended: e.Ended, Step: e.Step},
		MaxAdapters: adapters, Home: router.Disk,
	}
	if e.Server, err = sim.NewServer(cfg); err != nil {
		return nil, err
	}
	for a := range adapters {
		d := trace.Adapter{Name: strconv.Itoa(a), Rank: 8}
		if a < len(priorities) {
			d.Priority = priorities[a]
		}
		e.Define(int32(a), d)
		e.Preload(int32(a))
	}
	return e, nil
}

// add submits the requests that come before step i.
func (e *engine) add(i int) {
	for len(e.todo) > 0 && e.todo[0].Step <= i {
		e.submit()
	}
}

// submit submits the next request.
func (e *engine) submit() {
	r := &e.todo[0]
	e.todo = e.todo[1:]
	q := trace.Request{ID: r.ID, Adapter: r.Adapter, Prompt: r.Prompt, Output: r.Output, MaxNew: r.MaxTokens}
	at := int32(0)
	for _, p := range r.Parts {
		q.Text = e.texts.Of(q.Text, at, p[0])
		at += int32(p[1])
	}
	if seed := e.sampled(r); seed == r.Parts[len(r.Parts)-1][0] {
		q.Reply = q.Text // the prompt ends with what every step samples
	} else {
		q.Reply = e.texts.Of(q.Text, q.Prompt, seed)
	}
	submit := e.Submit
	if e.now {
		submit = e.SubmitNow
	}
	e.err = errors.Join(e.err, submit(q))
}

func (e *engine) Step(s *simengine.Report) {
	e.steps = append(e.steps, s)
	e.next(len(e.steps))
}

func (e *engine) Token(id int64, at tick.Ticks) {
	if _, ok := e.first[id]; !ok {
		e.first[id] = at
	}
}

func (e *engine) Ended(id int64, status record.Status, reason string, _ tick.Ticks) {
	e.ended = append(e.ended, id)
	if status == record.OK {
		return
	}
	e.turned = append(e.turned, id)
	if e.failed == nil {
		e.failed = fmt.Errorf("request %d: %s", id, reason)
	}
}
