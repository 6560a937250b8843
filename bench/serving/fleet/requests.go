package fleet

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"lorasim/router"
	"lorasim/sim/record"
	"lorasim/trace"
)

// A Request is a request in flight. Its owner sets the exported fields, except Held and Refusal, and does not change
// them while the fleet has the request.
type Request struct {
	router.Request         // the fleet sets Expected
	Output         int32   // output tokens, if known in advance; 0: the fleet estimates
	Sent           float64 // time of sending on the fleet's clock, s
	// Move starts a move of the request to another worker. It must not block. It returns false if the request cannot
	// move. nil: the request never moves.
	Move func(from, to int) bool
	// Owner ends the attempt on a worker that hangs. nil: the attempt goes on.
	Owner interface{ Cut(worker int, cause error) }
	// Base is the base model that the request names; "": none. For a request with an adapter, the adapter's base model
	// is used instead.
	Base string
	// Engines has the engines that serve the request's adapter.
	Engines Engines
	// Streams states that tokens arrive one by one. If it is false, they arrive together with the whole reply.
	Streams bool
	// Only reports whether the worker with an address, HOST:PORT, may be picked. nil: every worker may.
	Only func(address string) bool
	// Held states whether the worker of the latest Route held the adapter when it was picked. It is true for a base
	// model.
	Held bool
	// Refusal is why the policy refused the request in the latest Route; nil: it did not.
	Refusal *router.Refusal

	generated atomic.Int32 // tokens so far
	on        *worker      // where it is, or was last; only its owner's calls change it
	worker    int          // -1: none; guarded, like all that follows, by table.mu
	rank      int32        // of its adapter
	running   bool
	booked    float64 // time of its booking, on the fleet's clock
	// the worker's trial, and the adapter's trial there, that the request is a part of; 0: none
	trial, adapterTrial uint32
	quiet               silence

	// Admission is the version of its adapter that serves the request; see LoRAManager.Serve. needs is the oldest
	// version that may serve it, newest the newest one at its arrival, and lease the version that its worker keeps.
	// others are the same for the other adapters of a batch.
	Admission     Admission
	needs, newest int32
	lease         versionKey
	others        []versionKey
}

// Generated returns the number of tokens generated so far.
func (r *Request) Generated() int { return int(r.generated.Load()) }

// MaxLost is the largest number of workers that may fail one request after it was sent to them. A worker fails a
// request if it closes or resets the connection, does not answer in time, or answers with a status of 500 or more
// other than 503. A request that makes workers fail is not sent to a third one, whatever the number of retries.
const MaxLost = 2

// Requests routes requests, books them on workers, and tracks them to their end. The owner of a request calls Route
// (or Book) first, and Tokens as tokens come. At the end it calls Finished, or Failed and Left.
type Requests struct {
	cfg      *Config
	table    *table
	catalog  *catalog
	outliers *detector
	plans    *planRunner
	inquirer *inquirer

	// guarded by the lock of the table
	fault error       // of the policy, as reported
	own   router.View // see copyOf
}

// Route picks a worker for a request, books the request there, and returns the worker's index. It returns router.None
// if no worker is usable. It passes over the workers that were tried if another one is usable, else over the latest.
func (q *Requests) Route(r *Request, tried ...int) int {
	defer q.table.lock()()
	v := q.masked(r, tried)
	q.table.expect(r)
	d := q.table.router.Route(r.Request, v)
	r.Refusal = d.Refusal
	q.noteFault(d.Err)
	w := d.Worker
	if w != router.None {
		q.table.router.Sent(r.Request, w, v)
		r.Held = r.Adapter == trace.BaseModel || q.table.workers[w].loras.rows[r.Adapter].held
		q.table.history.Sent(r.Request, w, v.Now)
		q.book(r, w)
		q.plans.change(d.Change)
	}
	return w
}

// Takes reports whether [Requests.Route] can find a worker that has not been tried.
func (q *Requests) Takes(r *Request, tried ...int) bool {
	defer q.table.lock()()
	v := q.masked(r, tried)
	for i := range v.Workers {
		if v.Workers[i].Usable() && !slices.Contains(tried, i) {
			return true
		}
	}
	return false
}

// masked returns the view in which the workers are hidden that a request avoids. Called with mu held.
func (q *Requests) masked(r *Request, tried []int) *router.View {
	v, base := q.table.fresh(), q.table.wanted(r.Adapter, r.Base)
	masked := len(tried) > 0 || !q.table.allServe(base) || !q.table.suits(r.Engines) || q.outliers.any() ||
		q.outliers.unfit(r.Adapter)
	if masked || r.Only != nil {
		v = q.copyOf(v)
		if masked {
			q.outliers.mask(v, r.Adapter, tried, func(k *worker) bool {
				return q.table.serves(k, base) && r.Engines.Has(k.kind())
			})
		}
		if r.Only != nil {
			hideOthers(r, v)
		}
	}
	return v
}

// copyOf returns a view whose workers may be hidden for one decision. The next call overwrites it. Called with mu held.
func (q *Requests) copyOf(v *router.View) *router.View {
	workers := append(q.own.Workers[:0], v.Workers...)
	q.own = *v
	q.own.Workers = workers
	return &q.own
}

// hideOthers hides the workers that a request's Only excludes.
func hideOthers(r *Request, v *router.View) {
	for i := range v.Workers {
		if w := &v.Workers[i]; !r.Only(w.Address) {
			w.Ejected = true
		}
	}
}

// noteFault logs the first failure of the policy. Called with mu held.
func (q *Requests) noteFault(err error) {
	if err != nil && q.fault == nil {
		q.fault = err
		q.cfg.Log("%v; a request for which the policy fails goes to the least loaded worker", err)
	}
}

// note tells the policy of an event. Called with mu held.
func (q *Requests) note(e router.Event) { q.noteFault(q.table.router.Note(e)) }

// noteRequest tells the policy what happened to a request at a worker. The policy does not know the requests of a
// worker that is gone: the slot is another's. Called with mu held.
func (q *Requests) noteRequest(kind router.EventKind, r *Request, k *worker) {
	if !k.gone {
		q.note(router.Event{Kind: kind, Now: q.cfg.Now(), ID: r.ID, Adapter: r.Adapter, Worker: int32(k.index)})
	}
}

// poll tells the policy at every interval of the fleet's clock that it is time to look at the workers.
func (q *Requests) poll(ctx context.Context, interval float64) {
	every := time.Duration(interval / q.cfg.Speed * float64(time.Second))
	for range Ticks(ctx, max(every, time.Millisecond)) {
		q.table.mu.Lock()
		v := q.table.fresh()
		q.note(router.Event{Kind: router.Polled, Now: v.Now, View: v})
		q.table.mu.Unlock()
	}
}

// Fault returns the first failure of the policy, or nil.
func (q *Requests) Fault() error {
	defer q.table.lock()()
	return q.fault
}

// ReadBody returns what the policy reads from a request's body, its Hint. It returns nil if the policy reads no bodies.
func (q *Requests) ReadBody(path string, body []byte) any {
	if read := q.cfg.Router.ReadBody; read != nil {
		return read(path, body)
	}
	return nil
}

// Refuse returns the reason for which the router rejects a request, and the seconds after which another try may
// succeed. The reason is "" if the request is not rejected.
func (q *Requests) Refuse(r *Request) (reason string, after float64) {
	defer q.table.lock()()
	if q.table.router.Admission == nil {
		return "", 0
	}
	q.table.expect(r)
	return q.table.router.Refuse(r.Request, q.table.fresh())
}

// Book books a request on a worker that its owner picked.
func (q *Requests) Book(r *Request, w int) {
	defer q.table.lock()()
	q.book(r, w)
}

// MoveTo books a request that has left its worker for worker w, the target of a plan. If w is not usable any more, it
// routes the request as [Requests.Route] does. It returns the index of the worker.
func (q *Requests) MoveTo(r *Request, w int) int {
	q.table.mu.Lock()
	q.countMove(r)
	usable := q.table.view.Workers[w].Usable()
	if usable {
		q.book(r, w)
	}
	q.table.mu.Unlock()
	if !usable {
		return q.Route(r, w)
	}
	return w
}

// emitPlace reports that a request is at a new place. Called with mu held.
func (q *Requests) emitPlace(place record.EventKind, r *Request, worker int) {
	q.table.emit(record.Event{Kind: place, Worker: int32(worker), ID: r.ID, Adapter: r.Adapter})
}

// countMove counts the move of a request that has left its worker. The latest token of a running request was not in the
// KV cache yet. Called with mu held.
func (q *Requests) countMove(r *Request) {
	if r.running {
		q.plans.book.Move(router.MoveRecompute, int64(r.Prompt)+int64(r.generated.Load())-1)
	} else {
		q.plans.book.Move(router.MoveQueued, 0)
	}
}

// book books a request on a worker. Called with mu held.
func (q *Requests) book(r *Request, w int) {
	q.table.expect(r)
	q.table.versions.arrived(r)
	k := q.table.workers[w]
	q.noteRequest(router.Sent, r, k)
	r.on, r.worker, r.booked, r.quiet = k, w, q.table.view.Now, silence{}
	k.out.enter(r)
	k.books.add(r, q.catalog.rank(r.Adapter))
	q.emitPlace(record.EventQueued, r, w)
	if r.Adapter != trace.BaseModel {
		k.loras.rows[r.Adapter].leaving = false // it is needed after all
	}
}

// First returns the first usable worker that holds adapter a or, for a request without an adapter, serves the base
// model; "": any base model. Otherwise it returns the first usable worker that may get the request, or router.None.
func (q *Requests) First(a int32, base string) int {
	defer q.table.lock()()
	base = q.table.wanted(a, base)
	first := router.None
	for i, k := range q.table.workers {
		switch {
		case !k.view.Usable() || !q.table.serves(k, base):
		case a == trace.BaseModel || k.loras.rows[a].held:
			return i
		case first == router.None:
			first = i
		}
	}
	return first
}

// Tokens notes n new tokens of a request. If first is true, they are the first ones on the worker, and the request
// counts as running from then on. Otherwise the call takes no lock.
func (q *Requests) Tokens(r *Request, n int, first bool) {
	n = min(n, maxGenerated-r.Generated())
	total := r.generated.Add(int32(n))
	k := r.on
	k.replies.heard.Add(1)
	if !first {
		k.books.kv.Add(int64(n))
		return
	}
	defer q.table.lock()()
	if int(total) == n { // else it had some on another worker
		q.noteRequest(router.FirstToken, r, k)
	}
	if !k.books.start(r) {
		return
	}
	q.emitPlace(record.EventRunning, r, k.index)
	if r.Adapter != trace.BaseModel {
		k.loras.used(r.Adapter)
	}
}

// Heard notes bytes of a reply that bring no token, such as comments of a stream.
func (q *Requests) Heard(r *Request) { r.on.replies.heard.Add(1) }

// Left removes a request from its worker.
func (q *Requests) Left(r *Request) {
	defer q.table.lock()()
	q.leave(r)
}

// leave is Left; called with mu held.
func (q *Requests) leave(r *Request) {
	if r.worker < 0 {
		return
	}
	k := r.on
	r.worker = -1
	q.noteRequest(router.Left, r, k)
	k.out.leave(r)
	k.books.remove(r)
	q.table.versions.left(r, k)
	if k.leaving {
		k.changed.notify()
	}
	if r.Adapter == trace.BaseModel {
		return
	}
	if k.view.Adapters[r.Adapter].Running == 0 {
		k.loras.updateSlots()
	}
	if k.loras.posted(r.Adapter) <= 0 {
		k.changed.notify()
	}
}

// Finished notes that worker w served a request to its end, and removes it from the worker. The argument reply is the
// time from the first token to the end as the client saw it, exec the time from the first token on w to the end, s.
// They differ for requests that moved, or went on here after a failure.
func (q *Requests) Finished(r *Request, w int, reply, exec float64) {
	defer q.table.lock()()
	q.leave(r)
	if r.on == nil || r.on.gone { // whoever has the slot now did not serve it
		return
	}
	q.outliers.succeeded(r, w)
	q.table.outputs.Ended(r.Adapter, r.generated.Load())
	end := router.Event{Kind: router.Finished, Now: q.cfg.Now(), ID: r.ID, Adapter: r.Adapter, Worker: int32(w),
		Output: r.generated.Load(), Exec: exec}
	end.E2E = max(end.Now-r.Sent, 0)
	end.TTFT = max(end.E2E-reply, 0)
	q.table.history.Finished(end)
	q.note(end)
}

// Failed notes that a request failed through a fault of worker w. The connection was refused or broke, nothing came in
// time, or the reply had a status of 5xx. A worker that refuses connections is down.
func (q *Requests) Failed(r *Request, w int, err error) {
	x := r.Fault(w, err)
	defer q.table.lock()()
	q.table.refused(w, err)
	q.outliers.failed(r, x)
}

// Tried is [Requests.Failed] for several workers that failed a request in succession. If served is true, another
// worker served it. If not, the request itself may be the cause: one failure counts, against the first worker. None
// counts if another worker in faults serves other requests well.
func (q *Requests) Tried(r *Request, faults []Fault, served bool) {
	defer q.table.lock()()
	q.outliers.tried(r, faults, served)
}
