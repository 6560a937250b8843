package steady

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"lorasim/sim/record"
)

// queue is a queue with one server that serves one request/s on average, and a load
// in requests/s with Poisson arrivals: M/M/1, or M/D/1 where service is constant.
type queue struct {
	load     float64
	requests int
	constant bool
}

func (q queue) String() string {
	if q.constant {
		return "M/D/1"
	}
	return "M/M/1"
}

// run sends the requests through the queue (D. V. Lindley's recursion).
func (q queue) run(seed uint64) *Recorder {
	rng := rand.New(rand.NewPCG(1, seed))
	r := NewRecorder(true)
	var t, free float64
	for i := range q.requests {
		t += rng.ExpFloat64() / q.load
		service := 1.0
		if !q.constant {
			service = rng.ExpFloat64()
		}
		free = max(free, t) + service
		r.Done(&record.Request{ID: int64(i), Arrival: t, Sent: t, FirstToken: free, Finish: free, Output: 1})
	}
	return r
}

// meanE2E is the mean time in the system, s, by Pollaczek and Khinchine.
func (q queue) meanE2E() float64 {
	if q.constant {
		return 1 + q.load/(2*(1-q.load))
	}
	return 1 / (1 - q.load)
}

// rates are the shares of runs in each state and with an interval, in %, and of the intervals those that hold the true
// mean.
type rates struct {
	state            map[State]float64
	printed, covered float64
}

func (q queue) rates(runs int) rates {
	out := rates{state: map[State]float64{}}
	covered, printed := 0., 0.
	for i := range runs {
		a := q.run(uint64(i)).Assess()
		out.state[a.State] += 100 / float64(runs)
		for _, in := range a.Intervals {
			if in.Metric != meanE2E {
				continue
			}
			printed++
			if m := 1000 * q.meanE2E(); in.Low <= m && m <= in.High {
				covered++
			}
		}
	}
	out.printed, out.covered = 100*printed/float64(runs), 100*covered/max(printed, 1)
	return out
}

// TestErrorRates bounds how often the test is wrong on queues whose state is known.
// The bounds leave three standard errors to the rates of lab/docs/steady.md.
func TestErrorRates(t *testing.T) {
	const runs = 200
	for _, c := range []struct {
		queue
		steady, overloaded [2]float64 // bounds of the shares, %
	}{
		{queue{0.5, 2000, false}, [2]float64{95, 100}, [2]float64{0, 0}},
		{queue{0.7, 20000, false}, [2]float64{95, 100}, [2]float64{0, 0}},
		{queue{0.8, 20000, true}, [2]float64{95, 100}, [2]float64{0, 0}},
		{queue{0.95, 2000, false}, [2]float64{0, 30}, [2]float64{0, 2}},
		{queue{1, 2000, false}, [2]float64{0, 10}, [2]float64{0, 5}},
		{queue{1, 20000, true}, [2]float64{0, 10}, [2]float64{0, 5}},
		{queue{1.05, 20000, false}, [2]float64{0, 2}, [2]float64{90, 100}},
		{queue{1.1, 2000, true}, [2]float64{0, 2}, [2]float64{85, 100}},
		{queue{1.2, 2000, false}, [2]float64{0, 1}, [2]float64{95, 100}},
	} {
		got := c.rates(runs).state
		for _, b := range []struct {
			state State
			in    [2]float64
		}{{Steady, c.steady}, {Overloaded, c.overloaded}} {
			if v := got[b.state]; v < b.in[0]-1e-9 || v > b.in[1]+1e-9 {
				t.Errorf("%v at load %g, %d requests: %.1f %% %s, expected %g to %g",
					c.queue, c.load, c.requests, v, b.state, b.in[0], b.in[1])
			}
		}
	}
}

// BenchmarkErrorRates prints the table of lab/docs/steady.md.
func BenchmarkErrorRates(b *testing.B) {
	for range b.N {
		fmt.Print(
			"\n| queue | requests | load | steady | transient | overloaded | interval | mean E2E in its interval |\n|---|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, constant := range []bool{false, true} {
			for _, n := range []int{2000, 20000, 200000} {
				for _, load := range []float64{0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1, 1.02, 1.05, 1.1, 1.2} {
					q := queue{load, n, constant}
					runs := 1000
					if n > 20000 {
						runs = 200
					}
					r := q.rates(runs)
					covered := "-"
					if load < 1 && r.printed >= 1 {
						covered = fmt.Sprintf("%.1f %%", r.covered)
					}
					fmt.Printf("| %v | %d | %g | %.1f %% | %.1f %% | %.1f %% | %.1f %% | %s |\n",
						q, n, load, r.state[Steady], r.state[Transient], r.state[Overloaded], r.printed, covered)
				}
			}
		}
	}
}
