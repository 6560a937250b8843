package fleet

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"

	"lorasim/router"
	"lorasim/trace"
)

// outliers is the state of outlier detection for one worker: the worker itself as a host, and adapters on it as hosts.
type outliers struct {
	host
	view      *router.Worker
	adapters  map[int32]*host // those that have failed; nil: none
	ejections map[Reason]int64
	first     int32 // adapter of the first failure in a row
	mixed     bool  // others have failed since
	restarted bool  // it was down since it was ejected
	proven    bool  // it has served a request since it was last down

	heardThen uint64 // activity.heard when the worker was ejected

	postponed float64 // the worker has asked for no requests until then, s of wall time
}

// publish shows routers whether the worker takes requests.
func (o *outliers) publish() { o.view.Ejected = o.closed() }

// endEjection begins the trial of the worker when its ejection is over, and reports whether it did.
func (o *outliers) endEjection(now float64) bool {
	if o.state != ejected {
		return false
	}
	o.tick(now)
	o.publish()
	return o.state == onTrial
}

// enter books a request as part of the trials of its worker and of its adapter there, if there are such trials.
func (o *outliers) enter(r *Request) {
	r.trial, r.adapterTrial = o.host.enter(), 0
	if h := o.adapters[r.Adapter]; h != nil {
		r.adapterTrial = h.enter()
	}
	o.publish()
}

// leave removes a request from its trials.
func (o *outliers) leave(r *Request) {
	o.host.leave(r.trial)
	if h := o.adapters[r.Adapter]; h != nil {
		h.leave(r.adapterTrial)
	}
	o.publish()
}

// adapter returns the state of an adapter that fails on the worker.
func (o *outliers) adapter(a int32) *host {
	if o.adapters == nil {
		o.adapters = map[int32]*host{}
	}
	if o.adapters[a] == nil {
		o.adapters[a] = new(host)
	}
	return o.adapters[a]
}

// noteAdapter notes the adapter of a failure. Failures in a row may concern one adapter or several.
func (o *outliers) noteAdapter(a int32) {
	o.mixed = o.streak > 0 && (o.mixed || a != o.first)
	if o.streak == 0 {
		o.first = a
	}
}

// forget drops the adapters whose latest failure is long ago.
func (o *outliers) forget(c *Outlier, now float64) {
	maps.DeleteFunc(o.adapters, func(_ int32, h *host) bool {
		h.roll(now)
		idle := h.state == serving && h.now == tally{} && h.before == tally{}
		return idle && (h.level == 0 || now-h.back > c.span(h.level))
	})
}

// down notes that the worker is down. If refused is true, the worker refuses connections.
func (o *outliers) down(refused bool) {
	o.proven, o.restarted = false, o.state == ejected && refused
}

// afterDown notes that the worker answers again after it was down. A worker that refused connections since its first
// ejection is likely another process: its trial begins at once.
func (o *outliers) afterDown() {
	if o.state == ejected && o.restarted && o.level == 1 {
		o.try()
		o.publish()
	}
}

// inherit continues the record of the process that had the place of this one before. Counts of ejections go on in any
// case, as counters do.
func (o *outliers) inherit(was *outliers, same bool) {
	o.ejections = was.ejections
	if same {
		o.host, o.restarted = was.host, was.restarted
		o.running = 0 // requests in flight belong to the process before this one
		o.publish()
	}
}

// A Fault is the failure of a request on a worker.
type Fault struct {
	Worker              int
	on                  *worker // the worker with that index then; nil: not known
	Err                 error
	trial, adapterTrial uint32
}

// Fault returns the failure of the request on worker w, where it was booked last.
func (r *Request) Fault(w int, err error) Fault {
	x := Fault{w, nil, err, r.trial, r.adapterTrial}
	if r.on != nil && r.on.index == w {
		x.on = r.on
	}
	return x
}

// IsFailure reports whether an error response counts as a failure of the worker. All 5xx statuses do, with two
// exceptions: 501, because a sound worker may lack the feature, and 503 of a worker that has no room at present. The
// latter has a Retry-After header or a text about a limit.
func IsFailure(status int, header http.Header, text string) bool {
	text = strings.ToLower(text)
	full := mentions(text, "queue is full", "full queue", "overload", "too many")
	busy := full || header.Get("Retry-After") != "" || isLimit(errors.New(text))
	return status >= 500 && status != http.StatusNotImplemented && !(status == http.StatusServiceUnavailable && busy)
}

// detector ejects workers, and adapters on workers, that fail requests. All its methods are called with mu held.
type detector struct {
	cfg       *Config
	table     *table
	catalog   *catalog
	journal   *journal
	ejections int64 // of workers; see Stats
}

// failed notes that a request failed on a worker, which need not be down.
func (d *detector) failed(r *Request, x Fault) {
	if errors.Is(x.Err, syscall.EMFILE) || errors.Is(x.Err, syscall.ENFILE) {
		return // this process, or its machine, is out of file descriptors
	}
	o, k := &d.cfg.Outlier, d.table.workers[x.Worker]
	if k.gone || x.on != nil && x.on != k {
		return // the worker has left
	}
	k.health.failed++
	if !o.enabled() {
		return
	}
	d.table.tick()
	k.out.noteAdapter(r.Adapter)
	why := k.out.fail(o, d.table.wall(), x.trial, func(yield func(*host) bool) {
		for other := range d.others(x.Worker) {
			if !yield(&other.out.host) {
				return
			}
		}
	})
	// where one adapter alone fails, and others are in use, the worker may be good for those
	one := why == ConsecutiveFailures && !k.out.mixed && r.Adapter != trace.BaseModel &&
		k.books.uses(r.Adapter) < len(k.books.requests)
	if why != "" && !one && d.mayEject(k) {
		d.eject(k, why, x.Err)
	} else if r.Adapter != trace.BaseModel {
		d.adapterFailed(k, r.Adapter, x)
	}
	k.out.publish()
}

// others returns an iterator over the other workers that serve requests.
func (d *detector) others(w int) iter.Seq[*worker] {
	return func(yield func(*worker) bool) {
		for i, k := range d.table.workers {
			if i != w && k.view.Up && !k.view.Draining && !yield(k) {
				return
			}
		}
	}
}

// adapterFailed notes a failure of an adapter on a worker that may serve other adapters well. From then on only
// requests for this adapter pass the worker over.
func (d *detector) adapterFailed(k *worker, a int32, x Fault) {
	o, h := &d.cfg.Outlier, k.out.adapter(a)
	why := h.fail(o, d.table.wall(), x.adapterTrial, func(yield func(*host) bool) {
		for other := range d.others(x.Worker) {
			if !yield(other.out.adapters[a]) {
				return
			}
		}
	})
	if why != "" && k.out.state == serving {
		h.eject(o, d.table.wall(), why)
		name := d.catalog.name(a)
		d.journal.add(EventEjected, name, fmt.Sprintf("%s ejected for %.0f s (%s): %v", name, o.span(h.level),
			words(why), x.Err), k.index)
		d.cfg.Log("%s: adapter %s is ejected for %.0f s (%s): %v", k.name, name,
			o.span(h.level), why, x.Err)
	}
}

// tried notes the workers that failed a request; see [Requests.Tried].
func (d *detector) tried(r *Request, faults []Fault, served bool) {
	if !served && len(faults) > 1 {
		for _, x := range faults[1:] {
			h := &d.table.workers[x.Worker].out.host
			if ok, _ := h.recent(); x.Worker != faults[0].Worker && h.state == serving && h.streak == 0 && ok > 0 {
				return
			}
		}
		faults = faults[:1]
	}
	for _, x := range faults {
		d.failed(r, x)
	}
}

// mayEject reports whether one more worker may be ejected: the share of ejected workers permits it, and another worker
// remains usable.
func (d *detector) mayEject(candidate *worker) bool {
	out, left, all := 0, 0, 0
	for _, k := range d.table.workers {
		if k.gone {
			continue
		}
		all++
		switch {
		case k == candidate:
		case k.out.state == ejected:
			out++
		case k.view.Up && !k.view.Draining:
			left++
		}
	}
	return left > 0 && float64(out) < d.cfg.Outlier.MaxEjected*float64(all)
}

// eject takes a worker out of service.
func (d *detector) eject(k *worker, why Reason, err error) {
	k.out.eject(&d.cfg.Outlier, d.table.wall(), why)
	k.out.restarted, k.out.heardThen = false, k.replies.heard.Load()
	if k.out.ejections == nil {
		k.out.ejections = map[Reason]int64{}
	}
	k.out.ejections[why]++
	d.ejections++
	k.out.publish()
	d.journal.add(EventEjected, "", fmt.Sprintf("ejected for %.0f s (%s): %v", d.cfg.Outlier.span(k.out.level),
		words(why), err), k.index)
	d.cfg.Log("%s is ejected for %.0f s (%s): %v", k.name, d.cfg.Outlier.span(k.out.level), why, err)
}

// succeeded notes that a worker served a request to the end. The clock is that of the latest tick.
func (d *detector) succeeded(r *Request, w int) {
	k := d.table.workers[w]
	k.out.proven = true
	if k.out.succeed(&d.cfg.Outlier, d.table.wall(), r.trial) {
		d.journal.add(EventReturned, "", "back in service", k.index)
		d.cfg.Log("%s is back in service", k.name)
	}
	k.out.publish()
	if h := k.out.adapters[r.Adapter]; h != nil && h.succeed(&d.cfg.Outlier, d.table.wall(), r.adapterTrial) {
		name := d.catalog.name(r.Adapter)
		d.journal.add(EventReturned, name, name+" back in service", k.index)
		d.cfg.Log("%s: adapter %s is back in service", k.name, name)
	}
}

// any reports whether a worker, or an adapter on a worker, is not in full service.
func (d *detector) any() bool {
	return slices.ContainsFunc(d.table.workers, func(k *worker) bool {
		return !k.gone && (k.out.state != serving || len(k.out.adapters) > 0 || k.starting(&d.cfg.Outlier) ||
			k.out.postponed > d.table.wall())
	})
}

// mask hides workers from a view for one routing decision. It hides workers with another base model. As long as others
// remain, it also hides the workers that were tried, workers that have asked for a pause, workers where the request's
// adapter is ejected, and workers with as many requests as they may have before they have served one. If no worker is
// usable, those on trial take requests without limit, or else those that are ejected: that is better than to serve no
// request.
func (d *detector) mask(v *router.View, a int32, tried []int, serves func(*worker) bool) {
	other := func(i int) bool { return !serves(d.table.workers[i]) }
	for i := range v.Workers {
		v.Workers[i].Ejected = v.Workers[i].Ejected || other(i)
	}
	left := usable(v)
	for _, state := range [...]hostState{onTrial, ejected} {
		for i := range v.Workers {
			if left == 0 && d.table.workers[i].out.state == state && !other(i) {
				v.Workers[i].Ejected = false
			}
		}
		left = usable(v)
	}
	hide(v, func(i int) bool { return slices.Contains(tried, i) })
	hide(v, func(i int) bool { return len(tried) > 0 && i == tried[len(tried)-1] })
	hide(v, func(i int) bool { return d.table.workers[i].out.postponed > d.table.wall() })
	hide(v, func(i int) bool {
		h := d.table.workers[i].out.adapters[a]
		if h != nil {
			h.tick(d.table.wall())
		}
		return h != nil && h.closed()
	})
	hide(v, func(i int) bool { return d.table.workers[i].starting(&d.cfg.Outlier) })
	d.hideUnfit(v, a)
}

// hideUnfit hides workers that cannot serve a request for an adapter at once, as long as others remain: that unload it,
// that hold other weights by its name, where a load failed a short time ago and, if another one holds the adapter, that
// load it.
func (d *detector) hideUnfit(v *router.View, a int32) {
	if a == trace.BaseModel {
		return
	}
	row := func(i int) *adapter { return d.table.workers[i].loras.rows[a] }
	held := slices.ContainsFunc(d.table.workers, func(k *worker) bool {
		return k.index < len(v.Workers) && v.Workers[k.index].Usable() && k.loras.ready(a)
	})
	hide(v, func(i int) bool {
		s := row(i)
		return s.foreign != "" || !s.held && s.resting() || s.call != nil && (s.call.unload || held)
	})
}

// unfit reports whether hideUnfit may hide a worker.
func (d *detector) unfit(a int32) bool {
	return a != trace.BaseModel && slices.ContainsFunc(d.table.workers, func(k *worker) bool {
		s := k.loras.rows[a]
		return s.call != nil || s.foreign != "" || s.failure != nil
	})
}

// hide hides the usable workers that satisfy a condition, unless all do. A hidden worker is Ejected, not down: a policy
// keeps its accounts of the worker.
func hide(v *router.View, which func(i int) bool) {
	for i := range v.Workers {
		if !v.Workers[i].Usable() || which(i) {
			continue
		}
		for i := range v.Workers {
			if w := &v.Workers[i]; w.Usable() && which(i) {
				w.Ejected = true
			}
		}
		return
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

// An OutlierState is the state of outlier detection for one worker.
type OutlierState struct {
	Ejected         bool             `json:"ejected"`              // the worker takes no new requests
	Trial           bool             `json:"on_trial"`             // the worker takes a few requests
	Reason          Reason           `json:"ejection_reason"`      // of the latest ejection
	EjectedFor      float64          `json:"ejected_for_s"`        // time until the ejection ends, s
	Failures        int              `json:"consecutive_failures"` // failures in a row
	Ejections       map[Reason]int64 `json:"ejections"`            // number so far, by reason
	EjectedAdapters []string         `json:"ejected_adapters"`     // adapters that are ejected on the worker
}

// state returns the state of a worker.
func (d *detector) state(k *worker) OutlierState {
	d.table.tick()
	h, now := &k.out.host, d.table.wall()
	d.table.endEjection(k)
	s := OutlierState{Ejected: h.state == ejected, Trial: h.state == onTrial, Failures: h.streak,
		Ejections: maps.Clone(k.out.ejections), EjectedAdapters: []string{}}
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
			s.EjectedAdapters = append(s.EjectedAdapters, d.catalog.name(a))
		}
	}
	slices.Sort(s.EjectedAdapters)
	return s
}
