package check

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/result"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// residual is the logarithm of measured over predicted of a metric of a run. The prediction is that
// of one simulation, since intervals are for single simulations. The weight of a run is 1; repeats
// of a run share it, and so do several simulations of a run.
type residual struct {
	metric      result.ID
	load        int // index into loads
	log, weight float64
	alike       string
	ran         *measured.Ran
}

// class is the kind of runs that a band is for.
type class struct {
	metric result.ID
	load   int
}

func residuals(c *measured.Comparison, share float64) (rs []residual) {
	draws := c.Ran.Draws
	if draws == nil {
		single := maps.Clone(c.Predicted)
		single[measured.WaitingShare] = c.Ran.Waiting
		draws = []measured.Values{single}
	}
	for _, d := range draws {
		load := loadOf(d[measured.WaitingShare])
		for m, b := range d {
			key, ok := m.InResult()
			if a := c.Measured[m]; ok && a > 0 && b > 0 {
				rs = append(rs, residual{key, load, math.Log(a / b), share / float64(len(draws)), c.Ran.Alike, &c.Ran})
			}
		}
	}
	return rs
}

func (r *residual) class() class { return class{r.metric, r.load} }

// bands returns the bands by metric and load of all classes with a total weight of about 1 or more.
// A range at the edge of saturation that is narrower than the range below it is widened to include
// that range.
func bands(rs []residual) (out []profile.Band) {
	classes, of := stats.GroupBy(rs, (*residual).class)
	slices.SortFunc(classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.load, b.load))
	})
	for _, c := range classes {
		if weight(of[c]) < 0.9 {
			continue
		}
		b := band(c, of[c])
		if n := len(out); c.load == edge && n > 0 && out[n-1].Metric == b.Metric {
			b.Half, b.Most = noNarrower(b.Half, out[n-1].Half), noNarrower(b.Most, out[n-1].Most)
		}
		out = append(out, b)
	}
	return out
}

// noNarrower returns a range, or, if it is narrower than another one, a range that includes both.
func noNarrower(r, other *[2]float64) *[2]float64 {
	if r == nil || other == nil || r[1]/r[0] >= other[1]/other[0] {
		return r
	}
	return &[2]float64{min(r[0], other[0]), max(r[1], other[1])}
}

// band returns the band of a class. n runs support a range of level n / (n+1) at most. From 3 runs
// on, half of them need not lie on both sides of the prediction.
func band(c class, rs []residual) profile.Band {
	n := weight(rs)
	level := min(0.9, math.Floor(100*n/(n+1))/100)
	b := profile.Band{
		Metric: c.metric.String(), Waiting: loads[c.load], Runs: math.Round(10*n) / 10, Most: wide(rs, level),
		Level: level,
	}
	if n >= 3 {
		b.Half = wide(rs, 0.5)
	}
	return b
}

// wide returns the conformal range of a probability. Runs of one kind have correlated errors. If
// ranges from all other kinds cover a kind too rarely, the range is that of a higher probability
// with sufficient coverage.
func wide(rs []residual, probability float64) (in *[2]float64) {
	kinds, alike := stats.GroupBy(rs, func(r *residual) string { return r.alike })
	for p := probability; p < 0.995; p += 0.02 {
		wider := conformal(rs, p)
		if wider == nil {
			break
		}
		in = wider
		var held Covered
		for _, kind := range kinds {
			held.add(alike[kind], conformal(without(rs, kind), p))
		}
		if held.Share >= probability*held.Runs {
			break
		}
	}
	return in
}

// without returns the residuals of all other kinds of runs.
func without(rs []residual, kind string) []residual {
	return slices.DeleteFunc(slices.Clone(rs), func(r residual) bool { return r.alike == kind })
}

func weight(rs []residual) (sum float64) {
	for _, r := range rs {
		sum += r.weight
	}
	return sum
}

// conformal returns the range, as factors, that covers one more residual with at least the given
// probability: a split-conformal interval (V. Vovk et al., Algorithmic Learning in a Random World,
// 2005). A run with several draws counts once (R. Dunn et al., JASA 118, 2023), and the further
// residual counts as infinite. If that leaves too few runs at either end, the range is symmetric
// about the prediction, which takes about half as many runs. The result is nil if the runs are too
// few for that, too, or the range is unbounded.
func conformal(rs []residual, probability float64) *[2]float64 {
	high, ok := quantile(rs, (1+probability)/2, func(x float64) float64 { return x })
	low, _ := quantile(rs, (1+probability)/2, func(x float64) float64 { return -x })
	if !ok {
		if high, ok = quantile(rs, probability, math.Abs); !ok {
			return nil
		}
		low = high
	}
	const digits = 1e4
	r := [2]float64{math.Floor(digits*math.Exp(-low)) / digits, math.Ceil(digits*math.Exp(high)) / digits}
	if r[0] == 0 || r[1] >= 1e6 {
		return nil
	}
	return &r
}

// quantile returns the least value of f below which a share of the weight lies, counting one more
// residual that is infinite. It returns false if the quantile is that residual.
func quantile(rs []residual, share float64, f func(float64) float64) (float64, bool) {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b residual) int { return cmp.Compare(f(a.log), f(b.log)) })
	sum, need := 0.0, share*(weight(rs)+1)-1e-6
	for _, r := range rs {
		if sum += r.weight; sum >= need {
			return f(r.log), true
		}
	}
	return 0, false
}
