package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// ErrHung is why a request is cut: its worker answers neither probes nor the request.
var ErrHung = errors.New("the worker hangs: neither its probes nor the request get an answer")

// silence is how much of a request's reply had come at a probe that got no answer.
type silence struct {
	since  time.Time // of that probe; zero: there was none
	tokens int32
}

// unanswered says whether a probe failed in the way in which those of a process fail that is stopped, or of a machine that cannot
// be reached. A worker that refuses connections, or answers anything, is not hung: its connections break by themselves.
func unanswered(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && ne.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// watch is told how each probe of a worker ended.
func (f *Fleet) watch(ctx context.Context, k *worker, err error) {
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	switch {
	case err == nil:
		k.hangsNoMore(f)
		f.stalled(k, now)
	case unanswered(err):
		f.cutSilent(k, now)
	default:
		k.hangsNoMore(f)
	}
}

func (k *worker) hangsNoMore(f *Fleet) {
	defer f.lock()()
	k.out.hungFrom = time.Time{}
}

// cutSilent cuts the requests of a worker whose probes have got no answer for [Outlier.Hung], as far as nothing of them has come
// in that time either.
func (f *Fleet) cutSilent(k *worker, now time.Time) {
	limit := f.cfg.Outlier.Hung
	if limit < 0 {
		return
	}
	var cut []*Request
	f.mu.Lock()
	if k.out.hungFrom.IsZero() {
		k.out.hungFrom = now
	}
	w := 0
	for _, r := range k.requests {
		w = r.worker
		n := r.generated.Load()
		if q := &r.quiet; q.since.Before(k.out.hungFrom) || n != q.tokens {
			*q = silence{now, n}
		} else if r.Owner != nil && now.Sub(q.since) >= limit {
			cut = append(cut, r)
		}
	}
	f.mu.Unlock()
	if len(cut) > 0 {
		f.cfg.Log("%s hangs: %d requests are cut", k.name, len(cut))
	}
	for _, r := range cut {
		r.Owner.Cut(w, ErrHung)
	}
}

// stalled ejects a worker that answers probes and sends nothing on any stream, though several wait for their first byte. The
// streams go on: it may compute a long prompt. The first that it sends puts it back into service.
func (f *Fleet) stalled(k *worker, now time.Time) {
	o := &f.cfg.Outlier
	if !o.enabled() || o.Consecutive < 0 {
		return
	}
	defer f.lock()()
	k.forget(o, f.wall())
	if n := k.heard.Load(); n != k.out.said || k.out.saidAt.IsZero() {
		k.out.said, k.out.saidAt = n, now
		if k.out.state == ejected && k.out.reason == Stalled {
			k.out.state, k.out.level, k.out.back = serving, k.out.level-1, f.wall()
			k.reopen()
			f.cfg.Log("%s is back in service: it sends again", k.name)
		}
		return
	}
	if k.out.state != serving || now.Sub(k.out.saidAt) < stallAfter {
		return
	}
	f.view.Now = max(f.view.Now, f.cfg.Now())
	waiting, w := 0, 0
	for _, r := range k.requests {
		loads := r.Adapter >= 0 && (!k.adapters[r.Adapter].held || k.adapters[r.Adapter].call != nil)
		if w = r.worker; r.Streams && !r.running && !loads && (f.view.Now-r.booked)/f.cfg.Speed >= stallAfter.Seconds() {
			waiting++
		}
	}
	if waiting >= o.Consecutive && f.mayEject(w) {
		f.eject(k, Stalled, fmt.Errorf("%d streams wait for their first byte, and no byte has come for %.0f s", waiting, now.Sub(k.out.saidAt).Seconds()))
	}
}
