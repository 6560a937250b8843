package fit

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"gonum.org/v1/gonum/stat"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
)

// stepCoefficients are the coefficients of the law by distinct adapters that affect token times.
var stepCoefficients = []string{
	"adapters.base_ms", "adapters.per_request_ms", "adapters.per_prompt_ms", "adapters.per_token_us",
	"adapters.per_kv_token_us", "adapters.per_adapter_ms",
	"load.host_to_gpu_ms", diskToHost, "request_overhead_ms",
}

// diskToHost is fitted to steps if they wait for it, else to the waiting times of requests.
const diskToHost = "load.disk_to_host_ms"

const (
	// stepNoise is the relative difference between two steps of the same work.
	stepNoise = 0.1
	// farOff is the factor beyond which a step is an outlier of the law: its delay was not work of
	// the worker.
	farOff = 3
	// heldUp is the least time between two bursts, s. Bursts closer together were delayed on their
	// way.
	heldUp = 0.001
)

// arrival is the time that a request adds to a step if it arrives during the step and the server's
// front end shares the engine's processor. The simulator has no such cost: the profile adds it to
// the cost of the request's prompt, which follows soon.
var arrival = knob{Param{Name: "arrival_ms (part of per_prompt_ms)", Start: 0.5, Min: 1e-4, Max: 1000},
	func(m *model, x float64) { m.arrivalMs = x }}

// slowness is a factor on all times of a run except the first run, with a geometric mean of 1 over
// the runs. A shared machine is not equally fast in all runs. Without the factor, the fit would
// take the difference for a cost of the work that differs between runs.
func slowness(run int) knob {
	name := fmt.Sprintf("run %d is slower than the mean by a factor of", run+1)
	return knob{Param{Name: name, Start: 1, Min: 0.25, Max: 4},
		func(m *model, x float64) {
			m.slow[run] = x
			m.slow[0] /= x
		}}
}

// fitSteps fits the law by distinct adapters to steps. The length of a step is linear in the
// coefficients of the law, so that least squares meet the mean of the steps. A first, robust fit
// finds the outliers, and a second fit uses least squares over the other steps. Then the whole law
// is stretched by the extra time of the outliers.
func (o *Options) fitSteps(ctx context.Context, knobs []knob, runs []*replay) (*Result, error) {
	steps, waits := stepsOfRuns(runs, o.Start)
	if len(steps) < 10*len(knobs) {
		return nil, fmt.Errorf("%d steps follow from the token times, expected at least %d",
			len(steps), 10*len(knobs))
	}
	knobs = append(knobs, arrival)
	for i := range runs[1:] {
		knobs = append(knobs, slowness(i+1))
	}
	start := model{profile: o.Start, slow: slices.Repeat([]float64{1}, len(runs))}
	fit := func(residual func(i int, predicted float64) float64) (*model, *Result, error) {
		return o.fit(ctx, start, knobs, 3, func(_ context.Context, m *model) ([]float64, error) {
			r := m.lengths(steps)
			for i, predicted := range r {
				r[i] = residual(i, predicted)
			}
			return r, nil
		})
	}
	first, _, err := fit(func(i int, predicted float64) float64 {
		return robust((predicted - steps[i].seconds) / (stepNoise * steps[i].seconds))
	})
	if err != nil {
		return nil, err
	}
	expected := first.lengths(steps)
	best, out, err := fit(func(i int, predicted float64) float64 {
		s, e := steps[i].seconds, expected[i]
		if s > e*farOff || s < e/farOff {
			return 0
		}
		return (predicted - s) / (stepNoise * e)
	})
	if err != nil {
		return nil, err
	}
	longer := stretch(steps, best.lengths(steps))
	best.profile.Latency.Adapters.PerPromptMs += best.arrivalMs
	for _, c := range coefficients {
		if strings.HasPrefix(c.name, "adapters.") {
			*c.of(best.profile) *= longer
		}
	}
	for i := range out.Params {
		e := &out.Params[i]
		if strings.HasPrefix(e.Name, "adapters.") || e.Name == arrival.Name {
			e.Value *= longer
		}
		if e.Name == diskToHost && e.Held && len(waits) > 1 {
			fitLoads(best.profile, waits, e)
		}
	}
	return out, nil
}

// stretch returns the ratio of the total time of the steps, with outliers, to the expected time.
// Delays of a worker grow in number with its working time.
func stretch(steps []step, expected []float64) float64 {
	var seconds, sum float64
	for i, s := range steps {
		if s.waits == 0 {
			seconds += s.seconds
			sum += expected[i]
		}
	}
	return seconds / sum
}

// lengths returns the lengths of steps, s.
func (m *model) lengths(steps []step) []float64 {
	costs := m.profile.Compile()
	out := make([]float64, len(steps))
	for i := range steps {
		s := &steps[i]
		out[i] = s.waits*m.profile.Latency.RequestOverheadMs/1000 + s.arrivals*m.arrivalMs/1000
		for _, l := range s.loads {
			out[i] += costs.Load(l.rank, l.from).Seconds()
		}
		out[i] += costs.Step(&s.work).Seconds()
		out[i] *= m.slow[s.run]
	}
	return out
}

// fitLoads sets the time to bring an adapter to host memory, if no step waits for it, to the mean
// waiting time of requests. Some requests wait long for their turn or for memory. These waits are
// real, so that none is left out.
func fitLoads(p *profile.Profile, waits []float64, e *Estimate) {
	mean, std := stat.MeanStdDev(waits, nil)
	l := &p.Adapters.DiskToHost
	costs, rank := p.Compile(), p.Adapters.DefaultRank
	copying := (costs.Load(rank, router.Disk) - costs.Load(rank, router.Host)).Milliseconds() - l.LatencyMs
	l.LatencyMs = max(1000*mean-copying, 0)
	e.Value, e.RelStd, e.Held = l.LatencyMs, std/mean/math.Sqrt(float64(len(waits))), false
}

// step is one step of a worker, as the times of its tokens show it. The tokens of a step reach the
// client together, so that the tokens of all requests of a worker fall into bursts, one for each
// step. From burst to burst the worker did one step if some request continued, and the requests of
// the burst were in the step. This assumes nothing about the scheduler: the bursts show whether
// prompts have steps of their own or share the steps of running requests.
type step struct {
	seconds  float64
	work     profile.StepWork
	loads    []load  // loads that the step waited for
	arrivals float64 // requests that arrived during the step
	run      int     // index of the run
	waits    float64 // 1 if seconds begins when its only request was sent, else 0
}

// load is the load of an adapter of a rank from a tier to a slot.
type load struct {
	rank int
	from router.Tier
}

// token is a token that the client saw.
type token struct {
	at float64
	r  *record.Request
	n  int // 0: the first one
}

// stepsOfRuns returns the steps of the fitted requests of each run, and the times that these
// requests waited for loads, s.
func stepsOfRuns(runs []*replay, p *profile.Profile) (steps []step, waits []float64) {
	for i, run := range runs {
		for k := range run.Measured {
			r := &run.Measured[k]
			if k < run.fitted && r.ColdLoad > 0 {
				waits = append(waits, r.ColdLoad)
			}
		}
		for _, s := range stepsOf(run, p) {
			s.run = i
			steps = append(steps, s)
		}
	}
	return steps, waits
}

// stepsOf returns the steps of a run until the first request that is not fitted was sent.
func stepsOf(run *replay, p *profile.Profile) (out []step) {
	until := math.Inf(1)
	if run.fitted < len(run.Measured) {
		until = run.Measured[run.fitted].Sent
	}
	tokens := make([][]token, run.Workers)
	sent := make([][]float64, run.Workers)
	for i := range run.Measured {
		r := &run.Measured[i]
		w, at := r.WorkerLast, r.FirstToken
		sent[w] = append(sent[w], r.Sent)
		withFirst := max(int(r.Output)-1-len(r.Gaps), 0) // leave no gap
		for n := range withFirst + 1 + len(r.Gaps) {
			if n > withFirst {
				at += r.Gaps[n-withFirst-1]
			}
			tokens[w] = append(tokens[w], token{at, r, n})
		}
	}
	for w := range tokens {
		bursts := burstsOf(tokens[w])
		end := sort.Search(len(bursts), func(k int) bool { return bursts[k][0].at >= until })
		out = append(out, stepsBetween(bursts[:end], sent[w], &p.Engine)...)
	}
	return out
}

// burstsOf groups tokens into bursts. Invariant: a request has at most one token in a burst.
func burstsOf(tokens []token) [][]token {
	slices.SortFunc(tokens, func(a, b token) int { return cmp.Compare(a.at, b.at) })
	var out [][]token
	from := 0
	in := map[*record.Request]bool{}
	for i, t := range tokens {
		if i > from && (in[t.r] || t.at-tokens[i-1].at > together) {
			out = append(out, tokens[from:i])
			from = i
			clear(in)
		}
		in[t.r] = true
	}
	if len(tokens) > 0 {
		out = append(out, tokens[from:])
	}
	return out
}

// stepsBetween returns the steps between the bursts of one worker. sent is the times at which its
// requests were sent, ascending. A burst without a token of some running request does not count: it
// is part of a step, or two steps.
func stepsBetween(bursts [][]token, sent []float64, e *profile.Engine) []step {
	var out []step
	running := map[*record.Request]bool{}
	held := &holding{
		slots: recent{size: e.MaxLorasPerBatch}, host: recent{size: e.HostLoras()},
		fetches: e.Scheduler == profile.SchedulerVLLM,
	}
	next := 0             // next request to be sent
	last := math.Inf(-1)  // time of the previous burst
	ended := math.Inf(-1) // time of the latest step of out
	known := false        // whether the previous burst was one step's, and some request continued
	for _, b := range bursts {
		at, first := b[0].at, b[0].r
		s, whole := compose(b, running, e)
		for s.arrivals = 0; next < len(sent) && sent[next] < at; next++ {
			s.arrivals++
		}
		loads, certain := held.use(b)
		s.loads = loads
		switch {
		case !certain:
		case whole && known && at-last < heldUp: // what the client read late it read in one
			if ended == last {
				out = out[:len(out)-1]
			}
		case whole && known:
			s.seconds, ended = at-last, at
			out = append(out, s)
		case whole && len(running) == 0 && len(b) == 1 && first.Sent > last && first.ColdLoad == 0: // found it idle
			s.seconds, s.waits, s.arrivals, ended = first.TTFT(), 1, 0, at
			out = append(out, s)
		}
		for _, t := range b {
			running[t.r] = t.n < int(t.r.Output)-1
		}
		maps.DeleteFunc(running, func(_ *record.Request, goesOn bool) bool { return !goesOn })
		last, known = at, whole && len(running) > 0
	}
	return out
}

// compose returns the work of the step that ended with a burst, and whether the burst is whole: all
// running requests have a token, or, where prompts have steps of their own, none has.
func compose(b []token, running map[*record.Request]bool, e *profile.Engine) (s step, whole bool) {
	adapters := map[int32]int64{} // running requests
	for _, t := range b {
		if t.n == 0 {
			s.work.Add(int64(t.r.Prompt), 0, t.r.Adapter >= 0)
		} else {
			s.work.Batch++
			s.work.KV += int64(int(t.r.Prompt) + t.n)
		}
		if a := t.r.Adapter; a >= 0 && t.n > 0 {
			s.work.LoRAs++
			adapters[a]++
		} else if a >= 0 {
			adapters[a] += 0
		}
	}
	w := &s.work
	w.Adapters = int64(len(adapters))
	for _, n := range adapters {
		w.Squares += n * n
	}
	chunk := e.ChunkedPrefillSize
	if e.Scheduler == profile.SchedulerVLLM {
		chunk = e.MaxNumBatchedTokens
	}
	if chunk > 0 && int(w.Tokens+w.Batch) > chunk {
		return s, false // of several steps
	}
	if apart := e.Scheduler == profile.SchedulerSGLang && !e.MixedChunk; apart && w.Prompts > 0 {
		return s, w.Batch == 0
	}
	return s, int(w.Batch) == len(running)
}

// holding is the adapters in the slots and the host memory of a worker: the most recently used ones
// of the run.
type holding struct {
	slots, host recent
	fetches     bool // steps wait for loads into host memory, too
}

// use adds the adapters of a burst. It returns the loads that its step waited for, and whether they
// are known. They are unknown at the beginning of a run, as the adapters held before are unknown.
func (h *holding) use(b []token) (loads []load, known bool) {
	known = true
	for _, t := range b {
		a := t.r.Adapter
		if a < 0 {
			continue
		}
		inHost, hostKnown := h.host.use(a)
		inSlot, slotKnown := h.slots.use(a)
		from := router.Host
		if h.fetches && !inHost {
			from = router.Disk
		}
		if !inSlot {
			loads = append(loads, load{int(t.r.Rank), from})
			known = known && slotKnown && (hostKnown || !h.fetches)
		}
	}
	return loads, known
}

// recent is the most recently used adapters, up to size, the latest one last. A size of 0 is no
// limit.
type recent struct {
	size int
	list []int32
}

// use makes an adapter the latest. It returns whether the adapter was in the list, and whether that
// is known.
func (s *recent) use(a int32) (found, known bool) {
	i := slices.Index(s.list, a)
	full := s.size > 0 && len(s.list) >= s.size
	switch {
	case i >= 0:
		s.list = slices.Delete(s.list, i, i+1)
	case full:
		s.list = s.list[1:]
	}
	s.list = append(s.list, a)
	return i >= 0, i >= 0 || full
}
