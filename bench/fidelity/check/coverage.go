package check

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"lorasim/bench/fidelity/measured"
	"lorasim/bench/stats"
	"lorasim/sim/profile"
)

// add counts the residuals that lie within an interval; nil: there is none.
func (c *Covered) add(rs []residual, in *[2]float64) {
	for _, r := range rs {
		if in == nil {
			break
		}
		c.Runs += r.weight
		if x := math.Exp(r.log); in[0] <= x && x <= in[1] {
			c.Share += r.weight
		}
		c.widths = append(c.widths, in[1]-in[0])
	}
}

// done turns the sums into shares.
func (c *Covered) done() {
	if slices.Sort(c.widths); c.Runs > 0 {
		c.Share, c.Width = c.Share/c.Runs, stats.Quantile(c.widths, 0.5)
	}
}

// coverage compares every kind of runs with the bands of all other kinds.
func coverage(rs []residual, of []profile.Band) (out []Coverage) {
	for _, b := range of {
		out = append(out, Coverage{Metric: b.Metric, Waiting: b.Waiting})
	}
	kinds, alike := stats.GroupBy(rs, func(r *residual) string { return r.alike })
	for _, kind := range kinds {
		_, held := stats.GroupBy(alike[kind], func(r *residual) [2]any {
			return [2]any{r.metric.String(), loads[r.load]}
		})
		for _, b := range bands(without(rs, kind)) {
			i := slices.IndexFunc(out, func(c Coverage) bool { return c.Metric == b.Metric && c.Waiting == b.Waiting })
			out[i].Half.add(held[[2]any{b.Metric, b.Waiting}], b.Half)
			out[i].Most.add(held[[2]any{b.Metric, b.Waiting}], b.Most)
		}
	}
	for i := range out {
		out[i].Half.done()
		out[i].Most.done()
	}
	return out
}

// extrapolations holds out runs that differ from the validated ones: each policy, if there are
// several; the runs with more than twice the adapters of the others; and those with up to twice the
// slots of the others (profile.Intervals.Compare).
func extrapolations(rs []residual) (out []Extrapolated) {
	policy := func(r *residual) string { name, _, _ := strings.Cut(r.ran.Policy, ":"); return name }
	policies, _ := stats.GroupBy(rs, policy)
	for _, p := range policies {
		if len(policies) > 1 {
			is := func(r residual) bool { return policy(&r) == p }
			out = append(out, extrapolated("policy "+p, rs, is, is))
		}
	}
	for _, size := range []struct {
		name string
		few  int // the others have at most 1/few of the largest value
		of   func(*measured.Ran) int
	}{
		{"adapters", 4, func(r *measured.Ran) int { return r.Adapters }},
		{"slots", 2, func(r *measured.Ran) int { return r.Profile.Engine.MaxLorasPerBatch }},
	} {
		most := 0
		for i := range rs {
			most = max(most, size.of(rs[i].ran))
		}
		few := func(r residual) bool { return size.few*size.of(r.ran) <= most }
		many := func(r residual) bool { return 2*size.of(r.ran) > most }
		if most > 0 && slices.ContainsFunc(rs, few) {
			out = append(out,
				extrapolated(fmt.Sprintf("%d to %d %s, from up to %d", most/2+1, most, size.name, most/size.few), rs,
					many, func(r residual) bool { return !few(r) }))
		}
	}
	return out
}

// extrapolated compares the runs selected by test with the intervals of the runs not selected by
// leave.
func extrapolated(what string, rs []residual, test, leave func(residual) bool) Extrapolated {
	in := profile.Intervals{Bands: bands(slices.DeleteFunc(slices.Clone(rs), leave))}
	var half, most [2]Covered
	for _, r := range rs {
		if !test(r) {
			continue
		}
		for _, b := range in.Bands {
			if b.Metric != r.metric.String() || b.Waiting != loads[r.load] {
				continue
			}
			for i, b := range []profile.Band{b, b.Widened()} {
				half[i].add([]residual{r}, b.Half)
				most[i].add([]residual{r}, b.Most)
			}
		}
	}
	out := Extrapolated{HeldOut: what, Figures: most[0].Runs}
	for i := range half {
		half[i].done()
		most[i].done()
		out.Half[i], out.Most[i] = Held{half[i].Share, half[i].Width}, Held{most[i].Share, most[i].Width}
	}
	return out
}
