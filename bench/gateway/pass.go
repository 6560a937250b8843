package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"sync"
	"syscall"
	"time"

	"lorasim/bench/live/fleet"
	"lorasim/router"
)

// flight is one request on its way: the transport of a reverse proxy of its own,
// which picks the worker, and another one when that does not take it.
type flight struct {
	g       *Gateway
	r       *http.Request // the client's
	rw      http.ResponseWriter
	streams bool // the length of the answer is not known
	want    *want
	booked  bool // it counts as a worker's load
	fr      fleet.Request
	adapter string // for metrics
	sent    time.Time
	begun   time.Time // first byte
	line    *line     // of the access log
	tried   []int     // workers
}

// pass routes a request and passes it on.
func (g *Gateway) pass(rw http.ResponseWriter, r *http.Request) {
	if !g.gate.enter() {
		rw.Header().Set("Retry-After", "1")
		g.reject(rw, http.StatusServiceUnavailable, "shutting down", "shutting down")
		return
	}
	if l, ok := rw.(*line); ok {
		l.written = g.gate.leave
	} else {
		defer g.gate.leave()
	}
	q, status, err := g.understand(r)
	if err != nil {
		g.reject(rw, status, err.Error(), http.StatusText(status))
		return
	}
	f := &flight{g: g, r: r, want: q, sent: time.Now(), adapter: "base", line: lineOf(rw), booked: r.Method == http.MethodPost}
	if q.adapter >= 0 {
		f.adapter = g.cfg.Fleet.Adapters()[q.adapter].Name
	}
	f.line.adapter, f.line.prompt = f.adapter, q.prompt
	f.fr = fleet.Request{ID: g.nextID.Add(1), Adapter: q.adapter, Prompt: q.prompt, MaxNew: q.maxNew, Sent: g.cfg.Now()}
	proxy := httputil.ReverseProxy{Transport: f, Rewrite: f.rewrite, ErrorHandler: f.failed, BufferPool: &buffers, ErrorLog: g.silent}
	f.rw = rw
	proxy.ServeHTTP(writer{f}, r)
}

// writer passes an answer to the client as it comes. The proxy itself would send
// the header first, alone.
type writer struct{ f *flight }

func (w writer) Header() http.Header    { return w.f.rw.Header() }
func (w writer) WriteHeader(status int) { w.f.rw.WriteHeader(status) }

func (w writer) Write(p []byte) (int, error) {
	n, err := w.f.rw.Write(p)
	if w.f.streams && err == nil {
		err = w.f.flush()
	}
	return n, err
}

func (f *flight) flush() error { return http.NewResponseController(f.rw).Flush() }

// headerDelay is how long the header of a stream waits for what comes first.
const headerDelay = 5 * time.Millisecond

func (g *Gateway) reject(rw http.ResponseWriter, status int, text, reason string) {
	g.metrics.rejected.WithLabelValues(reason).Inc()
	fail(rw, status, text)
}

// rewrite sets what all workers get alike.
func (f *flight) rewrite(p *httputil.ProxyRequest) {
	p.SetXForwarded()
	p.Out.Header.Del("Connection") // with Upgrade, the proxy adds it again
	p.Out.Header.Del("Upgrade")
	if f.g.cfg.APIKey != "" {
		p.Out.Header.Del("Authorization") // it was for the gateway
	}
	for k, v := range f.g.cfg.Header {
		p.Out.Header[k] = v
	}
}

// refusal is an answer of the gateway itself.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

// failed answers a request that no worker took.
func (f *flight) failed(rw http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil {
		return // the client has gone
	}
	no := &refusal{http.StatusBadGateway, err.Error()}
	errors.As(err, &no)
	if no.status == http.StatusServiceUnavailable {
		rw.Header().Set("Retry-After", "1")
	}
	f.g.reject(rw, no.status, no.text, http.StatusText(no.status))
}

// RoundTrip implements http.RoundTripper: it offers the request to one worker
// after the other until one answers.
func (f *flight) RoundTrip(r *http.Request) (*http.Response, error) {
	last := "no worker is available"
	for try := 0; ; try++ {
		w := f.pick()
		if w == router.None {
			return nil, &refusal{http.StatusServiceUnavailable, last}
		}
		f.line.worker, f.line.tries = w, try+1
		resp, reason := f.offer(r, w, try >= f.g.cfg.Retries || !f.booked && f.next(w) == router.None)
		if resp != nil {
			return resp, nil
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if last = reason; try >= f.g.cfg.Retries || f.want.spent.Load() {
			return nil, &refusal{http.StatusBadGateway, last}
		}
		f.g.metrics.retries.Inc()
		f.tried = append(f.tried, w)
	}
}

// pick is the next worker: by the policy, and booked there; or, of a request that
// asks for no work, the first that has not been asked.
func (f *flight) pick() int {
	if f.booked {
		avoid := -1
		if n := len(f.tried); n > 0 {
			avoid = f.tried[n-1]
		}
		return f.g.cfg.Fleet.Route(&f.fr, avoid)
	}
	if w := f.g.cfg.Fleet.First(f.want.adapter); !slices.Contains(f.tried, w) {
		return w
	}
	return f.next(router.None)
}

// next is the first worker beside one that has not been asked.
func (f *flight) next(beside int) int {
	for w, s := range f.g.cfg.Fleet.Workers() {
		if w != beside && s.Up && !s.Draining && !slices.Contains(f.tried, w) {
			return w
		}
	}
	return router.None
}

// offer sends the request to a worker. It returns no answer, and why, if the
// worker did not take it and another one may; with final it returns whatever the
// worker answers.
func (f *flight) offer(r *http.Request, w int, final bool) (resp *http.Response, reason string) {
	g := f.g
	a := &answer{f: f, w: w, cancel: func() {}}
	defer func() {
		if resp == nil {
			a.leave()
		}
	}()
	for _, k := range append([]int32{f.want.adapter}, f.want.others...) {
		if err := g.cfg.Fleet.Ensure(r.Context(), w, k); err != nil {
			if errors.Is(err, syscall.ECONNREFUSED) {
				g.cfg.Fleet.Suspect(w, err, true)
			}
			return nil, err.Error()
		}
	}
	resp, err := f.send(r, a)
	if err != nil {
		if r.Context().Err() == nil {
			g.cfg.Fleet.Suspect(w, err, errors.Is(err, syscall.ECONNREFUSED))
			g.cfg.Log("worker %d: %v", w, err)
		}
		return nil, "the worker did not answer"
	}
	if !final && !f.want.spent.Load() && f.again(resp.StatusCode) {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is there of it is good enough for a message
		resp.Body.Close()
		text := fleet.ErrorText(body)
		if f.want.adapter < 0 || resp.StatusCode != http.StatusNotFound {
			return nil, text
		}
		if !notServed.MatchString(text) {
			g.cfg.Fleet.Forget(w, f.want.adapter)
			return nil, text
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
	}
	a.ReadCloser, a.status = resp.Body, resp.StatusCode
	f.streams = resp.ContentLength < 0
	resp.Body = a
	return resp, ""
}

// notServed is what engines answer to a path that they do not have; else status
// 404 speaks of the adapter.
var notServed = regexp.MustCompile(`(?i)^"?(404 page )?not found"?$`)

// again says whether another worker, or a load of the adapter, may help. What
// clients left on a worker, such as a response to look up, is not on the others.
func (f *flight) again(status int) bool {
	return status >= 500 && status != http.StatusNotImplemented || status == http.StatusTooManyRequests ||
		status == http.StatusNotFound && (f.want.adapter >= 0 || !f.booked)
}

// send sends the request to the worker of an answer.
func (f *flight) send(r *http.Request, a *answer) (*http.Response, error) {
	g := f.g
	ctx := r.Context()
	if d := g.cfg.FirstByte; d > 0 {
		ctx, a.cancel = context.WithCancel(ctx)
		t := time.AfterFunc(d, a.cancel)
		defer t.Stop()
	}
	out := r.WithContext(ctx)
	base := g.urls[a.w]
	out.URL = &url.URL{Scheme: base.Scheme, Host: base.Host, Path: base.Path + r.URL.Path, RawQuery: r.URL.RawQuery}
	out.URL.RawPath = base.EscapedPath() + r.URL.EscapedPath() // of no effect where it says the same as Path
	out.Host = ""
	f.want.send(out, f.want.respelt(g.cfg.Fleet.API(a.w), g.cfg.Fleet.Model(a.w), f.adapter))
	return g.transport.RoundTrip(out)
}

// answer is the body of a worker's answer, which is counted as it passes.
type answer struct {
	io.ReadCloser
	f      *flight
	w      int
	status int
	cancel context.CancelFunc
	events int
	over   bool // the answer has ended
	left   bool
}

var dataMark = []byte("data:")

func (a *answer) Read(p []byte) (int, error) {
	stop := func() {}
	if a.events == 0 && a.f.streams {
		stop = a.f.sendHeader()
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

// sendHeader sends the header if nothing follows soon, until it is stopped.
func (f *flight) sendHeader() (stop func()) {
	sent := make(chan struct{})
	t := time.AfterFunc(headerDelay, func() {
		defer close(sent)
		f.flush() // what fails is the connection, which the next write sees
	})
	return func() {
		if !t.Stop() {
			<-sent
		}
	}
}

// count takes events for tokens, and a part without one for one.
func (a *answer) count(part []byte) {
	f := a.f
	events := max(bytes.Count(part, dataMark), 1)
	if f.booked {
		f.g.cfg.Fleet.Tokens(&f.fr, events, a.events == 0)
	}
	if a.events == 0 {
		f.begun = time.Now()
		f.line.firstByte = f.begun.Sub(f.sent)
		f.g.metrics.firstByte.Observe(f.line.firstByte.Seconds())
	}
	a.events += events
	f.line.events = a.events
}

// end notes how the answer ended; the first time counts.
func (a *answer) end(err error) {
	if a.over {
		return
	}
	a.over = true
	f := a.f
	result := http.StatusText(a.status)
	switch {
	case errors.Is(err, io.EOF):
		if a.events > 0 && a.status == http.StatusOK && f.booked {
			f.g.cfg.Fleet.Finished(&f.fr, a.w, time.Since(f.begun).Seconds())
		}
	case err == nil || f.r.Context().Err() != nil:
		result = "client gone"
	default:
		result = "broken"
		f.g.cfg.Fleet.Suspect(a.w, err, false)
	}
	f.g.metrics.count(a.w, f.adapter, result)
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
	if a.f.booked && !a.left {
		a.left = true
		a.f.g.cfg.Fleet.Left(&a.f.fr)
	}
}

// bufferPool keeps the buffers through which answers are copied.
type bufferPool struct{ sync.Pool }

const bufferSize = 16 << 10

var buffers = bufferPool{sync.Pool{New: func() any { return new([bufferSize]byte) }}}

func (p *bufferPool) Get() []byte  { return p.Pool.Get().(*[bufferSize]byte)[:] }
func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferSize]byte)(b)) }

// all passes a request on to every worker that is up, such as to empty caches. It
// answers as the first that fails, or the last.
func (g *Gateway) all(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, keep))
	if err != nil {
		fail(rw, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	status, header, text := http.StatusServiceUnavailable, http.Header{}, []byte("no worker is available")
	for w, s := range g.cfg.Fleet.Workers() {
		if !s.Up {
			continue
		}
		status, header, text = g.ask(r, w, body)
		if status/100 != 2 {
			text = fmt.Appendf(nil, "worker %d: %s", w, fleet.ErrorText(text))
			break
		}
	}
	if status/100 != 2 {
		fail(rw, status, string(text))
		return
	}
	rw.Header().Set("Content-Type", header.Get("Content-Type"))
	rw.WriteHeader(status)
	rw.Write(text) // what fails is the connection, which the client sees
}

// ask sends a short request to one worker.
func (g *Gateway) ask(r *http.Request, w int, body []byte) (int, http.Header, []byte) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, g.cfg.URLs[w]+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return http.StatusBadRequest, nil, []byte(err.Error())
	}
	req.Header.Set("Content-Type", r.Header.Get("Content-Type"))
	for k, v := range g.cfg.Header {
		req.Header[k] = v
	}
	resp, err := g.transport.RoundTrip(req)
	if err != nil {
		return http.StatusBadGateway, nil, []byte("it did not answer")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, keep))
	if err != nil {
		return http.StatusBadGateway, nil, []byte("its answer broke off")
	}
	return resp.StatusCode, resp.Header, text
}
