package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// failureThreshold is the number of probes in a row that must fail before a worker
// that does not refuse connections counts as down.
const failureThreshold = 2

// prober registers and probes workers.
type prober struct {
	cfg       *Config
	table     *table
	journal   *journal
	discovery *discovery
	loras     *LoRAManager
	hangs     *hangDetector
}

// run probes a worker until ctx ends.
func (p *prober) run(ctx context.Context, k *worker) {
	for range Ticks(ctx, p.cfg.Poll) {
		p.table.guard(k.index, func() error { p.probe(ctx, k); return nil })
	}
}

// register reads a worker's information and adapters, and loads the adapters that the worker lacks. The worker is up
// then.
func (p *prober) register(ctx context.Context, k *worker) error {
	if err := p.identify(ctx, k); err != nil {
		return err
	}
	return p.equip(ctx, k)
}

// identify reads a worker's information and adapters.
func (p *prober) identify(ctx context.Context, k *worker) error {
	ask, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	in, err := k.discover(ask)
	if err != nil {
		return err
	}
	listed, err := k.models(ask)
	if err != nil && !errors.Is(err, errTooLong) {
		return err
	}
	return p.identified(k, in, listed, err)
}

// identified enters the information of a worker.
func (p *prober) identified(k *worker, in Info, listed []model, unlisted error) error {
	defer p.table.lock()()
	if err := p.table.otherBase(k, in.Model); err != nil {
		return err
	}
	p.discovery.unread(k, unlisted)
	k.health.known, k.health.failed, k.health.info = true, 0, in
	k.loras.most = in.MaxLoaded
	p.setLimits(k, in.Limits)
	k.loras.version++
	p.table.mix()
	p.discovery.enter(k, listed)
	return nil
}

// equip loads the adapters that a worker lacks. The worker is up then.
func (p *prober) equip(ctx context.Context, k *worker) error {
	p.table.mu.Lock()
	missing, placed := p.missing(k), p.table.router.Placement != nil // placed: the router wants them there
	p.table.mu.Unlock()
	for _, a := range missing {
		if err := p.loras.ensure(ctx, k, a, 0, Wait{}); err != nil {
			if !placed {
				break // the slots are full; further adapters are loaded on demand
			}
			p.cfg.Log("%s: %v", k.name, err)
		}
	}
	defer p.table.lock()()
	if k.gone {
		return ErrLeft
	}
	if !k.view.Up {
		p.journal.add(EventUp, "", "answers, and takes requests", k.index)
	}
	k.view.Up = true
	k.out.afterDown()
	return nil
}

// missing returns the adapters that a worker must hold at the start and does not hold. Called with mu held.
func (p *prober) missing(k *worker) (list []int32) {
	if k.health.info.RunTime == Off {
		return nil
	}
	rows := k.loras.rows
	if place := p.table.router.Placement; place != nil {
		return slices.DeleteFunc(slices.Clone(place[k.index]),
			func(a int32) bool { return rows[a].held || p.table.fits(k, a) != nil })
	}
	room := len(rows)
	if n := k.view.HostSlots; n > 0 {
		room = n - len(k.loras.held)
	}
	for a, s := range rows {
		if len(list) < room && !s.held && p.table.fits(k, int32(a)) == nil {
			list = append(list, int32(a))
		}
	}
	return list
}

// setLimits sets the limits that a worker reports, except where the user has stated other ones. It logs a
// contradiction once. Called with mu held.
func (p *prober) setLimits(k *worker, l Limits) {
	s, v := &p.cfg.Stated, k.view
	setLimit(p, k, "limit of running requests", l.MaxRunning, s.MaxRunning, &v.MaxRunning)
	setLimit(p, k, "adapter slots", l.Slots, s.Slots, &v.Slots)
	setLimit(p, k, "limit of loaded adapters", l.MaxLoaded, s.MaxLoaded, &v.HostSlots)
	setLimit(p, k, "KV tokens", l.KVCapacity, s.KVCapacity, &v.KVCapacity)
}

// learnLimit raises the assumed number of requests that a worker runs at a time when the worker runs more. vLLM does
// not report --max-num-seqs. Called with mu held.
func (p *prober) learnLimit(k *worker, l load) {
	if p.cfg.Stated.MaxRunning > 0 || k.health.info.MaxRunning > 0 || l.MaxRunning > 0 || k.view.MaxRunning == 0 ||
		l.Running <= k.view.MaxRunning {
		return
	}
	if k.health.first("learned") {
		p.cfg.Log("%s runs %d requests; %d were assumed", k.name, l.Running, k.view.MaxRunning)
	}
	k.view.MaxRunning = l.Running
}

func setLimit[T int | int64](p *prober, k *worker, what string, reported, stated T, to *T) {
	if reported > 0 && stated > 0 && reported != stated && k.health.first(what) {
		p.cfg.Log("%s reports %s: %d; the given value applies: %d", k.name, what, reported, stated)
	}
	if n := cmp.Or(stated, reported); n > 0 {
		*to = n
	}
}

// probe reads a worker's load and the list of its adapters. It registers a worker again that was down.
func (p *prober) probe(ctx context.Context, k *worker) {
	p.table.mu.Lock()
	known, own := k.health.known, len(k.books.requests)
	p.table.mu.Unlock()
	if !known {
		err := p.register(ctx, k)
		if err == nil {
			p.cfg.Log("%s is up", k.name)
		} else if errors.Is(err, errOtherBase) {
			p.logOnce(k, err)
		}
		p.hangs.probed(ctx, k, err)
		return
	}
	probe, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	l, err := k.load(probe)
	if ctx.Err() != nil {
		return
	}
	p.probed(k, l, own, err)
	p.hangs.probed(ctx, k, err)
	if err == nil {
		p.discovery.relist(probe, k)
	}
}

// logOnce logs an error that is likely to recur at the next probe.
func (p *prober) logOnce(k *worker, err error) {
	defer p.table.lock()()
	if k.health.first(err.Error()) {
		p.cfg.Log("%v", err)
	}
}

// probed enters the result of a probe; own is the number of the fleet's requests before it.
func (p *prober) probed(k *worker, l load, own int, err error) {
	defer p.table.lock()()
	h := &k.health
	if err == nil {
		h.failed, h.said = 0, l
		if k.view.Report = l.report; l.report != nil {
			l.report.At = p.cfg.Now()
		}
		p.setLimits(k, l.Limits)
		p.learnLimit(k, l)
		k.books.setOthers(l, max(own, len(k.books.requests)), p.cfg.Now())
	} else if h.failed++; h.failed >= failureThreshold || !errors.Is(err, context.DeadlineExceeded) {
		p.table.down(k, err)
	}
}
