package fleet

import "cmp"

// setLimits sets the limits that a worker reports, except where the user has stated other ones. It logs a
// contradiction once. Called with mu held.
func (t *table) setLimits(k *worker, l Limits) {
	s, v := &t.cfg.Stated, k.view
	setLimit(t, k, "limit of running requests", l.MaxRunning, s.MaxRunning, &v.MaxRunning)
	setLimit(t, k, "adapter slots", l.Slots, s.Slots, &v.Slots)
	setLimit(t, k, "limit of loaded adapters", l.MaxLoaded, s.MaxLoaded, &v.HostSlots)
	setLimit(t, k, "KV tokens", l.KVCapacity, s.KVCapacity, &v.KVCapacity)
}

// learnLimit raises the assumed number of requests that a worker runs at a time when the worker runs more. vLLM does
// not report --max-num-seqs. Called with mu held.
func (t *table) learnLimit(k *worker, l load) {
	if t.cfg.Stated.MaxRunning > 0 || k.health.info.MaxRunning > 0 || l.MaxRunning > 0 || k.view.MaxRunning == 0 ||
		l.Running <= k.view.MaxRunning {
		return
	}
	if k.health.first("learned") {
		t.cfg.Log("%s runs %d requests; %d were assumed", k.name, l.Running, k.view.MaxRunning)
	}
	k.view.MaxRunning = l.Running
}

func setLimit[T int | int64](t *table, k *worker, what string, reported, stated T, to *T) {
	if reported > 0 && stated > 0 && reported != stated && k.health.first(what) {
		t.cfg.Log("%s reports %s: %d; the given value applies: %d", k.name, what, reported, stated)
	}
	if n := cmp.Or(stated, reported); n > 0 {
		*to = n
	}
}

// setReady notes whether a worker takes requests by its own account; nil: it does. Called with mu held.
func (t *table) setReady(k *worker, unready error) {
	if (unready != nil) == (k.health.unready != nil) {
		return
	}
	k.health.unready = unready
	k.drain()
	text := "takes new requests again"
	if unready != nil {
		text = "takes no new requests: " + unready.Error()
	}
	t.journal.add(EventDrain, "", text, k.index)
	t.cfg.Log("%s %s", k.name, text)
}
