package fleet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/router/push"
	"lorasim/trace"
)

// Push says how new versions of adapters come to the workers. Version 1 of an adapter has the adapter's name on a
// worker, and a later one NAME@VERSION; the numbers are larger if workers hold versions from an earlier time. If
// requests are cut over, the newest version has the adapter's name.
type Push struct {
	push.Options
	MaxStaleness int // most versions that a request may be behind the newest one; < 0: no limit
}

// Admission is the version of its adapter with which a request was admitted.
type Admission struct {
	Version int32         // 0: the adapter has no new versions
	Behind  int32         // newer versions when the request came
	Age     float64       // time since the version's publication, s
	Waited  time.Duration // time for which the request waited for a version
}

// rollouts bring new versions of adapters to the workers. The lock of the table guards the fields that change.
type rollouts struct {
	cfg    *Config
	tasks  *tasks
	table  *table
	loader *loader

	rollout *push.Rollout      // nil: no version was published yet
	paths   map[int32][]string // by adapter: paths of the versions from 2 on
	taken   map[string]int32   // by name of an adapter: the largest VERSION on workers before the first push
	changed signal             // a worker serves another version
	cutOver int64              // requests that went on with another version
}

// versionKey is a version of an adapter on a worker.
type versionKey struct{ adapter, version int32 }

// oldVersion is a version on a worker that takes no new requests.
type oldVersion struct {
	versionKey
	name      string
	unloading bool
}

// Publish notes a new version of an adapter, whose weights workers find at a path, and begins to bring it to the
// workers. It returns the number of the version.
func (m *LoRAManager) Publish(name, path string) (version int32, err error) {
	v := m.rollouts
	defer v.table.lock()()
	a := m.catalog.lookup(name)
	switch {
	case a < 0:
		return 0, fmt.Errorf("%w %q", errUnknownAdapter, name)
	case !isName(path, maxPath):
		return 0, fmt.Errorf("path %q of a new version of adapter %s: expected at most %d bytes without control characters",
			clean(path, 100), name, maxPath)
	}
	v.track(a)
	v.paths[a] = append(v.paths[a], path)
	v.rollout.Publish(a, v.cfg.Now())
	v.advance()
	return v.rollout.Newest(a), nil
}

// Track makes an adapter have versions, of which the present weights are the first.
func (m *LoRAManager) Track(name string) {
	defer m.table.lock()()
	if a := m.catalog.lookup(name); a >= 0 {
		m.rollouts.track(a)
	}
}

// track is Track; called with mu held.
func (v *rollouts) track(a int32) {
	if v.rollout == nil {
		p := v.cfg.Push
		if p == nil {
			p = &Push{push.Default(), -1}
		}
		v.rollout, v.paths = push.NewRollout(p.Options, p.MaxStaleness), map[int32][]string{}
		v.changed = signal{make(chan struct{})}
	}
	v.rollout.Add(a, len(v.table.workers))
}

// found notes the versions of adapters without pushes so far in a worker's list: a gateway or client of an earlier time
// has loaded them. No engine loads a name twice. Called with mu held.
func (v *rollouts) found(list []model) {
	for _, m := range list {
		i := strings.LastIndexByte(m.ID, '@')
		if m.Parent == "" || i < 0 {
			continue
		}
		name := m.ID[:i]
		n, err := strconv.ParseInt(m.ID[i+1:], 10, 32)
		if a := v.table.catalog.lookup(name); err != nil || n >= math.MaxInt32/2 || a >= 0 && v.pushed(a) {
			continue
		}
		if v.taken == nil {
			v.taken = map[string]int32{}
		}
		v.taken[name] = max(v.taken[name], int32(n))
	}
}

// advance begins the loads that can begin now. Called with mu held.
func (v *rollouts) advance() {
	if v.tasks.ctx.Err() != nil {
		return
	}
	for l, ok := v.rollout.Next(v, v.cfg.Now()); ok; l, ok = v.rollout.Next(v, v.cfg.Now()) {
		k := v.table.workers[l.Worker]
		if v.rollout.Options().Loads == push.Demand {
			old := v.name(k, l.Adapter)
			was := v.rollout.Version(l.Worker, l.Adapter)
			v.rollout.Ended(l, v.cfg.Now(), true)
			k.loras.gone(l.Adapter) // requests load the new version
			v.retire(k, versionKey{l.Adapter, was}, old)
			continue
		}
		v.tasks.Go(func() { v.load(k, l) })
	}
	v.changed.notify()
	v.table.ready.notify()
}

// ended notes the end of a load for requests, after which others may begin. Called with mu held.
func (v *rollouts) ended() {
	if v.rollout != nil {
		v.advance()
	}
}

// restLoad is the time from a load that failed to the next one.
const restLoad = time.Second

// load loads a version on a worker and makes the worker serve it.
func (v *rollouts) load(k *worker, l push.Load) {
	ctx, cancel := context.WithTimeout(v.tasks.ctx, v.cfg.LoadLimit)
	defer cancel()
	v.table.mu.Lock()
	name, path, inPlace := v.nameOf(l.Adapter, l.Version), v.pathOf(l.Adapter, l.Version), v.inPlace()
	v.table.mu.Unlock()
	begun := time.Now()
	err := v.table.guard(k.index, func() error {
		if inPlace {
			return k.replaceAdapter(ctx, name, path)
		}
		return k.loadAdapter(ctx, name, path)
	})
	unlock := v.table.lock()
	v.loader.note(k, Load{k.url, name, time.Since(begun), err})
	if err == nil && !k.gone && v.rollout.Loading(l.Worker, l.Adapter) {
		was := versionKey{l.Adapter, v.rollout.Version(l.Worker, l.Adapter)}
		old := v.name(k, l.Adapter)
		v.rollout.Ended(l, v.cfg.Now(), true)
		if inPlace {
			v.cutOver += int64(k.leases[was])
		} else {
			v.retire(k, was, old)
		}
		k.loras.add(l.Adapter)
		k.loras.updateSlots()
		v.advance()
	} else {
		v.rollout.Ended(l, v.cfg.Now(), false)
	}
	unlock()
	if err != nil && v.tasks.ctx.Err() == nil {
		v.cfg.Log("version %d of an adapter, %s, on %s: %v", l.Version, name, k.name, err)
		pause(v.tasks.ctx, restLoad)
		defer v.table.lock()()
		v.advance()
	}
}

// retire unloads a version as soon as it has no requests. Called with mu held.
func (v *rollouts) retire(k *worker, key versionKey, name string) {
	k.olds = append(k.olds, &oldVersion{versionKey: key, name: name})
	v.unload(k)
}

// unload unloads the old versions of a worker that have no requests. Called with mu held.
func (v *rollouts) unload(k *worker) {
	for _, o := range k.olds {
		if o.unloading || k.leases[o.versionKey] > 0 {
			continue
		}
		o.unloading = true
		v.tasks.Go(func() {
			ctx, cancel := context.WithTimeout(v.tasks.ctx, v.cfg.LoadLimit)
			defer cancel()
			err := v.table.guard(k.index, func() error { return k.unloadAdapter(ctx, o.name) })
			if err != nil {
				v.cfg.Log("unloading version %d of an adapter, %s, on %s: %v", o.version, o.name, k.name, err)
				pause(v.tasks.ctx, restLoad)
			}
			defer v.table.lock()()
			if o.unloading = false; err == nil {
				v.loader.unloads++
				k.forget(o)
				v.advance()
			} else if v.tasks.ctx.Err() == nil {
				v.unload(k)
			}
		})
	}
}

// forget removes an old version that the worker does not hold any more.
func (k *worker) forget(old *oldVersion) {
	for i, o := range k.olds {
		if o == old {
			k.olds = append(k.olds[:i], k.olds[i+1:]...)
			return
		}
	}
}

// inPlace reports whether new versions replace the old ones under their names.
func (v *rollouts) inPlace() bool { return v.rollout.Options().Requests == push.CutOver }

// nameOf returns the name of a version on the workers.
func (v *rollouts) nameOf(a, version int32) string {
	name := v.table.catalog.name(a)
	if version == 1 || v.inPlace() {
		return name
	}
	return fmt.Sprintf("%s@%d", name, version+max(v.taken[name]-1, 0))
}

// pathOf returns the path of a version.
func (v *rollouts) pathOf(a, version int32) string {
	if version == 1 {
		return v.table.catalog.path(a)
	}
	return v.paths[a][version-2]
}

// name returns the name by which a worker serves an adapter. Called with mu held.
func (v *rollouts) name(k *worker, a int32) string {
	if !v.pushed(a) {
		return v.table.catalog.name(a)
	}
	return v.nameOf(a, v.rollout.Version(int32(k.index), a))
}

// path returns the path from which a worker loads an adapter. Called with mu held.
func (v *rollouts) path(k *worker, a int32) string {
	if !v.pushed(a) {
		return v.table.catalog.path(a)
	}
	v.rollout.Refresh(v, int32(k.index), a)
	return v.pathOf(a, v.rollout.Version(int32(k.index), a))
}

// pushed reports whether an adapter has new versions.
func (v *rollouts) pushed(a int32) bool { return v.rollout != nil && v.rollout.Pushed(a) }

// listed returns a worker's list with the adapters' names instead of those of the versions that it serves, and without
// other versions. Called with mu held.
func (v *rollouts) listed(k *worker, list []model) []model {
	v.found(list)
	if v.rollout == nil {
		return list
	}
	var out []model
	for _, m := range list {
		base, _, versioned := strings.Cut(m.ID, "@")
		a := v.table.catalog.lookup(m.ID)
		if a < 0 && versioned {
			a = v.table.catalog.lookup(base)
		}
		if m.Parent != "" && a >= 0 && v.pushed(a) {
			if m.ID != v.name(k, a) {
				continue
			}
			m.ID, m.Root = v.table.catalog.name(a), ""
		}
		out = append(out, m)
	}
	return out
}

// down notes that a worker has lost its adapters. Called with mu held.
func (v *rollouts) down(k *worker) {
	k.olds = nil
	if v.rollout != nil {
		v.rollout.Restarted(int32(k.index))
		v.advance()
	}
}

// Holds implements push.Cluster.
func (v *rollouts) Holds(worker, a int32) bool {
	k := v.table.workers[worker]
	s := k.loras.rows[a]
	return !k.gone && (s.held || s.call != nil)
}

// Forget implements push.Cluster.
func (v *rollouts) Forget(int32, int32) {}

// Room implements push.Cluster: with the new version, the worker has no more versions than Options.Versions.
func (v *rollouts) Room(worker, a int32) bool {
	k := v.table.workers[worker]
	if k.loras.rows[a].call != nil {
		return false
	}
	n := 2
	for _, o := range k.olds {
		if o.adapter == a {
			n++
		}
	}
	return v.inPlace() || n <= v.rollout.Options().Versions
}

// Load implements push.Cluster.
func (v *rollouts) Load(worker int32) int { return v.table.view.Workers[worker].Load() }

// Serve makes the worker of a booked request ready for an adapter of the request: it loads the adapter as EnsureWithin
// does and, if the adapter has new versions, waits for one that is new enough. It returns the name of the adapter on
// the worker; "": the base model. The worker keeps the version until the request has left it. A later call for the
// same adapter replaces the earlier one.
func (m *LoRAManager) Serve(ctx context.Context, w int, r *Request, a int32, wait Wait) (name string, err error) {
	begun := time.Time{}
	for again := a != trace.BaseModel; again; {
		if err := m.EnsureWithin(ctx, w, a, wait); err != nil {
			return "", err
		}
		if name, again, err = m.rollouts.admit(ctx, r, a, wait, &begun); err != nil {
			return "", err
		}
	}
	return name, nil
}

// arrived notes the versions of a request's adapter at the request's arrival. Called with mu held.
func (v *rollouts) arrived(r *Request) {
	if r.needs == 0 && v.pushed(r.Adapter) {
		r.needs, r.newest = v.rollout.Needs(r.Adapter), v.rollout.Newest(r.Adapter)
	}
}

var errNoVersion = errors.New("no version that is new enough in time")

// admit gives a request the version of an adapter that its worker serves. again: the worker holds none. An adapter
// without new versions has version 1, which the request gets at once: if another client of the worker has unloaded it,
// the worker says so.
func (v *rollouts) admit(ctx context.Context, r *Request, a int32, wait Wait, begun *time.Time) (name string,
	again bool, err error) {
	defer v.table.lock()()
	k := r.on
	for {
		switch {
		case k.gone:
			return "", false, k.cause
		case !v.pushed(a):
			v.hold(r, k, versionKey{a, 1})
			return v.table.catalog.name(a), false, nil
		case !k.loras.ready(a):
			return "", true, nil
		case v.rollout.Admits(int32(k.index), a, v.needs(r, a)):
			key := versionKey{a, v.rollout.Version(int32(k.index), a)}
			v.hold(r, k, key)
			if a == r.Adapter {
				r.Admission = Admission{Version: key.version, Behind: max(r.newest-key.version, 0),
					Age: v.rollout.Age(a, key.version, v.cfg.Now())}
				if !begun.IsZero() {
					r.Admission.Waited = time.Since(*begun)
				}
			}
			return v.name(k, a), false, nil
		}
		if begun.IsZero() {
			*begun = time.Now()
		}
		if until := wait.Until; !until.IsZero() && !time.Now().Before(until) {
			return "", false, fmt.Errorf("worker %d, adapter %s: %w", k.index, v.table.catalog.name(a), errNoVersion)
		}
		if err := v.table.awaitAny(ctx, wait.Until, v.changed.ch, k.changed.ch); err != nil {
			return "", false, err
		}
	}
}

// needs returns the oldest version of an adapter that may serve a request. The newest version at the request's arrival
// counts, for the other adapters of a batch the newest one now. Called with mu held.
func (v *rollouts) needs(r *Request, a int32) int32 {
	if a == r.Adapter {
		return max(r.needs, 1) // 0: the adapter had no new versions
	}
	return v.rollout.Needs(a)
}

// hold makes a worker keep a version until a request has left. Called with mu held.
func (v *rollouts) hold(r *Request, k *worker, key versionKey) {
	lease := &r.lease
	if key.adapter != r.Adapter {
		i := slices.IndexFunc(r.others, func(o versionKey) bool { return o.adapter == key.adapter })
		if i < 0 {
			i, r.others = len(r.others), append(r.others, versionKey{})
		}
		lease = &r.others[i]
	}
	k.leases[key]++
	v.end(k, *lease)
	*lease = key
}

// end ends a request's hold on a version. Called with mu held.
func (v *rollouts) end(k *worker, lease versionKey) {
	if lease.version == 0 {
		return
	}
	if k.leases[lease]--; k.leases[lease] <= 0 {
		delete(k.leases, lease)
		v.unload(k)
	}
}

// left ends a request's hold on its versions. Called with mu held.
func (v *rollouts) left(r *Request, k *worker) {
	v.end(k, r.lease)
	for _, lease := range r.others {
		v.end(k, lease)
	}
	r.lease, r.others = versionKey{}, nil
}

// Name returns the name by which worker w serves adapter a now.
func (m *LoRAManager) Name(w int, a int32) string {
	defer m.table.lock()()
	if a == trace.BaseModel {
		return ""
	}
	return m.rollouts.name(m.table.workers[w], a)
}

// Pushes returns the counts of new versions, and the number of requests that went on with another version.
func (m *LoRAManager) Pushes() (stats push.Stats, cutOver int64) {
	defer m.table.lock()()
	if r := m.rollouts.rollout; r != nil {
		stats = r.Stats()
	}
	return stats, m.rollouts.cutOver
}

// replaceAdapter loads an adapter again, from another path, under its name and without an end of its requests.
func (e *engine) replaceAdapter(ctx context.Context, name, path string) error {
	if e.kind() != httpapi.VLLM {
		return fmt.Errorf("requests=%s: sglang replaces no adapter in place, expected requests=%s", push.CutOver,
			push.Keep)
	}
	_, err := e.call(ctx, http.MethodPost, "/v1/load_lora_adapter", map[string]any{"lora_name": name, "lora_path": path,
		"load_inplace": true})
	return err
}
