package steady

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/bench/stats"
	"lorasim/sim/record"
)

// TestQueuesAreCovered: 95 % intervals of queues with a known mean hold it in 92 to 99 % of the runs that have one,
// with two standard errors of 150 runs.
func TestQueuesAreCovered(t *testing.T) {
	for _, c := range []struct {
		queue
		printed [2]float64 // bounds of the share of runs with an interval, %
	}{
		{queue{0.5, 2000, false}, [2]float64{75, 100}},
		{queue{0.5, 8000, false}, [2]float64{95, 100}},
		{queue{0.8, 20000, false}, [2]float64{80, 100}},
		{queue{0.8, 20000, true}, [2]float64{95, 100}},
		{queue{0.9, 10000, false}, [2]float64{0, 1}},
		{queue{0.95, 20000, false}, [2]float64{0, 1}},
	} {
		got := c.rates(150)
		if got.printed < c.printed[0] || got.printed > c.printed[1] {
			t.Errorf("%v at load %g, %d requests: an interval in %.1f %%, expected %v", c.queue, c.load, c.requests,
				got.printed, c.printed)
		}
		if c.printed[0] > 0 && (got.covered < 92-2*2 || got.covered > 99+1.2) {
			t.Errorf("%v at load %g, %d requests: %.1f %% of the intervals hold the mean", c.queue, c.load, c.requests,
				got.covered)
		}
	}
}

// autoregressive returns n values of a process with mean 0 and variance 1, whose correlation decays by a factor of phi
// a step.
func autoregressive(rng *rand.Rand, n int, phi float64) []float64 {
	xs := make([]float64, n)
	x := rng.NormFloat64()
	for i := range xs {
		xs[i] = x
		x = phi*x + math.Sqrt(1-phi*phi)*rng.NormFloat64()
	}
	return xs
}

// TestStandardError: the root mean square of the standard error of the mean of an autoregressive series, whose variance
// is known. It is not lower, and up to 12 % higher, since only positive autocorrelations count.
func TestStandardError(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 3))
	for _, phi := range []float64{0, 0.9, 0.97} {
		const runs, steps = 2000, 1000
		sum := 0.0
		for range runs {
			slots := make([]slot, steps)
			for i, x := range autoregressive(rng, steps, phi) {
				slots[i] = slot{done: 2, e2e: 2 * (10 + x)}
			}
			mean, err := batchSums(slots, batches, func(s *slot) (float64, float64) {
				return s.e2e, float64(s.done)
			}).standardError()
			if math.Abs(mean-10) > 2 {
				t.Fatalf("mean %v", mean)
			}
			sum += err * err / runs
		}
		want := math.Sqrt((1+phi)/(1-phi)/steps - 2*phi*(1-math.Pow(phi, steps))/math.Pow((1-phi)*steps, 2))
		if got := math.Sqrt(sum); got < 0.95*want || got > 1.12*want {
			t.Errorf("phi %v: standard error %.4f, expected %.4f to 12 %% more", phi, got, want)
		}
	}
}

// bursts sends requests in bursts to workers without a limit: each takes 1 s, and 0.1 s for each request of its burst
// before it.
func bursts(seed uint64, requests, burst int) *Recorder {
	rng := rand.New(rand.NewPCG(5, seed))
	r := NewRecorder(false)
	var at float64
	for i := 0; i < requests; {
		at += rng.ExpFloat64() * float64(burst)
		for k := range int(rng.ExpFloat64()*float64(burst)) + 1 {
			first := at + 0.1*float64(k)
			r.Done(&record.Request{ID: int64(i), Arrival: at, Sent: at, FirstToken: first, Finish: first + 1,
				Output: 9})
			i++
		}
	}
	return r
}

// TestTooShort: runs of few bursts have no interval, and tell how many requests give one. Runs of that length have one,
// in 70 % at least.
func TestTooShort(t *testing.T) {
	tried, have := 0, 0
	for seed := range uint64(20) {
		a := bursts(seed, 1500, 16).Assess()
		if a.State != Steady {
			continue
		}
		if a.Longer() == 0 || len(a.Intervals) > 0 {
			t.Fatalf("seed %d: %+v", seed, a)
		}
		tried++
		if longer := bursts(100+seed, int(a.Longer()), 16).Assess(); longer.Longer() == 0 && longer.State == Steady {
			have++
		}
	}
	if tried < 10 || have*10 < tried*7 {
		t.Errorf("%d of %d runs of the length needed have an interval", have, tried)
	}
	if s := (TooShort{meanTTFT, 9000}).String(); s != "too short: needs about 9000 requests" {
		t.Error(s)
	}
}

// TestReach: an estimate that is reported only below a limit: of the intervals, 2.5 % end below the truth, for truths
// from far below the limit up to those with an interval in 5 % of the runs. Without the limit it is Student's.
func TestReach(t *testing.T) {
	const wait, runs = 0.15, 6000
	rng := rand.New(rand.NewPCG(43, 6))
	for _, limit := range []float64{-1.6, 0, 1, 2, 4} { // of an estimate, in standard errors above the truth
		printed, missed := 0, 0
		for range runs {
			x := rng.NormFloat64()
			if x > limit {
				continue
			}
			printed++
			if longer := math.Exp(2 * wait * (x - limit)); x+reach(longer, wait) < 0 {
				missed++
			}
		}
		if share := float64(missed) / float64(printed); share > 0.025+3*math.Sqrt(0.025/float64(printed)) {
			t.Errorf("limit %v: %.3f of %d intervals end below the truth", limit, share, printed)
		}
	}
	student := stats.TQuantile(0.975, freedom)
	if a, b := reach(0.01, wait), reach(1, 0); math.Abs(a-student) > 1e-3 || math.Abs(b-student) > 1e-3 {
		t.Errorf("%v and %v, expected %v", a, b, student)
	}
}

// TestParts: batches have whole periods if there are at least 10.
func TestParts(t *testing.T) {
	for _, c := range []struct {
		steps, warm int
		period      float64
		most        int
		start, k    int
	}{
		{1000, 100, 0, 20, 100, 20},
		{1000, 100, 100, 20, 100, 20}, // 9 periods
		{1000, 0, 100, 20, 0, 10},
		{1010, 0, 50, 20, 10, 20},
		{1250, 0, 50, 20, 50, 12}, // of 2 periods each
	} {
		p := &path{width: 1, period: c.period, flight: make([]float64, c.steps)}
		if start, k := p.parts(c.warm, c.most); start != c.start || k != c.k {
			t.Errorf("%+v: from %d, %d parts", c, start, k)
		}
	}
}

// TestLifetimes: requests that take 1 s or, half as often, 4 s have 1.5 s left on average when they are looked at:
// (2 x 1² + 4²) / (2 (2 x 1 + 4)).
func TestLifetimes(t *testing.T) {
	slots := make([]slot, 300)
	for i := range slots {
		slots[i] = slot{done: 3, e2e: 2*1 + 4, e2eSquare: 2*1 + 4*4}
	}
	n, life := (&path{width: 0.5}).lifetimes(slots)
	if math.Abs(n-300*0.5/1.5) > 1e-9 || math.Abs(life-1.5) > 1e-9 {
		t.Errorf("%v lifetimes of %v s", n, life)
	}
	if n, life := (&path{width: 1}).lifetimes(make([]slot, 10)); !math.IsInf(n, 1) || life != 0 {
		t.Errorf("without requests: %v lifetimes of %v s", n, life)
	}
}

// TestLifetimeIsTheCorrelationTime: with Poisson arrivals and without a limit, the mean number of requests in flight
// has the variance of one independent value every two lifetimes.
func TestLifetimeIsTheCorrelationTime(t *testing.T) {
	const runs, requests = 200, 2000
	var variance, mean, want float64
	for seed := range uint64(runs) {
		r := infinite(seed, requests)
		p := r.path()
		n, _ := p.lifetimes(r.slots.slots[:len(p.flight)])
		from := len(p.flight) / 20 // it starts empty
		m, v := stats.MeanVariance(p.flight[from:])
		mean, variance, want = mean+m/runs, variance+m*m/runs, want+2*v/(0.95*n)/runs
	}
	if got := variance - mean*mean; got < 0.7*want || got > 1.3*want {
		t.Errorf("variance of the mean %.3f, expected %.3f", got, want)
	}
}

// infinite sends requests to workers without a limit: each takes an exponential time of 1 s on average.
func infinite(seed uint64, requests int) *Recorder {
	rng := rand.New(rand.NewPCG(8, seed))
	r := NewRecorder(false)
	at := 0.0
	for i := range requests {
		at += rng.ExpFloat64() / 10
		r.Done(&record.Request{ID: int64(i), Arrival: at, Sent: at, FirstToken: at, Finish: at + rng.ExpFloat64(),
			Output: 9})
	}
	return r
}

// crowd sends sessions of requests to a number of servers: 8 requests on average, about 1 s apart, of 4 s each.
func crowd(seed uint64, requests, servers int, rate float64) *Recorder {
	rng := rand.New(rand.NewPCG(9, seed))
	var arrivals []float64
	for at := 0.0; len(arrivals) < requests+requests/10; {
		at += rng.ExpFloat64() * 8 / rate
		for t := at; ; t += rng.ExpFloat64() {
			arrivals = append(arrivals, t)
			if rng.Float64() < 1./8 {
				break
			}
		}
	}
	slices.Sort(arrivals)
	r := NewRecorder(false)
	free := make([]float64, servers)
	for i, at := range arrivals[:requests] {
		k := 0
		for j, t := range free {
			if t < free[k] {
				k = j
			}
		}
		start := max(at, free[k])
		free[k] = start + 4*rng.ExpFloat64()
		r.Done(&record.Request{ID: int64(i), Arrival: at, Sent: at, FirstToken: start + 0.05 + 0.02*rng.Float64(),
			Finish: free[k] + 0.07, Output: 9})
	}
	return r
}

// TestRareQueuesAreCovered: sessions have rare long queues, and some runs have none. The intervals of mean TTFT of
// runs without a queue hold the mean, too.
func TestRareQueuesAreCovered(t *testing.T) {
	const requests, servers, rate = 5000, 70, 12
	truth := 0.0
	for seed := range uint64(20) {
		r := crowd(1000+seed, 20*requests, servers, rate)
		e := estimateOf(r.slots.slots[:len(r.path().flight)], batches, sumTTFT)
		truth += 1000 * e.mean / 20
	}
	printed, low, high := 0, 0, 0
	for seed := range uint64(200) {
		for _, in := range crowd(seed, requests, servers, rate).Assess().Intervals {
			if in.Metric == meanTTFT {
				printed++
				if in.High < truth {
					low++
				} else if in.Low > truth {
					high++
				}
			}
		}
	}
	t.Logf("truth %v, %d printed, %d below, %d above", truth, printed, low, high)
	if printed < 100 || float64(low+high) > 0.08*float64(printed) {
		t.Errorf("of %d intervals, %d are below the mean and %d above it", printed, low, high)
	}
}

// TestTail: P99 TTFT of a run of few lifetimes needs a longer one, and of that length none.
func TestTail(t *testing.T) {
	a := infinite(1, 2000).Assess()
	if a.State != Steady || a.Tail < 2000 {
		t.Fatalf("%+v", a)
	}
	if longer := infinite(1, int(a.Tail)+1000).Assess(); longer.Tail != 0 || longer.State != Steady {
		t.Errorf("%d requests: %+v", a.Tail, longer)
	}
}
