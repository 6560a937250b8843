package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// CheckConfig says which workers to look at, and how.
type CheckConfig struct {
	URLs   []string // as ParseURL returns them
	API    API
	Client *http.Client
	Header http.Header
	Wait   time.Duration // for workers that do not answer yet
	Limit  time.Duration // of a look; 0: 5 s
	Clock  bool          // compare the clocks, which takes a second
}

// Report is what a look at a worker finds.
type Report struct {
	URL   string `json:"url"`
	Error string `json:"error,omitempty"` // why it cannot be used; the rest is not known then
	Info
	Adapters []string `json:"adapters"`
	TokenIDs Switch   `json:"token_ids"` // replies tell the ids of their tokens
	Names    Switch   `json:"tells_adapters_in_use"`
	Clock    *Clock   `json:"clock,omitempty"` // nil: not told
	// Cannot is what policies are not able to do there, and why.
	Cannot []string `json:"cannot"`
}

// Clock is a worker's clock against that of this machine, s.
type Clock struct {
	Offset    float64 `json:"offset_s"` // ahead of this machine's
	Error     float64 `json:"error_s"`  // of it, at most
	RoundTrip float64 `json:"round_trip_s"`
}

// Check looks at workers, all at once. Nothing there is changed; each is sent one
// request for a token.
func Check(ctx context.Context, cfg CheckConfig) []Report {
	reports := make([]Report, len(cfg.URLs))
	var wg sync.WaitGroup
	for i, url := range cfg.URLs {
		e := &endpoint{base: url, client: cfg.Client, header: cfg.Header}
		e.api.Store(cmp.Or(cfg.API, Auto))
		wg.Go(func() { reports[i] = e.report(ctx, &cfg) })
	}
	wg.Wait()
	return reports
}

func (e *endpoint) report(ctx context.Context, cfg *CheckConfig) (r Report) {
	r = Report{URL: e.base, Adapters: []string{}, Cannot: []string{}}
	fail := func(err error) Report {
		r.Error = err.Error()
		return r
	}
	limit := cmp.Or(cfg.Limit, 5*time.Second)
	begun := time.Now()
	for {
		look, cancel := context.WithTimeout(ctx, limit)
		_, err := e.discover(look)
		cancel()
		if err == nil {
			break
		}
		if time.Since(begun) >= cfg.Wait || ctx.Err() != nil {
			return fail(err)
		}
		pause(ctx, 200*time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var clock sync.WaitGroup
	if cfg.Clock {
		var c *Clock
		clock.Go(func() { c = e.clock(ctx) })
		defer func() { clock.Wait(); r.Clock = c }()
	}
	listed, err := e.models(ctx)
	if err != nil {
		return fail(err)
	}
	for _, m := range listed {
		if m.Parent != "" {
			r.Adapters = append(r.Adapters, m.ID)
		} else if r.Model == "" {
			r.Model = m.ID
		}
	}
	if ids, err := e.probe(ctx, r.Model); err == nil {
		r.TokenIDs = switchOf(ids)
	}
	if r.Info, err = e.discover(ctx); err != nil { // again: the probe makes vLLM tell more
		return fail(err)
	}
	if len(r.Adapters) > 0 {
		r.LoRA = On
	}
	if l, err := e.loads(ctx); err == nil && r.API == VLLM && r.LoRA != Off {
		r.Names = switchOf(l.Busy != nil)
	}
	r.judge()
	return r
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// probe asks for one token, and says whether its id came back.
func (e *endpoint) probe(ctx context.Context, base string) (bool, error) {
	prompt := []int{10, 11, 12} // any ids that every vocabulary has
	if e.kind() == VLLM {
		data, err := e.call(ctx, http.MethodPost, "/v1/completions", map[string]any{"model": base, "prompt": prompt, "max_tokens": 1, "temperature": 0, "return_token_ids": true})
		if err != nil {
			return false, err
		}
		var reply struct {
			Choices []struct {
				TokenIDs []int `json:"token_ids"`
			} `json:"choices"`
		}
		err = json.Unmarshal(data, &reply)
		return len(reply.Choices) > 0 && len(reply.Choices[0].TokenIDs) > 0, err
	}
	data, err := e.call(ctx, http.MethodPost, "/generate", map[string]any{"input_ids": prompt, "sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0}})
	if err != nil {
		return false, err
	}
	var reply struct {
		OutputIDs []int `json:"output_ids"`
	}
	err = json.Unmarshal(data, &reply)
	return len(reply.OutputIDs) > 0, err
}

// clock compares the worker's clock with this machine's by the time in whole
// seconds at which it says it made its list of models: each answer bounds the
// offset from both sides, and the bounds close in where a second begins.
func (e *endpoint) clock(ctx context.Context) *Clock {
	c := Clock{RoundTrip: math.Inf(1)}
	low, high := math.Inf(-1), math.Inf(1)
	seconds := map[int64]bool{}
	for begun := time.Now(); time.Since(begun) < 1100*time.Millisecond; pause(ctx, 30*time.Millisecond) {
		from := time.Now()
		list, err := e.models(ctx)
		to := time.Now()
		if err != nil || len(list) == 0 {
			return nil
		}
		s := list[0].Created
		seconds[s] = true
		c.RoundTrip = min(c.RoundTrip, to.Sub(from).Seconds())
		low = max(low, -to.Sub(time.Unix(s, 0)).Seconds())
		high = min(high, -from.Sub(time.Unix(s+1, 0)).Seconds())
	}
	if len(seconds) < 2 || low > high { // a time that stands still, or jumps
		return nil
	}
	c.Offset, c.Error = (low+high)/2, (high-low)/2
	return &c
}

// judge fills in what policies are not able to do.
func (r *Report) judge() {
	add := func(when bool, what string) {
		if when {
			r.Cannot = append(r.Cannot, what)
		}
	}
	if add(r.RunTime == Off, "load or unload adapters: it "+r.whyFixed()); r.LoRA == Off {
		return
	}
	add(r.TokenIDs == Off, "move requests that have begun, or go on with them elsewhere after a failure: replies do not tell token ids")
	add(r.TokenIDs == "", "be sure to move requests that have begun: the request for one token was not answered in time, or refused")
	add(r.Names == Off, "unload adapters safely: it does not tell which its requests use (--disable-log-stats)")
	add(r.Slots == 0, "know the adapter slots: they are not told; --max-loras-per-batch states them")
	add(r.KVCapacity == 0, "know the size of the KV cache: it is not told; --kv-tokens states it")
	add(r.MaxLoaded == 0 && r.API == VLLM, "know how many adapters it keeps (--max-cpu-loras): it is not told; --max-loaded-loras states it")
	add(r.MaxRank == 0, "know the largest rank: it is not told")
}

// Refuse says why requests for the given adapters cannot be served by a policy on
// workers that are as reported, or nil. Of those that did not answer nothing is
// known.
func Refuse(reports []Report, adapters []trace.Adapter, rt *router.Router) error {
	_, adjusts := rt.Policy.(router.Adjuster)
	fixed := rt.Placement != nil && rt.Planner == nil && !adjusts
	var errs []error
	for w := range reports {
		r := &reports[w]
		if r.Error != "" || r.RunTime != Off {
			continue
		}
		held := map[string]bool{}
		for _, name := range r.Adapters {
			held[name] = true
		}
		var lacks []string
		need := func(name string) {
			if !held[name] {
				lacks = append(lacks, name)
			}
		}
		if fixed {
			for _, a := range rt.Placement[w] {
				need(adapters[a].Name)
			}
		} else {
			for _, a := range adapters {
				need(a.Name)
			}
		}
		if len(lacks) > 0 {
			errs = append(errs, fmt.Errorf("worker %d (%s) lacks %s and %s", w, r.URL, some(lacks), r.whyFixed()))
		}
	}
	switch len(errs) {
	case 0:
		return nil
	case 1:
		return errs[0]
	}
	return fmt.Errorf("%w (and %d more workers likewise)", errs[0], len(errs)-1)
}

// some names the first of a list.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
