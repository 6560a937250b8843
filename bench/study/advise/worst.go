package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/internal/format"
)

const (
	searchSeeds = 2
	worstSeeds  = 10
	// combined is the number of the worst changes of which pairs are tried.
	combined = 4
)

// A Change is one change of a scenario.
type Change struct {
	What     string // such as "rate x1.5"
	Settings [][2]string
	kind     string // changes of the same kind do not combine
}

// Worst is the worst scenario for the recommended candidate among those tried: there it loses most against a rival.
type Worst struct {
	Tried   int
	Changes []Change
	Rival   Candidate
	// Loss is the score of the recommended candidate minus the score of the rival, on held-out seeds. P is the p-value
	// of the paired t-test.
	Loss        stats.Estimate
	P           float64
	Pick, Other Figures // means
	State       steady.Stationarity

	scenario scenario.Scenario
	found    float64 // the loss with the seeds of the search
}

// Lost reports whether the recommended candidate is significantly worse than the rival.
func (w *Worst) Lost() bool { return w.P < stats.Level && w.Loss.Mean > 0 }

// Command returns the command line that runs the scenario with a candidate.
func (w *Worst) Command(c Candidate) string {
	return command(&w.scenario, c)
}

// lines is the command, cut into lines for a terminal, which a shell takes as they are.
func (w *Worst) lines(c Candidate) (lines []string) {
	line := " "
	for _, word := range strings.Split(w.Command(c), " --") {
		if len(lines) > 0 || line != " " {
			word = "--" + word
		}
		if len(line)+len(word)+3 > format.Width {
			lines, line = append(lines, line+" \\"), "   "
		}
		line += " " + word
	}
	return append(lines, line)
}

// command is a command line that simulates a scenario.
func command(sc *scenario.Scenario, c Candidate) string {
	def := scenario.Default()
	parts := []string{"lorasim sim"}
	for _, f := range scenario.Fields() {
		v := f.Get(sc)
		switch flag, text := f.Option(v); {
		case flag == "" || f.Key == "routing.policy" || v == f.Get(&def):
		case f.Type() == "bool" && f.Flag != "":
			parts = append(parts, flag+"="+text)
		default:
			parts = append(parts, flag+" "+quoted(text))
		}
	}
	return strings.Join(append(parts, "--policy "+quoted(c.Spec)), " ")
}

// quoted is a word for a shell.
func quoted(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
			strings.ContainsRune("_-./:,=+@%", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// changes are the single changes that are tried around a scenario.
func (s *study) changes() (out []Change, err error) {
	sc := &s.sc
	add := func(kind, what string, settings ...[2]string) {
		for _, set := range settings {
			if f, err := scenario.Find(set[0]); err != nil || f.Get(sc) == set[1] {
				return
			}
		}
		out = append(out, Change{what, settings, kind})
	}
	one := func(key string, value any) [2]string { return [2]string{key, fmt.Sprint(value)} }
	w := &sc.Workload
	generated := w.File == "" && !w.UseTrace && w.TracePath == "" && !w.TraceHistogram.Given()
	for _, f := range []float64{0.5, 0.75, 1.25, 1.5} {
		rate := one("rate_scale", number(w.RateScale*f))
		if generated {
			rate = one("request_rate", number(w.RequestRate*f))
		}
		if !math.IsInf(w.RequestRate, 1) {
			add("rate", fmt.Sprintf("rate x%g", f), rate)
		}
	}
	in, err := sc.OpenWorkload(s.ctx, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if n := len(in.Adapters()); generated && !w.LoraNames.Given() {
		add("adapters", fmt.Sprintf("adapters: %d", max(n/2, 1)), one("num_adapters", max(n/2, 1)))
		add("adapters", fmt.Sprintf("adapters: %d", 2*n), one("num_adapters", 2*n))
	}
	if generated && w.LoraRequestDist == "" && !w.Sessions.Given() {
		for _, p := range []string{"uniform", "zipf:0.6", "zipf:1.5"} {
			add("popularity", "popularity "+p, one("popularity", p))
		}
	}
	if generated {
		for _, cv := range []string{"gamma:2", "gamma:4"} {
			add("arrivals", "arrivals "+cv, one("arrivals", cv))
		}
	}
	for _, age := range []float64{0.5, 2} {
		if sc.Routing.ViewStaleness < age {
			add("staleness", fmt.Sprintf("reports up to %g s old", age), one("view_staleness", age))
		}
	}
	ps, err := sc.Profiles(s.ctx)
	if err != nil {
		return nil, err
	}
	if n := ps[0].Engine.MaxLorasPerBatch; n > 0 {
		add("slots", fmt.Sprintf("adapter slots: %d", max(n/2, 1)), one("max_loras_per_batch", max(n/2, 1)))
		add("slots", fmt.Sprintf("adapter slots: %d", 2*n), one("max_loras_per_batch", 2*n))
	}
	if rate := w.RequestRate; generated && len(ps) > 1 && !sc.Cluster.Elastic.Given() && !sc.Cluster.Outages.Given() &&
		!math.IsInf(rate, 1) {
		length := float64(s.advice.Requests) / rate
		add("loss", "loss of a worker", one("outages", fmt.Sprintf("0@%.0f-%.0f", length/3, length/2+1)))
	}
	return out, nil
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }

// changed is the scenario with some changes.
func (s *study) changed(cs ...Change) (scenario.Scenario, error) {
	sc := s.sc
	for _, c := range cs {
		for _, set := range c.Settings {
			if err := sc.Set(set[0], set[1]); err != nil {
				return sc, err
			}
		}
	}
	return sc, nil
}

// rivals returns the candidates to compare the recommended one with in other scenarios: the runner-up, the best of the
// other policies, the plain policies and the scenario's own.
func (s *study) rivals() (out []Candidate) {
	other := false
	for i, f := range s.advice.Finalists[1:] {
		best := !other && f.name() != s.advice.recommended().name()
		if other = other || best; i == 0 || best || len(f.Roles) > 0 {
			out = append(out, f.Candidate)
		}
	}
	return out
}

// worst searches for the scenario in which the recommended candidate loses most.
func (s *study) worst() error {
	pick, rivals := s.advice.recommended().Candidate, s.rivals()
	if len(rivals) == 0 {
		return nil
	}
	singles, err := s.changes()
	if err != nil {
		return err
	}
	var tried []*Worst
	look := func(cs ...Change) error {
		s.phase = fmt.Sprintf("worst scenario, %d tried", len(tried))
		w, err := s.lookAt(len(tried)+1, pick, rivals, cs)
		if w != nil {
			tried = append(tried, w)
		}
		return err
	}
	for _, c := range singles {
		if err := look(c); err != nil {
			return err
		}
	}
	slices.SortStableFunc(tried, func(a, b *Worst) int { return cmp.Compare(b.found, a.found) })
	top := slices.Clone(tried[:min(combined, len(tried))])
	for i, a := range top {
		for _, b := range top[:i] {
			if x, y := a.Changes[0], b.Changes[0]; x.kind != y.kind && s.left(1)() > int64(2*worstSeeds) {
				if err := look(x, y); err != nil {
					return err
				}
			}
		}
	}
	if len(tried) == 0 {
		return nil
	}
	w := slices.MaxFunc(tried, func(a, b *Worst) int { return cmp.Compare(a.found, b.found) })
	w.Tried = len(tried)
	s.phase = "worst scenario, fresh seeds"
	return s.measureWorst(w, pick)
}

// lookAt measures the candidate and its rivals in a changed scenario; nil: there is no
// such scenario.
func (s *study) lookAt(variant int, pick Candidate, rivals []Candidate, cs []Change) (*Worst, error) {
	sc, err := s.changed(cs...)
	if err != nil {
		return nil, nil
	}
	n := searchSeeds
	if s.single {
		n = 1
	}
	wants := []want{{pick, 0, n}}
	for _, r := range rivals {
		wants = append(wants, want{r, 0, n})
	}
	figures, err := s.sampler(sc, variant, false)(forSearch, wants)
	if err != nil {
		return nil, s.ctx.Err() // the workload cannot be changed in this way
	}
	w := &Worst{Changes: cs, scenario: sc, found: math.Inf(-1)}
	for _, list := range figures {
		for _, f := range list {
			if f.Err != nil {
				return nil, nil
			}
		}
	}
	for i, r := range rivals {
		if loss := mean(scoresOf(figures[0])) - mean(scoresOf(figures[i+1])); loss > w.found {
			w.found, w.Rival = loss, r
		}
	}
	return w, nil
}

// measureWorst measures a scenario on held-out seeds.
func (s *study) measureWorst(w *Worst, pick Candidate) error {
	n := worstSeeds
	if s.single {
		n = 1
	}
	figures, err := s.sampler(w.scenario, 0, false)(forWorst, []want{{pick, 0, n}, {w.Rival, 0, n}})
	if err != nil {
		return err
	}
	w.Loss = stats.PairedOf(s.sampling, scoresOf(figures[0]), scoresOf(figures[1]))
	w.P, w.Pick, w.Other, w.State = w.Loss.P(), means(figures[0]), means(figures[1]), stationarity(figures[0])
	s.advice.Worst = w
	return nil
}

// means are the mean latencies of some runs.
func means(runs []Figures) (m Figures) {
	n := float64(len(runs))
	for _, f := range runs {
		m.TTFT += f.TTFT / n
		m.P99TTFT += f.P99TTFT / n
		m.E2E += f.E2E / n
		m.Good += f.Good / n
	}
	return m
}
