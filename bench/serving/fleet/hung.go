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
	// ErrHung means that the worker answers neither probes nor the request.
	ErrHung = errors.New("the worker hangs: it answers neither probes nor the request")
	// ErrStalled means that the worker sends nothing on any stream.
	ErrStalled = errors.New("the worker hangs: it sends nothing on any stream")
)

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
// reached. A worker that refuses connections, or answers anything, does not hang: its connections break by themselves.
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
	var cut []*Request
	var cause error
	switch now := time.Now(); {
	case err == nil:
		cut, cause = h.stalled(k, now), ErrStalled
	case unanswered(err):
		cut, cause = h.hung(k, now), ErrHung
	default:
		h.answered(k)
	}
	for _, r := range cut {
		r.Owner.Cut(k.index, cause)
	}
}

// answered notes that a probe got an answer, if only an error.
func (h *hangDetector) answered(k *worker) {
	defer h.table.lock()()
	k.replies.hungFrom = time.Time{}
}

// hung returns the requests to cut on a worker whose probes have got no answer for [Outlier.Hung]: those that have
// received nothing in that time either.
func (h *hangDetector) hung(k *worker, now time.Time) (cut []*Request) {
	limit := h.cfg.Outlier.Hung
	if limit < 0 {
		return nil
	}
	defer h.table.lock()()
	if k.replies.hungFrom.IsZero() {
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
	k.replies.hungFrom = time.Time{}
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
