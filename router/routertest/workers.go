package routertest

import (
	"math"
	"slices"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/trace"
)

// HandCost is easy to add up by hand: a decode step takes 1 s for each request and 1 ms for each KV token,
// a prefill 10 ms for each token, an adapter 1 s for each rank, a byte 1 s.
type HandCost struct{}

func (HandCost) DecodeStep(running, _ int, kvTokens int64, _ int) float64 {
	return float64(running) + float64(kvTokens)/1000
}

func (HandCost) Prefill(tokens int64) float64 { return float64(tokens) / 100 }

func (HandCost) AdapterLoad(rank int, _ router.Tier) float64 { return float64(rank) }

func (HandCost) Copy(bytes float64) float64 { return bytes }

// HandEnv is an environment of workers with the costs of [HandCost].
func HandEnv(workers, adapters int) router.Env {
	return router.Env{Workers: router.Alike(workers, router.Spec{MaxRunning: 4, Slots: 2, Cost: HandCost{}, KVBytes: 3,
		PageSize: 16}),
		Adapters: trace.Names(adapters, []int{8})}
}

// Env is an environment of alike workers with few slots.
func Env(workers, adapters int) router.Env {
	return router.Env{
		Workers:  router.Alike(workers, router.Spec{MaxRunning: 8, Slots: 2, Cost: Cost{}}),
		Adapters: trace.Names(adapters, []int{8, 16, 32, 64}),
		Seed:     1,
	}
}

// Cost is a worker with round numbers, in seconds.
type Cost struct{}

func (Cost) DecodeStep(running, _ int, kvTokens int64, maxRank int) float64 {
	lora := 0.0001 * math.Sqrt(float64(running*maxRank))
	return 0.015 + 0.0001*float64(running) + 0.000001*float64(kvTokens) + lora
}

func (Cost) Prefill(tokens int64) float64 {
	chunks := (tokens + 2047) / 2048
	return 0.01*float64(chunks) + 0.0001*float64(tokens)
}

func (Cost) AdapterLoad(rank int, from router.Tier) float64 { return 0.01 * float64(rank) }

func (Cost) Copy(bytes float64) float64 { return bytes / 1e10 }

// Slower is a worker that takes a multiple of the time of [Cost] for everything.
type Slower float64

func (s Slower) DecodeStep(running, adapters int, kvTokens int64, maxRank int) float64 {
	return float64(s) * Cost{}.DecodeStep(running, adapters, kvTokens, maxRank)
}

func (s Slower) Prefill(tokens int64) float64 { return float64(s) * Cost{}.Prefill(tokens) }

func (s Slower) AdapterLoad(rank int, from router.Tier) float64 {
	return float64(s) * Cost{}.AdapterLoad(rank, from)
}

func (s Slower) Copy(bytes float64) float64 { return float64(s) * Cost{}.Copy(bytes) }

// View returns idle workers.
func View(env router.Env) *router.View {
	v := &router.View{Adapters: env.Adapters, Workers: make([]router.Worker, len(env.Workers))}
	for i := range v.Workers {
		v.Workers[i] = router.Worker{
			Up:         true,
			MaxRunning: env.Workers[i].MaxRunning,
			KVCapacity: 10000,
			Slots:      env.Workers[i].Slots,
			Adapters:   make([]router.AdapterState, len(env.Adapters)),
		}
	}
	return v
}

// SetRunning gives workers running requests; -1 takes a worker down.
func SetRunning(v *router.View, running ...int) {
	for i, n := range running {
		v.Workers[i].Up = n >= 0
		v.Workers[i].Running = max(n, 0)
	}
}

// DrawWorkers gives every worker an arbitrary state, consistent or not.
func DrawWorkers(t *rapid.T, v *router.View) {
	small := rapid.IntRange(0, 20)
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Up = rapid.IntRange(0, 3).Draw(t, "up") > 0
		w.Draining = rapid.IntRange(0, 5).Draw(t, "draining") == 0
		w.Running, w.Queued = small.Draw(t, "running"), small.Draw(t, "queued")
		w.Tokens = rapid.Int64Range(0, 1<<40).Draw(t, "tokens")
		w.QueuedToks = rapid.Int64Range(0, 5000).Draw(t, "queued tokens")
		w.MaxRank = rapid.SampledFrom([]int{0, 8, 64}).Draw(t, "rank")
		w.KVUsed = rapid.Int64Range(0, w.KVCapacity).Draw(t, "kv")
		w.SlotsUsed = rapid.IntRange(0, w.Slots).Draw(t, "slots")
		w.SlotsIdle = rapid.IntRange(0, w.SlotsUsed).Draw(t, "idle slots")
		w.ActiveLoras, w.WaitingLoras, w.FlightLoras = 0, 0, 0
		for a := range w.Adapters {
			w.Adapters[a] = router.AdapterState{
				Tier:    router.Tier(rapid.IntRange(0, 3).Draw(t, "tier")),
				Loading: rapid.Bool().Draw(t, "loading"),
			}
			w.Count(int32(a), int32(rapid.IntRange(0, 2).Draw(t, "adapter running")),
				int32(rapid.IntRange(0, 2).Draw(t, "adapter queued")))
		}
	}
}

// BusyView is a cluster in the middle of a run: differing loads, two adapters
// in the slots of each worker.
func BusyView(env router.Env) *router.View {
	v := View(env)
	rng := router.Env.Rand(router.Env{Seed: 9})
	for i := range v.Workers {
		w := &v.Workers[i]
		w.Running, w.Queued = rng.IntN(8), rng.IntN(4)
		w.Tokens, w.QueuedToks, w.KVUsed = rng.Int64N(1e5), rng.Int64N(4000), rng.Int64N(9000)
		w.MaxRank, w.SlotsUsed = 8<<rng.IntN(4), 2
		for range w.Slots {
			w.Adapters[rng.IntN(len(w.Adapters))].Tier = router.GPU
		}
		router.NewBooks(w, i, nil) // as in runs: the list of adapters with requests is kept
	}
	return v
}

// Unequal is a cluster of a fast worker with many places and a slow one with few.
func Unequal(adapters int) router.Env {
	return router.Env{Adapters: trace.Names(adapters, []int{8, 16, 32, 64}), Seed: 1, Moving: router.MoveRecompute,
		Workers: []router.Spec{
			{MaxRunning: 32, Slots: 4, HostSlots: 8, Memory: 40e9, KVBytes: 1e5, PageSize: 16, Cost: Slower(1)},
			{MaxRunning: 8, Slots: 2, HostSlots: 4, Memory: 10e9, KVBytes: 1e5, PageSize: 16, Cost: Slower(3)},
		}}
}

// Mirror is the same list with the workers in the other order.
func Mirror[T any](list []T) []T {
	list = slices.Clone(list)
	slices.Reverse(list)
	return list
}

// CloneView returns a deep copy of the workers of a view.
func CloneView(v *router.View) *router.View {
	c := *v
	c.Workers = append([]router.Worker(nil), v.Workers...)
	for i := range c.Workers {
		c.Workers[i].Detach(nil)
	}
	return &c
}
