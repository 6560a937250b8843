package milp

import (
	"math"
	"slices"

	"lorasim/ilp"
)

// frame is what all formulations share: T, the overflow of pages, the places
// of the adapters, and the rows about them:
//
//	T >= Base_j + work of the requests on j + sum_k y_kj Load_kj + z_j
//	PageRate z_j >= pages of the requests on j - Pages_j
//	sum_k y_kj <= Slots_j
//	moves <= MaxMoves
//
// Columns and rows that cannot matter are left out, and so are rows that made
// HiGHS no faster when measured: y_kj <= requests of k on j; n_k y_kj >= all
// requests of k on j, beside the rows for those that stay and those that enter;
// T >= a lower bound known beforehand; an order between equal workers.
type frame struct {
	p *ilp.Problem
	m Model

	t        int32
	overflow []int32   // column by worker, none where pages do not matter
	place    [][]int32 // column by adapter and worker, none where it needs none
	enters   []bool    // by worker: takes requests from elsewhere
	speed    []float64 // by worker

	busy, pages [][]term  // by worker: what requests cost it
	base        []float64 // by worker: what they cost it in any case
	moves       []term
}

type term struct {
	col   int32
	value float64
}

const none = int32(-1)

var inf = math.Inf(1)

// newFrame adds the columns; usePages says whether pages count.
func newFrame(p *ilp.Problem, usePages bool) *frame {
	n := len(p.Workers)
	f := &frame{p: p, overflow: make([]int32, n), enters: make([]bool, n), speed: make([]float64, n),
		busy: make([][]term, n), pages: make([][]term, n), base: make([]float64, n)}
	f.m.Start = []int{0}
	f.t = f.m.column(1, 0, inf, false)
	for j := range p.Workers {
		w := &p.Workers[j]
		f.enters[j] = !w.Closed && w.Slots > 0
		f.base[j], f.speed[j] = w.Base, w.Speed
		if w.Speed == 0 {
			f.speed[j] = 1
		}
		f.overflow[j] = none
		if usePages && p.PageRate > 0 {
			f.overflow[j] = f.m.column(0, 0, inf, false)
		}
	}
	f.addPlaces()
	return f
}

// addPlaces adds a column for each adapter and worker where it makes a
// difference whether the adapter has requests there.
func (f *frame) addPlaces() {
	f.place = make([][]int32, f.p.Adapters)
	here := make([]bool, f.p.Adapters*len(f.p.Workers))
	used := 0
	for i := range f.p.Groups {
		g := &f.p.Groups[i]
		here[int(g.Adapter)*len(f.p.Workers)+int(g.Worker)] = true
		if f.place[g.Adapter] == nil {
			f.place[g.Adapter] = make([]int32, len(f.p.Workers))
			used++
		}
	}
	for k, place := range f.place {
		for j := range place {
			place[j] = none
			if !f.enters[j] && !here[k*len(f.p.Workers)+j] {
				continue
			}
			scarce := f.enters[j] && f.p.Workers[j].Slots < used
			if weight, load := f.loading(k, j); scarce || weight > 0 || load > 0 {
				place[j] = f.m.column(weight, 0, 1, true)
				f.busy[j] = append(f.busy[j], term{place[j], load})
			}
		}
	}
}

// loading is the weight and the time of bringing an adapter to a worker.
func (f *frame) loading(k, j int) (weight, load float64) {
	if _, ok := slices.BinarySearch(f.p.Workers[j].Resident, int32(k)); ok {
		return 0, 0
	}
	if f.p.Load != nil {
		load = f.p.Load[k*len(f.p.Workers)+j]
	}
	return f.p.LoadWeight, load
}

// finish adds the rows of the workers' time, pages and slots, and of the moves.
func (f *frame) finish() {
	for j := range f.p.Workers {
		if f.overflow[j] != none {
			// B z >= pages - capacity
			f.m.term(f.overflow[j], f.p.PageRate)
			f.subtract(f.pages[j])
			f.m.atLeast(-f.p.Workers[j].Pages)
		}
	}
	for j := range f.p.Workers {
		f.m.term(f.t, 1)
		f.subtract(f.busy[j])
		if f.overflow[j] != none {
			f.m.term(f.overflow[j], -1)
		}
		f.m.atLeast(f.base[j])
	}
	for j := range f.p.Workers {
		var at []int32
		for _, place := range f.place {
			if place != nil && place[j] != none {
				at = append(at, place[j])
			}
		}
		if len(at) > f.p.Workers[j].Slots {
			for _, col := range at {
				f.m.term(col, 1)
			}
			f.m.row(-inf, float64(f.p.Workers[j].Slots))
		}
	}
	if f.p.MaxMoves > 0 {
		for _, t := range f.moves {
			f.m.term(t.col, t.value)
		}
		f.m.row(-inf, float64(f.p.MaxMoves))
	}
}

func (f *frame) subtract(ts []term) {
	for _, t := range ts {
		f.m.term(t.col, -t.value)
	}
}

// setPlaces gives the places their values for an assignment.
func (f *frame) setPlaces(x []float64, flows []ilp.Flow) {
	for _, fl := range flows {
		if at := f.place[f.p.Groups[fl.Group].Adapter][fl.Worker]; at != none {
			x[at] = 1
		}
	}
}
