package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"lorasim/internal/parallel"
)

// errSpent ends runs that begin after the budget was spent.
var errSpent = errors.New("the budget is spent")

// mustStop is why the search may begin no further run: the end of its context, or a spent budget; nil: it may.
func (s *search) mustStop() error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if s.spent.Load() >= s.budget() {
		return errSpent
	}
	return nil
}

// firstPace is the assumed processor time per simulated request before it is known.
const firstPace = 10 * time.Microsecond

// budget is the number of requests that the search may simulate in all. With a budget of processor time it follows the
// pace of the runs so far.
func (s *search) budget() int64 {
	if s.opt.CPU == 0 {
		return s.opt.Budget
	}
	spent, used := s.spent.Load(), s.opt.Used()-s.begun
	pace := float64(firstPace)
	if spent > 0 {
		pace = float64(max(used, 1)) / float64(spent)
	}
	return spent + int64(float64(max(s.opt.CPU-used, 0))/pace)
}

// note passes a line of text to Options.Note.
func (s *search) note(form string, args ...any) {
	if s.opt.Note != nil {
		s.opt.Note(fmt.Sprintf(form, args...))
	}
}

// A guess is the number of workers of a kind, by short runs.
type guess struct {
	Candidate     // Workers is the median over the runs
	low, high int // over the runs, at least one to either side
}

const (
	// guessRequests is the length of a run of a guess, half of it warm-up.
	guessRequests = 4000
	// guessSeeds is the number of seeds of a guess, if there is one kind.
	guessSeeds = 3
	// guessLimit is the number of requests after which no further guess begins.
	guessLimit = 200_000
)

// guess estimates the fewest workers of each kind by short runs, and notes the cheapest. It is skipped for workloads
// that cannot be shortened.
func (s *search) guess() error {
	if s.plan.fixed != "" {
		return nil
	}
	kinds := s.opt.all()
	seeds := max(guessSeeds/len(kinds), 1)
	fewest := make([]int, seeds*len(kinds)) // by kind and seed; 0: not known
	one := func(i, from int) error {
		if s.spent.Load() > guessLimit { // the guess is the first to spend
			return nil
		}
		kind, seed := kinds[i/seeds], s.seed(forGuess, i%seeds)
		w, err := gallop(from, s.opt.MaxWorkers, func(w int) (bool, error) {
			ok, err := s.holds(kind.with(w), 1, seed, half(guessRequests))
			if s.cannotBe(kind.with(w), err) {
				return false, nil
			}
			return ok, err
		})
		if err == nil {
			fewest[i] = w
		}
		return nil // what is wrong with a kind is said by the search
	}
	// The first run looks from one worker on, the others around what it finds.
	if err := one(0, 1); err != nil {
		return err
	}
	near := 1
	if w := fewest[0]; w > 0 && w <= s.opt.MaxWorkers {
		if near = w; len(kinds) > 1 {
			s.note("about %s, by one short run", kinds[0].with(w))
		}
	}
	err := parallel.Do(s.ctx, len(fewest)-1, func(i int) error { return one(i+1, near) }, nil)
	if err != nil {
		return err
	}
	for k, kind := range kinds {
		of := slices.DeleteFunc(slices.Clone(fewest[k*seeds:(k+1)*seeds]), func(w int) bool {
			return w == 0 || w > s.opt.MaxWorkers
		})
		if slices.Sort(of); len(of) > 0 {
			mid := of[len(of)/2]
			s.guesses = append(s.guesses, guess{kind.with(mid), max(min(of[0], mid-1), 1), max(of[len(of)-1], mid+1)})
		}
	}
	if g := s.guessed(); g != nil {
		s.note("about %s (%d to %d), by short runs", g.Candidate, g.low, g.high)
	}
	return nil
}

// guessed is the cheapest guess; nil: there is none.
func (s *search) guessed() *guess {
	if len(s.guesses) == 0 {
		return nil
	}
	g := slices.MinFunc(s.guesses, func(a, b guess) int {
		return cmp.Compare(s.opt.cost(a.Candidate), s.opt.cost(b.Candidate))
	})
	return &g
}

// soFar is the best that is known of a search that must stop: the cheapest accepted candidate, else the cheapest that
// is undecided after some runs, else the cheapest that held in one run, else a guess; nil: nothing is known.
func (s *search) soFar() *Tried {
	var best *Tried
	for _, t := range s.judged {
		if t.Attainment.N == 0 || !t.Holds && t.Decision != Undecided {
			continue
		}
		if best == nil || t.Holds && !best.Holds || t.Holds == best.Holds && s.prefers(t.Candidate, best.Candidate) {
			best = t
		}
	}
	if best != nil {
		return best
	}
	for c, ok := range s.first {
		if t := s.judged[c]; ok && (t == nil || t.Attainment.N == 0) && (best == nil || s.prefers(c, best.Candidate)) {
			best = &Tried{Candidate: c, Decision: Undecided, Size: s.plan.size()}
		}
	}
	if g := s.guessed(); best == nil && g != nil {
		best = &Tried{Candidate: g.Candidate, Decision: Undecided, Size: half(guessRequests)}
	}
	return best
}

// prefers reports whether a comes before b: it costs less, or as much and is listed before.
func (s *search) prefers(a, b Candidate) bool {
	if x, y := s.opt.cost(a), s.opt.cost(b); x != y {
		return x < y
	}
	kinds := s.opt.all()
	return slices.Index(kinds, a.with(0)) < slices.Index(kinds, b.with(0))
}
