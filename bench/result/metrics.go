package result

import (
	"slices"
	"strings"

	"lorasim/bench/stats"
	"lorasim/bench/steady"
)

// titles are the titles that do not follow from a metric's name.
var titles = map[string]string{
	"goodput.good_per_s":      "Goodput (req/s)",
	"goodput.share":           "SLO attainment",
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
	"goodput.good_requests":   "Requests within the SLO",

	"goodput.adapter_share":          "Share of adapters within the SLO",
	"goodput.fairness":               "Jain fairness of attainment",
	"goodput.worst_adapter.share":    "Attainment of the worst adapter",
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

	"goodput.others.share":                  "Attainment of the other adapters",
	"goodput.others.p99_ttft_ms":            "P99 TTFT of the other adapters (ms)",
	"goodput.others.adapter_share":          "Share of the other adapters within the SLO",
	"goodput.others.fairness":               "Jain fairness of the others' attainment",
	"goodput.others.worst_adapter.share":    "Attainment of the worst of the others",
	"goodput.others.worst_adapter.requests": "Requests of the worst of the others",
}

// Title returns the title of a metric for tables and reports, with its unit.
func Title(name string) string {
	if m, ok := MetricByKey(name); ok {
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

// Better returns whether higher or lower values of a metric are better; stats.Neither if
// the metric cannot be judged.
func Better(name string) stats.Direction {
	switch name {
	case "goodput.worst_adapter.requests", "goodput.others.worst_adapter.requests", "fairness.adapters":
		return stats.Neither
	case "prefix_hit_rate", "cached_tokens", sustainsName:
		return stats.Higher
	case "duration", "failed", "rejected", "aborted", "unfinished", "unsent", "cold_start_wait_s", "cold_loads",
		"cold_starts",
		"evictions", "retractions", "load_balance.cv", "elastic.gpu_hours", "elastic.worker_hours",
		"elastic.mean_workers":
		return stats.Lower
	}
	switch {
	case strings.Contains(name, "throughput"), strings.HasPrefix(name, "goodput."),
		strings.HasPrefix(name, "fairness."):
		return stats.Higher
	case strings.HasSuffix(name, "_ms"), strings.HasSuffix(name, "_s") && strings.Contains(name, "time"):
		return stats.Lower
	}
	return stats.Neither
}

// CountsAll reports whether a metric covers all requests of a run. It can then be compared
// even if different requests completed.
func CountsAll(metric string) bool {
	all := []string{"requests", "completed", "failed", "rejected", "aborted", "unfinished", "unsent"}
	return slices.Contains(all, metric) ||
		strings.HasPrefix(metric, "goodput.") &&
			!slices.Contains([]string{
				"goodput.ttft_share", "goodput.tpot_share", "goodput.e2e_share", "goodput.others.p99_ttft_ms",
			}, metric)
}

// Hidden reports whether tables omit a value.
func Hidden(name string) bool {
	return name == completedSetName || name == SteadyStateName || name == "goodput.attain" ||
		strings.HasSuffix(name, "worst_adapter.adapter")
}

// NeedsSteady reports whether a metric depends on the length of a run that is not in a
// steady state. That holds for latencies, metrics derived from them, and requests in
// flight. Counts, durations and throughputs describe the run as it was.
func NeedsSteady(metric string) bool {
	return strings.HasSuffix(metric, "_ms") || strings.HasPrefix(metric, "goodput.") ||
		slices.Contains(
			[]string{Concurrency.String(), "fairness.normalized_latency", "ttft_per_output_token_s",
				"oracle.mean_e2e_regret"}, metric)
}

// Unsteady returns the reason why a metric of runs in state s gets no verdict, or "" if it
// gets one.
func Unsteady(metric string, s steady.Stationarity) string {
	if NeedsSteady(metric) && !s.Judge() {
		return s.String()
	}
	return ""
}
