package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/faultworker"
	"lorasim/bench/serving/fleet"
	"lorasim/bench/serving/gateway"
	"lorasim/internal/memnet"
)

// faultCluster is workers that misbehave, the gateway before them, and what its clients saw.
type faultCluster struct {
	*memory
	gateway *memnet.Host
	hosts   []*memnet.Host
	workers []*faultworker.Worker
	book    *faultworker.Book
	sent    int
}

// startFaultCluster starts workers with the adapters a and b, and a gateway before them.
func startFaultCluster(t *memory, policy string, n int, worker func(i int, c *faultworker.Config),
	set func(*gateway.Config)) *faultCluster {
	t.Helper()
	f := &faultCluster{memory: t, book: new(faultworker.Book)}
	var known []*testWorker
	for i := range n {
		cfg := faultworker.Config{Name: fmt.Sprint(i), Adapters: []string{"a", "b"}, Token: 20 * time.Millisecond,
			Book: f.book}
		if worker != nil {
			worker(i, &cfg)
		}
		w, err := faultworker.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		host := t.serve(w)
		t.Cleanup(func() { host.Kill(); w.Close() })
		f.workers, f.hosts = append(f.workers, w), append(f.hosts, host)
		known = append(known, &testWorker{srv: host})
	}
	f.gateway, _ = startGateway(t, policy, func(c *fleet.Config) { c.Poll, c.Timeout = 2*time.Second, time.Second },
		set, known...)
	return f
}

// breaks makes a worker misbehave.
func (f *faultCluster) breaks(w int, rules ...faultworker.Rule) {
	f.Helper()
	if err := f.workers[w].Break(rules...); err != nil {
		f.Fatal(err)
	}
}

// kill ends a worker as the death of its process does.
func (f *faultCluster) kill(w int) {
	f.hosts[w].Kill()
	f.workers[w].Stop()
}

// clientsSaw is what clients saw of their requests.
type clientsSaw struct {
	whole   int // replies that came whole
	foreign int // something of another request's reply came
	workers map[string]int
	errors  []string
}

// ask has clients send n requests of 4 tokens in all.
func (f *faultCluster) ask(ctx context.Context, n, clients int, whole bool) *clientsSaw {
	s := &clientsSaw{workers: map[string]int{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	from := f.sent
	f.sent += n
	for k := range clients {
		wg.Go(func() {
			for i := from + k; i < from+n; i += clients {
				worker, foreign, err := f.one(ctx, fmt.Sprintf("r%d", i), []string{"a", "b"}[i%2], whole)
				mu.Lock()
				switch {
				case err != nil:
					s.errors = append(s.errors, err.Error())
				default:
					s.whole++
					s.workers[worker]++
				}
				if foreign {
					s.foreign++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return s
}

// one sends a request and checks its reply.
func (f *faultCluster) one(ctx context.Context, id, adapter string, whole bool) (worker string, foreign bool,
	err error) {
	body := fmt.Sprintf(`{"text": "x", "lora_path": %q, "stream": %t, "sampling_params": {"max_new_tokens": 4}}`,
		adapter, !whole)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.gateway.URL+"/generate", strings.NewReader(body))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := f.client.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body) // is only printed
		return "", false, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	tokens, lines := 0, bufio.NewScanner(resp.Body)
	for lines.Scan() {
		text := strings.TrimPrefix(lines.Text(), "data: ")
		if text == "" || text == "[DONE]" {
			continue
		}
		var reply struct {
			Error json.RawMessage `json:"error"`
			IDs   []int           `json:"output_ids"`
			Meta  struct {
				ID     string `json:"id"`
				Worker string `json:"worker"`
			} `json:"meta_info"`
		}
		if err := json.Unmarshal([]byte(text), &reply); err != nil {
			return "", false, fmt.Errorf("%.60q is no reply", text)
		}
		if len(reply.Error) > 0 {
			return "", foreign, fmt.Errorf("error event: %s", reply.Error)
		}
		worker, tokens = reply.Meta.Worker, tokens+len(reply.IDs)
		foreign = foreign || reply.Meta.ID != id
	}
	if err := lines.Err(); err != nil || tokens != 4 || foreign {
		return "", foreign, fmt.Errorf("%d of 4 tokens, of another request: %v, error %v", tokens, foreign, err)
	}
	return worker, false, nil
}

// One of three workers does something wrong from the first request on. The gateway goes on, what the other two serve is
// whole, and where nothing of a reply has come, a retry makes up for the fault.
func TestMisbehavingWorker(t *testing.T) {
	generate := func(r faultworker.Rule) []faultworker.Rule {
		r.On = faultworker.Generate
		return []faultworker.Rule{r}
	}
	metrics := func(text string) []faultworker.Rule {
		return []faultworker.Rule{{On: faultworker.Metrics, Do: faultworker.Answer, Text: text}}
	}
	for _, c := range []struct {
		name   string
		rules  []faultworker.Rule
		whole  bool
		mended bool // no request is lost
	}{
		{name: "cut", rules: generate(faultworker.Rule{Do: faultworker.Cut, Tokens: 1})},
		{name: "cut whole replies", rules: generate(faultworker.Rule{Do: faultworker.Cut}), whole: true},
		{name: "reset before a reply", rules: generate(faultworker.Rule{Do: faultworker.ResetFirst}), mended: true},
		{name: "drop", rules: generate(faultworker.Rule{Do: faultworker.Drop}), whole: true, mended: true},
		{name: "garbage", rules: generate(faultworker.Rule{Do: faultworker.Garbage})},
		{name: "no HTTP", rules: generate(faultworker.Rule{Do: faultworker.NotHTTP}), mended: true},
		{name: "wrong counts", rules: generate(faultworker.Rule{Do: faultworker.Counts, Number: 4e9}), mended: true},
		{name: "status 500", rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 500}), mended: true},
		{name: "status 500 for half",
			rules: generate(faultworker.Rule{Do: faultworker.Answer, Status: 500, Share: 0.5}), mended: true},
		{name: "too short", rules: generate(faultworker.Rule{Do: faultworker.TooShort}), whole: true},
		{name: "too long", rules: generate(faultworker.Rule{Do: faultworker.TooLong}), whole: true, mended: true},
		{name: "endless head", rules: generate(faultworker.Rule{Do: faultworker.EndlessHead}), mended: true},
		{name: "endless provisional replies", rules: generate(faultworker.Rule{Do: faultworker.Endless1xx}),
			mended: true},
		{name: "redirect",
			rules: generate(faultworker.Rule{Do: faultworker.Redirect, Text: "http://elsewhere/generate"})},
		{name: "load signal is empty", rules: metrics("{}"), mended: true},
		{name: "load signal is junk", rules: metrics("\x00\xff"), mended: true},
		{name: "load signal is wrong", rules: metrics(`{"loads": [{"num_running_reqs": -9223372036854775808, "max_total_num_tokens": -1}]}`), mended: true},
		{name: "load signal is absurd", rules: metrics(`{"loads": [{"num_running_reqs": 1e300}]}`), mended: true},
		{name: "load signal hangs", rules: []faultworker.Rule{{On: faultworker.Metrics, Do: faultworker.Hang}},
			mended: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inMemory(t, func(t *memory) {
				f := startFaultCluster(t, "round-robin", 3, nil, nil)
				f.breaks(0, c.rules...)
				const n = 90
				s := f.ask(t.Context(), n, 9, c.whole)
				if s.foreign > 0 {
					t.Errorf("%d replies to the wrong client", s.foreign)
				}
				if lost := n - s.whole; lost > n/3 || c.mended && lost > 0 {
					t.Errorf("%d of %d requests lost: %v", lost, n, s.errors[0])
				}
				if s.workers["1"] == 0 || s.workers["2"] == 0 {
					t.Errorf("whole replies by worker: %v", s.workers)
				}
				f.breaks(0)
				time.Sleep(6 * time.Minute) // until probes, and what else takes a worker back in
				if s := f.ask(t.Context(), n, 9, c.whole); s.whole != n {
					t.Errorf("%d of %d requests lost after the fault: %v", n-s.whole, n, s.errors[0])
				} else if s.workers["0"] == 0 {
					t.Errorf("the worker is not used again: %v", s.workers)
				}
			})
		})
	}
}

// A worker dies: whole replies are made elsewhere; of streams, those are lost that had begun.
func TestDyingWorker(t *testing.T) {
	for _, whole := range []bool{true, false} {
		inMemory(t, func(t *memory) {
			f := startFaultCluster(t, "round-robin", 3, nil, nil)
			time.AfterFunc(200*time.Millisecond, func() { f.kill(0) })
			const n, clients = 300, 30
			s := f.ask(t.Context(), n, clients, whole)
			if lost := n - s.whole; whole && lost > 0 || lost > clients {
				t.Errorf("whole %v: %d of %d requests lost: %v", whole, lost, n, s.errors)
			}
		})
	}
}

// Clients that hang up are aborted at their workers, each once.
func TestHangUps(t *testing.T) {
	inMemory(t, func(t *memory) {
		f := startFaultCluster(t, "least-loaded", 3, func(_ int, c *faultworker.Config) { c.Token = time.Second }, nil)
		ctx, hangUp := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer hangUp()
		const n = 200
		if s := f.ask(ctx, n, n, false); s.whole > 0 {
			t.Fatalf("%d replies came whole", s.whole)
		}
		time.Sleep(time.Second)
		if got, want := f.book.Totals(), (faultworker.Count{Executed: n, Aborted: n}); got.Count != want {
			t.Errorf("%+v, expected %+v", got.Count, want)
		}
	})
}
