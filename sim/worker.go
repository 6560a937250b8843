package sim

import (
	"slices"

	"lorasim/router"
	"lorasim/sim/engine"
	"lorasim/sim/engine/sglang"
	"lorasim/sim/engine/slora"
	"lorasim/sim/engine/vllm"
	"lorasim/sim/event"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/sim/tick"
	"lorasim/trace"
)

// worker is an engine in a cluster. It has a power state, may be down, and has a link to the other workers.
type worker struct {
	s      *sim
	id     int
	costs  *profile.Costs
	engine *engine.Engine
	v      *router.Worker // what routers see

	power       record.Power
	outages     int   // outages in progress; with one, the worker is down, whatever its power
	bare        bool  // begins without adapters
	requests    int   // there
	incarnation int64 // number of the latest start
	startedAt   tick.Ticks
	onTime      tick.Ticks // of earlier times on
	finished    int64      // requests that ended well there
	linkFree    tick.Ticks // when its link can carry the next KV cache
	failedAt    tick.Ticks // when it last failed
	resets      int64      // how often it has lost its memory; counted if there are pushes
}

func (w *worker) init(s *sim, id int, costs *profile.Costs) (err error) {
	w.s, w.id, w.costs, w.v, w.failedAt = s, id, costs, &s.view.Workers[id], -1
	c := engine.Config{
		ID: id, Costs: costs, Adapters: s.adapters, Versions: s.push.versions(), View: w.v, Index: s.view.Index,
		Observer: s.cfg.Observer,
		Hooks:    engine.Hooks{First: w.firstToken},
		Start:    w.start(), Whole: w.startsWhole(), Home: s.cfg.Home,
		Prefetch: s.cfg.Router.Prefetch, TokenTimes: s.cfg.TokenTimes,
		Fails: s.loadFails, Kind: kindOf(costs),
	}
	w.listen(&c.Hooks)
	if w.engine, err = engine.New(c, w, &s.loop); err != nil {
		return err
	}
	w.publish()
	return nil
}

// kindOf returns the kind of engine of a profile.
func kindOf(c *profile.Costs) engine.Kind {
	switch c.Profile().Engine.Scheduler {
	case profile.SchedulerVLLM:
		return vllm.Kind()
	case profile.SchedulerSLoRA:
		return slora.Kind()
	}
	return sglang.Kind()
}

// start returns the adapters that are in host memory at the start: those of [Config.Start] or of the placement if there
// is one, else all.
func (w *worker) start() []int32 {
	switch p, all := w.s.cfg.Router.Placement, w.s.cfg.Start; {
	case w.bare:
		return nil
	case w.id < len(all):
		return slices.Concat(all[w.id].Slots, all[w.id].Host)
	case p != nil:
		return p[w.id]
	}
	return w.s.all
}

// startsWhole reports whether start returns all adapters, and all of them fit into a GPU slot. It looks at the adapters
// once for each profile, not for each worker.
func (w *worker) startsWhole() bool {
	if w.bare || w.id < len(w.s.cfg.Start) || w.s.cfg.Router.Placement != nil || w.s.push != nil {
		return false
	}
	fits, known := w.s.allFit[w.costs]
	if !known {
		fits = !slices.ContainsFunc(w.s.adapters, func(a trace.Adapter) bool {
			return w.costs.Rank(a.Rank) > w.costs.Profile().Engine.MaxLoraRank
		})
		w.s.allFit[w.costs] = fits
	}
	return fits
}

// adapter returns the engine's entry of an adapter, in its current version.
func (w *worker) adapter(a int32) *engine.Adapter { return w.engine.Rows.Of(w.engine.Books.Current(a)) }

// firstToken tells the router of a request's first token.
func (w *worker) firstToken(r *engine.Request) {
	w.s.noteRequest(router.FirstToken, w.s.request(r), int32(w.id))
}

// send adds a request to the engine.
func (w *worker) send(r *request) {
	r.worker = int32(w.id)
	w.requests++
	if w.s.push != nil {
		w.s.push.send(w, r)
		return
	}
	w.engine.Add(&r.Request)
}

// left notes that a request has left the worker.
func (w *worker) left() {
	w.requests--
	if w.s.push != nil {
		w.s.push.left(w)
	}
	w.offWhenEmpty()
}

// Finished implements engine.Host.
func (w *worker) Finished(er *engine.Request, status record.Status, reason string, at tick.Ticks) {
	r := w.s.request(er)
	w.left()
	w.s.noteRequest(router.Left, r, int32(w.id))
	w.s.finish(r, status, reason, at)
}

// offWhenEmpty turns a draining worker off once it is empty. It is called when a request or a copy has left.
func (w *worker) offWhenEmpty() {
	if w.empty() {
		w.s.loop.At(w.s.loop.Now(), event.Off, func() {
			if w.empty() {
				w.setPower(record.Off)
			}
		})
	}
}

// empty reports whether a worker drains and has neither requests nor KV caches that are being copied elsewhere.
func (w *worker) empty() bool {
	return w.power == record.Draining && w.requests == 0 && w.engine.KV.Reserved() == 0
}

// publish updates the worker's state in the router's view. Routers see it at once, even if worker metrics are stale.
func (w *worker) publish() {
	w.v.Up = w.outages == 0 && (w.power == record.On || w.power == record.Draining)
	w.v.Draining = w.power != record.On
	w.engine.Books.Touch()
}

// reset brings the worker into its state at the start, except for its counts, outages and power. It returns the
// requests that it had. restart: the worker is a new process.
func (w *worker) reset(restart bool) (orphans []*engine.Request) {
	orphans = w.engine.Reset(restart, w.start())
	w.requests, w.linkFree, w.failedAt = 0, 0, -1
	if w.s.push != nil {
		w.s.push.restarted(w)
	}
	w.publish()
	return orphans
}

// stats counts what the worker did; end is the end of the run.
func (w *worker) stats(end tick.Ticks) WorkerStats {
	return WorkerStats{Requests: w.finished, Stats: w.engine.Stats, On: w.timeOn(end)}
}

// prefixes gives the router the prompt prefixes that workers cache at this instant.
type prefixes struct{ *sim }

// Match implements router.Prefixes.
func (s prefixes) Match(worker int, text *trace.Text, adapter, tokens int32) int32 {
	w := &s.workers[worker]
	if !w.v.Up {
		return 0
	}
	if adapter == trace.BaseModel {
		adapter = int32(len(s.adapters))
	} else {
		adapter = w.engine.Books.Current(adapter)
	}
	return w.engine.CachedPrefix(text, adapter, tokens)
}
