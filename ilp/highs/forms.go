package highs

import (
	"cmp"
	"slices"

	"lorasim/ilp"
)

// totalsForm counts, for the requests that are alike but for their pages and their
// worker, how many leave (o_sj) and enter (i_sj) each worker, of n_sj that are
// there:
//
//	sum_j i_sj = sum_j o_sj
//	n_sj - o_sj <= n_sj y_kj
//	i_sj <= (n_s - n_sj) y_kj        for k = m(s)
//	T >= Base_j + sum_s ((n_sj - o_sj) Work_s + i_sj (Work_s + Move_s)) / Speed_j + sum_k y_kj Load_kj
//	sum_k y_kj <= Slots_j
//	sum_s sum_j i_sj <= MaxMoves
//
// Pages are left out, so that it is a relaxation: its bound holds, and its
// solution is an assignment, whose requests with the most pages stay.
type totalsForm struct {
	*frame
	kinds []kind
}

// kind is a class of requests that differ only in their pages and their worker.
type kind struct {
	like    ilp.Group // its Count is the number of all of them
	members []int32   // groups
	have    []int64   // by worker
	out, in []int32   // columns by worker, none if no request can leave or enter
}

// newTotalsForm returns the formulation.
func newTotalsForm(p *ilp.Problem) (*totalsForm, error) {
	if err := checkSize("d0", int64(2*len(p.Groups)+p.Adapters)*int64(len(p.Workers))); err != nil {
		return nil, err
	}
	f := newTotals(p, false)
	f.finish()
	return f, nil
}

// newTotals returns the formulation without the rows of frame.finish.
func newTotals(p *ilp.Problem, usePages bool) *totalsForm {
	f := &totalsForm{frame: newFrame(p, usePages), kinds: kindsOf(p)}
	for _, add := range []func(*kind){f.addColumns, f.addRows} {
		for i := range f.kinds {
			add(&f.kinds[i])
		}
	}
	return f
}

// kindsOf groups the groups.
func kindsOf(p *ilp.Problem) (kinds []kind) {
	index := map[ilp.Group]int{}
	for i, g := range p.Groups {
		like := ilp.Group{Adapter: g.Adapter, Work: g.Work, Move: g.Move, Virtual: g.Virtual}
		n, ok := index[like]
		if !ok {
			n = len(kinds)
			index[like] = n
			kinds = append(kinds, kind{like: like, have: make([]int64, len(p.Workers))})
		}
		s := &kinds[n]
		s.like.Count += g.Count
		s.members = append(s.members, int32(i))
		s.have[g.Worker] += g.Count
	}
	return kinds
}

func (f *totalsForm) addColumns(s *kind) {
	s.out, s.in = columns(len(s.have)), columns(len(s.have))
	weight := f.p.MoveWeight
	if s.like.Virtual {
		weight = 0
	}
	for j, have := range s.have {
		if have > 0 {
			s.out[j] = f.m.column(0, 0, float64(have), true)
			f.base[j] += float64(have) * s.like.Work / f.speed[j]
			f.busy[j] = append(f.busy[j], term{s.out[j], -s.like.Work / f.speed[j]})
		}
		if f.enters[j] && s.like.Count > have {
			s.in[j] = f.m.column(weight, 0, float64(s.like.Count-have), true)
			f.busy[j] = append(f.busy[j], term{s.in[j], (s.like.Work + s.like.Move) / f.speed[j]})
			if !s.like.Virtual {
				f.moves = append(f.moves, term{s.in[j], 1})
			}
		}
	}
}

func (f *totalsForm) addRows(s *kind) {
	var balance []term
	for j := range s.have {
		balance = append(balance, term{s.in[j], 1}, term{s.out[j], -1})
	}
	f.m.row(0, 0, balance...)
	for j, place := range f.place[s.like.Adapter] {
		have, others := float64(s.have[j]), float64(s.like.Count-s.have[j])
		if place != none && s.out[j] != none {
			f.m.row(have, inf, term{place, have}, term{s.out[j], 1})
		}
		if place != none && s.in[j] != none {
			f.m.row(0, inf, term{place, others}, term{s.in[j], -1})
		}
	}
}

func (f *totalsForm) Encode(flows []ilp.Flow) []float64 { return f.m.settle(f.encode(flows)) }

// encode leaves T and overflow open.
func (f *totalsForm) encode(flows []ilp.Flow) []float64 {
	x := f.start(flows)
	kindOf := make([]*kind, len(f.p.Groups))
	for i := range f.kinds {
		for _, g := range f.kinds[i].members {
			kindOf[g] = &f.kinds[i]
		}
	}
	for _, fl := range flows {
		if home := f.p.Groups[fl.Group].Worker; home != fl.Worker {
			s := kindOf[fl.Group]
			x[s.out[home]] += float64(fl.Count)
			x[s.in[fl.Worker]] += float64(fl.Count)
		}
	}
	return x
}

// Decode lets the requests with the most pages stay where they are.
func (f *totalsForm) Decode(x []float64) []ilp.Flow {
	counts := make([]int64, len(f.p.Groups)*len(f.p.Workers))
	for i := range f.kinds {
		f.split(&f.kinds[i], x, counts)
	}
	return flowsOf(counts, len(f.p.Workers))
}

// split gives the requests of a kind to the workers.
func (f *totalsForm) split(s *kind, x []float64, counts []int64) {
	enter, leave := make([]int64, len(s.have)), make([]int64, len(s.have))
	for j := range s.have {
		in, out := whole(x, s.in[j]), min(whole(x, s.out[j]), s.have[j])
		back := min(in, out) // out and in again is no move
		enter[j], leave[j] = in-back, out-back
	}
	members := slices.Clone(s.members)
	slices.SortStableFunc(members, func(a, b int32) int {
		return cmp.Compare(f.p.Groups[a].Pages, f.p.Groups[b].Pages)
	})
	to := 0
	for _, g := range members {
		group := &f.p.Groups[g]
		left := group.Count
		for left > 0 && leave[group.Worker] > 0 {
			for to < len(enter) && enter[to] == 0 {
				to++
			}
			if to == len(enter) {
				break // rounding let more leave than enter
			}
			n := min(left, leave[group.Worker], enter[to])
			counts[int(g)*len(enter)+to] += n
			left -= n
			leave[group.Worker] -= n
			enter[to] -= n
		}
		counts[int(g)*len(enter)+int(group.Worker)] += left
	}
}

// flowForm is the problem exactly as package ilp has it. To the columns of [totalsForm]
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
type flowForm struct {
	*totalsForm
	count [][]int32 // column by group and worker, none where it may not be
}

// newFlowForm returns the formulation. Where pages do not matter it is Totals.
func newFlowForm(p *ilp.Problem) (form, error) {
	if p.PageRate == 0 {
		return newTotalsForm(p)
	}
	if err := checkSize("flow", int64(3*len(p.Groups)+p.Adapters)*int64(len(p.Workers))); err != nil {
		return nil, err
	}
	f := &flowForm{totalsForm: newTotals(p, true)}
	for i := range p.Groups {
		n := float64(p.Groups[i].Count)
		cols := f.spread(&p.Groups[i], n, 0, true)
		f.m.row(n, n, sum(cols, 1)...)
		f.count = append(f.count, cols)
	}
	for i := range f.kinds {
		f.tie(&f.kinds[i])
	}
	f.finish()
	return f, nil
}

// tie makes the groups of a kind that are on a worker agree with how many leave
// it, and those that are elsewhere with how many enter it.
func (f *flowForm) tie(s *kind) {
	for j, have := range s.have {
		stay, enter := []term{{s.out[j], 1}}, []term{{s.in[j], 1}}
		for _, g := range s.members {
			if int(f.p.Groups[g].Worker) == j {
				stay = append(stay, term{f.count[g][j], 1})
			} else {
				enter = append(enter, term{f.count[g][j], -1})
			}
		}
		if s.out[j] != none {
			f.m.row(float64(have), float64(have), stay...)
		}
		if s.in[j] != none {
			f.m.row(0, 0, enter...)
		}
	}
}

func (f *flowForm) Encode(flows []ilp.Flow) []float64 {
	x := f.encode(flows)
	for _, fl := range flows {
		x[f.count[fl.Group][fl.Worker]] += float64(fl.Count)
	}
	return f.m.settle(x)
}

func (f *flowForm) Decode(x []float64) []ilp.Flow {
	n := len(f.p.Workers)
	counts := make([]int64, len(f.count)*n)
	for i, cols := range f.count {
		of, left := counts[i*n:(i+1)*n], f.p.Groups[i].Count
		most := f.p.Groups[i].Worker // gets what rounding has lost
		for j, col := range cols {
			of[j] = min(whole(x, col), left)
			if left -= of[j]; of[j] > of[most] {
				most = int32(j)
			}
		}
		of[most] += left
	}
	return flowsOf(counts, n)
}

// requestForm has a variable for each request i and worker j, as dLoRA (OSDI'24)
// has it:
//
//	sum_j x_ij >= 1
//	n_k y_kj >= sum_{i: m(i) = k} x_ij
//
// and the rows for time, pages, slots and moves. x is binary, or continuous,
// each request then going where the most of it went.
type requestForm struct {
	*frame
	group []int32   // by request
	on    [][]int32 // column by request and worker, none where it may not be
}

// newRequestForm returns the formulation; relaxed: with continuous x.
func newRequestForm(p *ilp.Problem, relaxed bool) (*requestForm, error) {
	total := int64(p.Adapters)
	for i := range p.Groups {
		total += min(p.Groups[i].Count, maxColumns)
	}
	if err := checkSize("request", total*int64(len(p.Workers))); err != nil {
		return nil, err
	}
	f := &requestForm{frame: newFrame(p, true)}
	of := make([][]int, p.Adapters) // requests
	for i := range p.Groups {
		for range p.Groups[i].Count {
			k := p.Groups[i].Adapter
			of[k] = append(of[k], len(f.on))
			f.add(int32(i), !relaxed)
		}
	}
	for _, cols := range f.on {
		f.m.row(1, inf, sum(cols, 1)...)
	}
	for k, requests := range of {
		for j, place := range f.place[k] {
			if place == none {
				continue
			}
			terms := []term{{place, float64(len(requests))}}
			for _, i := range requests {
				terms = append(terms, term{f.on[i][j], -1})
			}
			f.m.row(0, inf, terms...)
		}
	}
	f.finish()
	return f, nil
}

// add adds the columns of a request of a group.
func (f *requestForm) add(group int32, integer bool) {
	g := &f.p.Groups[group]
	cols := f.spread(g, 1, f.p.MoveWeight, integer)
	for j, col := range cols {
		if col == none {
			continue
		}
		work := g.Work
		if int(g.Worker) != j {
			work += g.Move
			if !g.Virtual {
				f.moves = append(f.moves, term{col, 1})
			}
		}
		f.busy[j] = append(f.busy[j], term{col, work / f.speed[j]})
	}
	f.group, f.on = append(f.group, group), append(f.on, cols)
}

func (f *requestForm) Encode(flows []ilp.Flow) []float64 {
	x := f.start(flows)
	next := make([]int, len(f.p.Groups)) // the first request of each group that is left
	for i := len(f.group) - 1; i >= 0; i-- {
		next[f.group[i]] = i
	}
	for _, fl := range flows {
		for range fl.Count {
			x[f.on[next[fl.Group]][fl.Worker]] = 1
			next[fl.Group]++
		}
	}
	return f.m.settle(x)
}

func (f *requestForm) Decode(x []float64) []ilp.Flow {
	at := make([]int, len(f.on))
	for i, cols := range f.on {
		at[i] = int(f.p.Groups[f.group[i]].Worker)
		most := 0.5 / float64(len(cols)) // some worker has more than this
		for j, col := range cols {
			if col != none && x[col] > most {
				at[i], most = j, x[col]
			}
		}
	}
	f.limitMoves(at, x)
	counts := make([]int64, len(f.p.Groups)*len(f.p.Workers))
	for i, j := range at {
		counts[int(f.group[i])*len(f.p.Workers)+j]++
	}
	return flowsOf(counts, len(f.p.Workers))
}

// limitMoves takes back moves that rounding has made too many, first those that
// the relaxation was least sure of, where the adapter is still in its old place.
func (f *requestForm) limitMoves(at []int, x []float64) {
	if f.p.MaxMoves == 0 {
		return
	}
	var moved []int
	users := make([]int, f.p.Adapters*len(f.p.Workers))
	user := func(i, j int) *int { return &users[int(f.p.Groups[f.group[i]].Adapter)*len(f.p.Workers)+j] }
	for i, j := range at {
		*user(i, j)++
		if g := &f.p.Groups[f.group[i]]; int(g.Worker) != j && !g.Virtual {
			moved = append(moved, i)
		}
	}
	slices.SortStableFunc(moved, func(a, b int) int {
		return cmp.Compare(x[f.on[a][at[a]]], x[f.on[b][at[b]]])
	})
	excess := len(moved) - f.p.MaxMoves
	for _, i := range moved {
		if home := int(f.p.Groups[f.group[i]].Worker); excess > 0 && *user(i, home) > 0 {
			*user(i, at[i])--
			*user(i, home)++
			at[i] = home
			excess--
		}
	}
}
