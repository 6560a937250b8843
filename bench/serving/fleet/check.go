package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/internal/guard"
	"lorasim/router"
	"lorasim/trace"
)

// A Report is the result of [Check] for one worker.
type Report struct {
	URL   string `json:"url"`
	Error string `json:"error,omitempty"` // why the worker cannot be used; other fields are unknown then
	// Refused: the worker answers, and refuses the key.
	Refused bool `json:"-"`
	Info
	Adapters []string `json:"adapters"`              // names of the adapters that the worker holds
	TokenIDs Switch   `json:"token_ids"`             // replies contain the ids of their tokens
	Names    Switch   `json:"tells_adapters_in_use"` // metrics name the adapters in use
	Clock    *Clock   `json:"clock,omitempty"`       // nil: not compared, or no usable time reported
	// Cannot lists what policies cannot do with this worker, each with the reason.
	Cannot []string `json:"cannot"`
	// Warnings lists known faults of the engine's version, with the issue that reports each.
	Warnings []string `json:"warnings"`
}

// A Clock compares a worker's clock with this machine's. All values are in seconds.
type Clock struct {
	Offset    float64 `json:"offset_s"`     // by how much the worker's clock is ahead
	Error     float64 `json:"error_s"`      // largest error of Offset
	RoundTrip float64 `json:"round_trip_s"` // shortest time of a call
}

// Patience is how long [Check] waits for workers.
type Patience struct {
	Ready time.Duration // for a worker that does not answer yet, unless it refuses the key
	First time.Duration // for the first answer of a worker; 0: 5 s
}

// Check examines all workers concurrently. It changes nothing on the workers, but sends each a request for one token.
// With clocks it also compares the clocks, which takes a second.
func Check(ctx context.Context, c Connection, wait Patience, clocks bool) []Report {
	reports := make([]Report, len(c.URLs))
	each(len(reports), func(i int) error {
		r := &reports[i]
		r.URL, r.Adapters, r.Cannot, r.Warnings = c.URLs[i], []string{}, []string{}, []string{}
		if err := newEngine(&c, c.URLs[i]).report(ctx, r, wait, clocks); err != nil {
			r.Error, r.Refused = err.Error(), isStatus(err, http.StatusUnauthorized)
		}
		return nil
	})
	return reports
}

// checkLimit is the longest time that Check spends on a worker that answers.
const checkLimit = 5 * time.Second

var errNoModel = errors.New("it answers, but its /v1/models lists no model: it is no inference engine")

func (e *engine) report(ctx context.Context, r *Report, wait Patience, clocks bool) error {
	for begun := time.Now(); ; pause(ctx, 200*time.Millisecond) {
		look, cancel := context.WithTimeout(ctx, cmp.Or(wait.First, checkLimit))
		_, err := e.discover(look)
		if err != nil {
			if listed, silent := e.models(look); silent == nil && len(listed) == 0 {
				err = errNoModel
			}
		}
		if cancel(); err == nil {
			break
		} else if time.Since(begun) >= wait.Ready || ctx.Err() != nil || isStatus(err, http.StatusUnauthorized) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var clock sync.WaitGroup
	defer clock.Wait()
	if clocks {
		clock.Go(func() { guard.Do(func() error { r.Clock = e.clock(ctx); return nil }) }) // not told if it panics
	}
	listed, err := e.models(ctx)
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		return errNoModel
	}
	base := ""
	for _, m := range listed {
		if m.Parent != "" {
			r.Adapters = append(r.Adapters, m.ID)
		} else {
			base = cmp.Or(base, m.ID)
		}
	}
	if ids, err := e.tellsIDs(ctx, base); err == nil {
		r.TokenIDs = switchOf(ids)
	}
	if r.Info, err = e.discover(ctx); err != nil { // again: the request makes vLLM tell more
		return err
	}
	if len(r.Adapters) > 0 {
		r.LoRA = On
	}
	if l, err := e.load(ctx); err == nil && r.API == httpapi.VLLM && r.LoRA != Off {
		r.Names = switchOf(l.Busy != nil)
	}
	r.judge()
	r.Warnings = KnownFaults(&r.Info)
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// tellsIDs requests one token and reports whether the reply contains its id.
func (e *engine) tellsIDs(ctx context.Context, base string) (bool, error) {
	prompt := []int{10, 11, 12} // any ids that every vocabulary has
	path, body := "/generate", map[string]any{"input_ids": prompt,
		"sampling_params": map[string]any{"max_new_tokens": 1, "temperature": 0}}
	if e.kind() == httpapi.VLLM {
		path, body = "/v1/completions", map[string]any{"model": base, "prompt": prompt, "max_tokens": 1,
			"temperature": 0, "return_token_ids": true}
	}
	data, err := e.call(ctx, http.MethodPost, path, body)
	if err != nil {
		return false, err
	}
	var reply struct {
		OutputIDs list[int] `json:"output_ids"`
		Choices   list[struct {
			TokenIDs list[int] `json:"token_ids"`
		}] `json:"choices"`
	}
	err = json.Unmarshal(data, &reply)
	return len(reply.OutputIDs) > 0 || len(reply.Choices) > 0 && len(reply.Choices[0].TokenIDs) > 0, err
}

// clock compares the worker's clock with this machine's by the time in whole
// seconds at which it says it made its list of models: each answer bounds the
// offset from both sides, and the bounds close in where a second begins.
func (e *engine) clock(ctx context.Context) *Clock {
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

// judge fills in Cannot.
func (r *Report) judge() {
	add := func(when bool, what string) {
		if when {
			r.Cannot = append(r.Cannot, what)
		}
	}
	if add(r.RunTime == Off, "load or unload adapters: "+r.whyFixed()); r.LoRA == Off {
		return
	}
	add(r.TokenIDs == Off, "move running requests, or resume them after a failure: replies have no token ids")
	add(r.TokenIDs == "", "rely on moving running requests: the probe for one token failed or timed out")
	add(r.Names == Off, "unload adapters safely: the server does not report which adapters are in use (--disable-log-stats)")
	add(r.Slots == 0, "use the number of adapter slots: not reported by the server; give --engine-args max_loras_per_batch")
	add(r.KVCapacity == 0, "use the size of the KV cache: not reported by the server; give --engine-args kv_tokens")
	add(r.MaxLoaded == 0 && r.API == httpapi.VLLM, "use the limit of loaded adapters (--max-cpu-loras): not reported by the server; give --engine-args max_loaded_loras")
	add(r.MaxRank == 0, "use the largest rank: not reported by the server")
}

// Refuse returns an error if the reported workers cannot serve requests for the given adapters under the router's
// policy. It ignores workers that did not answer.
func Refuse(reports []Report, adapters []trace.Adapter, rt *router.Router) error {
	var errs []error
	for w := range reports {
		r := &reports[w]
		if r.Error != "" || r.RunTime != Off {
			continue
		}
		var lacks []string
		for i, a := range adapters {
			elsewhere := rt.Placement != nil && !rt.Plans() &&
				!slices.Contains(rt.Placement[w], int32(i))
			if !elsewhere && !slices.Contains(r.Adapters, a.Name) {
				lacks = append(lacks, a.Name)
			}
		}
		const most = 3 // that are named
		more := ""
		if n := len(lacks); n > most {
			more, lacks = fmt.Sprintf(" and %d more", n-most), lacks[:most]
		}
		if len(lacks) > 0 {
			errs = append(errs, fmt.Errorf("worker %d (%s) lacks %s%s: %s", w, r.URL, strings.Join(lacks, ", "),
				more, r.whyFixed()))
		}
	}
	if len(errs) > 1 {
		return fmt.Errorf("%w (and %d more workers likewise)", errs[0], len(errs)-1)
	}
	return errors.Join(errs...)
}
