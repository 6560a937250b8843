package calibrate

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

// stepCoefficients are those that the times of tokens say something about where
// the law of the profile is that by distinct adapters.
var stepCoefficients = []string{
	"adapters.base_ms", "adapters.per_request_ms", "adapters.per_prompt_ms", "adapters.per_token_us",
	"adapters.per_kv_token_us", "adapters.per_adapter_ms",
	"load.host_to_gpu_ms", diskToHost, "request_overhead_ms",
}

// diskToHost is fitted to steps where these wait for it, else to what requests
// waited.
const diskToHost = "load.disk_to_host_ms"

const (
	// stepNoise is how far one step differs from the next of the same work, as a
	// fraction.
	stepNoise = 0.1
	// farOff is the factor by which a step may be off what the law says: beyond, it
	// was held up by what is no work of the worker.
	farOff = 3
	// heldUp is the least time between two bursts, in s: those that come sooner
	// were held up on their way.
	heldUp = 0.001
)

// arrival is what a request that comes in the middle of a step adds to it,
// where the server's front end shares the engine's processor. The simulator
// knows no such steps: in the profile it is part of what a prompt takes, which
// soon follows.
var arrival = knob{Param{Name: "arrival_ms (part of per_prompt_ms)", Start: 0.5, Min: 1e-4, Max: 1000},
	func(m *model, x float64) { m.arrivalMs = x }}

// slowness is what all times of a run but the first are multiplied by, 1 in the
// (geometric) mean over the runs: a machine that others use is not equally fast in
// all of them, and what is compared across runs must not be taken for the cost of
// what differs in them.
func slowness(run int) knob {
	return knob{Param{fmt.Sprintf("run %d is slower than the mean by a factor of", run+1), 1, 0.25, 4},
		func(m *model, x float64) {
			m.slow[run] = x
			m.slow[0] /= x
		}}
}

// fitSteps fits the law by distinct adapters to steps. What the law says of a
// step is linear in its coefficients, so that the mean of the steps is met if
// squares of deviations are summed: which is done second, over the steps that a
// first, robust fit does not find far off. What those take too long, the law is
// then made longer by as a whole.
func (o *Options) fitSteps(ctx context.Context, knobs []knob, runs []*replay) (*Fit, error) {
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
	fit := func(residual func(i int, predicted float64) float64) (*model, *Fit, error) {
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

// stretch is the factor by which the steps, those far off too, take longer in all
// than expected: what holds up a worker does so the oftener the longer it works.
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

// lengths are those of steps, s.
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

// fitLoads sets what bringing an adapter to host memory takes, where no step
// waits for it, to the mean of what requests waited. Some wait long, for their
// turn or for room: that is no error of the measurement, so none is left out.
func fitLoads(p *profile.Profile, waits []float64, e *Estimate) {
	mean, std := stat.MeanStdDev(waits, nil)
	l := &p.Adapters.DiskToHost
	costs, rank := p.Compile(), p.Adapters.DefaultRank
	copying := (costs.Load(rank, router.Disk) - costs.Load(rank, router.Host)).Milliseconds() - l.LatencyMs
	l.LatencyMs = max(1000*mean-copying, 0)
	e.Value, e.RelStd, e.Held = l.LatencyMs, std/mean/math.Sqrt(float64(len(waits))), false
}

// step is one step of a worker, as the times of its tokens tell. The tokens of a
// step reach the client together, so that the tokens of all requests of a worker
// fall into bursts, one for each step. From burst to burst the worker did one step,
// if some request went on; and the requests of the burst were in it. Nothing has
// to be assumed of the scheduler: whether prompts have steps of their own or
// share those of the running requests is seen.
type step struct {
	seconds  float64
	work     profile.StepWork
	loads    []load  // that it waited for
	arrivals float64 // requests that came meanwhile
	run      int     // index
	waits    float64 // 1: seconds go from the sending of its only request
}

// load is one of an adapter of a rank from a tier to a slot.
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

// stepsOfRuns are the steps of the fitted requests of each run, and how long these
// waited for loads.
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

// stepsOf finds the steps of a run until the time at which the first request that
// is not fitted was sent.
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

// burstsOf sorts tokens into bursts. No request has two tokens in one.
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

// stepsBetween are the steps between the bursts of one worker; sent is when its
// requests were sent, ascending. A burst that lacks a token of a running request
// is none: a step was torn apart, or two were seen as one.
func stepsBetween(bursts [][]token, sent []float64, e *profile.Engine) []step {
	var out []step
	running := map[*record.Request]bool{}
	held := &holding{
		slots: recent{size: e.MaxLorasPerBatch}, host: recent{size: e.HostLoras()},
		fetches: e.Scheduler == profile.SchedulerVLLM,
	}
	next := 0             // request to be sent
	last := math.Inf(-1)  // when the burst before came
	ended := math.Inf(-1) // when the latest step of out did
	known := false        // that was one step's, and some request went on
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

// compose says what a step computed that ended with a burst, and whether the
// burst is whole: all running requests have a token, or, where prompts have
// steps of their own, none has.
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

// holding are the adapters that a worker has in its slots and in host memory: of
// those of the run the latest used.
type holding struct {
	slots, host recent
	fetches     bool // steps wait for loads into host memory, too
}

// use takes in the adapters of a burst. It returns the loads that its step waited
// for, and whether they are known: not where the run is too young to tell what
// the worker held before it.
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

// recent are the latest used adapters, as many as fit, the latest one last; size
// 0: there is no limit.
type recent struct {
	size int
	list []int32
}

// use says whether an adapter was among them, and whether that is known, and
// makes it the latest.
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
