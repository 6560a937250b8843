//go:build highs && cgo

package highs

/*
#cgo pkg-config: highs
#include <stdint.h>
#include <stdlib.h>
#include <util/HighsInt.h>

// Prototypes of our own: below HiGHS 1.12 its C header defines its constants,
// which github.com/lanl/highs has done already.
extern HighsInt Highs_setSolution(void *highs, const double *col_value, const double *row_value,
                                  const double *col_dual, const double *row_dual);
extern HighsInt Highs_getNumCol(const void *highs);
extern HighsInt Highs_getNumRow(const void *highs);
extern HighsInt Highs_getSolution(const void *highs, double *col_value, double *col_dual,
                                  double *row_value, double *row_dual);
extern HighsInt Highs_getIntInfoValue(const void *highs, const char *info, HighsInt *value);
extern HighsInt Highs_getInt64InfoValue(const void *highs, const char *info, int64_t *value);
extern HighsInt Highs_getDoubleInfoValue(const void *highs, const char *info, double *value);

extern const char *Highs_version(void);

// Callbacks came with HiGHS 1.6; weak, they are null before.
typedef void (*callback)(int type, const char *message, const void *out, int *interrupt, void *data);
extern HighsInt Highs_setCallback(void *highs, callback f, void *data) __attribute__((weak));
extern HighsInt Highs_startCallback(void *highs, const int type) __attribute__((weak));
extern const HighsInt kHighsCallbackMipInterrupt __attribute__((weak));

// The first field of what a callback gives back is whether to stop.
static void stop_if_told(int type, const char *message, const void *out, int *interrupt, void *told) {
	if (interrupt && __atomic_load_n((int *)told, __ATOMIC_RELAXED)) *interrupt = 1;
}

static void listen(void *highs, int *told) {
	if (!Highs_setCallback || !Highs_startCallback || !&kHighsCallbackMipInterrupt) return;
	Highs_setCallback(highs, stop_if_told, told);
	Highs_startCallback(highs, kHighsCallbackMipInterrupt);
}

static void tell(int *told) { __atomic_store_n(told, 1, __ATOMIC_RELAXED); }
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"time"
	"unsafe"

	lanl "github.com/lanl/highs"

	"lorasim/ilp"
)

// flowColumns is the largest product of groups and workers for which Auto uses Flow. Above about this size, Totals
// finds better solutions in the same time.
const flowColumns = 1000

// nodeWork is the number of units of ilp.Budget.Work per branch-and-bound node. HiGHS always finishes the first node.
const nodeWork = 100_000

// Available reports whether the program was built with HiGHS.
func Available() bool { return true }

// SolveFrom is Solve with a start solution, which may be nil. The result is at least as good as start. It returns an
// error if start is not a solution of p.
func (s *Solver) SolveFrom(ctx context.Context, p *ilp.Problem, start *ilp.Solution, b ilp.Budget) (*ilp.Solution,
	error) {
	if err := p.Check(); err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	until := deadline(ctx, b)
	a := &attempt{p: p, best: ilp.Solution{Solver: s.Name(), Outcome: ilp.Outcome{Objective: math.Inf(1)}},
		bound: ilp.LowerBound(p)}
	begin, err := ilp.Start(p)
	if err != nil {
		return nil, fmt.Errorf("problem: %w", err)
	}
	if a.offer(ilp.StayFlows(p), ilp.Stay) != nil { // not all requests can stay
		if err := a.offer(begin, ilp.Limit); err != nil {
			return nil, fmt.Errorf("problem: %w", err)
		}
	}
	if start != nil {
		if err := a.offer(start.Flows, ilp.Limit); err != nil {
			return nil, fmt.Errorf("start: %w", err)
		}
	}
	if !a.within(b.Gap) && ctx.Err() == nil && !passed(until) {
		form, err := s.form(p)
		if err != nil {
			return nil, err
		}
		r, err := minimise(ctx, form.program(), form.Encode(a.best.Flows), b, until)
		if err != nil {
			return nil, fmt.Errorf("HiGHS: %w", err)
		}
		a.bound = math.Max(a.bound, r.bound)
		a.best.Work = r.nodes * nodeWork
		if r.x != nil {
			// should tolerances have made it infeasible, the best so far stands
			_ = a.offer(form.Decode(r.x), ilp.Limit)
		}
	}
	return a.result(b.Gap)
}

// form states the problem in the solver's formulation.
func (s *Solver) form(p *ilp.Problem) (form, error) {
	f := s.formulation
	if f == Auto {
		f = totals
		if len(p.Groups)*len(p.Workers) <= flowColumns {
			f = flow
		}
	}
	switch f {
	case request, relaxed:
		return newRequestForm(p, f == relaxed)
	case flow:
		return newFlowForm(p)
	default:
		return newTotalsForm(p)
	}
}

// attempt holds the best solution and bound found so far.
type attempt struct {
	p     *ilp.Problem
	best  ilp.Solution
	bound float64
}

// offer makes an assignment the best if it is better and feasible.
func (a *attempt) offer(flows []ilp.Flow, status ilp.Status) error {
	out, err := ilp.Evaluate(a.p, flows)
	if err != nil {
		return err
	}
	if out.Objective < a.best.Objective {
		a.best.Flows, a.best.Outcome, a.best.Status = flows, out, status
	}
	return nil
}

// tolerance is the smallest meaningful relative gap: HiGHS is exact to about 1e-6.
const tolerance = 1e-6

func (a *attempt) within(gap float64) bool {
	return a.best.Objective-a.bound <= math.Max(gap*a.best.Objective, tolerance*math.Max(1, a.best.Objective))
}

// result closes the attempt.
func (a *attempt) result(gap float64) (*ilp.Solution, error) {
	s := &a.best
	s.Bound = math.Min(a.bound, s.Objective)
	switch {
	case a.within(0):
		s.Status = ilp.Optimal
	case a.within(gap):
		s.Status = ilp.WithinGap
	}
	if err := ilp.Verify(a.p, s); err != nil {
		return nil, err
	}
	return s, nil
}

// deadline returns the time at which to stop; zero: never.
func deadline(ctx context.Context, b ilp.Budget) time.Time {
	until, ok := ctx.Deadline()
	if t := time.Now().Add(b.Time); b.Time > 0 && (!ok || t.Before(until)) {
		until = t
	}
	return until
}

func passed(until time.Time) bool { return !until.IsZero() && !time.Now().Before(until) }

// answer is what HiGHS found.
type answer struct {
	x     []float64 // nil: nothing
	bound float64
	nodes int64
}

// minimise solves a model, beginning with the columns' values in x.
func minimise(ctx context.Context, m *model, x []float64, b ilp.Budget, until time.Time) (answer, error) {
	raw, err := rawModel(m)
	if err != nil {
		return answer{}, err
	}
	defer runtime.KeepAlive(raw) // its finalizer frees what n points to
	n, err := nativeOf(raw)
	if err != nil || passed(until) {
		return answer{bound: math.Inf(-1)}, err
	}
	if err := errors.Join(setOptions(raw, b, until), n.setSolution(x)); err != nil {
		return answer{}, err
	}
	defer n.stopWith(ctx)()
	_, err = raw.Solve()
	// a warning: a limit or ctx ended the search
	if cs := (lanl.CallStatus{}); err != nil && !(errors.As(err, &cs) && cs.IsWarning()) {
		return answer{}, err
	}
	return n.answer(m, err == nil)
}

// answer reads the result of a solve.
func (n native) answer(m *model, finished bool) (answer, error) {
	x, err := n.solution()
	if err != nil {
		return answer{}, err
	}
	r := answer{x: x, bound: math.Inf(-1)}
	switch {
	case x == nil:
	case m.Mixed():
		if r.bound, err = n.float("mip_dual_bound"); err == nil {
			r.nodes, err = n.nodes()
		}
	case finished:
		r.bound, err = n.float("objective_function_value")
	}
	return r, err
}

// rawModel hands a model to HiGHS.
func rawModel(m *model) (*lanl.RawModel, error) {
	model := lanl.Model{ColCosts: m.Cost, ColLower: m.Lower, ColUpper: m.Upper, RowLower: m.RowLower,
		RowUpper: m.RowUpper,
		VarTypes: make([]lanl.VariableType, len(m.Cost)), ConstMatrix: make([]lanl.Nonzero, 0, len(m.Value))}
	for i, integer := range m.Integer {
		if integer {
			model.VarTypes[i] = lanl.IntegerType
		}
	}
	for row := range m.RowLower {
		for i := m.Start[row]; i < m.Start[row+1]; i++ {
			model.ConstMatrix = append(model.ConstMatrix, lanl.Nonzero{Row: row, Col: int(m.Index[i]), Val: m.Value[i]})
		}
	}
	return model.ToRawModel()
}

func setOptions(raw *lanl.RawModel, b ilp.Budget, until time.Time) error {
	errs := []error{
		raw.SetBoolOption("output_flag", false),
		raw.SetIntOption("threads", 1),
		raw.SetStringOption("parallel", "off"),
		raw.SetIntOption("random_seed", int(b.Seed%math.MaxInt32)),
		raw.SetFloat64Option("mip_rel_gap", b.Gap),
		raw.SetFloat64Option("mip_abs_gap", tolerance/2),
	}
	if b.Work > 0 {
		errs = append(errs, raw.SetIntOption("mip_max_nodes", int(min(1+b.Work/nodeWork, math.MaxInt32))))
	}
	if !until.IsZero() {
		errs = append(errs, raw.SetFloat64Option("time_limit", time.Until(until).Seconds()))
	}
	return errors.Join(errs...)
}

// Version returns the version of HiGHS in the program.
func Version() string { return C.GoString(C.Highs_version()) }

// native is a HiGHS model, for functions that github.com/lanl/highs lacks. Its user must keep the lanl.RawModel alive,
// because the RawModel's finalizer frees it.
type native struct{ highs unsafe.Pointer }

// nativeOf takes HiGHS's own pointer out of a model.
func nativeOf(raw *lanl.RawModel) (native, error) {
	v := reflect.ValueOf(raw).Elem().FieldByName("obj")
	if v.Kind() != reflect.UnsafePointer || v.UnsafePointer() == nil {
		return native{}, errors.New("github.com/lanl/highs has another memory layout than v1.0.0")
	}
	return native{v.UnsafePointer()}, nil
}

// setSolution gives HiGHS the values of all columns to start from.
func (n native) setSolution(x []float64) error {
	if len(x) != int(C.Highs_getNumCol(n.highs)) {
		return fmt.Errorf("%d values to start from, the model has %d columns", len(x), int(C.Highs_getNumCol(n.highs)))
	}
	if status := C.Highs_setSolution(n.highs, (*C.double)(&x[0]), nil, nil, nil); status != 0 {
		return fmt.Errorf("Highs_setSolution returned %d", int(status))
	}
	return nil
}

// solution returns the values of all columns, nil if HiGHS has found none. It
// also works where a limit ended the search, when lanl.RawModel.Solve returns
// none.
func (n native) solution() ([]float64, error) {
	const feasible = 2
	var status C.HighsInt
	if err := n.info("primal_solution_status", func(name *C.char) C.HighsInt {
		return C.Highs_getIntInfoValue(n.highs, name, &status)
	}); err != nil || status != feasible {
		return nil, err
	}
	cols, rows := int(C.Highs_getNumCol(n.highs)), int(C.Highs_getNumRow(n.highs))
	x, dual := make([]float64, cols), make([]float64, cols)
	row, rowDual := make([]float64, rows), make([]float64, rows)
	if C.Highs_getSolution(n.highs, (*C.double)(&x[0]), (*C.double)(&dual[0]), (*C.double)(&row[0]),
		(*C.double)(&rowDual[0])) != 0 {
		return nil, errors.New("Highs_getSolution failed")
	}
	return x, nil
}

// float returns a number of the last solve.
func (n native) float(name string) (float64, error) {
	var v C.double
	err := n.info(name, func(name *C.char) C.HighsInt { return C.Highs_getDoubleInfoValue(n.highs, name, &v) })
	return float64(v), err
}

// nodes is the number of branch-and-bound nodes of the last solve.
func (n native) nodes() (int64, error) {
	var v C.int64_t
	err := n.info("mip_node_count", func(name *C.char) C.HighsInt {
		return C.Highs_getInt64InfoValue(n.highs, name,
			&v)
	})
	return max(0, int64(v)), err
}

func (n native) info(name string, get func(*C.char) C.HighsInt) error {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	if status := get(s); status != 0 {
		return fmt.Errorf("HiGHS does not report its %s (status %d)", name, int(status))
	}
	return nil
}

// stopWith makes HiGHS stop when ctx ends, until release is called. HiGHS
// before 1.6 does not.
func (n native) stopWith(ctx context.Context) (release func()) {
	told := (*C.int)(C.calloc(1, C.sizeof_int))
	C.listen(n.highs, told)
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		C.tell(told)
		close(done)
	})
	return func() {
		if !stop() {
			<-done
		}
		C.free(unsafe.Pointer(told))
	}
}
