package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lorasim/router"
	"lorasim/trace"
)

var errBroke = errors.New("the connection was reset")

// clock is the time of a fleet, which tests set.
type clock struct {
	mu  sync.Mutex
	now float64
}

func (c *clock) Now() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(s float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += s
}

// upFleet is a fleet of workers that are up, without servers behind them, and four adapters that all of them hold.
func upFleet(t testing.TB, workers int, o Outlier) (*Fleet, *clock) {
	t.Helper()
	c := &clock{}
	cfg := Config{Connection: Connection{Client: http.DefaultClient}, Adapters: trace.Names(4, []int{8}), Now: c.Now,
		Outlier: o,
		Router:  &router.Router{Policy: &fixed{}}}
	for i := range workers {
		cfg.URLs = append(cfg.URLs, fmt.Sprint("http://worker", i))
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range f.workers {
		k.view.Up, k.health.known = true, true
		for a := range k.loras.rows {
			k.loras.add(int32(a))
		}
	}
	return f, c
}

// one sends a request for an adapter to a worker that the router picks, or the given one, and has it succeed or fail
// there.
func (f *Fleet) one(id int64, a int32, to int, ok bool) (w int) {
	r := &Request{Request: router.Request{ID: id, Adapter: a, Prompt: 1, MaxNew: 1}}
	if w = to; to < 0 {
		w = f.Requests.Route(r)
	} else {
		f.Requests.Book(r, to)
	}
	if ok {
		f.Requests.Finished(r, w, 0, 0)
	} else {
		f.Requests.Failed(r, w, errBroke)
	}
	f.Requests.Left(r)
	return w
}

func (f *Fleet) state(w int) WorkerState { return f.Workers()[w] }

// Failures in a row eject a worker; after the time, a trial decides: a failure ejects it for twice as long, successes
// take it back.
func TestEjection(t *testing.T) {
	f, c := upFleet(t, 3, Outlier{})
	for i := range int64(4) {
		f.one(i, trace.BaseModel, 0, false)
	}
	if s := f.state(0); s.Ejected || s.Failures != 4 {
		t.Errorf("after 4 failures: %+v", s)
	}
	f.one(4, trace.BaseModel, 0, true) // between
	for i := range int64(5) {
		f.one(i, trace.BaseModel, 0, false)
	}
	s := f.state(0)
	if !s.Ejected || s.Reason != ConsecutiveFailures || s.EjectedFor != 10 || s.Ejections[ConsecutiveFailures] != 1 ||
		f.Up() != 2 || f.Stats().Ejections != 1 {
		t.Errorf("after 5 failures in a row: %+v, %d up", s, f.Up())
	}
	if w := f.one(10, trace.BaseModel, -1, true); w == 0 {
		t.Error("a request was sent to an ejected worker")
	}
	f.one(11, trace.BaseModel, 0, true) // which was sent before: no merit of now
	for level, want := range []float64{20, 40, 80, 160, 300, 300} {
		c.pass(f.state(0).EjectedFor)
		if s := f.state(0); s.Ejected || !s.Trial {
			t.Fatalf("level %d: no trial: %+v", level, s)
		}
		r := &Request{Request: router.Request{ID: 12, Adapter: trace.BaseModel}}
		if w := f.Requests.Route(r); w != 0 {
			t.Fatalf("the trial's request went to %d", w)
		}
		if w := f.one(13, trace.BaseModel, -1, true); w == 0 {
			t.Error("a second request within the trial, before the first has ended")
		}
		f.Requests.Failed(r, 0, errBroke)
		f.Requests.Left(r)
		if s := f.state(0); !s.Ejected || s.Reason != FailedTrial || s.EjectedFor != want {
			t.Errorf("level %d: %+v, expected %v s", level, s, want)
		}
	}
	c.pass(300)
	var together []*Request
	for want := 1; want <= 2; want++ { // one, then two at a time
		for id := int64(20); ; id++ {
			r := &Request{Request: router.Request{ID: id, Adapter: trace.BaseModel}}
			if f.Requests.Route(r) != 0 {
				f.Requests.Left(r)
				break
			}
			together = append(together, r)
		}
		if len(together) != want {
			t.Errorf("%d requests of the trial at a time, expected %d", len(together), want)
		}
		f.Requests.Left(together[0]) // as bench does: it leaves, then it has succeeded
		f.Requests.Finished(together[0], 0, 0, 0)
		for _, r := range together[1:] {
			f.Requests.Left(r) // its client has gone
		}
		together = nil
	}
	for i := range int64(3) {
		f.one(i, trace.BaseModel, 0, true)
	}
	if s := f.state(0); s.Ejected || s.Trial || f.Up() != 3 {
		t.Errorf("after 5 successes: %+v", s)
	}
	// healthy time takes back ejections: the seventh and the sixth, of 300 s each
	c.pass(650)
	for i := range int64(5) {
		f.one(i, trace.BaseModel, 0, false)
	}
	if s := f.state(0); s.EjectedFor != 300 {
		t.Errorf("after 650 s of health: %+v, expected the sixth ejection", s)
	}
}

// A share of failures ejects a worker that successes in between keep from failing in a row, if others do better.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		name          string
		every, others int // of each so many requests one fails; 0: none
		want          bool
	}{
		{"half", 2, 0, true},
		{"a tenth", 10, 0, false},
		{"half, everywhere", 2, 2, false},
		{"all but the first of three, others half", 3, 2, false},
	} {
		f, _ := upFleet(t, 3, Outlier{})
		for i := range int64(60) {
			for w := range 3 {
				n := c.others
				if w == 0 {
					n = c.every
				}
				f.one(i, int32(i%4), w, n == 0 || i%int64(n) != 0)
			}
		}
		if s := f.state(0); s.Ejected != c.want || c.want && s.Reason != FailurePercentage {
			t.Errorf("%s: %+v, expected ejected %v", c.name, s, c.want)
		}
		if f.state(1).Ejected || f.state(2).Ejected {
			t.Errorf("%s: others are ejected", c.name)
		}
	}
}

// An adapter that fails on two workers is ejected where a third one serves it, whatever the order of the workers.
func TestAdapterEjectedAmongThree(t *testing.T) {
	for good := range 3 {
		f, _ := upFleet(t, 3, Outlier{})
		for i := range int64(120) {
			w := int(i % 3)
			f.one(i, int32(i/3%4), w, w == good || i/3%4 != 1)
		}
		for w := range 3 {
			if ejected := len(f.state(w).EjectedAdapters) > 0; ejected == (w == good) {
				t.Errorf("worker %d serves lora1, worker %d: ejected is %t", good, w, ejected)
			}
		}
	}
}

// An adapter that fails on one worker passes that by, and others do not.
func TestAdapterEjected(t *testing.T) {
	f, c := upFleet(t, 2, Outlier{})
	for i := range int64(40) {
		f.one(i, int32(i%4), 0, i%4 != 1)
	}
	if s := f.state(0); s.Ejected || len(s.EjectedAdapters) != 1 || s.EjectedAdapters[0] != "lora1" {
		t.Fatalf("%+v", s)
	}
	if w := f.one(50, 1, -1, true); w != 1 {
		t.Errorf("lora1 went to worker %d", w)
	}
	if w := f.one(51, 2, -1, true); w != 0 {
		t.Errorf("lora2 went to worker %d", w)
	}
	c.pass(10)
	if w := f.one(52, 1, -1, false); w != 0 {
		t.Errorf("the trial went to worker %d", w)
	}
	c.pass(19)
	if w := f.one(53, 1, -1, true); w != 1 {
		t.Errorf("after a failed trial lora1 went to worker %d", w)
	}
	c.pass(1)
	for i := range int64(5) {
		if w := f.one(60+i, 1, -1, true); w != 0 {
			t.Errorf("a trial went to worker %d", w)
		}
	}
	if s := f.state(0); len(s.EjectedAdapters) != 0 {
		t.Errorf("%+v", s)
	}
	f.mu.Lock()
	f.workers[0].out.forget(&f.cfg.Outlier, 1000)
	n := len(f.workers[0].out.adapters)
	f.mu.Unlock()
	if n != 0 {
		t.Errorf("%d adapters are remembered for ever", n)
	}
}

// A request that fails on several workers counts once, and not at all where one of them does well.
func TestTried(t *testing.T) {
	f, _ := upFleet(t, 3, Outlier{})
	try := func(served bool, workers ...int) {
		r := &Request{Request: router.Request{Adapter: trace.BaseModel}}
		var faults []Fault
		for _, w := range workers {
			f.Requests.Book(r, w)
			faults = append(faults, r.Fault(w, errBroke))
			f.Requests.Left(r)
		}
		f.Requests.Tried(r, faults, served)
	}
	failures := func() (n [3]int) {
		for w := range n {
			n[w] = f.state(w).Failures
		}
		return n
	}
	for _, c := range []struct {
		served  bool
		workers []int
		want    [3]int
	}{
		{false, []int{0, 1}, [3]int{1, 0, 0}}, // nothing is known of 1
		{true, []int{0, 1}, [3]int{2, 1, 0}},  // 2 served it
		{false, []int{2}, [3]int{2, 1, 1}},    // it was tried once
	} {
		if try(c.served, c.workers...); failures() != c.want {
			t.Errorf("%+v: failures %v", c, failures())
		}
	}
	f.one(1, trace.BaseModel, 1, true)
	if try(false, 0, 1); failures() != [3]int{2, 0, 1} {
		t.Errorf("1 does well: failures %v", failures())
	}
	if try(false, 0, 0); failures() != [3]int{3, 0, 1} {
		t.Errorf("twice on the same worker: failures %v", failures())
	}
}

// The last usable worker is never ejected; where all others have gone down, ejected ones serve.
func TestNeverAll(t *testing.T) {
	f, _ := upFleet(t, 3, Outlier{MaxEjected: 1})
	for w := range 3 {
		for i := range int64(20) {
			f.one(i, trace.BaseModel, w, false)
		}
	}
	if f.Up() != 1 || f.state(2).Ejected {
		t.Errorf("%d up, %+v", f.Up(), f.Workers())
	}
	f.Requests.Failed(&Request{}, 2, syscall.ECONNREFUSED)
	if f.Up() != 2 {
		t.Errorf("the last is down: %d may serve, expected the two that are ejected", f.Up())
	}
	if w := f.one(1, trace.BaseModel, -1, true); w == router.None || w == 2 {
		t.Errorf("the last is down: a request went to %d", w)
	}
	for share, want := range map[float64]int{0.1: 4, 0.5: 2, -1: 5} { // of five
		f, _ := upFleet(t, 5, Outlier{MaxEjected: share})
		for i := range int64(20) {
			for w := range 4 {
				f.one(i, trace.BaseModel, w, false)
			}
		}
		if f.Up() != want {
			t.Errorf("--max-ejected %v: %d of 5 up, expected %d", share, f.Up(), want)
		}
	}
}

// A worker that was down since its first ejection is on trial when it is up again; after a second ejection it waits.
func TestRestarted(t *testing.T) {
	f, c := upFleet(t, 2, Outlier{})
	for level := 1; level <= 2; level++ {
		for i := range int64(5) {
			f.one(i, trace.BaseModel, 0, false)
		}
		f.Requests.Failed(&Request{}, 0, syscall.ECONNREFUSED)
		f.mu.Lock()
		f.workers[0].view.Up, f.workers[0].health.known = true, true
		f.workers[0].out.afterDown()
		f.mu.Unlock()
		if s := f.state(0); s.Trial != (level == 1) || s.Ejected != (level == 2) {
			t.Errorf("level %d: %+v", level, s)
		}
		c.pass(1)
	}
}

// Before its first success a worker gets no more than SlowStart requests, as long as another takes them.
func TestSlowStart(t *testing.T) {
	f, _ := upFleet(t, 2, Outlier{SlowStart: 3})
	sent := [2]int{}
	var rs []*Request
	for i := range 10 {
		r := &Request{Request: router.Request{ID: int64(i), Adapter: 0}}
		sent[f.Requests.Route(r)]++
		rs = append(rs, r)
	}
	if sent != [2]int{7, 3} { // three and three, then as the policy wants
		t.Errorf("sent %v", sent)
	}
	f.Requests.Finished(rs[0], 0, 0, 0)
	f.Requests.Left(rs[len(rs)-1])
	if w := f.one(20, 0, -1, true); w != 0 {
		t.Errorf("a worker that has served one is passed over for %d", w)
	}
}

// IsFailure knows what speaks against a worker.
func TestIsFailure(t *testing.T) {
	after := http.Header{"Retry-After": {"1"}}
	for _, c := range []struct {
		status int
		header http.Header
		text   string
		want   bool
	}{
		{500, nil, "", true}, {502, nil, "", true}, {504, nil, "", true}, {503, nil, "", true},
		{500, nil, "CUDA error: out of limit", true},
		{501, nil, "", false}, {503, after, "", false}, {503, nil, "The request queue is full.", false},
		{503, nil, "3 of at most 3 adapters are loaded", false},
		{429, nil, "", false}, {400, nil, "", false}, {404, nil, "", false}, {200, nil, "", false},
	} {
		if got := IsFailure(c.status, c.header, c.text); got != c.want {
			t.Errorf("%d %q: %v", c.status, c.text, got)
		}
	}
}

// Whatever fails when: a worker that fails nothing is never ejected, one remains, ejections last as long as they are
// meant to, and a worker that fails everything costs a bounded number of requests.
func TestOutlierProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 5).Draw(t, "workers")
		o := Outlier{Consecutive: rapid.IntRange(1, 6).Draw(t, "consecutive"),
			BaseTime: time.Duration(rapid.IntRange(1, 20).Draw(t, "base")) * time.Second,
			MaxTime:  time.Minute, MaxEjected: rapid.SampledFrom([]float64{0.1, 0.5, 1}).Draw(t, "max ejected")}
		f, c := upFleet(&noT{}, n, o)
		f.router.Policy = &turns{}
		rate := make([]float64, n) // of failures
		for w := range rate {
			rate[w] = rapid.SampledFrom([]float64{0, 0, 0.05, 0.5, 1}).Draw(t, "rate")
		}
		f.cfg.Log = func(format string, args ...any) {
			line := fmt.Sprintf(format, args...)
			var w int
			var s float64
			if fmt.Sscanf(line, "worker %d", &w); rate[w] == 0 && strings.Contains(line, "ejected") {
				t.Fatalf("a worker that fails nothing: %s", line)
			}
			if i := strings.Index(line, " for "); i > 0 {
				if fmt.Sscanf(line[i:], " for %f s", &s); s < o.BaseTime.Seconds() || s > o.MaxTime.Seconds() {
					t.Fatalf("an ejection beyond [%v, %v]: %s", o.BaseTime, o.MaxTime, line)
				}
			}
		}
		failed := make([]int, n)
		for i := range int64(rapid.IntRange(1, 600).Draw(t, "requests")) {
			c.pass(rapid.Float64Range(0, 1).Draw(t, "gap"))
			r := &Request{Request: router.Request{ID: i, Adapter: int32(i % 4)}}
			w := f.Requests.Route(r)
			if w == router.None || f.Up() == 0 {
				t.Fatal("no worker is left")
			}
			if rate[w] > 0 && rapid.Float64Range(0, 1).Draw(t, "luck") <= rate[w] {
				f.Requests.Failed(r, w, errBroke)
				failed[w]++
			} else {
				f.Requests.Finished(r, w, 0, 0)
			}
			f.Requests.Left(r)
		}
		// one worker alone is bad: each period of BaseTime or more costs it one request, after the first few
		bad, sound := -1, 0
		for w := range rate {
			if rate[w] == 1 {
				bad = w
			} else if rate[w] == 0 {
				sound++
			}
		}
		if bad >= 0 && sound == n-1 && n > 1 {
			trials, at := 0, 0.0
			for level := 1; at < c.now; level++ {
				at += f.cfg.Outlier.span(level)
				trials++
			}
			if most := f.cfg.Outlier.Consecutive + trials; failed[bad] > most {
				t.Fatalf("%d requests failed within %.0f s, expected at most %d", failed[bad], c.now, most)
			}
		}
	})
}

// noT is for helpers that do not fail.
type noT struct{ testing.TB }

func (*noT) Helper() {}

// turns sends requests to the usable workers in turn.
type turns struct {
	router.Base
	next int
}

func (p *turns) Route(r router.Request, v *router.View) router.Decision {
	return router.To(p.pick(r, v))
}

func (p *turns) pick(_ router.Request, v *router.View) int {
	for range v.Workers {
		p.next++
		if w := p.next % len(v.Workers); v.Workers[w].Usable() {
			return w
		}
	}
	return router.None
}

// A worker that is good and bad in turn is out of service for longer and longer, and comes back when it stays good.
func TestFlapping(t *testing.T) {
	f, c := upFleet(t, 3, Outlier{})
	f.router.Policy = &turns{}
	failed, served := 0, 0
	// ten minutes, ten requests a second: a third of them would go there, and half of these fail
	for i := range int64(6000) {
		c.pass(0.1)
		r := &Request{Request: router.Request{ID: i, Adapter: int32(i % 4)}}
		switch w, bad := f.Requests.Route(r), int(c.Now()/5)%2 == 1; {
		case w == 0 && bad:
			failed++
			f.Requests.Failed(r, w, errBroke)
		default:
			f.Requests.Finished(r, w, 0, 0)
			if w == 0 {
				served++
			}
		}
		f.Requests.Left(r)
	}
	if failed > 60 || served == 0 {
		t.Errorf("%d requests failed and %d were served there, expected at most 60 failures", failed, served)
	}
	c.pass(300)
	for i := range int64(60) {
		f.one(i, 0, -1, true)
	}
	if s := f.state(0); s.Ejected || s.Trial {
		t.Errorf("good for minutes: %+v", s)
	}
}
