package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/router"
)

// dispatch is one request on its way: the transport of a reverse proxy of its own,
// which picks the worker, and another one when that does not take it.
type dispatch struct {
	g       *Gateway
	r       *http.Request // the client's
	line    *line         // to the client, and of the access log
	want    *want
	booked  bool // it counts as a worker's load
	search  bool // what it asks for is on one worker, which is not known
	fr      fleet.Request
	adapter string // for metrics
	sent    time.Time
	begun   time.Time // first byte
	tried   []int     // workers
}

// proxy routes a request and passes it on.
func (g *Gateway) proxy(rw http.ResponseWriter, r *http.Request) { g.pass(rw, r, false) }

// proxySearching passes a request on to one worker after the other until one does
// not answer with 404.
func (g *Gateway) proxySearching(rw http.ResponseWriter, r *http.Request) { g.pass(rw, r, true) }

func (g *Gateway) pass(rw http.ResponseWriter, r *http.Request, search bool) {
	if !g.enter() {
		rw.Header().Set("Retry-After", "1")
		g.reject(rw, http.StatusServiceUnavailable, "shutting down", "shutting down")
		return
	}
	l := rw.(*line)
	l.inside = true
	q, status, err := g.understand(r)
	if err != nil {
		g.reject(rw, status, err.Error(), http.StatusText(status))
		return
	}
	d := &dispatch{g: g, r: r, line: l, want: q, sent: time.Now(), adapter: "base", search: search, booked: r.Method == http.MethodPost && !search}
	if q.adapter >= 0 {
		d.adapter = g.cfg.Fleet.Adapters()[q.adapter].Name
	}
	l.adapter, l.prompt = d.adapter, q.prompt
	d.fr = fleet.Request{Request: router.Request{ID: g.nextID.Add(1), Adapter: q.adapter, Prompt: q.prompt, MaxNew: q.maxNew}, Sent: g.workers.Now()}
	g.identify(q, &d.fr)
	proxy := httputil.ReverseProxy{Transport: d, Rewrite: d.rewrite, ErrorHandler: d.failed, BufferPool: &buffers, ErrorLog: g.silent}
	proxy.ServeHTTP(l, r)
}

func (g *Gateway) reject(rw http.ResponseWriter, status int, text, reason string) {
	g.metrics.rejected.WithLabelValues(reason).Inc()
	fail(rw, status, text)
}

// rewrite sets what all workers get alike.
func (d *dispatch) rewrite(p *httputil.ProxyRequest) {
	dropInstructions(p.Out.Header)
	p.SetXForwarded()
	p.Out.Header.Del("Connection") // with Upgrade, the proxy adds it again
	p.Out.Header.Del("Upgrade")
	if d.g.cfg.Keys.Required() {
		p.Out.Header.Del("Authorization") // it was for the gateway
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

// failed answers a request that no worker took.
func (d *dispatch) failed(rw http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	no, ok := errors.AsType[*refusal](err)
	if !ok {
		no = &refusal{status: http.StatusBadGateway, text: err.Error()}
	}
	if no.status == http.StatusServiceUnavailable || no.after > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(no.after)))))
	}
	d.g.reject(rw, no.status, no.text, http.StatusText(no.status))
}

// RoundTrip implements http.RoundTripper: it tries one worker after the other
// until one answers.
func (d *dispatch) RoundTrip(r *http.Request) (*http.Response, error) {
	if d.booked {
		if reason, after := d.g.cfg.Fleet.Refuse(&d.fr); reason != "" {
			return nil, &refusal{http.StatusTooManyRequests, reason, after}
		}
	}
	last := "no worker is available"
	for {
		w, final := d.pick(), len(d.tried) >= d.g.cfg.Retries && !d.search
		if w == router.None {
			return nil, &refusal{status: http.StatusServiceUnavailable, text: last}
		}
		d.tried = append(d.tried, w)
		d.line.worker, d.line.tries = w, len(d.tried)
		resp, reason := d.try(r, w, final || !d.booked && d.next() == router.None)
		if resp != nil {
			return resp, nil
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if last = reason; final || d.want.spent.Load() {
			return nil, &refusal{status: http.StatusBadGateway, text: last}
		}
		d.g.metrics.retries.Inc()
	}
}

// pick is the next worker: by the policy, and booked there; or, of a request that
// asks for no work, the first that has not been asked.
func (d *dispatch) pick() int {
	if d.booked {
		avoid := -1
		if n := len(d.tried); n > 0 {
			avoid = d.tried[n-1]
		}
		return d.g.cfg.Fleet.Route(&d.fr, avoid)
	}
	if w := d.g.cfg.Fleet.First(d.want.adapter); !slices.Contains(d.tried, w) {
		return w
	}
	return d.next()
}

// next is the first worker that has not been asked.
func (d *dispatch) next() int {
	for w, s := range d.g.cfg.Fleet.Workers() {
		if s.Up && !s.Draining && !slices.Contains(d.tried, w) {
			return w
		}
	}
	return router.None
}

// try sends the request to a worker. It returns no answer, and why, if the
// worker did not take it and another one may; with final it returns whatever the
// worker answers.
func (d *dispatch) try(r *http.Request, w int, final bool) (resp *http.Response, reason string) {
	workers := d.g.cfg.Fleet
	a := &answer{d: d, w: w, cancel: func() {}}
	defer func() {
		if resp == nil {
			a.leave()
		}
	}()
	for _, k := range append([]int32{d.want.adapter}, d.want.others...) {
		if err := workers.Ensure(r.Context(), w, k); err != nil {
			return nil, err.Error()
		}
	}
	resp, err := d.send(r, a)
	if err != nil {
		if r.Context().Err() == nil {
			workers.Suspect(w, err)
			d.g.workers.Log("worker %d: %v", w, err)
		}
		return nil, "the worker did not answer"
	}
	if !final && !d.want.spent.Load() && d.again(resp.StatusCode) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
		resp.Body.Close()
		text := fleet.ErrorText(body)
		if d.want.adapter < 0 || resp.StatusCode != http.StatusNotFound {
			return nil, text
		}
		if !notServed.MatchString(text) {
			workers.Forget(w, d.want.adapter)
			return nil, text
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	a.ReadCloser, a.status = resp.Body, resp.StatusCode
	d.line.streams = resp.ContentLength < 0
	resp.Body = a
	return resp, ""
}

// notServed is what engines answer to a path that they do not have; else status
// 404 speaks of the adapter.
var notServed = regexp.MustCompile(`(?i)^"?(404 page )?not found"?$`)

// again says whether another worker, or a load of the adapter, may help. What
// clients left on a worker, such as a response to look up, is not on the others.
func (d *dispatch) again(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests ||
		status == http.StatusNotFound && (d.want.adapter >= 0 || d.search)
}

// send sends the request to the worker of an answer.
func (d *dispatch) send(r *http.Request, a *answer) (*http.Response, error) {
	ctx := r.Context()
	if limit := d.g.cfg.FirstByte; limit > 0 {
		ctx, a.cancel = context.WithCancel(ctx)
		t := time.AfterFunc(limit, a.cancel)
		defer t.Stop()
	}
	out, base := r.WithContext(ctx), d.g.urls[a.w]
	out.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + r.URL.Path, RawQuery: r.URL.RawQuery}
	out.URL.RawPath = base.EscapedPath() + r.URL.EscapedPath() // of no effect where it says the same as Path
	out.Host = ""
	d.want.send(out, d.want.respelt(d.g.cfg.Fleet.API(a.w), d.g.cfg.Fleet.Model(a.w), d.adapter))
	return d.g.transport.RoundTrip(out)
}

// answer is the body of a worker's answer, which is counted as it passes.
type answer struct {
	io.ReadCloser
	d      *dispatch
	w      int
	status int
	cancel context.CancelFunc
	events int
	over   bool // the answer has ended
}

func (a *answer) Read(p []byte) (int, error) {
	stop := func() {}
	if a.events == 0 && a.d.line.streams {
		stop = a.d.sendHeader()
	}
	n, err := a.ReadCloser.Read(p)
	stop()
	if n > 0 {
		a.count(p[:n])
	}
	if err != nil {
		a.end(err)
	}
	return n, err
}

// headerDelay is how long the header of a stream waits for what comes first.
const headerDelay = 5 * time.Millisecond

// sendHeader sends the header if nothing follows soon, until it is stopped.
func (d *dispatch) sendHeader() (stop func()) {
	sent := make(chan struct{})
	t := time.AfterFunc(headerDelay, func() {
		defer close(sent)
		d.line.flush() // what fails is the connection, which the next write sees
	})
	return func() {
		if !t.Stop() {
			<-sent
		}
	}
}

var dataMark = []byte("data:")

// count takes events for tokens, and a part without one for one.
func (a *answer) count(part []byte) {
	d := a.d
	events := max(bytes.Count(part, dataMark), 1)
	if d.booked {
		d.g.cfg.Fleet.Tokens(&d.fr, events, a.events == 0)
	}
	if a.events == 0 {
		d.begun = time.Now()
		d.line.firstByte = d.begun.Sub(d.sent)
		d.g.metrics.firstByte.Observe(d.line.firstByte.Seconds())
	}
	a.events += events
	d.line.events = a.events
}

// end notes how the answer ended; the first time counts.
func (a *answer) end(err error) {
	if a.over {
		return
	}
	a.over = true
	d := a.d
	result := http.StatusText(a.status)
	switch {
	case errors.Is(err, io.EOF):
		if a.events > 0 && a.status == http.StatusOK && d.booked {
			d.g.cfg.Fleet.Finished(&d.fr, a.w, time.Since(d.begun).Seconds())
		}
	case err == nil || d.r.Context().Err() != nil:
		result = "client gone"
	default:
		result = "broken"
		d.g.cfg.Fleet.Suspect(a.w, err)
	}
	d.g.metrics.requests.WithLabelValues(strconv.Itoa(a.w), d.adapter, result).Inc()
}

// Close implements io.Closer. The proxy closes what it does not read to the end
// when it cannot write it: the client has gone.
func (a *answer) Close() error {
	err := a.ReadCloser.Close()
	a.end(nil)
	a.leave()
	return err
}

// leave takes the request off the worker.
func (a *answer) leave() {
	a.cancel()
	if a.d.booked {
		a.d.g.cfg.Fleet.Left(&a.d.fr)
	}
}

// bufferPool keeps the buffers through which answers are copied.
type bufferPool struct{ sync.Pool }

const bufferSize = 16 << 10

var buffers = bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}

func (p *bufferPool) Get() []byte  { return p.Pool.Get().(*[bufferSize]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferSize]byte)(b)) }
