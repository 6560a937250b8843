package router

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"lorasim/trace/settings"
)

// Admission rejects requests before a policy routes them: requests of an adapter above its rate limit, and requests
// that would wait too long, or in too long a queue, on every worker.
type Admission struct {
	wait  float64 // s to the first token, as predicted; 0: no limit
	queue int     // waiting requests; 0: no limit
	rate  float64 // requests/s of each adapter; 0: no limit
	burst float64

	accounts
	policy  Policy    // of the router that it is for
	runs    []running // by worker
	buckets []bucket  // by adapter; last: the base model
}

// bucket holds the requests that an adapter may send at once: burst of them at
// first and at most, rate more in every second.
type bucket struct{ spent, at float64 }

// NewAdmission parses what sheds load ("ttft:MS" and "queue:N", joined by +) and the rate limit of each adapter
// ("R" or "R,burst=B", requests/s). It returns nil if both texts are empty, and an error if a text is invalid or if
// ttft is given and env has no step times.
func NewAdmission(shed, rate string, env Env) (*Admission, error) {
	if shed == "" && rate == "" {
		return nil, nil
	}
	a := &Admission{
		accounts: newAccounts(env),
		runs:     make([]running, len(env.Workers)),
		buckets:  make([]bucket, len(env.Adapters)+1),
	}
	if err := a.parseShed(shed); err != nil {
		return nil, err
	}
	if err := a.parseRate(rate); err != nil {
		return nil, err
	}
	if a.wait > 0 {
		if err := env.needCosts(); err != nil {
			return nil, fmt.Errorf("shed ttft %w", err)
		}
	}
	return a, nil
}

// CheckShed returns an error if NewAdmission would not accept the text of what sheds load.
func CheckShed(text string) error { return new(Admission).parseShed(text) }

// CheckRate returns an error if NewAdmission would not accept the text of a rate limit.
func CheckRate(text string) error { return new(Admission).parseRate(text) }

// shedding is one rule that sheds load.
type shedding interface{ set(a *Admission) }

type shedTTFT struct {
	MS float64 `arg:"1" required:"yes" check:">0" unit:"ms" help:"longest predicted time to first token"`
}

func (o *shedTTFT) set(a *Admission) { a.wait = o.MS / 1000 }

type shedQueue struct {
	N int32 `arg:"1" required:"yes" check:">=1" unit:"requests" help:"waiting requests on a worker from which it counts as full"`
}

func (o *shedQueue) set(a *Admission) { a.queue = int(o.N) }

func shedKinds() []settings.Kind[shedding] {
	return []settings.Kind[shedding]{
		{Name: "ttft", Summary: "the predicted TTFT exceeds the limit on every worker",
			New: func() shedding { return &shedTTFT{} }},
		{Name: "queue", Summary: "every worker has this number of waiting requests",
			New: func() shedding { return &shedQueue{} }},
	}
}

// ShedForms returns the forms of one part of what sheds load.
func ShedForms() []settings.Form { return settings.Forms(shedKinds()) }

func (a *Admission) parseShed(text string) error {
	if text == "" {
		return nil
	}
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, "+") {
		rule, err := settings.Parse("shed", shedKinds(), part)
		if err != nil {
			return err
		}
		if seen[rule.Name] {
			return fmt.Errorf("%s is given twice", rule.Name)
		}
		seen[rule.Name] = true
		rule.Value.set(a)
	}
	return nil
}

type rateLimit struct {
	Rate  float64 `arg:"1" required:"yes" check:">0" unit:"req/s" help:"requests/s of each adapter"`
	Burst float64 `check:">=1" unit:"requests" help:"size of the token bucket; default: the rate, at least 1"`
}

// RateForms returns the form of a rate limit.
func RateForms() []settings.Form { return settings.FormOf[rateLimit]() }

func (a *Admission) parseRate(text string) error {
	if text == "" {
		return nil
	}
	var o rateLimit
	if _, err := settings.Decode(text, &o); err != nil {
		return err
	}
	a.rate, a.burst = o.Rate, cmp.Or(o.Burst, max(o.Rate, 1))
	return nil
}

// Refuse returns the reason to reject a request, "" if it is admitted, and the time after which a client may try
// again, s.
func (a *Admission) Refuse(r Request, v *View) (reason string, after float64) {
	if a == nil {
		return "", 0
	}
	k := len(a.buckets) - 1
	if isAdapter(r.Adapter) {
		k = min(int(r.Adapter), k)
	}
	b := bucket{max(0, a.buckets[k].spent-a.rate*(v.Now-a.buckets[k].at)), v.Now}
	if a.rate > 0 && b.spent+1 > a.burst+1e-9 { // who comes at the very rate is not refused for a rounding
		return "over the rate limit of its adapter", (b.spent + 1 - a.burst) / a.rate
	}
	if reason, after = a.shed(r, v); reason == "" {
		b.spent++
		a.buckets[k] = b
	}
	return reason, after
}

// Admit sets the admission that may reject requests before the policy routes them; nil: all are admitted.
func (rt *Router) Admit(a *Admission) {
	rt.Admission = a
	if a == nil || a.wait == 0 {
		return
	}
	a.policy = rt.Policy
	if !rt.ReadsKV {
		rt.ReadsKV, rt.ReadsFewKV = true, true
	}
}

// Sent notes that a request is sent to a worker. Call it before the view counts the request there.
func (a *Admission) Sent(r Request, worker int, v *View) {
	if a != nil && a.wait > 0 {
		v.read(worker)
		a.output.add(r.output())
		a.sent(r, worker, v, r.Prompt)
	}
}

// note notes the end of a request.
func (a *Admission) note(f Event) {
	if a.wait > 0 && f.Kind == Finished {
		a.finished(f)
		a.runs[f.Worker].ended++
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
func (n *running) look(now float64, w *Worker) {
	if dt := now - n.at; dt > 0 {
		keep := math.Exp(-dt / memory)
		n.time, n.ended = n.time*keep+float64(n.requests)*dt, n.ended*keep
	}
	n.at, n.requests = now, w.Running
}

// mean is the time that a request runs, s, with a guess that counts as one request.
func (n *running) mean(guess float64) float64 { return (n.time + guess) / (n.ended + 1) }

// shed says why no worker should have the request, "" if one should.
func (a *Admission) shed(r Request, v *View) (reason string, after float64) {
	queue := math.MaxInt
	if a.queue > 0 {
		for _, w := range v.Usable() {
			queue = min(queue, w.Queued)
		}
		if queue != math.MaxInt && queue >= a.queue {
			return "shed: the queues of all workers are too long", 1
		}
	}
	if a.wait > 0 {
		a.restarted(v)
		for j := range v.Workers {
			a.runs[j].look(v.Now, &v.Workers[j])
		}
		if least := a.firstToken(r, v); least > a.wait && !math.IsInf(least, 1) {
			return "shed: its predicted TTFT exceeds the limit", least - a.wait
		}
	}
	return "", 0
}

// firstToken is when a request gets its first token, s from now: on the worker that
// the policy would pick, or where that cannot be said on the best one. It is
// infinite where no worker is usable, which is not for admission to say.
func (a *Admission) firstToken(r Request, v *View) float64 {
	if a.policy != nil {
		if j := a.policy.Preview(r, v); j != None {
			return a.predict(r, j, v)
		}
	}
	least := math.Inf(1)
	for j := range v.Usable() {
		least = min(least, a.predict(r, j, v))
	}
	return least
}

// predict is the time, s, within which a worker gives a request its first token with
// a chance of about 90 %: the prompts sent there before, its adapter's load, its own
// prompt, a decode step under way, and the requests that have to end before there is a
// place in the batch, KV memory, or an adapter slot for it and for those that wait
// before it. Requests end at random times, exec / running apart on average, so k of
// them take k such gaps with a standard deviation of sqrt(k) gaps.
func (a *Admission) predict(r Request, j int, v *View) float64 {
	v.read(j)
	w, l, cost := &v.Workers[j], &a.backlogs[j], a.workers[j].Cost
	exec := a.runs[j].mean(guessExec)
	kv := w.KVUsed
	if w.Age > exec/10 { // by count, then: prompts, and about half of the output
		kv = max(kv, (w.Tokens-w.QueuedToks)*3/4)
	}
	ad := a.adapterWait(r.Adapter, j, v)
	n := l.next(w, v.Now)
	prompts, _ := n.prompt(r.Prompt, cost)
	t := max(n.starts-v.Now, a.enters(r.Adapter, j, v.Now)-v.Now, ad.fetch) + n.loads + ad.load + prompts +
		exec*ad.turns
	if w.Running == 0 {
		return t
	}
	batch := min(w.Running+1, max(w.MaxRunning, 1))
	t += cost.DecodeStep(batch, batch, kv+int64(r.Prompt), w.MaxRank)
	stuck := float64(max(w.Queued-ad.slotless, 0))
	if v.Now <= l.prefilled+stuckAfter && l.need(r, kv, w) <= l.room(w) {
		stuck = 0 // they wait for their prompts alone
	}
	ends := 0.0
	if w.MaxRunning > 0 {
		ends = max(float64(w.Running+1-w.MaxRunning)+stuck, 0)
	}
	if over := l.need(r, kv, w) - l.room(w); over > 0 || stuck > 0 {
		ends = max(ends, stuck+max(over, 0)*float64(w.Running)/float64(max(kv, 1)))
	}
	return t + exec/float64(w.Running)*(ends+math.Sqrt(ends)*deviations)
}

// deviations are those of the time until requests end that are added to its mean: of a
// normal distribution 90 % lie below.
const deviations = 1.28
