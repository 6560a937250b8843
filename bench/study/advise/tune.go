package advise

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"lorasim/bench/stats"
	"lorasim/bench/study/tune"
	"lorasim/router"
	"lorasim/router/epp"
	"lorasim/router/epp/edit"
)

const (
	// designs is the number of configurations that the search begins with, and fewestDesigns what a small budget
	// leaves of it.
	designs, fewestDesigns = 64, 12
	// tuneShare is the share of the budget for race and search of configurations, where there is one. The race has
	// raceShareTuned of it, and race, search and choice have choiceShareTuned.
	raceShareTuned, tuneShare, choiceShareTuned = 0.25, 0.7, 0.8
	// tuneMargin is by how much a configuration with fewer changes may be worse than the best, and dropMargin by how
	// much a change must help to stay; both % of the objective.
	tuneMargin, dropMargin = 0.5, 0.25
)

// DefaultAdd lists the types of scorers that the search of a configuration adds if they are missing.
var DefaultAdd = []string{"lora-affinity-scorer"}

// Tuned is the result of the search of an endpoint picker's configuration.
type Tuned struct {
	Of     Candidate // unchanged configuration
	Config *epp.PickerConfig
	Tried  int       // number of configurations, including the unchanged one
	Best   Candidate // best changed configuration; Spec "": none gives other results
	// Changes lead from the configuration to the best.
	Changes []NumberChange
	// Diff is the score of the best minus the score of the unchanged configuration, paired by held-out seed.
	Diff    stats.Estimate
	MinGain float64 // score: smallest difference that counts

	space      *tune.Space
	base, best *contestant
}

// A NumberChange is a change of one number of a configuration.
type NumberChange struct {
	epp.Change
	From  float64
	Added bool // the change adds the scorer
}

// Better reports whether the best configuration is better: the confidence interval of Diff lies below 0, and the gain
// is at least MinGain.
func (t *Tuned) Better() bool { return t.significant() && t.Diff.Mean <= -t.MinGain }

// significant reports whether the interval lies below 0.
func (t *Tuned) significant() bool {
	return t.Best.Spec != "" && t.Diff.HasInterval() && t.Diff.High < 0
}

// Text returns the text of the better configuration, with the comment lines on top.
func (t *Tuned) Text(ctx context.Context, comment ...string) ([]byte, error) {
	p, err := epp.ReadPickerConfig(ctx, t.Best.Spec)
	if err != nil {
		return nil, err
	}
	text, err := edit.Apply(p.Text, p.File, p.Dialect, p.Changes)
	if err != nil {
		return nil, err
	}
	return edit.Comment(text, comment...), nil
}

// pickers returns the candidates whose configurations the search covers.
func (o *Options) pickers(own string) (specs []string) {
	for _, spec := range append([]string{own}, o.Policies...) {
		spec = canonical(spec)
		if (Candidate{spec}).name() == pickerPolicy && !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
	}
	return specs
}

// pickerPolicy is the policy that runs configurations, and tunedRole the role of the best one that a search found.
const pickerPolicy, tunedRole = "epp", "tuned"

// CheckConfigs reads the configurations to search, and returns their number. own is the policy in use.
func (o *Options) CheckConfigs(ctx context.Context, own string) (n int, err error) {
	specs := o.pickers(own)
	for _, spec := range specs {
		c, err := epp.ReadPickerConfig(ctx, spec)
		if err != nil {
			return 0, err
		}
		for _, typ := range o.Add {
			if !epp.IsScorer(c.Config.Dialect, typ) {
				return 0, fmt.Errorf("--add-scorers: scorer %q: %s has no scorer of this type that needs no parameters", typ,
					c.Config.Dialect)
			}
		}
	}
	return len(specs), nil
}

// tuner searches one configuration.
type tuner struct {
	*Tuned
	race *race
	of   map[string]tune.Point // of the specs
	can  func(spec string) bool
}

// newTuner prepares the search of a configuration that runs in a race.
func (s *study) newTuner(r *race, spec string) (*tuner, error) {
	base := r.known[spec]
	if base == nil || base.err != nil {
		return nil, nil // it cannot run here
	}
	config, err := epp.ReadPickerConfig(s.ctx, spec)
	if err != nil {
		return nil, err
	}
	t := &tuner{Tuned: &Tuned{Of: Candidate{spec}, Config: config, space: tune.NewSpace(config.Config, s.opt.Add...),
		MinGain: s.opt.Objective.fromPercent(s.opt.MinGain), base: base}, of: map[string]tune.Point{},
		can: func(spec string) bool { return s.can(spec) == nil }}
	t.race = &race{sample: r.sample, first: r.first, most: r.most, phase: r.phase, known: r.known}
	t.of[spec] = t.space.Base()
	return t, nil
}

// specs are those of points, as far as they can run.
func (t *tuner) specs(points []tune.Point) (out []string) {
	for _, p := range points {
		spec := t.spec(p)
		if t.race.known[spec] == nil && !slices.Contains(out, spec) && t.can(spec) {
			t.of[spec] = p
			out = append(out, spec)
		}
	}
	return out
}

// spec returns the spec of a point: the spec of the configuration, with the point's changes on top of its own.
func (t *tuner) spec(p tune.Point) string {
	set := slices.Clone(t.Config.Changes)
	for _, ch := range t.space.Changes(p) {
		if i := slices.IndexFunc(set, func(o epp.Change) bool { return o.Name == ch.Name }); i >= 0 {
			set[i] = ch
		} else {
			set = append(set, ch)
		}
	}
	if len(set) == 0 {
		return t.Of.Spec
	}
	list := router.List()
	i := slices.IndexFunc(list, func(d router.Descriptor) bool { return d.Name == pickerPolicy })
	return canonical(with(&list[i], t.Of.Spec, "set", epp.FormatChanges(set)))
}

// tune searches the given configurations, each with its share of the budget. It returns the best of each as a
// contestant.
func (s *study) tune(r *race) (field []*contestant, err error) {
	specs := s.opt.pickers(s.sc.Routing.Policy.String())
	for i, spec := range specs {
		t, err := s.newTuner(r, spec)
		if err != nil {
			return nil, err
		}
		if t == nil {
			continue
		}
		upTo := raceShareTuned + (tuneShare-raceShareTuned)*float64(i+1)/float64(len(specs))
		t.race.left = s.left(upTo)
		if err := t.run(s.sampling, s.opt.Objective, rand.New(rand.NewPCG(s.seed, uint64(i)))); err != nil {
			return nil, err
		}
		if t.best != nil {
			field = append(field, t.best)
		}
		s.advice.Rounds = append(s.advice.Rounds, t.race.rounds...)
		s.advice.Tuned = append(s.advice.Tuned, t.Tuned)
	}
	return field, nil
}

// run races designs, then neighbours of the best, and takes back the changes of the winner that do not help.
func (t *tuner) run(of stats.Sampling, o Objective, rng *rand.Rand) error {
	what := "configurations"
	n := min(designs, max(fewestDesigns, t.race.affordable()/2))
	field, err := t.race.halve(what, append(t.race.enter(t.specs(t.space.Designs(n, rng)[1:])), t.base))
	expanded := map[string]bool{}
	for range searches {
		if err != nil {
			return err
		}
		more := t.near(field, expanded)
		if most := t.race.affordable(); len(more) > most {
			more = spread(more, most)
		}
		if len(more) == 0 {
			break
		}
		field, err = t.race.halve(what, append(t.race.enter(more), field...))
	}
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(slices.Clone(field), func(c *contestant) bool { return c == t.base })
	if len(others) > 0 {
		if err := t.settle(of, o, others); err != nil {
			return err
		}
	}
	for spec := range t.of {
		if c := t.race.known[spec]; c != nil && len(c.runs) > 0 && c.err == nil {
			t.Tried++
		}
	}
	return nil
}

// near are the neighbours of the best configurations that have any.
func (t *tuner) near(field []*contestant, expanded map[string]bool) (more []string) {
	left := parents
	for _, c := range field {
		if left == 0 || expanded[c.Spec] {
			continue
		}
		expanded[c.Spec] = true
		near := t.specs(t.space.Neighbours(t.of[c.Spec]))
		near = slices.DeleteFunc(near, func(s string) bool { return slices.Contains(more, s) })
		if len(near) > 0 {
			more, left = append(more, near...), left-1
		}
	}
	return more
}

// settle picks the best of the last configurations with further seeds of the race, and simplifies it.
func (t *tuner) settle(of stats.Sampling, o Objective, field []*contestant) error {
	n := choiceSeeds
	if of == stats.OneWorkload {
		n = 1
	}
	scores := func(c *contestant) []float64 { return c.scores(n) }
	t.race.announce("simpler configuration")
	field, err := t.race.measure(field[:min(best, len(field))], n)
	if err != nil || len(field) == 0 {
		return err
	}
	pick := choose(of, o.fromPercent(tuneMargin), field, scores).pick
	if pick, err = t.simplify(pick, n, o); err != nil {
		return err
	}
	t.best, t.Best = pick, pick.Candidate
	for _, ch := range t.space.Changes(t.of[pick.Spec]) {
		i := slices.IndexFunc(t.space.Numbers, func(n epp.Number) bool { return n.Name() == ch.Name })
		number := t.space.Numbers[i]
		t.Changes = append(t.Changes, NumberChange{ch, number.Value, number.Missing})
	}
	return nil
}

// simplify takes back the changes without which the configuration is hardly worse: each alone, then all of them, or
// else the one that matters least.
func (t *tuner) simplify(pick *contestant, n int, o Objective) (*contestant, error) {
	p := t.of[pick.Spec]
	reverted := t.space.Reverted(p)
	if len(reverted) < 2 {
		return pick, nil
	}
	loss := func(c *contestant) float64 { return mean(c.scores(n)) - mean(pick.scores(n)) }
	fewer, base := slices.Clone(p), t.space.Base()
	var least *contestant
	for i := range p {
		if p[i] == base[i] {
			continue
		}
		one := slices.Clone(p)
		one[i] = base[i]
		c, err := t.scored(one, n)
		if err != nil {
			return nil, err
		}
		if c == nil {
			continue
		}
		if least == nil || loss(c) < loss(least) {
			least = c
		}
		if loss(c) <= o.fromPercent(dropMargin) {
			fewer[i] = base[i]
		}
	}
	all, err := t.scored(fewer, n)
	switch {
	case err != nil:
		return nil, err
	case all != nil && all != t.base && all != pick && loss(all) <= o.fromPercent(tuneMargin):
		return t.simplify(all, n, o)
	case least != nil && least != t.base && loss(least) <= o.fromPercent(dropMargin):
		return t.simplify(least, n, o)
	}
	return pick, nil
}

// scored is the contestant of a point with n runs, nil if it cannot run.
func (t *tuner) scored(p tune.Point, n int) (*contestant, error) {
	spec := t.spec(p)
	if t.race.known[spec] == nil {
		if specs := t.specs([]tune.Point{p}); len(specs) == 0 {
			return nil, nil
		}
		t.race.enter([]string{spec})
	}
	t.of[spec] = p
	field, err := t.race.measure([]*contestant{t.race.known[spec]}, n)
	if err != nil || len(field) == 0 {
		return nil, err
	}
	return field[0], nil
}

// judgeTuned compares the best configurations with what they come from, on the held-out seeds.
func (s *study) judgeTuned() {
	for _, t := range s.advice.Tuned {
		if t.best != nil && len(t.best.held) > 0 && len(t.base.held) > 0 {
			t.Diff = stats.PairedOf(s.sampling, scoresOf(t.best.held), scoresOf(t.base.held))
		}
	}
	slices.SortStableFunc(s.advice.Tuned, func(a, b *Tuned) int { return cmp.Compare(a.Diff.Mean, b.Diff.Mean) })
}

// TunedText describes the result of a search of a configuration.
func (a *Advice) TunedText(t *Tuned) string {
	name := cmp.Or(t.Config.File, "the default configuration")
	switch {
	case t.Best.Spec == "":
		return fmt.Sprintf("No better config found for %s: %d configurations give the same results.", name, t.Tried)
	case !t.Diff.HasInterval():
		return fmt.Sprintf("Config %s: the best of %d configurations changes the objective by %s. One saved "+
			"workload has no intervals, so whether it is better is unknown.", name, t.Tried, a.diff(t.Diff))
	case t.significant() && !t.Better():
		return fmt.Sprintf("No better config found for %s: the best of %d configurations changes the objective by %s "+
			"(negative is better; 95 %% interval, %s), which is less than --min-gain.", name, t.Tried, a.diff(t.Diff),
			a.seedsText())
	case !t.Better():
		return fmt.Sprintf("No better config found for %s: the best of %d configurations changes the objective by %s "+
			"(negative is better; 95 %% interval, %s), which is no significant gain.", name, t.Tried, a.diff(t.Diff),
			a.seedsText())
	}
	return fmt.Sprintf("Better config than %s: %s. It changes the objective by %s (negative is better; 95 %% interval, "+
		"%s). It is the best of %d configurations, chosen with other seeds.", name, t.changesText(), a.diff(t.Diff),
		a.seedsText(), t.Tried)
}

// changesText lists the changes.
func (t *Tuned) changesText() (text string) {
	for i, ch := range t.Changes {
		if i > 0 {
			text += ", "
		}
		if ch.Added {
			text += "add " + ch.Name + " with weight " + epp.FormatNumber(ch.Value)
		} else {
			text += ch.Name + " " + epp.FormatNumber(ch.From) + " -> " + epp.FormatNumber(ch.Value)
		}
	}
	return text
}

// Comment returns the comment lines for the top of the better configuration.
func (a *Advice) Comment(t *Tuned) []string {
	return []string{
		"lorasim advise: " + t.changesText(),
		fmt.Sprintf("Objective %s: %s against the file as it was (95 %% interval, %s)", a.Objective.Name,
			a.diff(t.Diff), a.seedsText()),
		"Workload: " + a.Scenario.Summary(),
	}
}
