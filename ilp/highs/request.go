package highs

import (
	"cmp"
	"slices"

	"lorasim/ilp"
)

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

// Encode implements [form].
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

// Decode implements [form].
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
		home := int(f.p.Groups[f.group[i]].Worker)
		if excess <= 0 {
			return
		}
		if *user(i, home) > 0 {
			*user(i, at[i])--
			*user(i, home)++
			at[i] = home
			excess--
		}
	}
}
