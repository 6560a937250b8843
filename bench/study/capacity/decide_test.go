package capacity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// law draws the attainments of independent runs; its mean is mean.
type law struct {
	name string
	mean float64
	draw func(*rand.Rand) float64
}

// laws are attainments as they occur: of independent requests, of queues whose
// requests wait together, and of runs of which a few have a bad time.
func laws(mean float64) []law {
	return []law{
		{"requests alone", mean, func(r *rand.Rand) float64 {
			return 1 - (1-mean)*(1+r.NormFloat64()/math.Sqrt(4000*(1-mean))) // of 4000 requests
		}},
		{"autoregressive", mean, func(r *rand.Rand) float64 { // the mean of 100 values that decay by 0.9 each
			x, sum := r.NormFloat64(), 0.0
			for range 100 {
				x = 0.9*x + math.Sqrt(1-0.81)*r.NormFloat64()
				sum += x
			}
			return mean + 0.005*sum/100
		}},
		{"exponential misses", mean, func(r *rand.Rand) float64 { return 1 - (1-mean)*r.ExpFloat64() }},
		{"bad times", mean, func(r *rand.Rand) float64 { // one run in four misses four times as much
			if r.IntN(4) > 0 {
				return 1
			}
			return 1 - 4*(1-mean)*r.ExpFloat64()
		}},
	}
}

// decide applies a rule to a law as byLength does to runs, and returns the attainments of the runs. A draw is the
// attainment of the first part that counts.
func decide(r *rule, l law, rng *rand.Rand) (d Decision, parts int, values []float64) {
	list := make([]sample, panelRuns)
	sums := make([]float64, panelRuns)
	for look := 0; look < lengthLooks; look++ {
		before := parts
		parts = 1 << look
		for i := range list {
			early, late := sums[i], 0.0
			for range parts - before {
				late += l.draw(rng)
			}
			sums[i] += late
			list[i].value = sums[i] / float64(parts)
			if before > 0 {
				list[i].trend = late/float64(parts-before) - early/float64(before)
			}
		}
		r.level, r.unseen = lookLevel(look, lengthLooks), badTime(r.target, int64(parts)*shortest/2)
		if d, _ = r.look(list); d != Undecided {
			break
		}
	}
	values, _, _ = columns(list)
	return d, parts, values
}

// TestErrorRates: however often it looks, the rule accepts a candidate whose true
// attainment is the target, or just misses it, with a probability of about
// errorLevel at most, and so it rejects one. The interval of the runs of the decision
// and of fresh ones holds the true attainment in about 95 % of the cases.
func TestErrorRates(t *testing.T) {
	const repetitions, target = 2000, 0.99
	for i, l := range laws(target) {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		r := &rule{target: target}
		accepted, rejected, covered := 0, 0, 0
		for range repetitions {
			d, parts, values := decide(r, l, rng)
			switch d {
			case Holds:
				accepted++
			case Fails:
				rejected++
			}
			for range freshRuns {
				sum := 0.0
				for range parts {
					sum += l.draw(rng)
				}
				values = append(values, sum/float64(parts))
			}
			if low, high := r.interval(values, 0.025); low <= l.mean && l.mean <= high {
				covered++
			}
		}
		a, b := float64(accepted)/repetitions, float64(rejected)/repetitions
		t.Logf("%-20s accepted %.2f %%, rejected %.2f %%, covered %.2f %%", l.name, 100*a, 100*b,
			100*float64(covered)/repetitions)
		if covered < repetitions*91/100 || covered > repetitions*98/100 {
			t.Errorf("%s: %d of %d intervals hold the mean", l.name, covered, repetitions)
		}
		// three standard errors of the estimate
		if most := errorLevel + 3*math.Sqrt(errorLevel/repetitions); a > most || b > most {
			t.Errorf("%s: accepted %.4f, rejected %.4f, expected at most %.4f", l.name, a, b, most)
		}
	}
}

// TestPower: a difference of half of what may be missed is decided.
func TestPower(t *testing.T) {
	const repetitions, target = 200, 0.99
	for i := range laws(target) {
		for _, c := range []struct {
			mean float64
			want Decision
		}{{target + 0.005, Holds}, {target - 0.005, Fails}} {
			rng := rand.New(rand.NewPCG(uint64(i), 6))
			r, right := &rule{target: target}, 0
			for range repetitions {
				if d, _, _ := decide(r, laws(c.mean)[i], rng); d == c.want {
					right++
				}
			}
			if right < repetitions*6/10 {
				t.Errorf("%s, %v: %d of %d are decided", laws(target)[i].name, c.mean, right, repetitions)
			}
		}
	}
}

// TestIntervalCoverage: intervals of 95 % of the laws hold their mean in 92 to 98 %
// of the cases.
func TestIntervalCoverage(t *testing.T) {
	const repetitions = 4000
	for i, l := range laws(0.99) {
		rng := rand.New(rand.NewPCG(uint64(i), 7))
		r, covered := &rule{target: 0.99}, 0
		for range repetitions {
			values := make([]float64, panelRuns+freshRuns)
			for j := range values {
				values[j] = l.draw(rng)
			}
			if low, high := r.interval(values, 0.025); low <= l.mean && l.mean <= high {
				covered++
			}
		}
		share := float64(covered) / repetitions
		t.Logf("%-20s %.2f %%", l.name, 100*share)
		if share < 0.92 || share > 0.98 {
			t.Errorf("%s: %.2f %% of the intervals hold the mean", l.name, 100*share)
		}
	}
}

// TestRuns: the share of runs that hold, with intervals of Clopper and Pearson.
func TestRuns(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	const repetitions, target = 1000, 0.95
	r, accepted := &rule{target: target, binary: true}, 0
	for range repetitions {
		var list []sample
		for look := range 4 {
			r.level = lookLevel(look, maxLooks)
			for len(list) < firstRuns<<look {
				v := 0.0
				if rng.Float64() < target {
					v = 1
				}
				list = append(list, sample{value: v})
			}
			if d, _ := r.look(list); d == Holds {
				accepted++
				break
			}
		}
	}
	if accepted > repetitions*errorLevel+12 {
		t.Errorf("%d of %d with exactly the target are accepted", accepted, repetitions)
	}
}

// Looks by hand.
func TestLook(t *testing.T) {
	some := func(value, trend, growth float64) []sample {
		list := make([]sample, 8)
		for i := range list {
			jitter := 1e-4 * float64(i%2*2-1)
			list[i] = sample{value + jitter, trend + jitter, growth + jitter}
		}
		return list
	}
	r := &rule{target: 0.99, level: 0.003, unseen: 0.03}
	for _, c := range []struct {
		name      string
		samples   []sample
		want      Decision
		transient bool
	}{
		{"holds", slices.Repeat(some(0.998, 0, 0), 8), Holds, false},
		{"holds, but a bad time may be missing", some(0.998, 0, 0), Undecided, false},
		{"fails", some(0.98, 0, 0), Fails, false},
		{"too close", some(0.99, 0, 0), Undecided, false},
		{"holds, but gets worse", slices.Repeat(some(0.998, -0.005, 0), 8), Undecided, true},
		{"fails, but gets better", some(0.98, 0.02, 0), Undecided, true},
		{"fails, and gets better too slowly", some(0.98, 0.002, 0), Fails, false},
		{"fails, and gets worse", some(0.98, -0.02, 0), Fails, false},
		{"queues grow", some(0.995, 0, 0.05), Overloaded, false},
		{"queues may grow", slices.Repeat(append(some(0.998, 0, 0.09), some(0.998, 0, -0.08)...), 4), Undecided, true},
		{"one run", some(1, 0, 0)[:1], Undecided, true},
	} {
		if d, transient := r.look(c.samples); d != c.want || transient != c.transient {
			t.Errorf("%s: %s, transient %v; expected %s, %v", c.name, d, transient, c.want, c.transient)
		}
	}
	closed := &rule{target: 0.99, level: 0.003, closed: true}
	if d, _ := closed.look(slices.Repeat(some(0.998, 0, 0.05), 8)); d != Holds {
		t.Errorf("where queues may grow: %s", d)
	}
}
