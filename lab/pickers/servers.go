//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// state is the state that a model server reports in its metrics.
type state struct {
	waiting, running int
	kv               float64
	adapters         []string // adapters with requests
}

// server is a model server that answers at once. Its metrics are set by set.
type server struct {
	address string
	http    *http.Server

	mu    sync.Mutex
	state state
	seen  map[string]int // metrics reads since the state was set, by reader
}

const (
	baseModel   = "base"
	numAdapters = 6
	// readerHeader identifies lorasim's reads of metrics; the real picker does not send it.
	readerHeader = "X-Reader"
	maxLora      = 4
)

func adapterName(i int) string { return fmt.Sprint("lora", i) }

// startServer starts a server on a free port of loopback.
func startServer() (*server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &server{address: l.Addr().String(), seen: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("POST /v1/completions", complete)
	s.http = &http.Server{Handler: mux}
	go s.http.Serve(l) // ends with the listener
	return s, nil
}

// set sets the state.
func (s *server) set(to state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state = to
	clear(s.seen)
}

// isKnown reports whether each of n readers has begun a second read of the state, and so has it.
func (s *server) isKnown(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := 0
	for _, times := range s.seen {
		if times >= 2 {
			known++
		}
	}
	return known == n
}

// awaitKnown waits until n readers have the states of all servers.
func awaitKnown(servers []*server, n int, limit time.Duration) error {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		known := 0
		for _, s := range servers {
			if s.isKnown(n) {
				known++
			}
		}
		if known == len(servers) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v the metrics of %d of %d servers have been read by %d pickers", limit, known,
				len(servers), n)
		}
	}
}

func (s *server) models(rw http.ResponseWriter, _ *http.Request) {
	type model struct {
		ID     string  `json:"id"`
		Root   string  `json:"root"`
		Parent *string `json:"parent"`
	}
	base := baseModel
	list := []model{{ID: base, Root: base}}
	for i := range numAdapters {
		list = append(list, model{adapterName(i), adapterName(i), &base})
	}
	json.NewEncoder(rw).Encode(map[string]any{"object": "list", "data": list})
}

func (s *server) metrics(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[r.Header.Get(readerHeader)]++
	names := strings.Join(s.state.adapters, ",")
	rw.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	gauge := func(name, labels string, v any) {
		fmt.Fprintf(rw, "# TYPE %s gauge\n%s{%s} %v\n", name, name, labels, v)
	}
	gauge("vllm:num_requests_running", `engine="0"`, s.state.running)
	gauge("vllm:num_requests_waiting", `engine="0"`, s.state.waiting)
	gauge("vllm:kv_cache_usage_perc", `engine="0"`, s.state.kv)
	gauge("vllm:cache_config_info", `block_size="16",engine="0",num_gpu_blocks="8000"`, 1)
	gauge("vllm:lora_requests_info", fmt.Sprintf(`max_lora="%d",running_lora_adapters=%q,waiting_lora_adapters=%q`,
		maxLora, names, names), float64(time.Now().UnixMicro())/1e6)
}

// complete answers with one token.
func complete(rw http.ResponseWriter, r *http.Request) {
	var q struct {
		Stream bool `json:"stream"`
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, &q)
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	const reply = `{"model":"base","choices":[{"index":0,"text":" token","finish_reason":"length"}]}`
	if q.Stream {
		rw.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(rw, "data: "+reply+"\n\ndata: [DONE]\n\n")
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	io.WriteString(rw, reply)
}

// draw returns random states of n servers and a request. KV usages have enough digits that all
// totals differ: there is one best server.
func draw(r *rand.Rand, n int) (states []state, body []byte) {
	for range n {
		s := state{waiting: r.IntN(6), running: r.IntN(20), kv: r.Float64()}
		for i := range numAdapters {
			if r.IntN(4) == 0 {
				s.adapters = append(s.adapters, adapterName(i))
			}
		}
		states = append(states, s)
	}
	model := baseModel
	if i := r.IntN(numAdapters + 1); i < numAdapters {
		model = adapterName(i)
	}
	// one of eight system prompts, and one of a few texts of the user
	prompt := strings.Repeat(fmt.Sprintf("system prompt %d. ", r.IntN(8)), 10+r.IntN(60)) +
		strings.Repeat(fmt.Sprintf("question %d. ", r.IntN(4)), r.IntN(40))
	body, _ = json.Marshal(map[string]any{"model": model, "prompt": prompt, "max_tokens": 1}) // cannot fail
	return states, body
}
