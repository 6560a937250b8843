package emulate_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	_ "lorasim/internal/memnet" // keeps the race detector from crashing in bubbles
	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/sim/profile"
)

// roundProfile has round step times: a prefill step of 5 ms, a decode step of
// 10 ms, and tokens that take 2 ms to the client.
func roundProfile() *profile.Profile {
	p := profile.Default()
	p.Name = "round"
	p.Latency = profile.Latency{
		Decode:            profile.Decode{BaseMs: 10},
		Prefill:           profile.Prefill{BaseMs: 5, FirstWaveFactor: 1},
		LoRA:              profile.LoRA{Backend: profile.BackendNone},
		RequestOverheadMs: 2,
	}
	p.Memory.KVTokens = 100000
	return &p
}

func newWorker(t testing.TB, cfg emulate.Config) *emulate.Worker {
	t.Helper()
	if cfg.Costs == nil {
		cfg.Costs = roundProfile().Compile()
	}
	if cfg.Home == router.Remote {
		cfg.Home = router.Disk
	}
	w, err := emulate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// timedWriter notes when each write comes.
type timedWriter struct {
	*httptest.ResponseRecorder
	start time.Time
	at    []time.Duration
}

func (w *timedWriter) Write(b []byte) (int, error) {
	w.at = append(w.at, time.Since(w.start))
	return w.ResponseRecorder.Write(b)
}

func post(h http.Handler, path string, body any) *timedWriter {
	data, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w := &timedWriter{ResponseRecorder: httptest.NewRecorder(), start: time.Now()}
	h.ServeHTTP(w, httptest.NewRequest("POST", path, bytes.NewReader(data)))
	return w
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func generateBody(prompt []int32, n int, more map[string]any) map[string]any {
	b := map[string]any{"input_ids": prompt, "stream": true, "sampling_params": map[string]any{"max_new_tokens": n,
		"ignore_eos": true}}
	for k, v := range more {
		b[k] = v
	}
	return b
}

type generated struct {
	Text      string  `json:"text"`
	OutputIDs []int32 `json:"output_ids"`
	MetaInfo  struct {
		ID           string `json:"id"`
		FinishReason *struct {
			Type string `json:"type"`
		} `json:"finish_reason"`
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		CachedTokens     int `json:"cached_tokens"`
	} `json:"meta_info"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// eventsOf parses a stream of /generate, which must end in [DONE].
func eventsOf(t *testing.T, body string) []generated {
	t.Helper()
	var list []generated
	blocks := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	for i, b := range blocks {
		data, ok := strings.CutPrefix(b, "data: ")
		if !ok {
			t.Fatalf("event %q", b)
		}
		if data == "[DONE]" {
			if i != len(blocks)-1 {
				t.Fatal("[DONE] is not the last event")
			}
			return list
		}
		var g generated
		if err := json.Unmarshal([]byte(data), &g); err != nil {
			t.Fatalf("event %q: %v", data, err)
		}
		list = append(list, g)
	}
	t.Fatalf("no [DONE] in %q", body)
	return nil
}

// On a fake clock every token leaves at exactly the simulator's time: 5 ms of
// prefill and 2 ms of overhead, then one every 10 ms; scaled, faster.
func TestTokenTimes(t *testing.T) {
	for _, speed := range []float64{1, 5} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, emulate.Config{Speed: speed})
			defer w.Close()
			rec := post(w, "/generate", generateBody([]int32{7, 8, 9}, 4, nil))
			want := []float64{7, 17, 27, 37}
			if len(rec.at) != len(want) {
				t.Fatalf("%d events, expected %d: %s", len(rec.at), len(want), rec.Body)
			}
			for i, at := range rec.at {
				if got := at.Seconds() * 1000 * speed; got < want[i]-0.01 || got > want[i]+0.01 {
					t.Errorf("speed %v: token %d at %v ms, expected %v", speed, i, got, want[i])
				}
			}
			if one := post(w, "/generate", generateBody([]int32{7}, 1, nil)); !rec.Flushed ||
				len(eventsOf(t, one.Body.String())) != 1 {
				t.Errorf("events leave at once: %v; one token: %s", rec.Flushed, one.Body)
			}
		})
	}
}

func TestGenerateStream(t *testing.T) {
	for _, incremental := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorker(t, emulate.Config{StreamOutput: incremental, Adapters: []emulate.Adapter{{Name: "chat"}}})
			defer w.Close()
			prompt := []int32{100, 200, 300}
			rec := post(w, "/generate", generateBody(prompt, 5, map[string]any{"lora_path": "chat", "rid": "r\"1"}))
			want := emulate.Tokens("chat", prompt, 5)
			var all []int32
			list := eventsOf(t, rec.Body.String())
			for i, g := range list {
				if incremental {
					all = append(all, g.OutputIDs...)
				} else {
					all = g.OutputIDs
				}
				if g.MetaInfo.CompletionTokens != i+1 || g.MetaInfo.PromptTokens != 3 || g.MetaInfo.ID != "r\"1" ||
					len(all) != i+1 {
					t.Fatalf("event %d: %+v", i, g)
				}
				if last := i == len(list)-1; (g.MetaInfo.FinishReason != nil) != last {
					t.Fatalf("event %d has finish reason %v", i, g.MetaInfo.FinishReason)
				}
			}
			if !slices.Equal(all, want) {
				t.Fatalf("tokens %v, expected %v", all, want)
			}
			if got := list[len(list)-1]; !incremental && !slices.Equal(emulate.Tokenize(got.Text), want) {
				t.Fatalf("text %q does not tokenize to %v", got.Text, want)
			}
		})
	}
}

// A request that is sent again with what it generated so far goes on as if
// nothing had happened; another adapter or prompt gives other tokens.
func TestTokensContinue(t *testing.T) {
	prompt := []int32{5, 6, 7}
	all := emulate.Tokens("a", prompt, 20)
	for k := range all {
		if rest := emulate.Tokens("a", append(slices.Clone(prompt), all[:k]...), 20-k); !slices.Equal(rest, all[k:]) {
			t.Fatalf("after %d tokens: %v, expected %v", k, rest, all[k:])
		}
	}
	if slices.Equal(all, emulate.Tokens("b", prompt, 20)) ||
		slices.Equal(all, emulate.Tokens("a", []int32{5, 6, 8}, 20)) {
		t.Fatal("another adapter or prompt gives the same tokens")
	}
	if got := emulate.Tokenize("t31999 t32000 tx x t-1"); got[0] != emulate.Vocabulary-1 ||
		slices.Max(got[1:]) >= emulate.Vocabulary || slices.Min(got[1:]) <= emulate.EOS {
		t.Errorf("words have the tokens %v, which must lie in the vocabulary", got)
	}
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{})
		defer w.Close()
		var rec, other *timedWriter
		go func() { rec = post(w, "/generate", generateBody([]int32{1}, 1000, map[string]any{"rid": "aa-1"})) }()
		go func() { other = post(w, "/generate", generateBody([]int32{1}, 10, map[string]any{"rid": "ab-1"})) }()
		time.Sleep(50 * time.Millisecond)
		if got := post(w, "/abort_request", map[string]any{"rid": "aa"}); got.Code != 200 {
			t.Fatalf("abort: %d", got.Code)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		list := eventsOf(t, rec.Body.String())
		last := list[len(list)-1]
		if last.MetaInfo.FinishReason == nil || last.MetaInfo.FinishReason.Type != "abort" {
			t.Fatalf("the aborted request ended with %+v", last)
		}
		if want := emulate.Tokens("", []int32{1}, len(last.OutputIDs)); len(want) < 4 || len(want) > 7 ||
			!slices.Equal(last.OutputIDs, want) {
			t.Fatalf("the aborted request has %d tokens", len(want))
		}
		if n := len(eventsOf(t, other.Body.String())); n != 10 {
			t.Fatalf("the other request has %d tokens", n)
		}
	})
}

// The forms of errors: in the stream with status 200, else as status 400; by
// vLLM an unknown adapter is 404.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{})
		defer w.Close()
		vllm := newWorker(t, emulate.Config{API: httpapi.VLLM})
		defer vllm.Close()
		long := make([]int32, 4096)
		for _, c := range []struct {
			name, path string
			body       map[string]any
			status     int
			say        string
		}{
			{"unknown adapter", "/generate", generateBody([]int32{1}, 5, map[string]any{"lora_path": "nope"}), 200,
				"never been loaded: nope"},
			{"too long", "/generate", generateBody(long, 5, nil), 200, "context length 4096"},
			{"too long, no stream", "/generate", generateBody(long, 5, map[string]any{"stream": false}), 400,
				"context length 4096"},
			{"no prompt", "/generate", generateBody([]int32{}, 5, nil), 200, "prompt is empty"},
			{"no budget", "/generate", generateBody([]int32{1}, 0, nil), 200, "0 tokens asked for"},
			{"too large a budget", "/generate", generateBody([]int32{1}, 1<<31, nil), 200,
				"2147483648 tokens asked for"},
			{"no replies", "/v1/completions", map[string]any{"prompt": "a b", "n": 0}, 400, "n must be at least 1"},
			{"unknown adapter, OpenAI", "/v1/completions", map[string]any{"model": "m:nope", "prompt": "a b"}, 400,
				"never been loaded: nope"},
		} {
			rec := post(w, c.path, c.body)
			if rec.Code != c.status || !strings.Contains(rec.Body.String(), c.say) {
				t.Errorf("%s: %d %s", c.name, rec.Code, rec.Body)
			}
			if c.status == 200 {
				if list := eventsOf(t, rec.Body.String()); len(list) != 1 || list[0].Error == nil {
					t.Errorf("%s: %s", c.name, rec.Body)
				}
			}
		}
		if rec := post(vllm, "/v1/completions", map[string]any{"model": "nope", "prompt": "a b"}); rec.Code != 404 {
			t.Errorf("vLLM, unknown model: %d %s", rec.Code, rec.Body)
		}
		if rec := post(vllm, "/generate", generateBody([]int32{1}, 5, nil)); rec.Code != 404 {
			t.Errorf("vLLM has /generate: %d", rec.Code)
		}
		if n := w.Running(); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

func TestAdapterAdmin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := roundProfile()
		p.Engine.MaxLorasPerBatch, p.Engine.MaxLoadedLoras = 2, 2
		w := newWorker(t, emulate.Config{Costs: p.Compile()})
		defer w.Close()
		load := func(name, path string) *timedWriter {
			return post(w, "/load_lora_adapter", map[string]any{"lora_name": name, "lora_path": path})
		}
		if rec := load("a", "x/a?rank=16"); rec.Code != 200 || !strings.Contains(rec.Body.String(), `"success":true`) {
			t.Fatalf("load: %d %s", rec.Code, rec.Body)
		} else if want := 50 + 80e6/1.5e9*1000; rec.at[0].Seconds()*1000 < want-0.1 ||
			rec.at[0].Seconds()*1000 > want+0.1 {
			t.Errorf("the load of rank 16 took %v, expected %v ms", rec.at[0], want)
		}
		for _, c := range []struct{ name, path, say string }{
			{"a", "a", "already loaded"},
			{"b", "b-r128", "incompatible"},
		} {
			if rec := load(c.name, c.path); rec.Code != 400 || !strings.Contains(rec.Body.String(), c.say) {
				t.Errorf("load of %q: %d %s", c.name, rec.Code, rec.Body)
			}
		}
		load("b", "b")
		if rec := load("c", "c"); rec.Code != 400 || !strings.Contains(rec.Body.String(), "at most 2") {
			t.Errorf("a third adapter: %d %s", rec.Code, rec.Body)
		}

		// unloading waits for the request that uses it, and lets no other in
		var stream *timedWriter
		go func() {
			stream = post(w, "/generate", generateBody([]int32{1}, 50, map[string]any{"lora_path": "a"}))
		}()
		time.Sleep(20 * time.Millisecond)
		var refused *timedWriter
		go func() {
			time.Sleep(time.Millisecond)
			refused = post(w, "/generate", generateBody([]int32{1}, 5, map[string]any{"lora_path": "a"}))
		}()
		before := time.Now()
		rec := post(w, "/unload_lora_adapter", map[string]any{"lora_name": "a"})
		if took := time.Since(before); rec.Code != 200 || took < 400*time.Millisecond || took > 600*time.Millisecond {
			t.Errorf("unload: %d after %v, expected some 480 ms", rec.Code, took)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if n := len(eventsOf(t, stream.Body.String())); n != 50 {
			t.Errorf("the request has %d tokens", n)
		}
		if !strings.Contains(refused.Body.String(), "never been loaded") {
			t.Errorf("a request during the unload: %s", refused.Body)
		}
		if body := get(w, "/v1/models").Body.String(); strings.Contains(body, `"id":"a"`) ||
			!strings.Contains(body, `"id":"b"`) {
			t.Errorf("models: %s", body)
		}
		if rec := load("c", "c"); rec.Code != 200 {
			t.Errorf("after the unload: %d %s", rec.Code, rec.Body)
		}
		unload := func(name string) *timedWriter {
			return post(w, "/unload_lora_adapter", map[string]any{"lora_name": name})
		}
		unload("b")
		for _, c := range []struct {
			path  string
			bytes float64
		}{{"a", 80e6}, {"a?rank=64", 320e6}, {"a", 320e6}, {"a/r8", 40e6}} { // the rank stated, else the one known
			if rec, want := load("a", c.path), 50+c.bytes/1.5e9*1000; rec.Code != 200 ||
				rec.at[0].Seconds()*1000 < want-0.1 || rec.at[0].Seconds()*1000 > want+0.1 {
				t.Errorf("the load of %s: %d after %v, expected %v ms", c.path, rec.Code, rec.at, want)
			}
			if rec := unload("a"); rec.Code != 200 {
				t.Errorf("unload: %d %s", rec.Code, rec.Body)
			}
		}
		if rec := unload("a"); rec.Code != 400 ||
			!strings.Contains(rec.Body.String(), "LoRA with name a does not exist") {
			t.Errorf("a second unload: %d %s", rec.Code, rec.Body)
		}
		small := newWorker(t, emulate.Config{MaxAdapters: 1, Adapters: []emulate.Adapter{{Name: "a"}}})
		defer small.Close()
		if rec := post(small, "/load_lora_adapter", map[string]any{"lora_name": "b",
			"lora_path": "b"}); rec.Code != 400 ||
			!strings.Contains(rec.Body.String(), "1 adapter names are known") {
			t.Errorf("one name too many: %d %s", rec.Code, rec.Body)
		}
	})
}

// An adapter whose rank is not known has a rank that the worker can run.
func TestUnknownRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := profile.Default()
		p.Memory.KVTokens, p.Adapters.DefaultRank, p.Engine.MaxLoraRank = 10000, 16, 8
		w := newWorker(t, emulate.Config{Costs: p.Compile(), API: httpapi.VLLM})
		defer w.Close()
		post(w, "/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": "a"})
		rec := post(w, "/v1/completions", map[string]any{"model": "a", "prompt": "x", "max_tokens": 2})
		if rec.Code != 200 {
			t.Errorf("%d %s", rec.Code, rec.Body)
		}
	})
}

// vLLM answers loads and unloads in words of its own.
func TestVLLMAdapters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{API: httpapi.VLLM})
		defer w.Close()
		for _, c := range []struct {
			path   string
			status int
			say    string
		}{
			{"/v1/load_lora_adapter", 200, "Success: LoRA adapter 'a' added successfully."},
			{"/v1/load_lora_adapter", 400, "The lora adapter 'a' has already been loaded."},
			{"/v1/unload_lora_adapter", 200, "Success: LoRA adapter 'a' removed successfully."},
			{"/v1/unload_lora_adapter", 404, "The lora adapter 'a' cannot be found."},
		} {
			if rec := post(w, c.path, map[string]any{"lora_name": "a", "lora_path": "a"}); rec.Code != c.status ||
				!strings.Contains(rec.Body.String(), c.say) {
				t.Errorf("%s: %d %s, expected %d %s", c.path, rec.Code, rec.Body, c.status, c.say)
			}
			time.Sleep(time.Second)
		}
	})
}

// vLLM refuses loads without a path, and more tokens than the context has.
func TestVLLMRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := profile.Default()
		p.Memory.KVTokens, p.Engine.ContextLength = 10000, 50
		const base = "base"
		w := newWorker(t, emulate.Config{Costs: p.Compile(), API: httpapi.VLLM, ModelName: base})
		defer w.Close()
		for _, c := range []struct {
			path   string
			body   map[string]any
			status int
			say    string
		}{
			{"/v1/load_lora_adapter", map[string]any{"lora_name": "a", "lora_path": ""}, 400,
				"Both 'lora_name' and 'lora_path' must be provided."},
			{"/v1/load_lora_adapter", map[string]any{"lora_name": "", "lora_path": "a"}, 400,
				`"type":"InvalidUserInput"`},
			{"/v1/completions", map[string]any{"model": base, "prompt": []int32{1, 2}, "max_tokens": 51}, 400,
				"max_tokens=51 cannot be greater than max_model_len=50. Please request fewer output tokens."},
			{"/v1/completions", map[string]any{"model": base, "prompt": []int32{1, 2}, "max_tokens": 10,
				"ignore_eos": true}, 200, `"completion_tokens":10`},
		} {
			if rec := post(w, c.path, c.body); rec.Code != c.status || !strings.Contains(rec.Body.String(), c.say) {
				t.Errorf("%s %v: %d %s, expected %d %s", c.path, c.body, rec.Code, rec.Body, c.status, c.say)
			}
		}
	})
}

func TestOpenAI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{API: httpapi.VLLM, Adapters: []emulate.Adapter{{Name: "chat"}}})
		defer w.Close()
		want := emulate.Text(emulate.Tokens("chat", []int32{4, 5}, 3))
		rec := post(w, "/v1/completions", map[string]any{"model": "chat", "prompt": []int32{4, 5}, "max_tokens": 3,
			"ignore_eos": true})
		if !strings.Contains(rec.Body.String(), fmt.Sprintf(`"text":%q`, want)) ||
			!strings.Contains(rec.Body.String(), `"completion_tokens":3`) ||
			!strings.Contains(rec.Body.String(), `"total_tokens":5`) {
			t.Errorf("completion: %s", rec.Body)
		}
		rec = post(w, "/v1/completions", map[string]any{"model": "chat", "prompt": "t4 t5", "max_tokens": 3,
			"ignore_eos": true,
			"stream":     true, "stream_options": map[string]any{"include_usage": true}})
		body := rec.Body.String()
		if n := strings.Count(body, `"text":" t`); n != 3 || strings.Count(body, `"choices":[]`) != 1 ||
			strings.Count(body, `"finish_reason":null`) != 2 || strings.Count(body, `"finish_reason":"length"`) != 1 {
			t.Errorf("stream: %s", body)
		}
		rec = post(w, "/v1/completions", map[string]any{"model": "chat", "prompt": "t4 t5", "max_tokens": 3, "n": 1,
			"stream": true})
		if body := rec.Body.String(); rec.Code != 200 || strings.Contains(body, `"usage"`) {
			t.Errorf("stream without usage: %d %s", rec.Code, body)
		}
		rec = post(w, "/v1/chat/completions",
			map[string]any{"model": "round", "messages": []any{map[string]any{"role": "user", "content": "hi there"}},
				"max_tokens": 2})
		if !strings.Contains(rec.Body.String(), `"object":"chat.completion"`) ||
			!strings.Contains(rec.Body.String(), `"prompt_tokens":3`) {
			t.Errorf("chat: %s", rec.Body)
		}
		if body := get(w, "/metrics").Body.String(); !strings.Contains(body,
			`vllm:num_requests_running{engine="0",model_name="round"} 0.0`) {
			t.Errorf("metrics: %s", body)
		}
	})
}

// Token ids come where they are asked for.
func TestTokenIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, api := range []httpapi.Kind{httpapi.VLLM, httpapi.SGLang} {
			w := newWorker(t, emulate.Config{API: api})
			for _, asked := range []bool{true, false} {
				rec := post(w, "/v1/completions", map[string]any{"model": "round", "prompt": []int32{4, 5},
					"max_tokens": 3, "return_token_ids": asked})
				if has := strings.Contains(rec.Body.String(), `"token_ids":[`); rec.Code != 200 ||
					has != asked {
					t.Errorf("%s, asked %v: %s", api, asked, rec.Body)
				}
			}
			w.Close()
		}
	})
}

func TestNegativeSettings(t *testing.T) {
	costs := roundProfile().Compile()
	for speed, ok := range map[float64]bool{1e6: true, 1e6 + 1: false, -1: false} {
		w, err := emulate.New(emulate.Config{Costs: costs, Home: router.Disk, Speed: speed})
		if (err == nil) != ok {
			t.Errorf("speed %v: %v", speed, err)
		}
		if err == nil {
			w.Close()
		}
	}
	for _, c := range []emulate.Config{{StreamInterval: -1}, {MaxAdapters: -1}, {EOSEvery: -1}} {
		c.Costs = costs
		_, err := emulate.New(c)
		testutil.ExpectError(t, err, "must not be negative")
	}
}

// EOSEvery ends replies that do not ignore EOS early, with "stop".
func TestEOS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorker(t, emulate.Config{EOSEvery: 10})
		defer w.Close()
		stops := 0
		for i := range 20 {
			rec := post(w, "/generate", map[string]any{"input_ids": []int{i},
				"sampling_params": map[string]any{"max_new_tokens": 30}})
			var g generated
			if err := json.Unmarshal(rec.Body.Bytes(), &g); err != nil {
				t.Fatal(err)
			}
			if g.MetaInfo.FinishReason.Type == "stop" {
				stops++
				if g.OutputIDs[len(g.OutputIDs)-1] != emulate.EOS {
					t.Fatalf("stopped at %v", g.OutputIDs)
				}
			} else if len(g.OutputIDs) != 30 {
				t.Fatalf("%d tokens without a stop", len(g.OutputIDs))
			}
		}
		if stops < 14 { // 1 - 0.9^30 = 96 % of 20
			t.Fatalf("%d of 20 stopped at EOS", stops)
		}
	})
}

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := roundProfile()
		p.Engine.MaxRunningRequests = 1
		w := newWorker(t, emulate.Config{Costs: p.Compile(), APIKey: ""})
		defer w.Close()
		for range 3 {
			go post(w, "/generate", generateBody([]int32{1, 2}, 20, nil))
		}
		time.Sleep(30 * time.Millisecond)
		if body := get(w, "/v1/loads").Body.String(); !strings.Contains(body, `"num_running_reqs":1`) ||
			!strings.Contains(body, `"num_waiting_reqs":2`) ||
			!strings.Contains(body, `"token_usage":0.00004`) {
			t.Errorf("loads: %s", body)
		}
		if body := get(w, "/get_server_info").Body.String(); !strings.Contains(body, `"max_running_requests":1`) ||
			!strings.Contains(body, `"max_loaded_loras":null`) {
			t.Errorf("server info: %s", body)
		}
		p.Engine.MaxLoadedLoras = 9
		vllm := newWorker(t, emulate.Config{Costs: p.Compile(), API: httpapi.VLLM,
			Adapters: []emulate.Adapter{{Name: "a"}, {Name: "b"}, {Name: "c"}}})
		defer vllm.Close()
		for _, name := range []string{"b", "a"} {
			go post(vllm, "/v1/completions", map[string]any{"model": name, "prompt": "x y", "max_tokens": 20})
			time.Sleep(10 * time.Millisecond)
		}
		// A bubble begins with the year 2000. Adapter a waits, and is not listed before its request has had a token.
		said := []string{fmt.Sprintf(`vllm:lora_requests_info{max_lora="%d",running_lora_adapters="b",waiting_lora_adapters="b"} 9.466848000`,
			p.Engine.MaxLorasPerBatch), // without the base model's place
			`vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="False",engine="0",num_gpu_blocks="6250"} 1.0`,
			`vllm:num_requests_running{engine="0",model_name="round"} 1.0`,
			`vllm:lora_adapter_loaded{adapter_name="b",engine="0",level="gpu",pinned="false"} 1.0`,
			`vllm:lora_adapter_loaded{adapter_name="c",engine="0",level="cpu",pinned="false"} 1.0`,
			`vllm:num_gpu_loaded_lora_adapters{engine="0"} `, `vllm:num_cpu_loaded_lora_adapters{engine="0"} 3.0`}
		for _, want := range said {
			if body := get(vllm, "/metrics").Body.String(); !strings.Contains(body, "\n"+want) {
				t.Errorf("metrics, expected %s:\n%s", want, body)
			}
		}
		if body := get(w, "/metrics").Body.String(); !strings.Contains(body,
			`sglang:cache_config_info{engine_type="unified",model_name="round",num_pages="100000",page_size="1"} 1.0`) {
			t.Errorf("metrics of sglang:\n%s", body)
		}
		limited := newWorker(t, emulate.Config{Costs: p.Compile()})
		defer limited.Close()
		if body := get(limited, "/get_server_info").Body.String(); !strings.Contains(body, `"max_loaded_loras":9`) {
			t.Errorf("server info: %s", body)
		}
		time.Sleep(time.Second)
	})
}

func TestAPIKey(t *testing.T) {
	w := newWorker(t, emulate.Config{APIKey: "secret"})
	defer w.Close()
	if rec := get(w, "/v1/models"); rec.Code != 401 {
		t.Errorf("without the key: %d", rec.Code)
	}
	r := httptest.NewRequest("GET", "/v1/models", nil)
	r.Header.Set("Authorization", "Bearer secret")
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	if rec.Code != 200 {
		t.Errorf("with the key: %d", rec.Code)
	}
}

// FuzzBodies: no body of a request breaks the worker.
func FuzzBodies(f *testing.F) {
	f.Add("/generate", `{"input_ids":[1,2],"sampling_params":{"max_new_tokens":2}}`)
	f.Add("/generate", `{"text":"a","stream":true,"lora_path":"x"}`)
	f.Add("/v1/completions", `{"model":"a:b","prompt":[1]}`)
	f.Add("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"max_tokens":1,"stream":true}`)
	f.Add("/load_lora_adapter", `{"lora_name":"a","lora_path":"b?rank=99999999999999999999"}`)
	f.Add("/unload_lora_adapter", `{"lora_name":"a"}`)
	f.Add("/abort_request", `{"rid":"x"}`)
	w := newWorker(f, emulate.Config{Speed: 1e6})
	f.Cleanup(w.Close)
	f.Fuzz(func(t *testing.T, path, body string) {
		if !slices.Contains([]string{"/generate", "/v1/completions", "/v1/chat/completions", "/load_lora_adapter",
			"/unload_lora_adapter", "/abort_request"}, path) {
			return
		}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest("POST", path, strings.NewReader(body)))
		if rec.Code != 200 && rec.Code != 400 {
			t.Fatalf("%s %q: status %d", path, body, rec.Code)
		}
	})
}

// BenchmarkOneToken measures a one-token request through HTTP on loopback.
func BenchmarkOneToken(b *testing.B) {
	p := roundProfile()
	p.Latency.Decode.BaseMs, p.Latency.Prefill.BaseMs, p.Latency.RequestOverheadMs = 0.01, 0.01, 0
	p.Engine.MaxRunningRequests = 1 << 20
	w := newWorker(b, emulate.Config{Costs: p.Compile()})
	defer w.Close()
	srv := httptest.NewServer(w)
	defer srv.Close()
	body := `{"input_ids":[1,2,3,4,5,6,7,8],"sampling_params":{"max_new_tokens":1,"ignore_eos":true},"stream":true}`
	b.ReportAllocs()
	b.SetParallelism(16)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := client.Post(srv.URL+"/generate", "application/json", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	})
	client.CloseIdleConnections()
}

// A worker with a prefix cache tells how much of a prompt was in it, in the words of
// both interfaces and in its metrics; adapters have caches of their own, and a flush
// empties them.
func TestPrefixCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := roundProfile()
		p.Engine.PrefixCache, p.Engine.PageSize = true, 8 // blocks are of whole pages, and of 16 tokens at least
		for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
			w := newWorker(t, emulate.Config{Costs: p.Compile(), API: api, ModelName: "base",
				Adapters: []emulate.Adapter{{Name: "chat"}}})
			cached := func(prompt []int32, adapter string) int {
				model := adapter
				if api == httpapi.SGLang && adapter != "base" {
					model = "base:" + adapter
				}
				var got struct {
					Usage struct {
						Details struct {
							Cached int `json:"cached_tokens"`
						} `json:"prompt_tokens_details"`
					} `json:"usage"`
				}
				rec := post(w, "/v1/completions", map[string]any{"model": model, "prompt": prompt, "max_tokens": 30,
					"ignore_eos": true})
				if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || rec.Code != 200 {
					t.Fatalf("%s: %d %s, %v", api, rec.Code, rec.Body, err)
				}
				time.Sleep(time.Second) // until the cache has it
				return got.Usage.Details.Cached
			}
			prompt := make([]int32, 100)
			for i := range prompt {
				prompt[i] = int32(10 + i)
			}
			longer := append(slices.Clone(prompt), emulate.Tokens("", prompt, 30)...)
			longer = append(longer, prompt[:60]...)
			fork := append(slices.Clone(prompt[:20]), make([]int32, 80)...)
			got := []int{cached(prompt, "base"), cached(prompt, "base"), cached(longer, "base"), cached(prompt, "chat"),
				cached(prompt[1:], "base"), cached(fork, "base")}
			// whole blocks of 16, of prompt and reply
			if want := []int{0, 96, 128, 0, 0, 16}; !slices.Equal(got, want) {
				t.Errorf("%s: %v tokens were cached, expected %v", api, got, want)
			}
			text, total := get(w, "/metrics").Body.String(), 100+100+190+100+99+100
			names := map[httpapi.Kind][2]string{httpapi.SGLang: {"sglang:prompt_tokens_total",
				"sglang:cached_tokens_total"},
				httpapi.VLLM: {"vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"}}[api]
			for i, n := range []int{total, 240} {
				of := map[httpapi.Kind][2]string{httpapi.SGLang: {`engine_type="unified",is_streaming="false"`,
					`cache_source="device",engine_type="unified"`}, httpapi.VLLM: {`engine="0"`, `engine="0"`}}[api][i]
				if line := fmt.Sprintf("# TYPE %s counter\n%s{%s,model_name=\"base\"} %d.0\n", names[i], names[i],
					of, n); !strings.Contains(text, line) {
					t.Errorf("%s: the metrics lack %q:\n%s", api, line, text)
				}
			}
			if api == httpapi.SGLang {
				if rate := fmt.Sprintf("sglang:cache_hit_rate{engine_type=\"unified\",model_name=\"base\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} %v\n",
					240.0/689); !strings.Contains(text, rate) {
					t.Errorf("the metrics lack %q:\n%s", rate, text)
				}
				events := eventsOf(t, post(w, "/generate", generateBody(prompt, 2, nil)).Body.String())
				if n := events[len(events)-1].MetaInfo.CachedTokens; n != 96 {
					t.Errorf("/generate tells %d cached tokens, expected 96", n)
				}
				time.Sleep(time.Second)
			}
			flush := map[httpapi.Kind]string{httpapi.SGLang: "/flush_cache", httpapi.VLLM: "/reset_prefix_cache"}[api]
			if rec := post(w, flush, nil); rec.Code != 200 {
				t.Fatalf("%s: %d %s", flush, rec.Code, rec.Body)
			}
			if n := cached(prompt, "base"); n != 0 {
				t.Errorf("%s: %d tokens are cached after a flush", api, n)
			}
			w.Close()
		}
	})
}
