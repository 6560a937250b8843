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

// silence is since when nothing of a request's reply has come, as far as probes of its worker have seen.
type silence struct {
	since  time.Time // zero: there was no probe
	tokens int32
}

// look brings the silence of the worker's requests up to now; called with mu held.
func (k *worker) look(now time.Time) {
	for _, r := range k.requests {
		if n := r.generated.Load(); n != r.quiet.tokens || r.quiet.since.IsZero() {
			r.quiet = silence{now, n}
		}
	}
}

// unanswered says whether a probe failed in the way in which those of a process fail that is stopped, or of a machine
// that cannot be reached. A worker that refuses connections, or answers anything, is not hung: its connections break by
// themselves.
func unanswered(err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && ne.Timeout() || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH)
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

// cutSilent cuts the requests of a worker whose probes have got no answer for [Outlier.Hung], as far as nothing of them
// has come in that time either.
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
	k.look(now)
	w := 0
	for _, r := range k.requests {
		if w = r.worker; r.Owner != nil && now.Sub(r.quiet.since) >= limit && now.Sub(k.out.hungFrom) >= limit {
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

// stalled ejects a worker that answers probes and sends nothing: on no stream at all, though several wait for their
// first byte, or nothing more on most of those that have begun. The streams go on, as it may compute a long prompt, and
// once they do the worker is back in service. Those that wait for their first byte are cut after stallCut; the others
// have an idle timeout.
func (f *Fleet) stalled(k *worker, now time.Time) {
	o := &f.cfg.Outlier
	if !o.enabled() || o.Consecutive < 0 {
		return
	}
	var cut []*Request
	w := 0
	f.mu.Lock()
	if k.sends(f, now) {
		f.speaks(k)
	} else {
		for _, r := range k.requests {
			w = r.worker
		}
		if k.out.state == serving && f.mayEject(w) {
			f.view.Now = max(f.view.Now, f.cfg.Now())
			f.eject(k, Stalled, fmt.Errorf("nothing has come on %d or more of its streams for %v", o.Consecutive,
				stallAfter))
		}
		if cut = k.waiting(f, stallCut); len(cut) < o.Consecutive || now.Sub(k.out.saidAt) < stallCut {
			cut = nil
		}
	}
	f.mu.Unlock()
	for _, r := range cut {
		r.Owner.Cut(w, ErrStalled)
	}
}

// speaks ends an ejection for want of bytes.
func (f *Fleet) speaks(k *worker) {
	if k.out.state == ejected && k.out.reason == Stalled && k.heard.Load() != k.out.saidThen {
		k.out.state, k.out.level, k.out.back = serving, k.out.level-1, f.wall()
		k.reopen()
		f.cfg.Log("%s is back in service: it sends again", k.name)
	}
}

// sends says whether the worker sends what it should; called with mu held.
func (k *worker) sends(f *Fleet, now time.Time) bool {
	o := &f.cfg.Outlier
	k.forget(o, f.wall())
	k.look(now)
	if n := k.heard.Load(); n != k.out.said || k.out.saidAt.IsZero() {
		k.out.said, k.out.saidAt = n, now
	}
	begun, silent := 0, 0
	for _, r := range k.requests {
		if r.running && r.Streams {
			begun++
			if now.Sub(r.quiet.since) >= stallAfter {
				silent++
			}
		}
	}
	if now.Sub(k.out.saidAt) >= stallAfter && len(k.requests) >= o.Consecutive {
		f.view.Now = max(f.view.Now, f.cfg.Now())
		if len(k.waiting(f, stallAfter)) >= o.Consecutive {
			return false
		}
	}
	return silent < o.Consecutive || 2*silent < begun
}

// waiting lists the streams that have waited for their first byte for some time, other than for an adapter; called with
// mu held.
func (k *worker) waiting(f *Fleet, age time.Duration) (list []*Request) {
	for _, r := range k.requests {
		loads := r.Adapter >= 0 && (!k.adapters[r.Adapter].held || k.adapters[r.Adapter].call != nil)
		if r.Streams && r.Owner != nil && !r.running && !loads && (f.view.Now-r.booked)/f.cfg.Speed >= age.Seconds() {
			list = append(list, r)
		}
	}
	return list
}
