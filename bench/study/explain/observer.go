package explain

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/result/waits"
	"lorasim/bench/scenario"
	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// The causes of waiting, by their order in [Adapter.waits].
const (
	aSlot       = iota // all GPU slots of the worker run other adapters
	aLoad              // the adapter is being loaded, from a store or from host memory
	blockedHead        // a request ahead of it in the queue needs an adapter without a slot
	routing            // its worker is full while another one has room
	fullWorkers        // its worker is full, and so are all others
	stepEnd            // the end of the worker's step; its worker has room
	numCauses          // the number of causes
)

var causeNames = [numCauses]string{"a slot", "loads of the adapter", "a blocked request ahead of them",
	"a full worker while another has room", "full workers", "the end of a step"}

// An observer attributes the waiting time in a run to adapters and causes. Its states must have Full, as those of
// simulated runs have.
type observer struct {
	engines  []*profile.Engine // by worker
	adapters []waited          // by adapter + 1; 0: the base model
}

// waited is what the requests of an adapter waited for, in request-seconds.
type waited struct {
	causes  [numCauses]float64
	holders map[int32]float64 // adapters that ran in the slots meanwhile
}

// newObserver returns an observer of a run with n adapters on workers with the given profiles, one per worker.
func newObserver(ps []*profile.Profile, n int) *observer {
	o := &observer{adapters: make([]waited, n+1)}
	for _, p := range ps {
		o.engines = append(o.engines, &p.Engine)
	}
	return o
}

// watch simulates a scenario on a workload, with an observer.
func watch(ctx context.Context, sc *scenario.Scenario, w *scenario.Collected) (*result.Result, *observer, error) {
	var ps []*profile.Profile
	var o *observer
	res, err := sc.Simulate(ctx, scenario.RunOptions{
		Input: w.Input(), Profiles: func(p []*profile.Profile) { ps = p },
		Watch: func(adapters []trace.Adapter) record.Watcher {
			o = newObserver(ps, len(adapters))
			return o.Watcher()
		}})
	return res, o, err
}

// Watcher returns the events that the observer needs.
func (o *observer) Watcher() record.Watcher {
	return record.Watcher{Kinds: record.EventState, Note: func(e *record.Event) {
		o.state((e.Until - e.From).Seconds(), e.View)
	}}
}

// state adds d seconds in which the workers were in a state.
func (o *observer) state(d float64, v *router.View) {
	for i := range v.Workers {
		if w := &v.Workers[i]; w.Queued > 0 {
			o.worker(d, v, w, o.engines[i])
		}
	}
}

func (o *observer) worker(d float64, v *router.View, w *router.Worker, e *profile.Engine) {
	blocked := false
	waits.Each(w, e, func(_ int32, _, why int) { blocked = blocked || lacksAdapter(why) })
	blocked = blocked && e.HeadOfLine == profile.HeadOfLineBlock
	waits.Each(w, e, func(a int32, n, why int) {
		cause := stepEnd
		switch {
		case why == waits.Slots:
			cause = aSlot
		case lacksAdapter(why):
			cause = aLoad
		case blocked:
			cause = blockedHead
		case w.Full:
			cause = fullWorkers
		}
		if (cause == aSlot || cause == fullWorkers) && room(v, w, a) {
			cause = routing
		}
		to := &o.adapters[a+1]
		to.causes[cause] += float64(n) * d
		if cause == aSlot {
			to.hold(w, float64(n)*d)
		}
	})
}

// lacksAdapter reports whether requests wait for their adapter.
func lacksAdapter(why int) bool {
	return why == waits.Slots || why == waits.Loads || why == waits.HostMemory
}

// room reports whether a worker other than w would begin a request of an adapter at its next step.
func room(v *router.View, w *router.Worker, a int32) bool {
	for i := range v.Workers {
		o := &v.Workers[i]
		if o != w && o.Usable() && o.Queued == 0 && !o.Full && o.Running < o.MaxRunning &&
			(o.Adapter(a).Running > 0 || a == trace.BaseModel || o.ActiveLoras < o.Slots) {
			return true
		}
	}
	return false
}

// hold divides a waiting time among the adapters that run on the worker.
func (a *waited) hold(w *router.Worker, s float64) {
	if w.ActiveLoras == 0 {
		return
	}
	if a.holders == nil {
		a.holders = map[int32]float64{}
	}
	for _, f := range w.InFlight() {
		if f.Running > 0 {
			a.holders[f.Adapter] += s / float64(w.ActiveLoras)
		}
	}
}

// A Holder is an adapter that ran in the slots while requests of another waited for one.
type Holder struct {
	Adapter string  `json:"adapter"`
	Share   float64 `json:"share"` // of the time of all slots meanwhile
	index   int32
}

// mostHolders is the number of holders that an adapter lists.
const mostHolders = 3

// holding lists the adapters that held the slots longest.
func (a *waited) holding(names func(int32) string) (list []Holder) {
	sum := 0.0
	for _, k := range slices.Sorted(maps.Keys(a.holders)) {
		sum += a.holders[k]
	}
	for _, k := range slices.Sorted(maps.Keys(a.holders)) {
		list = append(list, Holder{names(k), a.holders[k] / sum, k})
	}
	slices.SortStableFunc(list, func(x, y Holder) int { return cmp.Compare(y.Share, x.Share) })
	return list[:min(len(list), mostHolders)]
}
