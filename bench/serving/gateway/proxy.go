package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/bench/serving/metrics"
	"lorasim/bench/serving/wire"
	"lorasim/router"
)

// dispatch is one request in flight. It is the transport of the request's own reverse proxy. It picks a worker, and
// another one if the first does not take the request.
type dispatch struct {
	g         *Gateway
	r         *http.Request // the client's
	line      *line         // to the client, and of the access log
	parsed    *parsed
	booked    bool // it counts as a worker's load
	search    bool // what it asks for is on one worker, which is not known
	fr        fleet.Request
	adapter   string // for metrics
	sent      time.Time
	begun     time.Time      // first byte
	tried     []int          // workers
	lost      int            // of these, that may have executed the request and brought no answer
	began     bool           // a worker has failed after the header of its reply
	postponed bool           // the latest worker has asked for a pause
	evictions int            // times that a worker had evicted the adapter meanwhile
	noPlace   *fleet.NoPlace // the latest worker had no place for the adapter
	asked     int            // the worker whose bytes are handled; -1: none yet
	faults    []fleet.Fault  // of the workers that did not serve the request
	now       atomic.Pointer[answer]
	answer    *answer // what is passed on; nil: nothing yet
}

// proxy routes a request and passes it on.
func (g *Gateway) proxy(rw http.ResponseWriter, r *http.Request) { g.pass(rw, r, false) }

// proxySearching passes a request on to one worker after another until a worker answers with a status other than 404.
func (g *Gateway) proxySearching(rw http.ResponseWriter, r *http.Request) { g.pass(rw, r, true) }

func (g *Gateway) pass(rw http.ResponseWriter, r *http.Request, search bool) {
	if no := g.enter(); no != nil {
		g.refuse(rw, no, no.text)
		return
	}
	l := rw.(*line)
	l.inside = true
	q, status, err := g.understand(l.ResponseWriter, r)
	if err != nil {
		g.refuse(rw, &refusal{status: status, text: err.Error()}, http.StatusText(status))
		return
	}
	defer q.release()
	if err := g.oneBase(q); err != nil && r.Method == http.MethodPost && !search {
		g.refuse(rw, &refusal{status: http.StatusBadRequest, text: err.Error()}, "Bad Request")
		return
	}
	if err := g.cfg.Fleet.Orphaned(q.adapter); err != nil {
		g.refuse(rw, &refusal{status: http.StatusNotFound, text: err.Error()}, "Not Found")
		return
	}
	engines := q.engines(r.URL.Path)
	if !g.cfg.Fleet.Serves(engines) {
		g.refuse(rw, &refusal{status: http.StatusNotFound, text: fleet.NoEngine(r.URL.Path)}, "Not Found")
		return
	}
	d := &dispatch{g: g, r: r, line: l, parsed: q, sent: time.Now(), adapter: "base", search: search,
		booked: r.Method == http.MethodPost && !search, asked: -1}
	if q.adapter >= 0 {
		d.adapter = g.cfg.Fleet.Adapters()[q.adapter].Name
	}
	l.adapter, l.prompt = d.adapter, q.prompt
	d.fr = fleet.Request{Request: router.Request{ID: g.nextID.Add(1), Adapter: q.adapter, Prompt: q.prompt,
		MaxNew: q.maxNew}, Sent: g.workers.Now()}
	d.fr.Owner, d.fr.Streams, d.fr.Base = d, q.stream, q.base
	d.fr.Engines = engines
	g.identify(q, &d.fr)
	if q.whole {
		d.fr.Hint = g.cfg.Fleet.Requests.ReadBody(r.URL.Path, q.data)
	}
	q.content = nil // which would keep the body in memory
	proxy := httputil.ReverseProxy{Transport: d, Rewrite: d.rewrite, ErrorHandler: d.failed, BufferPool: &buffers,
		ErrorLog: g.silent}
	d.guard(func() { proxy.ServeHTTP(l, r) })
}

// reject answers a request that no worker serves. The reason is one of few short texts.
func (g *Gateway) reject(rw http.ResponseWriter, status int, text, reason string) {
	g.metrics.Rejected(status, strings.ReplaceAll(strings.ToLower(reason), " ", "_"))
	fail(rw, status, text)
}

// refuse rejects a request and states the time after which another try may succeed.
func (g *Gateway) refuse(rw http.ResponseWriter, no *refusal, reason string) {
	if no.status == http.StatusServiceUnavailable || no.after > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(no.after)))))
	}
	g.reject(rw, no.status, no.text, reason)
}

// rewrite sets the parts of the outgoing request that are the same for all workers.
func (d *dispatch) rewrite(p *httputil.ProxyRequest) {
	dropInstructions(p.Out.Header)
	p.SetXForwarded()
	p.Out.Header.Del("Connection") // with Upgrade, the proxy adds it again
	p.Out.Header.Del("Upgrade")
	p.Out.Header.Del("Expect")   // the body is sent at once
	if d.g.cfg.Keys.Required() { // they were for the gateway
		p.Out.Header.Del("Authorization")
		p.Out.Header.Del("X-Api-Key")
	}
	if d.g.sendsKey() {
		p.Out.Header.Del("X-Api-Key") // in place of which the gateway's key goes to the worker
	}
	maps.Copy(p.Out.Header, d.g.workers.Header)
}

// refusal is an answer of the gateway itself.
type refusal struct {
	status int
	text   string
	after  float64 // s until another try may be worth it; 0: not known
}

func (e *refusal) Error() string { return e.text }

// statusClientGone is the status of requests whose clients have gone, as in nginx.
const statusClientGone = 499

// failed answers a request that no worker took.
func (d *dispatch) failed(rw http.ResponseWriter, r *http.Request, err error) {
	no, ok := errors.AsType[*refusal](err)
	switch body := d.parsed.failed(); {
	case body != nil:
		no = &refusal{status: statusOf(body), text: body.Error()}
	case r.Context().Err() != nil: // whoever still listens must not take silence for an empty answer
		d.g.reject(rw, statusClientGone, "the client closed its connection", metrics.ClientGone)
		return
	case !ok:
		no = &refusal{status: http.StatusBadGateway, text: err.Error()}
	}
	if d.line.early {
		d.line.streams = true
		d.line.Write(lastEvent(no.status, no.text)) // what fails is the connection, which breaks now
		panic(http.ErrAbortHandler)
	}
	d.g.refuse(rw, no, http.StatusText(no.status))
}

// offer tries one worker after another until one answers.
func (d *dispatch) offer(r *http.Request) (*http.Response, error) {
	if d.booked {
		if reason, after := d.g.cfg.Fleet.Requests.Refuse(&d.fr); reason != "" {
			return nil, &refusal{http.StatusTooManyRequests, reason, after}
		}
	}
	last, why := "no worker is available", ""
	for {
		w, final := d.pick(), len(d.tried) >= d.g.cfg.Retries && !d.search
		if w == router.None {
			return nil, &refusal{status: http.StatusServiceUnavailable, text: last}
		}
		if why != "" {
			d.g.metrics.Retried(why)
		}
		if d.tried = append(d.tried, w); len(d.tried) == 1 && d.booked && d.parsed.adapter >= 0 {
			d.g.metrics.Routed(d.g.cfg.Fleet.URL(w), d.adapter, d.fr.Held)
		}
		d.line.worker, d.line.url, d.line.tries = w, d.g.cfg.Fleet.URL(w), len(d.tried)
		resp, f := d.try(r, w, final || !d.booked && d.next() == router.None)
		if resp != nil {
			return resp, nil
		}
		goesOn := !final && !d.parsed.spent.Load() && d.goesOn(f)
		if f.lost {
			d.lost++
		}
		if err := cmp.Or(d.parsed.failed(), r.Context().Err()); err != nil {
			return nil, err
		}
		if no := d.noPlace; no != nil && (final || no.Late || d.g.cfg.Fleet.Up() <= len(d.tried)) {
			return nil, &refusal{http.StatusServiceUnavailable, f.text, no.After.Seconds()}
		}
		if last = f.text; !goesOn {
			return nil, &refusal{status: http.StatusBadGateway, text: last}
		}
		if why = f.reason; !d.another() {
			d.pause()
		}
	}
}

// pick returns the next worker to try. The policy picks it and books the request there. A request without work for the
// model goes to the first worker that has not been tried.
func (d *dispatch) pick() int {
	if d.booked {
		return d.g.cfg.Fleet.Requests.Route(&d.fr, d.tried...)
	}
	if w := d.g.cfg.Fleet.Requests.First(d.parsed.adapter, d.parsed.base); !slices.Contains(d.tried, w) {
		return w
	}
	return d.next()
}

// next returns the first usable worker that has not been tried.
func (d *dispatch) next() int {
	for _, s := range d.g.cfg.Fleet.Status() {
		if s.Up && !s.Draining && !s.Ejected && !slices.Contains(d.tried, s.Worker) {
			return s.Worker
		}
	}
	return router.None
}

// try sends the request to a worker. If the worker did not take it and another one may, try returns no response but
// the fault. If final is true, it returns any response of the worker.
func (d *dispatch) try(r *http.Request, w int, final bool) (resp *http.Response, f *fault) {
	workers := d.g.cfg.Fleet
	d.postponed = false
	if !d.fr.Engines.Has(workers.API(w)) {
		return nil, &fault{reason: notLoaded, text: fleet.NoEngine(r.URL.Path), other: true}
	}
	a := d.begin(r, w)
	defer func() {
		if resp == nil {
			a.leave()
		}
	}()
	for {
		for _, k := range append([]int32{d.parsed.adapter}, d.parsed.others...) {
			if err := workers.LoRAs.EnsureWithin(a.ctx, w, k, d.wait()); err != nil {
				if errors.Is(err, fleet.ErrChanged) {
					return nil, d.unanswered(a, err)
				}
				d.noPlace, _ = errors.AsType[*fleet.NoPlace](err)
				return nil, &fault{reason: notLoaded, text: err.Error(), other: true}
			}
		}
		var err error
		if resp, err = d.send(a); err != nil {
			return nil, d.unanswered(a, err)
		}
		if !d.evicted(resp, w) {
			break
		}
	}
	d.postpone(w, resp)
	if !final && !d.parsed.spent.Load() && d.again(resp.StatusCode) && d.goesOn(answered(resp.StatusCode, "")) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
		resp.Body.Close()
		text := fleet.ErrorText(body)
		d.answered(a, resp, text)
		if resp.StatusCode != http.StatusNotFound || d.search || d.misses(text) {
			if resp.StatusCode == http.StatusNotFound && d.parsed.adapter >= 0 {
				workers.LoRAs.Forget(w, d.parsed.adapter)
			}
			return nil, answered(resp.StatusCode, text)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	if resp.StatusCode == http.StatusOK && !d.began {
		d.tell(true) // now: the first token may take seconds, in which others would go to the workers that failed
	}
	a.take(resp)
	if f, err := a.hold(resp, final || d.parsed.spent.Load()); f != nil || err != nil {
		a.ReadCloser.Close()
		if resp, d.began = nil, true; err != nil {
			return nil, d.unanswered(a, err)
		}
		if f.err != nil {
			d.fault(w, f.err)
		}
		return nil, f
	}
	d.answer = a
	return resp, nil
}

// notServed is what engines answer to a path that they do not have; else status
// 404 speaks of the adapter.
var notServed = regexp.MustCompile(`(?i)^"?(404 page )?not found"?$`)

// misses reports whether the text of a status 404 says that the worker lacks the model or adapter.
func (d *dispatch) misses(text string) bool {
	if d.parsed.adapter < 0 {
		return fleet.IsNotLoaded(text)
	}
	return !notServed.MatchString(text)
}

// again reports whether another worker, or a load of the adapter, may help. Objects that clients left on one worker,
// such as a response to look up, are not on the others.
func (d *dispatch) again(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || d.foreign(status) || d.keyRefused(status) ||
		status == http.StatusTooManyRequests ||
		status == http.StatusNotFound && (d.parsed.adapter >= 0 || d.parsed.base != "" || d.search)
}

// wait limits the wait of the request for a place for its adapter, on all workers.
func (d *dispatch) wait() fleet.Wait {
	wait := fleet.Wait{Since: d.sent}
	if limit := d.g.cfg.QueueTimeout; limit > 0 {
		wait.Until = d.sent.Add(limit)
	}
	return wait
}

// send sends the request to the worker of an answer.
func (d *dispatch) send(a *answer) (*http.Response, error) {
	ctx, engine, err := d.process(a)
	if err != nil {
		return nil, err
	}
	out, base, r := a.r.WithContext(ctx), d.g.cfg.Fleet.Base(a.w), a.r
	out.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + r.URL.Path, RawQuery: r.URL.RawQuery}
	out.URL.RawPath = base.EscapedPath() + r.URL.EscapedPath() // of no effect where it says the same as Path
	out.Host = ""
	e := d.parsed.respell(engine.API, engine.Model, d.adapter)
	if e.name != nil {
		a.renamer = httpapi.NewRenamer(e.model, cmp.Or(d.parsed.asked, d.adapter))
		out.Header.Del("Accept-Encoding") // names in a compressed reply stay as they are
	}
	a.names = d.expect(engine, e.model)
	if d.booked {
		a.aborts = abortMarkOf(engine.API, r.URL.Path, d.parsed.stream)
	}
	d.parsed.send(out, e)
	d.asked = a.w
	if d.parsed.stream {
		a.wait(d.g.cfg.FirstByte)
	}
	resp, err := d.g.transport.RoundTrip(out)
	if cause := a.cause(); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	if err == nil {
		d.check(resp)
	}
	return resp, err
}

// process returns the engine for which the request is spelled, and a context that keeps it from other ones.
func (d *dispatch) process(a *answer) (context.Context, *fleet.Info, error) {
	f := d.g.cfg.Fleet
	if !d.booked {
		return a.ctx, &fleet.Info{API: f.API(a.w), Model: f.Model(a.w)}, nil
	}
	p, err := f.Requests.Process(&d.fr)
	if err != nil {
		return nil, nil, err
	}
	confirm := func(ctx context.Context) error { return f.Requests.Confirm(ctx, &d.fr) }
	return wire.For(a.ctx, &wire.Process{ID: p.ID, Confirm: confirm}), &p.Info, nil
}

// check casts doubt on a worker whose reply contradicts what is known of it.
func (d *dispatch) check(resp *http.Response) {
	if !d.booked {
		return
	}
	requests := d.g.cfg.Fleet.Requests
	requests.Server(&d.fr, resp.Header.Get("Server"))
	if resp.StatusCode == http.StatusNotFound {
		requests.Doubt(&d.fr)
	}
}

// answer is the body of a worker's answer. It is counted as it passes.
type answer struct {
	io.ReadCloser
	d      *dispatch
	r      *http.Request // as the reverse proxy made it
	ctx    context.Context
	w      int
	status int
	cancel context.CancelCauseFunc
	timer  *time.Timer // of the time limit on the next bytes; nil: there was none
	waits  atomic.Bool // the gateway waits for bytes
	begun  atomic.Bool // it is not the first byte of a stream that it waits for
	form   form
	tail   [32]byte // the latest bytes
	said   []byte   // the beginning of an event with an error; nil: there was none
	last   []byte   // what the client gets beyond what the worker sent
	names  modelNames
	aborts abortMark
	// renamer gives the client the name of the model that it used; nil: that is the worker's
	renamer *httpapi.Renamer
	rest    []byte // renamed, but not read yet
	err     error  // how the answer ended; nil: it has not
	events  int
	usage   httpapi.Counts
	over    bool // the answer has ended
}

func (a *answer) Read(p []byte) (int, error) {
	if a.err != nil || len(a.rest) > 0 {
		return a.drain(p)
	}
	if a.events > 0 || !a.isStream() { // the start of a stream is there already
		a.begun.Store(true)
		a.wait(a.d.g.cfg.Idle)
	}
	n, err := a.ReadCloser.Read(p)
	a.waits.Store(false)
	if at := a.abortedAt(p[:n]); at >= 0 {
		n, err = at, errAborted
	}
	if n > 0 {
		a.count(p[:n])
		a.note(p[:n])
	}
	if a.renamer != nil {
		n = a.rename(p, n, err)
	}
	if err == nil {
		return n, nil
	}
	a.finish(err)
	if n > 0 {
		return n, nil
	}
	return a.drain(p)
}

var dataMark = []byte("data:")

// count counts each event as a token, and also each part without an event.
func (a *answer) count(part []byte) {
	d := a.d
	events := max(bytes.Count(part, dataMark), 1)
	if d.booked {
		d.g.cfg.Fleet.Requests.Tokens(&d.fr, events, a.events == 0)
	}
	if a.events == 0 {
		d.begun = time.Now()
		d.line.firstByte = d.begun.Sub(d.sent)
		d.g.metrics.FirstByte(d.adapter, d.line.firstByte)
		if d.parsed.sent.Load() {
			d.parsed.release()
		}
	}
	a.events += events
	d.line.events = a.events
}

// end notes how the answer ended. Only the first call has an effect.
func (a *answer) end(err error) {
	if a.over {
		return
	}
	a.over = true
	d := a.d
	d.line.told(a)
	result := metrics.Complete
	switch {
	case errors.Is(err, io.EOF):
		if fault := a.fault(); fault != nil {
			result = metrics.Broken
			d.g.cfg.Fleet.Requests.Failed(&d.fr, a.w, fault)
		} else if a.events > 0 && a.said == nil && a.status == http.StatusOK && d.booked && d.computes() {
			took := time.Since(d.begun).Seconds()
			d.g.cfg.Fleet.Requests.Finished(&d.fr, a.w, took, took)
		}
	case err == nil || d.r.Context().Err() != nil || d.parsed.failed() != nil:
		result = metrics.ClientGone
	default:
		result = metrics.Broken
		d.g.cfg.Fleet.Requests.Failed(&d.fr, a.w, err)
	}
	d.g.metrics.Ended(metrics.Request{Worker: d.line.url, Adapter: d.adapter, Code: a.status, Result: result,
		Prompt: int64(d.line.prompt), Output: d.line.output, Duration: time.Since(d.sent)})
}

// Close implements io.Closer. The proxy closes what it does not read to the end
// when it cannot write it: the client has gone.
func (a *answer) Close() error {
	defer a.leave() // also if what follows panics
	defer a.end(nil)
	return a.ReadCloser.Close()
}

// leave removes the request from its worker.
func (a *answer) leave() {
	if a.timer != nil {
		a.timer.Stop()
	}
	a.cancel(nil)
	if a.d.booked {
		a.d.g.cfg.Fleet.Requests.Left(&a.d.fr)
	}
}

// bufferPool has the buffers through which answers are copied.
type bufferPool struct{ sync.Pool }

const bufferSize = 16 << 10

var buffers = bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}

func (p *bufferPool) Get() []byte  { return p.Pool.Get().(*[bufferSize]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferSize]byte)(b)) }
