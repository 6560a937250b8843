// Package scrape reads a model server's metrics like an endpoint picker. It uses the series, labels and types that the
// metrics extractor of the Gateway API Inference Extension v1.5.0 reads.
//
//	families, err := scrape.Parse(text)
//	updated, err := scrape.Update(&endpoint, families, scrape.VLLM)
package scrape

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"lorasim/router/epp"
	"lorasim/router/promtext"
)

// Engine is the kind of a server, as in the picker's label engine-type.
type Engine string

// The engines whose metrics the picker reads. The picker's default is VLLM.
const (
	VLLM   Engine = "vllm"
	SGLang Engine = "sglang"
	TRTLLM Engine = "trtllm-serve"
)

// names are an engine's series and labels.
type names struct {
	waiting, running, kv string
	lora                 string // "": none
	info                 string // series with the labels of the KV cache; "": none
	size, blocks         string // its labels
	sizes, numbers       string // series of their own in place of info
}

func namesOf(e Engine) names {
	switch e {
	case SGLang:
		return names{waiting: "sglang:num_queue_reqs", running: "sglang:num_running_reqs", kv: "sglang:token_usage",
			info: "sglang:cache_config_info", size: "page_size", blocks: "num_pages"}
	case TRTLLM:
		return names{waiting: "trtllm_num_requests_waiting", running: "trtllm_num_requests_running",
			kv: "trtllm_kv_cache_utilization", sizes: "trtllm_kv_cache_tokens_per_block",
			numbers: "trtllm_kv_cache_max_blocks"}
	}
	return names{waiting: "vllm:num_requests_waiting", running: "vllm:num_requests_running",
		kv: "vllm:kv_cache_usage_perc", lora: "vllm:lora_requests_info", info: "vllm:cache_config_info",
		size: "block_size", blocks: "num_gpu_blocks"}
}

// Families holds the metrics of one scrape by name.
type Families = promtext.Families

// Parse parses metrics in the text format of Prometheus.
func Parse(text string) (Families, error) { return promtext.Parse(text) }

// Update sets the fields of an endpoint from metrics. Fields without a metric keep their values. updated reports
// whether a load or cache metric was present; the error lists the metrics that are missing or unreadable.
func Update(e *epp.Endpoint, f Families, engine Engine) (updated bool, err error) {
	n, problems := namesOf(engine), []error{}
	value := func(name string, set func(float64)) {
		m, err := latest(f, name)
		if err != nil {
			problems = append(problems, err)
			return
		}
		set(number(m))
		updated = true
	}
	value(n.waiting, func(v float64) { e.Waiting = int(v) })
	value(n.running, func(v float64) { e.Running = int(v) })
	value(n.kv, func(v float64) { e.KV = v })
	if n.lora != "" {
		u, err := adapters(e, f, n.lora)
		updated, problems = updated || u, append(problems, err)
	}
	if n.info != "" {
		u, err := cache(e, f, n)
		updated, problems = updated || u, append(problems, err)
	}
	if n.sizes != "" {
		value(n.sizes, func(v float64) { e.BlockSize = int(v) })
		value(n.numbers, func(v float64) { e.NumBlocks = int(v) })
	}
	return updated, errors.Join(problems...)
}

// latest is the series of a metric with the newest timestamp, the first one without any.
func latest(f Families, name string) (*promtext.Metric, error) {
	if len(f[name]) == 0 {
		return nil, fmt.Errorf("metric family %q not found", name)
	}
	best := f[name][0]
	for _, m := range f[name][1:] {
		if m.Time > best.Time {
			best = m
		}
	}
	return best, nil
}

// number is the value of a gauge or a counter; other types count as 0.
func number(m *promtext.Metric) float64 {
	if m.Type == promtext.Gauge || m.Type == promtext.Counter {
		return m.Value
	}
	return 0
}

// adapters reads the series with the largest value: vLLM writes the time into it.
func adapters(e *epp.Endpoint, f Families, name string) (updated bool, err error) {
	if len(f[name]) == 0 {
		return false, fmt.Errorf("metric family %q not found", name)
	}
	newest := slices.MaxFunc(f[name], func(a, b *promtext.Metric) int {
		switch x, y := number(a), number(b); {
		case x > y:
			return 1
		case x < y:
			return -1
		}
		return 0
	})
	e.RunningAdapters, e.WaitingAdapters = e.RunningAdapters[:0], e.WaitingAdapters[:0]
	for _, l := range newest.Labels {
		switch l.Name {
		case "running_lora_adapters":
			e.RunningAdapters = appendNames(e.RunningAdapters, l.Value)
		case "waiting_lora_adapters":
			e.WaitingAdapters = appendNames(e.WaitingAdapters, l.Value)
		case "max_lora":
			most, bad := strconv.Atoi(l.Value)
			if bad != nil {
				err = bad
				continue
			}
			e.MaxLora = most
		}
	}
	return true, err
}

// appendNames appends the names of a list with commas, each once.
func appendNames(names []string, list string) []string {
	for s := range strings.SplitSeq(list, ",") {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(names, s) {
			names = append(names, s)
		}
	}
	return names
}

// cache reads block size and number of blocks.
func cache(e *epp.Endpoint, f Families, n names) (updated bool, err error) {
	m, err := latest(f, n.info)
	if err != nil {
		return false, err
	}
	for _, l := range m.Labels {
		v, bad := strconv.Atoi(l.Value)
		switch {
		case l.Name != n.size && l.Name != n.blocks:
		case bad != nil:
			err = bad
		case l.Name == n.size:
			e.BlockSize, updated = v, true
		default:
			e.NumBlocks, updated = v, true
		}
	}
	return updated, err
}
