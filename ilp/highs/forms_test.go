package highs

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lorasim/ilp"
)

// forms are the formulations; exact ones have the problem's objective.
var forms = []struct {
	name  string
	exact bool
	make  func(*ilp.Problem) (form, error)
}{
	{"request", true, func(p *ilp.Problem) (form, error) { return newRequestForm(p, false) }},
	{"relaxed", true, func(p *ilp.Problem) (form, error) { return newRequestForm(p, true) }},
	{"flow", true, newFlowForm},
	{"d0", false, func(p *ilp.Problem) (form, error) { return newTotalsForm(p) }},
}

// eachForm runs f on formulations of random tiny problems.
func eachForm(t *testing.T, f func(t *testing.T, p *ilp.Problem, form form, exact bool, rng *rand.Rand)) {
	for _, kind := range forms {
		t.Run(kind.name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			for range 500 {
				p := bruteProblem(rng)
				if err := p.Check(); err != nil {
					t.Fatal(err)
				}
				form, err := kind.make(p)
				if err != nil {
					t.Fatal(err)
				}
				f(t, p, form, kind.exact, rng)
				if t.Failed() {
					t.Fatalf("problem: %+v", p)
				}
			}
		})
	}
}

// HiGHS fails on empty rows and silently takes the last of coefficients for the
// same place.
func TestModelIsWellFormed(t *testing.T) {
	eachForm(t, func(t *testing.T, p *ilp.Problem, form form, _ bool, _ *rand.Rand) {
		m := form.program()
		cols, rows := len(m.Cost), len(m.RowLower)
		if len(m.Lower) != cols || len(m.Upper) != cols || len(m.Integer) != cols || len(m.RowUpper) != rows ||
			len(m.Start) != rows+1 || m.Start[rows] != len(m.Index) || len(m.Index) != len(m.Value) {
			t.Error("lengths do not agree")
		}
		for i := range cols {
			if m.Lower[i] > m.Upper[i] {
				t.Errorf("column %d from %v to %v", i, m.Lower[i], m.Upper[i])
			}
		}
		for r := range rows {
			index := slices.Clone(m.Index[m.Start[r]:m.Start[r+1]])
			slices.Sort(index)
			if len(index) == 0 || len(slices.Compact(index)) != m.Start[r+1]-m.Start[r] {
				t.Errorf("row %d has no columns or one twice", r)
			}
			if slices.Contains(m.Value[m.Start[r]:m.Start[r+1]], 0) {
				t.Errorf("row %d has an entry of 0", r)
			}
		}
	})
}

// A feasible assignment is a point of the model, at the objective that
// ilp.Evaluate computes.
func TestEncode(t *testing.T) {
	eachForm(t, func(t *testing.T, p *ilp.Problem, form form, exact bool, rng *rand.Rand) {
		flows := bruteAssignment(p, rng)
		x := form.Encode(flows)
		checkPoint(t, form.program(), x)
		got := 0.0
		for i, c := range form.program().Cost {
			got += c * x[i]
		}
		if want := objective(t, without(p, !exact), flows); math.Abs(got-want) > 1e-9 {
			t.Errorf("objective %v, expected %v", got, want)
		}
	})
}

// without returns p, or p without pages.
func without(p *ilp.Problem, pages bool) *ilp.Problem {
	q := *p
	if pages {
		q.PageRate = 0
	}
	return &q
}

func objective(t *testing.T, p *ilp.Problem, flows []ilp.Flow) float64 {
	out, err := ilp.Evaluate(p, flows)
	if err != nil {
		t.Error(err)
	}
	return out.Objective
}

func checkPoint(t *testing.T, m *model, x []float64) {
	for i, v := range x {
		if v < m.Lower[i]-1e-9 || v > m.Upper[i]+1e-9 || m.Integer[i] && v != math.Round(v) {
			t.Errorf("column %d is %v, integer %v, from %v to %v", i, v, m.Integer[i], m.Lower[i], m.Upper[i])
		}
	}
	for r := range m.RowLower {
		sum := 0.0
		for i := m.Start[r]; i < m.Start[r+1]; i++ {
			sum += m.Value[i] * x[m.Index[i]]
		}
		if sum < m.RowLower[r]-1e-9 || sum > m.RowUpper[r]+1e-9 {
			t.Errorf("row %d is %v, from %v to %v", r, sum, m.RowLower[r], m.RowUpper[r])
		}
	}
}

// Decoding gives back an assignment that is as good, or better where requests
// changed places with ones that are alike.
func TestDecode(t *testing.T) {
	eachForm(t, func(t *testing.T, p *ilp.Problem, form form, exact bool, rng *rand.Rand) {
		flows := bruteAssignment(p, rng)
		back := form.Decode(form.Encode(flows))
		want, got := objective(t, without(p, !exact), flows), objective(t, without(p, !exact), back)
		if (exact || p.PageRate == 0) && got > want+1e-9 {
			t.Errorf("objective %v, expected at most %v", got, want)
		}
	})
}

// Whatever a solver answers, every request is assigned once.
func TestDecodeAnything(t *testing.T) {
	eachForm(t, func(t *testing.T, p *ilp.Problem, form form, _ bool, rng *rand.Rand) {
		x := make([]float64, len(form.program().Cost))
		for i := range x {
			x[i] = 4*rng.Float64() - 0.5
			if rng.IntN(3) == 0 {
				x[i] = 0
			}
		}
		left := make([]int64, len(p.Groups))
		for i := range left {
			left[i] = p.Groups[i].Count
		}
		for _, f := range form.Decode(x) {
			if f.Count < 1 || int(f.Worker) >= len(p.Workers) {
				t.Errorf("flow %+v", f)
			}
			left[f.Group] -= f.Count
		}
		if slices.ContainsFunc(left, func(n int64) bool { return n != 0 }) {
			t.Errorf("requests left over: %v", left)
		}
	})
}

func TestTooLarge(t *testing.T) {
	p := &ilp.Problem{Adapters: 1, Workers: make([]ilp.Worker, 4),
		Groups: []ilp.Group{{Count: 1 << 40}, {Count: math.MaxInt64, Worker: 1}}}
	if _, err := newRequestForm(p, false); err == nil {
		t.Error("no error for a variable for each of 2^63 requests")
	}
	if _, err := newTotalsForm(p); err != nil {
		t.Error(err)
	}
}

func BenchmarkModel(b *testing.B) {
	p, _ := ilp.Generate(8, 128, 1000, 1).Problem()
	for _, kind := range forms {
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := kind.make(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
