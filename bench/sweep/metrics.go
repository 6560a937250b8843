package sweep

import (
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
	out := values(r)
	if completed, ok := r.Metrics.Get(result.Completed); !ok || completed > 0 {
		return out
	}
	return slices.DeleteFunc(out, func(v Value) bool {
		return strings.HasSuffix(v.Name, "_ms") || strings.HasPrefix(v.Name, "scheduled_") || v.Name == "ttft_per_output_token_s"
	})
}

func values(r *result.Result) []Value {
	var out []Value
	for m := range result.NumMetrics {
		if v, ok := r.Metrics.Get(m); ok {
			out = append(out, Value{m.String(), v})
		}
	}
	switch {
	case r.Extra != nil:
		return flatten(out, "", reflect.ValueOf(r.Extra).Elem())
	case r.Ended != nil:
		return flatten(out, "", reflect.ValueOf(r.Ended).Elem())
	}
	return out
}

// flatten appends the numbers of a struct; those of structs within have the
// name of their field in front, and absent ones are left out. Lists have no
// single numbers, but for counts by kind, which are added up.
func flatten(out []Value, prefix string, v reflect.Value) []Value {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Anonymous {
			out = flatten(out, prefix, v.Field(i))
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		name = prefix + name
		x := v.Field(i)
		if x.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		}
		switch x.Kind() {
		case reflect.Int, reflect.Int32, reflect.Int64:
			out = append(out, Value{name, float64(x.Int())})
		case reflect.Float64:
			out = append(out, Value{name, x.Float()})
		case reflect.Struct:
			out = flatten(out, name+".", x)
		case reflect.Slice:
			if counts, ok := x.Interface().([]result.MigrationCount); ok {
				sum := int64(0)
				for _, c := range counts {
					sum += c.Count
				}
				out = append(out, Value{name, float64(sum)})
			}
		}
	}
	return out
}

// titles are those that a name does not give by itself.
var titles = map[string]string{
	"goodput.good_per_s":      "Goodput (req/s)",
	"goodput.share":           "Good share of all requests",
	"load_balance.mean":       "Requests per worker, mean",
	"load_balance.std":        "Requests per worker, std",
	"load_balance.cv":         "Requests per worker, std / mean",
	"load_balance.max":        "Requests per worker, most",
	"load_balance.min":        "Requests per worker, least",
	"plans.copied_bytes":      "Plans copied (bytes)",
	"plans.recomputed_tokens": "Plans recomputed (tokens)",
	"oracle.duration":         "Oracle duration (s)",
	"scheduled_ttft.mean_ms":  "Scheduled TTFT mean (ms)",
	"fairness.adapters":       "Adapters with requests",
	"ttft_per_output_token_s": "TTFT per output token (s)",
	"oracle.mean_e2e_regret":  "Mean E2E above its bound (share)",
	"oracle.duration_regret":  "Duration above its bound (share)",
	"plans.mean_gap":          "Gap of the plans to their bounds, mean (share)",
	"goodput.good_requests":   "Good requests",
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
	switch {
	case strings.Contains(name, "throughput"), strings.HasPrefix(name, "goodput.") && name != "goodput.slo",
		strings.HasPrefix(name, "fairness.") && name != "fairness.adapters":
		return -1
	case strings.HasSuffix(name, "_ms"), name == "duration", name == "failed", name == "rejected", name == "aborted", name == "unfinished", name == "unsent",
		strings.HasSuffix(name, "_s") && strings.Contains(name, "time"), name == "cold_start_wait_s",
		name == "cold_loads", name == "cold_starts", name == "evictions", name == "retractions", name == "load_balance.cv":
		return 1
	}
	return 0
}
