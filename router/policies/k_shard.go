package policies

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"lorasim/router"
	"lorasim/router/choose"
	"lorasim/trace/settings"
)

// kShard serves each adapter on its shard: the first k usable workers of its
// order of highest random weight, of which each request takes the least loaded
// (of equals the first in that order). The adapter's k follows the load of the
// shard, its requests over its max running requests: above the high watermark
// k grows by one, below the low one it shrinks by one. Hysteresis comes from
// the gap between the watermarks and from two cooldowns, the least times since
// the adapter's last change. With low <= high/2 and workers of one size,
// shrinking alone never lifts the load of a shard above high. Requests of the
// base model, which fit anywhere, go to the least loaded worker, ties seeded.
//
// On late signals it herds within a shard, so the harm is bounded by k.
type kShard struct {
	router.Base
	min, max               int
	low, high              float64
	growEvery, shrinkEvery float64 // s
	workers                []router.Spec
	hrw                    *hrw
	shards                 []shard // by adapter
	base                   least
}

type shard struct {
	k       int
	changed float64 // s: when k last changed
}

type kShardOptions struct {
	K           int     `default:"1" check:">=1" help:"workers of an adapter at first and at least"`
	Max         int     `default:"0" check:">=0" help:"workers of an adapter at most; 0: all"`
	High        float64 `default:"1" check:">=0" help:"k grows above this load, in requests / max running requests"`
	Low         float64 `default:"0.5" check:">=0" help:"k shrinks below this load, < high"`
	GrowEvery   float64 `key:"grow-every" default:"1" check:">=0" help:"time between a change of k and an increase, s"`
	ShrinkEvery float64 `key:"shrink-every" default:"30" check:">=0" help:"time between a change of k and a decrease, s"`
}

// Build implements Builder.
func (o *kShardOptions) Build(env router.Env) (*router.Router, error) {
	for j := range env.Workers {
		if env.Workers[j].MaxRunning < 1 {
			return nil, errors.New("the limit of running requests per worker must be known")
		}
	}
	limit := cmp.Or(o.Max, len(env.Workers))
	err := cmp.Or(settings.Within("max", o.Max, fmt.Sprintf(">=0 <=%d", len(env.Workers))),
		settings.Within("k", o.K, fmt.Sprintf(">=1 <=%d", limit)))
	if err != nil {
		return nil, err
	}
	p := &kShard{
		min:         o.K,
		max:         limit,
		high:        o.High,
		low:         o.Low,
		growEvery:   o.GrowEvery,
		shrinkEvery: o.ShrinkEvery,
		workers:     env.Workers,
		hrw:         newHRW(env),
		shards:      make([]shard, len(env.Adapters)),
		base:        leastLoaded(env.Rand()),
	}
	if p.low >= p.high {
		return nil, fmt.Errorf("low: %g is not less than high (%g)", p.low, p.high)
	}
	for a := range p.shards {
		p.shards[a] = shard{p.min, math.Inf(-1)}
	}
	return &router.Router{Policy: p, Placement: p.hrw.placement(p.min)}, nil
}

// Route implements Policy.
func (p *kShard) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *kShard) pick(r router.Request, v *router.View) int {
	if r.Adapter < 0 {
		return p.base.pick(v, p.base.rng)
	}
	s := &p.shards[r.Adapter]
	worker, load := p.scan(v, r.Adapter, s.k)
	since := v.Now - s.changed
	switch {
	case load > p.high && s.k < p.max && since >= p.growEvery:
		s.k++
	case load < p.low && s.k > p.min && since >= p.shrinkEvery:
		s.k--
	default:
		return worker
	}
	s.changed = v.Now
	worker, _ = p.scan(v, r.Adapter, s.k)
	return worker
}

// scan returns the least loaded of the first k usable workers of an adapter, or
// None, and the load of them all.
func (p *kShard) scan(v *router.View, adapter int32, k int) (worker int, load float64) {
	t := choose.New(nil)
	requests, room := 0, 0
	for i := 0; i < len(v.Workers) && k > 0; i++ {
		n := p.hrw.at(adapter, i)
		w := &v.Workers[n]
		if !w.Usable() {
			continue
		}
		k--
		t.Offer(n, float64(w.Load()))
		requests += w.Load()
		if w.MaxRunning > 0 {
			room += w.MaxRunning
		} else {
			room += p.workers[n].MaxRunning
		}
	}
	if room > 0 {
		load = float64(requests) / float64(room)
	}
	return t.Worker, load
}
