package milp

import (
	"math"

	"lorasim/ilp"
)

// Flow is the problem exactly as package ilp has it. To the columns of [Totals]
// it adds how many requests of each group are on each worker, f_gj:
//
//	sum_j f_gj = n_g
//	sum_g f_gj = n_sj - o_sj         over the groups of s that are on j
//	sum_g f_gj = i_sj                over the groups of s that are elsewhere
//	PageRate z_j >= sum_g f_gj Pages_g - Pages_j
//
// Solvers get on better with it than with f alone: time, slots and moves depend
// on a few totals instead of many interchangeable counts, and the bound is as
// good.
type Flow struct {
	*Totals
	count [][]int32 // column by group and worker, none where it may not be
}

// NewFlow returns the formulation. Where pages do not matter it is Totals.
func NewFlow(p *ilp.Problem) (Form, error) {
	if p.PageRate == 0 {
		return NewTotals(p)
	}
	if err := checkSize("flow", int64(3*len(p.Groups)+p.Adapters)*int64(len(p.Workers))); err != nil {
		return nil, err
	}
	f := &Flow{Totals: newTotals(p, true), count: make([][]int32, len(p.Groups))}
	for i := range p.Groups {
		f.addGroup(i)
	}
	for i := range f.kinds {
		for j := range p.Workers {
			f.tieStaying(&f.kinds[i], j)
			f.tieEntering(&f.kinds[i], j)
		}
	}
	f.finish()
	return f, nil
}

// addGroup adds the columns of a group and the row that all of it is somewhere.
func (f *Flow) addGroup(i int) {
	g := &f.p.Groups[i]
	n := float64(g.Count)
	f.count[i] = make([]int32, len(f.p.Workers))
	for j := range f.p.Workers {
		f.count[i][j] = none
		if int(g.Worker) == j || f.enters[j] {
			col := f.m.column(0, 0, n, true)
			f.count[i][j] = col
			f.pages[j] = append(f.pages[j], term{col, g.Pages})
			f.m.term(col, 1)
		}
	}
	f.m.row(n, n)
}

// tieStaying makes the groups of a kind that are on worker j agree with how
// many leave it.
func (f *Flow) tieStaying(s *kind, j int) {
	if s.out[j] == none {
		return
	}
	f.m.term(s.out[j], 1)
	for _, g := range s.members {
		if int(f.p.Groups[g].Worker) == j {
			f.m.term(f.count[g][j], 1)
		}
	}
	f.m.row(float64(s.have[j]), float64(s.have[j]))
}

// tieEntering makes the groups of a kind that are elsewhere agree with how many
// enter worker j.
func (f *Flow) tieEntering(s *kind, j int) {
	if s.in[j] == none {
		return
	}
	f.m.term(s.in[j], 1)
	for _, g := range s.members {
		if int(f.p.Groups[g].Worker) != j {
			f.m.term(f.count[g][j], -1)
		}
	}
	f.m.row(0, 0)
}

// Encode implements [Form].
func (f *Flow) Encode(flows []ilp.Flow) []float64 {
	x := f.encode(flows)
	for _, fl := range flows {
		x[f.count[fl.Group][fl.Worker]] += float64(fl.Count)
	}
	f.m.settle(x)
	return x
}

// Decode implements [Form].
func (f *Flow) Decode(x []float64) []ilp.Flow {
	var flows []ilp.Flow
	for i, cols := range f.count {
		first, left := len(flows), f.p.Groups[i].Count
		for j, col := range cols {
			if col == none {
				continue
			}
			if n := min(whole(x[col]), left); n > 0 {
				flows = append(flows, ilp.Flow{Group: int32(i), Worker: int32(j), Count: n})
				left -= n
			}
		}
		flows = complete(flows, first, int32(i), f.p.Groups[i].Worker, left)
	}
	return flows
}

// complete adds what rounding has lost of a group, whose flows begin at first,
// to the largest of them.
func complete(flows []ilp.Flow, first int, group, worker int32, left int64) []ilp.Flow {
	if left == 0 {
		return flows
	}
	if len(flows) == first {
		return append(flows, ilp.Flow{Group: group, Worker: worker, Count: left})
	}
	most := first
	for i := first; i < len(flows); i++ {
		if flows[i].Count > flows[most].Count {
			most = i
		}
	}
	flows[most].Count += left
	return flows
}

// whole is the nearest whole number >= 0.
func whole(x float64) int64 { return max(0, int64(math.Round(x))) }
