package emulate_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/internal/memnet"
	"lorasim/sim/profile"
)

// twin is a request with the reply of a real engine, as lab/engines/cases/15_twins.py records it.
type twin struct {
	Name    string
	Request struct {
		Method  string
		Path    string
		Body    json.RawMessage
		Raw     *string
		Hex     string
		Headers map[string]*string
		Events  int
	}
	Reply twinReply
}

// twinReply is what lab/engines/twins.py keeps of a reply.
type twinReply struct {
	Status  any               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"`
	Shape   any               `json:"shape,omitempty"`
	Early   *bool             `json:"early,omitempty"`
	Cut     bool              `json:"cut,omitempty"`
}

// differ lists the parts in which two replies differ.
func (r *twinReply) differ(o *twinReply) (parts []string) {
	for _, p := range []struct {
		name string
		a, b any
	}{{"status", fmt.Sprint(r.Status), fmt.Sprint(o.Status)}, {"headers", r.Headers, o.Headers}, {"shape", r.Shape,
		o.Shape},
		{"early", r.Early, o.Early}, {"cut", r.Cut, o.Cut}} {
		if !reflect.DeepEqual(p.a, p.b) {
			parts = append(parts, p.name)
		}
	}
	return parts
}

func readTwins(t *testing.T, file string) (all []*twin) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		w := new(twin)
		if err := json.Unmarshal([]byte(line), w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, w)
	}
	return all
}

// A difference that has a reason.
type excuse struct{ engine, pattern, parts, reason string }

func readExcuses(t *testing.T) (all []excuse) {
	t.Helper()
	data, err := os.ReadFile("testdata/twins-named.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		fields := strings.SplitN(line, "|", 4)
		if len(fields) != 4 {
			t.Fatalf("testdata/twins-named.txt: %q", line)
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		all = append(all, excuse{fields[0], fields[1], fields[2], fields[3]})
	}
	return all
}

// A twinServer is an emulated worker with the limits of the recorded engine.
type twinServer struct {
	t      *testing.T
	w      *emulate.Worker
	url    string
	client *http.Client
	key    string
}

func newTwinServer(t *testing.T, api httpapi.Kind, change func(*emulate.Config, *profile.Profile)) *twinServer {
	t.Helper()
	p := profile.Default()
	p.Memory.KVTokens = 131072
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 10}, Prefill: profile.Prefill{BaseMs: 100,
		FirstWaveFactor: 1},
		LoRA: profile.LoRA{Backend: profile.BackendNone}}
	e := &p.Engine
	e.MaxRunningRequests, e.ContextLength, e.MaxLorasPerBatch, e.MaxLoadedLoras, e.MaxLoraRank = 16, 2048, 4, 8, 8
	if e.Scheduler = profile.SchedulerSGLang; api == httpapi.VLLM {
		e.Scheduler = profile.SchedulerVLLM
	}
	cfg := emulate.Config{API: api, ModelName: "base", Adapters: []emulate.Adapter{{Name: "lora0",
		Path: "adapters/lora0"},
		{Name: "lora1", Path: "adapters/lora1"}, {Name: "v:1", Path: "adapters/lora2"}}}
	change(&cfg, &p)
	cfg.Costs = p.Compile()
	n := memnet.New()
	s := &twinServer{t: t, w: newWorker(t, cfg), client: &http.Client{Transport: n.Transport()}, key: cfg.APIKey}
	h := n.Serve("worker", s.w)
	s.url = h.URL
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		h.Kill()
		s.w.Close()
	})
	return s
}

var twinPlaces = strings.NewReplacer(`"@ids"`, "["+strings.Repeat("5,", 2999)+"5]", "@long", strings.Repeat("hello ",
	3000),
	"@missing", "adapters/gone?load=missing", "@path", "adapters")

func (s *twinServer) request(w *twin, key string) *http.Request {
	s.t.Helper()
	q := &w.Request
	body := string(q.Body)
	if q.Raw != nil {
		body = *q.Raw
	}
	if q.Hex != "" {
		data, err := hex.DecodeString(q.Hex)
		if err != nil {
			s.t.Fatal(err)
		}
		body = string(data)
	}
	method := q.Method
	if method == "" {
		method = "POST"
	}
	r, err := http.NewRequest(method, s.url+q.Path, strings.NewReader(twinPlaces.Replace(body)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	for k, v := range q.Headers {
		if r.Header.Del(k); v != nil {
			r.Header.Set(k, *v)
		}
	}
	return r
}

// ask sends a request and returns what is compared of the reply.
func (s *twinServer) ask(w *twin, key string, early ...*bool) *twinReply {
	resp, err := s.client.Do(s.request(w, key))
	if err != nil {
		return &twinReply{Status: "closed"}
	}
	defer resp.Body.Close()
	got := readReply(resp, w.Request.Events, append(early, nil)[0])
	if strings.Contains(w.Request.Path, "server_info") && resp.StatusCode == http.StatusOK {
		got.Shape = nil // all of the engine's settings
	}
	return got
}

func readReply(resp *http.Response, events int, early *bool) *twinReply {
	head := time.Now()
	b := bufio.NewReader(resp.Body)
	_, first := b.Peek(1)
	got := &twinReply{Status: float64(resp.StatusCode), Headers: map[string]string{}, Early: early}
	kind := resp.Header.Get("Content-Type")
	if early != nil {
		*early = first == nil && time.Since(head) > 50*time.Millisecond
	}
	var text bytes.Buffer
	var err error
	for events == 0 || bytes.Count(text.Bytes(), []byte("\n\n")) < events {
		var line []byte
		line, err = b.ReadBytes('\n')
		text.Write(line)
		if err != nil {
			break
		}
	}
	got.Cut = err != nil && err != io.EOF
	for name := range resp.Header {
		v := "*"
		if lower := strings.ToLower(name); slices.Contains(twinValues, lower) {
			v = resp.Header.Get(name)
		}
		got.Headers[strings.ToLower(name)] = v
	}
	if len(resp.TransferEncoding) > 0 {
		got.Headers["transfer-encoding"] = resp.TransferEncoding[0]
	}
	got.Shape = bodyShape(text.String(), kind)
	return got
}

var twinValues = []string{"content-type", "server", "transfer-encoding", "connection", "cache-control", "allow",
	"retry-after",
	"www-authenticate"}

// constant are the keys whose texts are part of the shape.
var constant = []string{"object", "type", "code", "param", "finish_reason", "role", "owned_by", "stop_reason",
	"status", "parent"}

// shapeOf is shape of lab/engines/twins.py.
func shapeOf(v any, key string) any {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case float64:
		if key == "code" {
			return fmt.Sprint("=", v)
		}
		return "num"
	case string:
		if slices.Contains(constant, key) {
			return "=" + v
		}
		return "str"
	case []any:
		if key == "bytes" {
			return "list"
		}
		found := []any{}
		for _, e := range v {
			if s := shapeOf(e, key); !slices.ContainsFunc(found, func(o any) bool { return reflect.DeepEqual(o, s) }) {
				found = append(found, s)
			}
		}
		return found
	}
	found, fields := map[string]any{}, v.(map[string]any)
	for k, e := range fields {
		if _, chat := fields["logprob"]; key == "top_logprobs" && !chat {
			k = "*"
		}
		found[k] = shapeOf(e, k)
	}
	return found
}

var numbers = regexp.MustCompile(`\d\d+`)

func bodyShape(text, kind string) any {
	switch {
	case strings.HasPrefix(kind, "text/event-stream"):
		found := []any{}
		for block := range strings.SplitSeq(text, "\n\n") {
			if block == "" {
				continue
			}
			event := map[string]any{}
			for line := range strings.SplitSeq(block, "\n") {
				name, rest, _ := strings.Cut(line, ":")
				var data any = strings.TrimPrefix(rest, " ")
				if name == "" {
					name = "comment"
				}
				var v any
				if name == "data" && strings.HasPrefix(data.(string), "{") && json.Unmarshal([]byte(data.(string)),
					&v) == nil {
					data = shapeOf(v, "")
				}
				event[name] = data
			}
			if !slices.ContainsFunc(found, func(o any) bool { return reflect.DeepEqual(o, event) }) {
				found = append(found, event)
			}
		}
		return found
	case strings.HasPrefix(kind, "application/json") && text != "":
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			return err.Error()
		}
		return shapeOf(v, "")
	case len(text) < 300:
		return "text:" + numbers.ReplaceAllString(text, "N")
	}
	return "text"
}

// phase is the part of a name before ": " that says in which state the worker is asked.
func (w *twin) phase() string {
	before, _, _ := strings.Cut(w.Name, ": ")
	if slices.Contains([]string{"no key", "full", "waiting", "draining"}, before) {
		return before
	}
	return ""
}

// TestTwins: an emulated worker answers as the real engine did: the same status, headers, order in time of header and
// body, and keys and types of the body. What differs is named with its reason in testdata/twins-named.txt.
//
// The replies are those of vLLM 0.32.0 and sglang 0.5.23 on the CPU:
//
//	TWINS=record lab/real-engines --cases twins
func TestTwins(t *testing.T) {
	excuses := readExcuses(t)
	used := map[excuse]bool{}
	for _, c := range []struct {
		api  httpapi.Kind
		file string
	}{{httpapi.VLLM, "testdata/twins-vllm-0.32.jsonl"}, {httpapi.SGLang, "testdata/twins-sglang-0.5.23.jsonl"}} {
		all := readTwins(t, c.file)
		if len(all) < 200 {
			t.Errorf("%s has %d requests, expected 200", c.file, len(all))
		}
		compare := func(w *twin, got *twinReply) {
			t.Helper()
			for _, part := range w.Reply.differ(got) {
				known := slices.IndexFunc(excuses, func(e excuse) bool {
					match, err := path.Match(strings.ReplaceAll(e.pattern, "/", "|"), strings.ReplaceAll(w.Name, "/",
						"|"))
					return err == nil && match && (e.engine == string(c.api) || e.engine == "both") &&
						slices.Contains(strings.Fields(e.parts), part)
				})
				if known >= 0 {
					used[excuses[known]] = true
					continue
				}
				want, _ := json.Marshal(w.Reply)
				have, _ := json.Marshal(got)
				t.Errorf("%s: %s: another %s:\n%s\nof the engine:\n%s", c.api, w.Name, part, have, want)
			}
		}
		of := func(phase string, each func(w *twin)) {
			for _, w := range all {
				if w.phase() == phase {
					each(w)
				}
			}
		}
		synctest.Test(t, func(t *testing.T) {
			s := newTwinServer(t, c.api, func(*emulate.Config, *profile.Profile) {})
			of("", func(w *twin) {
				compare(w, s.ask(w, ""))
				time.Sleep(time.Second) // until an aborted request has left
			})
		})
		synctest.Test(t, func(t *testing.T) {
			s := newTwinServer(t, c.api, func(cfg *emulate.Config, p *profile.Profile) {
				cfg.APIKey = "secret"
				if p.Engine.MaxRunningRequests = 2; c.api == httpapi.VLLM {
					p.Engine.MaxNumQueuedReqs = 4
				} else {
					p.Engine.MaxQueuedRequests = 2
				}
			})
			fullPhases(s, of, compare)
		})
	}
	for _, e := range excuses {
		if !used[e] && !strings.HasPrefix(e.pattern, "draining:") { // of the process that ends

			t.Errorf("testdata/twins-named.txt names a difference that there is not: %v", e)
		}
	}
}

// fullPhases compares what a worker answers without a key, while its queue is full, and while it ends.
func fullPhases(s *twinServer, of func(string, func(*twin)), compare func(*twin, *twinReply)) {
	of("no key", func(w *twin) { compare(w, s.ask(w, "")) })
	endless := func(tokens int) *twin {
		w := new(twin)
		w.Request.Path = "/v1/completions"
		w.Request.Body = fmt.Appendf(nil,
			`{"model":"base","prompt":[5,6],"max_tokens":%d,"ignore_eos":true,"stream":true}`, tokens)
		return w
	}
	begin := func(tokens int) *http.Response {
		resp, err := s.client.Do(s.request(endless(tokens), "secret"))
		if err != nil {
			s.t.Fatal(err)
		}
		return resp
	}
	running := []*http.Response{begin(1800), begin(1800)}
	time.Sleep(time.Second)
	replies := make(chan *twinReply, 2)
	for range 2 {
		go func() { replies <- s.ask(endless(3), "secret", new(bool)) }()
	}
	time.Sleep(time.Second)
	of("full", func(w *twin) { compare(w, s.ask(w, "secret")) })
	for _, r := range running {
		r.Body.Close()
	}
	first := <-replies
	of("waiting", func(w *twin) { compare(w, first) })
	<-replies
	time.Sleep(time.Second)
	running = []*http.Response{begin(400), begin(400)}
	time.Sleep(time.Second)
	drained := make(chan struct{})
	go func() {
		s.w.Drain(s.t.Context())
		close(drained)
	}()
	time.Sleep(500 * time.Millisecond)
	of("draining", func(w *twin) {
		switch {
		case w.Name == "draining: running stream":
		case w.Reply.Status == "refused": // the process listens no more
			<-drained
		default:
			compare(w, s.ask(w, "secret"))
		}
	})
	of("draining", func(w *twin) {
		if w.Name == "draining: running stream" {
			compare(w, readReply(running[0], 0, nil))
		}
	})
	running[1].Body.Close()
	<-drained
}
