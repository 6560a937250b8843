package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/trace"
)

// checked is a server whose clock is ahead; its model list has an adapter.
func checked(t *memory, paths map[string]string, ahead time.Duration) string {
	t.workers++
	h := t.net.Serve(fmt.Sprintf("host%d", t.workers), http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models" {
			now := time.Now().Add(ahead).Unix()
			fmt.Fprintf(rw,
				`{"data":[{"id":"m","max_model_len":2048,"created":%d},{"id":"lora0","parent":"m","created":%d}]}`, now,
				now)
			return
		}
		body, ok := paths[r.Method+" "+r.URL.Path]
		switch {
		case !ok:
			http.NotFound(rw, r)
		case body == "405":
			rw.WriteHeader(http.StatusMethodNotAllowed)
		default:
			io.WriteString(rw, body)
		}
	}))
	t.Cleanup(h.Kill)
	return h.URL
}

func TestCheck(t *testing.T) {
	const info = `{"version":"0.5.23","served_model_name":"m","enable_lora":%t,"dp_size":%d,"max_running_requests":7,"max_loras_per_batch":3,"max_loaded_loras":8,"max_lora_rank":16,"max_total_num_tokens":99}`
	const series = "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"4\"} 5\nvllm:num_requests_running 0\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n"
	const ids, noIDs = `{"choices":[{"token_ids":[5]}],"output_ids":[5]}`, `{"choices":[{}]}`
	for _, c := range []struct {
		name   string
		paths  map[string]string
		want   Info
		ids    Switch
		cannot []string // beginnings
	}{
		{"sglang", map[string]string{"GET /server_info": fmt.Sprintf(info, true, 1), "GET /v1/loads": "{}",
			"POST /generate": ids},
			Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", LoRA: On, RunTime: On, Limits: Limits{7, 3, 99, 8},
				MaxRank: 16}, On, nil},
		{"sglang without dynamic loading", map[string]string{"GET /server_info": fmt.Sprintf(info, true, 2),
			"GET /v1/loads": "{}", "POST /generate": noIDs},
			Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", LoRA: On, RunTime: Off, Limits: Limits{7, 3, 99,
				8},
				MaxRank: 16}, Off,
			[]string{"load or unload adapters: dynamic loading is disabled", "move running requests"}},
		{"vllm", map[string]string{"GET /version": `{"version":"0.32.0"}`, "GET /metrics": series,
			"GET /v1/load_lora_adapter": "405", "POST /v1/completions": ids},
			Info{API: httpapi.VLLM, Version: "0.32.0", Model: "m", LoRA: On, RunTime: On,
				Limits: Limits{Slots: 4, KVCapacity: 160}, ContextLength: 2048}, On,
			[]string{"use the limit of loaded adapters", "use the largest rank"}},
		{"vllm without dynamic loading and metrics", map[string]string{"GET /version": `{}`, "GET /metrics": "",
			"POST /v1/completions": noIDs},
			Info{API: httpapi.VLLM, Model: "m", LoRA: On, RunTime: Off, ContextLength: 2048}, Off,
			[]string{"load or unload adapters: dynamic loading is disabled; start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True", "move running requests", "unload adapters safely",
				"use the number of adapter slots", "use the size of the KV cache", "use the limit of loaded adapters",
				"use the largest rank"}},
		{"no answer to a request", map[string]string{"GET /server_info": fmt.Sprintf(info, true, 1),
			"GET /v1/loads": "{}"},
			Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", LoRA: On, RunTime: On, Limits: Limits{7, 3, 99, 8},
				MaxRank: 16}, "", []string{"rely on moving running requests"}},
	} {
		inMemory(t, func(t *memory) {
			const ahead = 90*time.Second + 300*time.Millisecond
			begun := time.Now()
			rs := Check(context.Background(), Connection{URLs: []string{checked(t, c.paths, ahead), "http://nobody"},
				Client: &http.Client{Transport: t.net.Transport()}}, Patience{}, true)
			if took := time.Since(begun); took > 1200*time.Millisecond {
				t.Errorf("%s: took %v", c.name, took)
			}
			r := rs[0]
			if r.Error != "" || r.Info != c.want || r.TokenIDs != c.ids ||
				!slices.Equal(r.Adapters, []string{"lora0"}) {
				t.Errorf("%s: %+v, expected %+v", c.name, r, c.want)
			}
			if len(r.Cannot) != len(c.cannot) {
				t.Errorf("%s: cannot %q, expected %q", c.name, r.Cannot, c.cannot)
			}
			for i := range min(len(r.Cannot), len(c.cannot)) {
				if !strings.HasPrefix(r.Cannot[i], c.cannot[i]) {
					t.Errorf("%s: cannot %q, expected %q", c.name, r.Cannot[i], c.cannot[i])
				}
			}
			if k := r.Clock; k == nil || k.Error > 0.02 || k.Offset < ahead.Seconds()-k.Error-1e-9 ||
				k.Offset > ahead.Seconds()+k.Error+1e-9 {
				t.Errorf("%s: clock %+v, expected %v ahead", c.name, r.Clock, ahead)
			}
			if rs[1].Error == "" {
				t.Errorf("%s: nobody was reached: %+v", c.name, rs[1])
			}
		})
	}
}

// A worker that is to come is waited for.
func TestCheckWaits(t *testing.T) {
	inMemory(t, func(t *memory) {
		c := Connection{URLs: []string{"http://host1"}, API: httpapi.VLLM,
			Client: &http.Client{Transport: t.net.Transport()}}
		defer c.Client.CloseIdleConnections()
		begun := time.Now()
		go func() {
			time.Sleep(30 * time.Second)
			checked(t, map[string]string{"GET /version": "{}"}, 0)
		}()
		if r := Check(context.Background(), c, Patience{Ready: time.Minute}, false)[0]; r.Error != "" ||
			time.Since(begun) < 30*time.Second || r.Clock != nil {
			t.Errorf("after %v: %+v", time.Since(begun), r)
		}
	})
}

// A worker that refuses the key is not waited for, and the error names the flag.
func TestCheckKey(t *testing.T) {
	inMemory(t, func(t *memory) {
		h := t.net.Serve("locked", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			http.Error(rw, `{"error":"Unauthorized"}`, http.StatusUnauthorized)
		}))
		t.Cleanup(h.Kill)
		c := Connection{URLs: []string{"http://locked"}, Client: &http.Client{Transport: t.net.Transport()}}
		begun := time.Now()
		r := Check(context.Background(), c, Patience{Ready: time.Hour}, false)[0]
		if !r.Refused || !strings.Contains(r.Error, "status 401: ") || !strings.HasSuffix(r.Error,
			"; the worker needs a key, or another one (--api-key-file, $LORASIM_WORKER_KEY)") {
			t.Errorf("%+v", r)
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("waited %v", took)
		}
	})
}

// A worker that hangs is given up after the time for its first answer.
func TestCheckHung(t *testing.T) {
	for first, want := range map[time.Duration]time.Duration{0: checkLimit, time.Second: time.Second} {
		inMemory(t, func(t *memory) {
			k := newFakeWorker(t)
			k.Freeze()
			c := Connection{URLs: []string{k.URL}, Client: &http.Client{Transport: t.net.Transport()}}
			begun := time.Now()
			r := Check(context.Background(), c, Patience{First: first}, false)[0]
			if took := time.Since(begun); r.Error == "" || took != want {
				t.Errorf("%q after %v, expected an error after %v", r.Error, took, want)
			}
		})
	}
}

func TestRefuse(t *testing.T) {
	as := trace.Names(6, []int{8})
	fixed := Report{URL: "u", Info: Info{API: httpapi.VLLM, LoRA: On, RunTime: Off}, Adapters: []string{"lora0"}}
	off := Report{URL: "u", Info: Info{API: httpapi.SGLang, LoRA: Off, RunTime: Off}}
	loads := Report{URL: "u", Info: Info{RunTime: On}}
	placed := &router.Router{Placement: [][]int32{{0}}}
	for _, c := range []struct {
		r    Report
		rt   *router.Router
		n    int
		want string
	}{
		{loads, &router.Router{}, 6, ""},
		{Report{Error: "refused", Info: Info{RunTime: Off}}, &router.Router{}, 6, ""},
		{fixed, &router.Router{}, 1, ""},
		{fixed, placed, 6, ""}, // what it is to serve it has
		{off, &router.Router{}, 0, ""},
		{off, &router.Router{}, 1, "worker 0 (u) lacks lora0: LoRA is disabled; start the server with --enable-lora"},
		{fixed, &router.Router{}, 3,
			"worker 0 (u) lacks lora1, lora2: dynamic loading is disabled; start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment"},
		{fixed, &router.Router{Placement: [][]int32{{0, 5}}}, 6,
			"worker 0 (u) lacks lora5: dynamic loading is disabled"},
		{fixed, &router.Router{Placement: placed.Placement, Planner: &outcomes{}}, 6,
			"worker 0 (u) lacks lora1, lora2, lora3 and 2 more: dynamic loading is disabled"},
		{fixed, &router.Router{Placement: placed.Placement, Places: true}, 6,
			"worker 0 (u) lacks lora1, lora2, lora3 and 2 more: dynamic loading is disabled"},
	} {
		err := Refuse([]Report{c.r}, as[:c.n], c.rt)
		if two := Refuse([]Report{c.r, c.r}, as[:c.n], &router.Router{Places: c.rt.Places}); err != nil &&
			!strings.HasSuffix(fmt.Sprint(two), " (and 1 more workers likewise)") {
			t.Errorf("two of %+v: %v", c.r, two)
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
			t.Errorf("%+v, %+v: %v, expected %q", c.r, c.rt, err, c.want)
		}
	}
}
