package planroute

import (
	"math"
	"slices"

	"lorasim/router"
	"lorasim/router/average"
	"lorasim/trace"
)

// accounts are a router's own record of each worker: the requests sent there, and how they ended. The router estimates
// from them how long a request would wait on the worker.
type accounts struct {
	workers  []router.Spec
	adapters []trace.Adapter
	backlogs []backlog     // by worker
	exec     average.Mean  // s, of requests that ended
	output   average.Mean  // tokens, as expected, of all requests
	uses     firstUses     // of adapters, on each worker
	late     bool          // reports of workers come late
	turn     int           // worker whose report read looked at last
	rates    []arrivalRate // by adapter
	began    float64       // s: when the first request came; negative: none has come
	// By worker, during a look at waiting requests: at one time, and of the workers as the look sees them.
	kept []keptCrowd
}

// keptCrowd is a crowd that is valid while its worker does not change.
type keptCrowd struct {
	crowd
	known bool
}

// arrivalRate is how often requests of an adapter come: a decaying sum, corrected for what was not seen yet. all is the
// number of all requests.
type arrivalRate struct{ perSecond, requests, at, all float64 }

// rateMemory is the time after which an arrival counts 1/e, s.
const rateMemory = 60

// arrives notes a new request.
func (p *accounts) arrives(k int32, now float64) {
	if p.began < 0 {
		p.began = now
	}
	if k == trace.BaseModel {
		return
	}
	r := &p.rates[k]
	r.requests, r.at = r.requests*math.Exp((r.at-now)/rateMemory)+1, now
	r.all++
	seen := float64(rateMemory)
	if now-p.began < 10*rateMemory {
		seen *= -math.Expm1((p.began - now) / rateMemory)
	}
	r.perSecond = (r.requests - 0.5) / max(seen, 1)
}

func newAccounts(env router.Env) accounts {
	return accounts{workers: env.Workers, adapters: env.Adapters, backlogs: make([]backlog, len(env.Workers)),
		rates: make([]arrivalRate, len(env.Adapters)), began: -1, uses: newFirstUses(&env)}
}

// backlog is the router's estimate of one worker, from the requests that the router sent there.
type backlog struct {
	prefillSteps
	entered  float64      // s: when the requests sent there will have passed the front end
	fetched  float64      // s: when the adapters sent for will have come to host memory
	brought  float64      // s: when the prompts that wait for these adapters will have been computed
	fetches  []fetch      // adapters sent for that have not come
	loader   recentLoad   // what the loader into host memory has to do
	waits    []slotWait   // adapters that wait for a slot, in the order in which they began
	turned   float64      // s: when the latest of them got one
	exec     average.Mean // s, of requests that ended there
	recent   recentLoad
	frontEnd recentLoad // what the front end has to do
	full     float64    // least KV tokens (see need) at which requests had to wait; 0: none had to
	used     bool       // a request was sent there, or is known to have ended there
	// The latest report of the worker: when it was read, s, and the KV tokens that the requests sent there held then.
	reported, held float64
}

func (p *accounts) finished(f router.Event) {
	p.exec.Add(f.Exec)
	l := &p.backlogs[f.Worker]
	l.exec.Add(f.Exec)
	l.used = true
}

// need is the number of KV tokens that a worker must hold for a request to run at once: engines reserve the tokens that
// the request may generate, and no more than there are. Waiting requests that let others pass take no tokens before.
func (l *backlog) need(r router.Request, kv int64, w *router.Worker, slotless int) float64 {
	waiting := float64(w.QueuedToks)
	if slotless > 0 {
		waiting *= 1 - float64(slotless)/float64(max(w.Queued, slotless))
	}
	own := float64(r.Prompt) + max(float64(r.MaxNew), r.ExpectedOutput())
	return float64(kv) + waiting + min(own, l.room(w))
}

// room is the largest need that a worker can meet: the size of its KV cache, or less if requests had to wait with less.
// The tokens reserved for running requests are unknown.
func (l *backlog) room(w *router.Worker) float64 {
	switch {
	case w.KVCapacity == 0:
		return math.Inf(1)
	case l.full > 0:
		return min(l.full, float64(w.KVCapacity))
	}
	return float64(w.KVCapacity)
}

// read notes what is new in a view: reports, and workers that are down. Until a report is late it looks at one worker's
// report in turn, since ages lie apart from what prices read.
func (p *accounts) read(v *router.View) {
	p.restarted(v)
	if n := len(v.Workers); !p.late && n > 0 {
		p.turn = (p.turn + 1) % n
		p.late = v.Workers[p.turn].Age > 0
	}
	if !p.late {
		return
	}
	for j := range v.Workers {
		if w, l := &v.Workers[j], &p.backlogs[j]; l.older(w, v.Now) {
			l.reported, l.held = v.Now-w.Age, p.holds(w)
		}
	}
}

// older says whether the report that was read last is older than the one in the view.
func (l *backlog) older(w *router.Worker, now float64) bool { return now-w.Age > l.reported+sameReport }

// sameReport is the difference in time, s, up to which two readings are the same one.
const sameReport = 1e-6

// holds is the number of KV tokens that the requests sent to a worker hold, by count: the prompts of running requests,
// and half of their output.
func (p *accounts) holds(w *router.Worker) float64 {
	outputs := p.output.Value * (float64(w.Queued) + float64(w.Running)/2)
	return max(float64(w.Tokens-w.QueuedToks)-outputs, 0)
}

// kvUsed is the number of KV tokens in use on a worker. If the worker's report is old, the tokens of requests that have
// begun since are added, and those of requests that have ended are subtracted. The report also counts tokens that the
// router does not know of: others' requests, and errors of holds. They end as requests do.
func (p *accounts) kvUsed(j int, v *router.View) int64 {
	w, l := &v.Workers[j], &p.backlogs[j]
	if w.Age <= 0 || l.older(w, v.Now) {
		return w.KVUsed
	}
	unknown := (float64(w.KVUsed) - l.held) * math.Exp(-w.Age/l.exec.Or(p.exec.Or(guessExec)))
	kv := max(p.holds(w)+unknown, 0)
	if w.KVCapacity > 0 {
		kv = min(kv, float64(w.KVCapacity))
	}
	return int64(kv)
}

// restarted forgets what was sent to workers that are down: they lose it, and begin anew.
func (p *accounts) restarted(v *router.View) {
	for j := range v.Workers {
		if l := &p.backlogs[j]; !v.Workers[j].Up && (l.prefilled > 0 || l.entered > 0) {
			*l = backlog{exec: l.exec, used: l.exec.N > 0}
			p.uses.forget(j)
		}
	}
}

// adapterWait is what a request waits for its adapter.
type adapterWait struct {
	crowd
	fetch, load float64 // s, until it is in host memory, beside the steps; from there to a slot
	stall       float64 // s, that the steps stop until it is in host memory, on workers that fetch within them
	evicts      float64 // s, to load the adapter again that makes way
	turns       float64 // executions until it gets a slot
	// delays is the time by which later fetches come later, s: the loader brings one adapter after the other. It is the
	// difference that the fetch makes to the relative value of a queue M/G/1 with the loader's work and utilization.
	delays float64
}

// loaderMemory is the time after which work counts 1/e in the utilization of a loader or a front end, s.
const loaderMemory = 60

// blockedTurns is how many executions a request costs that waits for a slot and stops the requests behind it.
const blockedTurns = 8

func (p *accounts) adapterWait(k int32, st router.AdapterState, j int, v *router.View) (a adapterWait) {
	w := &v.Workers[j]
	c := p.crowdOf(j, w, v.Now)
	a.crowd = c
	if k == trace.BaseModel {
		return a
	}
	switch blocks := p.workers[j].Blocks; {
	case st.Running+st.Queued == 0:
		a.turns = c.turnsOfNew(w.Slots, blocks)
	case st.Running == 0 && !blocks:
		a.turns = c.turns(w.Slots, true)
	}
	if st.Tier == router.GPU || st.Loading || st.Running > 0 {
		return a
	}
	l := &p.backlogs[j]
	if st.Queued > 0 { // another brings it
		if st.Tier < router.Host {
			a.fetch = l.comes(k, v.Now)
		}
		return a
	}
	cost, rank := p.workers[j].Cost, p.adapters[k].Rank
	a.load = cost.AdapterLoad(rank, router.Host)
	if w.SlotsUsed >= w.Slots {
		a.evicts = a.load
	}
	switch {
	case st.Tier == router.Host:
	case p.workers[j].FetchesInSteps && !p.workers[j].LoadsOverlap:
		a.stall = cost.AdapterLoad(rank, st.Tier) - a.load
	default:
		takes, coming := cost.AdapterLoad(rank, st.Tier)-a.load, max(l.fetched-v.Now, 0)
		a.fetch = coming + takes
		u := l.loader.share(v.Now, loaderMemory)
		a.delays = u / (1 - u) * (coming + takes/2)
	}
	return a
}

// fetch is an adapter on its way to host memory.
type fetch struct {
	adapter int32
	at      float64 // s: when it is there
}

// comes is the time until an adapter that requests wait for is in host memory, s.
func (l *backlog) comes(k int32, now float64) float64 {
	for _, f := range l.fetches {
		if f.adapter == k {
			return max(f.at-now, 0)
		}
	}
	return 0
}

// slotWait is an adapter that waits for a slot since some time, s.
type slotWait struct {
	adapter int32
	since   float64
}

// goesOn says whether the adapter still waits on its worker.
func (s slotWait) goesOn(w *router.Worker) bool {
	st := w.Adapter(s.adapter)
	return st.Running == 0 && st.Queued > 0
}

// waitsFor notes that an adapter begins to wait for a slot. Adapters that left the queue otherwise than into a slot are
// forgotten when there are many: a look at waiting requests calls with those that may move taken out of the queue.
func (l *backlog) waitsFor(k int32, w *router.Worker, now float64) {
	many := len(l.waits) > 2*w.Slots+16
	l.waits = slices.DeleteFunc(l.waits, func(s slotWait) bool { return s.adapter == k || many && !s.goesOn(w) })
	l.waits = append(l.waits, slotWait{k, now})
}

// begins notes that a request of an adapter has got its first token on the worker: the adapter has a slot.
func (l *backlog) begins(k int32, now float64) {
	if i := slices.IndexFunc(l.waits, func(s slotWait) bool { return s.adapter == k }); i >= 0 {
		l.waits, l.turned = slices.Delete(l.waits, i, i+1), now
	}
}

// stalls says whether slots of a worker do not become free: an adapter waits for one, and none has got one for the time
// in which stalledTurns should have become free. Slots that hardly ever become free need less time. The adapters in the
// slots then have requests all the time, and keep their slots as long as that goes on.
func (p *accounts) stalls(j int, v *router.View) bool {
	w, l := &v.Workers[j], &p.backlogs[j]
	exec := l.exec.Or(p.exec.Or(guessExec))
	for _, s := range l.waits {
		if !s.goesOn(w) {
			continue
		}
		since := (v.Now - max(s.since, l.turned)) / exec
		if since <= stalledTurns {
			return false
		}
		freed := p.slotCrowd(w, exec).freed
		return freed < hardlyFreed || since*freed > stalledTurns
	}
	return false
}

const (
	stalledTurns = 6
	hardlyFreed  = 0.1 // slots in the time of an execution
)

// crowd is what adapters that have requests on a worker do with its slots.
type crowd struct {
	adapters int     // that have requests there
	slotless int     // requests that wait for a slot or for a fetch, and let others pass
	freed    float64 // slots that become free in the time of an execution
}

// crowdOf counts where all slots are taken; else only adapters and slotless are.
func (p *accounts) crowdOf(j int, w *router.Worker, now float64) crowd {
	if p.kept == nil {
		return p.crowdNow(j, w, now)
	}
	k := &p.kept[j]
	if !k.known {
		k.crowd, k.known = p.crowdNow(j, w, now), true
	}
	return k.crowd
}

func (p *accounts) crowdNow(j int, w *router.Worker, now float64) (c crowd) {
	if c = p.slotCrowd(w, p.backlogs[j].exec.Or(p.exec.Or(guessExec))); c.slotless == 0 && p.backlogs[j].fetched > now {
		c.slotless = fetching(w)
	}
	return c
}

// fetching is the number of requests that wait until their adapter is in host memory.
func fetching(w *router.Worker) (requests int) {
	for _, f := range w.InFlight() {
		if f.Queued > 0 && f.Running == 0 && !w.InHost(f.Adapter) {
			requests += int(f.Queued)
		}
	}
	return requests
}

// slotCrowd counts adapters with more requests than the worker has slots for. The shorter the mean execution (exec, s),
// the more slots become free.
func (p *accounts) slotCrowd(w *router.Worker, exec float64) (c crowd) {
	if c.adapters = w.ActiveLoras + w.WaitingLoras; c.adapters < w.Slots || w.Slots == 0 {
		return c
	}
	left, waiting, later := c.adapters, 0, 0.0 // adapters of which none runs yet, and what they will free
	c.adapters = 0
	for _, st := range w.InFlight() {
		switch {
		case st.Running > 0:
			c.freed += endRate(st.Running, p.rates[st.Adapter].perSecond*exec)
			left--
			if st.Queued > 0 {
				left--
			}
		case st.Queued > 0:
			waiting++
			later += endRate(st.Queued, p.rates[st.Adapter].perSecond*exec)
			c.slotless += int(st.Queued)
			left--
		default:
			continue
		}
		if c.adapters++; left == 0 {
			break
		}
	}
	if c.adapters <= w.Slots {
		c.slotless = 0
	}
	if free := w.Slots - (c.adapters - waiting); free > 0 && waiting > 0 { // some of them will take these slots
		c.freed += later * min(float64(free)/float64(waiting), 1)
	}
	return c
}

// batchAdapters is how many adapters a batch of the worker has, and whether a request of adapter k makes it one more.
func batchAdapters(w *router.Worker, k int32, st router.AdapterState) (adapters, more int) {
	adapters = w.ActiveLoras
	switch {
	case k == trace.BaseModel || st.Running > 0:
	case st.Queued > 0:
		adapters++ // it soon runs there anyway
	default:
		more = 1
	}
	return adapters, more
}

// endRate is how often, in the time of an execution, an adapter gives its slot back. n of its requests run, and load
// more come in the time of an execution. The adapter keeps the slot until the queue M/M/infinity of its requests is
// empty. From i requests to i-1 takes m(i) executions, where i*m(i) = 1 + load*m(i+1).
//
// The load counts up to n: if it is larger than n, most of the adapter's requests go to other workers. n may be far
// larger than the load, since requests that waited for the slot together run together.
func endRate(n int32, load float64) float64 {
	i := min(int(n), mostEnding)
	return endRates[i][int(min(load, float64(i))*loadSteps)]
}

const (
	mostEnding = 32 // requests that endRate tells apart
	loadSteps  = 4  // loads between two whole numbers that it tells apart
)

// endRates are the values of endRate, by requests and by load in steps.
var endRates = func() (rates [mostEnding + 1][mostEnding*loadSteps + 1]float64) {
	for step := range rates[0] {
		load := float64(step) / loadSteps
		const far = 20 * mostEnding // m(far) hardly changes the m(i) below
		m, above := 1.0/far, [mostEnding + 1]float64{}
		for i := far - 1; i > 0; i-- {
			if m = (1 + load*m) / float64(i); i <= mostEnding {
				above[i] = m
			}
		}
		took := 0.0
		for n := 1; n <= mostEnding; n++ {
			took += above[n]
			rates[n][step] = 1 / took
		}
	}
	return rates
}()

// turns is how many executions it takes until an adapter of which no request runs gets a slot; waits: it has requests
// that wait.
func (c *crowd) turns(slots int, waits bool) float64 {
	ahead := float64(c.adapters - slots) // adapters that wait for a slot before it
	if waits {
		ahead = (ahead - 1) / 2 // it is one of them
	}
	if slots == 0 || ahead < 0 {
		return 0
	}
	return (1 + ahead) / max(c.freed, 1e-6)
}

// turnsOfNew is the same for an adapter without requests on a worker. blocks says that a request without an adapter
// slot blocks the requests behind it.
func (c *crowd) turnsOfNew(slots int, blocks bool) float64 {
	switch {
	case !blocks:
		return c.turns(slots, false)
	case c.adapters >= slots && slots > 0:
		return blockedTurns * float64(1+c.adapters-slots)
	}
	return 0
}

// arrival is what the price of a request on a worker and the worker's backlog have in common.
type arrival struct {
	wait    adapterWait
	kv      int64   // KV tokens in use
	compute float64 // time of the next prefill step with the request's prompt, without loads, s
	step    float64 // length of a decode step with the request, s
	beside  float64 // see accounts.beside
}

// sent adds a request to the backlog of worker j, which computes prompt tokens of its prompt. It also corrects the
// worker's room by the requests that still wait there.
func (p *accounts) sent(r router.Request, j int, v *router.View, prompt int32) {
	w := &v.Workers[j]
	kv, spec, st := p.kvUsed(j, v), &p.workers[j], w.Adapter(r.Adapter)
	n := p.backlogs[j].next(w, spec, p.backlogs[j].queues(spec, v.Now))
	adapters, one := batchAdapters(w, r.Adapter, st)
	step := spec.Cost.DecodeStep(min(w.Running+1, max(w.MaxRunning, 1)), adapters+one, kv+int64(r.Prompt), w.MaxRank)
	p.add(r, j, v, prompt, &arrival{p.adapterWait(r.Adapter, st, j, v), kv,
		spec.Cost.Prefill(n.tokens + int64(prompt)), step, p.beside(j, w, step)})
}

// add is sent, with what the request's price there has looked at.
func (p *accounts) add(r router.Request, j int, v *router.View, prompt int32, at *arrival) {
	w, l, a := &v.Workers[j], &p.backlogs[j], &at.wait
	l.used = true
	st := w.Adapter(r.Adapter)
	level := float64(at.kv+w.QueuedToks) + max(float64(r.MaxNew), p.output.Value)
	switch {
	case a.adapters > w.Slots: // they may wait for a slot
	case w.Queued <= a.slotless:
		if l.full > 0 {
			l.full = max(l.full, level)
		}
	case v.Now > max(l.prefilled, l.brought)+stuckAfter && w.Running < w.MaxRunning && level < l.room(w):
		l.full = l.room(w) + 0.1*(level-l.room(w))
	}
	if a.turns > 0 && st.Running+st.Queued == 0 {
		l.waitsFor(r.Adapter, w, v.Now)
	}
	if a.fetch > 0 {
		if at := v.Now + a.fetch; at > l.fetched {
			l.loader.add(at-max(l.fetched, v.Now), v.Now, loaderMemory)
			l.fetches = slices.DeleteFunc(l.fetches, func(f fetch) bool { return f.at < v.Now })
			l.fetches, l.fetched = append(l.fetches, fetch{r.Adapter, at}), at
		}
		l.brought = max(l.brought, l.fetched+a.load) + p.workers[j].Cost.Prefill(int64(prompt))
	}
	queued, from := l.queues(&p.workers[j], v.Now), max(l.entered, v.Now)
	if l.entered = p.enters(r.Adapter, j, v.Now); l.entered > from {
		l.frontEnd.add(l.entered-from, v.Now, loaderMemory)
	}
	p.uses.note(r.Adapter, j)
	spec := &p.workers[j]
	if a.turns > 0 { // it waits for a slot, and its prompt is in a later step
		l.prefilled = max(l.prefilled, l.entered) + a.load + a.stall + spec.Cost.Prefill(int64(prompt))
		return
	}
	n := l.next(w, spec, queued)
	n.prompts++
	n.tokens += int64(prompt)
	n.loads += a.load + a.stall
	n.starts, n.compute = max(n.starts, l.entered), at.compute
	l.plan(n, r.ID, v.Now, n.compute+at.beside, at.step)
}

// stuckAfter is how long after the prompts before it should have been computed a
// request is taken to wait for memory, s: longer than a step.
const stuckAfter = 0.05

// overdue says whether the prompts sent to a worker should have been computed by now.
func (p *accounts) overdue(j int, now float64) bool {
	return now > p.backlogs[j].prefilled+stuckAfter
}
