package router

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"lorasim/internal/bounds"
	"lorasim/internal/suggest"
)

// Descriptor describes a policy to people and to [New].
type Descriptor struct {
	Name    string   `json:"name"`
	Summary string   `json:"summary"` // one line
	Options []Option `json:"options,omitempty"`

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
	index := func(by, block, capacity string) []Option {
		return []Option{
			{"index", by, "what workers keep of prompts: sent (what the router sent them) " +
				"or reported (by them, where they do; else sent)"},
			{"block", block, "tokens that are told apart, >= 1"},
			{"capacity", capacity, "tokens that the index holds for each worker, the latest; 0: no limit"},
		}
	}
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
		{"cache-aware", "the worker with the longest match of the prompt, least loaded where it is short (sglang)",
			append([]Option{
				{"threshold", "0.3", "share of the prompt that must match"},
				{"abs", "64", "requests by which loads may differ ..."},
				{"rel", "1.5", "... or the factor; beyond both the least loaded worker is taken"},
				{"cold", "least-loaded", "where little matches: least-loaded, or the worker with the smallest-tree"},
				{"lora", "false", "true: adapters do not share prefixes"},
			}, index("sent", "1", "16777216")...), newCacheAware},
		{"prefix-scorer", "best weighted score of matched prefix, queue, KV cache and adapter (llm-d, Gateway API)",
			append([]Option{
				{"prefix", "3", "weight of the matched share of the prompt"},
				{"variant", "score", "residency table: score or residency"},
				{"lora", "0", "weight of the adapter's residency"},
				{"queue", "2", "weight of a short queue"},
				{"kv", "2", "weight of free KV cache"}, ties,
			}, index("sent", "64", "2000000")...), newPrefixScorer},
		{"kv-router", "least prefill blocks that do not match + blocks in use (Dynamo)", append([]Option{
			{"scale", "1", "weight of the prefill blocks"},
			{"credit", "1", "prefill blocks that a matched block saves"}, ties,
		}, index("reported", "16", "16777216")...), newKVRouter},
		{"prefix-hash", "consistent hash of the prompt's beginning, least loaded above a bound (sglang)", []Option{
			{"tokens", "256", "tokens of the prompt that are hashed"},
			{"c", "1.25", "largest load of a worker, as a multiple of the mean, >= 1"},
		}, newPrefixHash},
		{"k-shard", "least loaded of k hashed workers; k follows the load", []Option{
			{"k", "1", "workers of an adapter at first and at least"},
			{"max", "0", "workers of an adapter at most; 0: all"},
			{"high", "1", "k grows above this load, in requests / max running requests"},
			{"low", "0.5", "k shrinks below this load, < high"},
			{"grow-every", "1", "s between a change of k and growing it"},
			{"shrink-every", "30", "s between a change of k and shrinking it"},
		}, newKShard},
		{"any-worker", "least loaded; workers prefetch adapters for their queue (S-LoRA)", []Option{
			ties,
		}, newAnyWorker},
		{"rank-aware", "least added latency by rank within an SLO (CaraServe)", []Option{
			{"slo", "auto", "longest decode step, ms; auto: 1.5 x a step of one request; none: no limit"},
			{"avg-output", "auto", "mean output tokens of a request; auto: the mean so far, by adapter"},
		}, newRankAware},
		{"period_mig", "least added time; every interval an ILP over all workers moves adapters and requests", []Option{
			{"move", "all", "requests that may go to another worker: all, waiting, running or none"},
			{"place", "on", "on: plans load and unload adapters; off: adapters are loaded on demand only"},
			{"interval", "10", "s between plans, which place adapters and move requests"},
			{"busy", "0.5", "share of the horizon that the busiest worker's work must fill before anything moves"},
			{"margin", "0.05", "share of the predicted time that a plan must gain"},
			{"horizon", "auto", "s of forecast demand that a plan provides for; auto: the interval"},
			{"max-moves", "64", "requests that a plan moves at most; 0: any number"},
			{"look", "0.25", "s between moves of waiting requests, at most the interval"},
			{"spill", "0.1", "share of a request's time by which a worker without the adapter must be better"},
		}, newPeriodMig},
		{"route-only", "period_mig:move=none,place=off: its routing alone; no request moves, no adapter is placed",
			[]Option{
				{"spill", "0.1", "share of a request's time by which a worker without the adapter must be better"},
			}, newRouteOnly},
		{"auto", "chooses among policies while it runs, by simulating them on a twin of the cluster", []Option{
			{"candidates", autoCandidates, "policies, joined by +; the first one begins"},
			{"objective", "all", "what is to be small: all (E2E, TTFT and P99 TTFT), e2e, ttft, p99-ttft or goodput"},
			{"max-ttft", "0", "goodput: largest TTFT, ms; 0: any"},
			{"max-tpot", "0", "goodput: largest TPOT, ms; 0: any"},
			{"max-e2e", "0", "goodput: largest E2E latency, ms; 0: any"},
			{"window", "2048", "requests that it remembers"},
			{"every", "1024", "requests between races, at most"},
			{"margin", "0.02", "least gain for a change, as a share of the objective"},
			{"budget", "4", "requests simulated per request; one with plans counts twice"},
			{"profile-error", "0%", "share by which the twin's step times are wrong on purpose"},
		}, newAuto},
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
		{"dispatch_only", "dLoRA: greedy placement, least dispatch cost among the adapter's workers",
			nil, newDispatchOnly},
		{"dispatch_mig", "dLoRA: also workers where the adapter can take an idle one's place", nil, newDispatchMig},
		{"dlora_period_mig", "dLoRA: dispatch_only, and periodically its migration ILP for two workers", []Option{
			{"interval", "10", "s between looks"},
			{"threshold", "16", "requests above the mean that trigger a plan"},
		}, newDLoRAPeriodMig},
	}
}

// Words are the values of an option that takes words, such as move; nil: it takes
// others.
func Words(option string) []string {
	switch option {
	case "move":
		return []string{"all", "waiting", "running", "none"}
	case "place":
		return []string{"on", "off"}
	case "ties":
		return []string{"random", "first"}
	}
	return nil
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
	rt, err := d.build(o, env.unlimited())
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
	var names []string
	for _, d := range List() {
		if names = append(names, d.Name); d.Name == name {
			o, err := parseOptions(&d, rest, hasOptions)
			if err != nil {
				return nil, nil, fmt.Errorf("policy %s: %w", name, err)
			}
			return &d, o, nil
		}
	}
	return nil, nil, suggest.Unknown("policy", name, names)
}

// options are the options of one spec. A getter that finds a bad value keeps
// the first error in err and returns the default, so that constructors need
// not check each of them.
type options struct {
	d      *Descriptor
	values map[string]string
	err    error
}

func parseOptions(d *Descriptor, s string, given bool) (*options, error) {
	o := &options{d: d, values: make(map[string]string)}
	if !given {
		return o, nil
	}
	last := ""
	for piece := range strings.SplitSeq(s, ",") {
		key, value, ok := strings.Cut(piece, "=")
		if !ok && last != "" {
			o.values[last] += "," + piece
			continue
		}
		key = strings.TrimSpace(key)
		if !ok || key == "" {
			return nil, fmt.Errorf("%q is not an option, expected key=value", piece)
		}
		var known []string
		for _, o := range d.Options {
			known = append(known, o.Name)
		}
		if err := suggest.Among("option", key, known); err != nil {
			return nil, err
		}
		if _, twice := o.values[key]; twice {
			return nil, fmt.Errorf("option %s is given twice", key)
		}
		o.values[key], last = value, key
	}
	for key, value := range o.values {
		o.values[key] = strings.TrimSpace(value)
	}
	return o, nil
}

// text returns the option's value, or its default.
func (o *options) text(name string) string {
	if v, ok := o.values[name]; ok {
		return v
	}
	return o.fallback(name)
}

func (o *options) fallback(name string) string {
	for _, opt := range o.d.Options {
		if opt.Name == name {
			return opt.Default
		}
	}
	panic("router: policy " + o.d.Name + " has no option " + name)
}

// bad notes that an option's value is not what was expected.
func (o *options) bad(name, expected string) {
	if o.err == nil {
		o.err = fmt.Errorf("option %s is %q, expected %s", name, o.text(name), expected)
	}
}

// number returns an option that is a number in the bounds (internal/bounds). The
// caller has ruled out the words that may stand there instead.
func (o *options) number(name, in string, words ...string) float64 {
	v, err := strconv.ParseFloat(o.text(name), 64)
	if b := bounds.MustParse(in); err != nil || !b.Has(v) {
		o.bad(name, strings.Join(append([]string{"a number " + b.String()}, words...), " or "))
		v, _ = strconv.ParseFloat(o.fallback(name), 64)
	}
	return v
}

// numberOr is number, but where the option is not given it is what the
// environment says, if it says anything.
func (o *options) numberOr(env float64, name, in string) float64 {
	if _, given := o.values[name]; !given && env != 0 {
		return env
	}
	return o.number(name, in)
}

// percent returns an option that is a percentage from 0 % to below 100 %, as a share.
func (o *options) percent(name string) float64 {
	v, err := strconv.ParseFloat(strings.TrimSuffix(o.text(name), "%"), 64)
	if err != nil || !(v >= 0 && v < 100) {
		o.bad(name, "a percentage from 0% to below 100%")
		return 0
	}
	return v / 100
}

// integer returns an option that is an integer in [lo, hi]; math.MaxInt is no
// limit.
func (o *options) integer(name string, lo, hi int) int {
	v, err := strconv.Atoi(o.text(name))
	if err != nil || v < lo || v > hi {
		expected := fmt.Sprintf("an integer from %d to %d", lo, hi)
		if hi == math.MaxInt {
			expected = fmt.Sprintf("an integer >= %d", lo)
		}
		o.bad(name, expected)
		v, _ = strconv.Atoi(o.fallback(name))
	}
	return v
}

// choice returns an option that is one of the given words.
func (o *options) choice(name string, words ...string) string {
	if v := o.text(name); slices.Contains(words, v) {
		return v
	}
	o.bad(name, strings.Join(words, " or "))
	return o.fallback(name)
}

// ties returns the generator that picks among equals, or nil for the first.
func (o *options) ties(env Env) *rand.Rand {
	if o.choice("ties", Words("ties")...) == "first" {
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
