package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/sim/profile"
)

// generatorAttempts is the largest number of draws of one scenario, if draws cannot run.
const generatorAttempts = 50

// Generate draws scenario number index of a seed. The scenario does not depend on the number of
// drawn scenarios. A draw that cannot run is replaced by the next one: the adapters do not fit, or
// workers can never serve more than 1 % of the requests. sustained is the rate that simple policies
// sustain, requests/s.
func Generate(ctx context.Context, seed uint64, index int) (sc *scenario.Scenario, sustained float64, err error) {
	var last error
	for attempt := range generatorAttempts {
		rng := rand.New(rand.NewPCG(seed, uint64(index)<<16|uint64(attempt)))
		sc, err := drawScenario(ctx, rng, func(sc scenario.Scenario) (rate float64, err error) {
			sustained, err = sustainable(ctx, sc)
			return sustained, err
		})
		if err == nil {
			err = runs(ctx, *sc)
		}
		if err == nil {
			return sc, sustained, nil
		}
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		last = err
	}
	return nil, 0, fmt.Errorf("scenario %d of seed %d: none of %d draws can run, the last: %w",
		index, seed, generatorAttempts, last)
}

// drawer sets random values of a scenario. It keeps the first error.
type drawer struct {
	*rand.Rand
	sc  scenario.Scenario
	err error
}

// set sets a setting to a value, formatted with %v.
func (d *drawer) set(key string, value any) {
	if err := d.sc.Set(key, fmt.Sprint(value)); err != nil && d.err == nil {
		d.err = err
	}
}

// chance returns true with probability p.
func (d *drawer) chance(p float64) bool { return d.Float64() < p }

// between returns a uniform value in [low, high).
func (d *drawer) between(low, high float64) float64 { return low + (high-low)*d.Float64() }

// pick returns one of the choices; repeat one to make it more likely.
func pick[T any](d *drawer, choices ...T) T { return choices[d.IntN(len(choices))] }

// number formats a number with three digits.
func number(x float64) string { return strconv.FormatFloat(rounded(x, 3), 'f', -1, 64) }

// rounded rounds x to the given number of digits.
func rounded(x float64, digits int) float64 {
	y, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	return y
}

// drawScenario draws one scenario. Its rate is a share of the rate that the cluster sustains.
func drawScenario(ctx context.Context, rng *rand.Rand,
	sustains func(scenario.Scenario) (float64, error)) (*scenario.Scenario, error) {
	d := &drawer{Rand: rng, sc: scenario.Default()}
	d.set("seed", 1)
	d.set("num_prompts", 100*(15+d.IntN(46)))
	d.cluster()
	if d.err != nil {
		return nil, d.err
	}
	ps, err := d.sc.Profiles(ctx)
	if err != nil {
		return nil, err
	}
	d.adapters(ps)
	d.requests(ps)
	d.memory()
	if d.err != nil {
		return nil, d.err
	}
	share := d.between(0.4, 1.1)
	sustained, err := sustains(d.sc)
	if err != nil {
		return nil, err
	}
	rate := rounded(share*sustained, 4)
	d.set("request_rate", rate)
	d.overTime(float64(d.sc.Workload.NumPrompts.Value) / rate)
	return &d.sc, d.err
}

// engines returns the embedded profiles of current engines. S-LoRA's is left out: it has no adapter
// slots, and few settings fit it. The order is that of their oldest names, so that a seed draws the
// same scenarios after a profile is renamed.
func engines() []string {
	names := slices.DeleteFunc(profile.Names(), func(name string) bool {
		p, err := profile.Embedded(name)
		return err != nil || p.Engine.Scheduler == profile.SchedulerSLoRA
	})
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(profile.Oldest(a), profile.Oldest(b)) })
	return names
}

// measured are the profiles of measured engines, which are drawn more often than the others.
var measured = []string{
	"llama-2-7b-rtx-4090-sglang-0.5", "llama-3.1-8b-h100-64gb-vllm-0.8.5", "qwen2.5-7b-h100-64gb-vllm-0.8.5",
}

// cluster draws the workers.
func (d *drawer) cluster() {
	workers := pick(d, 2, 3, 4, 4, 6, 8, 8, 12, 16, 24, 32)
	d.set("num_workers", workers)
	one := func() string {
		if d.chance(0.55) {
			return pick(d, append(engines(), measured...)...)
		}
		return fmt.Sprintf("analytic:%s,%s", pick(d, profile.Architectures()...).Name, pick(d, profile.GPUs()...).Name)
	}
	name := one()
	if other := one(); workers >= 4 && d.chance(0.1) {
		name = fmt.Sprintf("%s*%d,%s*%d", name, workers/2, other, workers-workers/2)
	}
	d.set("profile", name)
	if d.chance(0.25) {
		d.set("scheduler", pick(d, "sglang", "vllm"))
	}
	if d.chance(0.05) {
		d.set("head_of_line", "block")
	}
	if d.chance(0.1) {
		d.set("adapter_loading", "overlapped")
	}
}

// adapters draws the adapters and their popularity.
func (d *drawer) adapters(ps []*profile.Profile) {
	d.set("num_adapters", pick(d, 4, 8, 16, 32, 64, 128, 256, 500))
	if slots := pick(d, 0, 0, 2, 4, 8, 16, 32, 64); slots > 0 {
		d.set("max_loras_per_batch", slots)
	}
	most := ps[0].Engine.MaxLoraRank
	for _, p := range ps {
		most = min(most, p.Engine.MaxLoraRank)
	}
	ranks := slices.DeleteFunc([]string{"8", "16", "32", "64", "8,16", "8,16,32,64", "16,64", "drawn:8=3,64=1"},
		func(text string) bool {
			fields := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ':' || r == '=' })
			return slices.ContainsFunc(fields, func(f string) bool {
				n, err := strconv.Atoi(f)
				return err == nil && n > most
			})
		})
	if len(ranks) > 0 && d.chance(0.8) {
		d.set("lora_ranks", pick(d, ranks...))
	}
	d.set("popularity", pick(d, "zipf", "zipf", "zipf:0.5", "zipf:1.2", "zipf:1.5", "zipf:2", "uniform", "uniform",
		"powerlaw:0.3", "powerlaw:1", "maf2", "maf2"))
	if d.chance(0.07) {
		d.set("locality", pick(d, "0.5,4", "0.8,4", "0.8,16"))
	}
	if d.chance(0.25) {
		d.set("adapter_home", "remote")
	}
}

// requests draws the lengths and the arrivals of requests.
func (d *drawer) requests(ps []*profile.Profile) {
	context := ps[0].Engine.ContextLength
	for _, p := range ps {
		context = min(context, p.Engine.ContextLength)
	}
	lengths := pick(d, "auto", "auto", "sharegpt", "azure-conv", "azure-code", "constant:50,10", "constant:300,100",
		"constant:1500,200", "copula:sharegpt-v3", "sharegpt-llama3", "lognormal")
	if lengths == "lognormal" {
		lengths = fmt.Sprintf("lognormal:prompt_mean=%d,prompt_sigma=1,output_mean=%d,output_sigma=0.8",
			pick(d, 100, 500, 1000), pick(d, 20, 100, 300))
	}
	d.set("lengths", lengths)
	d.set("arrivals", pick(d, "exponential", "exponential", "total-exponential", "gamma:2", "gamma:6",
		"total-gamma:3", "weibull:2", "gamma:4", "deterministic"))
	d.set("max_new_tokens", pick(d, "auto", "auto", "exact", "x1.5", "2048"))
	switch {
	case d.chance(0.25):
		d.conversations(context)
	case d.chance(0.15):
		d.set("sessions", fmt.Sprintf(pick(d, "zipf:m=%d", "copy:m=%d"), pick(d, 2, 8, 32, 128)))
		d.set("popularity", "zipf") // the default: sessions have laws of their own
		d.set("arrivals", "exponential")
	}
}

// conversations draws a law of conversations that fits a context length.
func (d *drawer) conversations(context int) {
	spec := pick(d, "chat", "chat:shared=1", "chat:think=30,turns=6")
	if context >= 32768 {
		spec = pick(d, spec, "documents:context=30000", "agents:turns=10,turns_sigma=0,system=3000,context=30000",
			"agents:turns=20,think=5,system=6000,context=30000")
	}
	d.set("conversations", spec)
	d.set("lengths", "auto")
	d.set("max_new_tokens", "auto")
	if d.chance(0.85) {
		d.set("prefix_cache", true)
	}
}

// memory draws the adapters that a worker's host memory holds.
func (d *drawer) memory() {
	c := &d.sc.Cluster
	if d.chance(0.5) {
		return
	}
	slots := c.Engine.MaxLorasPerBatch
	if slots == 0 {
		slots = 32
	}
	if n := slots * pick(d, 1, 1, 2, 4); n < d.sc.Workload.NumAdapters.Value || d.chance(0.3) {
		d.set("max_loaded_loras", n)
	}
}

// overTime draws the changes within a run of the given length, s.
func (d *drawer) overTime(seconds float64) {
	part := func(low, high float64) string { return number(d.between(low, high) * seconds) }
	if d.chance(0.25) {
		d.set("pattern", pick(d,
			fmt.Sprintf("diurnal:%s,%s", part(0.2, 1), number(d.between(0.3, 0.9))),
			fmt.Sprintf("on-off:%s,%s,%d", part(0.02, 0.1), part(0.02, 0.2), pick(d, 2, 3, 4)),
			fmt.Sprintf("flash:%s,%s,%d", part(0.2, 0.6), part(0.03, 0.15), pick(d, 2, 4, 8))))
	}
	if d.chance(0.15) {
		d.set("drift", part(0.05, 0.3))
	}
	if d.chance(0.25) {
		d.set("view_staleness", pick(d, "0.2", "1", "2", "5"))
	}
	workers := d.sc.Cluster.NumWorkers.Value
	if d.chance(0.12) {
		from := d.between(0.1, 0.6) * seconds
		d.set("outages", fmt.Sprintf("%d@%s-%s", d.IntN(workers), number(from),
			number(from+d.between(0.05, 0.3)*seconds)))
	}
	if !d.chance(0.12) {
		return
	}
	elastic := fmt.Sprintf("min=%d,max=%d,cold_start=%d,rule=", (workers+1)/2, min(2*workers, 48), pick(d, 5, 20, 60))
	d.set("elastic", elastic+pick(d,
		fmt.Sprintf("reactive,target=%d", pick(d, 5, 10, 20)),
		fmt.Sprintf("forecast,target=%d", pick(d, 5, 10, 20)),
		fmt.Sprintf("schedule,times=%s=%d+%s=%d", part(0.2, 0.4), (workers+1)/2, part(0.5, 0.8), workers)))
}

// Command returns the scenario as arguments of lorasim sim, without policy and seed.
func Command(sc *scenario.Scenario) string {
	base := scenario.Default()
	var parts, engine []string
	for _, f := range scenario.Fields() {
		v := f.Get(sc)
		switch {
		case f.Section == scenario.EngineSection && f.Flag == "":
			if v != f.Get(&base) {
				engine = append(engine, f.Leaf()+"="+v)
			}
		case f.Flag == "" || f.Key == "seed" || f.Key == "routing.policy" || v == f.Get(&base):
		case f.Type() == "bool":
			parts = append(parts, "--"+f.Flag+"="+v)
		case strings.ContainsAny(v, "* "):
			parts = append(parts, fmt.Sprintf("--%s '%s'", f.Flag, v))
		default:
			parts = append(parts, "--"+f.Flag+" "+v)
		}
	}
	if len(engine) > 0 {
		parts = append(parts, "--"+engineArgs+" "+strings.Join(engine, ","))
	}
	return strings.Join(parts, " ")
}

// engineArgs is the flag for the keys of the engine.
const engineArgs = "engine-args"

// ParseCommand parses the output of [Command].
func ParseCommand(text string) (*scenario.Scenario, error) {
	sc := scenario.Default()
	words := strings.Fields(text)
	for i := 0; i < len(words); i++ {
		flag, value, ok := strings.Cut(strings.TrimPrefix(words[i], "--"), "=")
		if !ok {
			if i++; i == len(words) {
				return nil, fmt.Errorf("--%s has no value", flag)
			}
			value = words[i]
		}
		if flag == engineArgs {
			if err := sc.EngineArgs(value); err != nil {
				return nil, err
			}
			continue
		}
		f, err := byFlag(flag)
		if err != nil {
			return nil, err
		}
		if err := f.Set(&sc, strings.Trim(value, "'")); err != nil {
			return nil, err
		}
	}
	return &sc, nil
}

// byFlag returns the setting of a flag.
func byFlag(flag string) (scenario.Field, error) {
	all := scenario.Fields()
	if i := slices.IndexFunc(all, func(f scenario.Field) bool { return f.Flag == flag }); i >= 0 {
		return all[i], nil
	}
	return scenario.Field{}, fmt.Errorf("there is no setting --%s", flag)
}
