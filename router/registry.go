package router

import (
	"fmt"
	"strings"

	"lorasim/internal/suggest"
)

// Descriptor describes a policy to people and to [New].
type Descriptor struct {
	Name    string
	Summary string // one line
	Options []Option

	build func(o *options, env Env) (*Router, error)
}

// Option is one option of a policy.
type Option struct {
	Name    string
	Default string // "": none
	Doc     string // one line, with the unit
}

// List returns every policy, in the order in which to show them.
func List() []Descriptor {
	ties := Option{"ties", "random", "among equals: random (seeded) or first"}
	return []Descriptor{
		{"static", "adapter index modulo workers", nil, newStatic},
		{"static-block", "contiguous blocks of ceil(adapters/workers) adapters per worker", nil, newStaticBlock},
		{"explicit", "a table of adapters and their workers", []Option{
			{"map", "", "entries ADAPTERS@WORKERS, such as 0-7@0,8@0+1,rest@all"},
			{"file", "", "path of a file with one such entry per line"},
		}, newExplicit},
		{"random", "any worker, with equal chance", nil, newRandom},
		{"round-robin", "one worker after the other", nil, newRoundRobin},
		{"hash", "highest random weight over (adapter, worker)", nil, newHash},
		{"bounded-hash", "as hash, but passes over workers loaded above c x mean", []Option{
			{"c", "1.5", "largest load of a worker, as a multiple of the mean, >= 1"},
		}, newBoundedHash},
		{"least-loaded", "fewest requests, running and waiting", []Option{ties}, newLeastLoaded},
		{"p2c", "the less loaded of two random workers", nil, newP2C},
		{"least-tokens", "fewest outstanding tokens (prompt + expected output)", []Option{ties}, newLeastTokens},
		{"weighted-queue", "least weight x waiting + running requests", []Option{
			{"weight", "4", "weight of a waiting request against a running one"}, ties,
		}, newWeightedQueue},
		{"affinity", "best weighted score of adapter residency, queue and KV cache", []Option{
			{"variant", "score", "residency table: score or residency"},
			{"lora", "1", "weight of the adapter's residency"},
			{"queue", "1", "weight of a short queue"},
			{"kv", "1", "weight of free KV cache"}, ties,
		}, newAffinity},
		{"affinity-spill", "least loaded worker with the adapter and a short queue, else least loaded", []Option{
			{"threshold", "5", "waiting requests from which a worker is passed over"}, ties,
		}, newAffinitySpill},
		{"k-shard", "least loaded of k hashed workers; k follows the load", []Option{
			{"k", "1", "workers of an adapter at first and at least"},
			{"max", "0", "workers of an adapter at most; 0: all"},
			{"high", "1", "k grows above this load, in requests / max running requests"},
			{"low", "0.5", "k shrinks below this load, < high"},
			{"grow-every", "1", "s between a change of k and growing it"},
			{"shrink-every", "30", "s between a change of k and shrinking it"},
		}, newKShard},
		{"any-worker", "least loaded; workers prefetch adapters for their queue (S-LoRA)", []Option{ties}, newAnyWorker},
		{"rank-aware", "least added latency by rank within an SLO (CaraServe)", []Option{
			{"slo", "auto", "longest decode step, ms; auto: 1.5 x a step of one request; none: no limit"},
			{"avg-output", "auto", "mean output tokens of a request; auto: the mean so far, by adapter"},
		}, newRankAware},
		{"period_mig", "least added time; every interval an ILP over all workers moves adapters and requests", []Option{
			{"interval", "10", "s between plans"},
			{"busy", "0.5", "share of the horizon that the busiest worker's work must fill before anything moves"},
			{"margin", "0.05", "share of the predicted time that a plan must gain"},
			{"horizon", "auto", "s of forecast demand that a plan provides for; auto: the interval"},
			{"max-moves", "64", "requests that a plan moves at most; 0: any number"},
			{"spill", "0.1", "share of a request's time by which a worker without the adapter must be better"},
		}, newPeriodic},
		{"rank-group", "adapters of like rank together, groups of equal demand (LoRAServe)", []Option{
			{"interval", "10", "s between plans"},
		}, newRankGroup},
		{"min-cost-flow", "replicas by load share, placed by minimum-cost flow (Dynamo)", []Option{
			{"interval", "10", "s between plans"},
			{"move", "4", "cost of a new place, in ranks of the adapter's hash order"},
			{"keep", "4", "bonus of a place that is kept, likewise"},
			{"cooldown", "30", "s between changes of an adapter's number of replicas"},
		}, newMinCost},
		{"llumnix", "moves requests from the worker with the least free KV per request to that with the most", []Option{
			{"interval", "0.05", "s between looks"},
			{"pause", "1", "s before a request moves again"},
		}, newLlumnix},
		{"dispatch_only", "dLoRA: greedy placement, least dispatch cost among the adapter's workers", nil, newDispatchOnly},
		{"dispatch_mig", "dLoRA: also workers where the adapter can take an idle one's place", nil, newDispatchMig},
		{"dlora_period_mig", "dLoRA: dispatch_only, and periodically its migration ILP for two workers", []Option{
			{"interval", "10", "s between looks"},
			{"threshold", "16", "requests above the mean that trigger a plan"},
		}, newDLoRAPeriodMig},
	}
}

// New makes a policy from a spec such as "round-robin" or
// "affinity:variant=residency,kv=0". A piece between commas that holds no '='
// belongs to the value before it, so that values may hold commas:
// "explicit:map=0@0,1@1".
func New(spec string, env Env) (*Router, error) {
	if len(env.Workers) < 1 {
		return nil, fmt.Errorf("policy %s: no workers, expected at least one", spec)
	}
	d, o, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	rt, err := d.build(o, env)
	if o.err != nil {
		err = o.err
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", d.Name, err)
	}
	rt.Name = spec
	return rt, nil
}

// CheckSpec says what is wrong with the name or the options' names of a spec,
// as far as that can be told without workers.
func CheckSpec(spec string) error {
	_, _, err := parseSpec(spec)
	return err
}

func parseSpec(spec string) (*Descriptor, *options, error) {
	name, rest, hasOptions := strings.Cut(spec, ":")
	name = strings.TrimSpace(name)
	policies := List()
	names := make([]string, len(policies))
	for i, d := range policies {
		if names[i] = d.Name; names[i] != name {
			continue
		}
		o, err := parseOptions(&d, rest, hasOptions)
		if err != nil {
			return nil, nil, fmt.Errorf("policy %s: %w", name, err)
		}
		return &d, o, nil
	}
	return nil, nil, suggest.Unknown("policy", name, names)
}
