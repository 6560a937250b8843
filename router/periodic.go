package router

import "math"

// periodic is this project's own planner and the router that goes with it.
//
// Requests go where they cost all requests together the least time: the worker's
// queue, the load of the adapter, the wait for an adapter slot, and what those
// that run there already lose. Holders of the adapter under the current
// placement come first; another worker is used where that pays in spite of the
// load. Every interval the planner (periodic_plan.go) forecasts the demand for
// each adapter and solves one migration problem over all workers.
type periodic struct {
	placer
	busy     float64 // share of the horizon that the busiest worker's work must fill
	margin   float64 // share of the predicted time that a plan must gain
	horizon  float64 // s of forecast demand that a plan provides for
	maxMoves int
	spill    float64 // s a worker without the adapter must be better by

	exec           mean // s, of requests that ended
	prompt, output mean // tokens, the output as expected, of all requests
}

// Guesses until requests have ended.
const (
	guessPrompt = 200 // tokens
	guessOutput = 200 // tokens
	guessExec   = 5   // s
)

func newPeriodic(o *options, env Env) (*Router, error) {
	if err := env.needCosts(); err != nil {
		return nil, err
	}
	p := &periodic{
		placer:   newPlacer(o, env),
		busy:     o.number("busy", 0, math.Inf(1)),
		margin:   o.number("margin", 0, 1),
		maxMoves: o.integer("max-moves", 0, math.MaxInt),
		spill:    o.number("spill", 0, math.Inf(1)),
	}
	p.horizon = p.interval
	if o.text("horizon") != "auto" {
		p.horizon = o.number("horizon", 0, math.Inf(1), "auto")
	}
	rt := p.router(p)
	rt.ReadsKV = true
	return rt, nil
}

func (p *periodic) Route(r Request, v *View) int {
	p.note(r)
	p.prompt.add(float64(r.Prompt))
	p.output.add(r.output())
	best, least := None, math.Inf(1)
	for j := range v.Workers {
		w := &v.Workers[j]
		if !w.Usable() {
			continue
		}
		c := p.price(r, j, w)
		if !p.holds(r, j) {
			c += p.spill
		}
		if c < least {
			best, least = j, c
		}
	}
	return best
}

// firstWeight is what a second until the first token counts against one of
// decoding: the user sees nothing yet, and what delays one request there delays
// those behind it.
const firstWeight = 30

// queueDelay is what each waiting request tells beside its prompt, s: that the
// worker is in the middle of a step, or that something holds up its queue.
const queueDelay = 0.05

// price estimates the time, s, that a request costs itself and the others on a
// worker.
func (p *periodic) price(r Request, j int, w *Worker) float64 {
	cost := p.env.Workers[j].Cost
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	output, exec := r.output(), p.exec.or(guessExec)

	// until its first token: the prompts before it, and places in the batch, the
	// KV cache and the adapter slots that have to become free first
	first := cost.Prefill(w.QueuedToks+int64(r.Prompt)) + queueDelay*float64(w.Queued)
	if over := w.Running + w.Queued + 1 - limit; over > 0 {
		first += float64(over) * exec / float64(limit)
	}
	need := w.KVUsed + w.QueuedToks + int64(r.Prompt) + int64(output)
	if room := w.KVCapacity; need > room && room > 0 {
		first += exec * float64(need-room) / float64(room)
	}
	load, slot := p.adapterWait(r.Adapter, j, w)
	first += load + slot*exec*(1+float64(w.Queued))

	// its decoding; what others lose to its load, its prefill and its decoding
	batch := min(running+1, limit)
	step := cost.DecodeStep(batch, w.KVUsed+int64(r.Prompt), w.MaxRank)
	t := output*step + (load+cost.Prefill(int64(r.Prompt)))*float64(running)
	if batch > running {
		t += output * float64(running) * max(0, step-cost.DecodeStep(running, w.KVUsed, w.MaxRank))
	}
	return firstWeight*first + t
}

// adapterWait is the time that loading a request's adapter takes, s, and, where
// all slots are in use, the share of an execution until one is free.
func (p *periodic) adapterWait(k int32, j int, w *Worker) (load, slot float64) {
	if !isAdapter(k) {
		return 0, 0
	}
	st := w.adapter(k)
	if st.Tier == GPU || st.Loading {
		return 0, 0
	}
	if st.Queued == 0 && inUse(w) >= w.Slots {
		slot = slotWait
	}
	if st.Queued == 0 { // else one of them brings it
		load = p.env.Workers[j].Cost.AdapterLoad(p.env.Adapters[k].Rank, st.Tier)
	}
	return load, slot
}

// inUse is the number of adapters that have requests on a worker: those that
// wait will take slots too. The scan is left out where nothing waits.
func inUse(w *Worker) int {
	if w.Queued == 0 {
		return w.SlotsUsed - w.SlotsIdle
	}
	n := 0
	for k := range w.Adapters {
		if st := &w.Adapters[k]; st.Running > 0 || st.Queued > 0 {
			n++
		}
	}
	return n
}

// slotWait is the share of a request's execution time after which one of a
// worker's adapters is done, where all slots are in use.
const slotWait = 0.25

// Finished implements Learner.
func (p *periodic) Finished(f Finished) { p.exec.add(f.Exec) }
