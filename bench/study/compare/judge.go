package compare

import (
	"cmp"
	"math"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/stats"
)

// judge takes runs with other seeds than the first one that has the metric as
// not comparable. Single runs are judged by the intervals within them, where all
// that compare have one.
func (t *Table) judge(metric string) {
	var first *Run
	apart, candidates := t.apartIn(metric), make([]stats.Candidate, len(t.Runs))
	for i, r := range t.Runs {
		own := r.values[metric]
		if first == nil && !apart[i] && len(own) > 0 {
			first = r
		}
		if first != nil {
			n := len(first.values[metric])
			otherSeeds := len(own) != n || n > 1 && !slices.Equal(r.Seeds, first.Seeds)
			apart[i] = apart[i] || otherSeeds || r.sampling != first.sampling
		}
		candidates[i] = stats.Candidate{
			Name: r.Name, Values: own, Apart: apart[i], Unsteady: result.MetricOf(metric).Unsteady(r.Stationarity()),
		}
	}
	if first == nil {
		return
	}
	if t.Verdict = t.judgeWithin(metric, candidates); t.Verdict == nil {
		t.Verdict = stats.Judge(metric, result.MetricOf(metric).Better, first.sampling, candidates)
	}
}

// markBest marks the best of a row's comparable runs, if one can be better than
// another and not all are the same. Runs that did not reach a steady state are not
// compared by metrics that need one. With several seeds the interval of its
// difference to each other run must exclude 0.
func (t *Table) markBest(row *Row) {
	var among []int
	for i, c := range row.Cells {
		judge := !result.MetricOf(row.Metric).NeedsSteady || t.Runs[i].Stationarity().Judge()
		if row.Better != stats.Neither && c.N > 0 && !c.Apart && judge {
			among = append(among, i)
		}
	}
	mean := func(i, j int) int {
		return int(row.Better) * cmp.Compare(row.Cells[i].Mean, row.Cells[j].Mean)
	}
	if len(among) < 2 || mean(slices.MinFunc(among, mean), slices.MaxFunc(among, mean)) == 0 {
		return
	}
	best := slices.MinFunc(among, mean)
	clear, seeds := true, false
	for _, i := range among {
		if i != best {
			d := t.difference(row.Metric, i, best)
			clear = clear && d.HasInterval() && (d.Low > 0 || d.High < 0)
			seeds = seeds || row.Cells[i].N > 1 && row.Cells[best].N > 1 || d.HasInterval()
		}
	}
	row.Cells[best].Clear = clear
	for _, i := range among {
		row.Cells[i].Best = mean(i, best) == 0 && (clear || !seeds)
	}
}

// difference is that of a metric between two runs, paired by seed, of single runs
// by the intervals within them; N = 0 where their seeds are not the same.
func (t *Table) difference(metric string, i, j int) stats.Estimate {
	a, b := t.Runs[i], t.Runs[j]
	xs, ys := a.values[metric], b.values[metric]
	if d := differenceWithin(a, b, metric); d.HasInterval() {
		return d
	}
	if !slices.Equal(a.Seeds, b.Seeds) || len(xs) != len(a.Seeds) || len(ys) != len(b.Seeds) ||
		a.sampling != b.sampling {
		return stats.Mean(nil)
	}
	return stats.PairedOf(a.sampling, xs, ys)
}

// differenceWithin is the difference of a mean between two single runs that have an
// interval within them. The runs count as independent, which makes the interval too
// wide rather than too narrow where both had the same requests. Each end combines the ends
// of the two intervals that it depends on, which may have unequal sides (G. Y. Zou and A.
// Donner, "Construction of confidence limits about effect measures: a general approach",
// Statistics in Medicine 27, 2008).
func differenceWithin(a, b *Run, metric string) stats.Estimate {
	x, y := a.within(metric), b.within(metric)
	if !(x.High >= x.Low && y.High >= y.Low) || len(a.values[metric]) != 1 || len(b.values[metric]) != 1 {
		return stats.Mean(nil)
	}
	u, v := a.values[metric][0], b.values[metric][0]
	down := math.Hypot(max(u-x.Low, 0), max(y.High-v, 0))
	up := math.Hypot(max(x.High-u, 0), max(v-y.Low, 0))
	return stats.Estimate{N: 1, Mean: u - v, Std: math.NaN(), Low: u - v - down, High: u - v + up, Of: stats.WithinRuns}
}

// ratioBy is the ratio to a base that a difference to it amounts to.
func ratioBy(diff stats.Estimate, base float64) stats.Estimate {
	d := diff.Times(1 / base)
	d.Mean, d.Low, d.High = 1+d.Mean, 1+d.Low, 1+d.High
	return d
}

// ratioWithin is the ratio of a mean between two single runs, as differenceWithin is the difference. It combines the
// logarithms, so that both ends are positive.
func ratioWithin(a, b *Run, metric string) stats.Estimate {
	x, y := a.within(metric), b.within(metric)
	if !differenceWithin(a, b, metric).HasInterval() || !(x.Low > 0 && y.Low > 0) {
		return stats.Mean(nil)
	}
	u, v := a.values[metric][0], b.values[metric][0]
	down := math.Hypot(max(math.Log(u/x.Low), 0), max(math.Log(y.High/v), 0))
	up := math.Hypot(max(math.Log(x.High/u), 0), max(math.Log(v/y.Low), 0))
	return stats.Estimate{N: 1, Mean: u / v, Std: math.NaN(), Low: u / v * math.Exp(-down), High: u / v * math.Exp(up),
		Of: stats.WithinRuns}
}

// judgeWithin is the verdict on single runs by the intervals within them; nil where
// a run that compares has none.
func (t *Table) judgeWithin(metric string, candidates []stats.Candidate) *stats.Verdict {
	for i, r := range t.Runs {
		within := r.within(metric)
		compares := !candidates[i].Apart && r.Stationarity().Judge() && len(r.values[metric]) > 0
		if compares && !(within.High >= within.Low) {
			return nil
		}
	}
	return stats.JudgeBy(metric, result.MetricOf(metric).Better, candidates,
		func(i int) stats.Estimate { return t.Runs[i].value(metric) },
		func(i, j int) stats.Estimate { return differenceWithin(t.Runs[i], t.Runs[j], metric) })
}

// bestOf explains the meaning of a star for single runs without intervals.
func (t *Table) bestOf() string {
	if len(t.Runs) < 2 || slices.ContainsFunc(t.Runs, func(r *Run) bool { return len(r.Seeds) > 1 }) {
		return ""
	}
	return " (single runs: may be chance)"
}
