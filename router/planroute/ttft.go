package planroute

import (
	"math"

	"lorasim/router"
)

// TTFT predicts the time to first token of requests, for load shedding. Its accounts are those of plan-and-route, kept
// for any policy.
type TTFT struct {
	accounts
	runs []running // by worker
}

// NewTTFT returns a prediction for workers to which no request was sent. It needs their cost models.
func NewTTFT(env router.Env) *TTFT {
	return &TTFT{accounts: newAccounts(env), runs: make([]running, len(env.Workers))}
}

// Sent notes that a request is sent to a worker. Call it before the view counts the request there.
func (p *TTFT) Sent(r router.Request, worker int, v *router.View) {
	v.ReadKV(worker)
	p.arrives(r.Adapter, v.Now)
	p.output.Add(r.ExpectedOutput())
	p.sent(r, worker, v, r.Prompt)
}

// Finished notes the end of a request.
func (p *TTFT) Finished(e router.Event) {
	p.finished(e)
	p.runs[e.Worker].ended++
}

// Look notes the state of the workers. Call it before [TTFT.Predict].
func (p *TTFT) Look(v *router.View) {
	p.read(v)
	for j := range v.Workers {
		p.runs[j].look(v.Now, &v.Workers[j])
	}
}

// running is how long requests run on a worker: the time that all of them have run by
// the number of those that ended. Requests that still run count with their time so
// far, or the mean of the first ones to end, the short ones, would be far too low.
type running struct {
	time, ended float64 // s, and requests; older ones count less
	at          float64 // s: up to when they are counted
	requests    int     // that ran then
}

// memory is the time after which what has been seen counts 1/e, s.
const memory = 60

// look counts the time since the last look.
func (n *running) look(now float64, w *router.Worker) {
	if dt := now - n.at; dt > 0 {
		keep := math.Exp(-dt / memory)
		n.time, n.ended = n.time*keep+float64(n.requests)*dt, n.ended*keep
	}
	n.at, n.requests = now, w.Running
}

// mean is the time that a request runs, s, with a guess that counts as one request.
func (n *running) mean(guess float64) float64 { return (n.time + guess) / (n.ended + 1) }

// Predict returns the time, s, within which a worker gives a request its first token with a chance of about 90 %. The
// request waits for the prompts sent there before, its adapter's load, its own prompt, and a decode step under way. It
// also waits for requests to end, until there is room for it and for those that wait before it: a place in the batch,
// KV memory, an adapter slot. Requests end at random times, exec / running apart on average, so k of them take k such
// gaps with a standard deviation of sqrt(k) gaps.
func (p *TTFT) Predict(r router.Request, j int, v *router.View) float64 {
	v.ReadKV(j)
	w, l, cost := &v.Workers[j], &p.backlogs[j], p.workers[j].Cost
	exec := p.runs[j].mean(guessExec)
	kv := p.kvUsed(j, v)
	ad := p.adapterWait(r.Adapter, w.Adapter(r.Adapter), j, v)
	batch := min(w.Running+1, max(w.MaxRunning, 1))
	step, at := cost.DecodeStep(batch, batch, kv+int64(r.Prompt), w.MaxRank), l.queues(&p.workers[j], v.Now)
	n, beside := l.next(w, &p.workers[j], at), p.beside(j, w, step)
	if w.Running > 0 && at >= max(l.ends, l.last.closes) { // a decode step may just have begun
		if n.starts = at + step; p.workers[j].Ahead {
			n.starts += step
		}
	}
	prompts, _ := n.prompt(r.Prompt, cost)
	t := max(n.starts-v.Now, p.enters(r.Adapter, j, v.Now)-v.Now, ad.fetch) + n.loads + ad.load + prompts + beside +
		exec*ad.turns
	if w.Running == 0 {
		return t
	}
	stuck := float64(max(w.Queued-ad.slotless, 0))
	if v.Now <= l.prefilled+stuckAfter && l.need(r, kv, w, ad.slotless) <= l.room(w) {
		stuck = 0 // they wait for their prompts alone
	}
	ends := 0.0
	if w.MaxRunning > 0 {
		ends = max(float64(w.Running+1-w.MaxRunning)+stuck, 0)
	}
	if over := l.need(r, kv, w, ad.slotless) - l.room(w); over > 0 || stuck > 0 {
		ends = max(ends, stuck+max(over, 0)*float64(w.Running)/float64(max(kv, 1)))
	}
	return t + exec/float64(w.Running)*(ends+math.Sqrt(ends)*deviations)
}

// deviations are those of the time until requests end that are added to its mean: of a
// normal distribution 90 % lie below.
const deviations = 1.28
