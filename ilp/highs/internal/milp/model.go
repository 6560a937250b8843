// Package milp states a migration problem as a mixed-integer linear program,
// for any solver of such programs:
//
//	form, err := milp.NewFlow(p)
//	x := ... // minimise Cost·x over the rows and bounds of form.Model()
//	flows := form.Decode(x)
//
// There are three formulations: [NewRequest] has a variable for each request
// and worker, as in dLoRA; [NewTotals] counts how many requests that are alike
// but for their pages leave and enter each worker, and leaves the pages out;
// [NewFlow] adds the pages to it.
package milp

import (
	"fmt"
	"math"
	"slices"

	"lorasim/ilp"
)

// MaxColumns is the size from which a formulation is refused: no solver does
// anything useful with more.
const MaxColumns = 4 << 20

// Form is a migration problem in the form of a mixed-integer program.
type Form interface {
	Model() *Model
	// Encode gives the columns' values for a feasible assignment.
	Encode(flows []ilp.Flow) []float64
	// Decode turns values that a solver found into an assignment. It rounds and
	// repairs what tolerances leave open, but only ilp.Evaluate knows whether
	// the result is feasible.
	Decode(x []float64) []ilp.Flow
}

// Model is a program: minimise Cost·x with RowLower <= A x <= RowUpper and
// Lower <= x <= Upper, some x integer. A is sparse, row by row: row i has the
// entries Start[i] to Start[i+1]. No row is empty, no entry is zero, and no
// column occurs twice in a row.
type Model struct {
	Cost, Lower, Upper []float64
	Integer            []bool

	RowLower, RowUpper []float64
	Start              []int
	Index              []int32
	Value              []float64

	follows []follower
}

// follower is a column whose least value follows from a row and the row's other
// columns.
type follower struct{ row, col int }

// column adds a column.
func (m *Model) column(cost, lower, upper float64, integer bool) int32 {
	m.Cost = append(m.Cost, cost)
	m.Lower = append(m.Lower, lower)
	m.Upper = append(m.Upper, upper)
	m.Integer = append(m.Integer, integer)
	return int32(len(m.Cost) - 1)
}

// term adds an entry to the row that ends with the next call of row.
func (m *Model) term(col int32, value float64) {
	if value != 0 {
		m.Index = append(m.Index, col)
		m.Value = append(m.Value, value)
	}
}

// row ends a row; one without entries is dropped.
func (m *Model) row(lower, upper float64) {
	if m.Start[len(m.Start)-1] == len(m.Index) {
		return
	}
	m.Start = append(m.Start, len(m.Index))
	m.RowLower = append(m.RowLower, lower)
	m.RowUpper = append(m.RowUpper, upper)
}

// atLeast ends a row that says from where up the value of its first column may
// lie, given the others.
func (m *Model) atLeast(lower float64) {
	first := m.Index[m.Start[len(m.Start)-1]]
	m.row(lower, math.Inf(1))
	m.follows = append(m.follows, follower{row: len(m.RowLower) - 1, col: int(first)})
}

// start gives every column its lower bound.
func (m *Model) start() []float64 { return slices.Clone(m.Lower) }

// settle raises the columns that follow from others to what their rows ask for.
func (m *Model) settle(x []float64) {
	for _, f := range m.follows {
		need := m.RowLower[f.row]
		for i := m.Start[f.row] + 1; i < m.Start[f.row+1]; i++ {
			need -= m.Value[i] * x[m.Index[i]]
		}
		x[f.col] = math.Max(x[f.col], need/m.Value[m.Start[f.row]])
	}
}

// checkSize refuses a formulation with too many columns.
func checkSize(name string, columns int64) error {
	if columns > MaxColumns {
		return fmt.Errorf("formulation %s has %d columns, at most %d make sense", name, columns, MaxColumns)
	}
	return nil
}

// Mixed says whether some column is integer.
func (m *Model) Mixed() bool { return slices.Contains(m.Integer, true) }
