// Package faultworker is a worker that misbehaves on request, for tests of clients. A [Worker] implements the HTTP
// interfaces of sglang or vLLM, as far as clients of LoRA workers use them, on raw connections. It generates tokens
// at a set rate and shows any of the faults in [faults].
//
// Package lorasim/bench/serving/emulate is the other worker without a GPU, and neither can do the work of both. emulate
// is an http.Handler with the engine's queue, times, errors and all forms of requests: net/http writes its replies, so
// that it cannot send broken HTTP, reset a connection after a token, or read nothing while its connections stay open.
// A faultworker writes each byte itself and counts executions by request; it has no queue, no profile and a few routes.
//
//	w, err := faultworker.New(faultworker.Config{API: httpapi.SGLang, Adapters: []string{"a"}})
//	defer w.Close()
//	err = w.Listen("127.0.0.1:0")                       // or http.Serve(listener, w)
//	err = w.Break(faultworker.Rule{On: faultworker.Generate, Do: faultworker.Reset, Tokens: 1})
//	... requests to w.URL() ...
//	w.Book().Totals()
//
// Every reply carries the id of its request: the header X-Request-Id, else "rid" in its body. [Book] counts
// executions and aborts by that id.
package faultworker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"lorasim/bench/serving/httpapi"
)

// Config describes a worker.
type Config struct {
	API      httpapi.Kind  // "": SGLang
	Name     string        // name of the worker in replies
	Model    string        // name of the base model; "": base
	Adapters []string      // adapters loaded at the start
	Root     string        // folder of the adapters' weights, as the worker lists them; "": none
	Places   int           // most adapters loaded at a time; further loads are refused; 0: no limit
	Slots    int           // adapter slots that the worker reports; 0: 8
	Token    time.Duration // time between two tokens, and before the first
	LoadTime time.Duration // time to load an adapter
	Idle     time.Duration // time after which an idle connection is closed; 0: never
	// Asked is called with every request, from any goroutine; nil: no calls.
	Asked func(method, path string, header http.Header) `json:"-"`
	Book  *Book                                         `json:"-"` // counts of requests; nil: a new Book
}

// A Worker is one worker. Its methods may be called from several goroutines.
type Worker struct {
	cfg Config

	mu       sync.Mutex
	rules    []*Rule
	listener net.Listener          // nil: Listen was not called, or the worker is stopped
	addr     string                // of the latest Listen
	dead     chan struct{}         // closed by Stop; Listen makes a new one
	frozen   chan struct{}         // closed by Thaw; nil: not frozen
	conns    map[net.Conn]struct{} // open connections
	accepted int                   // connections so far
	adapters map[string]int        // loaded, or being loaded: requests in flight
	running  int                   // requests in flight

	served sync.WaitGroup // goroutines
}

// New returns a worker without faults that does not listen yet.
func New(cfg Config) (*Worker, error) {
	cfg.API, cfg.Model, cfg.Slots = cmp.Or(cfg.API, httpapi.SGLang), cmp.Or(cfg.Model, "base"), cmp.Or(cfg.Slots, 8)
	if cfg.API != httpapi.SGLang && cfg.API != httpapi.VLLM {
		return nil, fmt.Errorf("faultworker: interface %q, expected %s or %s", cfg.API, httpapi.SGLang, httpapi.VLLM)
	}
	if cfg.Book == nil {
		cfg.Book = new(Book)
	}
	w := &Worker{cfg: cfg, dead: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	w.reset()
	return w, nil
}

// reset restores the adapters that the worker was configured with. The caller is New or holds mu.
func (w *Worker) reset() {
	w.adapters, w.running = map[string]int{}, 0
	for _, name := range w.cfg.Adapters {
		w.adapters[name] = 0
	}
}

// Book returns the Book of the worker.
func (w *Worker) Book() *Book { return w.cfg.Book }

// Break replaces the rules of the worker; without rules it has no faults.
func (w *Worker) Break(rules ...Rule) error {
	list := make([]*Rule, len(rules))
	for i := range rules {
		if err := rules[i].check(); err != nil {
			return fmt.Errorf("faultworker: rule %d: %w", i, err)
		}
		r := rules[i]
		list[i] = &r
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rules = list
	return nil
}

// rule returns the rule that applies to a request; nil: none.
func (w *Worker) rule(q *request) *Rule {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rules {
		if r.applies(q) {
			return r
		}
	}
	return nil
}

// Listen starts the worker on an address. It may be called again after Stop.
func (w *Worker) Listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("faultworker: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.listener != nil {
		l.Close()
		return errors.New("faultworker: it listens already")
	}
	select {
	case <-w.dead:
		w.dead = make(chan struct{})
		w.reset()
	default:
	}
	w.listener, w.addr = l, l.Addr().String()
	w.served.Go(func() { w.accept(l) })
	return nil
}

// URL returns the URL at which the worker listens or last listened.
func (w *Worker) URL() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return "http://" + w.addr
}

// Restart starts a stopped worker again at its address, with the adapters that it was configured with.
func (w *Worker) Restart() error {
	w.mu.Lock()
	addr := w.addr
	w.mu.Unlock()
	return w.Listen(addr)
}

// Stop ends the worker as kill -9 ends a process: connections are reset and new ones refused. It returns at once.
func (w *Worker) Stop() {
	w.Thaw()
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.dead:
	default:
		close(w.dead)
	}
	if w.listener != nil {
		w.listener.Close()
		w.listener = nil
	}
	for c := range w.conns {
		reset(c)
	}
}

// Close stops the worker and waits for its goroutines.
func (w *Worker) Close() {
	w.Stop()
	w.served.Wait()
}

// Freeze stops the worker as SIGSTOP stops a process. Until Thaw, connections stay open and nothing is read or
// written, not even replies to probes.
func (w *Worker) Freeze() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen == nil {
		w.frozen = make(chan struct{})
	}
}

// Thaw ends Freeze.
func (w *Worker) Thaw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frozen != nil {
		close(w.frozen)
		w.frozen = nil
	}
}

// pass waits while the worker is frozen.
func (w *Worker) pass() {
	w.mu.Lock()
	frozen := w.frozen
	w.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}

func (w *Worker) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		w.pass()
		w.begin(nc, nil, nil)
	}
}

// ServeHTTP implements http.Handler, for use in another server. It takes over the connection with its first request.
func (w *Worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	q, err := readRequest(r)
	if err != nil {
		return
	}
	nc, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	w.begin(nc, buffered.Reader, q)
}

// Held returns the adapters that the worker holds.
func (w *Worker) Held() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.adapters))
}

// Connections returns the number of open connections.
func (w *Worker) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.conns)
}

// Accepted returns the number of connections so far.
func (w *Worker) Accepted() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accepted
}

// reset closes a connection with RST where it is TCP's.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0) // fails only on a closed connection
	}
	c.Close()
}
