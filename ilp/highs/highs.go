// Package highs solves migration problems with HiGHS, a general solver of mixed-integer programs. It solves small
// instances exactly and improves good plans on medium ones. It also checks the embedded solver of package ilp, with
// which it shares no code.
//
//	s, err := highs.New(highs.Auto)
//	sol, err := s.Solve(ctx, p, ilp.Budget{Time: 10 * time.Second})
//	sol, err = s.SolveFrom(ctx, p, sol, ilp.Budget{Gap: 0.01}) // warm start
//
// HiGHS is a C++ library. Programs contain it if they are built with -tags highs and cgo, and `pkg-config highs` finds
// a version >= 1.5 and < 1.12; scripts/highs provides one. Otherwise [Available] is false and [New] returns an error.
//
// Solvers are safe for concurrent use. Each solve runs on one thread, because the first solve fixes the number of
// HiGHS's threads for the whole process.
package highs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"lorasim/ilp"
)

// The formulations of the problem as a mixed-integer program. request and flow are exact. The bounds of all
// formulations hold, apart from rounding errors of about 1e-6.
const (
	Auto    = "auto"    // Flow for small problems and Totals for large ones
	request = "request" // dLoRA's formulation: a binary variable for each request and worker
	relaxed = "relaxed" // dLoRA's relaxation: continuous variables; a request goes where its largest part is
	flow    = "flow"    // counts equal requests instead of single ones
	totals  = "d0"      // counts requests that enter and leave each worker, without pages: those with most pages stay
)

// Formulations returns the names of all formulations.
func Formulations() []string { return []string{Auto, request, relaxed, flow, totals} }

// ErrUnavailable is the error of a program that was built without HiGHS.
var ErrUnavailable = errors.New("built without HiGHS: run scripts/highs and build with -tags highs (needs cgo)")

// Solver is an [ilp.Solver] that uses HiGHS.
type Solver struct{ formulation string }

var _ ilp.Solver = (*Solver)(nil)

// New returns a solver with the given formulation. It returns ErrUnavailable if the program was built without HiGHS,
// and an error if the formulation is unknown.
func New(f string) (*Solver, error) {
	if !Available() {
		return nil, ErrUnavailable
	}
	if !slices.Contains(Formulations(), f) {
		return nil, fmt.Errorf("formulation is %q, expected one of %v", f, Formulations())
	}
	return &Solver{f}, nil
}

// Name implements ilp.Solver. It returns "highs" for Auto, else "highs-" and the formulation.
func (s *Solver) Name() string {
	if s.formulation == Auto {
		return "highs"
	}
	return "highs-" + s.formulation
}

// Solve implements [ilp.Solver]. It stops at the gap in b, or at a limit, with the best solution found and the bound so
// far. Without a gap and a limit, it runs until the solution is optimal, which may take very long. nodeWork is the unit
// of Work.
//
// Cancelling ctx stops HiGHS at its next check: between nodes, or between the steps of the first node. With many
// thousand columns a step can take seconds. A deadline is checked more often. In both cases Solve returns the best
// solution found so far, without an error. Without a deadline and a time limit, the result is the same on every run.
func (s *Solver) Solve(ctx context.Context, p *ilp.Problem, b ilp.Budget) (*ilp.Solution, error) {
	return s.SolveFrom(ctx, p, nil, b)
}

// maxColumns is the number of columns above which a formulation is refused: no solver finds anything useful.
const maxColumns = 4 << 20

// form is a migration problem in the form of a mixed-integer program.
type form interface {
	program() *model
	// Encode returns the columns' values for a feasible assignment.
	Encode(flows []ilp.Flow) []float64
	// Decode converts values that a solver found into an assignment. It rounds and repairs within the tolerances. Only
	// ilp.Evaluate checks that the result is feasible.
	Decode(x []float64) []ilp.Flow
}

// model is a program: minimise Cost·x with RowLower <= A x <= RowUpper and
// Lower <= x <= Upper, some x integer. A is sparse, row by row: row i has the
// entries Start[i] to Start[i+1]. No row is empty, no entry is zero, and no
// column occurs twice in a row.
type model struct {
	Cost, Lower, Upper []float64
	Integer            []bool

	RowLower, RowUpper []float64
	Start              []int
	Index              []int32
	Value              []float64

	// follows are the rows that say from where up the value of their first column
	// may lie, given the others.
	follows []int
}

// Mixed says whether some column is integer.
func (m *model) Mixed() bool { return slices.Contains(m.Integer, true) }

// none stands for a column that is left out.
const none = int32(-1)

var inf = math.Inf(1)

// columns returns n columns, all left out so far.
func columns(n int) []int32 { return slices.Repeat([]int32{none}, n) }

// column adds a column.
func (m *model) column(cost, lower, upper float64, integer bool) int32 {
	m.Cost = append(m.Cost, cost)
	m.Lower = append(m.Lower, lower)
	m.Upper = append(m.Upper, upper)
	m.Integer = append(m.Integer, integer)
	return int32(len(m.Cost) - 1)
}

type term struct {
	col   int32
	value float64
}

func negative(ts []term) []term {
	out := make([]term, len(ts))
	for i, t := range ts {
		out[i] = term{t.col, -t.value}
	}
	return out
}

// row adds a row, unless it is left without entries.
func (m *model) row(lower, upper float64, terms ...term) {
	before := len(m.Index)
	for _, t := range terms {
		if t.col != none && t.value != 0 {
			m.Index, m.Value = append(m.Index, t.col), append(m.Value, t.value)
		}
	}
	if len(m.Index) == before {
		return
	}
	m.Start = append(m.Start, len(m.Index))
	m.RowLower, m.RowUpper = append(m.RowLower, lower), append(m.RowUpper, upper)
}

// atLeast adds a row that bounds its first column by the others.
func (m *model) atLeast(lower float64, terms ...term) {
	m.row(lower, inf, terms...)
	m.follows = append(m.follows, len(m.RowLower)-1)
}

// settle raises the columns that follow from others to what their rows ask for.
func (m *model) settle(x []float64) []float64 {
	for _, row := range m.follows {
		first, need := m.Start[row], m.RowLower[row]
		for i := first + 1; i < m.Start[row+1]; i++ {
			need -= m.Value[i] * x[m.Index[i]]
		}
		x[m.Index[first]] = math.Max(x[m.Index[first]], need/m.Value[first])
	}
	return x
}

// checkSize refuses a formulation with too many columns.
func checkSize(name string, columns int64) error {
	if columns > maxColumns {
		return fmt.Errorf("formulation %s has %d columns, expected at most %d", name, columns, maxColumns)
	}
	return nil
}

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
	m model

	t        int32
	overflow []int32   // column by worker, none where pages do not matter
	place    [][]int32 // column by adapter and worker, none where it needs none
	enters   []bool    // by worker: takes requests from elsewhere
	speed    []float64 // by worker

	busy, pages [][]term  // by worker: what requests cost it
	base        []float64 // by worker: what they cost it in any case
	moves       []term
}

// newFrame adds the columns; usePages says whether pages count.
func newFrame(p *ilp.Problem, usePages bool) *frame {
	n := len(p.Workers)
	f := &frame{p: p, overflow: columns(n), busy: make([][]term, n), pages: make([][]term, n)}
	f.m.Start = []int{0}
	f.t = f.m.column(1, 0, inf, false)
	for j := range p.Workers {
		w := &p.Workers[j]
		f.enters = append(f.enters, !w.Closed && w.Slots > 0)
		f.base, f.speed = append(f.base, w.Base), append(f.speed, cmp.Or(w.Speed, 1))
		if usePages && p.PageRate > 0 {
			f.overflow[j] = f.m.column(0, 0, inf, false)
		}
	}
	f.addPlaces()
	return f
}

func (f *frame) program() *model { return &f.m }

// addPlaces adds a column for each adapter and worker where it makes a
// difference whether the adapter has requests there.
func (f *frame) addPlaces() {
	n := len(f.p.Workers)
	f.place = make([][]int32, f.p.Adapters)
	here := make([]bool, f.p.Adapters*n)
	used := 0
	for i := range f.p.Groups {
		g := &f.p.Groups[i]
		here[int(g.Adapter)*n+int(g.Worker)] = true
		if f.place[g.Adapter] == nil {
			f.place[g.Adapter] = columns(n)
			used++
		}
	}
	for k, place := range f.place {
		for j := range place {
			if !f.enters[j] && !here[k*n+j] {
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
	return f.p.LoadWeight, f.p.TimeToLoad(k, j)
}

// spread adds the columns of n requests of a group, one for each worker that may
// have them.
func (f *frame) spread(g *ilp.Group, n, moveWeight float64, integer bool) []int32 {
	cols := columns(len(f.p.Workers))
	for j := range cols {
		if home := int(g.Worker) == j; home || f.enters[j] {
			weight := moveWeight
			if home || g.Virtual {
				weight = 0
			}
			cols[j] = f.m.column(weight, 0, n, integer)
			f.pages[j] = append(f.pages[j], term{cols[j], g.Pages})
		}
	}
	return cols
}

// sum is the terms of the columns that there are, each with the same value.
func sum(cols []int32, value float64) (ts []term) {
	for _, col := range cols {
		if col != none {
			ts = append(ts, term{col, value})
		}
	}
	return ts
}

// finish adds the rows of the workers' time, pages and slots, and of the moves.
func (f *frame) finish() {
	for j, z := range f.overflow {
		if z != none { // B z >= pages - capacity
			f.m.atLeast(-f.p.Workers[j].Pages, append([]term{{z, f.p.PageRate}}, negative(f.pages[j])...)...)
		}
	}
	for j, z := range f.overflow {
		f.m.atLeast(f.base[j], slices.Concat([]term{{f.t, 1}}, negative(f.busy[j]), []term{{z, -1}})...)
	}
	for j := range f.p.Workers {
		var ys []term
		for _, place := range f.place {
			if place != nil {
				ys = append(ys, sum(place[j:j+1], 1)...)
			}
		}
		if slots := f.p.Workers[j].Slots; len(ys) > slots {
			f.m.row(-inf, float64(slots), ys...)
		}
	}
	if f.p.MaxMoves > 0 {
		f.m.row(-inf, float64(f.p.MaxMoves), f.moves...)
	}
}

// start gives every column its lower bound, and the places their values for an
// assignment.
func (f *frame) start(flows []ilp.Flow) []float64 {
	x := slices.Clone(f.m.Lower)
	for _, fl := range flows {
		if at := f.place[f.p.Groups[fl.Group].Adapter][fl.Worker]; at != none {
			x[at] = 1
		}
	}
	return x
}

// whole is the nearest whole number >= 0 to the value of a column; 0 for none.
func whole(x []float64, col int32) int64 {
	if col == none {
		return 0
	}
	return max(0, int64(math.Round(x[col])))
}

// flowsOf turns counts by group and worker into flows.
func flowsOf(counts []int64, workers int) []ilp.Flow {
	var flows []ilp.Flow
	for i, n := range counts {
		if n > 0 {
			flows = append(flows, ilp.Flow{Group: int32(i / workers), Worker: int32(i % workers), Count: n})
		}
	}
	return flows
}
