package steady

import (
	"math"
	"math/rand/v2"
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
		{queue{0.5, 2000, false}, [2]float64{90, 100}},
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

// TestBatchLength: the length of a batch in correlation times, which are 1/ln(1/phi) steps: on average within 15 %.
func TestBatchLength(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 2))
	for _, phi := range []float64{0.5, 0.9, 0.97} {
		const runs, steps = 200, 2000
		lengths := make([]float64, runs)
		for i := range lengths {
			lengths[i] = math.Log(batchLength(autoregressive(rng, steps, phi), batches))
		}
		mean, _ := stats.MeanVariance(lengths)
		if want := steps / batches * -math.Log(phi); math.Abs(math.Exp(mean)/want-1) > 0.15 {
			t.Errorf("phi %v: batches of %.2f correlation times, expected %.2f", phi, math.Exp(mean), want)
		}
	}
	if n := batchLength(make([]float64, 100), batches); !math.IsInf(n, 1) {
		t.Errorf("a constant series: %v", n)
	}
	for _, share := range []float64{0.97, 0.7, 0.3, 0.02} {
		b := correlationTimes(share)
		if got := 2 * (b - 1 + math.Exp(-b)) / (b * b); math.Abs(got-share) > 1e-3 {
			t.Errorf("share %v: %v correlation times, whose share is %v", share, b, got)
		}
	}
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
		want := math.Sqrt((1+phi)/(1-phi)/steps - 2*phi*(1-math.Pow(phi, steps))/square((1-phi)*steps))
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
		a := bursts(seed, 1500, 64).Assess()
		if a.State != Steady {
			continue
		}
		if a.Longer() == 0 || len(a.Intervals) > 0 {
			t.Fatalf("seed %d: %+v", seed, a)
		}
		tried++
		if longer := bursts(100+seed, int(a.Longer()), 64).Assess(); longer.Longer() == 0 && longer.State == Steady {
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

// TestUnseen: of a run of n correlation times, an n-th of a correlation time.
func TestUnseen(t *testing.T) {
	rng := rand.New(rand.NewPCG(43, 7))
	const steps, phi, runs = 4000, 0.95, 100
	sum := 0.0
	for range runs {
		sum += math.Log((&path{width: 0.5, flight: autoregressive(rng, steps, phi)}).unseen(0)) / runs
	}
	long := -1 / math.Log(phi) // correlation time, steps
	if want := 0.5 * long * long / steps; math.Abs(math.Exp(sum)/want-1) > 0.2 {
		t.Errorf("%v, expected %v", math.Exp(sum), want)
	}
	if u := (&path{width: 1, flight: make([]float64, 1000)}).unseen(0); u != 0 {
		t.Errorf("of a constant number of requests: %v", u)
	}
}
