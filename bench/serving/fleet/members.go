package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	"lorasim/internal/format"
	"lorasim/router"
)

// Errors of [Fleet.Add] and [Fleet.Remove].
var (
	// errFixed means that workers cannot join or leave, because Config.Extend is nil.
	errFixed = errors.New("the set of workers is fixed")
	// ErrMember means that the worker is in the fleet already.
	ErrMember = errors.New("is a worker already")
	// ErrLeft means that the worker was removed. It is also the cause with which [Fleet.Remove] cuts requests.
	ErrLeft = errors.New("the worker was removed")
)

// maxJoins is the largest number of slots that a fleet adds to those it starts with.
const maxJoins = 1024

// membership lets workers join and leave while requests run.
//
// A worker has a slot, which is its index for policies. A worker that leaves drains first: it keeps its slot until the
// last of its requests has ended. For policies, a slot without a worker is a worker that is down. The next worker that
// joins takes the first such slot, or else a new one. At each join a new router is made for the present workers. It
// learns from the latest requests.
type membership struct {
	cfg     *Config
	tasks   *tasks
	table   *table
	catalog *catalog
	journal *journal
	prober  *prober
	probes  sync.WaitGroup

	// guarded by the lock of the table
	running       context.Context // of Fleet.Run; nil: it does not run
	joins, leaves int64           // see Stats
}

// Add adds a worker to the fleet and returns its index. The host is a URL as [ParseURL] accepts it. A worker that does
// not answer becomes a member, too; it is down until a probe succeeds. If the worker is leaving, Add cancels its
// removal.
func (f *Fleet) Add(ctx context.Context, host string) (int, error) {
	m := f.members
	host, err := ParseURL(host)
	if err != nil {
		return 0, err
	}
	if f.cfg.Extend == nil {
		return 0, errFixed
	}
	if w, stays, err := m.present(host); err != nil || stays {
		return w, err
	}
	in, _ := m.ask(ctx, host) // unknown fields are read again when the worker is identified
	k, err := m.enter(host, in)
	if err != nil {
		return 0, err
	}
	err = f.guard(k.index, func() (err error) {
		if k, err = m.prober.identify(ctx, k); err != nil {
			return err
		}
		return m.prober.equip(ctx, k)
	})
	if err != nil {
		f.cfg.Log("%s: %v", k.name, err)
	}
	m.probe(k)
	return k.index, nil
}

// present returns the worker with a URL. If the worker is about to leave, it stays.
func (m *membership) present(host string) (w int, stays bool, err error) {
	defer m.table.lock()()
	k := m.table.byURL(host)
	switch {
	case k == nil:
		return 0, false, nil
	case !k.leaving:
		return 0, false, fmt.Errorf("%s %w: number %d", host, ErrMember, k.index)
	}
	k.leaving, k.drained = false, false
	k.drain()
	k.changed.notify()
	m.journal.add(EventMember, "", "no longer leaves", k.index)
	m.cfg.Log("%s no longer leaves", k.name)
	return k.index, true, nil
}

// byURL returns the worker with a URL, or nil. Called with mu held.
func (t *table) byURL(host string) *worker {
	i := slices.IndexFunc(t.workers, func(k *worker) bool { return !k.gone && k.url == host })
	if i < 0 {
		return nil
	}
	return t.workers[i]
}

// ask reads the information of a worker that is about to join.
func (m *membership) ask(ctx context.Context, host string) (in Info, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.Timeout)
	defer cancel()
	err = m.table.guard(-1, func() (err error) {
		in, err = newEngine(&m.cfg.Connection, host).discover(ctx)
		return err
	})
	return in, err
}

// enter gives a worker a slot and makes a new router.
func (m *membership) enter(host string, in Info) (*worker, error) {
	defer m.table.lock()()
	if k := m.table.byURL(host); k != nil { // it has joined meanwhile
		return nil, fmt.Errorf("%s %w: number %d", host, ErrMember, k.index)
	}
	slot := slices.IndexFunc(m.table.workers, func(k *worker) bool { return k.gone })
	if slot < 0 {
		slot = len(m.table.workers)
	}
	if slot == cap(m.table.view.Workers) {
		return nil, fmt.Errorf("no more than %d workers can be members", slot)
	}
	infos := append(m.table.infos(), Info{})[:max(slot+1, len(m.table.workers))]
	infos[slot] = in
	rt, limits, err := m.cfg.Extend(infos, m.catalog.list())
	if err != nil {
		return nil, err
	}
	if slot == len(m.table.workers) {
		m.table.view.Workers, m.table.workers = m.table.view.Workers[:slot+1], append(m.table.workers, nil)
	}
	k := m.table.seat(slot, host, rt, limits)
	m.joins++
	m.journal.add(EventMember, "", host+" joins", slot)
	m.cfg.Log("%s joins", k.name)
	return k, nil
}

// seat puts a new worker into a slot, and makes rt the router. The slot is free, or the next one. Called with mu held.
func (t *table) seat(slot int, host string, rt *router.Router, limits []Limits) *worker {
	t.view.Workers[slot] = router.Worker{}
	k := newWorker(t.cfg, host, slot, &t.view.Workers[slot])
	t.processes++
	k.id = t.processes
	if limits != nil {
		k.setLimits(limits[slot])
	}
	all := t.catalog.list()
	k.loras.grow(len(all))
	if was := t.workers[slot]; was != nil {
		k.loras.counts = was.loras.counts
	}
	t.workers[slot] = k
	t.replace(rt, all, slot, t.cfg.Staleness)
	return k
}

// vacate ends a worker and frees its slot. Requests that wait for an adapter there fail with the error. Called with mu
// held.
func (t *table) vacate(k *worker, err error) {
	k.gone, k.cause, k.health.known = true, err, false
	k.loras.clear()
	t.versions.down(k)
	k.places.clear(err)
	k.detach()
	k.changed.notify()
}

// renew gives the slot of a worker to the process that answers at its URL now. All that was learned of the former one
// ends with it: what it holds, its load and limits, the requests booked there, what the policy knows of the slot. Only
// the record of failures stays with a process of the same engine and base model. Without Config.Extend there is no
// router for another worker: the process must be of the same engine and base model then. Called with mu held.
func (t *table) renew(k *worker, in Info, why string) (*worker, error) {
	was := &k.health.info
	same := was.API == in.API && was.Model == in.Model
	if t.cfg.Extend == nil {
		if !same {
			return nil, fmt.Errorf("%s: %w: %s, expected %s", k.name, ErrChanged, in.title(), was.title())
		}
		k.loras.clear()
		t.versions.down(k)
		k.places.clear(ErrChanged)
		t.processes++
		k.id = t.processes
		if t.cfg.Limits != nil {
			k.setLimits(t.cfg.Limits[k.index])
		}
		return k, nil
	}
	infos := t.infos()
	infos[k.index] = in
	rt, limits, err := t.cfg.Extend(infos, t.catalog.list())
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s: %w", k.name, ErrChanged, in.title(), err)
	}
	t.journal.add(EventChanged, "", fmt.Sprintf("another process: %s (%s)", in.title(), why), k.index)
	t.cfg.Log("%s is another process now: %s (%s)", k.name, in.title(), why)
	t.vacate(k, ErrChanged)
	n := t.seat(k.index, k.url, rt, limits)
	n.leaving, n.drained, n.unprobe, n.doubted = k.leaving, k.drained, k.unprobe, k.doubted
	n.drain()
	n.out.inherit(&k.out, same)
	k.heir, n.former = n, k
	t.changes++
	if t.cfg.Client != nil {
		t.cfg.Client.CloseIdleConnections() // some may lead to the former process
	}
	return n, nil
}

// present returns the worker that has the place of k now: k, or its latest heir.
func (t *table) present(k *worker) *worker {
	defer t.lock()()
	for k.heir != nil {
		k = k.heir
	}
	return k
}

// left reports whether a worker is gone.
func (t *table) left(k *worker) bool {
	defer t.lock()()
	return k.gone
}

// infos returns the information that the workers have reported, by slot. Called with mu held.
func (t *table) infos() []Info {
	list := make([]Info, len(t.workers))
	for i, k := range t.workers {
		list[i] = k.health.info
	}
	return list
}

// run probes the workers, including those that join, until ctx ends.
func (m *membership) run(ctx context.Context) {
	m.table.mu.Lock()
	m.running = ctx
	workers := slices.Clone(m.table.workers)
	m.table.mu.Unlock()
	for _, k := range workers {
		m.probe(k)
	}
	<-ctx.Done()
	m.table.mu.Lock()
	m.running = nil
	m.table.mu.Unlock()
	m.probes.Wait()
}

// probe starts the probes of a worker, if the fleet runs.
func (m *membership) probe(k *worker) {
	defer m.table.lock()()
	if m.running == nil || k.gone || k.unprobe != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.running)
	k.unprobe = cancel
	m.probes.Go(func() {
		defer cancel()
		m.prober.run(ctx, k)
	})
}

// Remove removes a worker from the fleet. The worker gets no new requests and leaves when its last request has ended.
// If now is true, its requests are cut; those without a byte of a reply go to other workers.
func (f *Fleet) Remove(w int, now bool) error {
	m := f.members
	if f.cfg.Extend == nil {
		return errFixed
	}
	var cut []*Request
	defer func() {
		for _, r := range cut {
			r.Owner.Cut(w, ErrLeft)
		}
	}()
	defer f.lock()()
	if err := f.checkIndex(w); err != nil {
		return err
	}
	k := f.workers[w]
	for _, r := range k.books.requests {
		if now && r.Owner != nil {
			cut = append(cut, r)
		}
	}
	if k.leaving {
		return nil
	}
	k.leaving = true
	k.drain()
	inFlight := format.Count(len(k.books.requests), "request")
	m.journal.add(EventMember, "", k.url+" is leaving; in flight: "+inFlight, k.index)
	m.cfg.Log("%s is leaving: %d requests in flight", k.name, len(k.books.requests))
	m.tasks.Go(func() { m.leave(k) })
	return nil
}

// leave waits until a worker has no request, and frees its slot.
func (m *membership) leave(k *worker) {
	defer m.table.lock()()
	for len(k.books.requests) > 0 && k.leaving && !k.gone {
		if m.table.await(m.tasks.ctx, k.changed.ch) != nil {
			return
		}
	}
	if k.heir != nil { // its requests have ended with it, or end without the slot
		m.tasks.Go(func() { m.leave(k.heir) })
		return
	}
	if !k.leaving || k.gone {
		return
	}
	if k.unprobe != nil {
		k.unprobe()
	}
	m.table.vacate(k, ErrLeft)
	m.table.mix()
	m.leaves++
	m.table.changes++
	m.journal.add(EventMember, "", k.url+" has left", k.index)
	m.cfg.Log("%s has left", k.name)
}

// Find returns the index of the worker with a URL in the form that [ParseURL] returns, or -1 if there is none.
func (f *Fleet) Find(host string) int {
	defer f.lock()()
	if k := f.byURL(host); k != nil {
		return k.index
	}
	return -1
}

// URL returns the base URL of worker w. The index w stays with the same worker as long as a request is booked there.
func (f *Fleet) URL(w int) string { return f.at(w).url }

// Address returns the address of worker w, HOST:PORT.
func (f *Fleet) Address(w int) string { return addressOf(f.URL(w)) }

// Base returns the base URL of worker w in parsed form. The caller must not modify it.
func (f *Fleet) Base(w int) *url.URL { return f.at(w).base }

// Changes returns the number of changes of the set of workers so far.
func (f *Fleet) Changes() int64 {
	defer f.lock()()
	return f.changes
}
