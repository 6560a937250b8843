package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Causes with which requests are cut.
var (
	// errHung means that the worker answers neither probes nor the request.
	errHung = errors.New("the worker hangs: it answers neither probes nor the request")
	// errStalled means that the worker sends nothing on any stream.
	errStalled = errors.New("the worker hangs: it sends nothing on any stream")
	// errClosed means that the worker has closed its port and sends nothing on the connections that are left.
	errClosed = errors.New("the worker hangs: it refuses connections and sends nothing on those that are open")
)

// IsHang reports whether an error says that a worker hangs.
func IsHang(err error) bool {
	return errors.Is(err, errHung) || errors.Is(err, errStalled) || errors.Is(err, errClosed)
}

// silence is the time since which no part of a request's reply has come, as observed by probes of its worker.
type silence struct {
	since  time.Time // zero: there was no probe
	tokens int32
}

// activity records the bytes that come from a worker: pieces of replies, and answers to probes.
type activity struct {
	heard    atomic.Uint64 // pieces of replies; changes without the lock
	said     uint64        // heard at the latest probe
	saidAt   time.Time     // when said changed last
	hungFrom time.Time     // since when its probes get no answer; zero: they get one
	shutFrom time.Time     // since when it refuses connections; zero: it takes them
}

// observe notes the bytes that have come until now.
func (a *activity) observe(now time.Time) {
	if n := a.heard.Load(); n != a.said || a.saidAt.IsZero() {
		a.said, a.saidAt = n, now
	}
}

// observe updates the silence of the requests.
func (b *books) observe(now time.Time) {
	for _, r := range b.requests {
		if n := r.generated.Load(); n != r.quiet.tokens || r.quiet.since.IsZero() {
			r.quiet = silence{now, n}
		}
	}
}

// silent counts the streams that have begun, and those among them that have received nothing for the time age.
func (b *books) silent(now time.Time, age time.Duration) (begun, silent int) {
	for _, r := range b.requests {
		if r.running && r.Streams {
			begun++
			if now.Sub(r.quiet.since) >= age {
				silent++
			}
		}
	}
	return begun, silent
}

// unanswered reports whether a probe failed as it does if the worker's process is stopped or its machine cannot be
// reached. A worker that answers anything does not hang: its connections break by themselves. One that refuses
// connections is judged by shut.
func unanswered(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && ne.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH)
}

// hangDetector finds workers that hang, and cuts the requests on them.
type hangDetector struct {
	cfg      *Config
	table    *table
	journal  *journal
	outliers *detector
}

// probed notes how a probe of a worker ended.
func (h *hangDetector) probed(ctx context.Context, k *worker, err error) {
	if ctx.Err() != nil {
		return
	}
	var list []*Request
	var cause error
	now := time.Now()
	switch {
	case err == nil:
		list, cause = h.stalled(k, now), errStalled
	case unanswered(err):
		list, cause = h.hung(k, now), errHung
	case errors.Is(err, syscall.ECONNREFUSED):
		list, cause = h.shut(k, now), errClosed
	default:
		h.answered(k)
	}
	cut(k, list, cause)
	for was := h.former(k); was != nil; was = h.former(was) { // another process has its port
		cut(was, h.shut(was, now), errClosed)
	}
}

func cut(k *worker, list []*Request, cause error) {
	for _, r := range list {
		r.Owner.Cut(k.index, cause)
	}
}

// answered notes that a probe got an answer, if only an error.
func (h *hangDetector) answered(k *worker) {
	defer h.table.lock()()
	k.replies.hungFrom, k.replies.shutFrom = time.Time{}, time.Time{}
}

// former returns the process that a worker has replaced, as long as that process, or one before it, has requests; else
// nil.
func (h *hangDetector) former(k *worker) *worker {
	defer h.table.lock()()
	if was := k.former; was != nil && len(was.books.requests) == 0 && was.former == nil {
		k.former = nil
	}
	return k.former
}

// shut returns the requests to cut on a worker that has refused connections for [Outlier.Hung], or another process has
// taken its port, if it has sent nothing in that time on any connection. An engine that ends closes its port before it
// waits for its replies. vLLM then waits for ever: it has killed its engine core, and leaves the streams without an end
// (NoSignalServer and EngineCoreProc in 0.32). So the worker ends only when its clients close their connections.
func (h *hangDetector) shut(k *worker, now time.Time) (cut []*Request) {
	limit := h.cfg.Outlier.Hung
	if limit < 0 {
		return nil
	}
	defer h.table.lock()()
	a := &k.replies
	if a.hungFrom = (time.Time{}); a.shutFrom.IsZero() {
		a.shutFrom = now
	}
	k.books.observe(now)
	a.observe(now)
	if now.Sub(a.shutFrom) < limit || now.Sub(a.saidAt) < limit {
		return nil
	}
	for _, r := range k.books.requests {
		if r.Owner != nil && now.Sub(r.quiet.since) >= limit {
			cut = append(cut, r)
		}
	}
	if len(cut) > 0 {
		h.cfg.Log("%s refuses connections and sends nothing: %d requests are cut off", k.name, len(cut))
	}
	return cut
}

// hung returns the requests to cut on a worker whose probes have got no answer for [Outlier.Hung]: those that have
// received nothing in that time either.
func (h *hangDetector) hung(k *worker, now time.Time) (cut []*Request) {
	limit := h.cfg.Outlier.Hung
	if limit < 0 {
		return nil
	}
	defer h.table.lock()()
	if k.replies.shutFrom = (time.Time{}); k.replies.hungFrom.IsZero() {
		k.replies.hungFrom = now
	}
	k.books.observe(now)
	for _, r := range k.books.requests {
		if r.Owner != nil && now.Sub(r.quiet.since) >= limit && now.Sub(k.replies.hungFrom) >= limit {
			cut = append(cut, r)
		}
	}
	if len(cut) > 0 {
		h.cfg.Log("%s hangs: %d requests are cut off", k.name, len(cut))
	}
	return cut
}

// stalled ejects a worker that answers probes and sends nothing: on no stream at all, though several wait for their
// first byte, or nothing more on most of those that have begun. The streams go on, as it may compute a long prompt, and
// once they do the worker is back in service. It lists the requests to cut: those that have waited for their first
// byte for stallCut. The others have an idle timeout.
func (h *hangDetector) stalled(k *worker, now time.Time) (cut []*Request) {
	defer h.table.lock()()
	k.replies.hungFrom, k.replies.shutFrom = time.Time{}, time.Time{}
	o := &h.cfg.Outlier
	if !o.enabled() || o.Consecutive < 0 {
		return nil
	}
	if h.sends(k, now) {
		h.endStall(k)
		return nil
	}
	if k.out.state == serving && h.outliers.mayEject(k) {
		h.table.tick()
		h.outliers.eject(k, Stalled, fmt.Errorf("no data on at least %d streams for %v", o.Consecutive,
			stallAfter))
	}
	cut = h.waiting(k, stallCut)
	if len(cut) < o.Consecutive || now.Sub(k.replies.saidAt) < stallCut {
		return nil
	}
	return cut
}

// endStall ends an ejection with the reason Stalled. Called with mu held.
func (h *hangDetector) endStall(k *worker) {
	if k.out.state == ejected && k.out.reason == Stalled && k.replies.heard.Load() != k.out.heardThen {
		k.out.state, k.out.level, k.out.back = serving, k.out.level-1, h.table.wall()
		k.out.publish()
		h.journal.add(EventReturned, "", "back in service: it sends again", k.index)
		h.cfg.Log("%s is back in service: it sends again", k.name)
	}
}

// sends reports whether the worker sends as expected. Called with mu held.
func (h *hangDetector) sends(k *worker, now time.Time) bool {
	o := &h.cfg.Outlier
	k.out.forget(o, h.table.wall())
	k.books.observe(now)
	k.replies.observe(now)
	begun, silent := k.books.silent(now, stallAfter)
	if now.Sub(k.replies.saidAt) >= stallAfter && len(k.books.requests) >= o.Consecutive {
		h.table.tick()
		if len(h.waiting(k, stallAfter)) >= o.Consecutive {
			return false
		}
	}
	return silent < o.Consecutive || 2*silent < begun
}

// waiting lists the streams that have waited for their first byte for some time, other than for an adapter; called with
// mu held.
func (h *hangDetector) waiting(k *worker, age time.Duration) (list []*Request) {
	for _, r := range k.books.requests {
		loads := r.Adapter >= 0 && !k.loras.ready(r.Adapter)
		waited := (h.table.view.Now - r.booked) / h.cfg.Speed
		if r.Streams && r.Owner != nil && !r.running && !loads && waited >= age.Seconds() {
			list = append(list, r)
		}
	}
	return list
}
