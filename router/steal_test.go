package router

import (
	"reflect"
	"slices"
	"testing"

	"lorasim/trace"
)

// Two requests wait on worker 0, whose memory is full; worker 1 is idle. What was
// sent to both has long been computed.
func TestStealByHand(t *testing.T) {
	at := func(w, k int, tier Tier) func(*PlannerInput) {
		return func(s *PlannerInput) { s.Workers[w].Adapters[k].Tier = tier }
	}
	one, both := []Move{{7, 0, 1}}, []Move{{7, 0, 1}, {8, 0, 1}}
	for _, c := range []struct {
		name   string
		spec   string
		moving Moving
		change func(*PlannerInput)
		want   []Move
	}{
		{"the oldest first", "period_mig", MoveQueued, nil, both},
		{"one at a time", "period_mig:max-moves=1", MoveQueued, nil, one},
		{"any number", "period_mig:max-moves=0", MoveQueued, nil, both},
		{"routing alone", "period_mig:margin=1", MoveQueued, nil, nil},
		{"waiting requests alone", "period_mig:move=waiting,place=off", MoveQueued, nil, both},
		{"running requests alone", "period_mig:move=running", MoveRecompute, nil, nil},
		{"route only", "route-only", MoveQueued, nil, nil},
		{"nothing moves", "period_mig", MoveNone, nil, nil},
		{"the other is down", "period_mig", MoveQueued, func(s *PlannerInput) { s.Workers[1].Up = false }, nil},
		{"not at hand there", "period_mig", MoveQueued, at(1, 0, Disk), []Move{{8, 0, 1}}},
		{"they wait for their weights", "period_mig", MoveQueued, at(0, 1, Disk), one},
		{"both are full", "period_mig", MoveQueued, func(s *PlannerInput) {
			s.Workers[1].Running,
				s.Workers[1].KVUsed = 2, 9950
		}, nil},
		{"one runs", "period_mig", MoveRecompute, func(s *PlannerInput) { s.Requests[0].Running = true }, one},
		{"their prompts are being computed", "period_mig", MoveQueued, func(s *PlannerInput) { s.Now = 5.04 }, nil},
	} {
		env := handEnv(2, 2)
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
func twoWait(t *testing.T, spec string, env Env) (*planAndRoute, *PlannerInput) {
	p := mustNew(t, spec, env).Policy.(*planAndRoute)
	p.backlogs[0].prefilled, p.backlogs[1].prefilled = 5, 5
	s := &PlannerInput{View: testView(env), Requests: []InFlight{
		{ID: 8, Adapter: 1, Prompt: 200, MaxNew: 100, Expected: 50, Age: 3},
		{ID: 7, Adapter: 0, Prompt: 100, MaxNew: 100, Expected: 50, Age: 4},
	}}
	s.Now = 20
	for j := range s.Workers {
		s.Workers[j].Slots = 4
		for k := range s.Workers[j].Adapters {
			s.Workers[j].Adapters[k].Tier = GPU
		}
	}
	w := &s.Workers[0]
	w.Running, w.KVUsed, w.Queued, w.QueuedToks = 2, 9950, 2, 300
	w.Count(0, 1, 1)
	w.Count(1, 1, 1)
	return p, s
}

// A prompt of 9000 tokens takes 90 s to compute. If worker 0 keeps it, the request waits there; if worker 1 does, it
// moves, and the next one with the same prompt finds it there.
func TestStealWithPrefixes(t *testing.T) {
	text := &trace.Text{ID: 1}
	for _, c := range []struct {
		name string
		kept []int // workers that the prompt was sent to before
		want []Move
	}{
		{"nobody keeps it", nil, []Move{{7, 0, 1}}},
		{"kept where they wait", []int{0}, nil},
		{"kept on the other worker", []int{1}, []Move{{7, 0, 1}}},
		{"kept on both", []int{0, 1}, []Move{{7, 0, 1}}},
	} {
		env := handEnv(2, 2)
		env.Moving = MoveQueued
		for j := range env.Workers {
			env.Workers[j].PrefixCache = true
		}
		p, s := twoWait(t, "plan-and-route", env)
		s.Requests = s.Requests[1:]
		a := &s.Requests[0]
		a.Prompt, a.Text, a.Known = 9000, text, 9000
		r := a.rest()
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
	env := handEnv(2, 2)
	env.Moving = MoveQueued
	p, s := twoWait(t, "period_mig:margin=0.15", env)
	s.Requests = s.Requests[1:]
	a := &s.Requests[0]
	a.Generated, a.MaxNew, a.Expected = 150, 200, 200
	s.Workers[0].Running = 4
	w := &s.Workers[1]
	w.Running, w.KVUsed = 1, w.KVCapacity-310
	if got, want := p.steal(s), []Move{{7, 0, 1}}; !slices.Equal(got, want) {
		t.Errorf("%v, expected %v", got, want)
	}
	text := &trace.Text{ID: 1}
	for _, c := range []struct {
		a    InFlight
		want Request
	}{
		{InFlight{ID: 7, Adapter: 1, Prompt: 100, MaxNew: 500, Expected: 200}, Request{ID: 7, Adapter: 1, Prompt: 100,
			MaxNew: 500, Expected: 200}},
		{InFlight{Prompt: 100, MaxNew: 500, Expected: 200, Generated: 120},
			Request{Prompt: 220, MaxNew: 380, Expected: 80}},
		{InFlight{Prompt: 100, MaxNew: 500, Expected: 200, Generated: 400},
			Request{Prompt: 500, MaxNew: 100, Expected: 50}},
		{InFlight{Prompt: 100, MaxNew: 500, Text: text, Known: 90}, Request{Prompt: 100, MaxNew: 500,
			Expected: guessOutput, Text: text, Known: 90}},
		{InFlight{Prompt: 100, MaxNew: 500}, Request{Prompt: 100, MaxNew: 500, Expected: guessOutput}},
	} {
		if got := c.a.rest(); got != c.want {
			t.Errorf("%+v: %+v, expected %+v", c.a, got, c.want)
		}
	}
}

// Nothing moves to a worker where many wait, and of many that wait only the first.
func TestStealDeepQueues(t *testing.T) {
	for _, c := range []struct {
		deep, there int // of how many on no more are looked at; how many wait on the other worker
		want        []Move
	}{
		{4, 2, []Move{{7, 0, 1}, {8, 0, 1}}},
		{3, 2, []Move{{7, 0, 1}}},
		{2, 2, nil},
		{1, 0, []Move{{8, 0, 1}}},
	} {
		env := handEnv(2, 2)
		env.Moving = MoveQueued
		p, s := twoWait(t, "period_mig", env)
		p.deep, s.Workers[1].Queued = c.deep, c.there
		p.backlogs[1].prefilled = s.Now // their prompts are being computed
		if got := p.steal(s); !slices.Equal(got, c.want) {
			t.Errorf("%d is many, %d wait there: %v, expected %v", c.deep, c.there, got, c.want)
		}
		p.planAt = s.Now
		if w := p.Select(s.View); w.Worker(0) != (c.want != nil) || c.want != nil && w.MostWaiting != c.deep {
			t.Errorf("%d is many, %d wait there: wants those of worker 0: %v, %d", c.deep, c.there, w.Worker(0),
				w.MostWaiting)
		}
	}
}

// Looks come more often than plans, which keep their interval.
func TestPeriodicLooks(t *testing.T) {
	env := handEnv(2, 2)
	env.Moving, env.Interval = MoveQueued, 10
	p := mustNew(t, "period_mig:look=0.5,busy=0", env).Policy.(*planAndRoute)
	if p.Interval() != 0.5 {
		t.Errorf("looks every %v s, expected 0.5", p.Interval())
	}
	var at []float64
	for n := 1; n <= 60; n++ {
		s := &PlannerInput{View: testView(env), Requests: []InFlight{{Prompt: 10, MaxNew: 10}}}
		s.Now = 0.5 * float64(n)
		if p.Begin(s).Now() != nil {
			at = append(at, s.Now)
		}
	}
	if want := []float64{10, 20, 30}; !slices.Equal(at, want) {
		t.Errorf("plans at %v, expected %v", at, want)
	}
	if p := mustNew(t, "period_mig:interval=0.1", env).Policy.(*planAndRoute); p.Interval() != 0.1 {
		t.Errorf("an interval of 0.1 s: looks every %v s", p.Interval())
	}
}
