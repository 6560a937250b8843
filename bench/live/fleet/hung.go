package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// Why requests are cut.
var (
	ErrHung    = errors.New("the worker hangs: neither its probes nor the request get an answer")
	ErrStalled = errors.New("the worker hangs: it sends nothing on any stream")
)

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
// streams go on: it may compute a long prompt. The first byte that it sends puts it back into service; after stallCut without one
// the streams are cut.
func (f *Fleet) stalled(k *worker, now time.Time) {
	o := &f.cfg.Outlier
	if !o.enabled() || o.Consecutive < 0 {
		return
	}
	f.mu.Lock()
	w, cut := f.sends(k, o, now), []*Request(nil)
	if w >= 0 && now.Sub(k.out.saidAt) >= stallCut {
		if cut = k.waiting(f, stallCut); len(cut) < o.Consecutive {
			cut = nil
		}
	}
	f.mu.Unlock()
	for _, r := range cut {
		r.Owner.Cut(w, ErrStalled)
	}
}

// sends is the part of stalled that takes no longer than it holds mu. It returns the index of a worker that is stalled, else -1.
func (f *Fleet) sends(k *worker, o *Outlier, now time.Time) int {
	k.forget(o, f.wall())
	if n := k.heard.Load(); n != k.out.said || k.out.saidAt.IsZero() {
		k.out.said, k.out.saidAt = n, now
		if k.out.state == ejected && k.out.reason == Stalled {
			k.out.state, k.out.level, k.out.back = serving, k.out.level-1, f.wall()
			k.reopen()
			f.cfg.Log("%s is back in service: it sends again", k.name)
		}
		return -1
	}
	if now.Sub(k.out.saidAt) < stallAfter {
		return -1
	}
	f.view.Now = max(f.view.Now, f.cfg.Now())
	waiting := k.waiting(f, stallAfter)
	if len(waiting) < o.Consecutive {
		return -1
	}
	w := waiting[0].worker
	if k.out.state == serving && f.mayEject(w) {
		f.eject(k, Stalled, fmt.Errorf("%d streams wait for their first byte, and nothing has come for %.0f s", len(waiting), now.Sub(k.out.saidAt).Seconds()))
	}
	return w
}

// waiting lists the streams that have waited for their first byte for some time, other than for an adapter; called with mu held.
func (k *worker) waiting(f *Fleet, age time.Duration) (list []*Request) {
	for _, r := range k.requests {
		loads := r.Adapter >= 0 && (!k.adapters[r.Adapter].held || k.adapters[r.Adapter].call != nil)
		if r.Streams && r.Owner != nil && !r.running && !loads && (f.view.Now-r.booked)/f.cfg.Speed >= age.Seconds() {
			list = append(list, r)
		}
	}
	return list
}
