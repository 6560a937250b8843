package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/httpapi"
	"lorasim/router"
	"lorasim/sim/profile"
)

// heldWorker is an emulated worker whose replies stop after their first event
// until they are let go: what a test does meanwhile may take its time.
type heldWorker struct {
	*httptest.Server
	release  chan struct{} // closed: replies go on
	finished atomic.Int64  // replies
}

func newHeldWorker(t *testing.T, adapters ...string) *heldWorker {
	t.Helper()
	p, err := profile.Embedded("llama-2-7b-rtx-4090-sglang-0.5")
	if err != nil {
		t.Fatal(err)
	}
	cfg := emulate.Config{Costs: p.Compile(), API: httpapi.SGLang, Speed: 20, Home: router.Disk}
	for _, name := range adapters {
		cfg.Adapters = append(cfg.Adapters, emulate.Adapter{Name: name})
	}
	worker, err := emulate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h := &heldWorker{release: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/generate" || strings.HasPrefix(r.URL.Path, "/v1/") && r.Method == http.MethodPost {
			defer h.finished.Add(1)
			rw = &heldReply{ResponseWriter: rw, hold: func() {
				select {
				case <-h.release:
				case <-r.Context().Done():
				}
			}}
		}
		worker.ServeHTTP(rw, r)
	}))
	t.Cleanup(func() {
		h.CloseClientConnections()
		h.Close()
		worker.Close()
	})
	return h
}

type heldReply struct {
	http.ResponseWriter
	writes int
	hold   func()
}

func (h *heldReply) Write(b []byte) (int, error) {
	if h.writes++; h.writes == 2 {
		h.hold()
	}
	return h.ResponseWriter.Write(b)
}

func (h *heldReply) Flush() { h.ResponseWriter.(http.Flusher).Flush() }
