package router

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"lorasim/trace/settings"
)

// Descriptor describes a policy to users and to [New]. [Describe] returns one; [Register] adds it.
type Descriptor struct {
	Name    string   `json:"name"`              // lower-case letters, digits, - and _
	Summary string   `json:"summary"`           // one line
	Options []Option `json:"options,omitempty"` // read from the struct that New returns; set by [List]
	// Aliases are other names of the policy, the oldest first. [New] accepts them; output has the policy's own name
	// ([Canonical]).
	Aliases []string `json:"aliases,omitempty"`

	// Preset are defaults, "option=value,...", that override those of the struct's tags.
	Preset string `json:"-"`
	// New returns a pointer to the policy's options: a struct with the tags of package trace/settings.
	New func() Builder `json:"-"`
	// Facts returns the inputs that the policy uses; nil: all. A sweep runs cells that differ only in other inputs
	// once.
	Facts *Facts `json:"-"`
}

// Builder is a pointer to the options of a policy. Build returns the policy once the options are set.
type Builder interface {
	Build(env Env) (*Router, error)
}

// Option is one option of a policy.
type Option struct {
	Name    string
	Default string   // "": none
	Doc     string   // one line, with the unit
	Words   []string `json:",omitempty"` // allowed values; nil: numbers, or any text
}

// Inputs that built-in policies use.
var (
	nothing  = Facts{}
	signals  = Facts{Signals: true}
	planning = Facts{Plans: true, Interval: true, Signals: true}
)

// builtin lists the policies of this package, in the order in which to show them.
func builtin() []Descriptor {
	return []Descriptor{
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
		of[prefixScorerOptions]("prefix-scorer",
			"best weighted score of matched prefix, queue, KV cache and adapter (llm-d, Gateway API)", signals).
			preset("lora=0,queue=2,kv=2,block=64,capacity=2000000"),
		of[kvRouterOptions]("kv-router", "least prefill blocks that do not match + blocks in use (Dynamo)", signals).
			preset("index=reported,block=16"),
		of[prefixHashOptions]("prefix-hash",
			"consistent hash of the prompt's beginning, least loaded above a bound (sglang)", signals),
		of[kShardOptions]("k-shard", "least loaded of k hashed workers; k follows the load", signals),
		of[anyWorkerOptions]("any-worker", "least loaded; workers prefetch adapters for their queue (S-LoRA)", signals),
		of[rankAwareOptions]("rank-aware", "least added latency by rank within an SLO (CaraServe)", signals),
		of[planAndRouteOptions]("plan-and-route",
			"least added time; plans by an ILP over all workers move adapters and requests", planning).
			alias("period_mig"), // also dLoRA's name of a migration type, which is dlora_period_mig
		of[routeOnlyOptions]("route-only",
			"plan-and-route:move=none,place=off: its routing alone; no request moves, no adapter is placed", everything),
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

// of describes a built-in policy with options of type T.
func of[T any, P interface {
	*T
	Builder
}](name, summary string, facts Facts) Descriptor {
	d := Describe[T, P](name, summary)
	d.Facts = &facts
	return d
}

func (d Descriptor) preset(options string) Descriptor {
	d.Preset = options
	return d
}

func (d Descriptor) alias(names ...string) Descriptor {
	d.Aliases = names
	return d
}

// New returns the policy that a spec names, ready for one run. A spec is a name and options, such as "round-robin"
// or "affinity:variant=residency,kv=0". Errors name the policy and the option.
func New(spec string, env Env) (*Router, error) {
	if len(env.Workers) < 1 {
		return nil, fmt.Errorf("policy %s: no workers, expected at least one", spec)
	}
	s, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	if env.Context == nil {
		env.Context = context.Background()
	}
	fill(s.Given, s.Value, env)
	rt, err := s.Value.Build(env.unlimited())
	if err == nil {
		err = rt.check(s.Name, env)
	}
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", s.Name, err)
	}
	rt.Name = Canonical(spec)
	return rt, nil
}

// check says what a policy got wrong about itself.
func (rt *Router) check(name string, env Env) error {
	d := policies.catalog().named(name)
	switch {
	case rt == nil || rt.Policy == nil:
		return errors.New("Build returns no policy")
	case rt.Placement != nil && len(rt.Placement) != len(env.Workers):
		return fmt.Errorf("placement on %d workers, expected %d", len(rt.Placement), len(env.Workers))
	case d.Facts == nil:
		return nil
	case rt.Plans() && !d.Facts.Plans:
		return errors.New("it plans, but its Facts lack Plans")
	case (rt.ReadsKV || rt.ReadsPrefixes || rt.Prefetch) && !d.Facts.Signals:
		return errors.New("it reads the workers' state, but its Facts lack Signals")
	}
	return nil
}

// fill sets the options that are not given to what the environment says, if it says anything.
func fill(given settings.Given, to Builder, env Env) {
	settings.Fill(given, to, map[string]float64{"interval": env.Interval, "threshold": env.Threshold})
}

// CheckSpec returns an error if a spec is invalid, as far as that can be checked without workers.
func CheckSpec(spec string) error {
	_, err := parseSpec(spec)
	return err
}

// ParseOptions returns the options that a spec gives, as the struct of the policy's [Descriptor].
func ParseOptions(spec string) (Builder, error) {
	s, err := parseSpec(spec)
	return s.Value, err
}

func parseSpec(spec string) (settings.Spec[Builder], error) {
	return settings.Parse("policy", policies.catalog().kinds, Canonical(spec))
}

// tieOption says how to choose among equals.
type tieOption struct {
	Ties string `default:"random" check:"oneof random first" help:"among equals: random (seeded) or first"`
}

// rand returns the generator that picks among equals, or nil for the first.
func (o *tieOption) rand(env Env) *rand.Rand {
	if o.Ties == "first" {
		return nil
	}
	return newRand(env)
}

// newRand is [Env.Rand].
func newRand(env Env) *rand.Rand { return env.Rand() }

// Rand returns the random number generator of a policy, seeded by the seed of the run. The second word of the
// generator's seed separates it from other uses of the same seed.
func (e Env) Rand() *rand.Rand {
	const stream = 0x726f75746572 // "router"
	return rand.New(rand.NewPCG(e.Seed, stream))
}
