package planroute

import (
	"math"
	"testing"

	"lorasim/router"
	"lorasim/router/routertest"
)

// A report of 600 tokens is read when two requests run, with 400 tokens by count. The other 200 tokens are unknown:
// they end as requests do, which run for 5 s.
func TestKVSinceReport(t *testing.T) {
	p := routertest.New(t, "period_mig", routertest.HandEnv(1, 3)).Policy.(*planAndRoute)
	p.output.Value = 100
	w := router.Worker{Up: true, Running: 2, Tokens: 500, KVUsed: 600, KVCapacity: 2000}
	v := &router.View{Workers: []router.Worker{w}}
	at := func(now, age float64, running, queued int, tokens, waiting int64) int64 {
		w := &v.Workers[0]
		v.Now, w.Age = now, age
		w.Running, w.Queued, w.Tokens, w.QueuedToks = running, queued, tokens, waiting
		return p.kvUsed(0, v)
	}
	read := func(now, age float64, running, queued int, tokens, waiting int64) int64 {
		at(now, age, running, queued, tokens, waiting)
		p.read(v)
		return p.kvUsed(0, v)
	}
	left := func(age float64) int64 { return int64(200 * math.Exp(-age/guessExec)) }
	if got := read(10, 0, 2, 0, 500, 0); got != 600 {
		t.Errorf("a new report: %d tokens, expected those of the report, 600", got)
	}
	for _, now := range []float64{10.5, 12.5} {
		if got, want := read(now, 0.5, 2, 0, 500, 0), 400+left(0.5); got != want {
			t.Errorf("a report of 0.5 s, read at %v s: %d tokens, expected %d", now, got, want)
		}
	}
	for _, c := range []struct {
		name            string
		age             float64
		running, queued int
		tokens, waiting int64
		want            int64
	}{
		{"nothing changed", 1, 2, 0, 500, 0, 400 + left(1)},
		{"a request of 300 + 100 tokens waits", 1, 2, 1, 900, 300, 400 + left(1)},
		{"it runs", 2, 3, 0, 900, 0, 750 + left(2)},
		{"all have ended", 3, 0, 0, 0, 0, left(3)},
		{"more than there is", 3, 9, 0, 4000, 0, 2000},
	} {
		if got := at(12+c.age, c.age, c.running, c.queued, c.tokens, c.waiting); got != c.want {
			t.Errorf("%s, %v s after the report: %d tokens, expected %d", c.name, c.age, got, c.want)
		}
	}
	if got := at(20, 1, 0, 0, 0, 0); got != 600 {
		t.Errorf("a report that was not read yet: %d tokens, expected 600", got)
	}
}
