// Package push brings new versions of adapters to workers while requests run, as reinforcement learning and continuous
// fine-tuning do. A [Rollout] decides which worker loads which version next, and which requests wait for a version. It
// has no clock and does no work: the simulator, the live client and the gateway carry out its loads.
//
//	r := push.NewRollout(options, maxStaleness)
//	r.Add(a, workers)
//	r.Publish(a, now)
//	for l, ok := r.Next(cluster, now); ok; l, ok = r.Next(cluster, now) {
//		... load l.Version of l.Adapter on l.Worker, then r.Ended(l, now, true)
//	}
//
// Versions of an adapter count from 1, the version at the start of a run.
package push

import (
	"fmt"
	"slices"
	"strings"

	"lorasim/trace/settings"
)

// Options say how new versions of adapters come to the workers.
type Options struct {
	Loads    string `default:"holders" check:"oneof holders demand" help:"when workers load a new version: holders (all workers that hold the adapter load it at once) or demand (a worker loads it for its next request)"`
	Requests string `default:"keep" check:"oneof keep cut-over" help:"requests in flight keep the version that they began with, or are cut over to the new one"`
	Workers  int    `default:"1" check:">=0 <=100000" unit:"workers" help:"workers that load a version at a time (0: all)"`
	Order    string `default:"index" check:"oneof index idle" help:"order of the workers: by index, or the one with the fewest requests first"`
	Overlap  bool   `default:"true" help:"a worker takes requests for the adapter while it loads the new version; false: they wait for the load"`
	Versions int    `default:"4" check:">=2 <=64" unit:"versions" help:"most versions of an adapter on a worker; a push waits for the end of requests of an older one"`
	Adapters string `check:"any" help:"names of the adapters with new versions, joined by +; default: all"`
}

// Check implements settings.Checker.
func (o *Options) Check(given settings.Given) error {
	if o.Loads == Demand {
		for _, key := range []string{"workers", "order", "overlap"} {
			if given.Has(key) {
				return fmt.Errorf("%s is for loads=%s", key, Holders)
			}
		}
		if o.Requests == CutOver {
			return fmt.Errorf("requests=%s needs loads=%s", CutOver, Holders)
		}
	}
	return nil
}

// The values of Options.Loads and Options.Requests.
const (
	Holders = "holders"
	Demand  = "demand"
	Keep    = "keep"
	CutOver = "cut-over"
)

// Idle is the value of Options.Order for which the worker with the fewest requests comes first.
const idle = "idle"

// Parse parses options such as "workers=2,order=idle".
func Parse(text string) (Options, error) {
	var o Options
	_, err := settings.Decode(text, &o)
	return o, err
}

// Default returns the options of an empty text.
func Default() Options {
	o, err := Parse("")
	if err != nil {
		panic(err) // a wrong tag
	}
	return o
}

// Select returns the indices of the adapters that get new versions.
func (o *Options) Select(names []string) ([]int32, error) {
	var list []int32
	if o.Adapters == "" {
		for a := range names {
			list = append(list, int32(a))
		}
		return list, nil
	}
	index := map[string]int32{}
	for a, name := range names {
		index[name] = int32(a)
	}
	for name := range strings.SplitSeq(o.Adapters, "+") {
		a, ok := index[name]
		if !ok {
			return nil, fmt.Errorf("adapters: no adapter %q", name)
		}
		if index[name] = -1; a < 0 {
			return nil, fmt.Errorf("adapters: %q is listed twice", name)
		}
		list = append(list, a)
	}
	return list, nil
}

// A Schedule yields the times of new versions: each adapter has one at every interval, and the adapters take turns
// within it.
type Schedule struct {
	Interval float64 // s between two versions of an adapter
	Adapters []int32
	n        int
}

// Next returns the next adapter with a new version, and the time, s.
func (s *Schedule) Next() (a int32, at float64) {
	k := len(s.Adapters)
	a, at = s.Adapters[s.n%k], s.Interval*(float64(s.n/k)+float64(s.n%k+1)/float64(k))
	s.n++
	return a, at
}

// A Load is a load of a version of an adapter on a worker.
type Load struct {
	Worker, Adapter, Version int32
}

// A Cluster answers what a rollout needs to know about workers.
type Cluster interface {
	// Holds reports whether a worker holds an adapter, in whatever version, or loads it.
	Holds(worker, adapter int32) bool
	// Forget notes that a worker, which does not hold an adapter, will load its newest version next.
	Forget(worker, adapter int32)
	// Room reports whether a worker can take one more version of an adapter now.
	Room(worker, adapter int32) bool
	// Load returns the number of requests on a worker.
	Load(worker int32) int
}

// Stats counts what a rollout did.
type Stats struct {
	Published int64   // new versions
	Loads     int64   // versions loaded on workers
	Failed    int64   // loads that failed
	Complete  int64   // new versions that all holders of the adapter have, or a newer one
	Time      float64 // sum, over the complete versions, of the time from publication until then, s
}

// A Rollout knows the newest version of each adapter, and the version that each worker serves. Its methods are not safe
// for concurrent use.
type Rollout struct {
	opt      Options
	bound    int32      // most versions that a request may be behind; < 0: no limit
	adapters []*adapter // by index; nil: it has no new versions
	pending  []int32    // adapters with a worker behind, in the order of their turns
	busy     []bool     // by worker: it loads a version
	loading  int        // workers that do
	stats    Stats
}

// adapter is the state of one adapter.
type adapter struct {
	published []float64 // by version - 1: time of publication, s
	complete  int32     // version that all workers have at least
	on        []held    // by worker
}

// held is a version on a worker.
type held struct {
	version int32
	loads   bool // a newer one is being loaded
}

// NewRollout returns a rollout without adapters. maxStaleness is the number of versions that a request may be behind
// the newest one; < 0: no limit.
func NewRollout(o Options, maxStaleness int) *Rollout {
	return &Rollout{opt: o, bound: int32(maxStaleness)}
}

// Add makes an adapter get new versions, unless it does already. The given number of workers serve version 1. A worker
// beyond them serves the newest version, which it will load with its first request.
func (r *Rollout) Add(a int32, workers int) {
	for int(a) >= len(r.adapters) {
		r.adapters = append(r.adapters, nil)
	}
	if r.adapters[a] == nil {
		r.adapters[a] = &adapter{published: []float64{0}, complete: 1, on: slices.Repeat([]held{{version: 1}}, workers)}
	}
	r.grow(workers)
}

func (r *Rollout) grow(workers int) {
	for len(r.busy) < workers {
		r.busy = append(r.busy, false)
	}
}

// at returns the state of an adapter on a worker.
func (r *Rollout) at(worker, a int32) *held {
	x := r.adapters[a]
	for int(worker) >= len(x.on) {
		x.on = append(x.on, held{version: r.Newest(a)})
		r.grow(len(x.on))
	}
	return &x.on[worker]
}

// Options returns the options of the rollout.
func (r *Rollout) Options() *Options { return &r.opt }

// Pushed reports whether an adapter gets new versions.
func (r *Rollout) Pushed(a int32) bool {
	return uint(a) < uint(len(r.adapters)) && r.adapters[a] != nil
}

// Newest returns the newest version of an adapter.
func (r *Rollout) Newest(a int32) int32 { return int32(len(r.adapters[a].published)) }

// Version returns the version of an adapter that a worker serves.
func (r *Rollout) Version(worker, a int32) int32 { return r.at(worker, a).version }

// Publish notes a new version of an adapter.
func (r *Rollout) Publish(a int32, now float64) {
	x := r.adapters[a]
	x.published = append(x.published, now)
	r.stats.Published++
	if !slices.Contains(r.pending, a) {
		r.pending = append(r.pending, a)
	}
}

// Next returns the next load to begin, and false if none can begin now. Of the workers without the newest version of
// an adapter, those with the oldest version come first, so that each version comes to all workers. A worker that does
// not hold the adapter needs no load: it will load the newest version with its first request.
func (r *Rollout) Next(c Cluster, now float64) (Load, bool) {
	for i := 0; i < len(r.pending); i++ {
		a := r.pending[i]
		x, newest, best, behind := r.adapters[a], r.Newest(a), -1, false
		for w := range x.on {
			h := &x.on[w]
			if r.upToDate(c, int32(w), a) {
				continue
			}
			behind = true
			if h.loads || r.full(w) || !c.Room(int32(w), a) {
				continue
			}
			if best < 0 || h.version < x.on[best].version || h.version == x.on[best].version &&
				r.opt.Order == idle && c.Load(int32(w)) < c.Load(int32(best)) {
				best = w
			}
		}
		if !behind {
			r.settle(a, now)
			r.pending = slices.Delete(r.pending, i, i+1)
			i--
			continue
		}
		if best >= 0 { // the adapter goes last, so that one with many versions does not hold up the others
			r.pending = append(slices.Delete(r.pending, i, i+1), a)
			x.on[best].loads = true
			if r.opt.Loads == Holders {
				r.busy[best] = true
				r.loading++
			}
			return Load{int32(best), a, newest}, true
		}
	}
	return Load{}, false
}

// full reports whether a worker may not begin a load, because it or enough others load already.
func (r *Rollout) full(w int) bool {
	return r.opt.Loads == Holders && (r.busy[w] || r.opt.Workers > 0 && r.loading >= r.opt.Workers)
}

// Ended notes the end of a load. If ok, the worker serves the version from now on.
func (r *Rollout) Ended(l Load, now float64, ok bool) {
	h := r.at(l.Worker, l.Adapter)
	if !h.loads { // the worker has restarted since
		return
	}
	h.loads = false
	if r.busy[l.Worker] {
		r.busy[l.Worker] = false
		r.loading--
	}
	if !ok {
		r.stats.Failed++
		return
	}
	if h.version = l.Version; r.opt.Loads == Holders {
		r.stats.Loads++
	}
	r.settle(l.Adapter, now)
}

// settle counts the versions that all holders of an adapter have.
func (r *Rollout) settle(a int32, now float64) {
	x := r.adapters[a]
	least := r.Newest(a)
	for w := range x.on {
		least = min(least, x.on[w].version)
	}
	for ; x.complete < least; x.complete++ {
		r.stats.Complete++
		r.stats.Time += now - x.published[x.complete]
	}
}

// Loading reports whether a worker loads a newer version of an adapter.
func (r *Rollout) Loading(worker, a int32) bool { return r.at(worker, a).loads }

// Refresh makes a worker that holds an adapter in no version, and loads none, serve the newest one next.
func (r *Rollout) Refresh(c Cluster, worker, a int32) { r.upToDate(c, worker, a) }

// upToDate reports whether a worker serves the newest version, after a Refresh.
func (r *Rollout) upToDate(c Cluster, worker, a int32) bool {
	h, newest := r.at(worker, a), r.Newest(a)
	if h.version != newest && !h.loads && !c.Holds(worker, a) {
		h.version = newest
		c.Forget(worker, a)
	}
	return h.version == newest
}

// Restarted notes that a worker has lost its adapters. It serves the newest versions next.
func (r *Rollout) Restarted(worker int32) {
	for a := range r.adapters {
		if r.adapters[a] != nil {
			*r.at(worker, int32(a)) = held{version: r.Newest(int32(a))}
		}
	}
	if int(worker) < len(r.busy) && r.busy[worker] {
		r.busy[worker] = false
		r.loading--
	}
}

// Needs returns the oldest version that may serve a request for an adapter that arrives now.
func (r *Rollout) Needs(a int32) int32 {
	if r.bound < 0 {
		return 1
	}
	return max(r.Newest(a)-r.bound, 1)
}

// Admits reports whether a worker may serve a request for an adapter now that needs a version. If not, the request
// waits until a load on the worker has ended.
func (r *Rollout) Admits(worker, a, needs int32) bool {
	h := r.at(worker, a)
	return h.version >= needs && (r.opt.Overlap || !h.loads)
}

// Age returns the time since the publication of a version, s.
func (r *Rollout) Age(a, version int32, now float64) float64 {
	return now - r.adapters[a].published[version-1]
}

// Stats returns the counts so far.
func (r *Rollout) Stats() Stats { return r.stats }
