package router

import (
	"fmt"
	"math/rand/v2"

	"lorasim/trace/settings"
)

// Descriptor describes a policy to people and to [New].
type Descriptor struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"`           // one line
	Options []Option `json:"options,omitempty"` // as New's struct says; filled in by [List]
	// Aliases are other names of the policy, the oldest first; filled in by [List]. [New] takes them; all that is
	// printed has the policy's own name ([Canonical]).
	Aliases []string `json:"aliases,omitempty"`

	// Preset are defaults, "option=value,...", that differ from those of the struct's tags.
	Preset string `json:"-"`
	// New returns a pointer to the policy's options: a struct with the tags of internal/settings.
	New func() Builder `json:"-"`
}

// Builder is a pointer to the options of a policy. Build makes the policy once they are set.
type Builder interface {
	Build(env Env) (*Router, error)
}

// Option is one option of a policy.
type Option struct {
	Name    string
	Default string   // "": none
	Doc     string   // one line, with the unit
	Words   []string `json:",omitempty"` // all that it takes; nil: numbers, or any text
}

// registry holds every policy, in the order in which to show them.
func registry() []Descriptor {
	return []Descriptor{
		of[staticOptions]("static", "adapter index modulo workers"),
		of[staticBlockOptions]("static-block", "contiguous blocks of ceil(adapters/workers) adapters per worker"),
		of[explicitOptions]("explicit", "a table of adapters and their workers"),
		of[randomOptions]("random", "any worker, with equal chance"),
		of[roundRobinOptions]("round-robin", "one worker after the other"),
		of[hashOptions]("hash", "highest random weight over (adapter, worker)"),
		of[boundedHashOptions]("bounded-hash", "as hash, but passes over workers loaded above c x mean"),
		of[leastLoadedOptions]("least-loaded", "fewest requests, running and waiting"),
		of[p2cOptions]("p2c", "the less loaded of two random workers"),
		of[leastTokensOptions]("least-tokens", "fewest outstanding tokens (prompt + expected output)"),
		of[weightedQueueOptions]("weighted-queue", "least weight x waiting + running requests"),
		of[affinityOptions]("affinity", "best weighted score of adapter residency, queue and KV cache"),
		of[affinitySpillOptions]("affinity-spill",
			"least loaded worker with the adapter and a short queue, else least loaded"),
		of[cacheAwareOptions]("cache-aware",
			"the worker with the longest match of the prompt, least loaded where it is short (sglang)"),
		of[prefixScorerOptions]("prefix-scorer",
			"best weighted score of matched prefix, queue, KV cache and adapter (llm-d, Gateway API)").
			preset("lora=0,queue=2,kv=2,block=64,capacity=2000000"),
		of[kvRouterOptions]("kv-router", "least prefill blocks that do not match + blocks in use (Dynamo)").
			preset("index=reported,block=16"),
		of[prefixHashOptions]("prefix-hash",
			"consistent hash of the prompt's beginning, least loaded above a bound (sglang)"),
		of[kShardOptions]("k-shard", "least loaded of k hashed workers; k follows the load"),
		of[anyWorkerOptions]("any-worker", "least loaded; workers prefetch adapters for their queue (S-LoRA)"),
		of[rankAwareOptions]("rank-aware", "least added latency by rank within an SLO (CaraServe)"),
		of[planAndRouteOptions]("plan-and-route",
			"least added time; plans by an ILP over all workers move adapters and requests"),
		of[routeOnlyOptions]("route-only",
			"plan-and-route:move=none,place=off: its routing alone; no request moves, no adapter is placed"),
		of[autoOptions]("auto", "chooses among policies while it runs, by simulating them on a twin of the cluster"),
		of[rankGroupOptions]("rank-group", "adapters of like rank together, groups of equal demand (LoRAServe)"),
		of[minCostOptions]("min-cost-flow", "replicas by load share, placed by minimum-cost flow (Dynamo)"),
		of[llumnixOptions]("llumnix",
			"moves requests from the worker with the least free KV per request to that with the most"),
		of[dispatchOnlyOptions]("dispatch_only",
			"dLoRA: greedy placement, least dispatch cost among the adapter's workers"),
		of[dispatchMigOptions]("dispatch_mig", "dLoRA: also workers where the adapter can take an idle one's place"),
		of[dloraPeriodMigOptions]("dlora_period_mig",
			"dLoRA: dispatch_only, and periodically its migration ILP for two workers"),
	}
}

// of describes a policy with options of type T.
func of[T any, P interface {
	*T
	Builder
}](name, summary string) Descriptor {
	return Descriptor{Name: name, Summary: summary, New: func() Builder { return P(new(T)) }}
}

func (d Descriptor) preset(options string) Descriptor {
	d.Preset = options
	return d
}

// kinds are the policies as package settings knows them.
func kinds() []settings.Kind[Builder] {
	var ks []settings.Kind[Builder]
	for _, d := range registry() {
		ks = append(ks, settings.Kind[Builder]{Name: d.Name, Summary: d.Summary, Preset: d.Preset, New: d.New})
	}
	return ks
}

// Forms are the forms of a spec, for YAML, JSON Schema and the reference.
func Forms() []settings.Form { return settings.Forms(kinds()) }

// List returns every policy with its options, in the order in which to show them.
func List() []Descriptor {
	list, forms := registry(), Forms()
	for i := range list {
		list[i].Aliases = aliases[list[i].Name]
		for _, f := range forms[i].Fields() {
			list[i].Options = append(list[i].Options, Option{f.Key, f.Default, f.Help, f.Enum()})
		}
	}
	return list
}

// New makes a policy from a spec such as "round-robin" or
// "affinity:variant=residency,kv=0".
func New(spec string, env Env) (*Router, error) {
	if len(env.Workers) < 1 {
		return nil, fmt.Errorf("policy %s: no workers, expected at least one", spec)
	}
	s, err := parseSpec(spec)
	if err != nil {
		return nil, err
	}
	fill(s.Given, s.Value, env)
	rt, err := s.Value.Build(env.unlimited())
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", s.Name, err)
	}
	rt.Name = Canonical(spec)
	return rt, nil
}

// fill sets the options that are not given to what the environment says, if it says anything.
func fill(given settings.Given, to Builder, env Env) {
	settings.Fill(given, to, map[string]float64{"interval": env.Interval, "threshold": env.Threshold})
}

// CheckSpec says what is wrong with a spec, as far as that can be told without workers.
func CheckSpec(spec string) error {
	_, err := parseSpec(spec)
	return err
}

func parseSpec(spec string) (settings.Spec[Builder], error) {
	return settings.Parse("policy", kinds(), Canonical(spec))
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

// newRand returns the generator of a policy. The second word keeps it apart
// from other users of the same seed.
func newRand(env Env) *rand.Rand {
	const stream = 0x726f75746572 // "router"
	return rand.New(rand.NewPCG(env.Seed, stream))
}
