package profile

import (
	"math"
	"sync/atomic"

	"lorasim/router"
)

// asked keeps answers of a [Model], since policies ask the same questions for every request. A decode step is kept
// without KV tokens, each of which adds the same time. All is filled at the first question; 0 is not known yet.
type asked struct {
	steps   atomic.Pointer[[maxKeptRank + 1]atomic.Pointer[stepsOfRank]]
	prompts atomic.Pointer[[maxKeptPrompt]atomic.Uint64] // bits of the time, s, by tokens
	// Bits of the time, s, to load an adapter, by tier and rank.
	loads [router.GPU + 1]atomic.Pointer[[maxKeptRank + 1]atomic.Uint64]
}

// stepsOfRank has the steps of a largest rank, by running requests and adapters. There are at most as many adapters as
// requests.
type stepsOfRank [maxKeptBatch + 1]atomic.Pointer[[]atomic.Int64]

// The largest questions whose answers are kept.
const (
	maxKeptRank   = 256
	maxKeptBatch  = 512
	maxKeptPrompt = 8192 // tokens, excluded
)

// step returns the place of the answer for a decode step, in ticks; nil: it is not kept.
func (k *asked) step(running int, adapters int64, rank int) *atomic.Int64 {
	if uint(running) > maxKeptBatch || uint64(adapters) > uint64(running) || rank > maxKeptRank {
		return nil
	}
	of := &filled(&k.steps)[max(rank, 0)]
	row := &filled(of)[running]
	list := row.Load()
	if list == nil {
		made := make([]atomic.Int64, running+1)
		row.CompareAndSwap(nil, &made)
		list = row.Load()
	}
	return &(*list)[adapters]
}

// filled returns what a pointer points to, a zero value at first.
func filled[T any](p *atomic.Pointer[T]) *T {
	if of := p.Load(); of != nil {
		return of
	}
	p.CompareAndSwap(nil, new(T))
	return p.Load()
}

// prompt is [Costs.prompt].
func (k *asked) prompt(c *Costs, tokens int64) float64 {
	if uint64(tokens) >= maxKeptPrompt {
		return c.prompt(tokens)
	}
	all := filled(&k.prompts)
	if bits := all[tokens].Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	t := c.prompt(tokens)
	all[tokens].Store(math.Float64bits(t))
	return t
}

// load is [Costs.Load] in seconds.
func (k *asked) load(c *Costs, rank int, from router.Tier) float64 {
	if uint(rank) > maxKeptRank || from > router.GPU {
		return c.Load(rank, from).Seconds()
	}
	kept := &filled(&k.loads[from])[rank]
	if bits := kept.Load(); bits != 0 {
		return math.Float64frombits(bits)
	}
	t := c.Load(rank, from).Seconds()
	kept.Store(math.Float64bits(t))
	return t
}
