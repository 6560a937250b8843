package fleet

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"lorasim/internal/guard"
)

// failureThreshold is the number of probes in a row that must fail before a worker
// that does not refuse connections counts as down.
const failureThreshold = 2

// prober registers and probes workers.
type prober struct {
	cfg       *Config
	tasks     *tasks
	table     *table
	discovery *discovery
	loras     *LoRAManager
	hangs     *hangDetector
}

// run probes a worker, and those that take its place, until ctx ends: at every interval, and when a reply casts doubt
// on the worker.
func (p *prober) run(ctx context.Context, k *worker) {
	tick := time.NewTicker(p.cfg.Poll)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.doubted:
			pause(ctx, p.cfg.Poll/10) // one probe for many doubts
		case <-tick.C:
		}
		k = p.table.present(k)
		p.table.guard(k.index, func() error { p.probe(ctx, k); return nil })
	}
}

// identify reads the information and the adapters of a worker that is not known. The worker is up then. It may be
// another one, which takes the place of k: identify returns it.
func (p *prober) identify(ctx context.Context, k *worker) (*worker, error) {
	ask, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	in, err := k.engine.again().discover(ask)
	if err != nil {
		return k, err
	}
	listed, err := k.models(ask)
	if err != nil && !errors.Is(err, errTooLong) {
		return k, err
	}
	return p.discovery.identified(k, in, listed, err, k.ready(ask))
}

// equip loads the adapters that a worker lacks.
func (p *prober) equip(ctx context.Context, k *worker) error {
	p.table.mu.Lock()
	missing, placed := p.missing(k), p.table.router.Placement != nil // placed: the router wants them there
	k.equipping = len(missing)
	p.table.mu.Unlock()
	for i, a := range missing {
		p.equipping(k, len(missing)-i)
		if err := p.loras.ensure(ctx, k, a, 0, Wait{}); err != nil {
			if !placed {
				break // the slots are full; further adapters are loaded on demand
			}
			p.cfg.Log("%s: %v", k.name, err)
		}
	}
	p.equipping(k, 0)
	return ctx.Err()
}

// equipping notes how many adapters a worker still lacks at its start.
func (p *prober) equipping(k *worker, n int) {
	defer p.table.lock()()
	k.equipping = n
}

// equipLater is equip beside the requests.
func (p *prober) equipLater(k *worker) {
	p.tasks.Go(func() { p.table.guard(k.index, func() error { return p.equip(p.tasks.ctx, k) }) })
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

// probe reads a worker's load, health and identity. It registers a worker again that was down.
func (p *prober) probe(ctx context.Context, k *worker) {
	p.table.mu.Lock()
	known, own := k.health.known, len(k.books.requests)
	p.table.mu.Unlock()
	if !known {
		k, err := p.identify(ctx, k)
		if err == nil {
			p.cfg.Log("%s is up", k.name)
			p.equipLater(k)
		} else if errors.Is(err, ErrChanged) {
			p.logOnce(k, err)
		}
		p.hangs.probed(ctx, k, err)
		return
	}
	probe, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	var unready error
	var health sync.WaitGroup
	health.Go(func() { guard.Do(func() error { unready = k.ready(probe); return nil }) })
	l, err := k.load(probe)
	if isStatus(err, http.StatusNotFound) { // perhaps another engine
		if p.discovery.ask(probe, k, true) == nil {
			k.forgetSignal()
			l, err = k.load(probe)
		}
	}
	health.Wait()
	if ctx.Err() != nil || p.table.left(k) {
		return
	}
	p.probed(k, l, own, err, unready)
	p.hangs.probed(ctx, k, err)
	if err == nil {
		p.discovery.ask(probe, k, p.restarted(k, l))
	}
}

// restarted reports whether a worker's metrics show another start of its process than before.
func (p *prober) restarted(k *worker, l load) bool {
	defer p.table.lock()()
	return k.health.info.other(&Info{Started: l.started}) != ""
}

// logOnce logs an error that is likely to recur at the next probe.
func (p *prober) logOnce(k *worker, err error) {
	defer p.table.lock()()
	if k.health.first(err.Error()) {
		p.cfg.Log("%v", err)
	}
}

// probed enters the result of a probe; own is the number of the fleet's requests before it. unready is why the worker
// takes no requests by its own account.
func (p *prober) probed(k *worker, l load, own int, err, unready error) {
	defer p.table.lock()()
	h := &k.health
	if err == nil {
		h.failed, h.said = 0, l
		if k.view.Report = l.report; l.report != nil {
			l.report.At = p.cfg.Now()
		}
		p.table.setLimits(k, l.Limits)
		p.table.learnLimit(k, l)
		if l.InSlots != nil {
			k.loras.resident(func(a int32) bool { return l.InSlots[p.table.versions.name(k, a)] })
		}
		p.table.setReady(k, unready)
		k.books.setOthers(l, max(own, len(k.books.requests)), p.cfg.Now())
	} else if h.failed++; h.failed >= failureThreshold || !errors.Is(err, context.DeadlineExceeded) {
		p.table.down(k, err)
	}
}
