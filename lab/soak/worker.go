//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/profile"
)

// workerSettings are the settings of a worker, a process of its own.
type workerSettings struct {
	API    httpapi.Kind
	Ending emulate.Ending
	Model  string // name of the base model
	Listen string
}

const adapters = 4

// workerMain is the main function of a worker: an emulated one that says in each reply which base model and adapter
// served it. Its first line of output is its URL, the others are the requests that it has executed. On SIGTERM it ends
// as its engine does.
func workerMain(text string) error {
	var s workerSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	p := profile.Default()
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 40}, Prefill: profile.Prefill{BaseMs: 60,
		FirstWaveFactor: 1}, LoRA: profile.LoRA{Backend: profile.BackendNone}}
	p.Memory.KVTokens, p.Engine.MaxRunningRequests = 1<<20, 8
	cfg := emulate.Config{Costs: p.Compile(), API: s.API, Ending: s.Ending, Speed: 4, ModelName: s.Model,
		Home: router.Disk}
	for i := range adapters {
		name := fmt.Sprintf("lora%d", i)
		cfg.Adapters = append(cfg.Adapters, emulate.Adapter{Name: name, Path: name})
	}
	w, err := emulate.New(cfg)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: &served{w: w, workerSettings: s}}
	ended := make(chan error, 1)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		w.Drain(context.Background())
		ended <- srv.Shutdown(context.Background())
	}()
	fmt.Printf("http://%s\n", l.Addr())
	if err := srv.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return <-ended
}

// served adds the header X-Served, MODEL:ADAPTER, to the replies of a worker.
type served struct {
	w *emulate.Worker
	workerSettings
	mu sync.Mutex // of the output
}

func (s *served) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/completions" {
		s.w.ServeHTTP(rw, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var q struct{ Model string }
	json.Unmarshal(body, &q) // what is no JSON is refused
	adapter := q.Model
	if s.API == httpapi.SGLang {
		_, adapter, _ = strings.Cut(q.Model, ":")
	} else if adapter == s.Model {
		adapter = ""
	}
	rw.Header().Set("X-Served", s.Model+":"+adapter)
	s.w.ServeHTTP(&noted{rw, func() { s.executed(r.Header.Get("X-Request-Id")) }}, r)
}

// executed tells the parent that the worker executes a request.
func (s *served) executed(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(os.Stdout, "{\"id\":%q,\"what\":\"executed\"}\n", id)
}

// noted calls begun before the header of a successful reply.
type noted struct {
	http.ResponseWriter
	begun func()
}

func (n *noted) WriteHeader(status int) {
	if n.begun != nil && status == http.StatusOK {
		n.begun()
	}
	n.begun = nil
	n.ResponseWriter.WriteHeader(status)
}

func (n *noted) Write(p []byte) (int, error) {
	if n.begun != nil {
		n.WriteHeader(http.StatusOK)
	}
	return n.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (n *noted) Flush() { n.ResponseWriter.(http.Flusher).Flush() }
