package script

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/trace"
)

// examples are programs and the policies that they equal.
var examples = []struct{ script, builtin string }{
	{"least-loaded.star", "least-loaded"},
	{"affinity-spill.star", "affinity-spill"},
	{"weighted-score.star", "affinity"},
}

func example(name string) string { return filepath.Join("..", "..", "scenarios", "policies", name) }

func testEnv(n, adapters int) router.Env {
	return router.Env{Workers: router.Alike(n, router.Spec{MaxRunning: 64, Slots: 4, Cost: cost{}}),
		Adapters: trace.Names(adapters, []int{8, 16}), Seed: 3}
}

// cost is a worker with round step times.
type cost struct{}

func (cost) DecodeStep(running, _ int, kvTokens int64, maxRank int) float64 {
	return 0.01 + float64(running)*0.001 + float64(kvTokens)*1e-6 + float64(maxRank)*1e-4
}
func (cost) Prefill(tokens int64) float64 { return float64(tokens) * 1e-4 }
func (cost) AdapterLoad(rank int, from router.Tier) float64 {
	return float64(rank) * 1e-3 / float64(from+1)
}
func (cost) Copy(bytes float64) float64 { return bytes }
func newRand() *rand.Rand               { return rand.New(rand.NewPCG(1, 2)) }
func mustNew(t testing.TB, spec string, env router.Env) *router.Router {
	t.Helper()
	rt, err := router.New(spec, env)
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

// write writes a program into a file and returns its path.
func write(t testing.TB, program string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.star")
	if err := os.WriteFile(path, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// clusterOf is a cluster in the middle of a run; some of the workers are down.
func clusterOf(env router.Env, rng *rand.Rand) *router.View {
	v := &router.View{Adapters: env.Adapters, Workers: make([]router.Worker, len(env.Workers)), Now: rng.Float64()}
	for j := range v.Workers {
		w := &v.Workers[j]
		*w = router.Worker{Up: rng.IntN(6) > 0, Draining: rng.IntN(8) == 0, MaxRunning: 64, KVCapacity: 10000,
			KVUsed: rng.Int64N(10000), Slots: 4, SlotsUsed: rng.IntN(5), Tokens: rng.Int64N(1e5),
			Adapters: make([]router.AdapterState, len(env.Adapters))}
		for a := range w.Adapters {
			w.Adapters[a].Tier = router.Tier(rng.IntN(4))
			w.Adapters[a].Loading = rng.IntN(5) == 0
			r, q := int32(rng.IntN(5)/2), int32(rng.IntN(4)/2)
			w.Count(int32(a), r, q)
			w.Running += int(r)
			w.Queued += int(q)
		}
	}
	return v
}

// Each example decides as the built-in policy does, request by request.
func TestExamplesEqualBuiltins(t *testing.T) {
	for _, c := range examples {
		for _, ties := range []string{"first", "random"} {
			if ties == "random" && c.builtin != "least-loaded" {
				continue // the built-in policy draws once for each equal worker, the script once among them
			}
			different := map[int]bool{}
			for seed := range uint64(300) {
				rng := rand.New(rand.NewPCG(seed, 1))
				env := testEnv(1+rng.IntN(8), 1+rng.IntN(6))
				env.Seed = seed
				own := mustNew(t, "script:file="+example(c.script)+",ties="+ties, env)
				builtin := mustNew(t, c.builtin+":ties="+ties, env)
				for id := range int64(20) {
					v := clusterOf(env, rng)
					adapter := int32(rng.IntN(len(env.Adapters)+1)) - 1
					r := router.Request{ID: id, Adapter: adapter, Prompt: 100, MaxNew: 10}
					d, want := own.Policy.Route(r, v), builtin.Policy.Route(r, v).Worker
					got := d.Worker
					if d.Err != nil {
						t.Fatal(d.Err)
					}
					if got != want {
						t.Fatalf("%s, ties=%s, seed %d, request %d: worker %d, %s picks %d",
							c.script, ties, seed, id, got, c.builtin, want)
					}
					different[got] = true
				}
			}
			if len(different) < 5 {
				t.Errorf("%s: picks of %d workers only", c.script, len(different))
			}
		}
	}
}

// What a program says is what is done, or an error with the line.
func TestAnswers(t *testing.T) {
	env := testEnv(4, 3)
	view := func() *router.View {
		v := &router.View{Adapters: env.Adapters, Workers: make([]router.Worker, 4), Now: 2.5}
		for j := range v.Workers {
			v.Workers[j] = router.Worker{Up: j != 1, Running: 4 - j, Queued: 1, KVCapacity: 100, KVUsed: 50, Slots: 2,
				Adapters: make([]router.AdapterState, 3)}
		}
		v.Workers[2].Adapters[1] = router.AdapterState{Tier: router.GPU, Running: 2}
		return v
	}
	for body, want := range map[string]any{
		"return workers[1]":        2,
		"return 0":                 0,
		"return None":              3,
		"return [1, 2, 2]":         2,
		"return (0.5, 0.25, None)": 0,
		"return [None] * 3":        3,
		"return [1 << 70, 2, 3]":   0,
		"return workers[0] if len(workers) == 3 else None": 0,
		"return [w for w in workers if w.has_adapter][0]":  2,
		"return [w.adapter_running for w in workers]":      2,
		"return 1":                       "worker 1, expected one of workers",
		"return 4":                       "worker 4, expected one of workers",
		"return 1 << 70":                 "expected one of workers",
		"return [1, 2]":                  "2 scores, expected one for each of 3 workers",
		`return "0"`:                     "a string, expected a worker",
		`return [1, "a", 2]`:             "score 1: string, expected a number or None",
		`return [float("nan")]*3`:        "score 0: not a number",
		"pass":                           3,
		"return workers[9]":              "index 9 out of range",
		"return workers[0].request":      "worker has no .request field or method (did you mean .requests?)",
		"for i in range(10000000): pass": "range of 10000000 numbers, expected at most 1000000",
		"while True: pass":               "more than 180000 steps",
		"return [0] * (1 << 40)":         "",
		"workers[0].slots = 2":           "can't assign to .slots field of worker",
		"return [w.prefill_time(1000) * w.index for w in workers]":     3,
		"return [-w.decode_time(3, 500, 8) for w in workers[:1]]":      "invalid slice operand workers",
		"return [w.load_time(8, tier='disk') for w in workers]":        0,
		"return [w.load_time(8, 'moon') for w in workers]":             `tier "moon", expected`,
		"return [w.prefill_time(-1) for w in workers]":                 "below 0",
		"return [w.adapter(1).running for w in workers]":               2,
		"return [w.adapter(7).running for w in workers]":               "adapter 7, expected 0 to 2",
		"return 0 if request.adapter_name == 'lora1' else 2":           0,
		"return 0 if request.now == 2.5 and request.rank == 16 else 2": 0,
		"return 0 if random() < 1 else 2":                              0,
		"return {request: 0, workers[1]: 3}[workers[1]]":               3,
		"return route(request, workers)":                               "called recursively",
	} {
		program := "def route(request, workers):\n    " + body + "\n"
		env.Seed = 5
		rt, err := router.New("script:ties=first,file="+write(t, program), env)
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		d := rt.Policy.Route(router.Request{Adapter: 1, Prompt: 10}, view())
		got, fault := d.Worker, d.Err
		switch want := want.(type) {
		case int:
			if fault != nil || got != want {
				t.Errorf("%s: worker %d (%v), expected %d", body, got, fault, want)
			}
		case string:
			if got != 3 {
				t.Errorf("%s: worker %d, expected the least loaded one", body, got)
			}
			testutil.ExpectError(t, fault, "p.star:", want)
			// the next request is served all the same
			if got := rt.Policy.Route(router.Request{Adapter: 1, Prompt: 10}, view()).Worker; got != 3 {
				t.Errorf("%s: then worker %d", body, got)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	env := testEnv(2, 2)
	const sound = "def route(request, workers):\n    return 0\n"
	for program, want := range map[string]string{
		"":                                 "p.star: no function route(request, workers)",
		"route = 1\n":                      "route is a int, expected a function route(request, workers)",
		"def route(r):\n    return 0\n":    "p.star:1:1: route",
		"def route(r, w, x):\n  pass\n":    "expected route(request, workers)",
		"def route(*a):\n  pass\n":         "expected route(request, workers)",
		sound + "def finished():\n pass\n": "p.star:3:1: finished",
		sound + "x = 1 / 0\n":              "p.star:3:7: floating-point division by zero",
		sound + "x = y\n":                  "p.star:3:5: undefined: y",
		sound + "def\n":                    "p.star:4:1: not an identifier",
		sound + "load('a.star', 'b')\n":    "p.star:3:1: load not implemented",
		sound + "while True: pass\n":       "p.star:1:1: Starlark computation cancelled: more than 100000 steps",
	} {
		_, err := router.New("script:file="+write(t, program), env)
		testutil.ExpectError(t, err, "policy script: ", want)
	}
	for spec, want := range map[string]string{
		"script":                                    "file is missing",
		"script:file=/nowhere.star":                 "/nowhere.star",
		"script:file=x,args=a":                      `args: "a", expected NAME=VALUE, each name once`,
		"script:file=x,args=a=1;a=2":                `args: "a=2", expected NAME=VALUE, each name once`,
		"script:file=" + t.TempDir() + ",ties=last": "ties",
	} {
		_, err := router.New(spec, env)
		testutil.ExpectError(t, err, "policy script: ", want)
	}
}

// A program keeps state in its global dictionaries and lists, learns how requests end, and gets arguments.
func TestState(t *testing.T) {
	program := `
seen = {}
ended = []
def finished(request):
    ended.append((request.worker, request.output_tokens, request.e2e))
def route(request, workers):
    seen[request.adapter] = seen.get(request.adapter, 0) + 1
    if ended:
        return ended[0][0]
    return (seen[request.adapter] + args["shift"]) % args.get("of", 3)
`
	env := testEnv(3, 2)
	rt := mustNew(t, "script:file="+write(t, program)+",args=shift=1;name=x", env)
	v := clusterOf(env, newRand())
	for j := range v.Workers {
		v.Workers[j].Up, v.Workers[j].Draining = true, false
	}
	var got []int
	for _, a := range []int32{0, 0, 1, 0} {
		got = append(got, rt.Policy.Route(router.Request{Adapter: a, Prompt: 1}, v).Worker)
	}
	err := rt.Note(router.Event{Kind: router.Finished, Worker: 1, Output: 7, E2E: 0.5})
	got = append(got, rt.Policy.Route(router.Request{Adapter: 1, Prompt: 1}, v).Worker)
	if err != nil || fmt.Sprint(got) != "[2 0 2 1 1]" {
		t.Errorf("workers %v, %v", got, err)
	}
}

// Workers may join and leave between two requests.
func TestWorkersJoinAndLeave(t *testing.T) {
	program := `
kept = []
def route(request, workers):
    if not kept:
        kept.append(workers[len(workers)-1])
    if kept[0].usable:
        return kept[0]
    return [-w.requests for w in workers]
`
	env := testEnv(3, 2)
	rt := mustNew(t, "script:file="+write(t, program), env)
	rng := newRand()
	route := func(n int) int {
		v := clusterOf(testEnv(n, 4), rng)
		for j := range v.Workers {
			v.Workers[j].Up, v.Workers[j].Draining, v.Workers[j].Running, v.Workers[j].Queued = true, false, j, 0
		}
		d := rt.Policy.Route(router.Request{Adapter: 3, Prompt: 1}, v)
		if d.Err != nil {
			t.Error(d.Err)
		}
		return d.Worker
	}
	var got []int
	for _, n := range []int{3, 5, 2, 3, 1} {
		got = append(got, route(n))
	}
	if fmt.Sprint(got) != "[2 2 0 2 0]" {
		t.Errorf("workers %v", got)
	}
}

// A policy that takes the place of another one with the same program keeps its state; another program does not.
func TestSucceed(t *testing.T) {
	const program = `
seen = []
def finished(request):
    pass
def route(request, workers):
    if not seen:
        seen.append(workers[-1])
    return seen[0] if seen[0].usable and seen[0].slots == 4 else 0
`
	path := write(t, program)
	rng := newRand()
	next := func(before *router.Router, spec string, workers int) (*router.Router, int) {
		env := testEnv(workers, 2)
		rt, v := mustNew(t, spec, env), clusterOf(env, rng)
		for j := range v.Workers {
			v.Workers[j].Up, v.Workers[j].Draining = true, false
		}
		if before != nil {
			rt.Succeed(before, router.NewHistory(64), v, workers-1)
		}
		d := rt.Policy.Route(router.Request{Prompt: 1}, v)
		if d.Err != nil {
			t.Fatal(d.Err)
		}
		return rt, d.Worker
	}
	one, w := next(nil, "script:file="+path, 3)
	two, then := next(one, "script:file="+path, 5)
	_, other := next(two, "script:ties=first,file="+path, 4)
	if w != 2 || then != 2 || other != 3 {
		t.Errorf("workers %d, %d, %d; expected 2, 2, 3", w, then, other)
	}
}

// No usable worker is None, and the program is not asked.
func TestNoWorker(t *testing.T) {
	env := testEnv(2, 1)
	rt := mustNew(t, "script:file="+write(t, "def route(request, workers):\n    return 1 // 0\n"), env)
	d := rt.Policy.Route(router.Request{}, &router.View{Workers: make([]router.Worker, 2)})
	if d.Worker != router.None || d.Err != nil {
		t.Errorf("%+v", d)
	}
}

func TestNeeds(t *testing.T) {
	env := testEnv(2, 1)
	for _, c := range []struct {
		body         string
		kv, prefixes bool
	}{
		{"0", false, false},
		{"[w.kv_used for w in workers]", true, false},
		{"[w.cached_tokens for w in workers]", false, true},
	} {
		rt := mustNew(t, "script:file="+write(t, "def route(request, workers):\n    return "+c.body+"\n"), env)
		if rt.ReadsKV != c.kv || rt.ReadsPrefixes != c.prefixes {
			t.Errorf("%s: %+v", c.body, rt)
		}
	}
}

// FuzzScript runs any program: it is refused with an error that names the file, or routes to usable workers.
func FuzzScript(f *testing.F) {
	for _, c := range examples {
		text, err := os.ReadFile(example(c.script))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("def route(r, w):\n  return w[0]\n")
	f.Add("def route(r, w):\n  return sorted(w, key=lambda x: x.kv_share)[0].adapter(0)\n")
	f.Add("x = {}\ndef finished(r): x[r.id] = r.e2e\ndef route(r, w): return [x.get(i, 0) for i in range(len(w))]\n")
	f.Fuzz(func(t *testing.T, program string) {
		if strings.ContainsAny(program, "*+<|%") || len(program) > 2000 {
			return // values may double at every step: no limit of steps bounds the memory
		}
		env := testEnv(3, 2)
		p, err := newPolicy(&options{File: "f.star", Ties: "random"}, program, env)
		if err != nil {
			if !strings.Contains(err.Error(), "f.star") {
				t.Errorf("error without a place: %v", err)
			}
			return
		}
		rng := newRand()
		for id := range int64(3) {
			v := clusterOf(env, rng)
			d := p.Route(router.Request{ID: id, Adapter: int32(id) - 1, Prompt: 10}, v)
			placed(t, d.Err)
			w := d.Worker
			if w == router.None {
				if v.LeastLoaded() != router.None {
					t.Fatal("no worker, but one is usable")
				}
			} else if !v.Workers[w].Usable() {
				t.Fatalf("worker %d is not usable", w)
			}
			placed(t, p.Note(router.Event{Kind: router.Finished, ID: id}))
		}
	})
}

// placed checks that an error names the file of the program.
func placed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !strings.Contains(err.Error(), "f.star") {
		t.Errorf("error without a place: %v", err)
	}
}

func BenchmarkScript(b *testing.B) {
	for _, c := range examples {
		for _, n := range []int{2, 8, 64} {
			b.Run(fmt.Sprintf("%s/workers=%d", strings.TrimSuffix(c.script, ".star"), n), func(b *testing.B) {
				env := testEnv(n, 32)
				v := clusterOf(env, newRand())
				for j := range v.Workers {
					v.Workers[j].Up, v.Workers[j].Draining = true, false
				}
				rt := mustNew(b, "script:file="+example(c.script), env)
				b.ReportAllocs()
				id, begun := int64(0), processorTime(b)
				for b.Loop() {
					id++
					d := rt.Policy.Route(router.Request{ID: id, Adapter: int32(id % 32), Prompt: 100, MaxNew: 100}, v)
					if d.Err != nil {
						b.Fatal(d.Err)
					}
				}
				b.ReportMetric(float64(processorTime(b)-begun)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime is what this process has used of the processors, which other programs on the machine do not change.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
