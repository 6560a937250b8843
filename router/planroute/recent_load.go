package planroute

import (
	"math"

	"lorasim/router"
)

// recentLoad is how much of a worker's time lately sent requests take up, a decaying sum.
//
// A worker that is busy for a share u of its time passes a delay on: those who stay longer meet more of what comes
// later. With processor sharing a request more then costs 1/(1-u) times what it costs those present, by the value
// function of an M/M/1 queue (Krishnan, 1990, "Joining the right queue: a state-dependent decision rule").
type recentLoad struct {
	seconds float64 // of work
	at      float64 // s: when the sum was right
}

const (
	loadMemory = 10.0 // s after which the work of a worker counts 1/e
	mostLoad   = 0.9  // share of the time; beyond it the law has no meaning
)

// share is the part of the time that is taken up now, at most mostLoad. Work counts 1/e after memory seconds.
func (l *recentLoad) share(now, memory float64) float64 {
	if l.seconds == 0 {
		return 0
	}
	return min(l.seconds*math.Exp((l.at-now)/memory)/memory, mostLoad)
}

// add adds seconds of work.
func (l *recentLoad) add(seconds, now, memory float64) {
	l.seconds, l.at = l.seconds*math.Exp((l.at-now)/memory)+seconds, now
}

// unequal says whether what comes later counts: where workers of several kinds keep prefixes. Among equal workers
// prices balance the loads, and the factor is much the same everywhere. Without prefix caches it gained mean E2E and
// lost P99 TTFT (lab/docs/migration.md).
func (p *planAndRoute) unequal() bool { return p.index != nil && len(p.bounds.costs) > 1 }

// later is by how much more a request's decoding and the delay of others count on a worker, for what comes later: 1
// where it does not.
func (p *planAndRoute) later(j int, now float64) float64 {
	if !p.unequal() {
		return 1
	}
	return 1 / (1 - p.backlogs[j].recent.share(now, loadMemory))
}

// work is how much of a worker's time a request takes up: its prefill, and by how much it makes decode steps longer, s.
func (p *planAndRoute) work(r *router.Request, j int, v *router.View) float64 {
	w, cost := &v.Workers[j], p.Env().Workers[j].Cost
	n := p.backlogs[j].next(w, &p.workers[j], v.Now)
	_, prefill := n.prompt(p.uncached(r, j, v), cost)
	running, limit := min(w.Running, w.MaxRunning), max(w.MaxRunning, 1)
	adapters, one := batchAdapters(w, r.Adapter, w.Adapter(r.Adapter))
	kv := p.kvUsed(j, v)
	with := cost.DecodeStep(min(running+1, limit), adapters+one, kv+int64(r.Prompt), w.MaxRank)
	without := cost.DecodeStep(max(running, 1), adapters, kv, w.MaxRank)
	return prefill + r.ExpectedOutput()*max(with-without, 0)
}
