package gateway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/router/push"
)

// formEngine reads the adapters of a request as its engine does, and holds the adapters that it was told to load.
type formEngine struct {
	t    *memory
	api  httpapi.Kind
	rand *rand.Rand
	mu   sync.Mutex
	held map[string]bool
}

func newFormEngine(t *memory, api httpapi.Kind, seed uint64) *testWorker {
	k := &formEngine{t: t, api: api, rand: rand.New(rand.NewPCG(seed, 1)), held: map[string]bool{"a": true,
		"b": true}}
	w := &testWorker{srv: t.serve(http.HandlerFunc(k.serve))}
	t.Cleanup(w.srv.Kill)
	return w
}

func (k *formEngine) serve(rw http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimPrefix(r.URL.Path, "/v1"); {
	case path == "/load_lora_adapter" || path == "/unload_lora_adapter":
		var q struct {
			Name string `json:"lora_name"`
		}
		json.NewDecoder(r.Body).Decode(&q)
		time.Sleep(20 * time.Millisecond)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.held[q.Name] = path == "/load_lora_adapter"; r.Method != http.MethodPost {
			rw.WriteHeader(http.StatusMethodNotAllowed)
		}
	case path == "/models":
		list := []map[string]any{{"id": "base"}}
		k.mu.Lock()
		defer k.mu.Unlock()
		for name, held := range k.held {
			if held && name != "" {
				list = append(list, map[string]any{"id": name, "parent": "base"})
			}
		}
		writeTo(rw, map[string]any{"data": list})
	case r.Method == http.MethodPost:
		k.run(rw, r)
	case k.api == httpapi.SGLang && path == "/server_info":
		io.WriteString(rw, `{"version":"0.5.23","model_path":"base","served_model_name":"base","enable_lora":true,
			"max_loras_per_batch":8,"max_running_requests":64,"context_length":4096,"dp_size":1}`)
	case k.api == httpapi.SGLang && path == "/loads":
		io.WriteString(rw, `{"loads":[{"num_running_reqs":0,"num_waiting_reqs":0,"max_running_requests":64}]}`)
	case k.api == httpapi.VLLM && path == "/version":
		io.WriteString(rw, `{"version":"0.32.0"}`)
	case k.api == httpapi.VLLM && path == "/metrics":
		io.WriteString(rw, "vllm:num_requests_running{} 0\nvllm:num_requests_waiting{} 0\n"+
			"# TYPE vllm:lora_requests_info gauge\n")
	case path == "/health":
	default:
		http.NotFound(rw, r)
	}
}

func writeTo(w io.Writer, v any) { json.NewEncoder(w).Encode(v) }

// run answers with the names of the adapters that it reads, which it must hold from the start to the end.
func (k *formEngine) run(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		Model string `json:"model"`
		LoRA  any    `json:"lora_path"`
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/") {
		q.Model = r.FormValue("model")
	} else if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		k.t.Errorf("%s: %v", r.URL.Path, err)
	}
	var names []string
	_, adapter, _ := strings.Cut(q.Model, ":")
	onlyLoRA := slices.Contains([]string{"/generate", "/encode"}, r.URL.Path)
	switch list, several := q.LoRA.([]any); {
	case k.api == httpapi.VLLM && q.Model != "base":
		names = []string{q.Model}
	case k.api == httpapi.VLLM:
	case adapter != "" && !onlyLoRA:
		names = []string{adapter}
	case r.URL.Path == "/v1/messages": // which drops lora_path
	case several:
		for _, name := range list {
			if name != nil {
				names = append(names, name.(string))
			}
		}
	case q.LoRA != nil:
		names = []string{q.LoRA.(string)}
	}
	check := func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, name := range names {
			if !k.held[name] {
				k.t.Errorf("%s %s: the engine does not hold %s", k.api, r.URL.Path, name)
			}
		}
	}
	check()
	k.mu.Lock()
	took := time.Duration(1+k.rand.IntN(80)) * time.Millisecond
	k.mu.Unlock()
	time.Sleep(took)
	check()
	reply := map[string]any{"read": names}
	if r.URL.Path != "/generate" {
		reply["model"] = q.Model
	}
	rw.Header().Set("Content-Type", "application/json")
	writeTo(rw, reply)
}

// pushForms are the ways in which requests name adapters. In the bodies, A and B stand for adapters.
var pushForms = map[httpapi.Kind][]struct{ path, body string }{
	httpapi.VLLM: {
		{"/v1/completions", `"model":"A"`}, {"/v1/completions", `"model":"base","lora_path":"A"`},
		{"/v1/completions", `"lora_path":"A","model":"A"`}, {"/v1/completions", `"lora_path":["A","A"]`},
		{"/v1/chat/completions", `"model":"A"`}, {"/v1/responses", `"model":"A"`}, {"/v1/messages", `"model":"A"`},
		{"/v1/embeddings", `"model":"A"`}, {"/v1/score", `"model":"A"`}, {"/classify", `"model":"A"`},
		{"/tokenize", `"model":"base:A"`}, {"/v1/audio/transcriptions", "form"}, {"/v1/audio/translations", "form"},
	},
	httpapi.SGLang: {
		{"/generate", `"lora_path":"A"`}, {"/generate", `"lora_path":["A",null,"B","A"]`},
		{"/generate", `"lora_path":["A","B","B","A","A"]`},
		{"/generate", `"lora_path":["A","A"]`}, {"/generate", `"lora_path":[null,"A"],"model":"x"`},
		{"/encode", `"lora_path":"A"`}, {"/encode", `"model":"base","lora_path":["B","A"]`},
		{"/v1/completions", `"model":"A"`}, {"/v1/completions", `"model":"base:A","lora_path":"B"`},
		{"/v1/completions", `"model":"base","lora_path":"A"`}, {"/v1/completions", `"lora_path":"A","model":"base"`},
		{"/v1/completions", `"lora_path":["A","B"],"model":"base"`}, {"/v1/completions", `"lora_path":["A"]`},
		{"/v1/chat/completions", `"model":"A"`}, {"/v1/embeddings", `"model":"base","lora_path":["A",null]`},
		{"/v1/messages", `"model":"A"`}, {"/v1/messages", `"model":"base","lora_path":"A"`},
	},
}

// However a request names adapters, engines read the newest versions of its time, or versions within the bound, and
// hold them until the reply.
func TestPushesInEveryForm(t *testing.T) {
	for seed := range uint64(8) {
		api := []httpapi.Kind{httpapi.VLLM, httpapi.SGLang}[seed%2]
		options := []string{"", "workers=0", "loads=demand", "overlap=false,versions=2"}[seed/2%4]
		bound := int(seed/2%3) - 1
		t.Run(fmt.Sprintf("%s %s bound=%d", api, options, bound), func(t *testing.T) {
			inMemory(t, func(t *memory) { pushesInEveryForm(t, seed, api, options, bound) })
		})
	}
}

func pushesInEveryForm(t *memory, seed uint64, api httpapi.Kind, options string, bound int) {
	o, err := push.Parse(options)
	if err != nil {
		t.Fatal(err)
	}
	srv, _ := startGateway(t, "round-robin", func(f *fleet.Config) {
		f.Push = &fleet.Push{Options: o, MaxStaleness: bound}
	}, nil, newFormEngine(t, api, seed), newFormEngine(t, api, seed+100))
	var mu sync.Mutex
	newest, begun := map[string]int{"a": 1, "b": 1}, map[string]int{"a": 1, "b": 1}
	at := func(of map[string]int, name string) int {
		mu.Lock()
		defer mu.Unlock()
		return of[name]
	}
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for client := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(10+client)))
			for range 25 {
				time.Sleep(time.Duration(rnd.IntN(30)) * time.Millisecond)
				f := pushForms[api][rnd.IntN(len(pushForms[api]))]
				names := [2]string{"a", "b"}
				if rnd.IntN(2) == 0 {
					names = [2]string{"b", "a"}
				}
				body, media := "{"+strings.NewReplacer(`A"`, names[0]+`"`, `B"`, names[1]+`"`).Replace(f.body)+"}",
					"application/json"
				if f.body == "form" {
					var b bytes.Buffer
					form := multipart.NewWriter(&b)
					form.WriteField("file", strings.Repeat("model", rnd.IntN(20)))
					form.WriteField("model", names[0])
					form.Close()
					body, media = b.String(), form.FormDataContentType()
				}
				from := [2]int{at(newest, names[0]), at(newest, names[1])}
				resp, err := t.client.Post(srv.URL+f.path, media, strings.NewReader(body))
				if err != nil {
					t.Error(err)
					return
				}
				text, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				var reply struct {
					Model string
					Read  []string
				}
				if err := json.Unmarshal(text, &reply); resp.StatusCode != http.StatusOK || err != nil {
					t.Errorf("%s %s: %d %s", f.path, body, resp.StatusCode, text)
					continue
				}
				want := ""
				for _, c := range f.body {
					if c == 'A' || c == 'B' {
						want += names[c-'A']
					}
				}
				switch {
				case strings.Contains(f.body, "base:A"):
					want = names[0]
				case f.body == "form", api == httpapi.VLLM:
					want = names[0]
				}
				var got strings.Builder
				for _, name := range reply.Read {
					base, number, versioned := strings.Cut(name, "@")
					version := 1
					if versioned {
						version, _ = strconv.Atoi(number)
					}
					i := slices.Index(names[:], base)
					if i < 0 || version > at(begun, base) || bound >= 0 && version < from[i]-bound {
						t.Errorf("%s %s: read %v; the newest versions of %v were %v", f.path, body, reply.Read,
							names, from)
						continue
					}
					got.WriteString(base)
				}
				if got.String() != want || strings.Contains(reply.Model, "@") {
					t.Errorf("%s %s: the engine read %v, expected %s; the client got model %q", f.path, body,
						reply.Read, want, reply.Model)
				}
				mu.Lock()
				seen[strings.Join(reply.Read, "")] = true
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for i := range 12 {
			time.Sleep(150 * time.Millisecond)
			name := []string{"a", "b", "a"}[i%3]
			mu.Lock()
			begun[name]++
			mu.Unlock()
			status, reply := post(t, srv.URL+"/admin/push", fmt.Sprintf(`{"adapter":%q,"path":"/%d"}`, name, i))
			if status != http.StatusOK {
				t.Errorf("push: %d %s", status, reply)
			}
			mu.Lock()
			newest[name]++
			mu.Unlock()
		}
	})
	wg.Wait()
	if len(seen) < 8 {
		t.Errorf("the engines read %d different lists of adapters, expected more", len(seen))
	}
}
