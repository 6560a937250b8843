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
	router.Worker
	runningLoras, waitingLoras []string
}

func (w *Worker) signals() signals {
	var s signals
	w.eng.do(func() {
		s.Worker = *w.eng.srv.View()
		for name, r := range w.adapters.rows {
			if s.Adapters[r.index].Running > 0 {
				s.runningLoras = append(s.runningLoras, name)
			}
			if s.Adapters[r.index].Queued > 0 {
				s.waitingLoras = append(s.waitingLoras, name)
			}
		}
		s.Adapters = nil // the engine changes them
	})
	slices.Sort(s.runningLoras)
	slices.Sort(s.waitingLoras)
	return s
}

func (s *signals) usage() float64 { return float64(s.KVUsed) / float64(s.KVCapacity) }

// getLoad serves sglang's older load signal.
func (w *Worker) getLoad(rw http.ResponseWriter, _ *http.Request) {
	s := w.signals()
	writeJSON(rw, http.StatusOK, []any{object{
		"dp_rank": 0, "num_reqs": s.Running + s.Queued, "num_waiting_reqs": s.Queued, "num_tokens": s.KVUsed,
	}})
}

// loads serves sglang's newer load signal.
func (w *Worker) loads(rw http.ResponseWriter, _ *http.Request) {
	s := w.signals()
	writeJSON(rw, http.StatusOK, object{
		"timestamp": time.Now().Format(time.RFC3339Nano), "dp_rank_count": 1,
		"loads": []any{object{
			"dp_rank": 0, "num_running_reqs": s.Running, "num_waiting_reqs": s.Queued, "num_total_reqs": s.Running + s.Queued,
			"num_used_tokens": s.KVUsed, "max_total_num_tokens": s.KVCapacity, "token_usage": s.usage(),
			"max_running_requests": w.cfg.Costs.Profile().Engine.MaxRunningRequests,
			"lora":                 object{"slots_used": s.SlotsUsed, "slots_total": s.Slots},
		}},
	})
}

func (w *Worker) serverInfo(rw http.ResponseWriter, _ *http.Request) {
	e := w.cfg.Costs.Profile().Engine
	s := w.signals()
	writeJSON(rw, http.StatusOK, object{
		"model_path": w.cfg.ModelName, "served_model_name": w.cfg.ModelName, "enable_lora": true, "version": "emulated",
		"max_running_requests": e.MaxRunningRequests, "max_loras_per_batch": e.MaxLorasPerBatch,
		"max_loaded_loras": nullable(e.MaxLoadedLoras), "max_lora_rank": e.MaxLoraRank,
		"context_length": e.ContextLength, "chunked_prefill_size": e.ChunkedPrefillSize,
		"max_total_num_tokens": s.KVCapacity, "time_scale": w.cfg.Speed,
	})
}

func nullable(n int) any {
	if n == 0 {
		return nil
	}
	return n
}

func (w *Worker) modelInfo(rw http.ResponseWriter, _ *http.Request) {
	writeJSON(rw, http.StatusOK, object{
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
		gauge("vllm:num_requests_running", float64(s.Running))
		gauge("vllm:num_requests_waiting", float64(s.Queued))
		gauge("vllm:kv_cache_usage_perc", s.usage())
		fmt.Fprintf(rw, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"1\",num_gpu_blocks=\"%d\"} 1\n", s.KVCapacity)
		fmt.Fprintf(rw, "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=%q} %v\n",
			s.Slots, strings.Join(s.runningLoras, ","), strings.Join(s.waitingLoras, ","), float64(time.Now().UnixMilli())/1000)
		return
	}
	gauge("sglang:num_running_reqs", float64(s.Running))
	gauge("sglang:num_queue_reqs", float64(s.Queued))
	gauge("sglang:token_usage", s.usage())
	gauge("sglang:num_used_tokens", float64(s.KVUsed))
	gauge("sglang:lora_pool_slots_used", float64(s.SlotsUsed))
	gauge("sglang:lora_pool_slots_total", float64(s.Slots))
}
