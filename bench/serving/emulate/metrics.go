package emulate

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
)

// metrics serves Prometheus metrics under the names of the emulated engine.
func (w *Worker) metrics(rw http.ResponseWriter, _ *http.Request) {
	var p page
	s := w.signals()
	if w.cfg.API == httpapi.VLLM {
		w.metricsVLLM(&p, &s)
		rw.Header().Set("Content-Type", "text/plain; version=1.0.0; charset=utf-8")
		writeBody(rw, p.Bytes())
		return
	}
	w.metricsSGLang(&p, &s)
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	rw.Header().Set("Transfer-Encoding", "chunked")
	rw.Write(p.Bytes())
}

// Block sizes of the engines where the profile has pages of one token.
const (
	blockSizeVLLM   = 16
	pageSizeSGLang  = 1
	oneTokenPerPage = 1
)

// blocks is the size of a KV cache block in tokens and the number of blocks.
func (w *Worker) blocks(s *signals, size int64) (int64, int64) {
	if n := int64(w.profile.Engine.PageSize); n > oneTokenPerPage {
		size = n
	}
	return size, s.KVCapacity / size
}

// metricsVLLM writes the metrics of vLLM 0.32 and 0.33 (vllm/v1/metrics/loggers.py), and the metrics of loaded adapters
// that vLLM #54830 proposes, with the names that llm-d's picker reads.
func (w *Worker) metricsVLLM(p *page, s *signals) {
	of := labels{{"engine", "0"}, {"model_name", w.cfg.ModelName}}
	engine := of[:1]
	if w.profile.Engine.PrefixCache {
		p.counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", of,
			float64(s.prompts()))
		p.counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", of,
			float64(s.cached))
	}
	f := &s.flows[whole]
	p.counter("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", of,
		float64(s.preemptions))
	p.counter("vllm:prompt_tokens_total", "Number of prefill tokens processed.", of, float64(f.prompts))
	p.counter("vllm:generation_tokens_total", "Number of generation tokens processed.", of, float64(f.generated))
	p.head("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for _, e := range []ending{{"stop", s.ended.stop}, {"length", s.ended.length}, {"abort", s.ended.aborted},
		{"error", s.ended.failed}, {"repetition", 0}} {
		reason := append(slices.Clone(of), label{"finished_reason", e.reason})
		p.sample("vllm:request_success_total", reason, float64(e.n))
	}
	p.histogram("vllm:request_prompt_tokens", "Number of prefill tokens processed.", of, &s.prompt)
	p.histogram("vllm:request_generation_tokens", "Number of generation tokens processed.", of, &s.output)
	p.histogram("vllm:time_to_first_token_seconds", "Histogram of time to first token in seconds.", of, &f.firstToken)
	p.histogram("vllm:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", of, &s.interToken)
	p.histogram("vllm:e2e_request_latency_seconds", "Histogram of e2e request latency in seconds.", of, &f.e2e)
	p.gauge("vllm:num_requests_running", "Number of requests in model execution batches.", of, float64(s.Running))
	p.gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", of, float64(s.Queued))
	p.gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", of, s.usage())
	size, n := w.blocks(s, blockSizeVLLM)
	p.gauge("vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels{
		{"block_size", fmt.Sprint(size)}, {"cache_dtype", "auto"}, {"enable_prefix_caching", pythonBool(
			w.profile.Engine.PrefixCache)}, {"engine", "0"}, {"num_gpu_blocks", fmt.Sprint(n)}}, 1)
	s.listed.write(p, s.Slots)
	const loaded = "vllm:lora_adapter_loaded"
	p.head(loaded, "gauge", "Loaded LoRA adapters, by the fastest memory that holds them.")
	gpu := 0
	for _, a := range s.loaded {
		level := "cpu"
		if a.Tier == router.GPU {
			level = "gpu"
			gpu++
		}
		p.sample(loaded, append(slices.Clone(engine), labels{{"adapter_name", a.name}, {"level", level},
			{"pinned", strconv.FormatBool(a.Pinned)}}...), 1)
	}
	p.gauge("vllm:num_gpu_loaded_lora_adapters", "Number of LoRA adapters in GPU slots.", engine, float64(gpu))
	p.gauge("vllm:max_gpu_lora_adapters", "Number of GPU slots for LoRA adapters.", engine, float64(s.Slots))
	const took = "vllm:lora_adapter_load_seconds"
	p.head(took, "histogram", "Time to load LoRA adapters, by transition.")
	for _, t := range []struct {
		name string
		h    *histogram
	}{{"load", &s.loads}, {"activate", &s.activates}} {
		p.buckets(took, append(slices.Clone(engine), label{"transition", t.name}), t.h)
	}
	p.gauge("vllm:num_cpu_loaded_lora_adapters", "Number of LoRA adapters in host memory.", engine,
		float64(len(s.loaded)))
}

// metricsSGLang writes the metrics of sglang 0.5.23 (sglang/srt/observability/metrics_collector.py), and
// sglang:cache_config_info, from which endpoint pickers read what sglang 0.5.23 states as page_size and num_pages.
func (w *Worker) metricsSGLang(p *page, s *signals) {
	front := labels{{"engine_type", "unified"}, {"model_name", w.cfg.ModelName}}
	of := append(slices.Clone(front), labels{{"moe_ep_rank", "0"}, {"pp_rank", "0"}, {"tp_rank", "0"}}...)
	w.flowsSGLang(p, s, front)
	p.histogram("sglang:prompt_tokens_histogram", "Histogram of prompt token length.", front, &s.prompt)
	p.histogram("sglang:generation_tokens_histogram", "Histogram of generation token length.", front, &s.output)
	p.histogram("sglang:inter_token_latency_seconds", "Histogram of inter-token latency in seconds.", front,
		&s.interToken)
	p.counter("sglang:num_aborted_requests_total", "Number of requests aborted.", front, float64(s.ended.aborted))
	p.counter("sglang:num_retracted_requests_total", "Total number of retracted requests.", of, float64(s.preemptions))
	if w.profile.Engine.PrefixCache {
		p.counter("sglang:cached_tokens_total", "Number of cached prompt tokens by source (device/host/storage).",
			append(slices.Clone(front), label{"cache_source", "device"}), float64(s.cached))
		// of all requests, not of the last batch
		p.gauge("sglang:cache_hit_rate", "The prefix cache hit rate.", of,
			float64(s.cached)/max(float64(s.prompts()), 1))
	}
	size, n := w.blocks(s, pageSizeSGLang)
	p.gauge("sglang:num_running_reqs", "The number of running requests.", of, float64(s.Running))
	p.gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", of, float64(s.Queued))
	p.gauge("sglang:token_usage", "The token usage.", of, s.usage())
	p.gauge("sglang:num_used_tokens", "The number of used tokens.", of, float64(s.KVUsed))
	p.gauge("sglang:max_total_num_tokens", "Maximum total number of tokens in the KV cache pool.", of,
		float64(s.KVCapacity))
	p.gauge("sglang:page_size", "KV cache page size in tokens.", of, float64(size))
	p.gauge("sglang:num_pages", "Number of KV cache pages.", of, float64(n))
	p.gauge("sglang:cache_config_info", "Page size and number of pages of the KV cache.", append(slices.Clone(front),
		labels{{"num_pages", fmt.Sprint(n)}, {"page_size", fmt.Sprint(size)}}...), 1)
	p.gauge("sglang:lora_pool_slots_used", "Number of LoRA adapter slots currently occupied in GPU memory.", of,
		float64(s.SlotsUsed))
	p.gauge("sglang:lora_pool_slots_total", "Total number of LoRA adapter slots available (max_loras_per_batch).", of,
		float64(s.Slots))
	p.gauge("sglang:lora_pool_utilization", "LoRA pool utilization ratio (used/total). 1.0 means pool is full.", of,
		float64(s.SlotsUsed)/max(float64(s.Slots), 1))
}

// ending is a reason for which requests have ended, and their number.
type ending struct {
	reason string
	n      int64
}

// flowsSGLang writes the metrics that sglang splits into whole and streamed replies. As in sglang, a kind of reply that
// there has not been is not there.
func (w *Worker) flowsSGLang(p *page, s *signals, front labels) {
	each := func(write func(f *flow, of labels)) {
		for i, is := range []string{whole: "false", streamed: "true"} {
			if f := &s.flows[i]; f.prompts > 0 {
				write(f, append(slices.Clone(front), label{"is_streaming", is}))
			}
		}
	}
	counter := func(name, help string, n func(f *flow) int64) {
		p.head(name, "counter", help)
		each(func(f *flow, of labels) { p.sample(name, of, float64(n(f))) })
	}
	counter("sglang:prompt_tokens_total", "Number of prefill tokens processed.",
		func(f *flow) int64 { return f.prompts })
	counter("sglang:generation_tokens_total", "Number of generation tokens processed.",
		func(f *flow) int64 { return f.generated })
	counter("sglang:num_requests_total", "Number of requests processed.", func(f *flow) int64 { return f.requests })
	times := func(name, help string, h func(f *flow) *histogram) {
		p.head(name, "histogram", help)
		each(func(f *flow, of labels) { p.buckets(name, of, h(f)) })
	}
	times("sglang:time_to_first_token_seconds", "Histogram of time to first token in seconds.",
		func(f *flow) *histogram { return &f.firstToken })
	times("sglang:e2e_request_latency_seconds", "Histogram of End-to-end request latency in seconds",
		func(f *flow) *histogram { return &f.e2e })
}

// label is a label with its value.
type label struct{ name, value string }

// labels are the labels of a sample.
type labels []label

// page is a page of metrics in the text format, as the engines' library prometheus_client writes it: labels in the
// order of their names, numbers as Python prints floats.
type page struct{ bytes.Buffer }

func (p *page) head(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (p *page) gauge(name, help string, of labels, v float64) {
	p.head(name, "gauge", help)
	p.sample(name, of, v)
}

func (p *page) counter(name, help string, of labels, v float64) {
	p.head(name, "counter", help)
	p.sample(name, of, v)
}

func (p *page) histogram(name, help string, of labels, h *histogram) {
	p.head(name, "histogram", help)
	p.buckets(name, of, h)
}

// buckets writes the samples of a histogram.
func (p *page) buckets(name string, of labels, h *histogram) {
	n := int64(0)
	for i, c := range h.counts {
		n += c
		le := "+Inf"
		if i < len(h.bounds) {
			le = pythonFloat(h.bounds[i])
		}
		p.sample(name+"_bucket", append(slices.Clone(of), label{"le", le}), float64(n))
	}
	p.sample(name+"_count", of, float64(n))
	p.sample(name+"_sum", of, h.sum)
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

func (p *page) sample(name string, of labels, v float64) {
	p.WriteString(name)
	byName := slices.SortedFunc(slices.Values(of), func(a, b label) int { return cmp.Compare(a.name, b.name) })
	for i, l := range byName {
		p.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(p, `%s="%s"`, l.name, escapeLabel.Replace(l.value))
	}
	if len(of) > 0 {
		p.WriteByte('}')
	}
	fmt.Fprintf(p, " %s\n", pythonFloat(v))
}

// pythonFloat writes a number as prometheus_client does (floatToGoString): the shortest text that Python prints, with
// an exponent from a million on.
func pythonFloat(v float64) string {
	if a := math.Abs(v); v >= 1e6 || a != 0 && a < 1e-4 {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	text := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

const loraInfoName = "vllm:lora_requests_info"

// maxListings bounds the series of vllm:lora_requests_info. vLLM keeps a series for every combination of adapters that
// there has been; the emulated worker drops the oldest ones.
const maxListings = 4096

// loraInfo is the state of vllm:lora_requests_info as vLLM 0.32 and 0.33 keep it (LoRARequestStates in
// vllm/v1/metrics/stats.py, PrometheusStatLogger.record in loggers.py):
//
//   - An adapter is listed from the first token of its first request until its last request has ended, because events
//     of requests come with tokens. Adapters stand in the order in which they came.
//   - Both labels have the same names: LoRARequestStates.update_scheduler_stats writes every key into both.
//   - Each step sets the series of its combination to the time. Before the first step there is no series.
type loraInfo struct {
	names    []string       // listed adapters
	requests map[string]int // that had a token and have not ended, by adapter
	series   []listing      // in the order in which they came
	at       map[string]int // where each combination is in series
}

// listing is one series of vllm:lora_requests_info.
type listing struct {
	names string  // with commas between them
	at    float64 // unix time, s
}

// began notes the first token of a request; "" is the base model.
func (l *loraInfo) began(adapter string) {
	if adapter == "" {
		return
	}
	if l.requests == nil {
		l.requests = map[string]int{}
	}
	if l.requests[adapter]++; l.requests[adapter] == 1 {
		l.names = append(l.names, adapter)
	}
}

// ended notes the end of a request that began has been told of.
func (l *loraInfo) ended(adapter string) {
	if adapter == "" {
		return
	}
	if l.requests[adapter]--; l.requests[adapter] == 0 {
		delete(l.requests, adapter)
		l.names = slices.DeleteFunc(l.names, func(n string) bool { return n == adapter })
	}
}

// step notes the end of a step.
func (l *loraInfo) step(at time.Time) {
	names, when := strings.Join(l.names, ","), float64(at.UnixMicro())/1e6
	if i, ok := l.at[names]; ok {
		l.series[i].at = when
		return
	}
	if len(l.series) == maxListings {
		l.drop()
	}
	if l.at == nil {
		l.at = map[string]int{}
	}
	l.at[names] = len(l.series)
	l.series = append(l.series, listing{names, when})
}

// drop drops the older half of the series.
func (l *loraInfo) drop() {
	newest := slices.SortedFunc(slices.Values(l.series), func(a, b listing) int { return cmp.Compare(b.at, a.at) })
	oldest := newest[len(newest)/2].at
	l.series = slices.DeleteFunc(l.series, func(c listing) bool { return c.at <= oldest })
	clear(l.at)
	for i, c := range l.series {
		l.at[c.names] = i
	}
}

// write writes the series.
func (l *loraInfo) write(p *page, slots int) {
	p.head(loraInfoName, "gauge", "Running stats on lora requests.")
	for _, c := range l.series {
		p.sample(loraInfoName, labels{{"max_lora", fmt.Sprint(slots)}, {"running_lora_adapters", c.names},
			{"waiting_lora_adapters", c.names}}, c.at)
	}
}
