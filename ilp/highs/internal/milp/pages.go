package milp

import (
	"math"

	"lorasim/ilp"
)

// settler swaps requests that are alike but for their pages, to lower the
// overflow of the busiest worker.
type settler struct {
	p      *ilp.Problem
	counts []int64   // by group and worker
	load   []float64 // without overflow
	pages  []float64
}

// exchange is n requests of group g on worker a for as many of group h on b.
type exchange struct {
	g, h int32
	a, b int
	n    int64
	peak float64 // how busy the busier of the two is afterwards
}

// settlePages makes exchanges while they help. Each lowers the busiest worker,
// none adds a move.
func settlePages(p *ilp.Problem, kinds []kind, counts []int64) {
	out, err := ilp.Evaluate(p, flowsOf(counts, len(p.Workers)))
	if err != nil {
		return // whoever decodes will find out, too
	}
	s := newSettler(p, counts, out.Busy)
	for range 1000 + 10*len(p.Groups) {
		a := 0
		for j := range s.load {
			if s.busy(j) > s.busy(a) {
				a = j
			}
		}
		if s.pages[a] <= p.Workers[a].Pages {
			return
		}
		best := exchange{peak: s.busy(a) * (1 - 1e-9)}
		for i := range kinds {
			s.improve(&kinds[i], a, &best)
		}
		if best.n == 0 {
			return
		}
		s.apply(best)
	}
}

func newSettler(p *ilp.Problem, counts []int64, busy []float64) *settler {
	n := len(p.Workers)
	s := &settler{p: p, counts: counts, load: make([]float64, n), pages: make([]float64, n)}
	for i, c := range counts {
		s.pages[i%n] += float64(c) * p.Groups[i/n].Pages
	}
	for j := range s.load {
		s.load[j] = busy[j] - s.over(j, 0)
	}
	return s
}

// over is a worker's overflow, in s, with some pages more.
func (s *settler) over(j int, more float64) float64 {
	return math.Max(0, s.pages[j]+more-s.p.Workers[j].Pages) / s.p.PageRate
}

func (s *settler) busy(j int) float64 { return s.load[j] + s.over(j, 0) }

func (s *settler) at(g int32, j int) *int64 { return &s.counts[int(g)*len(s.load)+j] }

// improve finds the best exchange of requests of a kind from worker a for ones
// with the fewest pages from any other.
func (s *settler) improve(k *kind, a int, best *exchange) {
	for b := range s.load {
		if b == a {
			continue
		}
		h := none
		for _, m := range k.members {
			if *s.at(m, b) > 0 && (h == none || s.p.Groups[m].Pages < s.p.Groups[h].Pages) {
				h = m
			}
		}
		if h == none {
			continue
		}
		for _, g := range k.members {
			if *s.at(g, a) > 0 && s.p.Groups[g].Pages > s.p.Groups[h].Pages {
				if e := s.try(g, h, a, b); e.peak < best.peak {
					*best = e
				}
			}
		}
	}
}

// try evaluates the exchange of as many requests as the overflow asks for.
func (s *settler) try(g, h int32, a, b int) exchange {
	x, y := &s.p.Groups[g], &s.p.Groups[h]
	more := moved(x, b)+moved(y, a) > moved(x, a)+moved(y, b)
	if more || s.shut(x, b) || s.shut(y, a) {
		return exchange{peak: inf}
	}
	less := x.Pages - y.Pages
	want := math.Ceil((s.pages[a] - s.p.Workers[a].Pages) / less)
	n := min(*s.at(g, a), *s.at(h, b))
	if want < float64(n) {
		n = max(1, int64(want))
	}
	da, db := s.change(x, y, a), s.change(y, x, b)
	na := s.load[a] + float64(n)*da + s.over(a, -float64(n)*less)
	nb := s.load[b] + float64(n)*db + s.over(b, float64(n)*less)
	return exchange{g: g, h: h, a: a, b: b, n: n, peak: math.Max(na, nb)}
}

// shut says whether a group may not come to a worker.
func (s *settler) shut(g *ilp.Group, j int) bool {
	return s.p.Workers[j].Closed && int(g.Worker) != j
}

// change is how a worker's load changes when it gives a request for another.
func (s *settler) change(gives, gets *ilp.Group, j int) float64 {
	change := moved(gets, j)*gets.Move - moved(gives, j)*gives.Move
	if speed := s.p.Workers[j].Speed; speed > 0 {
		change /= speed
	}
	return change
}

// moved is 1 for a group that is not at home on a worker.
func moved(g *ilp.Group, j int) float64 {
	if int(g.Worker) == j {
		return 0
	}
	return 1
}

func (s *settler) apply(e exchange) {
	x, y := &s.p.Groups[e.g], &s.p.Groups[e.h]
	n := float64(e.n)
	s.load[e.a] += n * s.change(x, y, e.a)
	s.load[e.b] += n * s.change(y, x, e.b)
	s.pages[e.a] -= n * (x.Pages - y.Pages)
	s.pages[e.b] += n * (x.Pages - y.Pages)
	*s.at(e.g, e.a) -= e.n
	*s.at(e.g, e.b) += e.n
	*s.at(e.h, e.b) -= e.n
	*s.at(e.h, e.a) += e.n
}
