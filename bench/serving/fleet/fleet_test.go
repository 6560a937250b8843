package fleet

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	_ "lorasim/router/builtin"
	"lorasim/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"localhost:30001": "http://localhost:30001", "https://a.b/x/": "https://a.b/x",
		"http://[::1]:80": "http://[::1]:80",
		"a:1/v1":          "http://a:1", "https://a.b/x/v1/": "https://a.b/x",
	} {
		if got, err := ParseURL(in); err != nil || got != want {
			t.Errorf("%q: %q, %v; expected %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "ftp://x", "http://", "http://u:p@x", "http://x?q=1", "a:1,b:2", "http://x:port",
		"x:0", "x:99999"} {
		if got, err := ParseURL(in); err == nil {
			t.Errorf("%q: %q, expected an error", in, got)
		}
	}
}

func TestErrorText(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"a"}}`:                       "a",
		`{"error":"b"}`:                                   "b",
		`{"success":false,"error_message":"c"}`:           "c",
		`{"object":"error","message":"d"}`:                "d",
		`{"detail":"e"}`:                                  `"e"`,
		" plain\n":                                        "plain",
		`{"error":{"message":""},"error_message":"last"}`: "last",
		"": "",
		"<!DOCTYPE html>\n<html><body>404</body></html>": "an HTML page, expected JSON: is this the URL of an engine?",
		"two\n\tlines": "two lines",
	} {
		if got := ErrorText([]byte(body)); got != want {
			t.Errorf("%s: %q, expected %q", body, got, want)
		}
	}
	if got := ErrorText([]byte(strings.Repeat("x", 1000))); len(got) > 210 {
		t.Errorf("%d bytes of a long body", len(got))
	}
}

// What vLLM's metrics tell: the newest series of the adapters in use, limits of
// all engines, and whether there is LoRA at all before its first request.
func TestReadVLLM(t *testing.T) {
	const cache = `vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="%d"} 1.0
`
	text := fmt.Sprintf(`# HELP vllm:num_requests_running x
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",m="}"} 3
vllm:num_requests_running{engine="1"} 4.0
vllm:num_requests_waiting{engine="0"} 2 1700000000
vllm:num_requests_waiting_total 50
vllm:num_requests_waiting_by_reason{reason="capacity"} 1
vllm:num_requests_waiting_by_reason{reason="deferred"} 1
# TYPE vllm:lora_requests_info gauge
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 1.5e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="c",waiting_lora_adapters="d"} 1.6e9
vllm:lora_requests_info{max_lora="4",running_lora_adapters="",waiting_lora_adapters=""} 1.4e9
vllm:cache_config_info{block_size="16",engine="2",num_gpu_blocks="None"} 1.0
vllm:cache_config_info{block_size="16",engine="3",num_gpu_blocks="-5"} 1.0
vllm:cache_config_info{block_size="-16",engine="4",num_gpu_blocks="-5"} 1.0
`+cache+cache, 0, 100, 1, 50)
	got, err := readVLLM([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(got.Busy))
	// it takes the first of several series, and 0 for one without a type
	if r := got.report; r == nil || r.Running != 3 || r.Waiting != 0 || r.MaxLora != 4 ||
		!slices.Equal(r.RunningAdapters, []string{"c"}) || !slices.Equal(r.WaitingAdapters, []string{"d"}) {
		t.Errorf("a picker reads %+v", r)
	}
	got.Busy, got.VLLM, got.report = nil, !got.VLLM, nil
	if want := (load{Running: 7, Queued: 2, Deferred: 1, At: 1.6e9,
		Limits: Limits{Slots: 4, KVCapacity: 2400}}); !reflect.DeepEqual(got, want) ||
		!slices.Equal(names, []string{"c", "d"}) {
		t.Errorf("%+v with %q, expected %+v with c and d", got, names, want)
	}
	for text, lora := range map[string]bool{"# TYPE vllm:lora_requests_info gauge\n": true,
		"vllm:num_requests_running 1\n": false} {
		if l, err := readVLLM([]byte(text)); err != nil || (l.Busy != nil) != lora {
			t.Errorf("%q: %+v, %v", text, l, err)
		}
	}
	l, err := readVLLM([]byte("vllm:num_requests_running 2\nvllm:num_requests_running{a=\"1\"} NaN\n"))
	if err != nil || l.Running != 2 {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := readVLLM([]byte("<html>")); err == nil {
		t.Error("a page of HTML was read as metrics")
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"error":{"message":"a"}}`))
	f.Add([]byte("vllm:num_requests_running{a=\"b\"} 1 2\nvllm:lora_requests_info{max_lora=\"x\"} 3\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ErrorText(data)
		if l, err := readVLLM(data); err == nil && (l.Running < 0 || l.KVCapacity < 0) {
			t.Fatalf("%+v of what is not negative", l)
		}
	})
}

// answers is a server with the given paths and bodies; others are 404.
func answers(t *testing.T, paths map[string]string) (*engine, *sync.Map) {
	var calls sync.Map
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, _ := calls.LoadOrStore(r.URL.Path, new(int))
		*n.(*int)++
		body, ok := paths[r.URL.Path]
		if !ok {
			http.NotFound(rw, r)
			return
		}
		if body == "405" {
			rw.WriteHeader(http.StatusMethodNotAllowed)
		}
		rw.Write([]byte(body))
	}))
	t.Cleanup(srv.Close)
	client := srv.Client()
	t.Cleanup(client.CloseIdleConnections)
	e := newEngine(&Connection{Client: client}, srv.URL)
	return e, &calls
}

// Servers of several ages: which names they know, and what they tell.
func TestDiscover(t *testing.T) {
	const old = `{"model_path":"m","max_running_requests":7,"max_loras_per_batch":3,"max_loaded_loras":null,"max_total_num_tokens":99}`
	const sglang = `{"version":"0.5.23","model_path":"p","served_model_name":"m","enable_lora":true,"dp_size":1,"max_running_requests":7,
		"max_loras_per_batch":3,"max_loaded_loras":8,"max_lora_rank":16,"max_total_num_tokens":99,"context_length":2048}`
	const models = `{"data":[{"id":"m","parent":null,"max_model_len":8},{"id":"a","parent":"m"}]}`
	const series = "vllm:num_requests_running 4\nvllm:num_requests_waiting{a=\"b\"} 6\n"
	said := Limits{MaxRunning: 7, Slots: 3, KVCapacity: 99}
	full := Limits{7, 3, 99, 8}
	for _, c := range []struct {
		name  string
		paths map[string]string
		load  load
		info  Info
	}{
		{"sglang", map[string]string{"/server_info": sglang, "/v1/loads": `{"loads":[{"num_running_reqs":2,"num_waiting_reqs":1,
			"max_total_num_tokens":60,"max_running_requests":9,"lora":{"slots_total":4}},{"num_running_reqs":1,"max_total_num_tokens":40}]}`},
			load{Running: 3, Queued: 1, Limits: Limits{MaxRunning: 9, Slots: 4, KVCapacity: 100}},
			Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", Root: "p", LoRA: On, RunTime: On, Limits: full,
				MaxRank: 16, ContextLength: 2048}},
		{"sglang, replicas", map[string]string{"/server_info": strings.Replace(sglang, `"dp_size":1`, `"dp_size":2`, 1),
			"/v1/loads": `{}`},
			load{}, Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", Root: "p", LoRA: On, RunTime: Off,
				Limits:  full,
				MaxRank: 16, ContextLength: 2048}},
		{"sglang without LoRA", map[string]string{"/server_info": strings.Replace(sglang, `"enable_lora":true`,
			`"enable_lora":false`, 1), "/v1/loads": `{}`},
			load{}, Info{API: httpapi.SGLang, Version: "0.5.23", Model: "m", Root: "p", LoRA: Off, RunTime: Off,
				Limits: Limits{7, 0, 99, 8}, MaxRank: 16, ContextLength: 2048}},
		{"sglang, older", map[string]string{"/get_server_info": old,
			"/get_load": `[{"num_reqs":5,"num_waiting_reqs":2}]`},
			load{Running: 3, Queued: 2}, Info{API: httpapi.SGLang, Model: "m", Root: "m", Limits: said}},
		{"vllm", map[string]string{"/version": `{"version":"0.32.0"}`, "/v1/models": models,
			"/v1/load_lora_adapter": "405",
			"/metrics":              series + "# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"4\"} 5\n"},
			load{VLLM: true, Running: 4, Queued: 6, At: 5, Busy: map[string]bool{"": true}, Limits: Limits{Slots: 4}},
			Info{API: httpapi.VLLM, Version: "0.32.0", Model: "m", LoRA: On, RunTime: On, Limits: Limits{Slots: 4},
				ContextLength: 8}},
		{"vllm, adapters fixed", map[string]string{"/version": `{}`, "/v1/models": models,
			"/metrics": series + "# TYPE vllm:lora_requests_info gauge\n"},
			load{VLLM: true, Running: 4, Queued: 6, Busy: map[string]bool{}},
			Info{API: httpapi.VLLM, Model: "m", LoRA: On, RunTime: Off, ContextLength: 8}},
		{"vllm without LoRA", map[string]string{"/version": `{}`, "/v1/models": models, "/v1/load_lora_adapter": "405",
			"/metrics": series},
			load{VLLM: true, Running: 4, Queued: 6}, Info{API: httpapi.VLLM, Model: "m", LoRA: Off, RunTime: Off,
				ContextLength: 8}},
		{"a gateway", map[string]string{"/server_info": old, "/v1/models": models, "/health": ""}, load{},
			Info{API: httpapi.SGLang, Model: "m", Root: "m", Limits: said}},
	} {
		e, calls := answers(t, c.paths)
		in, err := e.discover(context.Background())
		if err != nil || in != c.info || e.kind() != in.API {
			t.Errorf("%s: %v, %+v, expected %+v", c.name, err, in, c.info)
			continue
		}
		for range 2 {
			l, err := e.load(context.Background())
			if r := l.report; r != nil && (r.Running > l.Running || r.Waiting > l.Queued) {
				t.Errorf("%s: a picker reads %+v of %+v", c.name, r, l)
			}
			if l.report = nil; err != nil || !reflect.DeepEqual(l, c.load) {
				t.Errorf("%s: load %+v, %v; expected %+v", c.name, l, err, c.load)
			}
		}
		if n, ok := calls.Load("/v1/loads"); ok && c.paths["/v1/loads"] == "" && *n.(*int) != 1 {
			t.Errorf("%s: the newer name was tried %d times", c.name, *n.(*int))
		}
	}
	gone, _ := answers(t, map[string]string{"/server_info": sglang})
	if _, err := gone.discover(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := gone.load(context.Background()); !isStatus(err, http.StatusNotFound) {
			t.Errorf("a worker without any signal: %v, expected status 404", err)
		}
	}
}

func newTestFleet(t interface{ Fatal(...any) }, workers, adapters int) *Fleet {
	as := trace.Names(adapters, []int{8, 64})
	rt, err := router.New("least-loaded", router.Env{Workers: router.Alike(workers, router.Spec{}), Adapters: as})
	if err != nil {
		t.Fatal(err)
	}
	now := 0.0
	limits := slices.Repeat([]Limits{{Slots: 2, MaxRunning: 4}}, workers)
	f, err := New(Config{Connection: Connection{URLs: make([]string, workers), API: httpapi.SGLang}, Router: rt,
		Adapters: as, Limits: limits,
		Now: func() float64 { now += 0.001; return now }, LoadLimit: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range f.workers {
		k.health.known, k.view.Up = true, true
		for a := range adapters {
			k.loras.add(int32(a))
		}
	}
	return f
}

// Whatever requests do, the books agree with a recount, and are empty when all
// have left.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newTestFleet(t, 3, 4)
		defer f.Close()
		type live struct {
			*Request
			first bool
		}
		var open []*live
		for id := range int64(rapid.IntRange(1, 60).Draw(t, "steps")) {
			switch k := rapid.IntRange(0, 3).Draw(t, "what"); {
			case k == 0 || len(open) == 0:
				r := &live{&Request{Request: router.Request{ID: id,
					Adapter: int32(rapid.IntRange(-1, 3).Draw(t, "adapter")), Prompt: 10, MaxNew: 20}}, true}
				if f.Requests.Route(r.Request) == router.None {
					t.Fatal("no worker")
				}
				open = append(open, r)
			case k == 1:
				r := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
				f.Requests.Tokens(r.Request, 2, r.first)
				r.first = false
			case k == 2: // moves
				r := open[rapid.IntRange(0, len(open)-1).Draw(t, "which")]
				f.Requests.Left(r.Request)
				f.Requests.MoveTo(r.Request, rapid.IntRange(0, 2).Draw(t, "to"))
				r.first = true
			default:
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				f.Requests.Left(open[i].Request)
				open = append(open[:i], open[i+1:]...)
			}
			recount(t, f)
		}
		for _, r := range open {
			f.Requests.Left(r.Request)
		}
		recount(t, f)
		for w := range f.view.Workers {
			if v := &f.view.Workers[w]; v.Load() != 0 || v.Tokens != 0 || v.QueuedToks != 0 || v.MaxRank != 0 ||
				f.workers[w].books.kv.Load() != 0 {
				t.Fatalf("worker %d: left with %+v", w, v)
			}
		}
	})
}

func recount(t *rapid.T, f *Fleet) {
	f.fresh()
	for w, k := range f.workers {
		v := &f.view.Workers[w]
		var running, queued, rank int
		var tokens, waiting, kv int64
		adapters := make([]router.AdapterState, len(v.Adapters))
		for _, r := range k.books.requests {
			tokens += int64(r.Prompt) + int64(r.MaxNew)
			if r.running {
				running++
				kv += int64(r.Prompt) + int64(r.Generated())
			} else {
				queued++
				waiting += int64(r.Prompt)
			}
			if r.Adapter >= 0 {
				rank = max(rank, int(f.catalog.rank(r.Adapter)))
				if r.running {
					adapters[r.Adapter].Running++
				} else {
					adapters[r.Adapter].Queued++
				}
			}
		}
		if v.Running != running || v.Queued != queued || v.Tokens != tokens || v.QueuedToks != waiting ||
			v.MaxRank != rank || v.KVUsed != kv {
			t.Fatalf("worker %d: %+v; recounted %d running, %d queued, %d tokens, %d waiting, rank %d, kv %d", w, v,
				running, queued, tokens, waiting, rank, kv)
		}
		gpu := 0
		for a := range adapters {
			if v.Adapters[a].Running != adapters[a].Running || v.Adapters[a].Queued != adapters[a].Queued {
				t.Fatalf("worker %d, adapter %d: %+v, recounted %+v", w, a, v.Adapters[a], adapters[a])
			}
			if v.Adapters[a].Tier == router.GPU {
				gpu++
			}
		}
		if gpu != v.SlotsUsed || gpu > 2 {
			t.Fatalf("worker %d: %d adapters in GPU slots, %d slots used", w, gpu, v.SlotsUsed)
		}
	}
}

// The adapters used latest are in the GPU slots; those that no request runs with
// are idle there.
func TestSlots(t *testing.T) {
	f := newTestFleet(t, 1, 3) // of 2 slots
	defer f.Close()
	v := &f.view.Workers[0]
	var open []*Request
	for i, want := range []struct{ used, idle, gone int }{{1, 0, -1}, {2, 0, -1}, {2, 0, 0}} {
		r := &Request{Request: router.Request{ID: int64(i), Adapter: int32(i)}}
		f.Requests.Book(r, 0)
		f.Requests.Tokens(r, 1, true)
		f.Requests.Tokens(r, 1, true) // told twice, counted once
		if v.SlotsUsed != want.used || v.SlotsIdle != want.idle || v.Running != i+1 {
			t.Errorf("after adapter %d: %+v", i, v)
		}
		if want.gone >= 0 && v.Adapters[want.gone].Tier != router.Host {
			t.Errorf("adapter %d is still in a slot", want.gone)
		}
		open = append(open, r)
	}
	f.Requests.Left(open[2])
	if v.SlotsUsed != 2 || v.SlotsIdle != 1 {
		t.Errorf("with one idle: %+v", v)
	}
	f.view.Workers[0].Slots = 0 // unknown: all that are used from now on
	f.workers[0].loras.used(0)
	if v.SlotsUsed != 3 || v.Adapters[0].Tier != router.GPU {
		t.Errorf("without a number of slots: %+v", v)
	}
}

// BenchmarkRoute is the whole of the books for one request: route, first token,
// more tokens, end.
func BenchmarkRoute(b *testing.B) {
	f := newTestFleet(b, 8, 32)
	defer f.Close()
	b.ReportAllocs()
	for i := range b.N {
		r := &Request{Request: router.Request{ID: int64(i), Adapter: int32(i % 32), Prompt: 100, MaxNew: 100}}
		f.Requests.Route(r)
		f.Requests.Tokens(r, 1, true)
		f.Requests.Tokens(r, 9, false)
		f.Requests.Left(r)
	}
}
