// Package policies has the policies of lorasim but for plan-and-route. Each one, or a small family, has a file named
// after it. This file lists them; docs/change.md has the steps to add one. Policies share package router/choose, and
// planners router/place.
package policies

import "lorasim/router"

// Inputs that policies use.
var (
	nothing    = router.Facts{}
	signals    = router.Facts{Signals: true}
	planning   = router.Facts{Plans: true, Interval: true, Signals: true}
	everything = router.Facts{Plans: true, Interval: true, Threshold: true, Signals: true}
)

// Routing lists the policies that only route, in the order in which to show them.
func Routing() []router.Descriptor {
	return []router.Descriptor{
		of[staticOptions]("static", router.FixedPlacement,
			"worker = adapter index modulo number of workers", nothing),
		of[staticBlockOptions]("static-block", router.FixedPlacement,
			"contiguous blocks of adapters, one block per worker", nothing),
		of[explicitOptions]("explicit", router.FixedPlacement,
			"the workers that a table gives to the adapter; the least loaded of several", signals),
		of[randomOptions]("random", router.LoadAlone,
			"any worker, with equal chance", nothing),
		of[roundRobinOptions]("round-robin", router.LoadAlone,
			"one worker after the other", nothing),
		of[hashOptions]("hash", router.FixedPlacement,
			"rendezvous hashing: few adapters move when workers join or leave", nothing),
		of[boundedHashOptions]("bounded-hash", router.FixedPlacement,
			"as hash, but passes over workers with more than c times the mean load", signals),
		of[leastLoadedOptions]("least-loaded", router.LoadAlone,
			"fewest requests in flight", signals),
		of[p2cOptions]("p2c", router.LoadAlone,
			"the less loaded of two random workers", signals),
		of[leastTokensOptions]("least-tokens", router.LoadAlone,
			"fewest tokens in flight (prompts and expected outputs)", signals),
		of[weightedQueueOptions]("weighted-queue", router.LoadAlone,
			"least weight x waiting + running requests", signals),
		of[affinityOptions]("affinity", router.AdapterAffinity,
			"best weighted score of adapter residency, queue and free KV cache", signals),
		of[affinitySpillOptions]("affinity-spill", router.AdapterAffinity,
			"least loaded worker that holds the adapter and has a short queue, else the least loaded of all", signals),
		of[routeToHolderOptions]("route-to-holder", router.AdapterAffinity,
			"least loaded worker that holds the adapter, regardless of its queue, else the least loaded of all (llm-d)", signals),
		of[cacheAwareOptions]("cache-aware", router.PrefixCaches,
			"longest matching prefix; least loaded where it is short (sglang)", signals),
		preset(of[prefixScorerOptions]("prefix-scorer", router.PrefixCaches,
			"best weighted score of prefix, queue, KV cache and adapter (llm-d, Gateway API)", signals),
			"lora=0,queue=2,kv=2,block=64,capacity=2000000"),
		preset(of[kvRouterOptions]("kv-router", router.PrefixCaches,
			"fewest prefill blocks that do not match, plus blocks in use (Dynamo)", signals),
			"index=reported,block=16"),
		of[prefixHashOptions]("prefix-hash", router.PrefixCaches,
			"consistent hash of the beginning of the prompt, with a bound on load (sglang)", signals),
		of[kShardOptions]("k-shard", router.AdapterAffinity,
			"least loaded of k hashed workers; k follows the load of the adapter", signals),
		of[anyWorkerOptions]("any-worker", router.LoadAlone,
			"as least-loaded; workers prefetch adapters of waiting requests (S-LoRA)", signals),
		of[rankAwareOptions]("rank-aware", router.AdapterAffinity,
			"least added latency by rank, within an SLO (CaraServe)", signals),
	}
}

// Planning lists the policies that also place adapters or move requests, in the order in which to show them.
func Planning() []router.Descriptor {
	return []router.Descriptor{
		of[rankGroupOptions]("rank-group", router.Planning,
			"adapters of like rank on the same workers, with equal demand (LoRAServe)", planning),
		of[minCostOptions]("min-cost-flow", router.Planning,
			"replicas of adapters by load, placed by minimum-cost flow (Dynamo)", planning),
		of[llumnixOptions]("llumnix", router.Planning,
			"moves requests from the worker with the least free KV cache per request to that with the most", planning),
		of[dispatchOnlyOptions]("dispatch_only", router.Planning,
			"dLoRA: greedy placement; least dispatch cost among the workers of the adapter", signals),
		of[dispatchMigOptions]("dispatch_mig", router.Planning,
			"dLoRA: also workers where the adapter can replace an idle one", everything),
		of[dloraPeriodMigOptions]("dlora_period_mig", router.Planning,
			"dLoRA: dispatch_only, with a migration ILP for two workers from time to time", everything),
	}
}

// of describes a policy with options of type T, for the group's table in docs/policies.md.
func of[T any, P interface {
	*T
	router.Builder
}](name string, group router.Group, summary string, facts router.Facts) router.Descriptor {
	d := router.Describe[T, P](name, summary)
	d.Group, d.Facts = group, &facts
	return d
}

// preset returns the descriptor of a policy with other defaults than those of the tags of its options.
func preset(d router.Descriptor, options string) router.Descriptor {
	d.Preset = options
	return d
}
