package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lorasim/bench/serving/emulate"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/httpapi"
	"lorasim/router/push"
)

// While operators push new versions of an adapter, no request is lost, and each reply is of a version that was the
// newest when the request came, or a newer one, or older by the bound at most. In the end the workers hold no old
// version.
func TestPushes(t *testing.T) {
	for _, c := range []struct {
		api     httpapi.Kind
		path    string
		options string
		bound   int
	}{
		{httpapi.SGLang, "/generate", "", 1}, {httpapi.SGLang, "/v1/completions", "workers=0", 0},
		{httpapi.VLLM, "/v1/completions", "versions=2", 0}, {httpapi.VLLM, "/v1/completions", "loads=demand", 2},
	} {
		t.Run(fmt.Sprintf("%s %s %s bound=%d", c.api, c.path, c.options, c.bound), func(t *testing.T) {
			inMemory(t, func(t *memory) { pushes(t, c.api, c.path, c.options, c.bound) })
		})
	}
}

func pushes(t *memory, api httpapi.Kind, path, options string, bound int) {
	const tokens, versions = 12, 8
	o, err := push.Parse(options)
	if err != nil {
		t.Fatal(err)
	}
	own := []emulate.Adapter{{Name: "a", Path: "/a-r8"}, {Name: "b", Path: "/b-r8"}}
	workers := []*testWorker{newTestWorker(t, api, own...), newTestWorker(t, api, own...)}
	srv, _ := startGateway(t, "least-loaded", func(f *fleet.Config) {
		f.Push = &fleet.Push{Options: o, MaxStaleness: bound}
	}, nil, workers...)
	text := func(version int) string {
		name := "a"
		if version > 1 {
			name = fmt.Sprintf("a@%d", version)
		}
		return emulate.Text(emulate.Tokens(name, emulate.Tokenize("one two"), tokens))
	}
	var newest, begun atomic.Int64 // versions that are published, and whose publication has begun
	newest.Store(1)
	begun.Store(1)
	served := map[int]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for client := range 6 {
		wg.Go(func() {
			for i := range 40 {
				time.Sleep(time.Duration(7*client+3) * time.Millisecond)
				body := fmt.Sprintf(`{"text": "one two", "lora_path": "a", "sampling_params": {"max_new_tokens": %d, "ignore_eos": true}}`, tokens)
				if path != "/generate" {
					body = fmt.Sprintf(`{"prompt": "one two", "model": "a", "max_tokens": %d, "ignore_eos": true}`,
						tokens)
				}
				from := int(newest.Load())
				status, reply := post(t, srv.URL+path, body)
				to := int(begun.Load())
				var r struct {
					Text, Model string
					Choices     []struct{ Text string }
				}
				if json.Unmarshal([]byte(reply), &r); len(r.Choices) > 0 {
					r.Text = r.Choices[0].Text
				}
				version := 0
				for v := max(from-bound, 1); v <= to; v++ {
					if r.Text == text(v) {
						version = v
					}
				}
				if status != http.StatusOK || version == 0 || path != "/generate" && r.Model != "a" {
					t.Errorf("request %d of client %d, versions %d to %d: %d %s", i, client, from, to, status, reply)
				}
				mu.Lock()
				served[version]++
				mu.Unlock()
			}
		})
	}
	wg.Go(func() {
		for v := 2; v <= versions; v++ {
			time.Sleep(150 * time.Millisecond)
			begun.Store(int64(v))
			status, reply := post(t, srv.URL+"/admin/push", fmt.Sprintf(`{"adapter": "a", "path": "/a%d-r8"}`, v))
			want := fmt.Sprintf("{\"adapter\":\"a\",\"version\":%d}\n", v)
			if status != http.StatusOK || reply != want {
				t.Errorf("push: %d %s, expected %s", status, reply, want)
			}
			newest.Store(int64(v))
		}
	})
	wg.Wait()
	if len(served) < 4 {
		t.Errorf("only %v were served", served)
	}
	time.Sleep(2 * time.Second)
	for i := range workers {
		var list struct{ Data []struct{ ID, Parent string } }
		status, reply := get(t, workers[i].srv.URL+"/v1/models")
		if err := json.Unmarshal([]byte(reply), &list); status != http.StatusOK || err != nil {
			t.Fatal(status, reply, err)
		}
		var held []string
		for _, m := range list.Data {
			if m.Parent != "" {
				held = append(held, m.ID)
			}
		}
		slices.Sort(held)
		if want := []string{fmt.Sprintf("a@%d", versions), "b"}; !slices.Equal(held, want) {
			t.Errorf("worker %d holds %v, expected %v", i, held, want)
		}
	}
	for _, body := range []string{`{"adapter": "c", "path": "/c"}`, `{"adapter": "a"}`,
		`{"adapter": "a", "paths": "/x"}`} {
		if status, reply := post(t, srv.URL+"/admin/push", body); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, status, reply)
		}
	}
}
