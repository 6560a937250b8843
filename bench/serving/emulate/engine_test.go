package emulate

import (
	"io"
	"log"
	"os"
	"strings"
	"testing"

	"lorasim/router"
	"lorasim/sim/profile"
	"lorasim/sim/record"
	"lorasim/trace"
)

// A panic in the simulated worker ends its requests with an error, and nothing else.
func TestEnginePanics(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	p := profile.Default()
	p.Memory.KVTokens = 1 << 20
	p.Latency = profile.Latency{Decode: profile.Decode{BaseMs: 10}, Prefill: profile.Prefill{BaseMs: 10,
		FirstWaveFactor: 1}, LoRA: profile.LoRA{Backend: profile.BackendNone}}
	w, err := New(Config{Costs: p.Compile(), Home: router.Disk, Speed: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s, err := w.eng.submit(trace.Request{Adapter: trace.BaseModel, Prompt: 10, Output: 100}, new(order),
		make(chan struct{}, 1))
	if err != nil {
		t.Fatal(err)
	}
	w.eng.wait(func() bool { panic("of the engine") })()
	<-s.news
	if got := s.look(); !got.ended || got.status != record.Failed ||
		!strings.Contains(got.reason, "panic: of the engine") {
		t.Errorf("%+v", got)
	}
	r := trace.Request{Adapter: trace.BaseModel, Prompt: 10, Output: 100}
	if _, err := w.eng.submit(r, new(order), make(chan struct{}, 1)); err == nil {
		t.Error("a broken engine takes requests")
	}
}
