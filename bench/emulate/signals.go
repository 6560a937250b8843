package emulate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"lorasim/router"
)

// signals is the load of a worker at one instant.
type signals struct {
	running, queued           int
	kvUsed, kvCapacity        int64
	slots, slotsUsed          int
	runningLoras, waitingLora []string
}

func (w *Worker) signals() signals {
	var s signals
	w.eng.do(func() {
		v := w.eng.srv.View()
		s = signals{running: v.Running, queued: v.Queued, kvUsed: v.KVUsed, kvCapacity: v.KVCapacity, slots: v.Slots, slotsUsed: v.SlotsUsed}
		for name, r := range w.adapters.rows {
			var st router.AdapterState = v.Adapters[r.index]
			if st.Running > 0 {
				s.runningLoras = append(s.runningLoras, name)
			}
			if st.Queued > 0 {
				s.waitingLora = append(s.waitingLora, name)
			}
		}
	})
	slices.Sort(s.runningLoras)
	slices.Sort(s.waitingLora)
	return s
}

func (s *signals) usage() float64 { return float64(s.kvUsed) / float64(s.kvCapacity) }

// getLoad serves sglang's older load signal.
func (w *Worker) getLoad(rw http.ResponseWriter, _ *http.Request) {
	s := w.signals()
	writeJSON(rw, http.StatusOK, []any{map[string]any{
		"dp_rank": 0, "num_reqs": s.running + s.queued, "num_waiting_reqs": s.queued, "num_tokens": s.kvUsed,
	}})
}

// loads serves sglang's newer load signal.
func (w *Worker) loads(rw http.ResponseWriter, _ *http.Request) {
	s := w.signals()
	writeJSON(rw, http.StatusOK, map[string]any{
		"timestamp": time.Now().Format(time.RFC3339Nano), "dp_rank_count": 1,
		"loads": []any{map[string]any{
			"dp_rank": 0, "num_running_reqs": s.running, "num_waiting_reqs": s.queued, "num_total_reqs": s.running + s.queued,
			"num_used_tokens": s.kvUsed, "max_total_num_tokens": s.kvCapacity, "token_usage": s.usage(),
			"max_running_requests": w.cfg.Costs.Profile().Engine.MaxRunningRequests,
			"lora":                 map[string]any{"slots_used": s.slotsUsed, "slots_total": s.slots},
		}},
	})
}

func (w *Worker) serverInfo(rw http.ResponseWriter, _ *http.Request) {
	e := w.cfg.Costs.Profile().Engine
	s := w.signals()
	writeJSON(rw, http.StatusOK, map[string]any{
		"model_path": w.cfg.ModelName, "served_model_name": w.cfg.ModelName, "enable_lora": true, "version": "emulated",
		"max_running_requests": e.MaxRunningRequests, "max_loras_per_batch": e.MaxLorasPerBatch,
		"max_loaded_loras": nullable(e.MaxLoadedLoras), "max_lora_rank": e.MaxLoraRank,
		"context_length": e.ContextLength, "chunked_prefill_size": e.ChunkedPrefillSize,
		"max_total_num_tokens": s.kvCapacity, "time_scale": w.cfg.Speed,
	})
}

func nullable(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func (w *Worker) modelInfo(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, map[string]any{
		"model_path": w.cfg.ModelName, "tokenizer_path": w.cfg.ModelName, "is_generation": true,
		"preferred_sampling_params": nil, "vocab_size": Vocabulary,
	})
}

// metrics serves Prometheus metrics by the names of the server it stands for.
func (w *Worker) metrics(rw http.ResponseWriter, _ *http.Request) {
	s := w.signals()
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	gauge := func(name string, v float64) {
		fmt.Fprintf(rw, "# TYPE %s gauge\n%s{model_name=%q} %v\n", name, name, w.cfg.ModelName, v)
	}
	if w.cfg.API == VLLM {
		gauge("vllm:num_requests_running", float64(s.running))
		gauge("vllm:num_requests_waiting", float64(s.queued))
		gauge("vllm:kv_cache_usage_perc", s.usage())
		fmt.Fprintf(rw, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"1\",num_gpu_blocks=\"%d\"} 1\n", s.kvCapacity)
		fmt.Fprintf(rw, "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=%q} %v\n",
			s.slots, strings.Join(s.runningLoras, ","), strings.Join(s.waitingLora, ","), float64(time.Now().UnixMilli())/1000)
		return
	}
	gauge("sglang:num_running_reqs", float64(s.running))
	gauge("sglang:num_queue_reqs", float64(s.queued))
	gauge("sglang:token_usage", s.usage())
	gauge("sglang:num_used_tokens", float64(s.kvUsed))
	gauge("sglang:lora_pool_slots_used", float64(s.slotsUsed))
	gauge("sglang:lora_pool_slots_total", float64(s.slots))
}
