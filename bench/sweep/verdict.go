package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"lorasim/internal/format"
)

// Level is the chance that a verdict calls any two apart that are alike.
const Level = 0.05

// Verdict says which of several things that saw the same seeds is the best by a
// metric, and what can be told of the others. As the best is picked by the same
// numbers, all pairs are tested, by paired t-tests with Holm's correction: the
// chance of any wrong "worse" is then at most Level.
type Verdict struct {
	Metric string
	Best   string   // that with the best mean
	Mean   float64  // its mean
	Seeds  int      // that all of them have
	Others []Versus // the nearest first
	Apart  []string // cannot be compared with the others
}

// Versus is one of the others against the best.
type Versus struct {
	Name  string
	Diff  Estimate // minus the best, paired by seed
	P     float64  // of the paired t-test, corrected; NaN: fewer than two seeds
	Worse bool     // P is below Level
}

// Judge compares values by seed, one list for each name, as far as it has any. It
// is nil where the metric has no better end, or fewer than two can be compared.
func Judge(metric string, names []string, values [][]float64, apart []bool) *Verdict {
	v := &Verdict{Metric: metric}
	var among []int
	for i, xs := range values {
		switch {
		case Mean(xs).N == 0:
		case apart[i]:
			v.Apart = append(v.Apart, names[i])
		default:
			among = append(among, i)
		}
	}
	better := float64(LowerIsBetter(metric))
	if better == 0 || len(among) < 2 {
		return nil
	}
	slices.SortStableFunc(among, func(a, b int) int {
		return cmp.Compare(better*Mean(values[a]).Mean, better*Mean(values[b]).Mean)
	})
	var ps []float64 // of all pairs, those with the best first
	for k, a := range among {
		for _, b := range among[k+1:] {
			ps = append(ps, Paired(values[a], values[b]).P())
		}
	}
	ps = Holm(ps)
	best := among[0]
	v.Best, v.Mean, v.Seeds = names[best], Mean(values[best]).Mean, math.MaxInt
	for k, i := range among[1:] {
		d := Paired(values[i], values[best])
		v.Seeds = min(v.Seeds, d.N)
		v.Others = append(v.Others, Versus{names[i], d, ps[k], ps[k] < Level})
	}
	return v
}

// P is the chance of a mean at least so far from 0 if the true one is 0, by a
// two-sided t-test; NaN for fewer than two values.
func (e Estimate) P() float64 {
	switch {
	case e.N < 2:
		return math.NaN()
	case e.Mean == 0:
		return 1
	case e.Std == 0:
		return 0
	}
	t := math.Abs(e.Mean) / (e.Std / math.Sqrt(float64(e.N)))
	return 2 * distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(e.N - 1)}.CDF(-t)
}

// Holm corrects p-values for their number: where those below a level are called
// significant, the chance of any wrong call is at most that level (S. Holm, A
// simple sequentially rejective multiple test procedure, 1979). NaN stays, and
// counts as a test.
func Holm(ps []float64) []float64 {
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	key := func(i int) float64 {
		if math.IsNaN(ps[i]) {
			return math.Inf(1)
		}
		return ps[i]
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(key(a), key(b)) })
	out, least := slices.Clone(ps), 0.0
	for k, i := range order {
		if !math.IsNaN(ps[i]) {
			least = max(least, min(1, ps[i]*float64(len(ps)-k)))
			out[i] = least
		}
	}
	return out
}

// String is the verdict in one line.
func (v *Verdict) String() string {
	end := "lowest"
	if LowerIsBetter(v.Metric) < 0 {
		end = "highest"
	}
	var alike, worse []string
	for _, o := range v.Others {
		text := o.Name + " " + o.Diff.Versus(v.Mean)
		if o.Worse {
			worse = append(worse, text)
		} else {
			alike = append(alike, text)
		}
	}
	text := v.Best + " is the best"
	switch {
	case v.Seeds < 2:
		text = fmt.Sprintf("%s is the %s, but single runs cannot tell this from chance: %s", v.Best, end, strings.Join(alike, ", "))
	case len(alike) > 0:
		text = fmt.Sprintf("%s has the %s mean; not distinguishable from it: %s", v.Best, end, strings.Join(alike, ", "))
	}
	if len(worse) > 0 {
		text += "; worse: " + strings.Join(worse, ", ")
	}
	if len(v.Apart) > 0 {
		text += "; not comparable: " + strings.Join(v.Apart, ", ")
	}
	return text
}

// VerdictNote says how verdicts are reached.
const VerdictNote = "worse: by t-tests paired by seed of all pairs, with Holm's correction, at 5 %; ± half of the 95 % interval"

// JSON is the verdict as it stands in JSON.
func (v *Verdict) JSON() any {
	type versus struct {
		Name  string        `json:"name"`
		Diff  format.Number `json:"diff_mean"`
		Low   format.Number `json:"diff_ci95_low"`
		High  format.Number `json:"diff_ci95_high"`
		P     format.Number `json:"p_holm"`
		Worse bool          `json:"worse"`
	}
	out := struct {
		Metric string        `json:"metric"`
		Best   string        `json:"best"`
		Mean   format.Number `json:"mean"`
		Seeds  int           `json:"seeds"`
		Others []versus      `json:"others"`
		Apart  []string      `json:"not_comparable,omitempty"`
		Text   string        `json:"text"`
	}{v.Metric, v.Best, format.Number(v.Mean), v.Seeds, []versus{}, v.Apart, v.String()}
	for _, o := range v.Others {
		num := func(x float64) format.Number { return format.Number(x) }
		out.Others = append(out.Others, versus{o.Name, num(o.Diff.Mean), num(o.Diff.Low), num(o.Diff.High), num(o.P), o.Worse})
	}
	return out
}

// Versus prints a difference in percent of a base, with half its interval.
func (e Estimate) Versus(base float64) string {
	if e.N == 0 || base == 0 {
		return "-"
	}
	text := fmt.Sprintf("%+.1f %%", 100*e.Mean/base)
	if e.N > 1 {
		text += fmt.Sprintf(" ±%.1f", math.Abs(100*e.Half()/base))
	}
	return text
}

// Verdicts judges the policies at each combination of settings, in the order of
// the points; nil where there is nothing to judge.
func (d *Dir) Verdicts(t *Tables, metric string) (out []*Verdict) {
	seeds, policies := len(d.Seeds), len(d.Policies)
	for first := 0; first < len(t.results); first += seeds * policies {
		values, apart := make([][]float64, policies), make([]bool, policies)
		own := func(p int) []*CellResult { return t.results[first+p*seeds:][:seeds] }
		ref, least := 0, math.Inf(1) // the policy that completed most
		for p := range policies {
			values[p] = column(own(p), metric)
			if left := t.Points[len(out)*policies+p].Left; left < least {
				ref, least = p, left
			}
		}
		for p := range policies {
			apart[p] = !CountsAll(metric) && !samePairs(own(p), own(ref))
		}
		out = append(out, Judge(metric, d.Policies, values, apart))
	}
	return out
}

// verdictLines words the verdicts, one line for each combination of settings.
func (d *Dir) verdictLines(t *Tables, metric string) string {
	text := ""
	for i, v := range d.Verdicts(t, metric) {
		if v == nil {
			continue
		}
		for k, a := range d.Axes {
			text += a.Leaf() + "=" + t.Points[i*len(d.Policies)].Values[k] + " "
		}
		text = strings.TrimSuffix(text, " ") + ": " + v.String() + "\n"
	}
	if len(d.Axes) == 0 {
		text = strings.TrimPrefix(text, ": ")
	}
	if text != "" {
		text = "\nby " + Title(metric) + " (" + VerdictNote + "):\n" + text
	}
	return text
}
