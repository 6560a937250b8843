package gateway

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/metrics"
	"lorasim/router"
)

// dispatch is one request in flight. It picks a worker, and another one if the first does not take the request.
type dispatch struct {
	g         *Gateway
	r         *http.Request // the client's
	line      *line         // to the client, and of the access log
	out       *http.Request // to the workers, as far as it is the same for all; nil: not yet
	parsed    *parsed
	booked    bool // it counts as a worker's load
	search    bool // what it asks for is on one worker, which is not known
	fr        fleet.Request
	adapter   string   // for metrics
	served    string   // the adapter's name on the worker of the latest try; "": a base model
	also      []string // the same for parsed.others
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
	l.adapter, l.prompt, l.limit = d.adapter, q.prompt, q.limit
	d.fr = fleet.Request{Request: router.Request{ID: g.nextID.Add(1), Adapter: q.adapter, Prompt: q.prompt,
		MaxNew: q.maxNew}, Sent: g.workers.Now()}
	d.fr.Owner, d.fr.Streams, d.fr.Base = d, q.stream, q.base
	d.fr.Engines = engines
	g.identify(q, &d.fr)
	if q.whole {
		d.fr.Hint = g.cfg.Fleet.Requests.ReadBody(r.URL.Path, q.data)
	}
	q.content = nil // which would keep the body in memory
	d.guard(d.forward)
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
func (d *dispatch) failed(err error) {
	no, ok := errors.AsType[*refusal](err)
	switch body := d.parsed.failed(); {
	case body != nil:
		no = &refusal{status: statusOf(body), text: body.Error()}
	case d.r.Context().Err() != nil: // whoever still listens must not take silence for an empty answer
		d.g.reject(d.line, statusClientGone, "the client closed its connection", metrics.ClientGone)
		return
	case !ok:
		no = &refusal{status: http.StatusBadGateway, text: err.Error()}
	}
	if d.line.early {
		d.line.streams = true
		d.line.Write(lastEvent(no.status, no.text)) // what fails is the connection, which breaks now
		panic(http.ErrAbortHandler)
	}
	d.g.refuse(d.line, no, http.StatusText(no.status))
}
