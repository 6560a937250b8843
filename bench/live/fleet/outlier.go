package fleet

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"lorasim/router"
	"lorasim/trace"
)

// Outlier says when a worker that fails requests is ejected, which means that it gets no new requests for some time. The rules
// are those of Envoy's outlier detection, whose names stand in brackets. A field that is 0 has its default; one below 0 disables
// its rule.
//
// An ejection ends with a trial: one request at a time first, then more with each that succeeds, and after Consecutive successes
// the worker takes its full share again. A failure within the trial ejects the worker again, for twice the time. Health probes
// neither end an ejection nor reset a count.
type Outlier struct {
	Consecutive int           // failures in a row [consecutive_5xx]; default 5
	Share       float64       // share of requests that fail [failure_percentage_threshold], 0 to 1; default 0.3
	BaseTime    time.Duration // of a first ejection [base_ejection_time]; default 10 s
	MaxTime     time.Duration // of an ejection, however many came before [max_ejection_time]; default 5 min
	// MaxEjected is the share of workers that are ejected from which on no further one is [max_ejection_percent]; default 0.5.
	// The last usable worker is never ejected.
	MaxEjected float64
	// SlowStart is the number of requests that a worker may have in flight before it has served the first one since it came up,
	// as long as another worker takes more [slow start]; below 1: no limit. It bounds what a worker can cost that fails all.
	SlowStart int
	// Hung is for how long the probes of a worker must get no answer before requests that it is silent on are cut; default 10 s.
	Hung time.Duration
}

const (
	shareWindow   = 15.0             // s: shares count over one to two of these
	shareRequests = 20               // fewest requests of a worker to judge their share [failure_percentage_request_volume]
	peerRequests  = 5                // fewest requests of another worker to compare with
	stallAfter    = 10 * time.Second // silence that ejects a worker on which streams wait for their first byte
	stallCut      = time.Minute      // silence after which such streams are cut
)

func (o Outlier) withDefaults() Outlier {
	o.Consecutive = cmp.Or(o.Consecutive, 5)
	o.Share = cmp.Or(o.Share, 0.3)
	o.BaseTime = cmp.Or(o.BaseTime, 10*time.Second)
	o.MaxTime = max(cmp.Or(o.MaxTime, 5*time.Minute), o.BaseTime)
	o.MaxEjected = cmp.Or(o.MaxEjected, 0.5)
	o.Hung = cmp.Or(o.Hung, 10*time.Second)
	if !o.enabled() {
		o.SlowStart = 0
	}
	return o
}

// enabled says whether workers are ejected at all.
func (o *Outlier) enabled() bool { return o.BaseTime > 0 && o.MaxEjected > 0 }

// span is how long an ejection lasts, s, the level-th in a row.
func (o *Outlier) span(level int) float64 {
	return min(o.BaseTime.Seconds()*math.Exp2(float64(level-1)), o.MaxTime.Seconds())
}

// Reason says why a worker was ejected.
type Reason string

// The reasons.
const (
	ConsecutiveFailures Reason = "consecutive_failures" // requests in a row failed
	FailurePercentage   Reason = "failure_percentage"   // too large a share of its requests failed
	FailedTrial         Reason = "failed_trial"         // a request of a trial failed
	Stalled             Reason = "stalled"              // it answers probes, but sends nothing on any stream
)

// Reasons lists the reasons.
var Reasons = []Reason{ConsecutiveFailures, FailurePercentage, FailedTrial, Stalled}

type hostState uint8

const (
	serving hostState = iota
	ejected           // until host.until
	onTrial           // takes 1 + host.passed requests at a time
)

// host is a worker, or an adapter on a worker, as outlier detection sees it. It is guarded by Fleet.mu. Times are seconds of
// wall time.
type host struct {
	state   hostState
	reason  Reason  // of the latest ejection
	streak  int     // failures in a row
	level   int     // ejections in a row: each lasts twice as long as the one before
	until   float64 // end of the ejection
	back    float64 // when the worker returned to service
	trial   uint32  // number of the latest trial, from 1
	running int     // its requests in flight
	passed  int     // its requests that succeeded

	now, before tally // of this window and the one before
	began       float64
}

// tally counts requests that ended.
type tally struct{ ok, failed int }

// roll begins a new window when one is over.
func (h *host) roll(now float64) {
	switch age := now - h.began; {
	case age >= 2*shareWindow:
		h.now, h.before, h.began = tally{}, tally{}, now
	case age >= shareWindow:
		h.now, h.before, h.began = tally{}, h.now, now
	}
}

// recent counts the requests of the windows.
func (h *host) recent() (ok, failed int) {
	return h.now.ok + h.before.ok, h.now.failed + h.before.failed
}

// closed says whether the worker takes no further request.
func (h *host) closed() bool {
	return h.state == ejected || h.state == onTrial && h.running > h.passed
}

// tick begins the trial when the ejection is over.
func (h *host) tick(now float64) {
	if h.state == ejected && now >= h.until {
		h.try()
	}
}

func (h *host) try() { h.state, h.trial, h.running, h.passed = onTrial, h.trial+1, 0, 0 }

// enter books a request, and returns the number of the trial that it is a part of, 0: none. It is the one to leave with.
func (h *host) enter() uint32 {
	if h.state != onTrial {
		return 0
	}
	h.running++
	return h.trial
}

func (h *host) leave(trial uint32) {
	if h.trying(trial) {
		h.running--
	}
}

// trying says whether a trial is the one under way.
func (h *host) trying(trial uint32) bool { return trial != 0 && trial == h.trial && h.state == onTrial }

// succeed notes a success of a request of a trial, 0: of none. It says whether the worker is back in service.
func (h *host) succeed(o *Outlier, now float64, trial uint32) (back bool) {
	h.roll(now)
	h.now.ok++
	h.streak = 0
	if !h.trying(trial) {
		return false
	}
	if h.passed++; h.passed < max(o.Consecutive, 1) {
		return false
	}
	h.state, h.back, h.now, h.before = serving, now, tally{}, tally{}
	return true
}

// eject begins an ejection. Healthy time takes back earlier ones: each as much as it lasted itself.
func (h *host) eject(o *Outlier, now float64, why Reason) {
	if h.state == serving {
		for healthy := now - h.back; h.level > 0 && healthy >= o.span(h.level); h.level-- {
			healthy -= o.span(h.level)
		}
	}
	h.level++
	h.state, h.reason, h.until, h.streak = ejected, why, now+o.span(h.level), 0
}

// fail notes a failure and says why the worker is to be ejected, "" if it is not. peers are the same of other usable workers; nil:
// nothing is known of one.
func (h *host) fail(o *Outlier, now float64, trial uint32, peers func(yield func(*host) bool)) Reason {
	h.roll(now)
	h.now.failed++
	h.streak++
	switch {
	case h.trying(trial):
		return FailedTrial
	case h.state != serving: // it was sent before
		return ""
	}
	inRow := o.Consecutive > 0 && h.streak >= o.Consecutive
	ok, failed := h.recent()
	n := ok + failed
	share := o.Share > 0 && n >= shareRequests && float64(failed) >= o.Share*float64(n)
	if !inRow && !share {
		return ""
	}
	// Requests that fail everywhere, as those of a client that sends what no worker can serve, make no worker an outlier: there
	// must be one that does better, if there is one to compare with.
	better, known := false, false
	for p := range peers {
		if p == nil {
			continue
		}
		p.roll(now)
		pok, pfailed := p.recent()
		m := pok + pfailed
		if m < peerRequests {
			continue
		}
		known = true
		// twice the failures, or half the successes
		better = better || failed*m >= 2*pfailed*n || 2*ok*m <= pok*n
	}
	switch {
	case inRow && (better || !known):
		return ConsecutiveFailures
	case share && better:
		return FailurePercentage
	}
	return ""
}

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

// Failed is told that a request failed on a worker through the worker's fault: the connection was refused or broke, nothing came
// in time, or the reply was an error of the server (status 5xx). A worker that refuses connections is down.
func (f *Fleet) Failed(r *Request, w int, err error) {
	x := r.Fault(w, err)
	defer f.lock()()
	f.refused(w, err)
	f.failed(r, x)
}

// IsFailure says whether an answer with an error speaks against the worker: all of status 5xx do but those that say what a sound
// worker has not (501), or that it has no room now (503 with Retry-After, or of a limit).
func IsFailure(status int, header http.Header, text string) bool {
	text = strings.ToLower(text)
	busy := header.Get("Retry-After") != "" || isLimit(errors.New(text)) || mentions(text, "queue is full", "full queue", "overload", "too many")
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

// Tried is told of the workers that failed a request one after the other, as [Fleet.Failed], and whether another one served it.
// If none did, the request itself may be what no worker can serve: then it counts once, against the first, and not at all if one
// of the others does well.
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

// adapterFailed notes a failure of an adapter on a worker that may be good for others: then requests for the adapter alone pass
// it over.
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
		f.cfg.Log("%s: adapter %s is ejected there for %.0f s (%s): %v", k.name, f.cfg.Adapters[a].Name, o.span(h.level), why, x.Err)
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
		return h.state == serving && h.now == tally{} && h.before == tally{} && (h.level == 0 || now-h.back > o.span(h.level))
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

// registered notes that the worker answers again after it was down. One that was down since its first ejection is likely another
// process: its trial begins at once.
func (k *worker) registered() {
	if k.out.state == ejected && k.out.restarted && k.out.level == 1 {
		k.out.try()
		k.reopen()
	}
}

// mask hides workers from a view for one routing decision, as long as others remain: one to avoid, those where the request's
// adapter is ejected, and those that have as many requests as they may have before they have served one. Where no worker is usable, those on trial take requests without limit, and else those that are
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
	s := OutlierState{Ejected: h.state == ejected, Trial: h.state == onTrial, Failures: h.streak, Ejections: maps.Clone(k.out.ejections),
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
