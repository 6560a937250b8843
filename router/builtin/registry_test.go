package builtin

import (
	"reflect"
	"strings"
	"sync"
	"testing"

	"lorasim/internal/testutil"
	"lorasim/router"
	"lorasim/router/routertest"
)

// Every policy and every option has a description.
func TestListDescribes(t *testing.T) {
	for _, d := range router.List() {
		if d.Summary == "" {
			t.Errorf("%s has no summary", d.Name)
		}
		for _, o := range d.Options {
			if o.Name == "" || o.Doc == "" || strings.ContainsAny(o.Name, "=,: ") {
				t.Errorf("%s: bad option %+v", d.Name, o)
			}
		}
	}
}

// The tags of the options are sound: every default is a value that the option takes.
func TestTags(t *testing.T) {
	for _, f := range router.Forms() {
		if err := f.Verify(); err != nil {
			t.Error(err)
		}
	}
}

// Writing every default out must give the same policy as leaving them out.
func TestDefaultsMayBeWrittenOut(t *testing.T) {
	env := routertest.Env(3, 4)
	for _, d := range router.List() {
		if router.CheckSpec(d.Name) != nil {
			continue // it has no defaults
		}
		var options []string
		for _, o := range d.Options {
			options = append(options, o.Name+"="+o.Default)
		}
		if len(options) == 0 {
			continue
		}
		short, long := routertest.New(t, d.Name, env), routertest.New(t, d.Name+": "+strings.Join(options, " , "), env)
		v := routertest.View(env)
		routertest.SetRunning(v, 1, 0, 0)
		routertest.Equal(t, routertest.Route(long.Policy, v, 1, 50), routertest.Route(short.Policy, v, 1, 50), d.Name)
	}
}

// Host memory with room for every adapter decides nothing: with any such size, policies start and plan
// as without a limit.
func TestRoomForAllIsNoLimit(t *testing.T) {
	for _, spec := range specs() {
		of := func(slots int) (*router.Router, *router.Plan) {
			env := routertest.Env(2, 4)
			for j := range env.Workers {
				env.Workers[j].HostSlots = slots
			}
			env.Moving = router.MoveQueued
			rt := routertest.New(t, spec, env)
			if env.Workers[0].HostSlots != slots {
				t.Fatalf("%s changed its environment", spec)
			}
			if rt.Planner == nil {
				return rt, nil
			}
			s := &router.PlannerInput{View: routertest.View(env)}
			for i := range int64(200) {
				r := router.Request{ID: i, Adapter: 1, Prompt: 500, MaxNew: 500, Expected: 500}
				w := rt.Policy.Route(r, s.View).Worker
				s.Requests = append(s.Requests, router.InFlight{ID: i, Adapter: 1, Worker: int32(w), Prompt: 500,
					MaxNew:   500,
					Expected: 500})
			}
			s.Now = 30
			return rt, rt.Planner.Begin(s).Now()
		}
		none, plan := of(0)
		for _, slots := range []int{4, 1000} {
			if rt, p := of(slots); !reflect.DeepEqual(rt.Placement, none.Placement) || !reflect.DeepEqual(p, plan) {
				t.Errorf("%s: host memory for %d of 4 adapters: placement %v, plan %+v; without limit %v, %+v",
					spec, slots, rt.Placement, p, none.Placement, plan)
			}
		}
	}
	if full := routertest.New(t, "plan-and-route", router.Env{Workers: router.Alike(2,
		router.Spec{Cost: routertest.Cost{}, HostSlots: 3}),
		Adapters: routertest.Env(2, 4).Adapters}); full.Placement == nil {
		t.Error("host memory for 3 of 4 adapters: no placement")
	}
}

func TestNewKeepsSpecAndFlags(t *testing.T) {
	env := routertest.Env(2, 2)
	for _, c := range []struct {
		spec                       string
		placement, readsKV, prefix bool
	}{
		{"static", true, false, false},
		{"static-block", true, false, false},
		{"explicit:map=rest@all", true, false, false},
		{"hash", true, false, false},
		{"k-shard", true, false, false},
		{"bounded-hash", false, false, false},
		{"least-loaded", false, false, false},
		{"affinity", false, true, false},
		{"affinity:kv=0", false, false, false},
		{"rank-aware", false, true, false},
		{"plan-and-route:spill=0", false, true, false},
		{"kv-router", false, true, false},
		{"prefix-scorer:kv=0", false, false, false},
		{"any-worker", false, false, true},
	} {
		rt := routertest.New(t, c.spec, env)
		if rt.Name != c.spec || (rt.Placement != nil) != c.placement || rt.ReadsKV != c.readsKV ||
			rt.Prefetch != c.prefix {
			t.Errorf("%s: got %+v", c.spec, rt)
		}
		if rt.Placement != nil && len(rt.Placement) != len(env.Workers) {
			t.Errorf("%s: placement of %d workers", c.spec, len(rt.Placement))
		}
	}
}

// A policy is the same by each of its names, and is printed by its own.
func TestAliases(t *testing.T) {
	for _, c := range [][3]string{ // spec, with the policy's own name, with its oldest
		{"period_mig", "plan-and-route", "period_mig"},
		{"plan-and-route", "plan-and-route", "period_mig"},
		{" period_mig :interval=5,busy=0", "plan-and-route:interval=5,busy=0", "period_mig:interval=5,busy=0"},
		{"plan-and-route:interval=5", "plan-and-route:interval=5", "period_mig:interval=5"},
		{"dlora_period_mig", "dlora_period_mig", "dlora_period_mig"},
		{"affinity:kv=0", "affinity:kv=0", "affinity:kv=0"},
		{"nonsense:x=1", "nonsense:x=1", "nonsense:x=1"}, {"", "", ""},
	} {
		if got := router.Canonical(c[0]); got != c[1] {
			t.Errorf("Canonical(%q) = %q, expected %q", c[0], got, c[1])
		}
		if got := router.Oldest(c[1]); got != c[2] {
			t.Errorf("Oldest(%q) = %q, expected %q", c[1], got, c[2])
		}
	}
	if name, _, _ := router.Given("period_mig:interval=5"); name != "plan-and-route" {
		t.Errorf("period_mig is printed as %s", name)
	}
	if router.FactsOf("period_mig:interval=5") != router.FactsOf("plan-and-route:interval=5") {
		t.Error("period_mig and plan-and-route have different facts")
	}
	seen := map[string]bool{}
	for _, d := range router.List() {
		for _, name := range append(d.Aliases, d.Name) {
			if seen[name] {
				t.Errorf("two policies are called %s", name)
			}
			seen[name] = true
		}
	}
}

// One choice serves many runs, also at once: a run's settings do not reach the choice.
func TestChoiceServesManyRuns(t *testing.T) {
	env := routertest.Env(3, 4)
	env.Interval, env.Threshold = 7, 3
	for _, spec := range specs() {
		c, err := router.Choose(spec)
		if err != nil {
			t.Fatal(err)
		}
		var runs sync.WaitGroup
		for range 2 {
			runs.Go(func() {
				if _, err := c.New(env); err != nil {
					t.Errorf("%s: %v", spec, err)
				}
			})
		}
		runs.Wait()
		fresh, _ := router.Choose(spec)
		if got, want := c.Options(), fresh.Options(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: after a run the options are %+v, expected %+v", spec, got, want)
		}
	}
	if _, err := (router.Choice{}).New(env); err == nil {
		t.Error("no policy was chosen, and there is one")
	}
}

// FuzzNew feeds specs of any form: each is either refused in one line or gives
// a policy that routes.
func FuzzNew(f *testing.F) {
	for _, s := range specs() {
		f.Add(s)
	}
	f.Add("explicit:map=0-2@0+1-2, 3@2,base@all")
	f.Add("affinity:variant=residency,lora=1e3")
	f.Add("k-shard:k=2,max=3,high=2,low=1")
	f.Add("bounded-hash:c=")
	f.Fuzz(func(t *testing.T, spec string) {
		if strings.Contains(spec, "file") {
			return // would open what it names
		}
		env := routertest.Env(3, 4)
		rt, err := router.New(spec, env)
		if err != nil {
			if err.Error() == "" || strings.Contains(err.Error(), "\n") {
				t.Errorf("bad error %q", err)
			}
			return
		}
		v := routertest.View(env)
		routertest.SetRunning(v, -1, 3, 1)
		for _, w := range routertest.Route(rt.Policy, v, 3, 5) {
			if w != 1 && w != 2 {
				t.Errorf("%q sent a request to worker %d", spec, w)
			}
		}
	})
}
func TestNewErrors(t *testing.T) {
	for _, c := range []struct {
		spec string
		want []string
	}{
		{"", []string{`unknown policy ""`, "known: static,"}},
		{"round_robin", []string{`did you mean "round-robin"?`}},
		{"leastloaded", []string{`did you mean "least-loaded"?`}},
		{"zzzzzzzz", []string{`unknown policy "zzzzzzzz" (known: static, static-block`}},
		{"static:x=1", []string{"policy static", `unknown option "x"`, "expected none"}},
		{"affinity:variatn=score", []string{"policy affinity", `did you mean "variant"?`,
			"known: variant, holders, lora, queue, kv, ties"}},
		{"affinity:variant=scor",
			[]string{`variant: unknown value "scor", did you mean "score"? (known: score, distinct, active, residency, load-state)`}},
		{"affinity:lora=0,queue=0,kv=0", []string{"lora, queue and kv are all 0"}},
		{"affinity:kv=NaN", []string{`policy affinity: kv: "NaN" is not a number >= 0`}},
		{"affinity:kv=1,2", []string{`"2" is not of the form key=value`}},
		{"least-loaded:", []string{"expected options after the colon"}},
		{"least-loaded:first", []string{`"first" is not of the form key=value`}},
		{"least-loaded:=first", []string{`"=first" is not of the form key=value`}},
		{"least-loaded:ties=first,ties=first", []string{"ties is given twice"}},
		{"least-loaded:ties=last", []string{"ties: unknown value", "(known: random, first)"}},
		{"bounded-hash:c=0.9", []string{`c: "0.9" is not a number >= 1`}},
		{"bounded-hash:c=Inf", []string{`c: "Inf" is not a number >= 1`}},
		{"affinity-spill:threshold=0", []string{`threshold: "0" is not a whole number >= 1`}},
		{"weighted-queue:weight=1.5", []string{`weight: "1.5" is not a whole number from 0 to 1000000`}},
		{"k-shard:k=4", []string{`policy k-shard: k: 4 is not a whole number from 1 to 3`}},
		{"k-shard:max=2,k=3", []string{`k: 3 is not a whole number from 1 to 2`}},
		{"k-shard:max=4", []string{`max: 4 is not a whole number from 0 to 3`}},
		{"k-shard:low=2", []string{"low: 2 is not less than high (1)"}},
		{"rank-aware:slo=fast", []string{`slo: "fast" is not a number >= 0, or auto, or none`}},
		{"rank-aware:avg-output=0", []string{`avg-output: "0" is not a number >= 1, or auto`}},
		{"cache-aware:threshold=1.1", []string{`threshold: "1.1" is not a number from 0 to 1`}},
		{"kv-router:index=exact", []string{`index: unknown value "exact" (known: sent, reported)`}},
		{"explicit", []string{"map=", "file=PATH"}},
		{"explicit:map=0@0,file=x", []string{"map=", "file=PATH"}},
	} {
		_, err := router.New(c.spec, routertest.Env(3, 4))
		testutil.ExpectError(t, err, c.want...)
	}
}

func TestNewNeedsEnvironment(t *testing.T) {
	env := routertest.Env(2, 2)
	env.Workers = nil
	_, err := router.New("static", env)
	testutil.ExpectError(t, err, "no workers")
	env = routertest.Env(2, 2)
	env.Workers[1].Cost = nil
	_, err = router.New("rank-aware", env)
	testutil.ExpectError(t, err, "rank-aware", "cost model")
	env = routertest.Env(2, 2)
	env.Workers[1].MaxRunning = 0
	_, err = router.New("k-shard", env)
	testutil.ExpectError(t, err, "k-shard", "running requests")
}
