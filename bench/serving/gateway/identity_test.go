package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lorasim/bench/serving/fleet"
	"lorasim/internal/memnet"
	"lorasim/trace"
)

// shifter is a worker whose URL stays, while the process behind it changes: engine, base model, adapters, state.
type shifter struct {
	net  *memnet.Network
	name string

	mu sync.Mutex
	process
	host *memnet.Host
	rng  *rand.Rand
	free chan struct{} // closed when the process hangs no longer
}

// process is one process of a shifter.
type process struct {
	engine, base string
	adapters     []string
	draining     bool
	hangs        bool
}

// identity is what served a request, in its reply.
type identity struct{ Base, Adapter string }

// ownBase returns the base model of an adapter by its name; "": it fits any.
func ownBase(adapter string) string {
	base, _, _ := strings.Cut(adapter, "-")
	if base == "any" {
		return ""
	}
	return base
}

// start replaces the process. It returns at once.
func (s *shifter) start(p process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.host != nil {
		s.host.Kill()
		close(s.free)
	}
	s.process, s.free = p, make(chan struct{})
	s.host = s.net.Serve(s.name, &served{s, p, s.free})
}

func (s *shifter) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.host.Kill()
	close(s.free)
	s.host = nil
}

// change changes the present process, if there is one.
func (s *shifter) change(do func(p *process)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if was := s.hangs; s.host != nil {
		if do(&s.process); was && !s.hangs {
			close(s.free)
			s.free = make(chan struct{})
		}
	}
}

// served is the handler of one process. Its engine and base model are constant.
type served struct {
	s     *shifter
	began process
	ended chan struct{}
}

func (h *served) now() (p process, free chan struct{}) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	p = h.s.process
	p.adapters = slices.Clone(p.adapters)
	p.engine, p.base = h.began.engine, h.began.base
	return p, h.s.free
}

func (h *served) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p, free := h.now()
	if p.hangs {
		select {
		case <-free:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	}
	var ask struct {
		Model    string `json:"model"`
		LoraName string `json:"lora_name"`
	}
	json.Unmarshal(body, &ask)
	reply := func(status int, v any) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		json.NewEncoder(rw).Encode(v)
	}
	type object = map[string]any
	fail := func(status int, text string) { reply(status, object{"error": object{"message": text, "code": status}}) }
	vllm := p.engine == "vllm"
	switch path := strings.TrimPrefix(r.URL.Path, "/v1"); {
	case path == "/models":
		list := []object{{"id": p.base, "root": "/models/" + p.base, "owned_by": p.engine, "max_model_len": 4096}}
		for _, a := range p.adapters {
			list = append(list, object{"id": a, "root": a, "parent": p.base, "owned_by": p.engine})
		}
		reply(200, object{"data": list})
	case path == "/health":
		if p.draining {
			rw.WriteHeader(http.StatusServiceUnavailable)
		}
	case path == "/version" && vllm:
		reply(200, object{"version": "0.32.0"})
	case path == "/metrics" && vllm:
		io.WriteString(rw, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0\n"+
			"# TYPE vllm:lora_requests_info gauge\nvllm:lora_requests_info{max_lora=\"8\"} 1\n")
	case path == "/server_info" && !vllm:
		reply(200, object{"model_path": "/models/" + p.base, "served_model_name": p.base, "enable_lora": true,
			"version": "0.5.23", "max_loras_per_batch": 8, "dp_size": 1})
	case path == "/loads" && !vllm:
		reply(200, object{"loads": []object{{}}})
	case strings.HasSuffix(path, "load_lora_adapter") && (strings.HasPrefix(r.URL.Path, "/v1") == vllm):
		if r.Method == http.MethodGet {
			rw.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if base := ownBase(ask.LoraName); base != "" && base != p.base && rand.N(2) == 0 {
			fail(400, "wrong shape") // else it is loaded on the wrong base model, as engines do if the shapes agree
			return
		}
		h.s.change(func(p *process) {
			p.adapters = slices.DeleteFunc(p.adapters, func(a string) bool { return a == ask.LoraName })
			if !strings.Contains(path, "unload") {
				p.adapters = append(p.adapters, ask.LoraName)
			}
		})
		reply(200, object{"success": true})
	case path == "/completions":
		time.Sleep(5 * time.Millisecond)
		adapter := ask.Model
		if !vllm {
			_, adapter, _ = strings.Cut(ask.Model, ":") // without a colon, sglang serves the base model
		} else if ask.Model == p.base {
			adapter = ""
		}
		if adapter != "" && !slices.Contains(p.adapters, adapter) {
			if vllm {
				fail(404, "The model `"+ask.Model+"` does not exist.")
			} else {
				fail(400, "The following requested LoRA adapters are not loaded: "+adapter)
			}
			return
		}
		reply(200, object{"model": ask.Model, "served": identity{p.base, adapter}})
	default:
		http.NotFound(rw, r)
	}
}

// Workers change engine, base model and adapters, die, drain and hang at random. Whatever answers with success is what
// the client asked for: each reply carries the identity that served it.
func TestOnlyWhatWasAskedFor(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 2_000
	}
	for _, policy := range []string{"least-loaded", "round-robin", "plan-and-route"} {
		for seed := range uint64(2) {
			t.Run(fmt.Sprintf("%s, seed %d", policy, seed), func(t *testing.T) {
				inMemory(t, func(t *memory) { askShifters(t, policy, seed, n/6+1) })
			})
		}
	}
}

// shifterModels are the names that clients ask for.
var shifterModels = []string{"x", "y", "x-a", "x-b", "y-a", "any-c"}

func (s *shifter) draw() process {
	p := process{engine: []string{"vllm", "sglang"}[s.rng.IntN(2)], base: []string{"x", "y"}[s.rng.IntN(2)]}
	for _, a := range shifterModels[2:] {
		if base := ownBase(a); (base == "" || base == p.base) && s.rng.IntN(2) == 0 {
			p.adapters = append(p.adapters, a)
		}
	}
	return p
}

// shift changes a worker once.
func (s *shifter) shift() {
	switch s.rng.IntN(6) {
	case 0, 1: // a restart that no probe sees
		s.start(s.draw())
	case 2:
		if s.host != nil {
			s.stop()
			time.Sleep(time.Duration(s.rng.IntN(1000)) * time.Millisecond)
		}
		s.start(s.draw())
	case 3:
		s.change(func(p *process) { p.draining = !p.draining })
	case 4:
		s.change(func(p *process) { p.hangs = true })
		time.Sleep(time.Duration(s.rng.IntN(3000)) * time.Millisecond)
		s.change(func(p *process) { p.hangs = false })
	case 5: // another client
		s.change(func(p *process) { p.adapters = nil })
	}
}

func askShifters(t *memory, policy string, seed uint64, n int) {
	var shifters []*shifter
	var workers []*testWorker
	for i := range 4 {
		s := &shifter{net: t.net, name: fmt.Sprint("shifter", i), rng: rand.New(rand.NewPCG(seed, uint64(i)))}
		s.start(s.draw())
		shifters = append(shifters, s)
		workers = append(workers, &testWorker{srv: s.host})
	}
	srv, _ := startGateway(t, policy, func(c *fleet.Config) {
		c.Poll, c.Timeout = 200*time.Millisecond, time.Second
		c.Adapters = []trace.Adapter{{Name: "x-a", Rank: 8}, {Name: "y-a", Rank: 8}}
	}, nil, workers...)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range shifters {
		wg.Go(func() {
			for {
				select {
				case <-done:
					s.change(func(p *process) { p.hangs = false })
					s.stop()
					return
				case <-time.After(time.Duration(100+s.rng.IntN(2000)) * time.Millisecond):
					s.shift()
				}
			}
		})
	}
	var mu sync.Mutex
	ok, left := 0, n
	var wrong []string
	next := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(100+c)))
			for next() {
				name := shifterModels[rng.IntN(len(shifterModels))]
				status, text := post(t, srv.URL+"/v1/completions", fmt.Sprintf(`{"model": %q, "prompt": "x"}`, name))
				var reply struct{ Served identity }
				want := identity{Base: name}
				if strings.Contains(name, "-") {
					want = identity{ownBase(name), name}
				}
				if status == 200 {
					err := json.Unmarshal([]byte(text), &reply)
					mu.Lock()
					if want.Base == "" {
						want.Base = reply.Served.Base
					}
					if ok++; err != nil || reply.Served != want {
						wrong = append(wrong, fmt.Sprintf("%s: %s", name, text))
					}
					mu.Unlock()
				}
				time.Sleep(time.Duration(rng.IntN(250)) * time.Millisecond)
			}
		})
	}
	clients.Wait()
	close(done)
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("%d of %d replies are of another model or adapter: %q", len(wrong), ok, wrong[:min(len(wrong), 5)])
	}
	if ok < n/2 {
		t.Errorf("%d of %d requests were served, expected at least half", ok, n)
	}
	t.Logf("%d of %d requests were served, %d wrong", ok, n, len(wrong))
}
