package fleet

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
	"lorasim/router/promtext"
)

// load is a worker's report of its load.
type load struct {
	Running, Queued int
	Deferred        int             // of Queued: held back, as for want of an adapter slot (vLLM)
	Busy            map[string]bool // adapters of requests that have had a token; nil: not reported
	At              float64         // when Busy was taken, by the worker's clock, s
	VLLM            bool            // the report consists of vLLM's metrics
	InSlots         map[string]bool // adapters in GPU slots; nil: not reported
	Times           LoadTimes
	started         float64        // when the worker's process started, by its own clock, s; 0: unknown
	report          *router.Report // the part that endpoint pickers read; nil: none
	Limits                         // limits that are reported with the load
}

// load reads the load signal. It uses the first signal that the worker has, and remembers its name. For a server
// without such a signal it reads only the health. A signal that was there and is missing now is an error of status 404:
// another engine may have taken the worker's place.
func (e *engine) load(ctx context.Context) (l load, err error) {
	names := []func(context.Context) (load, error){e.loadsSGLang, e.olderLoads, e.health}
	if e.kind() == httpapi.VLLM {
		names = []func(context.Context) (load, error){e.loadsVLLM, e.health}
	}
	for i := min(int(e.signal.Load()), len(names)-1); ; i++ {
		l, err = names[i](ctx)
		if err == nil {
			e.found.Store(true)
		}
		if i == len(names)-1 || e.found.Load() || !isStatus(err, http.StatusNotFound) {
			return l, err
		}
		e.signal.Store(int32(i + 1))
	}
}

// forgetSignal makes load search for the signal again.
func (e *engine) forgetSignal() {
	e.found.Store(false)
	e.signal.Store(0)
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

// loraInfo is the metric in which vLLM names the adapters of its requests. It has a series for each combination of
// adapters so far. The value of a series is the latest time at which the combination held.
const loraInfo = "vllm:lora_requests_info"

// readVLLM reads vLLM's metrics.
func readVLLM(text []byte) (l load, err error) {
	families, err := promtext.Parse(string(text))
	if err != nil {
		return l, err
	}
	total := func(name, label, value string) (n int) {
		for _, m := range families[name] {
			if v := gauge(m); (label == "" || m.Label(label) == value) && v > 0 && v <= maxRequests {
				n = sum(n, int(v))
			}
		}
		return n
	}
	l.VLLM = families["vllm:num_requests_running"] != nil
	for _, m := range families["process_start_time_seconds"] {
		if v := gauge(m); v > 0 && v <= maxClock {
			l.started = v
		}
	}
	l.Running = total("vllm:num_requests_running", "", "")
	l.Queued = total("vllm:num_requests_waiting", "", "")
	l.Deferred = total("vllm:num_requests_waiting_by_reason", "reason", "deferred")
	if bytes.Contains(text, []byte("# TYPE "+loraInfo+" ")) { // without LoRA there is none
		l.Busy = map[string]bool{}
	}
	for _, m := range families[loraInfo] {
		if v := gauge(m); v > l.At && v <= maxClock {
			l.At = v
			l.Slots, _ = strconv.Atoi(m.Label("max_lora")) // 0: unknown
			l.Busy = map[string]bool{}
			names := m.Label("running_lora_adapters") + "," + m.Label("waiting_lora_adapters")
			for name := range strings.SplitSeq(names, ",") {
				if l.Busy[name] = true; len(l.Busy) > maxList {
					return l, fmt.Errorf("%s reports more than %d adapters", loraInfo, maxList)
				}
			}
		}
	}
	if err := l.readResidency(families); err != nil {
		return l, err
	}
	for _, m := range families["vllm:cache_config_info"] { // one for each engine
		blocks, err1 := strconv.ParseInt(m.Label("num_gpu_blocks"), 10, 32)
		size, err2 := strconv.ParseInt(m.Label("block_size"), 10, 32)
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

// gauge returns the value of a metric whose type is gauge or unknown.
func gauge(m *promtext.Metric) float64 {
	if m.Type == promtext.Gauge || m.Type == promtext.Untyped {
		return m.Value
	}
	return 0
}
