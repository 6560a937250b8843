package profile

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"lorasim/internal/tick"
)

// Laws: how the length of a step follows from what it computes.
const (
	LawPhases   = "phases"   // Decode, Prefill and the kernels of LoRA.Backend
	LawAdapters = "adapters" // AdapterLaw
)

// AdapterLaw is the step time of an engine that decodes and prefills in the same
// step and whose LoRA kernels work through adapters, not requests:
//
//	base + per_request*B + per_prompt*N + per_token*P + per_kv_token*KV
//	     + A*(per_adapter + per_adapter_token*M)
//	     + S*(per_slot + per_slot_token*M) + per_waiting*W
//
// with B running requests, KV their tokens in the cache, P tokens of N prompts,
// M = B + P, A distinct adapters in the step, S adapter slots
// (engine.max_loras_per_batch) and W requests that are left waiting. Weights are
// padded to engine.max_lora_rank in the slots, so the cost of an adapter follows
// that rank and not its own. The time to bring adapters to their slots is
// adapters.host_to_gpu; the step waits for it.
//
// Backend torch_native works through runs of requests of the same adapter, in the
// order in which they joined the batch. Of n_a requests of each adapter and L in
// all, in an order that is left to chance, there are
//
//	L + 1 - sum(n_a^2) / L
//
// such runs on average: 1 for one adapter, L where all differ. In its decode steps
// A is that number.
type AdapterLaw struct {
	BaseMs       float64 `yaml:"base_ms"`
	PerRequestMs float64 `yaml:"per_request_ms"`
	PerPromptMs  float64 `yaml:"per_prompt_ms,omitempty"`
	PerTokenUs   float64 `yaml:"per_token_us"`
	PerKVTokenUs float64 `yaml:"per_kv_token_us"`
	PerSlotUs    float64 `yaml:"per_slot_us"`
	PerWaitingUs float64 `yaml:"per_waiting_us,omitempty"`
	// ByRank lists what depends on engine.max_lora_rank, ranks ascending; other
	// ranks follow in straight lines.
	ByRank []RankCost `yaml:"by_rank,omitempty"`
}

// RankCost is the part of AdapterLaw that depends on the rank of the slots.
type RankCost struct {
	Rank              int     `yaml:"rank"`
	PerAdapterMs      float64 `yaml:"per_adapter_ms"`
	PerAdapterTokenUs float64 `yaml:"per_adapter_token_us"`
	PerSlotTokenUs    float64 `yaml:"per_slot_token_us"`
}

// at is the cost at a rank: on the straight line through the two listed ones
// around it, or next to it, since padded weights grow with the rank; never
// below 0.
func (l *AdapterLaw) at(rank int) (RankCost, error) {
	n := len(l.ByRank)
	if n == 0 {
		return RankCost{}, errors.New("latency.adapters.by_rank: expected at least one rank")
	}
	k, found := slices.BinarySearchFunc(l.ByRank, rank, func(c RankCost, rank int) int { return c.Rank - rank })
	if found {
		return l.ByRank[k], nil
	}
	if n == 1 {
		return RankCost{}, fmt.Errorf("engine.max_lora_rank is %d, latency.adapters.by_rank has rank %d alone", rank, l.ByRank[0].Rank)
	}
	k = min(max(k, 1), n-1)
	a, b := l.ByRank[k-1], l.ByRank[k]
	f := float64(rank-a.Rank) / float64(b.Rank-a.Rank)
	return RankCost{
		Rank:              rank,
		PerAdapterMs:      max(between(a.PerAdapterMs, b.PerAdapterMs, f), 0),
		PerAdapterTokenUs: max(between(a.PerAdapterTokenUs, b.PerAdapterTokenUs, f), 0),
		PerSlotTokenUs:    max(between(a.PerSlotTokenUs, b.PerSlotTokenUs, f), 0),
	}, nil
}

func between(a, b, f float64) float64 { return a + f*(b-a) }

func (l *AdapterLaw) check(e *Engine, backend string) error {
	for _, c := range []struct {
		field string
		v     float64
	}{
		{"base_ms", l.BaseMs}, {"per_request_ms", l.PerRequestMs}, {"per_prompt_ms", l.PerPromptMs}, {"per_token_us", l.PerTokenUs},
		{"per_kv_token_us", l.PerKVTokenUs}, {"per_slot_us", l.PerSlotUs}, {"per_waiting_us", l.PerWaitingUs},
	} {
		if !(c.v >= 0 && c.v < 1e6) {
			return fmt.Errorf("latency.adapters.%s is %v, expected a number in [0, 10^6)", c.field, c.v)
		}
	}
	last := 0
	for _, c := range l.ByRank {
		if c.Rank <= last {
			return fmt.Errorf("latency.adapters.by_rank: rank %d after %d, expected ranks >= 1 in ascending order", c.Rank, last)
		}
		last = c.Rank
		for _, v := range []float64{c.PerAdapterMs, c.PerAdapterTokenUs, c.PerSlotTokenUs} {
			if !(v >= 0 && v < 1e6) {
				return fmt.Errorf("latency.adapters.by_rank: rank %d: %v, expected numbers in [0, 10^6)", c.Rank, v)
			}
		}
	}
	if l.BaseMs == 0 {
		return errors.New("latency.adapters.base_ms is 0: a step without work would take no time")
	}
	if backend == BackendNone {
		return nil
	}
	_, err := l.at(e.MaxLoraRank)
	return err
}

// adapterCosts is an AdapterLaw in ticks for the slots of a profile.
type adapterCosts struct {
	base, perRequest, perPrompt, perToken, perWaiting tick.Ticks
	perAdapter, perAdapterToken                       tick.Ticks
	slots, slotToken                                  tick.Ticks // of all slots
	runs                                              bool       // of requests count, not adapters
}

func (l *AdapterLaw) compile(e *Engine, backend string) *adapterCosts {
	c := &adapterCosts{
		base:       tick.FromMilliseconds(l.BaseMs),
		perRequest: tick.FromMilliseconds(l.PerRequestMs),
		perPrompt:  tick.FromMilliseconds(l.PerPromptMs),
		perToken:   tick.FromMilliseconds(l.PerTokenUs / 1000),
		perWaiting: tick.FromMilliseconds(l.PerWaitingUs / 1000),
	}
	r, err := l.at(e.MaxLoraRank)
	if backend == BackendNone || err != nil { // no adapters, or Check has said so
		return c
	}
	s := float64(e.MaxLorasPerBatch)
	c.runs = backend == BackendNative
	c.perAdapter = tick.FromMilliseconds(r.PerAdapterMs)
	c.perAdapterToken = tick.FromMilliseconds(r.PerAdapterTokenUs / 1000)
	c.slots = tick.FromMilliseconds(s * l.PerSlotUs / 1000)
	c.slotToken = tick.FromMilliseconds(s * r.PerSlotTokenUs / 1000)
	return c
}

// step is the length of a step but for its KV tokens.
func (c *adapterCosts) step(w *StepWork) tick.Ticks {
	m := tick.Ticks(w.Batch + w.Tokens)
	perAdapter := c.perAdapter + c.perAdapterToken*m
	adapters := tick.Ticks(w.Adapters) * perAdapter
	if c.runs && w.LoRAs > 0 && w.Tokens == 0 {
		adapters = tick.Ticks(w.LoRAs+1)*perAdapter - perAdapter*tick.Ticks(w.Squares)/tick.Ticks(w.LoRAs)
	}
	return c.base + c.perRequest*tick.Ticks(w.Batch) + c.perPrompt*tick.Ticks(w.Prompts) + c.perToken*tick.Ticks(w.Tokens) +
		adapters + c.slots + c.slotToken*m +
		c.perWaiting*tick.Ticks(w.Waiting)
}

// KVCurve is the size of the KV cache with slots of one rank.
type KVCurve struct {
	Rank   int     `yaml:"rank"`
	Slots  []int   `yaml:"slots,flow"`
	Tokens []int64 `yaml:"tokens,flow"`
}

// at interpolates between the slots of a curve.
func (c *KVCurve) at(slots float64) (float64, bool) {
	n := len(c.Slots)
	if n == 0 || slots < float64(c.Slots[0]) || slots > float64(c.Slots[n-1]) {
		return 0, false
	}
	k := 1
	for k < n-1 && slots > float64(c.Slots[k]) {
		k++
	}
	if n == 1 {
		return float64(c.Tokens[0]), true
	}
	f := (slots - float64(c.Slots[k-1])) / float64(c.Slots[k]-c.Slots[k-1])
	return between(float64(c.Tokens[k-1]), float64(c.Tokens[k]), f), true
}

// kvFromTable interpolates a table: along the slots of a rank, and between two
// ranks at the same slots x rank, on which the size of the slots depends.
func kvFromTable(table []KVCurve, slots, rank int) (int64, error) {
	outside := func() (int64, error) {
		return 0, fmt.Errorf("memory.kv_table does not cover %d slots of rank %d; give the size of the KV cache (kv_tokens)", slots, rank)
	}
	k, found := slices.BinarySearchFunc(table, rank, func(c KVCurve, rank int) int { return c.Rank - rank })
	if found {
		if n, ok := table[k].at(float64(slots)); ok {
			return int64(n), nil
		}
		return outside()
	}
	if k == 0 || k == len(table) {
		return outside()
	}
	a, b := &table[k-1], &table[k]
	product := float64(slots) * float64(rank)
	na, okA := a.at(product / float64(a.Rank))
	nb, okB := b.at(product / float64(b.Rank))
	switch {
	case okA && okB:
		return int64(math.Round(between(na, nb, float64(rank-a.Rank)/float64(b.Rank-a.Rank)))), nil
	case okA:
		return int64(na), nil
	case okB:
		return int64(nb), nil
	}
	return outside()
}

func checkKVTable(table []KVCurve) error {
	last := 0
	for _, c := range table {
		if c.Rank <= last || len(c.Slots) == 0 || len(c.Slots) != len(c.Tokens) {
			return fmt.Errorf("memory.kv_table: rank %d after %d with %d slots and %d tokens, expected ranks in ascending order and as many tokens as slots",
				c.Rank, last, len(c.Slots), len(c.Tokens))
		}
		last = c.Rank
		for i := range c.Slots {
			if c.Slots[i] < 0 || i > 0 && c.Slots[i] <= c.Slots[i-1] || c.Tokens[i] < 1 {
				return fmt.Errorf("memory.kv_table: rank %d: %d tokens at %d slots, expected tokens >= 1 and slots in ascending order", c.Rank, c.Tokens[i], c.Slots[i])
			}
		}
	}
	return nil
}

// FrontEnd is a server's front end that hands requests to the engine one after
// the other: tokenizer and HTTP in one process. A request occupies it for
// PerRequestMs; the first request of each adapter for FirstUseMs more, while
// the adapter is read and registered.
type FrontEnd struct {
	PerRequestMs float64 `yaml:"per_request_ms,omitempty"`
	FirstUseMs   float64 `yaml:"first_use_ms,omitempty"`
}
