// Package policies has the policies of lorasim but for plan-and-route, each or each small family in a file named after
// it. This file lists them. Policies share [choose.Least], and planners [place.Placer].
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
		of[staticOptions]("static", "adapter index modulo workers", nothing),
		of[staticBlockOptions]("static-block",
			"contiguous blocks of ceil(adapters/workers) adapters per worker", nothing),
		of[explicitOptions]("explicit", "a table of adapters and their workers", signals),
		of[randomOptions]("random", "any worker, with equal chance", nothing),
		of[roundRobinOptions]("round-robin", "one worker after the other", nothing),
		of[hashOptions]("hash", "highest random weight over (adapter, worker)", nothing),
		of[boundedHashOptions]("bounded-hash", "as hash, but passes over workers loaded above c x mean", signals),
		of[leastLoadedOptions]("least-loaded", "fewest requests, running and waiting", signals),
		of[p2cOptions]("p2c", "the less loaded of two random workers", signals),
		of[leastTokensOptions]("least-tokens", "fewest outstanding tokens (prompt + expected output)", signals),
		of[weightedQueueOptions]("weighted-queue", "least weight x waiting + running requests", signals),
		of[affinityOptions]("affinity", "best weighted score of adapter residency, queue and KV cache", signals),
		of[affinitySpillOptions]("affinity-spill",
			"least loaded worker with the adapter and a short queue, else least loaded", signals),
		of[routeToHolderOptions]("route-to-holder",
			"least loaded worker that has the adapter, however long its queue, else least loaded", signals),
		of[cacheAwareOptions]("cache-aware",
			"the worker with the longest match of the prompt, least loaded where it is short (sglang)", signals),
		preset(of[prefixScorerOptions]("prefix-scorer",
			"best weighted score of matched prefix, queue, KV cache and adapter (llm-d, Gateway API)", signals),
			"lora=0,queue=2,kv=2,block=64,capacity=2000000"),
		preset(of[kvRouterOptions]("kv-router", "least prefill blocks that do not match + blocks in use (Dynamo)",
			signals),
			"index=reported,block=16"),
		of[prefixHashOptions]("prefix-hash",
			"consistent hash of the prompt's beginning, least loaded above a bound (sglang)", signals),
		of[kShardOptions]("k-shard", "least loaded of k hashed workers; k follows the load", signals),
		of[anyWorkerOptions]("any-worker", "least loaded; workers prefetch adapters for their queue (S-LoRA)", signals),
		of[rankAwareOptions]("rank-aware", "least added latency by rank within an SLO (CaraServe)", signals),
	}
}

// Planning lists the policies that also place adapters or move requests, in the order in which to show them.
func Planning() []router.Descriptor {
	return []router.Descriptor{
		of[rankGroupOptions]("rank-group",
			"adapters of like rank together, groups of equal demand (LoRAServe)", planning),
		of[minCostOptions]("min-cost-flow", "replicas by load share, placed by minimum-cost flow (Dynamo)", planning),
		of[llumnixOptions]("llumnix",
			"moves requests from the worker with the least free KV per request to that with the most", planning),
		of[dispatchOnlyOptions]("dispatch_only",
			"dLoRA: greedy placement, least dispatch cost among the adapter's workers", signals),
		of[dispatchMigOptions]("dispatch_mig", "dLoRA: also workers where the adapter can take an idle one's place",
			everything),
		of[dloraPeriodMigOptions]("dlora_period_mig",
			"dLoRA: dispatch_only, and periodically its migration ILP for two workers", everything),
	}
}

// of describes a policy with options of type T.
func of[T any, P interface {
	*T
	router.Builder
}](name, summary string, facts router.Facts) router.Descriptor {
	d := router.Describe[T, P](name, summary)
	d.Facts = &facts
	return d
}

// preset returns the descriptor of a policy with other defaults than those of the tags of its options.
func preset(d router.Descriptor, options string) router.Descriptor {
	d.Preset = options
	return d
}
