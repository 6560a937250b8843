package profile

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"lorasim/router"
)

// Intervals holds the ranges of measured over predicted values in a profile's held-out runs, and describes
// these runs. It says nothing about runs that differ from them; see [Intervals.Compare].
type Intervals struct {
	// Of is the fingerprint of the validated profile. Intervals do not apply to a profile that was changed
	// since.
	Of       string   `yaml:"of" json:"of"`
	Workers  int      `yaml:"workers" json:"workers"`                            // the largest number of a run
	Policies []string `yaml:"policies,flow,omitempty" json:"policies,omitempty"` // none: runs with one worker
	Workload Workload `yaml:"workload,flow" json:"workload"`
	// Settings lists the values of settings that differ in some of the runs from the profile, by keys such as
	// "engine.max_loras_per_batch". Of numbers it holds the least and the largest.
	Settings map[string][]string `yaml:"settings,omitempty" json:"settings,omitempty"`
	Bands    []Band              `yaml:"bands" json:"bands"`
}

// A Workload describes the requests of the runs: for each quantity its extremes over the runs.
type Workload struct {
	Requests int        `yaml:"requests" json:"requests"`                // the least number of a run
	Adapters int        `yaml:"adapters" json:"adapters"`                // the largest number of a run
	Prompt   [2]float64 `yaml:"prompt_tokens,flow" json:"prompt_tokens"` // in the mean
	Output   [2]float64 `yaml:"output_tokens,flow" json:"output_tokens"`
	// Window says that the runs ended after a fixed time, and that unfinished requests were not counted.
	Window bool `yaml:"window,omitempty" json:"window,omitempty"`
}

// alike and related are limits of factors between a run's workload and the validated runs. Up to alike bands
// apply unchanged, up to related they are widened, beyond there are none.
const alike, related = 2, 4

// widening is the factor by which bands of extrapolated runs grow on a logarithmic scale; see
// lab/docs/intervals.md for its test.
const widening = 2

// A Band is the range of measured over predicted values of one metric, in runs of one class of load.
type Band struct {
	Metric string `yaml:"metric" json:"metric"` // key of the metric in a result
	// Waiting is the class of load: the share of their time that the requests of the prediction wait, from
	// Waiting[0] to below Waiting[1].
	Waiting [2]float64 `yaml:"waiting,flow" json:"waiting"`
	Runs    float64    `yaml:"runs" json:"runs"` // number of runs; a run with draws in several classes counts in part
	// Half is the range of half of the runs, and Most of the share Level of them, with an allowance for the small
	// number of runs. nil: too few runs.
	Half  *[2]float64 `yaml:"half,flow,omitempty" json:"half,omitempty"`
	Most  *[2]float64 `yaml:"most,flow,omitempty" json:"most,omitempty"`
	Level float64     `yaml:"level,omitempty" json:"level,omitempty"` // 0.9, or less with few runs
}

// At returns the bands for the given share of waiting, from 0 to 1.
func (in *Intervals) At(waiting float64) []Band {
	return slices.DeleteFunc(slices.Clone(in.Bands), func(b Band) bool {
		return waiting < b.Waiting[0] ||
			waiting >= b.Waiting[1] && b.Waiting[1] < 1
	})
}

func (in *Intervals) check() error {
	if in == nil {
		return nil
	}
	for i, b := range in.Bands {
		w := b.Waiting
		if b.Metric == "" || !(b.Runs > 0) || !(w[0] >= 0 && w[0] < w[1]) {
			return fmt.Errorf("intervals.bands: entry %d: expected a metric, runs > 0 and waiting [FROM, BELOW]", i+1)
		}
		if b.Most != nil && !(b.Level > 0 && b.Level < 1) {
			return fmt.Errorf("intervals.bands: entry %d: level %v, expected that of most, above 0 and below 1", i+1,
				b.Level)
		}
		for _, r := range []*[2]float64{b.Half, b.Most} {
			if r != nil && !(r[0] > 0 && r[0] <= r[1] && r[1] < 1e6) {
				return fmt.Errorf("intervals.bands: entry %d: %v, expected [LOW, HIGH] of measured over predicted with 0 < LOW <= HIGH", i+1, *r)
			}
		}
	}
	return nil
}

// A ValidatedRun describes a measured run, or a run to compare with the measured ones.
type ValidatedRun struct {
	Workers  int
	Policy   string   // router policy; not used with one worker
	Profile  *Profile // profile with the settings of the run
	Requests int
	Adapters int
	Prompt   float64 // mean over requests, tokens
	Output   float64 // mean over requests, tokens
	Window   bool    // see [Workload]
}

// NewIntervals returns the intervals of a profile validated with the given runs, still without bands.
func NewIntervals(base *Profile, runs []ValidatedRun) *Intervals {
	in := &Intervals{Of: fingerprint(base), Settings: map[string][]string{}}
	had := map[string][]string{}
	add := func(list []string, v string) []string {
		if v == "" || slices.Contains(list, v) {
			return list
		}
		return append(list, v)
	}
	w := &in.Workload
	for i, r := range runs {
		if i == 0 {
			*w = Workload{Requests: r.Requests, Prompt: [2]float64{r.Prompt, r.Prompt},
				Output: [2]float64{r.Output, r.Output}, Window: r.Window}
		}
		w.Requests, w.Adapters = min(w.Requests, r.Requests), max(w.Adapters, r.Adapters)
		w.Prompt, w.Output = within(w.Prompt, r.Prompt), within(w.Output, r.Output)
		in.Workers = max(in.Workers, r.Workers)
		in.Policies = add(in.Policies, policyName(r.Policy))
		for key, v := range settings(r.Profile) {
			had[key] = add(had[key], v)
		}
	}
	slices.Sort(in.Policies)
	for key, v := range settings(base) {
		values := had[key]
		if strings.HasPrefix(key, "adapters.") || !slices.ContainsFunc(values, func(h string) bool { return h != v }) {
			continue
		}
		if !slices.ContainsFunc(values, func(h string) bool { return math.IsNaN(number(h)) }) {
			byNumber := func(a, b string) int { return cmp.Compare(number(a), number(b)) }
			values = []string{slices.MinFunc(values, byNumber), slices.MaxFunc(values, byNumber)}
		}
		in.Settings[key] = values
	}
	return in
}

// policyName returns the name of the policy in a spec, without options. Files of older versions contain
// aliases.
func policyName(spec string) string {
	name, _, _ := strings.Cut(router.Canonical(spec), ":")
	return name
}

// within extends a range to contain x, in whole tokens.
func within(r [2]float64, x float64) [2]float64 {
	return [2]float64{math.Floor(min(r[0], x)), math.Ceil(max(r[1], x))}
}

// number returns the value of a setting as a number; NaN: it is not a number.
func number(v string) float64 {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// Widened returns the band for an extrapolated run; see [Intervals.Compare]. On a logarithmic scale, each
// bound is widening times as far from the prediction, and the prediction is always within. So the result is
// never narrower.
func (b Band) Widened() Band {
	wider := func(r *[2]float64) *[2]float64 {
		if r == nil {
			return nil
		}
		return &[2]float64{math.Pow(min(r[0], 1), widening), math.Pow(max(r[1], 1), widening)}
	}
	b.Half, b.Most = wider(b.Half), wider(b.Most)
	return b
}

// Compare lists the differences between a run, with a profile made from base, and the validated runs.
// extrapolated lists differences for which widened bands apply (see [Band.Widened]): choices of routers and
// schedulers, which the simulator makes by the same rules, and similar workloads. refused lists differences
// for which there are no bands, each as a whole sentence.
func (in *Intervals) Compare(r ValidatedRun, base *Profile) (extrapolated, refused []string) {
	if in.Of != fingerprint(base) {
		return nil, []string{"Profile " + base.Name + " was changed after its validation: compare it with measured runs again (lorasim profile check, lorasim profile fit)."}
	}
	beyond := func(format string, args ...any) { extrapolated = append(extrapolated, fmt.Sprintf(format, args...)) }
	refuse := func(format string, args ...any) { refused = append(refused, fmt.Sprintf(format, args...)) }
	if r.Workers > in.Workers {
		beyond("%d workers (validated with %d)", r.Workers, in.Workers)
	}
	policy := policyName(r.Policy)
	validated := func(p string) bool { return policyName(p) == policy }
	if r.Workers > 1 && !slices.ContainsFunc(in.Policies, validated) {
		beyond("policy %s (validated with %s)", policy, cmp.Or(strings.Join(in.Policies, ", "),
			"one worker, without routing"))
	}
	w := in.Workload
	switch {
	case r.Window && !w.Window:
		beyond("a run that ends after its window (validated with runs until all requests end)")
	case w.Window && !r.Window:
		beyond("a run until all requests end (validated with runs that end after a window)")
	}
	switch {
	case w.Adapters == 0 && r.Adapters > 0:
		refuse("The run has adapters, and no validated run had any.")
	case r.Adapters > w.Adapters*alike:
		beyond("%d adapters (validated with %d)", r.Adapters, w.Adapters)
	}
	switch {
	case r.Requests*related < w.Requests:
		refuse("The run has %d requests, less than a quarter of the %d of the shortest validated run.", r.Requests,
			w.Requests)
	case r.Requests*alike < w.Requests:
		beyond("%d requests (validated with %d and more)", r.Requests, w.Requests)
	}
	lengths := func(what string, mean float64, of [2]float64) {
		// 0: no request succeeded
		far := func(times float64) bool { return mean > 0 && mean*times < of[0] || mean > of[1]*times }
		switch {
		case far(related):
			refuse("The mean %s has %.0f tokens, more than %d times off the %.0f to %.0f of the validated runs.", what,
				mean, related, of[0], of[1])
		case far(alike):
			beyond("a mean %s of %.0f tokens (validated with %.0f to %.0f)", what, mean, of[0], of[1])
		}
	}
	lengths("prompt", r.Prompt, w.Prompt)
	lengths("output", r.Output, w.Output)
	for _, c := range in.changes(r.Profile, base) {
		if l := &r.Profile.Latency; retimes(c.key) || (l.Law == LawAdapters || l.adapterKernels()) && c.farSlots() {
			refuse("The run has %s %s, with which the profile was not validated (%s).", c.key, c.value, c.valid)
		} else {
			beyond("%s %s (validated with %s)", c.key, c.value, c.valid)
		}
	}
	return extrapolated, refused
}

// change is a setting that differs from the validated runs, with the values there.
type change struct{ key, value, valid string }

// farSlots reports whether the number or the rank of the slots differs from the runs by more than a factor of
// alike. Law adapters depends on both, and widened bands do not hold for such runs
// (lab/docs/intervals.md).
func (c *change) farSlots() bool {
	if c.key != "engine.max_loras_per_batch" && c.key != "engine.max_lora_rank" {
		return false
	}
	low, high, several := strings.Cut(c.valid, " to ")
	if !several {
		high = low
	}
	x := number(c.value)
	return x*alike < number(low) || x > alike*number(high)
}

// changes lists the settings of a profile that differ from the runs, by key.
func (in *Intervals) changes(p, base *Profile) (out []change) {
	changed, was := changes(base, p), settings(base)
	if v, ok := changed[schedulerKey]; ok && in.Settings[schedulerKey] == nil {
		changed = map[string]string{schedulerKey: v} // which brings settings of its own
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		v, had := changed[key], in.Settings[key]
		valid := cmp.Or(strings.Join(had, ", "), was[key], "none")
		if len(had) == 2 && !math.IsNaN(number(had[0])) {
			if x := number(v); x >= number(had[0]) && x <= number(had[1]) {
				continue
			}
			valid = had[0] + " to " + had[1]
		}
		if !slices.Contains(had, v) {
			out = append(out, change{key, v, valid})
		}
	}
	return out
}

// retimes reports whether step times or load times depend on a setting, beyond the scheduler's rules.
func retimes(key string) bool {
	return key == schedulerKey || strings.HasPrefix(key, "latency.") || strings.HasPrefix(key, "adapters.")
}

const schedulerKey = "engine.scheduler"

// changes returns the settings of a profile that differ from those of its base.
func changes(base, p *Profile) map[string]string {
	old, now := settings(base), settings(p)
	for key, v := range now {
		if old[key] == v {
			delete(now, key)
		}
	}
	return now
}

// settings returns the values of a profile that a simulation depends on.
func settings(p *Profile) map[string]string {
	all := map[string]string{}
	walk(reflect.ValueOf(*p), "", func(name, _ string, x reflect.Value) error {
		if strings.Contains(name, ".") {
			all[name] = fmt.Sprint(x)
		}
		return nil
	})
	return all
}

// fingerprint returns a hash of the coefficients, sizes and engine settings of a profile. It ignores zero
// values, so that a new coefficient changes no fingerprint.
func fingerprint(p *Profile) string {
	sum := fnv.New64a()
	all := settings(p)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if v := all[key]; v != "0" && v != "" && v != "false" && v != "[]" {
			fmt.Fprintln(sum, key, v)
		}
	}
	return fmt.Sprintf("%016x", sum.Sum64())
}
