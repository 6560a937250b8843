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

// Intervals says how far measured runs that nothing was fitted to lay off their
// predictions, and what these runs were like: it tells nothing of others.
type Intervals struct {
	// Of is the fingerprint of the profile that was validated: of one that was
	// changed since, they tell nothing.
	Of       string   `yaml:"of" json:"of"`
	Workers  int      `yaml:"workers" json:"workers"`                            // the most
	Policies []string `yaml:"policies,flow,omitempty" json:"policies,omitempty"` // none: of one worker
	Workload Workload `yaml:"workload,flow" json:"workload"`
	// Settings are those of the profile that some of the runs had otherwise, as
	// "engine.max_loras_per_batch"; of numbers the least and the largest.
	Settings map[string][]string `yaml:"settings,omitempty" json:"settings,omitempty"`
	Bands    []Band              `yaml:"bands" json:"bands"`
}

// Workload is what the requests of the runs were like: of numbers of a run the
// extremes.
type Workload struct {
	Requests int        `yaml:"requests" json:"requests"`                // the fewest
	Adapters int        `yaml:"adapters" json:"adapters"`                // the most
	Prompt   [2]float64 `yaml:"prompt_tokens,flow" json:"prompt_tokens"` // in the mean
	Output   [2]float64 `yaml:"output_tokens,flow" json:"output_tokens"`
	// Window: the runs ended after a time, and what was unfinished counts nowhere.
	Window bool `yaml:"window,omitempty" json:"window,omitempty"`
}

// alike is how many times more, or less, a workload may be and count as one of the
// runs; beyond, bands are widened, and from related on there are none.
const alike, related = 2, 4

// widening is how many times as far from the prediction the bounds of a run lie that
// leaves what was validated: see docs/checks/intervals.md for what it was tested with.
const widening = 2

// Band is measured over predicted of one metric, in runs of one class of load:
// the range of half of them, absent where they are too few, and that of most, with
// what so few runs leave open.
type Band struct {
	Metric string `yaml:"metric" json:"metric"` // its key in a result
	// Waiting is the class: the share of their time that the requests of the
	// prediction wait, from and below.
	Waiting [2]float64  `yaml:"waiting,flow" json:"waiting"`
	Runs    float64     `yaml:"runs" json:"runs"` // one with draws in several classes counts in part
	Half    *[2]float64 `yaml:"half,flow,omitempty" json:"half,omitempty"`
	Most    *[2]float64 `yaml:"most,flow,omitempty" json:"most,omitempty"`
	Level   float64     `yaml:"level,omitempty" json:"level,omitempty"` // of Most: 0.9, or what so few runs support
}

// At returns the bands of a share of waiting.
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

// ValidatedRun is what a run was like, of those that were measured or of one that
// is held against them.
type ValidatedRun struct {
	Workers  int
	Policy   string   // not used where there is one worker
	Profile  *Profile // with the settings of the run
	Requests int
	Adapters int
	Prompt   float64 // tokens, in the mean over requests
	Output   float64
	Window   bool // as of a Workload
}

// NewIntervals are the intervals of a profile, still without bands.
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

// policyName is the name of the policy of a spec, without options. Files of older
// versions have aliases.
func policyName(spec string) string {
	name, _, _ := strings.Cut(router.Canonical(spec), ":")
	return name
}

// within is a range that holds x, too, in whole tokens.
func within(r [2]float64, x float64) [2]float64 {
	return [2]float64{math.Floor(min(r[0], x)), math.Ceil(max(r[1], x))}
}

// number is a value of a setting as a number; NaN: it is none.
func number(v string) float64 {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// Widened is the band of a run that leaves what was validated in a way that ranges
// can allow for: on a logarithmic scale each bound lies widening times as far from
// the prediction, which is always within. So it is never narrower, and a profile
// that was off to one side only may be off to the other there.
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

// Compare says in which ways a run, with a profile made from the base, leaves what
// the runs were like. Extrapolated are those for which bands are [Band.Widened]: what
// routers and schedulers decide, which the simulator decides by the same rules, and
// workloads not too far off. Refused are those of which the runs say nothing, each a
// whole sentence.
func (in *Intervals) Compare(r ValidatedRun, base *Profile) (extrapolated, refused []string) {
	if in.Of != fingerprint(base) {
		return nil, []string{"Profile " + base.Name + " was changed after its validation: compare it with measured runs again (lorasim validate, lorasim calibrate)."}
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

// change is a setting that is not as in the validated runs, with the values there.
type change struct{ key, value, valid string }

// farSlots says whether the number or the rank of the slots, on which the law of
// adapters depends, is more than alike times off the runs: widened ranges do not
// hold runs beyond (docs/checks/intervals.md).
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

// changes lists the settings of a profile that are not as in the runs, by key.
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

// retimes says whether step times, or times of loads, depend on a setting beyond
// what the scheduler's rules say.
func retimes(key string) bool {
	return key == schedulerKey || strings.HasPrefix(key, "latency.") || strings.HasPrefix(key, "adapters.")
}

const schedulerKey = "engine.scheduler"

// changes are the settings of a profile that are not those of its base.
func changes(base, p *Profile) map[string]string {
	old, now := settings(base), settings(p)
	for key, v := range now {
		if old[key] == v {
			delete(now, key)
		}
	}
	return now
}

// settings are the values of a profile that a simulation depends on.
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

// fingerprint tells the coefficients, sizes and engines of profiles apart. What is 0
// does not count: a coefficient that comes up later changes no fingerprint.
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
