package fleet

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// outliers is what a worker has of outlier detection.
type outliers struct {
	host
	adapters  map[int32]*host // of those that have failed; nil: none
	ejections map[Reason]int64
	first     int32 // adapter of the first failure in a row; mixed: others have failed since
	mixed     bool
	restarted bool // it was down since it was ejected
	proven    bool // it has served a request since it was last down

	said     uint64    // worker.heard at the latest probe
	saidAt   time.Time // when that changed
	saidThen uint64    // worker.heard when the worker was ejected
	hungFrom time.Time // when its probes began to get no answer; zero: they get one
}

// wall is the fleet's clock in seconds of wall time, at the latest look at it.
func (f *Fleet) wall() float64 { return f.view.Now / f.cfg.Speed }

// Failed is told that a request failed on a worker through the worker's fault: the connection was refused or
// broke, nothing came in time, or the reply was an error of the server (status 5xx). A worker that refuses
// connections is down.
func (f *Fleet) Failed(r *Request, w int, err error) {
	x := r.Fault(w, err)
	defer f.lock()()
	f.refused(w, err)
	f.failed(r, x)
}

// IsFailure says whether an answer with an error speaks against the worker: all of status 5xx do but those
// that say what a sound worker has not (501), or that it has no room now (503 with Retry-After, or of a
// limit).
func IsFailure(status int, header http.Header, text string) bool {
	text = strings.ToLower(text)
	full := mentions(text, "queue is full", "full queue", "overload", "too many")
	busy := full || header.Get("Retry-After") != "" || isLimit(errors.New(text))
	return status >= 500 && status != http.StatusNotImplemented && !(status == http.StatusServiceUnavailable && busy)
}

// Fault is a worker on which a request failed, and how.
type Fault struct {
	Worker              int
	Err                 error
	trial, adapterTrial uint32
}

// Fault describes a failure of the request on the worker where it was booked last.
func (r *Request) Fault(w int, err error) Fault { return Fault{w, err, r.trial, r.adapterTrial} }

// Tried is told of the workers that failed a request one after the other, as [Fleet.Failed], and whether
// another one served it. If none did, the request itself may be what no worker can serve: then it counts once,
// against the first, and not at all if one of the others does well.
func (f *Fleet) Tried(r *Request, faults []Fault, served bool) {
	defer f.lock()()
	if !served && len(faults) > 1 {
		for _, x := range faults[1:] {
			h := &f.workers[x.Worker].out.host
			if ok, _ := h.recent(); x.Worker != faults[0].Worker && h.state == serving && h.streak == 0 && ok > 0 {
				return
			}
		}
		faults = faults[:1]
	}
	for _, x := range faults {
		f.failed(r, x)
	}
}

// failed is Failed with mu held, of a worker that need not be down.
func (f *Fleet) failed(r *Request, x Fault) {
	if errors.Is(x.Err, syscall.EMFILE) || errors.Is(x.Err, syscall.ENFILE) {
		return // this process, or its machine, is out of file descriptors
	}
	o, w, k := &f.cfg.Outlier, x.Worker, f.workers[x.Worker]
	k.failed++
	if !o.enabled() {
		return
	}
	f.view.Now = max(f.view.Now, f.cfg.Now())
	now := f.wall()
	k.out.mixed = k.out.streak > 0 && (k.out.mixed || r.Adapter != k.out.first)
	if k.out.streak == 0 {
		k.out.first = r.Adapter
	}
	why := k.out.fail(o, now, x.trial, func(yield func(*host) bool) {
		for i, other := range f.workers {
			if i != w && other.view.Up && !other.view.Draining && !yield(&other.out.host) {
				return
			}
		}
	})
	// where one adapter alone fails, and others are in use, the worker may be good for those
	one := why == ConsecutiveFailures && !k.out.mixed && r.Adapter != trace.BaseModel &&
		int(k.view.Adapters[r.Adapter].Running+k.view.Adapters[r.Adapter].Queued) < len(k.requests)
	if why != "" && !one && f.mayEject(w) {
		f.eject(k, why, x.Err)
	} else {
		f.adapterFailed(r.Adapter, x, now)
	}
	k.reopen()
}

// adapterFailed notes a failure of an adapter on a worker that may be good for others: then requests for the
// adapter alone pass it over.
func (f *Fleet) adapterFailed(a int32, x Fault, now float64) {
	if a == trace.BaseModel {
		return
	}
	o, w, k := &f.cfg.Outlier, x.Worker, f.workers[x.Worker]
	h := k.out.adapters[a]
	if h == nil {
		if k.out.adapters == nil {
			k.out.adapters = map[int32]*host{}
		}
		h = new(host)
		k.out.adapters[a] = h
	}
	why := h.fail(o, now, x.adapterTrial, func(yield func(*host) bool) {
		for i, other := range f.workers {
			if i != w && other.view.Up && !other.view.Draining && !yield(other.out.adapters[a]) {
				return
			}
		}
	})
	if why != "" && k.out.state == serving {
		h.eject(o, now, why)
		name, span := f.cfg.Adapters[a].Name, o.span(h.level)
		f.cfg.Log("%s: adapter %s is ejected there for %.0f s (%s): %v", k.name, name, span, why, x.Err)
	}
}

// mayEject says whether one more worker may be ejected: too few are, and another one remains.
func (f *Fleet) mayEject(w int) bool {
	out, left := 0, 0
	for i, k := range f.workers {
		if i == w {
			continue
		}
		if k.out.state == ejected {
			out++
		} else if k.view.Up && !k.view.Draining {
			left++
		}
	}
	return left > 0 && float64(out) < f.cfg.Outlier.MaxEjected*float64(len(f.workers))
}

// eject takes a worker out of service; called with mu held.
func (f *Fleet) eject(k *worker, why Reason, err error) {
	k.out.eject(&f.cfg.Outlier, f.wall(), why)
	k.out.restarted, k.out.saidThen = false, k.heard.Load()
	if k.out.ejections == nil {
		k.out.ejections = map[Reason]int64{}
	}
	k.out.ejections[why]++
	f.stats.Ejections++
	k.reopen()
	f.cfg.Log("%s is ejected for %.0f s (%s): %v", k.name, f.cfg.Outlier.span(k.out.level), why, err)
}

// succeeded notes that a worker served a request to the end; called with mu held, after a look at the clock.
func (f *Fleet) succeeded(r *Request, w int) {
	k := f.workers[w]
	k.out.proven = true
	if k.out.succeed(&f.cfg.Outlier, f.wall(), r.trial) {
		f.cfg.Log("%s is back in service", k.name)
	}
	k.reopen()
	if h := k.out.adapters[r.Adapter]; h != nil && h.succeed(&f.cfg.Outlier, f.wall(), r.adapterTrial) {
		f.cfg.Log("%s: adapter %s is back in service", k.name, f.cfg.Adapters[r.Adapter].Name)
	}
}

// reopen lets routers know whether the worker takes requests.
func (k *worker) reopen() { k.view.Ejected = k.out.closed() }

// tick begins the trial of the worker when it is due.
func (k *worker) tick(now float64) {
	if k.out.state == ejected {
		k.out.tick(now)
		k.reopen()
	}
}

// forget lets go of adapters that have failed, and not lately.
func (k *worker) forget(o *Outlier, now float64) {
	maps.DeleteFunc(k.out.adapters, func(_ int32, h *host) bool {
		h.roll(now)
		idle := h.state == serving && h.now == tally{} && h.before == tally{}
		return idle && (h.level == 0 || now-h.back > o.span(h.level))
	})
}

// enter and leave book a request as a part of the trials of its worker and of its adapter there, if there are any.
func (k *worker) enter(r *Request) {
	r.trial, r.adapterTrial = k.out.enter(), 0
	if h := k.out.adapters[r.Adapter]; h != nil {
		r.adapterTrial = h.enter()
	}
	k.reopen()
}

func (k *worker) leave(r *Request) {
	k.out.leave(r.trial)
	if h := k.out.adapters[r.Adapter]; h != nil {
		h.leave(r.adapterTrial)
	}
	k.reopen()
}

// afterDown notes that the worker answers again after it was down. One that was down since its first ejection
// is likely another process: its trial begins at once.
func (k *worker) afterDown() {
	if k.out.state == ejected && k.out.restarted && k.out.level == 1 {
		k.out.try()
		k.reopen()
	}
}

// mask hides workers from a view for one routing decision, as long as others remain: one to avoid, those where
// the request's adapter is ejected, and those that have as many requests as they may have before they have
// served one. Where no worker is usable, those on trial take requests without limit, and else those that are
// ejected: better than to serve nobody.
func (f *Fleet) mask(v *router.View, a int32, avoid int) {
	for i := range v.Workers {
		f.masked[i] = v.Workers[i].Up
	}
	left := usable(v)
	for _, state := range [...]hostState{onTrial, ejected} {
		for i := range v.Workers {
			if left == 0 && f.workers[i].out.state == state {
				v.Workers[i].Ejected = false
			}
		}
		left = usable(v)
	}
	hide(v, func(i int) bool { return i == avoid })
	hide(v, func(i int) bool {
		h := f.workers[i].out.adapters[a]
		if h != nil {
			h.tick(f.wall())
		}
		return h != nil && h.closed()
	})
	hide(v, func(i int) bool { return f.workers[i].starts(&f.cfg.Outlier) })
}

// hide hides the workers for which a condition holds, unless it holds for all that are usable.
func hide(v *router.View, which func(i int) bool) {
	for i := range v.Workers {
		if !v.Workers[i].Usable() || which(i) {
			continue
		}
		for i := range v.Workers {
			if w := &v.Workers[i]; w.Usable() && which(i) {
				w.Up = false
			}
		}
		return
	}
}

// starts says whether the worker has as many requests as one may have that has not served any yet.
func (k *worker) starts(o *Outlier) bool {
	return !k.out.proven && o.SlowStart > 0 && len(k.requests) >= o.SlowStart
}

func (f *Fleet) unmask(v *router.View) {
	for i, k := range f.workers {
		v.Workers[i].Up, v.Workers[i].Ejected = f.masked[i], k.out.closed()
	}
}

func usable(v *router.View) (n int) {
	for i := range v.Workers {
		if v.Workers[i].Usable() {
			n++
		}
	}
	return n
}

// OutlierState is what outlier detection knows of a worker.
type OutlierState struct {
	Ejected         bool             `json:"ejected"`  // takes no new requests
	Trial           bool             `json:"on_trial"` // takes a few
	Reason          Reason           `json:"ejection_reason"`
	EjectedFor      float64          `json:"ejected_for_s"` // from now
	Failures        int              `json:"consecutive_failures"`
	Ejections       map[Reason]int64 `json:"ejections"` // so far, by reason
	EjectedAdapters []string         `json:"ejected_adapters"`
}

func (f *Fleet) outlierState(k *worker) OutlierState {
	f.view.Now = max(f.view.Now, f.cfg.Now())
	h, now := &k.out.host, f.wall()
	k.tick(now)
	s := OutlierState{Ejected: h.state == ejected, Trial: h.state == onTrial,
		Failures: h.streak, Ejections: maps.Clone(k.out.ejections),
		EjectedAdapters: []string{}}
	if s.Ejections == nil {
		s.Ejections = map[Reason]int64{}
	}
	if h.state != serving {
		s.Reason = h.reason
	}
	if h.state == ejected {
		s.EjectedFor = max(h.until-now, 0)
	}
	for a, h := range k.out.adapters {
		if h.state == ejected {
			s.EjectedAdapters = append(s.EjectedAdapters, f.cfg.Adapters[a].Name)
		}
	}
	slices.Sort(s.EjectedAdapters)
	return s
}

// anyOutlier says whether a worker, or an adapter on one, is not in full service.
func (f *Fleet) anyOutlier() bool {
	for _, k := range f.workers {
		if k.out.state != serving || len(k.out.adapters) > 0 || k.starts(&f.cfg.Outlier) {
			return true
		}
	}
	return false
}
