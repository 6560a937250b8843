package advise

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"lorasim/bench/stats"
)

const (
	// keep is the number of candidates that a race leaves, and best the number of those,
	// and of the policies as they are, that become finalists.
	keep, best = 6, 3
	// parents is the number of leaders whose options are searched at a time, and
	// searches how often.
	parents, searches = 3, 3
)

// contestant is a candidate in the race.
type contestant struct {
	Candidate
	runs []Figures // with the seeds of the race, from the first on
	held []Figures // with the seeds of the verdict
	err  error     // why it cannot run
}

// scores are those of the first n runs.
func (c *contestant) scores(n int) []float64 { return scoresOf(c.runs[:n]) }

func scoresOf(runs []Figures) []float64 {
	out := make([]float64, len(runs))
	for i := range runs {
		out[i] = runs[i].Score
	}
	return out
}

func mean(xs []float64) (sum float64) {
	for _, x := range xs {
		sum += x / float64(len(xs))
	}
	return sum
}

// A Round is one round of the race.
type Round struct {
	What  string // "policies", or "options"
	Seeds int    // per candidate
	// Entries are the candidates, best first.
	Entries []Entry
}

// An Entry is a candidate in a round.
type Entry struct {
	Spec  string
	Worse float64 // mean score minus the best mean score of the round
	Kept  bool
}

// race finds the finalists by successive halving: all candidates see the same few
// seeds, the worse half leaves, and the others see more seeds.
type race struct {
	sample sampler
	// first is the number of seeds of the first round; each further round has twice as
	// many, up to most.
	first, most int
	left        func() int64      // runs that the budget still allows; nil: any number
	phase       func(what string) // told what goes on; nil: nobody listens
	rounds      []Round
	known       map[string]*contestant
	failed      []*contestant
}

// enter makes contestants of specs that have not been in the race.
func (r *race) enter(specs []string) (out []*contestant) {
	if r.known == nil {
		r.known = map[string]*contestant{}
	}
	for _, spec := range specs {
		if spec = canonical(spec); r.known[spec] == nil {
			c := &contestant{Candidate: Candidate{spec}}
			r.known[spec] = c
			out = append(out, c)
		}
	}
	return out
}

// measure gives contestants at least n runs, and takes out those that cannot run.
func (r *race) measure(field []*contestant, n int) ([]*contestant, error) {
	var wants []want
	var of []*contestant
	for _, c := range field {
		if len(c.runs) < n {
			wants, of = append(wants, want{c.Candidate, len(c.runs), n}), append(of, c)
		}
	}
	figures, err := r.sample(forRace, wants)
	if err != nil {
		return nil, err
	}
	for i, c := range of {
		for _, f := range figures[i] {
			if f.Err != nil && c.err == nil {
				c.err = f.Err
				r.failed = append(r.failed, c)
			}
		}
		c.runs = append(c.runs, figures[i]...)
	}
	return slices.DeleteFunc(slices.Clone(field), func(c *contestant) bool { return c.err != nil }), nil
}

// halve runs rounds until few enough contestants are left, the best first.
func (r *race) halve(what string, field []*contestant) ([]*contestant, error) {
	for n := r.first; ; n = min(2*n, r.most) {
		r.announce(fmt.Sprintf("%s, round %d: %d candidates", what, len(r.rounds)+1, len(field)))
		var err error
		if field, err = r.measure(field, n); err != nil {
			return nil, err
		}
		field = distinct(field, n)
		slices.SortStableFunc(field, func(a, b *contestant) int {
			return cmp.Compare(mean(a.scores(n)), mean(b.scores(n)))
		})
		left := field
		if len(field) > keep {
			left = field[:max(keep, (len(field)+1)/2)]
		}
		r.note(what, field, len(left), n)
		if len(field) <= keep {
			return field, nil
		}
		field = left
	}
}

// announce reports the current phase.
func (r *race) announce(what string) {
	if r.phase != nil {
		r.phase(what)
	}
}

// note writes a round down.
func (r *race) note(what string, field []*contestant, left, n int) {
	round := Round{What: what, Seeds: n}
	for i, c := range field {
		round.Entries = append(round.Entries, Entry{c.Spec, mean(c.scores(n)) - mean(field[0].scores(n)), i < left})
	}
	r.rounds = append(r.rounds, round)
}

// distinct leaves of contestants with the same scores in all of n runs the simplest.
func distinct(field []*contestant, n int) (out []*contestant) {
	for _, c := range field {
		i := slices.IndexFunc(out, func(o *contestant) bool { return slices.Equal(o.scores(n), c.scores(n)) })
		switch {
		case i < 0:
			out = append(out, c)
		case simpler(c.Candidate, out[i].Candidate) < 0:
			out[i] = c
		}
	}
	return out
}

// run races the candidates, then the options of the best. can reports whether a spec can run at all. The finalists are
// the best of the race, and the best policies with unchanged options: variants of one policy would leave no room for
// others.
func (r *race) run(specs []string, search bool, can func(spec string) bool) ([]*contestant, error) {
	field, err := r.halve("policies", r.enter(specs))
	policies := field
	expanded := map[string]bool{}
	for range searches {
		if err != nil || !search {
			break
		}
		more := r.search(field, expanded, can)
		if most := r.affordable(); len(more) > most {
			more = spread(more, most)
		}
		if len(more) == 0 {
			break
		}
		field, err = r.halve("options", append(r.enter(more), field...))
	}
	if err != nil {
		return nil, err
	}
	finalists := slices.Clone(field[:min(best, len(field))])
	for _, c := range policies[:min(best, len(policies))] {
		if c.err == nil && !slices.Contains(finalists, c) {
			finalists = append(finalists, c)
		}
	}
	return finalists, nil
}

// search are the neighbours of the best contestants that have any, as far as they were
// not in the race.
func (r *race) search(field []*contestant, expanded map[string]bool, can func(spec string) bool) (more []string) {
	left := parents
	for _, c := range field {
		if left == 0 {
			break
		}
		if expanded[c.Spec] {
			continue
		}
		expanded[c.Spec] = true
		near := slices.DeleteFunc(neighbours(c.Spec), func(s string) bool {
			return r.known[canonical(s)] != nil || slices.Contains(more, s) || !can(s)
		})
		if len(near) > 0 {
			more, left = append(more, near...), left-1
		}
	}
	return more
}

// affordable is the number of candidates for which the budget has enough runs left: a
// race costs each of them at most about twice the runs of its first round, and those
// that it leaves the runs of the last.
func (r *race) affordable() int {
	if r.left == nil {
		return math.MaxInt
	}
	return int(max(r.left()-int64(keep*r.most), 0) / int64(2*r.first))
}

// spread takes n of a list, evenly.
func spread(list []string, n int) (out []string) {
	for i := range n {
		out = append(out, list[i*len(list)/n])
	}
	return out
}

// choice is what the runs of the race say about the finalists.
type choice struct {
	pick *contestant
	// alike are those that are not significantly worse than the best, which is among
	// them.
	alike []*contestant
	// settled: more seeds would hardly change the choice.
	settled bool
}

// choose returns the simplest candidate that is neither significantly worse than the best nor worse by more than
// margin.
func choose(of stats.Sampling, margin float64, field []*contestant, scores func(*contestant) []float64) choice {
	top := slices.MinFunc(field, func(a, b *contestant) int { return cmp.Compare(mean(scores(a)), mean(scores(b))) })
	if len(field) == 1 {
		return choice{top, field, true}
	}
	cs := make([]stats.Candidate, len(field))
	for i, c := range field {
		cs[i] = stats.Candidate{Name: c.Spec, Values: scores(c)}
	}
	v := stats.Judge("score", stats.Lower, of, cs)
	worse := map[string]bool{}
	for _, o := range v.Others {
		worse[o.Name] = o.Worse
	}
	ch := choice{pick: top, settled: true}
	for _, c := range field {
		if worse[c.Spec] {
			continue
		}
		ch.alike = append(ch.alike, c)
		d := stats.PairedOf(of, scores(c), scores(top))
		if d.Mean <= margin && simpler(c.Candidate, ch.pick.Candidate) < 0 {
			ch.pick = c
		}
		if c != top && !(d.High <= margin) { // it may be worse by more than the margin
			ch.settled = false
		}
	}
	return ch
}
