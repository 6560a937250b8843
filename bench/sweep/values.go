package sweep

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"lorasim/bench/result"
)

// Value is a number of a result with its name.
type Value struct {
	Name  string
	Value float64
}

// Values lists the numbers of a result: its metrics under their JSON names, and
// the single numbers beyond them, as in "goodput.share". A count that is zero is
// there all the same, so that means over seeds are right. A run without one
// success has no latencies, where the block prints them as 0.
func Values(r *result.Result) []Value {
	var out []Value
	for m := range result.NumMetrics {
		if v, ok := r.Metrics.Get(m); ok {
			out = append(out, Value{m.String(), v})
		}
	}
	switch {
	case r.Extra != nil:
		out = flatten(out, "", reflect.ValueOf(r.Extra).Elem(), false)
	case r.Ended != nil:
		out = flatten(out, "", reflect.ValueOf(r.Ended).Elem(), false)
	}
	if r.Goodput != nil {
		out = flatten(out, "goodput.", reflect.ValueOf(r.Goodput).Elem(), false)
	}
	out = append(out, steadyValues(r.Steady)...)
	if completed, ok := r.Metrics.Get(result.Completed); !ok || completed > 0 {
		return out
	}
	return slices.DeleteFunc(out, func(v Value) bool {
		return strings.HasSuffix(v.Name, "_ms") || strings.HasPrefix(v.Name, "scheduled_") || v.Name == "ttft_per_output_token_s"
	})
}

// knownMetrics names the numbers of a result that lacks none.
func knownMetrics() (names []string) {
	for m := range result.NumMetrics {
		names = append(names, m.String())
	}
	for _, v := range flatten(nil, "", reflect.ValueOf(result.Extra{}), true) {
		if !Hidden(v.Name) {
			names = append(names, v.Name)
		}
	}
	return append(names, warmupName, samplesName, offeredName, sustainsName)
}

// flatten appends the numbers of a struct; those of structs within have the
// name of their field in front. What is behind a nil pointer is left out, or 0
// where absent ones are asked for, too. Lists have no single numbers, but for
// counts by kind, which are added up.
func flatten(out []Value, prefix string, v reflect.Value, absent bool) []Value {
	for i := range v.NumField() {
		f, x := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && (name == "" || name == "-" || !f.IsExported()) {
			continue
		}
		name = prefix + name
		if x.Kind() == reflect.Pointer {
			if x.IsNil() && absent {
				x = reflect.New(f.Type.Elem())
			}
			if x = x.Elem(); !x.IsValid() {
				continue
			}
		}
		if f.Anonymous {
			out = flatten(out, prefix, x, absent)
			continue
		}
		switch x.Kind() {
		case reflect.Int, reflect.Int32, reflect.Int64:
			out = append(out, Value{name, float64(x.Int())})
		case reflect.Float64:
			out = append(out, Value{name, x.Float()})
		case reflect.Struct:
			out = flatten(out, name+".", x, absent)
		case reflect.Slice:
			if counts, ok := x.Interface().([]result.MigrationCount); ok {
				sum := 0.0
				for _, c := range counts {
					sum += float64(c.Count)
				}
				out = append(out, Value{name, sum})
			}
		}
	}
	return out
}

// valueOf returns the number with a name; NaN if there is none.
func valueOf(values []Value, name string) float64 {
	for _, v := range values {
		if v.Name == name {
			return v.Value
		}
	}
	return math.NaN()
}

// completedSet is the fingerprint of the requests that a run completed.
const completedSet = "completed_set"

// Hidden says that a value is no number to show.
func Hidden(name string) bool {
	return name == completedSet || name == stateName || name == "goodput.attain" || strings.HasSuffix(name, "worst_adapter.adapter")
}

// Completion says which requests a run completed; NaN where it is not known.
type Completion struct {
	Requests, Completed float64
	set                 float64
}

// CompletionOf takes a run's completion from its values.
func CompletionOf(value func(name string) float64) Completion {
	all := value("requests")
	if unsent := value("unsent"); unsent > 0 {
		all += unsent
	}
	return Completion{all, value("completed"), value(completedSet)}
}

// Known says whether there is a fingerprint of the completed requests.
func (c Completion) Known() bool { return c.set > 0 }

// SameSet says that the completed requests of both runs have the same ids, as far
// as is known.
func (c Completion) SameSet(o Completion) bool { return !c.Known() || !o.Known() || c.set == o.set }

// Whole says that every request completed.
func (c Completion) Whole() bool { return c.Requests == c.Completed }

// Left is the share of requests that did not complete; NaN: not known.
func (c Completion) Left() float64 {
	if c.Requests == 0 {
		return 0
	}
	return (c.Requests - c.Completed) / c.Requests
}

// Same says that both runs completed the same requests, as far as is known: all
// of them, or those with the same fingerprint. Where they do not, their
// latencies are of different requests and cannot be compared.
func (c Completion) Same(o Completion) bool {
	switch {
	case c.Whole() && o.Whole(), math.IsNaN(c.Completed) || math.IsNaN(o.Completed):
		return true
	case c.Completed != o.Completed:
		return false
	case c.set > 0 && o.set > 0:
		return c.set == o.set
	}
	return true
}

// CountsAll says that a metric is about all requests of a run, so that it can be
// compared whichever of them completed.
func CountsAll(metric string) bool {
	all := []string{"requests", "completed", "failed", "rejected", "aborted", "unfinished", "unsent"}
	return slices.Contains(all, metric) || strings.HasPrefix(metric, "goodput.") && !slices.Contains([]string{"goodput.ttft_share", "goodput.tpot_share", "goodput.e2e_share", "goodput.others.p99_ttft_ms"}, metric)
}

// titles are those that a name does not give by itself.
var titles = map[string]string{
	"goodput.good_per_s":      "Goodput (req/s)",
	"goodput.share":           "Good share of all requests",
	"load_balance.mean":       "Requests per worker, mean",
	"load_balance.std":        "Requests per worker, std",
	"load_balance.cv":         "Requests per worker, std / mean",
	"load_balance.max":        "Requests per worker, max",
	"load_balance.min":        "Requests per worker, min",
	"plans.copied_bytes":      "Plans copied (bytes)",
	"plans.recomputed_tokens": "Plans recomputed (tokens)",
	"oracle.duration":         "Oracle duration (s)",
	"scheduled_ttft.mean_ms":  "Scheduled TTFT mean (ms)",
	"fairness.adapters":       "Adapters with requests",
	"ttft_per_output_token_s": "TTFT per output token (s)",
	"oracle.mean_e2e_regret":  "Mean E2E above the bound (share)",
	"oracle.duration_regret":  "Duration above the bound (share)",
	"plans.mean_gap":          "Optimality gap of plans, mean (share)",
	"goodput.good_requests":   "Good requests",

	"goodput.adapter_share":          "Share of adapters within the SLO",
	"goodput.fairness":               "Jain fairness of good shares",
	"goodput.worst_adapter.share":    "Good share of the worst adapter",
	"goodput.worst_adapter.requests": "Requests of the worst adapter",

	warmupName:   "Warm-up (s)",
	samplesName:  "Effective samples",
	offeredName:  "Offered rate (req/s)",
	sustainsName: "Sustainable rate (req/s)",

	"elastic.gpu_hours":    "GPU-hours",
	"elastic.worker_hours": "Worker-hours",
	"elastic.mean_workers": "Workers, mean",
	"elastic.min_workers":  "Workers, min",
	"elastic.max_workers":  "Workers, max",

	"goodput.others.share":                  "Good share beside the noisy adapter",
	"goodput.others.p99_ttft_ms":            "P99 TTFT beside the noisy adapter (ms)",
	"goodput.others.adapter_share":          "Share of the other adapters within the SLO",
	"goodput.others.fairness":               "Jain fairness of the others' good shares",
	"goodput.others.worst_adapter.share":    "Good share of the worst of the others",
	"goodput.others.worst_adapter.requests": "Requests of the worst of the others",
}

// Title words a metric's name for people, unit included.
func Title(name string) string {
	if m, ok := result.MetricByKey(name); ok {
		return m.Descriptor().Label
	}
	if t, ok := titles[name]; ok {
		return t
	}
	t := strings.NewReplacer("_", " ", ".", " ").Replace(name)
	for _, unit := range []string{"ms", "s"} {
		if cut, ok := strings.CutSuffix(t, " "+unit); ok {
			t = cut + " (" + unit + ")"
		}
	}
	if t == "" {
		return t
	}
	return strings.ToUpper(t[:1]) + t[1:]
}

// LowerIsBetter says whether less of a metric is better (+1), more of it (-1),
// or neither (0).
func LowerIsBetter(name string) int {
	switch name {
	case "goodput.worst_adapter.requests", "goodput.others.worst_adapter.requests", "fairness.adapters":
		return 0
	case "prefix_hit_rate", "cached_tokens", sustainsName:
		return -1
	case "duration", "failed", "rejected", "aborted", "unfinished", "unsent", "cold_start_wait_s", "cold_loads", "cold_starts",
		"evictions", "retractions", "load_balance.cv", "elastic.gpu_hours", "elastic.worker_hours", "elastic.mean_workers":
		return 1
	}
	switch {
	case strings.Contains(name, "throughput"), strings.HasPrefix(name, "goodput."), strings.HasPrefix(name, "fairness."):
		return -1
	case strings.HasSuffix(name, "_ms"), strings.HasSuffix(name, "_s") && strings.Contains(name, "time"):
		return 1
	}
	return 0
}
