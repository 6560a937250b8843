package planroute

import (
	"cmp"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
	"lorasim/trace"
)

// Two requests wait on worker 0, whose memory is full; worker 1 is idle. What was
// sent to both has long been computed.
func TestStealByHand(t *testing.T) {
	at := func(w, k int, tier router.Tier) func(*router.PlannerInput) {
		return func(s *router.PlannerInput) { s.Workers[w].Adapters[k].Tier = tier }
	}
	one, both := []router.Move{{ID: 7, From: 0, To: 1}}, []router.Move{{ID: 7, From: 0, To: 1}, {ID: 8, From: 0, To: 1}}
	for _, c := range []struct {
		name   string
		spec   string
		moving router.Moving
		change func(*router.PlannerInput)
		want   []router.Move
	}{
		{"the oldest first", "period_mig", router.MoveQueued, nil, both},
		{"one at a time", "period_mig:max-moves=1", router.MoveQueued, nil, one},
		{"any number", "period_mig:max-moves=0", router.MoveQueued, nil, both},
		{"routing alone", "period_mig:margin=1", router.MoveQueued, nil, nil},
		{"waiting requests alone", "period_mig:move=waiting,place=off", router.MoveQueued, nil, both},
		{"running requests alone", "period_mig:move=running", router.MoveRecompute, nil, nil},
		{"route only", "route-only", router.MoveQueued, nil, nil},
		{"nothing moves", "period_mig", router.MoveNone, nil, nil},
		{"the other is down", "period_mig", router.MoveQueued, func(s *router.PlannerInput) { s.Workers[1].Up = false },
			nil},
		{"not at hand there", "period_mig", router.MoveQueued, at(1, 0, router.Disk),
			[]router.Move{{ID: 8, From: 0, To: 1}}},
		{"they wait for their weights", "period_mig", router.MoveQueued, at(0, 1, router.Disk), one},
		{"both are full", "period_mig", router.MoveQueued, func(s *router.PlannerInput) {
			s.Workers[1].Running,
				s.Workers[1].KVUsed = 2, 9950
		}, nil},
		{"one runs", "period_mig", router.MoveRecompute, func(s *router.PlannerInput) { s.Requests[0].Running = true },
			one},
		{"their prompts are being computed", "period_mig", router.MoveQueued,
			func(s *router.PlannerInput) { s.Now = 5.04 }, nil},
	} {
		env := routertest.HandEnv(2, 2)
		env.Moving = c.moving
		p, s := twoWait(t, c.spec, env)
		if c.change != nil {
			c.change(s)
		}
		before := slices.Clone(s.Workers)
		for j := range before {
			before[j].Adapters = slices.Clone(before[j].Adapters)
		}
		if got := p.steal(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
		if !reflect.DeepEqual(before, s.Workers) {
			t.Errorf("%s: the view was changed", c.name)
		}
	}
}

// twoWait is a situation at 20 s of two workers with two requests stuck on the first.
func twoWait(t *testing.T, spec string, env router.Env) (*planAndRoute, *router.PlannerInput) {
	p := routertest.New(t, spec, env).Policy.(*planAndRoute)
	p.backlogs[0].prefilled, p.backlogs[1].prefilled = 5, 5
	s := &router.PlannerInput{View: routertest.View(env), Requests: []router.InFlight{
		{ID: 8, Adapter: 1, Prompt: 200, MaxNew: 100, Expected: 50, Age: 3},
		{ID: 7, Adapter: 0, Prompt: 100, MaxNew: 100, Expected: 50, Age: 4},
	}}
	s.Now = 20
	for j := range s.Workers {
		s.Workers[j].Slots = 4
		for k := range s.Workers[j].Adapters {
			s.Workers[j].Adapters[k].Tier = router.GPU
		}
	}
	w := &s.Workers[0]
	w.Running, w.KVUsed, w.Queued, w.QueuedToks = 2, 9950, 2, 300
	w.Count(0, 1, 1)
	w.Count(1, 1, 1)
	return p, s
}

// A request that waits for a load beside the steps would wait for another load elsewhere. A load within the steps does
// not begin while the request waits.
func TestLoadsUnderWayGoOn(t *testing.T) {
	one, both := []router.Move{{ID: 7, From: 0, To: 1}}, []router.Move{{ID: 7, From: 0, To: 1}, {ID: 8, From: 0, To: 1}}
	for _, c := range []struct {
		overlap bool
		comes   float64
		want    []router.Move
	}{{true, 21, one}, {true, 19, both}, {false, 21, both}} {
		env := routertest.HandEnv(2, 2)
		env.Moving = router.MoveQueued
		for j := range env.Workers {
			env.Workers[j].FetchesInSteps, env.Workers[j].LoadsOverlap = true, c.overlap
		}
		p, s := twoWait(t, "period_mig", env)
		p.backlogs[0].fetches = []fetch{{adapter: 1, at: c.comes}}
		if got := p.steal(s); !slices.Equal(got, c.want) {
			t.Errorf("at 20 s, overlap %v, an adapter comes at %v s: %v, expected %v", c.overlap, c.comes, got, c.want)
		}
	}
}

// A prompt of 9000 tokens takes 90 s to compute. If worker 0 keeps it, the request waits there; if worker 1 does, it
// moves, and the next one with the same prompt finds it there.
func TestStealWithPrefixes(t *testing.T) {
	text := &trace.Text{ID: 1}
	for _, c := range []struct {
		name string
		kept []int // workers that the prompt was sent to before
		want []router.Move
	}{
		{"nobody keeps it", nil, []router.Move{{ID: 7, From: 0, To: 1}}},
		{"kept where they wait", []int{0}, nil},
		{"kept on the other worker", []int{1}, []router.Move{{ID: 7, From: 0, To: 1}}},
		{"kept on both", []int{0, 1}, []router.Move{{ID: 7, From: 0, To: 1}}},
	} {
		env := routertest.HandEnv(2, 2)
		env.Moving = router.MoveQueued
		for j := range env.Workers {
			env.Workers[j].PrefixCache = true
		}
		p, s := twoWait(t, "plan-and-route", env)
		s.Requests = s.Requests[1:]
		a := &s.Requests[0]
		a.Prompt, a.Text, a.Known = 9000, text, 9000
		r := rest(a)
		for _, j := range c.kept {
			p.keep(&r, j, s.View)
		}
		if got := p.steal(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
		if len(c.want) > 0 && p.uncached(&r, 1, s.View) != 1 {
			t.Errorf("%s: the prompt is not kept where it moved to", c.name)
		}
	}
}

// What a preempted request has generated is part of its prompt when it moves, not of the output to
// come: 50 tokens, with which the move saves 22 % of its price. With 200 it would save 9 %.
func TestStealPreempted(t *testing.T) {
	env := routertest.HandEnv(2, 2)
	env.Moving = router.MoveQueued
	p, s := twoWait(t, "period_mig:margin=0.15", env)
	s.Requests = s.Requests[1:]
	a := &s.Requests[0]
	a.Generated, a.MaxNew, a.Expected = 150, 200, 200
	s.Workers[0].Running = 4
	w := &s.Workers[1]
	w.Running, w.KVUsed = 1, w.KVCapacity-310
	if got, want := p.steal(s), []router.Move{{ID: 7, From: 0, To: 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
	text := &trace.Text{ID: 1}
	for _, c := range []struct {
		a    router.InFlight
		want router.Request
	}{
		{router.InFlight{ID: 7, Adapter: 1, Prompt: 100, MaxNew: 500, Expected: 200},
			router.Request{ID: 7, Adapter: 1, Prompt: 100,
				MaxNew: 500, Expected: 200}},
		{router.InFlight{Prompt: 100, MaxNew: 500, Expected: 200, Generated: 120},
			router.Request{Prompt: 220, MaxNew: 380, Expected: 80}},
		{router.InFlight{Prompt: 100, MaxNew: 500, Expected: 200, Generated: 400},
			router.Request{Prompt: 500, MaxNew: 100, Expected: 50}},
		{router.InFlight{Prompt: 100, MaxNew: 500, Text: text, Known: 90}, router.Request{Prompt: 100, MaxNew: 500,
			Expected: router.UnknownOutput, Text: text, Known: 90}},
		{router.InFlight{Prompt: 100, MaxNew: 500}, router.Request{Prompt: 100, MaxNew: 500,
			Expected: router.UnknownOutput}},
	} {
		if got := rest(&c.a); got != c.want {
			t.Errorf("%+v: %+v, expected %+v", c.a, got, c.want)
		}
	}
}

// Nothing moves to a worker where many wait, and of many that wait only the first.
func TestStealDeepQueues(t *testing.T) {
	for _, c := range []struct {
		deep, there int // of how many on no more are looked at; how many wait on the other worker
		want        []router.Move
	}{
		{4, 2, []router.Move{{ID: 7, From: 0, To: 1}, {ID: 8, From: 0, To: 1}}},
		{3, 2, []router.Move{{ID: 7, From: 0, To: 1}}},
		{2, 2, nil},
		{1, 0, []router.Move{{ID: 8, From: 0, To: 1}}},
	} {
		env := routertest.HandEnv(2, 2)
		env.Moving = router.MoveQueued
		p, s := twoWait(t, "period_mig", env)
		p.deep, s.Workers[1].Queued = c.deep, c.there
		p.backlogs[1].prefilled = s.Now // their prompts are being computed
		if got := p.steal(s); !slices.Equal(got, c.want) {
			t.Errorf("%d is many, %d wait there: %v, expected %v", c.deep, c.there, got, c.want)
		}
		p.Forecast(s.Now)
		if w := p.Select(s.View); w.Worker(0) != (c.want != nil) || c.want != nil && w.MostWaiting != c.deep {
			t.Errorf("%d is many, %d wait there: wants those of worker 0: %v, %d", c.deep, c.there, w.Worker(0),
				w.MostWaiting)
		}
	}
}

// Looks come more often than plans, which keep their interval.
func TestPeriodicLooks(t *testing.T) {
	env := routertest.HandEnv(2, 2)
	env.Moving, env.Interval = router.MoveQueued, 10
	p := routertest.New(t, "period_mig:look=0.5,busy=0", env).Policy.(*planAndRoute)
	if p.Interval() != 0.5 {
		t.Errorf("looks every %v s, expected 0.5", p.Interval())
	}
	var at []float64
	for n := 1; n <= 60; n++ {
		s := &router.PlannerInput{View: routertest.View(env), Requests: []router.InFlight{{Prompt: 10, MaxNew: 10}}}
		s.Now = 0.5 * float64(n)
		if p.Begin(s).Now() != nil {
			at = append(at, s.Now)
		}
	}
	if want := []float64{10, 20, 30}; !slices.Equal(at, want) {
		t.Errorf("plans at %v, expected %v", at, want)
	}
	if p := routertest.New(t, "period_mig:interval=0.1", env).Policy.(*planAndRoute); p.Interval() != 0.1 {
		t.Errorf("an interval of 0.1 s: looks every %v s", p.Interval())
	}
}

// The order of requests is that of a stable sort, for lists of sorted parts, of equals, and for others.
func TestOldestFirst(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var other []*router.InFlight
	for i := range 300 {
		var list []*router.InFlight
		for range r.IntN(6) {
			age := 100.0
			for range r.IntN(20) {
				age -= float64(r.IntN(3))
				if i%3 == 0 { // not sorted
					age = float64(r.IntN(10))
				}
				list = append(list, &router.InFlight{Age: age})
			}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(a, b *router.InFlight) int { return cmp.Compare(b.Age, a.Age) })
		got, spare := oldestFirst(list, other)
		if !slices.Equal(got, want) {
			t.Fatalf("list %d of %d requests is not that of a stable sort", i, len(want))
		}
		other = spare
	}
}

// Requests whose prompts are yet to be computed move if that takes longer than an execution and another worker is idle.
func TestIdleWorkersTakePrompts(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*planAndRoute, *router.PlannerInput)
		moves  bool
	}{
		{"idle", func(*planAndRoute, *router.PlannerInput) {}, true},
		{"soon computed", func(p *planAndRoute, s *router.PlannerInput) {
			p.backlogs[0].prefilled = s.Now + guessExec - 0.1
		}, false},
		{"executions there take longer", func(p *planAndRoute, _ *router.PlannerInput) {
			p.backlogs[0].exec.Add(60)
		}, false},
		{"the other computes a prompt", func(p *planAndRoute, s *router.PlannerInput) {
			p.backlogs[1].prefilled = s.Now + 0.1
		}, false},
		{"one waits on the other", func(_ *planAndRoute, s *router.PlannerInput) { s.Workers[1].Queued = 1 }, false},
		{"the other is down", func(_ *planAndRoute, s *router.PlannerInput) { s.Workers[1].Up = false }, false},
	} {
		env := routertest.HandEnv(2, 2)
		env.Moving = router.MoveQueued
		p, s := twoWait(t, "period_mig", env)
		p.backlogs[0].prefilled = s.Now + 50
		p.Forecast(s.Now) // no plan is due
		c.change(p, s)
		if c.moves && p.Select(s.View).Rest > 0 {
			t.Errorf("%s: it does not look at waiting requests", c.name)
		}
		if got := len(p.steal(s)) > 0; got != c.moves {
			t.Errorf("%s: requests move: %v, expected %v", c.name, got, c.moves)
		}
	}
}
