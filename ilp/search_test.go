package ilp

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// eachState calls f on states that random changes lead to.
func eachState(t *testing.T, z size, f func(s *search, rng *rand.Rand)) {
	gen := problems(z)
	for seed := range 450 {
		p := gen.Example(seed)
		if len(p.Groups) == 0 {
			continue
		}
		s := newSearch(p, true, 0, uint64(seed))
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		for range 6 {
			for range 5 {
				s.perturb()
			}
			s.undo = s.undo[:0]
			if f(s, rng); t.Failed() {
				t.Fatalf("seed %d: %+v", seed, p)
			}
			s.rollback(0)
		}
	}
}

// evaluated is what the state amounts to by Evaluate, which shares no code with
// the search.
func evaluated(t *testing.T, s *search) Outcome {
	t.Helper()
	out, err := Evaluate(s.p, s.decode())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(1, math.Abs(b)) }

// The sums that a search keeps, and what it predicts of a shift, are what
// Evaluate says.
func TestShiftsAreAsPredicted(t *testing.T) {
	shifts := 0
	eachState(t, small, func(s *search, rng *rand.Rand) {
		out := evaluated(t, s)
		for w, want := range out.Busy {
			if !near(s.busy(w), want) {
				t.Errorf("worker %d is busy for %v, really %v", w, s.busy(w), want)
			}
		}
		if !near(s.objective(), out.Objective) || s.moves != out.Moves || s.loads != out.Loads {
			t.Errorf("objective %v, %d moves, %d loads, really %+v", s.objective(), s.moves, s.loads, out)
		}
		for range 10 {
			c, a, b := rng.Int32N(int32(len(s.classes))), rng.Int32N(int32(s.j)), rng.Int32N(int32(s.j))
			have := s.x[c].of(a)
			if a == b || have == 0 || !s.open(&s.classes[c], b) || !s.room(s.classes[c].adapter, b) {
				continue
			}
			n := 1 + rng.Int64N(have)
			na, nb, weights, moves := s.after(c, a, -n), s.after(c, b, n), s.weights(c, a, b, n),
				out.Moves+s.moved(c, a, b, n)
			if s.allowed(s.moved(c, a, b, n)) != (s.p.MaxMoves == 0 || moves <= int64(s.p.MaxMoves)) {
				t.Errorf("%d moves allowed or not, of %d", moves, s.p.MaxMoves)
			}
			if !s.allowed(s.moved(c, a, b, n)) {
				continue
			}
			mark := s.mark()
			s.shift(c, a, b, n)
			then := evaluated(t, s)
			if !near(na, then.Busy[a]) || !near(nb, then.Busy[b]) || moves != then.Moves ||
				math.Abs(weights-(then.Objective-then.T-out.Objective+out.T)) > 1e-9 {
				t.Errorf("predicted %v and %v busy, %d moves, %v of weights, really %+v after %+v", na, nb, moves,
					weights, then, out)
			}
			s.rollback(mark)
			shifts++
		}
	})
	if shifts < 1000 {
		t.Errorf("only %d shifts were tried", shifts)
	}
}

// swapFrom finds the best swap of all requests of two adapters, if one gains enough.
func TestSwapsAreTheBest(t *testing.T) {
	swaps, none := 0, 0
	eachState(t, size{workers: 2, adapters: 6, groups: 14, count: 3}, func(s *search, rng *rand.Rand) {
		if s.j < 2 {
			return
		}
		a := rng.Int32N(2)
		b := 1 - a
		best := s.margin(s.busy(int(a)))
		worth := s.busy(int(b)) < best
		found, pairs := math.Inf(1), 0
		for k := range int32(s.p.Adapters) {
			if worth && s.holds(k, a) && !s.holds(k, b) {
				if v, _ := s.block(s.holding(k, a), a, b); v != nil {
					pairs += len(s.on[b])
				}
			}
			for l := range int32(s.p.Adapters) {
				if !s.holds(k, a) || s.holds(k, b) || !s.holds(l, b) || s.holds(l, a) || !worth {
					continue
				}
				mark, open := s.mark(), true
				for c := range s.classes {
					from, to := a, b
					if s.classes[c].adapter == l {
						from, to = b, a
					} else if s.classes[c].adapter != k {
						continue
					}
					if n := s.x[c].of(from); n > 0 {
						open = open && s.open(&s.classes[c], to)
						s.shift(int32(c), from, to, n)
					}
				}
				if open && (s.p.MaxMoves == 0 || s.moves <= int64(s.p.MaxMoves)) {
					out := evaluated(t, s)
					found = math.Min(found, math.Max(out.Busy[a], out.Busy[b]))
				}
				s.rollback(mark)
			}
		}
		if math.Abs(found-best) < 1e-9 {
			return // rounding decides
		}
		before, mark := s.work, s.mark()
		did := s.swapFrom(a)
		if work := s.work - before; work != int64(pairs+s.mark()-mark) {
			t.Errorf("%d units of work, expected %d and %d shifts", work, pairs, s.mark()-mark)
		}
		if did != (found < best) {
			t.Errorf("swapped: %v, but the best swap leads from %v to %v", did, best, found)
		} else if did {
			swaps++
			if out := evaluated(t, s); !near(math.Max(out.Busy[a], out.Busy[b]), found) {
				t.Errorf("the swap leads to %v, the best one to %v", out.Busy, found)
			}
		} else {
			none++
		}
	})
	if swaps < 30 || none < 30 {
		t.Errorf("%d swaps and %d times none: the test shows little", swaps, none)
	}
}

// shiftFrom applies the shift with the largest gain, the first of equals, and counts all that there are, though it
// looks at few of them. What balance says of a shift is what after and weights say.
func TestShiftsAreTheBest(t *testing.T) {
	shifts, none := 0, 0
	eachState(t, size{workers: 4, adapters: 6, groups: 30, count: 6}, func(s *search, _ *rand.Rand) {
		for a := range int32(s.j) {
			best, work := shiftMove{}, int64(0)
			for i := range s.on[a] {
				k := s.on[a][i].adapter
				for _, c := range s.of[k] {
					have := s.x[c].of(a)
					for b := range int32(s.j) {
						if have == 0 || b == a || !s.room(k, b) || !s.open(&s.classes[c], b) {
							continue
						}
						g, to := s.giver(s.look(a, int32(i)), part{c, have}, a), s.taker(k, b, s.holds(k, b))
						m := s.balance(&g, &to, s.each(g.class, b))
						if work++; m.gain > best.gain {
							best = m
						}
						if m.n == 0 {
							continue
						}
						ta, tb, na, nb := s.busy(int(a)), s.busy(int(b)), s.after(c, a, -m.n), s.after(c, b, m.n)
						gain := ta*ta + tb*tb - na*na - nb*nb - s.weights(c, a, b, m.n)*ta
						if max(na, nb) >= ta || math.Abs(gain-m.gain) > 1e-9*ta*ta || m.n > have {
							t.Errorf("%+v, but it leads from %v and %v to %v and %v", m, ta, tb, na, nb)
						}
					}
				}
			}
			mark, before := s.mark(), s.work
			found := s.shiftFrom(a)
			if found != (best.n > 0) {
				t.Errorf("worker %d: shifted: %v, the best shift is %+v", a, found, best)
			}
			if found {
				shifts++
				if did := s.undo[mark]; did != (step{best.class, best.from, best.to, best.n}) {
					t.Errorf("shifted %+v, the best shift is %+v", did, best)
				}
				work++ // the shift
			} else {
				none++
			}
			if s.work-before != work {
				t.Errorf("%d units of work, expected %d", s.work-before, work)
			}
			s.rollback(mark)
		}
	})
	if shifts < 300 || none < 300 {
		t.Errorf("%d shifts and %d times none: the test shows little", shifts, none)
	}
}

// Every step away from the busiest worker leaves a feasible state in which that
// worker, and any that it touches, is less busy than it was.
func TestStepsRelieve(t *testing.T) {
	steps := map[string]int{}
	eachState(t, small, func(s *search, _ *rand.Rand) {
		for name, step := range map[string]func(int32) bool{
			"shift": s.shiftFrom, "swap": s.swapFrom,
		} {
			a, before := s.top()
			mark := s.mark()
			if step(int32(a)) {
				steps[name]++
				out := evaluated(t, s)
				for _, u := range s.undo[mark:] {
					if out.Busy[a] >= before || out.Busy[u.to] >= before {
						t.Errorf("%s from worker %d, busy for %v, leads to %v", name, a, before, out.Busy)
					}
				}
			} else if s.mark() != mark {
				t.Errorf("%s has found nothing and changed something", name)
			}
			s.rollback(mark)
		}
	})
	for _, name := range []string{"shift", "swap"} {
		if steps[name] < 20 {
			t.Errorf("only %d times %s", steps[name], name)
		}
	}
}

// In other units of time the same problem has the same solution. A factor of a
// power of two changes no rounding.
func TestUnitsOfTime(t *testing.T) {
	const unit = 1.0 / (1 << 16)
	gen := problems(small)
	for seed := range 40 {
		p := gen.Example(seed)
		q := *p
		q.Workers, q.Groups, q.Load = append([]Worker{}, p.Workers...), append([]Group{}, p.Groups...),
			append([]float64(nil), p.Load...)
		for j := range q.Workers {
			q.Workers[j].Base *= unit
		}
		for i := range q.Groups {
			q.Groups[i].Work *= unit
			q.Groups[i].Move *= unit
		}
		for i := range q.Load {
			q.Load[i] *= unit
		}
		q.PageRate, q.MoveWeight, q.LoadWeight = p.PageRate/unit, p.MoveWeight*unit, p.LoadWeight*unit
		b := Budget{Seed: 1, Work: 8000}
		x, err := Embedded{}.Solve(context.Background(), p, b)
		if err != nil {
			t.Fatal(err)
		}
		y, err := Embedded{}.Solve(context.Background(), &q, b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(x.Flows, y.Flows) || x.Objective*unit != y.Objective || x.Work != y.Work {
			t.Errorf("seed %d: objective %v, in other units %v (work %d and %d)", seed, x.Objective, y.Objective/unit,
				x.Work, y.Work)
		}
	}
}

// Relieving a worker of 3 requests of 2 s at 1 each, then of 2 of 1 s at 5 each.
func TestCurve(t *testing.T) {
	p := &Problem{Groups: []Group{{Count: 2, Work: 1, Move: 5}, {Count: 3, Work: 2, Move: 1}}}
	c := newCurve(p, []int32{0, 1}, func(g *Group) float64 { return g.Move })
	for work, want := range map[float64]float64{0: 0, 3: 1.5, 6: 3, 7: 8, 8: 13, 100: 13} {
		if got := c.at(work); !near(got, want) {
			t.Errorf("%v s cost %v, expected %v", work, got, want)
		}
	}
}

// LowerBound by hand. Four requests of 2 s are on one of two workers.
func TestLowerBoundByHand(t *testing.T) {
	problem := func(change func(*Problem)) *Problem {
		p := &Problem{Adapters: 1, Workers: []Worker{{Slots: 1}, {Slots: 1}}, Groups: []Group{{Count: 4, Work: 2}}}
		change(p)
		return p
	}
	for _, c := range []struct {
		name   string
		change func(*Problem)
		want   float64
	}{
		{"evenly", func(*Problem) {}, 4},
		{"one may move", func(p *Problem) { p.MaxMoves = 1 }, 6},
		{"one may move, none counts", func(p *Problem) { p.MaxMoves, p.Groups[0].Virtual = 1, true }, 4},
		{"moves at 1 s: 8 - 2x = (2 + 1) x", func(p *Problem) { p.Groups[0].Move = 1 }, 4.8},
		{"moves that weigh 0.5 s", func(p *Problem) { p.MoveWeight = 0.5 }, 4 + 2*0.5},
		{"moves that weigh more than they gain", func(p *Problem) { p.MoveWeight = 3 }, 8},
		{"10 pages too many, 2 s of them", func(p *Problem) {
			p.PageRate, p.Groups[0].Pages, p.Workers[0].Pages, p.Workers[1].Pages = 5, 5, 3, 7
		}, 5},
		{"room for all pages", func(p *Problem) {
			p.PageRate, p.Groups[0].Pages, p.Workers[0].Pages, p.Workers[1].Pages = 5, 5, 3, 17
		}, 4},
		{"a base", func(p *Problem) { p.Workers[1].Base = 7 }, 7.5},
		{"a base above all", func(p *Problem) { p.Workers[1].Base = 9 }, 9},
		{"the other thrice as fast", func(p *Problem) { p.Workers[1].Speed = 3 }, 2},
		{"one request, which takes (4 + 1)/2 on the fastest", func(p *Problem) {
			p.Workers[0].Speed, p.Workers[1].Speed, p.Groups[0] = 0.5, 2, Group{Count: 1, Work: 4, Move: 1}
		}, 2.5},
		{"the fastest is closed", func(p *Problem) {
			p.Workers[0].Speed, p.Workers[1].Speed, p.Workers[1].Closed, p.Groups[0] = 0.5, 2, true,
				Group{Count: 1, Work: 4, Move: 1}
		}, 8},
	} {
		if got := LowerBound(problem(c.change)); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%s: %v, expected %v", c.name, got, c.want)
		}
	}
}
