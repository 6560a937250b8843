// Package advise recommends a policy and its options for a workload. It simulates all candidates on the same requests
// and states a verdict.
//
//	a, err := advise.Find(ctx, &sc, advise.Options{Objective: objective, Seeds: 20})
//	err = a.WriteText(os.Stdout)
//
// # Method
//
//   - Length: runs of generated workloads are lengthened until the best of some plain policies is steady or
//     overloaded.
//   - Race: successive halving. All policies run with the same two seeds. The worse half drops out, and the rest run
//     with twice as many seeds. Then the options of the three best are changed, one at a time, and these candidates
//     join the race, up to three times.
//   - Configurations of endpoint pickers (tune.go): for each given configuration, successive halving of random weights
//     and thresholds, then of the neighbours of the best. Changes that do not help are undone. The best result joins
//     the finalists beside the unchanged configuration.
//   - Choice: the finalists, the scenario's own policy and the plain policies run with further seeds. The choice is the
//     simplest candidate that is neither significantly worse than the best nor worse by a margin.
//   - Verdict: held-out seeds, not used in the choice, give the metrics and the paired tests. If another finalist is
//     significantly better there, these seeds are no longer held out, and the choice and its verdict are repeated.
//   - Worst scenario: single settings of the scenario are changed, then pairs of the worst changes. The scenario where
//     the recommendation loses most is measured on held-out seeds.
package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"lorasim/bench/result"
	"lorasim/bench/scenario"
	"lorasim/bench/stats"
	"lorasim/bench/steady"
	"lorasim/router"
	"lorasim/trace/settings"
)

// plainPolicies lists the plain policies. Every recommendation is compared with them.
var plainPolicies = []string{"static", "least-loaded"}

// Options are the options of [Find].
type Options struct {
	Objective Objective
	SLO       result.SLO // required by the objective goodput
	Policies  []string   // specs to race; nil: all policies
	Search    bool       // also search the options of the best, and the configurations of endpoint pickers
	Add       []string   // types of scorers to add in the search of a configuration
	Worst     bool       // also search for the worst scenario
	MinGain   float64    // smallest difference that counts, % (points with goodput)
	Budget    int64      // approximate number of requests to simulate; 0: DefaultBudget
	Seeds     int        // held-out seeds of the verdict
	// Progress, if not nil, is called with the number of finished runs of each phase.
	Progress func(phase string, done, total int64)
}

// DefaultBudget is the default number of requests that a study simulates.
const DefaultBudget = 10_000_000

const (
	// leastLength is the number of requests of the first pilot runs, and lengthShare the
	// smallest number of runs that the budget must have for longer ones.
	leastLength, lengthShare = 2000, 1000
	// raceShare is the share of the budget for the race, and choiceShare that for race
	// and choice.
	raceShare, choiceShare = 0.5, 0.6
	// choiceSeeds is the number of seeds of the choice, which doubles up to
	// mostChoiceSeeds as long as more seeds may change it.
	choiceSeeds, mostChoiceSeeds = 16, 32
	// attempts is how often a choice is made before fresh seeds must not contradict it.
	attempts   = 3
	pilotSeeds = 2
)

// A Finalist is a candidate with its metrics on held-out seeds.
type Finalist struct {
	Candidate
	Roles                               []string // such as "default"
	TTFT, P99TTFT, E2E, Good, Completed stats.Estimate
	Regret                              stats.Estimate // excess of mean E2E over the lower bound, as a share of it
	// Diff is the score minus the score of the recommended candidate, paired by seed. P is the p-value of the paired
	// t-test, with Holm's correction.
	Diff  stats.Estimate
	P     float64
	Worse bool // P is below stats.Level
	steady.Stationarity
}

// A Skipped is a candidate that could not run, with the reason.
type Skipped struct{ Spec, Why string }

// Advice is the result of [Find].
type Advice struct {
	Options
	Scenario    scenario.Scenario // with the length of the runs
	Sampling    stats.Sampling
	Requests    int64 // requests of one run; 0: unknown
	Chosen      bool  // Find chose the length of the runs
	Raced       int   // candidates, including those with changed options
	Skipped     []Skipped
	Rounds      []Round
	ChoiceSeeds int
	// Finalists are the recommended candidate, then the others, best first.
	Finalists []*Finalist
	// Confirmed: the figures come from held-out seeds, not used in the choice. Attempts is the number of choices until
	// then.
	Confirmed bool
	Attempts  int
	Worst     *Worst // nil: not searched
	// Tuned are the searches of endpoint pickers' configurations, largest gain first.
	Tuned []*Tuned
	Spent int64 // requests simulated
}

// recommended returns the recommended candidate.
func (a *Advice) recommended() *Finalist { return a.Finalists[0] }

// Check returns an error if an option is invalid.
func (o *Options) Check() error {
	if o.Objective.Goodput && o.SLO.Empty() {
		return errors.New("--objective goodput needs an SLO, as in --goodput \"ttft:500 tpot:50\"")
	}
	for _, spec := range o.Policies {
		if err := router.CheckSpec(spec); err != nil {
			return err
		}
	}
	return nil
}

// study is one search for advice.
type study struct {
	lab
	opt      Options
	sc       scenario.Scenario
	sampling stats.Sampling
	can      func(spec string) error
	advice   *Advice
	phase    string
}

// Find runs the candidates in the base scenario and recommends one.
func Find(ctx context.Context, base *scenario.Scenario, o Options) (*Advice, error) {
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	sc := *base
	first, err := sc.First(ctx)
	if err != nil {
		return nil, err
	}
	s := &study{opt: o, sc: sc, sampling: sc.Sampling(), advice: &Advice{Options: o}}
	s.ctx, s.slo, s.objective, s.seed = ctx, o.SLO, o.Objective, sc.Seed
	s.single = s.sampling == stats.OneWorkload
	s.progress = func(done, total int64) {
		if o.Progress != nil {
			o.Progress(s.phase, done, total)
		}
	}
	s.can = func(spec string) error {
		own, err := Candidate{spec}.apply(s.sc)
		if err != nil {
			return err
		}
		return own.Check(ctx, first)
	}
	if err := s.find(); err != nil {
		return nil, err
	}
	s.advice.Scenario, s.advice.Sampling, s.advice.Spent = s.sc, s.sampling, s.spent.Load()
	return s.advice, nil
}

// find runs the phases of the search.
func (s *study) find() error {
	a := s.advice
	specs := s.specs()
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if len(specs) == 0 {
		return fmt.Errorf("no policy can run here: %s: %s", a.Skipped[0].Spec, a.Skipped[0].Why)
	}
	if err := s.length(specs); err != nil {
		return err
	}
	first, most := 2, 8
	if s.single {
		first, most = 1, 1
	}
	tunes := s.opt.Search && len(s.opt.pickers(s.sc.Routing.Policy.String())) > 0
	share := raceShare
	if tunes {
		share = raceShareTuned
	}
	r := &race{sample: s.sampler(s.sc, 0, false), first: first, most: most, left: s.left(share),
		phase: func(what string) { s.phase = what }}
	field, err := r.run(specs, s.opt.Search, func(spec string) bool { return s.can(spec) == nil })
	if err != nil {
		return err
	}
	for _, c := range r.failed {
		a.Skipped = append(a.Skipped, Skipped{c.Spec, c.err.Error()})
	}
	if len(field) == 0 {
		return fmt.Errorf("no policy can run here: %s: %w", r.failed[0].Spec, r.failed[0].err)
	}
	a.Rounds = r.rounds
	field = s.withReferences(r, field)
	if tunes {
		tuned, err := s.tune(r)
		if err != nil {
			return err
		}
		field = append(field, tuned...)
	}
	a.Raced = len(r.known)
	s.phase = "choice"
	if err := s.decide(r, field); err != nil {
		return err
	}
	s.judgeTuned()
	if !s.opt.Worst {
		return nil
	}
	return s.worst()
}

// specs are the policies that can run here.
func (s *study) specs() (specs []string) {
	names := s.opt.Policies
	if names == nil {
		names = append(allPolicies(), s.sc.Routing.Policy.String())
	}
	for _, spec := range names {
		if spec = canonical(spec); slices.Contains(specs, spec) {
			continue
		}
		if err := s.can(spec); err != nil {
			s.advice.Skipped = append(s.advice.Skipped, Skipped{spec, err.Error()})
			continue
		}
		specs = append(specs, spec)
	}
	return specs
}

// left is the number of runs that a share of the budget still allows.
func (s *study) left(share float64) func() int64 {
	return func() int64 {
		return (int64(share*float64(s.opt.Budget)) - s.spent.Load()) / max(s.advice.Requests, 1)
	}
}

// length chooses the length of the runs, unless the scenario sets it. It doubles the length until the best of the
// plain policies and the scenario's own policy is steady or overloaded, or the budget allows no more.
func (s *study) length(specs []string) error {
	w := &s.sc.Workload
	generated := w.File == "" && !w.UseTrace && w.TracePath == "" && !w.TraceHistogram.Given()
	open := generated && !w.NumPrompts.Given && w.Window == 0
	var wants []want
	for _, spec := range append(slices.Clone(plainPolicies), canonical(s.sc.Routing.Policy.String())) {
		if slices.Contains(specs, spec) {
			wants = append(wants, want{Candidate{spec}, 0, pilotSeeds})
		}
	}
	if len(wants) == 0 {
		wants = []want{{Candidate{specs[0]}, 0, pilotSeeds}}
	}
	s.advice.Chosen = open
	for n := int64(leastLength); ; n *= 2 {
		if open {
			w.NumPrompts = settings.Some(n)
		}
		s.phase = "length of runs"
		before := s.spent.Load()
		figures, err := s.sampler(s.sc, 0, false)(forSearch, wants)
		if err != nil {
			return err
		}
		runs := 0
		for _, list := range figures {
			for _, f := range list {
				if f.Err == nil {
					runs++
				} else if err == nil {
					err = f.Err
				}
			}
		}
		if runs == 0 {
			return err
		}
		s.advice.Requests = max((s.spent.Load()-before)/int64(runs), 1)
		if !open || 2*n*lengthShare > s.opt.Budget || settledLength(figures) {
			return nil
		}
	}
}

// settledLength reports whether the best of some candidates is not transient.
func settledLength(figures [][]Figures) bool {
	best := slices.MinFunc(figures, func(a, b []Figures) int {
		return cmp.Compare(mean(scoresOf(a)), mean(scoresOf(b)))
	})
	return stationarity(best).State != steady.Transient
}

func stationarity(runs []Figures) steady.Stationarity {
	return result.StationarityOf(func(name string) []float64 {
		out := make([]float64, len(runs))
		for i := range runs {
			out[i] = result.ValueOf(runs[i].Steady, name)
		}
		return out
	})
}

// withReferences adds the policies that every recommendation is compared with, as far
// as they are in the race.
func (s *study) withReferences(r *race, field []*contestant) []*contestant {
	own := canonical(s.sc.Routing.Policy.String())
	for _, spec := range slices.Concat(s.opt.pickers(own), []string{own}, plainPolicies) {
		if c := r.known[spec]; c != nil && c.err == nil && !slices.Contains(field, c) {
			field = append(field, c)
		}
	}
	return field
}
