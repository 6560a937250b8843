package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
)

// load is a worker's own account of its load.
type load struct {
	Running, Queued int
	Deferred        int             // of Queued: held back, as for want of an adapter slot (vLLM)
	Busy            map[string]bool // adapters of its requests, once these have had a token; nil: not told
	At              float64         // when Busy was taken, by the worker's clock, s
	VLLM            bool            // they are vLLM's metrics
	report          *router.Report  // what an endpoint picker reads of it; nil: nothing
	Limits                          // as far as they are told with the load
}

// load reads the load signal by the first of its names that the worker has, which
// is remembered. A server without any is only asked for its health.
func (e *engine) load(ctx context.Context) (l load, err error) {
	names := []func(context.Context) (load, error){e.loadsSGLang, e.olderLoads, e.health}
	if e.kind() == VLLM {
		names = []func(context.Context) (load, error){e.loadsVLLM, e.health}
	}
	for i := min(int(e.signal.Load()), len(names)-1); ; i++ {
		if l, err = names[i](ctx); i == len(names)-1 || !isStatus(err, http.StatusNotFound) {
			return l, err
		}
		e.signal.Store(int32(i + 1))
	}
}

func (e *engine) health(ctx context.Context) (l load, err error) {
	_, err = e.call(ctx, http.MethodGet, "/health", nil)
	return l, err
}

func (e *engine) olderLoads(ctx context.Context) (l load, err error) {
	var ranks list[struct {
		All     int `json:"num_reqs"`
		Waiting int `json:"num_waiting_reqs"`
	}]
	err = e.get(ctx, "/get_load", &ranks)
	for _, r := range ranks {
		l.Running = sum(l.Running, requests(r.All)-requests(r.Waiting))
		l.Queued = sum(l.Queued, r.Waiting)
	}
	return l, err
}

func (e *engine) loadsSGLang(ctx context.Context) (l load, err error) {
	var s struct {
		Loads list[struct {
			Running    int     `json:"num_running_reqs"`
			Waiting    int     `json:"num_waiting_reqs"`
			MaxTokens  int64   `json:"max_total_num_tokens"`
			MaxRunning int     `json:"max_running_requests"`
			Usage      float64 `json:"token_usage"`
			LoRA       struct {
				Slots int `json:"slots_total"`
			} `json:"lora"`
		}] `json:"loads"`
	}
	err = e.get(ctx, "/v1/loads", &s)
	for _, r := range s.Loads { // one for each data-parallel rank
		one := Limits{MaxRunning: r.MaxRunning, Slots: r.LoRA.Slots, KVCapacity: r.MaxTokens}.bounded()
		l.Running = sum(l.Running, r.Running)
		l.Queued = sum(l.Queued, r.Waiting)
		l.KVCapacity += one.KVCapacity
		l.MaxRunning += one.MaxRunning
		l.Slots = max(l.Slots, one.Slots)
		if l.report == nil { // a picker reads the first rank's series
			l.report = &router.Report{Running: requests(r.Running), Waiting: requests(r.Waiting), KV: r.Usage}
		}
	}
	l.Limits = l.Limits.bounded()
	return l, err
}

func (e *engine) loadsVLLM(ctx context.Context) (l load, err error) {
	data, err := e.call(ctx, http.MethodGet, "/metrics", nil)
	if err == nil {
		if l, err = readVLLM(data); err != nil {
			err = fmt.Errorf("GET /metrics: %w", err)
		}
	}
	return l, err
}

// loraInfo is the metric with which vLLM tells the adapters of its requests: a
// series for each combination that there has been, whose value is the time when
// it last held.
const loraInfo = "vllm:lora_requests_info"

// readVLLM reads vLLM's metrics.
func readVLLM(text []byte) (l load, err error) {
	p := expfmt.NewTextParser(prometheus.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return l, err
	}
	total := func(name, label, value string) (n int) {
		for _, m := range families[name].GetMetric() {
			if v := gauge(m); (label == "" || labelOf(m, label) == value) && v > 0 && v <= maxRequests {
				n = sum(n, int(v))
			}
		}
		return n
	}
	l.VLLM = families["vllm:num_requests_running"] != nil
	l.Running = total("vllm:num_requests_running", "", "")
	l.Queued = total("vllm:num_requests_waiting", "", "")
	l.Deferred = total("vllm:num_requests_waiting_by_reason", "reason", "deferred")
	if bytes.Contains(text, []byte("# TYPE "+loraInfo+" ")) { // without LoRA there is none
		l.Busy = map[string]bool{}
	}
	for _, m := range families[loraInfo].GetMetric() {
		if v := gauge(m); v > l.At && v <= maxClock {
			l.At = v
			l.Slots, _ = strconv.Atoi(labelOf(m, "max_lora")) // 0: not told
			l.Busy = map[string]bool{}
			names := labelOf(m, "running_lora_adapters") + "," + labelOf(m, "waiting_lora_adapters")
			for name := range strings.SplitSeq(names, ",") {
				if l.Busy[name] = true; len(l.Busy) > maxList {
					return l, fmt.Errorf("%s reports more than %d adapters", loraInfo, maxList)
				}
			}
		}
	}
	for _, m := range families["vllm:cache_config_info"].GetMetric() { // one for each engine
		blocks, err1 := strconv.ParseInt(labelOf(m, "num_gpu_blocks"), 10, 32)
		size, err2 := strconv.ParseInt(labelOf(m, "block_size"), 10, 32)
		if err1 == nil && err2 == nil && blocks > 0 && size > 0 {
			l.KVCapacity += within(blocks*size, maxKV)
		}
	}
	l.Limits = l.Limits.bounded()
	var e epp.Endpoint
	if updated, _ := scrape.Update(&e, families, scrape.VLLM); updated { // what it lacks stays 0, as in a picker
		l.report = &router.Report{Waiting: e.Waiting, Running: e.Running, KV: e.KV, RunningAdapters: e.RunningAdapters,
			WaitingAdapters: e.WaitingAdapters, MaxLora: e.MaxLora, BlockSize: e.BlockSize, NumBlocks: e.NumBlocks}
	}
	return l, nil
}

// gauge is the value of a metric whose type is a gauge, or not told.
func gauge(m *dto.Metric) float64 {
	if m.Gauge != nil {
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
