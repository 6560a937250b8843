package profile

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"

	"lorasim/internal/bounds"
	"lorasim/sim/tick"
)

// Laws of step times: how the length of a step depends on its work.
const (
	LawPhases   = "phases"   // decode and prefill steps apart, see Latency
	LawAdapters = "adapters" // cost by distinct adapters, see AdapterLaw
	// LawRoofline uses the coefficients of law phases, but a step takes the longer of reading and computing
	// (S. Williams, A. Waterman, D. Patterson, CACM 52(4), 2009):
	//
	//	host + host_per_request*B + step + step_per_request*B + all_reduce(P + B)
	//	  + max(decode.base + decode.per_request*B + experts, prefill.per_token*(P + B))
	//	  + decode.per_kv_token*KV + prefill.per_token_ctx*C + lora
	//	  + [P > 0] (prefill.mixed + prefill.mixed_per_request*B)
	//
	// with B running requests, KV their tokens in the cache, P prompt tokens, and C the sum over their chunks
	// of tokens * (context before + half the chunk). The terms host and host_per_request apply only without
	// asynchronous scheduling. The term experts is the time to read the experts that P + B tokens use. The term of the
	// KV tokens is outside the maximum, so that each token lengthens decode steps by the same time. The term
	// lora is that of law phases; for backends punica and torch_native it is the terms of [AdapterLaw] by
	// adapters and slots. lora.prefill_factor lengthens the computing of prompt tokens.
	LawRoofline = "roofline"
)

// AdapterLaw holds the coefficients of law adapters: the step time of an engine that decodes and prefills in
// the same step, and whose LoRA kernels iterate over adapters, not requests:
//
//	base + per_request*B + per_prompt*N + per_token*P + per_kv_token*KV
//	     + A*(per_adapter + per_adapter_token*M)
//	     + S*(per_slot + per_slot_token*M) + per_waiting*W
//
// with B running requests, KV their tokens in the cache, P tokens of N prompts, M = B + P, A distinct
// adapters in the step, S adapter slots (engine.max_loras_per_batch), and W requests left waiting. Weights
// are padded to engine.max_lora_rank in the slots, so the cost of an adapter depends on that rank and not on
// its own. The step also waits while adapters are brought to their slots (adapters.host_to_gpu).
//
// Backend torch_native iterates over runs of requests with the same adapter, in the order in which the
// requests joined the batch. With n_a requests of each adapter, L in total, in random order, the mean number
// of runs is
//
//	L + 1 - sum(n_a^2) / L
//
// It is 1 for one adapter, and L if all adapters differ. A is this number in decode steps of the backend.
type AdapterLaw struct {
	BaseMs       float64 `yaml:"base_ms" is:">=0 <1e6"`
	PerRequestMs float64 `yaml:"per_request_ms" is:">=0 <1e6"`
	PerPromptMs  float64 `yaml:"per_prompt_ms,omitempty" is:">=0 <1e6"`
	PerTokenUs   float64 `yaml:"per_token_us" is:">=0 <1e6"`
	PerKVTokenUs float64 `yaml:"per_kv_token_us" is:">=0 <1e6"`
	PerSlotUs    float64 `yaml:"per_slot_us" is:">=0 <1e6"`
	PerWaitingUs float64 `yaml:"per_waiting_us,omitempty" is:">=0 <1e6"`
	// ByRank lists the coefficients that depend on engine.max_lora_rank, ranks ascending. Other ranks are
	// interpolated or extrapolated linearly.
	ByRank []RankCost `yaml:"by_rank,omitempty"`
}

// RankCost holds the coefficients of [AdapterLaw] that depend on the rank of the slots.
type RankCost struct {
	Rank              int     `yaml:"rank"`
	PerAdapterMs      float64 `yaml:"per_adapter_ms"`
	PerAdapterTokenUs float64 `yaml:"per_adapter_token_us"`
	PerSlotTokenUs    float64 `yaml:"per_slot_token_us"`
}

// at returns the cost at a rank. Between two listed ranks it interpolates linearly, beyond them it
// extrapolates, since padded weights grow with the rank. Costs are never below 0.
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
		return RankCost{}, fmt.Errorf("engine.max_lora_rank is %d, latency.adapters.by_rank has rank %d alone", rank,
			l.ByRank[0].Rank)
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
	if err := l.checkRanks(e, backend); err != nil {
		return err
	}
	if l.BaseMs == 0 {
		return errors.New("latency.adapters.base_ms is 0: a step without work would take no time")
	}
	return nil
}

// checkRanks checks the coefficients that depend on ranks.
func (l *AdapterLaw) checkRanks(e *Engine, backend string) error {
	last := 0
	for _, c := range l.ByRank {
		if c.Rank <= last {
			return fmt.Errorf("latency.adapters.by_rank: rank %d after %d, expected ranks >= 1 in ascending order",
				c.Rank, last)
		}
		last = c.Rank
		for _, v := range []float64{c.PerAdapterMs, c.PerAdapterTokenUs, c.PerSlotTokenUs} {
			if !(v >= 0 && v < 1e6) {
				return fmt.Errorf("latency.adapters.by_rank: rank %d: %v, expected numbers in [0, 10^6)", c.Rank, v)
			}
		}
	}
	if backend == BackendNone {
		return nil
	}
	_, err := l.at(e.MaxLoraRank)
	return err
}

// adapterCosts is an [AdapterLaw] in ticks, for the slots of a profile.
type adapterCosts struct {
	base, perRequest, perPrompt, perToken, perWaiting tick.Ticks
	perAdapter, perAdapterToken                       tick.Ticks
	slots, slotToken                                  tick.Ticks // of all slots
	runs                                              bool       // count runs of requests, not distinct adapters
	// skips: no cost in steps without an adapter. active: the slots are those of the step's adapters, see
	// [kernelsActive]; most is their number.
	skips, active      bool
	most               int64
	perSlot, slotsEach tick.Ticks // of one slot, see slots and slotToken
}

func (l *AdapterLaw) compile(e *Engine, lora *LoRA) *adapterCosts {
	us := func(us float64) tick.Ticks { return tick.FromMilliseconds(us / 1000) }
	c := &adapterCosts{base: tick.FromMilliseconds(l.BaseMs), perRequest: tick.FromMilliseconds(l.PerRequestMs),
		perPrompt: tick.FromMilliseconds(l.PerPromptMs), perToken: us(l.PerTokenUs), perWaiting: us(l.PerWaitingUs)}
	if r, err := l.at(e.MaxLoraRank); lora.Backend != BackendNone && err == nil { // no error: Check has seen to that
		slots := float64(e.MaxLorasPerBatch)
		c.runs = lora.Backend == BackendNative
		c.active = lora.Kernels == kernelsActive
		c.skips = c.active || lora.Kernels == kernelsLoRASteps
		c.most, c.perSlot, c.slotsEach = int64(e.MaxLorasPerBatch), us(l.PerSlotUs), us(r.PerSlotTokenUs)
		c.perAdapter, c.perAdapterToken = tick.FromMilliseconds(r.PerAdapterMs), us(r.PerAdapterTokenUs)
		c.slots, c.slotToken = us(slots*l.PerSlotUs), us(slots*r.PerSlotTokenUs)
	}
	return c
}

// step returns the length of a step without the term of its KV tokens.
func (c *adapterCosts) step(w *StepWork) tick.Ticks {
	return c.base + c.perRequest*tick.Ticks(w.Batch) + c.perPrompt*tick.Ticks(w.Prompts) +
		c.perToken*tick.Ticks(w.Tokens) + c.lora(w) + c.perWaiting*tick.Ticks(w.Waiting)
}

// lora returns the time that adapters and their slots add to a step.
func (c *adapterCosts) lora(w *StepWork) tick.Ticks {
	if c.skips && w.Adapters == 0 {
		return 0
	}
	m := tick.Ticks(w.Batch + w.Tokens)
	perAdapter := c.perAdapter + c.perAdapterToken*m
	adapters := tick.Ticks(w.Adapters) * perAdapter
	if c.runs && w.LoRAs > 0 && w.Tokens == 0 {
		adapters = tick.Ticks(w.LoRAs+1)*perAdapter - perAdapter*tick.Ticks(w.Squares)/tick.Ticks(w.LoRAs)
	}
	if c.active {
		n := tick.Ticks(min(int64(1)<<bits.Len64(uint64(w.Adapters-1)), c.most))
		return adapters + n*(c.perSlot+c.slotsEach*m)
	}
	return adapters + c.slots + c.slotToken*m
}

// Check returns an error if the profile is invalid. It checks single fields against their "is" tags first,
// then combinations of fields.
func (p *Profile) Check() error {
	if err := walk(reflect.ValueOf(*p), "", checkField); err != nil {
		return err
	}
	e, l := &p.Engine, &p.Latency.LoRA
	merges := l.Backend == BackendMerged || l.Backend == BackendDLoRA
	switch {
	case merges && e.Scheduler != SchedulerSGLang:
		return fmt.Errorf("latency.lora.backend %s needs engine.scheduler %s", l.Backend, SchedulerSGLang)
	case merges && (l.SwitchCredit < 1 || l.SwitchCredit > 1e12):
		return fmt.Errorf("latency.lora.switch_credit is %d, expected 1 to 10^12", l.SwitchCredit)
	case l.Backend == BackendDLoRA && (l.CreditScale < 1 || l.CreditScale > 1e6):
		return fmt.Errorf("latency.lora.credit_scale is %d, expected 1 to 10^6", l.CreditScale)
	case e.Scheduler == SchedulerVLLM && e.MaxNumBatchedTokens < e.MaxRunningRequests:
		return fmt.Errorf("engine.max_num_batched_tokens is %d, expected at least max_running_requests (%d), since every running request takes one token",
			e.MaxNumBatchedTokens, e.MaxRunningRequests)
	case e.NoChunkedPrefill && e.MaxNumBatchedTokens < e.ContextLength: // as SchedulerConfig.verify_max_model_len
		return fmt.Errorf("engine.max_num_batched_tokens is %d, expected at least context_length (%d) with no_chunked_prefill",
			e.MaxNumBatchedTokens, e.ContextLength)
	case e.AsyncScheduling && (e.Scheduler != SchedulerVLLM || e.SchedulePolicy == OrderVTC):
		return fmt.Errorf("engine.async_scheduling needs scheduler %s, and schedule_policy %s or %s", SchedulerVLLM,
			OrderFCFS, OrderPriority)
	case e.OverlapSchedule && (e.Scheduler != SchedulerSGLang || merges || e.SchedulePolicy == OrderVTC):
		return fmt.Errorf("engine.overlap_schedule needs scheduler %s, schedule_policy %s or %s, and a backend that runs all adapters together",
			SchedulerSGLang, OrderFCFS, OrderPriority)
	case e.VLLMVersion != "" && (e.Scheduler != SchedulerVLLM || e.vllmMinor() < 0):
		return fmt.Errorf("engine.vllm_version is %q, expected a version such as 0.33, with scheduler %s",
			e.VLLMVersion, SchedulerVLLM)
	case e.PrefixCache && e.DisableRadixCache:
		return errors.New("engine.prefix_cache and engine.disable_radix_cache exclude each other")
	case e.orders() && (merges || e.HeadOfLine == HeadOfLineBlock):
		return fmt.Errorf("engine.schedule_policy %s needs head_of_line %s and a backend that runs all adapters together", e.SchedulePolicy, HeadOfLineSkip)
	case e.MaxQueuedRequests > 0 && e.Scheduler != SchedulerSGLang:
		return fmt.Errorf("engine.max_queued_requests is of scheduler %s, expected max_num_queued_reqs or max_num_queued_tokens", SchedulerSGLang)
	case (e.MaxNumQueuedReqs > 0 || e.MaxNumQueuedTokens > 0) && e.Scheduler != SchedulerVLLM:
		return fmt.Errorf("engine.max_num_queued_reqs and max_num_queued_tokens are of scheduler %s, expected max_queued_requests", SchedulerVLLM)
	case e.MixedChunk && (e.Scheduler != SchedulerSGLang || merges):
		return fmt.Errorf("engine.enable_mixed_chunk needs engine.scheduler %s and a backend that runs all adapters together", SchedulerSGLang)
	case e.MixedChunk && (e.ChunkedPrefillSize > 0 && e.ChunkedPrefillSize <= e.MaxRunningRequests ||
		e.MaxPrefillTokens <= e.MaxRunningRequests):
		return fmt.Errorf("engine.enable_mixed_chunk needs chunked_prefill_size (%d) and max_prefill_tokens (%d) above max_running_requests (%d), since every running request takes one token of a step",
			e.ChunkedPrefillSize, e.MaxPrefillTokens, e.MaxRunningRequests)
	}
	if err := cmp.Or(e.checkSLoRA(), p.Latency.checkLaw(e)); err != nil {
		return err
	}
	if err := cmp.Or(checkKVTable(p.Memory.KVTable), p.Intervals.check()); err != nil {
		return err
	}
	if n, err := p.KVTokens(); err != nil {
		return err
	} else if n < int64(e.PageSize) {
		return fmt.Errorf("the KV cache holds %d tokens (--engine-args kv_tokens), expected at least one page of %d (--engine-args page_size)",
			n, e.PageSize)
	}
	return nil
}

// orders reports whether the queue has another order than first come, first served.
func (e *Engine) orders() bool {
	return e.SchedulePolicy == OrderPriority || e.SchedulePolicy == OrderVTC
}

// checkField checks a number or a text against its tag: bounds (internal/bounds), or choices.
func checkField(name, is string, x reflect.Value) error {
	switch {
	case is == "":
	case x.Kind() == reflect.String:
		if known := strings.Split(is, "|"); !slices.Contains(known, x.String()) {
			return fmt.Errorf("%s is %q, expected one of: %s", name, x.String(), strings.Join(known, ", "))
		}
	default:
		n := x.Convert(reflect.TypeFor[float64]()).Float()
		if b := bounds.MustParse(is); !b.Has(n) {
			return fmt.Errorf("%s is %v, expected a number %v", name, n, b)
		}
	}
	return nil
}

// walk calls f for every field of a struct and of the structs within it, with the field's name in files and
// its "is" tag. It stops at the first error.
func walk(v reflect.Value, path string, f func(name, is string, x reflect.Value) error) error {
	for field, x := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		do := f
		if x.Kind() == reflect.Struct {
			do = func(string, string, reflect.Value) error { return walk(x, path+name+".", f) }
		}
		if err := do(path+name, field.Tag.Get("is"), x); err != nil {
			return err
		}
	}
	return nil
}

// knows reports whether there are coefficients for a backend.
func (l *Latency) knows(backend string) bool {
	phases := l.Law != LawAdapters
	if phases && l.LoRA.KernelTimes.given() && l.LoRA.KernelTimes.Of == backend {
		return true
	}
	switch backend {
	case BackendPunica, BackendNative:
		return !phases || l.Law == LawRoofline && len(l.Adapters.ByRank) > 0
	case BackendNone:
		return true
	case BackendCSGMV:
		return phases && l.LoRA.CSGMVUs > 0
	case BackendTriton:
		return phases && l.LoRA.TritonUs > 0
	case BackendMerged:
		return phases && l.LoRA.SwitchMs > 0
	case BackendDLoRA:
		return phases && l.LoRA.SwitchMs > 0 && l.LoRA.UnmergedMs > 0
	case BackendMBGMV:
		return phases && (l.LoRA.RankUs > 0 || l.LoRA.RequestRankUs > 0)
	}
	return false
}

// checkLaw returns an error if the law of step times and its coefficients are invalid.
func (l *Latency) checkLaw(e *Engine) error {
	if !l.knows(l.LoRA.Backend) {
		known := slices.DeleteFunc(slices.Clone(allBackends), func(b string) bool { return !l.knows(b) })
		return fmt.Errorf("latency.lora.backend is %s, for which the profile has no coefficients; it has those of: %s",
			l.LoRA.Backend, strings.Join(known, ", "))
	}
	if err := l.LoRA.KernelTimes.check(); err != nil {
		return err
	}
	x := &l.Experts
	switch {
	case l.LoRA.KernelTimes.given() && l.Law == LawAdapters:
		return fmt.Errorf("latency.lora.kernel_times needs latency.law %s or %s; law %s has latency.adapters.by_rank",
			LawPhases, LawRoofline, LawAdapters)
	case *x != Experts{} && (x.Count < 1 || x.TopK < 1 || x.TopK > x.Count):
		return fmt.Errorf("latency.experts: %d of %d experts for a token, expected top_k from 1 to count", x.TopK,
			x.Count)
	case *x != Experts{} && l.Law == LawAdapters:
		return fmt.Errorf("latency.experts needs latency.law %s or %s", LawPhases, LawRoofline)
	case l.Law == LawAdapters:
		return l.Adapters.check(e, l.LoRA.Backend)
	case l.Law == LawRoofline:
		return l.checkRoofline(e)
	case l.HostMs > 0 || l.Prefill.MixedMs > 0 || l.Prefill.MixedPerRequestMs > 0:
		return fmt.Errorf("latency.host_ms, prefill.mixed_ms and prefill.mixed_per_request_ms need latency.law %s",
			LawRoofline)
	case l.HostPerRequestMs > 0 || l.StepMs > 0 || l.StepPerRequestMs > 0 || len(l.AllReduce.Tokens) > 0:
		return fmt.Errorf("latency.host_per_request_ms, step_ms, step_per_request_ms and all_reduce need latency.law %s",
			LawRoofline)
	case l.Decode.BaseMs == 0 && l.Decode.PerRequestMs == 0:
		return errors.New("latency.decode.base_ms and per_request_ms are both 0: a decode step would take no time")
	case l.Prefill.BaseMs == 0 && l.Prefill.PerTokenUs == 0:
		return errors.New("latency.prefill.base_ms and per_token_us are both 0: a prefill step would take no time")
	}
	return nil
}

// checkRoofline returns an error if the coefficients of law roofline are invalid.
func (l *Latency) checkRoofline(e *Engine) error {
	p := &l.Prefill
	switch {
	case l.Decode.BaseMs == 0:
		return errors.New("latency.decode.base_ms is 0: with law roofline it is the time to read the weights")
	case p.BaseMs > 0 || p.FirstExtendMs > 0 || p.FirstWaveFactor != 0 && p.FirstWaveFactor != 1:
		return errors.New("latency.prefill: base_ms, first_extend_ms and first_wave_factor belong to law phases; " +
			"law roofline reads the weights in decode.base_ms")
	case l.adapterKernels():
		return cmp.Or(l.AllReduce.check(), l.Adapters.checkRanks(e, l.LoRA.Backend))
	}
	return l.AllReduce.check()
}

// check returns an error if the table is invalid.
func (a *AllReduce) check() error {
	if len(a.Tokens) != len(a.Ms) {
		return fmt.Errorf("latency.all_reduce: %d tokens and %d ms, expected as many times as numbers of tokens",
			len(a.Tokens), len(a.Ms))
	}
	for i, n := range a.Tokens {
		switch ms := a.Ms[i]; {
		case n < 1 || i > 0 && n <= a.Tokens[i-1]:
			return fmt.Errorf("latency.all_reduce: tokens %v, expected numbers >= 1 in ascending order", a.Tokens)
		case !(ms > 0 && ms < 1e6) || i > 0 && ms < a.Ms[i-1]:
			return fmt.Errorf("latency.all_reduce: ms %v, expected numbers in (0, 10^6) that do not fall", a.Ms)
		}
	}
	return nil
}

// of returns the time of the exchanges of a step with n tokens, ms.
func (a *AllReduce) of(n int64) float64 {
	last := len(a.Tokens) - 1
	if last < 0 || n <= 0 {
		return 0
	}
	k, found := slices.BinarySearch(a.Tokens, n)
	switch {
	case found:
		return a.Ms[k]
	case k == 0:
		return a.Ms[0]
	case k > last:
		return a.Ms[last] * float64(n) / float64(a.Tokens[last])
	}
	return between(a.Ms[k-1], a.Ms[k], float64(n-a.Tokens[k-1])/float64(a.Tokens[k]-a.Tokens[k-1]))
}

// Measured reports whether [KernelTimes] are the cost of adapters.
func (l *LoRA) Measured() bool { return l.KernelTimes.given() && l.KernelTimes.Of == l.Backend }

// adapterKernels reports whether [AdapterLaw] gives the cost of adapters.
func (l *Latency) adapterKernels() bool {
	return !l.LoRA.Measured() && (l.LoRA.Backend == BackendPunica || l.LoRA.Backend == BackendNative)
}

// KVTokens returns the capacity of the KV cache in tokens: memory.kv_tokens, else a value interpolated from
// memory.kv_table, else the part of the pool that adapter slots leave. It returns an error if the profile has none of
// them, if the table does not cover the slots, or if the slots leave no memory.
func (p *Profile) KVTokens() (int64, error) {
	m, e, lora := &p.Memory, &p.Engine, p.Latency.LoRA.Backend != BackendNone
	switch {
	case m.KVTokens > 0:
		return m.KVTokens, nil
	case len(m.KVTable) > 0 && lora && !e.Unified():
		return kvFromTable(m.KVTable, e.MaxLorasPerBatch, e.MaxLoraRank)
	case len(m.KVTable) > 0:
		return kvFromTable(m.KVTable, 0, m.KVTable[0].Rank)
	case m.PoolGiB <= 0 || m.KVBytesPerToken <= 0:
		return 0, errors.New("memory: expected kv_tokens, or pool_gib and kv_bytes_per_token")
	}
	slots := 0.0
	if lora && !e.Unified() {
		slots = float64(e.MaxLorasPerBatch) * float64(e.MaxLoraRank) * p.Adapters.BytesPerRank
	}
	n := int64((m.PoolGiB*gib - slots) / float64(m.KVBytesPerToken))
	if n <= 0 {
		return 0, fmt.Errorf("memory: %d adapter slots of rank %d take %.1f GiB, more than pool_gib %.1f leaves: "+
			"reduce --engine-args max_loras_per_batch or max_lora_rank, or give --engine-args kv_tokens",
			e.MaxLorasPerBatch, e.MaxLoraRank, slots/gib, m.PoolGiB)
	}
	return n, nil
}

// A KVCurve is the size of the KV cache by the number of slots, for slots of one rank.
type KVCurve struct {
	Rank   int     `yaml:"rank"`
	Slots  []int   `yaml:"slots,flow"`
	Tokens []int64 `yaml:"tokens,flow"`
}

// at interpolates between the slots of a curve.
func (c *KVCurve) at(slots float64) (float64, bool) {
	n := len(c.Slots)
	if slots < float64(c.Slots[0]) || slots > float64(c.Slots[n-1]) {
		return 0, false
	}
	if n == 1 {
		return float64(c.Tokens[0]), true
	}
	k := 1
	for slots > float64(c.Slots[k]) {
		k++
	}
	f := (slots - float64(c.Slots[k-1])) / float64(c.Slots[k]-c.Slots[k-1])
	return between(float64(c.Tokens[k-1]), float64(c.Tokens[k]), f), true
}

// kvFromTable interpolates a table: along the slots of a rank, and between two ranks at the same slots x
// rank, which determines the size of the slots.
func kvFromTable(table []KVCurve, slots, rank int) (int64, error) {
	k, found := slices.BinarySearchFunc(table, rank, func(c KVCurve, rank int) int { return c.Rank - rank })
	if found {
		if n, ok := table[k].at(float64(slots)); ok {
			return int64(n), nil
		}
	} else if k > 0 && k < len(table) {
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
	}
	return 0, fmt.Errorf("memory.kv_table does not cover %d slots of rank %d: give the size of the KV cache (--engine-args kv_tokens), or change --engine-args max_loras_per_batch or max_lora_rank", slots, rank)
}

func checkKVTable(table []KVCurve) error {
	last := 0
	for _, c := range table {
		if c.Rank <= last || len(c.Slots) == 0 || len(c.Slots) != len(c.Tokens) {
			return fmt.Errorf("memory.kv_table: rank %d after %d with %d slots and %d tokens, expected ranks in ascending order and one number of tokens per number of slots",
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
