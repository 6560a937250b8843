package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"lorasim/router"
	"lorasim/sim/record"
)

// worker is the state of one worker. Its view is the one with the same index in routing.view.
type worker struct {
	*engine
	index int
	name  string // in messages
	view  *router.Worker

	// A worker is one process behind its URL. It ends in one of two ways, for ever: it leaves the fleet, or another
	// process answers at the URL, which becomes a worker of its own in the same slot, the heir. Invariants: a worker
	// with an heir is gone; what is gone is in no slot, or in one that is free, and it is not known, holds nothing and
	// has no ticket. Its requests keep it until they end.
	id      int64 // of the process, unique in the fleet
	gone    bool
	cause   error // why it is gone
	heir    *worker
	former  *worker                // the process before this one in the slot, while it has requests; nil: none
	leaving bool                   // it leaves when its last request has ended
	drained bool                   // an operator drains it
	unprobe func()                 // ends its probes; nil: they have not begun
	doubted chan struct{}          // has an element when it is to be probed now
	server  atomic.Pointer[string] // header Server of its latest reply; nil: there was none

	equipping int // adapters that are still loaded at its start

	health  health
	books   books      // requests
	loras   holdings   // adapters
	places  placeQueue // requests that wait for their adapter
	out     outliers   // ejections
	replies activity
	changed signal // signals changes of calls, requests or the queue for places

	leases map[versionKey]int // requests by version of an adapter; see rollouts
	olds   []*oldVersion
}

func newWorker(c *Config, base string, i int, view *router.Worker) *worker {
	k := &worker{engine: newEngine(&c.Connection, base), index: i, name: fmt.Sprintf("worker %d (%s)", i, base),
		view: view, changed: signal{make(chan struct{})}, doubted: make(chan struct{}, 1)}
	view.Address = addressOf(base)
	k.health.warned = map[string]bool{}
	k.books = books{Books: router.NewBooks(view, i, nil), requests: map[int64]*Request{}}
	k.leases = map[versionKey]int{}
	k.loras.view, k.out.view = view, view
	k.loras.counts = new(record.Counters)
	k.places.loras = &k.loras
	return k
}

// addressOf returns the address in a worker's URL, HOST:PORT.
func addressOf(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	if u.Port() == "" && u.Scheme == "https" {
		return net.JoinHostPort(u.Hostname(), "443")
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))
}

// setLimits sets the limits that hold until the worker reports its own.
func (k *worker) setLimits(l Limits) {
	v := k.view
	v.MaxRunning, v.Slots, v.KVCapacity, v.HostSlots = l.MaxRunning, l.Slots, l.KVCapacity, l.MaxLoaded
}

// detach frees the slot in the routers' view: later changes of the worker go to a view of its own. The slot looks like
// a worker that is down and holds no adapters.
func (k *worker) detach() {
	slot, own := k.view, *k.view
	*slot = router.Worker{Draining: true, Adapters: slices.Clone(own.Adapters)}
	for a := range slot.Adapters {
		slot.Adapters[a] = router.AdapterState{Tier: router.Disk}
	}
	own.Up = false
	k.view, k.loras.view, k.out.view, k.books.Worker = &own, &own, &own, &own
}

// health has the results of probes and the worker's own information.
type health struct {
	info      Info
	entry     model     // of its base model, in its list of models
	known     bool      // it has been asked for its information since it was last down
	downAt    time.Time // when it was down last
	met       bool      // info is valid, if not up to date; invariant: met if known
	restarted bool      // it has refused connections since it was known: another process will answer
	unready   error     // why it takes no requests by its own account; nil: it does

	said   load            // at the latest probe
	failed int             // probes in a row
	panics int             // while its bytes were handled
	warned map[string]bool // messages that have been logged
}

// first reports whether a message has not been logged yet, and marks it as logged.
func (h *health) first(message string) bool {
	first := !h.warned[message]
	h.warned[message] = true
	return first
}

// drain shows routers whether the worker takes new requests.
func (k *worker) drain() { k.view.Draining = k.leaving || k.drained || k.health.unready != nil }

// doubt makes the prober probe the worker soon.
func (k *worker) doubt() {
	select {
	case k.doubted <- struct{}{}:
	default: // it will anyway
	}
}

// signal wakes goroutines that wait for a change.
type signal struct{ ch chan struct{} }

func (s *signal) notify() {
	close(s.ch)
	s.ch = make(chan struct{})
}

// down resets the state that ends with the worker's process. The fleet's requests leave by themselves.
func (k *worker) down(err error, now float64) {
	refused := errors.Is(err, syscall.ECONNREFUSED)
	k.view.Up, k.health.known, k.health.said = false, false, load{}
	k.health.restarted = k.health.restarted || refused
	k.health.downAt = time.Now()
	k.out.down(refused)
	k.books.setOthers(load{}, 0, now)
	k.loras.clear()
	k.places.clear(fmt.Errorf("worker is down: %w", err))
	k.changed.notify()
}

// end finishes a load or unload.
func (k *worker) end(a int32, err error) {
	k.loras.end(a, err)
	k.places.settle()
	k.changed.notify()
}

// posted returns the number of the fleet's requests that may have reached the worker: those that do not wait for their
// adapter.
func (k *worker) posted() int { return len(k.books.requests) - k.loras.outside() }

// baseModel returns the base model that the worker serves, or "base" if it has not reported one.
func (k *worker) baseModel() string { return cmp.Or(k.health.info.Model, "base") }

// starting reports whether the worker has as many requests as SlowStart permits and has served none since it came up.
func (k *worker) starting(o *Outlier) bool {
	return !k.out.proven && o.SlowStart > 0 && len(k.books.requests) >= o.SlowStart
}
